"""plan_schedule: done with symbols and by every planner; nothing it stores can be left out."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import assert_never

import pytest
from oracles.arrays import ArrayPlan, earliest, latest, plan_schedule

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.variables import Flow, Step
from ckio.errors import NoSchedule
from ckio.planners.auto import auto
from ckio.planners.binomial import revolve
from ckio.planners.dp import hrevolve, mixed
from ckio.planners.literature import disk_revolve, multistage, two_level
from ckio.planners.online import online, wang_moin
from ckio.planners.trivial import periodic, recompute_all, store_all
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
    "wang-moin": wang_moin,
    "auto": auto,
}
VARYING: dict[str, Planned] = {"hrevolve": hrevolve, "mixed": mixed, "auto": auto}
ONE_LEVEL = {"store-all", "recompute-all", "periodic", "revolve", "wang-moin"}


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


def perform(
    schedule: Schedule,
    model: Symbols,
    plan: ArrayPlan | None,
    *,
    lost: tuple[Key, int] | None = None,
) -> list[set[Key]]:
    """Do a schedule, on single variables or (no plan) on whole states; what is left on the levels.

    Raises Wrong where a step does not find what it uses. What is `lost` is not read back.
    """
    start = schedule.stored if plan is None else plan.stored
    levels: list[dict[Key, object]] = [{} for _ in range(20)]
    for level, keys in zip(levels, start, strict=False):
        for key in keys:
            state = model.right[key.step]
            level[key] = dict(state) if plan is None else state[key.name]
    beside: dict[int, list[Action]] = {}
    for place, access in () if plan is None else zip(plan.places, plan.accesses, strict=True):
        beside.setdefault(place, []).append(access)
    for place, action in enumerate(schedule.actions):
        match action:
            case Advance(begin, end) | Record(begin, end):
                for i in range(begin, end):
                    step = model.steps[i]
                    flow = step.forward if isinstance(action, Advance) else step.record
                    model.forward(i, flow)
                model.reached(end)
            case Reverse(begin, end):
                for i in reversed(range(begin, end)):
                    model.reverse(i)
            case Write() | Read() | Discard() if plan is None:
                whole(action, model, levels)
            case Write() | Read() | Discard():
                for access in beside.pop(place, []):
                    assert isinstance(access, Discard) or type(access) is type(action)
                    single(access, model, levels, lost)
            case _:
                assert_never(action)
    assert not beside
    return [set(level) for level in levels]


def whole(action: Write | Read | Discard, model: Symbols, levels: list[dict[Key, object]]) -> None:
    if action.key.kind is not Kind.RESTART:
        return
    match action:
        case Write(key, level):
            levels[level][key] = dict(model.state)
        case Read(key, level):
            found = levels[level][key]
            assert isinstance(found, dict)
            model.state = dict(found)
        case Discard(key, level):
            del levels[level][key]


def single(
    access: object,
    model: Symbols,
    levels: list[dict[Key, object]],
    lost: tuple[Key, int] | None,
) -> None:
    match access:
        case Write(key, level):
            assert key not in levels[level]
            assert lost or model.state[key.name] == model.right[key.step][key.name]
            levels[level][key] = model.state[key.name]
        case Read(key, level):
            value = levels[level][key]
            if lost != (key, level):
                model.state[key.name] = value
        case Discard(key, level):
            del levels[level][key]


def subset(random: Random, names: Iterator[str] | str | frozenset[str], p: float) -> frozenset[str]:
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
        perform(schedule, Symbols(steps, seed), None)
    except Wrong:
        return False
    return True


def check(
    schedule: Schedule, steps: list[Step], seed: frozenset[str], *, losses: int = 10**9
) -> int:
    """Plan by each placing and do it; returns how many arrays were lost, each of which was felt."""
    plans = [
        plan_schedule(schedule, steps, seed=seed, placing=placing) for placing in (latest, earliest)
    ]
    for plan in plans:
        left = perform(schedule, Symbols(steps, seed), plan)
        assert not any(left)
        written = [action.key for action in plan.accesses if isinstance(action, Write)]
        assert len(set(written)) == len(written) == plan.writes
    assert plans[0].writes == plans[1].writes
    assert plans[0].reads == plans[1].reads
    stored = [(it.key, it.level) for it in plans[0].accesses if isinstance(it, Write)]
    for lost in stored[:losses]:
        with pytest.raises(Wrong):
            perform(schedule, Symbols(steps, seed), plans[0], lost=lost)
    return len(stored[:losses])


MODELS = 20
"""Random models that each planner's schedules are held to; there are 15 such campaigns."""

CAMPAIGN = [(name, planner, False) for name, planner in PLANNERS.items()] + [
    (name, planner, True) for name, planner in VARYING.items()
]


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("name", "planner", "differ"), CAMPAIGN, ids=lambda it: it if isinstance(it, str) else None
)
def test_every_planner_runs_on_single_variables_and_needs_each_that_is_stored(
    name: str, planner: Planned, differ: bool
) -> None:
    random, done, lost = Random(name + str(differ)), 0, 0
    while done < MODELS:
        try:
            schedule = random_planned(random, name, planner, differ=differ)
        except NoSchedule:
            continue
        for _ in range(10):
            steps = random_steps(random, schedule.chain.length, in_part=random.random() < 0.5)
            seed = subset(random, NAMES, 0.3)
            if is_right(schedule, steps, seed):
                done, lost = done + 1, lost + check(schedule, steps, seed, losses=4)
    assert lost > 0 or name == "store-all"
