"""The curves of Herrmann and Pallez (2020), Figures 2 to 5, as schedules on machines.

The text of the paper gives the machines; what only its printed pictures show, the lengths and the
slots of Figure 2, is chosen here. u_f = 1 and u_b = 0, as there. Every point is the makespan of a
schedule that was checked action by action on its machine.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bench import ROOT
from bench.papers.hrevolve_printed import folded, revolve_by_table, spread
from ckio.adapters.registry import find
from ckio.errors import NoSchedule
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan
from ckio.schedule.replay import validate

Plan = Callable[[Chain], Schedule]

GOLDEN = ROOT / "tests" / "golden"
NEAR = {"arch_1": (0, 1), "arch_2": (0,)}
"""The levels that are memory to an algorithm for two levels; the others are disk."""

BY_TABLE = "revolve, by table"
"""Revolve as the paper's library plans it."""

SLOTS = (2, 5, 10, 20, 50)
"""Of the memories of Figure 2."""


@dataclass(frozen=True)
class Case:
    """A machine, the schedules compared on it, and the one that they are compared with."""

    plot: str
    platform: Platform
    plans: Mapping[str, Plan]
    name: str = ""
    best: str = "hrevolve"


@dataclass(frozen=True)
class Point:
    """The makespan of one schedule on a chain of the paper's length l, and how it compares."""

    plot: str
    case: str
    schedule: str
    length: int
    makespan: float
    relative: float


def chain(length: int) -> Chain:
    """The paper's chain of size l, whose checkpoints are one byte."""
    return Chain(steps=length + 1, advance=1, record=0, reverse=0, restart=1, tape=1, adjoint=1)


def machine(name: str) -> Platform:
    """One of the machines that the paper prints."""
    return Platform.loads((GOLDEN / f"{name}.platform.txt").read_text(encoding="utf-8"))


def plans(platform: Platform, *names: str) -> dict[str, Plan]:
    """Registered planners on one machine, by their names."""
    return {name: partial(_planned, platform=platform, planner=name) for name in names}


def _planned(chain: Chain, platform: Platform, planner: str) -> Schedule:
    schedule: Schedule = find("planners", planner)(chain, platform)
    return schedule


def figure_2() -> Iterator[Case]:
    """One level that is not free: Revolve, which takes it for free, beside H-Revolve."""
    for letter, cost in zip("abcd", (0.5, 1, 2, 3), strict=True):
        for slots in SLOTS:
            memory = Level(name="memory", capacity=slots, write=Affine(cost), read=Affine(cost))
            platform = Platform((memory,), working_memory=1)
            yield Case(
                f"2{letter}: w = r = {cost:g}",
                platform,
                plans(platform, "hrevolve", "hrevolve-2020", "revolve")
                | {BY_TABLE: partial(revolve_by_table, platform=platform)},
                name=f"c = {slots}",
            )


def figure_3() -> Iterator[Case]:
    """Free memory and a disk without end: the periodic algorithms beside Disk-Revolve."""
    names = "disk-revolve", "periodic-disk-revolve", "per-rev-revolve", "hrevolve", "hrevolve-2020"
    for letter, slots, cost in (("a", 2, 15), ("b", 2, 30), ("c", 3, 50), ("d", 4, 50)):
        platform = folded(slots, cost, cost)
        title = f"3{letter}: c = {slots}, w = r = {cost}"
        yield Case(title, platform, plans(platform, *names), best="disk-revolve")


def figure_4() -> Iterator[Case]:
    """Heuristics for two levels, or one, on three and four: short chains."""
    for case in figure_5():
        platform, homes = case.platform, homes_on(case.name, case.platform)
        folds = {
            f"disk-revolve, w = r = {cost}": partial(
                disk_revolve_folded, platform=platform, cost=cost, homes=homes
            )
            for cost in (10, 15, 20)
        }
        yield Case(case.plot.replace("5", "4"), platform, {**case.plans, **folds}, name=case.name)


def figure_5() -> Iterator[Case]:
    """Those that do not fail where slots are few: long chains."""
    for number, name in zip("ab", NEAR, strict=True):
        platform = machine(name)
        blocks = partial(in_equal_blocks, platform=platform, homes=homes_on(name, platform))
        yield Case(
            f"5{number}: {name}",
            platform,
            plans(platform, "hrevolve", "hrevolve-2020", "multistage")
            | {
                "per-rev-revolve": blocks,
                BY_TABLE: partial(least_used_furthest, platform=platform),
            },
            name=name,
        )


FIGURES = {2: figure_2, 3: figure_3, 4: figure_4, 5: figure_5}


def homes_on(name: str, platform: Platform) -> tuple[Sequence[int], Sequence[int]]:
    """The near levels of a machine, and the far ones."""
    return NEAR[name], range(len(NEAR[name]), len(platform.levels))


def slots_of(platform: Platform, levels: Iterable[int]) -> int:
    return sum(platform.levels[number].capacity or 0 for number in levels)


def disk_revolve_folded(
    chain: Chain, platform: Platform, cost: float, homes: tuple[Sequence[int], Sequence[int]]
) -> Schedule:
    """Disk-Revolve with the near levels as its memory and the far ones as its disk."""
    two = folded(slots_of(platform, homes[0]), cost, cost)
    return spread(_planned(chain, two, "disk-revolve"), platform, homes)


def in_equal_blocks(
    chain: Chain, platform: Platform, homes: tuple[Sequence[int], Sequence[int]]
) -> Schedule:
    """Per-Rev-Revolve with as many blocks as the far levels have slots."""
    near, far = (slots_of(platform, levels) for levels in homes)
    period = -(-chain.length // far)
    plan = find("planners", "per-rev-revolve")
    return spread(plan(chain, folded(near, 1, 1), period=period), platform, homes)


def least_used_furthest(chain: Chain, platform: Platform) -> Schedule:
    """Revolve in all slots together, as if they were one level."""
    everywhere = range(len(platform.levels))
    one = folded(slots_of(platform, everywhere), 0, 0)
    return spread(revolve_by_table(chain, one), platform, [everywhere])


def points(cases: Iterable[Case], lengths: Sequence[int]) -> Iterator[Point]:
    """All that could be planned, by case, then length, then schedule."""
    for case in cases:
        for length in lengths:
            seconds = {
                name: checked(plan, chain(length), case.platform)
                for name, plan in case.plans.items()
            }
            best = seconds[case.best]
            for name, value in seconds.items():
                if value is not None and best:
                    yield Point(case.plot, case.name, name, length, value, value / best)


def checked(plan: Plan, chain: Chain, platform: Platform) -> float | None:
    """The makespan of a schedule that is legal on the platform; None where there is none."""
    try:
        schedule = plan(chain)
    except NoSchedule:
        return None
    left = validate(schedule, platform)
    if left.adjoint or any(left.stored):
        raise AssertionError(f"{plan}: {left.adjoint} steps are left, or something is stored")
    return makespan(schedule, platform)
