"""Variables by chance, of which each step does anything that a step may do."""

from random import Random

from ckio.actions.variables import NOTHING, Flow, Names, Step, Variables

NAMES = "abcd"


def subset(random: Random, names: object, p: float) -> Names:
    return frozenset(name for name in sorted(names) if random.random() < p)  # type: ignore[call-overload]


def random_step(random: Random) -> Step:
    """Any step: in part or in whole, recording like the forward or not, restoring or not."""

    def flow(use: Names = NOTHING, out: Names = NOTHING) -> Flow:
        out |= subset(random, NAMES, 0.4)
        return Flow(use | subset(random, NAMES, 0.3), out, subset(random, out, 0.6))

    forward = flow()
    record = random.choice((None, flow(subset(random, forward.use, 0.5), forward.out)))
    reverse = random.choice((Flow(), Flow(subset(random, NAMES, 0.3), subset(random, NAMES, 0.3))))
    restored = subset(random, random.choice((NAMES, forward.out)), random.choice((0, 0.7)))
    return Step(forward, record, reverse, restored)


def random_steps(random: Random, length: int) -> Step | tuple[Step, ...]:
    """One for all, a few in turns or at random, or each another."""
    kinds = [random_step(random) for _ in range(random.randint(1, length))]
    if len(kinds) == 1 and random.random() < 0.7:
        return kinds[0]
    return tuple(
        random.choice((kinds[i % len(kinds)], random.choice(kinds))) for i in range(length)
    )


def random_variables(random: Random, length: int) -> Variables:
    seed, tape = (subset(random, NAMES, random.choice((0, 0.4))) for _ in range(2))
    nbytes = {name: random.randint(1, 9) for name in random.sample(NAMES, len(NAMES))}
    return Variables(nbytes, random_steps(random, length), seed, tape)
