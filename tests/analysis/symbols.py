"""Schedules done with symbols, on whole states or on single variables; and random cases of them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

from ckio.actions import Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.variables import TOGETHER, Flow, Step, Variables
from ckio.planners.binomial import revolve
from ckio.planners.dp import hrevolve, mixed
from ckio.planners.fastest import auto
from ckio.planners.literature import disk_revolve, multistage, two_level
from ckio.planners.trivial import periodic, recompute_all, store_all
from ckio.planners.unknown import online
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule

NAMES = "abcd"

Planned = Callable[[Chain, Platform], Schedule]
PLANNERS: dict[str, Planned] = {
    "store-all": store_all,
    "recompute-all": recompute_all,
    "periodic": periodic,
    "revolve": revolve,
    "multistage": multistage,
    "two-level": two_level,
    "disk-revolve": disk_revolve,
    "hrevolve": hrevolve,
    "mixed": mixed,
    "online": online,
    "auto": auto,
}
VARYING: dict[str, Planned] = {"hrevolve": hrevolve, "mixed": mixed, "auto": auto}
ONE_LEVEL = {"store-all", "recompute-all", "periodic", "revolve"}


class Wrong(AssertionError):
    """A step found another value than the forward has there."""


@dataclass
class Symbols:
    """A model of symbols: each value of the forward is one, and whatever is spoilt is a new one."""

    steps: list[Step]
    seed: frozenset[str]
    state: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = sorted(self.seed.union(*(step.variables for step in self.steps)))
        self.right: list[dict[str, object]] = [{name: (name, 0) for name in names}]
        for i, step in enumerate(self.steps):
            new = {name: (name, i + 1) for name in step.forward.out}
            self.right.append(self.right[-1] | new)
        self.state = dict(self.right[0])
        self.seeded = False

    def check(self, what: object, names: frozenset[str], i: int) -> None:
        for name in names:
            if self.state[name] != self.right[i][name]:
                raise Wrong(f"{what} finds {self.state[name]} for {name} of x_{i}")

    def forward(self, i: int, flow: Flow) -> None:
        """Forward or recording; what comes out is right if all is that the forward uses."""
        self.check(f"step {i}", flow.use, i)
        before, here, step = dict(self.state), self.right[i], self.steps[i].forward
        found = all(before[name] == here[name] for name in step.use)
        for name in flow.out:
            right = found and (name in flow.kill or before[name] == here[name])
            of_forward = right and name in step.out
            self.state[name] = self.right[i + 1][name] if of_forward else object()

    def reached(self, i: int) -> None:
        if i == len(self.steps) and not self.seeded:
            self.check("the seed", self.seed, i)
            self.seeded = True

    def reverse(self, i: int) -> None:
        step = self.steps[i]
        self.check(f"adjoint step {i}", step.reverse.use, i + 1)
        self.state |= {name: object() for name in step.reverse.out}
        self.state |= {name: self.right[i][name] for name in step.restored}


def perform(  # noqa: PLR0912, one for each action
    schedule: Schedule,
    steps: list[Step],
    seed: Iterable[str],
    *,
    taped: Iterable[str] = (),
    lost: tuple[Key, int] | None = None,
) -> set[Key]:
    """Do a schedule; the arrays that are left on its levels.

    Raises Wrong where a step, or an adjoint, finds another value than the forward has there. What
    lies on the levels at the start has the values of the forward. What is `lost` is not read back.
    """
    model = Symbols(steps, frozenset(seed))
    levels: list[dict[Key, dict[str, object]]] = [{} for _ in range(20)]
    for level, keys in zip(levels, schedule.stored, strict=False):
        level |= {key: held(key, model.right[key.step]) for key in keys}
    tape: dict[str, object] = {}
    span = range(0)
    for action in schedule.actions:
        match action:
            case Advance(begin, end) | Record(begin, end):
                for i in range(begin, end):
                    step = steps[i]
                    model.forward(i, step.forward if isinstance(action, Advance) else step.record)
                model.reached(end)
                span = range(begin, end) if isinstance(action, Record) else span
            case Reverse(begin, end):
                for i in reversed(range(begin, end)):
                    needed = () if i in span else steps[i].record.use.intersection(taped)
                    if any(tape.get(name) != model.right[i].get(name) for name in needed):
                        raise Wrong(f"the tape of step {i} is {tape}")
                    model.reverse(i)
            case Write(key, level):
                assert not key.name or key not in levels[level]
                assert key.kind is Kind.RESTART or len(span) == 1 or not taped
                first = model.right[span[0] if span else 0]
                levels[level][key] = held(key, model.state if key.kind is Kind.RESTART else first)
            case Read(key, level):
                found = levels[level][key]
                if lost == (key, level):
                    found = {name: object() for name in found}
                if key.kind is Kind.RESTART:
                    model.state |= found
                elif key.kind is Kind.TAPE:
                    tape |= found
                    span = range(0) if key.name else range(key.step, key.step + 1)
            case Discard(key, level):
                del levels[level][key]
    return {key for level in levels for key in level if key.name}


def held(key: Key, state: dict[str, object]) -> dict[str, object]:
    """What of a state, or of a tape, lies under a key."""
    if key.name:
        return {part: state.get(part) for part in key.name.split(TOGETHER)}
    return dict(state) if key.kind is Kind.RESTART else {}


def subset(random: Random, names: Iterable[str], p: float) -> frozenset[str]:
    return frozenset(name for name in sorted(names) if random.random() < p)


def random_step(random: Random, *, in_part: bool, asleep: bool = True) -> Step:
    """A step on a few variables.

    `in_part`, it may overwrite some of them in part; `asleep`, it may record without all that it
    needs to go forward.
    """

    def flow(use: frozenset[str] = frozenset(), out: frozenset[str] = frozenset()) -> Flow:
        out |= subset(random, NAMES, 0.3)
        kill = subset(random, out, 0.6) if in_part else out
        return Flow(use | subset(random, NAMES, 0.3), out, kill)

    forward = flow()
    less = subset(random, forward.use, 0.5 if asleep else 1.0)
    record = random.choice((None, flow(less, forward.out)))
    kept = frozenset(NAMES) - (forward if record is None else record).out
    reverse = Flow(subset(random, kept, 0.3), subset(random, NAMES, random.choice((0, 0, 0.2))))
    restored = subset(random, forward.out, random.choice((0, 0.7)))
    return Step(forward, record, reverse, restored)


def random_steps(random: Random, length: int, *, in_part: bool, asleep: bool = True) -> list[Step]:
    """Of a few kinds, in turns or at random."""
    count = random.choice((1, 2, 3))
    kinds = [random_step(random, in_part=in_part, asleep=asleep) for _ in range(count)]
    if random.random() < 0.5:
        return [kinds[i % len(kinds)] for i in range(length)]
    return [random.choice(kinds) for _ in range(length)]


def random_planned(random: Random, name: str, planner: Planned, *, differ: bool) -> Schedule:
    """What a planner makes of a random chain on one to three levels with some room."""
    steps = random.randint(1, 14)
    restart = random.randint(1, 4)
    tape = restart * random.randint(1, 6)
    costs = {"advance": [random.randint(1, 9) for _ in range(steps)]} if differ else {"advance": 2}
    chain = Chain(steps=steps, record=3, reverse=1, restart=restart, tape=tape, adjoint=1, **costs)
    count = 1 if name in ONE_LEVEL else random.randint(1, 3)
    needed = 100 * tape if name == "store-all" else restart + random.randint(0, 10)
    levels = tuple(
        Level(
            name=f"level{number}",
            capacity=None if number and number == count - 1 else needed,
            write=Affine(number * random.randint(0, 9)),
            read=Affine(number * random.randint(0, 9)),
        )
        for number in range(count)
    )
    return planner(chain, Platform(levels, random.choice((tape, 2 * tape))))


def is_right(schedule: Schedule, steps: list[Step], seed: frozenset[str]) -> bool:
    """Whether whole checkpoints do for these steps at all."""
    try:
        perform(schedule, steps, seed)
    except Wrong:
        return False
    return True


def random_variables(
    random: Random, steps: list[Step], seed: frozenset[str], *, tape: frozenset[str] = frozenset()
) -> Variables:
    nbytes = {name: random.randint(1, 9) for name in NAMES}
    alike = len(set(steps)) == 1 and random.random() < 0.5
    return Variables(nbytes, steps[0] if alike else tuple(steps), seed, tape)


def in_place(steps: list[Step]) -> list[Step]:
    """The same steps, with adjoints that leave the state alone, as those of array models do."""
    return [Step(step.forward, step.record) for step in steps]
