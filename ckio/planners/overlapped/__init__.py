"""Overlapped: a schedule for storage that goes on behind the computation, and the policy for it.

What a schedule takes with overlap is what `ckio.traffic` makes of it: there is no recurrence for
that, so plans are made by one that knows of overlap only what its rules say (`tables`), and each is
simulated (`engine`, on `programs` and `channels`).

    segments    what segments of the chain take, for each length and number of far slots
    woven       what they take when the next one is begun while one is taken back
    chains      which of them make the best chain
    climb       changes of that chain, as a tree of `pieces`, for what segments do to one another
    anneal      changes that are no tree any more: of `stretches` of an order of items (`orders`)
    search      on which grid, and by which rules
    windows     what segments take at the least beside what is on its way
    bound       what no plan is expected to come below
    writes      the same, where each write is in one piece: of `lengths`, by `progress`
    reads       the same, where each read is, too: of `worths`, by `inner` ones and `transfers`

H-Revolve's schedule is always among those that are compared, with and without overlap, so none is
ever above the least makespan without it.
"""

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ckio.actions import Key, Kind
from ckio.chain import Chain
from ckio.columns import Actions
from ckio.overlap import Overlap
from ckio.planners import compiled, hrevolve
from ckio.planners.base import Room, log, rooms, without_notes
from ckio.planners.overlapped.engine import simulated
from ckio.planners.varying.bound import sorted_bound
from ckio.platforms import FREE, Affine, Level, Platform
from ckio.schedule import Schedule, makespan
from ckio.traffic import memory_level

if TYPE_CHECKING:
    from ckio.planners.overlapped.segments import Machine

_HORIZONS = (2.0, 5.0, 10.0, 20.0)
"""How far ahead to read, in slowest transfers."""

_CLOSE = 1.001
"""A plan that takes no more than so many times the bound is not made better."""

_LOOSE = 1.03
"""A bound that leaves no more than so many times its seconds is not looked at again."""

_BOUNDED = 5 * 10**7
"""Steps times far slots for which the bound counts what the channel does: some seconds."""

_SLOW = 20_000
"""Actions that are simulated without numba at the most."""


class _Way(NamedTuple):
    """What a schedule takes, itself, with which policy, and how it was made."""

    seconds: float
    schedule: Schedule
    overlap: Overlap
    how: str = "H-Revolve's schedule"


@dataclass(frozen=True)
class Overlapped:
    """A schedule, and how to run it.

    Attributes
    ----------
    schedule : Schedule
    overlap : Overlap
        The policy that it was made for.
    makespan : float
        Seconds with it, equal to what `ckio.sim` finds.
    bound : float
        Seconds below which no schedule of restart checkpoints is expected to come with any policy;
        `bound`, `writes` and `reads` in `ckio.planners.overlapped` say what this rests on.
    synchronous : float
        Seconds of H-Revolve's schedule without overlap.
    """

    schedule: Schedule
    overlap: Overlap
    makespan: float
    bound: float
    synchronous: float

    @property
    def gap(self) -> float:
        """How far the makespan is above the bound, as a part of the bound."""
        return self.makespan / self.bound - 1 if self.bound else 0.0


def overlapped(chain: Chain, platform: Platform, /) -> Schedule:
    """The schedule of `plan`, whose note says with which policy to run it. Raises as `hrevolve`."""
    return plan(chain, platform).schedule


def plan(chain: Chain, platform: Platform, /) -> Overlapped:
    """The best schedule and policy found for a chain on a platform whose first level is memory.

    With several far levels it is made for the best one of them, or is H-Revolve's for all; so it
    is for chains whose steps differ or which are too long, and without numba. Where the first
    level is not plain memory, there is no room for what is on its way, and nothing overlaps. The
    note of the schedule says which it is. Raises as `hrevolve` does.
    """
    prepare(platform)
    least = hrevolve.hrevolve(chain, platform)
    near, far = _sides(chain, platform)
    bound = _bound(chain, platform, near, far)
    found = [_Way(makespan(least, platform), least, Overlap())]
    if memory_level(platform) is not None:
        found += _compared(least, platform, [_policy(horizon) for horizon in _horizons(far)])
        if near is not None and compiled.available():
            for room in far:
                found += _planned(chain, platform, near, room, bound * _CLOSE)
    best = min(found, key=lambda way: way.seconds)
    if best.seconds > bound * _LOOSE:
        sought = bound, best.seconds / _LOOSE
        bound = max(bound, _tighter(chain, platform, near, far, sought))
    made = Overlapped(best.schedule, best.overlap, best.seconds, bound, found[0].seconds)
    searched = any(way.schedule is not least for way in found)
    how = best.how if searched else f"{best.how}, as {_why_not(chain, platform, near, far)}"
    return replace(made, schedule=_noted(made, how))


def prepare(platform: Platform, /) -> None:
    """Load the compiled code that `plan` needs for this platform; the first time, compile it."""
    if memory_level(platform) is not None:
        compiled.prepare(__name__)


def warm_up() -> None:
    """Call each kernel once, by a plan for a small machine."""
    chain = Chain(steps=60, advance=1, record=1, reverse=1, restart=1, tape=1, adjoint=1)
    slow = Affine(latency=9.0)
    far = Level(name="far", capacity=9, write=slow, read=slow, backend="directory")
    platform = Platform((Level(name="near", capacity=3), far))
    near, others = _sides(chain, platform)
    if near is not None:
        _planned(chain, platform, near, others[0], 0.0)
        _bound(chain, platform, near, others)
        _tighter(chain, platform, near, others, (0.0, inf))


def _why_not(chain: Chain, platform: Platform, near: Room | None, far: list[Room]) -> str:
    """Why nothing but H-Revolve's schedule is compared: the first of all reasons that holds."""
    reasons = {
        "the first level is not memory, so there is no room for what is on its way": (
            memory_level(platform) is None
        ),
        "numba is missing (pip install ckio[fast])": not compiled.available(),
        "steps differ": chain.varies,
        "one step needs no checkpoint": chain.length == 1,
        "memory has no room for a checkpoint": near is None,
        "no far level has room for a checkpoint": not far,
        "steps take no time": not chain.advance,
        "the chain is too long to be searched": True,
    }
    return next(reason for reason, holds in reasons.items() if holds)


def _sides(chain: Chain, platform: Platform) -> tuple[Room | None, list[Room]]:
    """What the memory level offers, and the far ones; nothing where steps differ."""
    if chain.varies or chain.length == 1:
        return None, []
    with without_notes():
        offers = rooms(chain, platform, planner="overlapped")
    near = next((room for room in offers if room.number == memory_level(platform)), None)
    return near, [room for room in offers if room is not near]


def _horizons(far: list[Room]) -> list[float]:
    """How far ahead to read, in seconds of computing."""
    slowest = max((max(room.write, room.read) for room in far), default=0.0)
    return [times * slowest for times in _HORIZONS if slowest] + [inf]


def _policy(horizon: float) -> Overlap:
    """As much overlap as there is room for."""
    return Overlap(write_behind=None, read_ahead=None, horizon=horizon)


def _compared(schedule: Schedule, platform: Platform, policies: list[Overlap]) -> list[_Way]:
    """A schedule with each of some policies, and what it takes so."""
    if len(schedule) > _SLOW and not compiled.available():
        return []
    seconds = simulated(schedule, platform, policies)
    return [_Way(taken, schedule, policy) for taken, policy in zip(seconds, policies, strict=True)]


def _planned(chain: Chain, platform: Platform, near: Room, far: Room, enough: float) -> list[_Way]:
    """The best plan for memory and one far level, or the first that takes no more than `enough`."""
    from ckio.planners.overlapped.search import search

    found = (
        search(_machine(chain, platform, near, far), _horizons([far]), enough)
        if chain.advance
        else None
    )
    if found is None:
        return []
    op, level, begin, end = (column[: found.count] for column in found.rows[:4])
    actions = Actions(
        op=op.astype(np.uint8),
        level=np.where(level, far.number, near.number).astype(np.int16),
        begin=begin,
        end=end,
    )
    names = [platform.levels[room.number].name for room in (near, far)]
    return [
        way._replace(how=f"made for {' and '.join(names)}")
        for way in _compared(Schedule(chain, actions), platform, [_policy(found.horizon)])
    ]


def _machine(chain: Chain, platform: Platform, near: Room, far: Room) -> "Machine":
    from ckio.planners.overlapped.segments import Costs, Machine

    def seconds(room: Room) -> tuple[float, float, float]:
        level, nbytes = platform.levels[room.number], chain.nbytes(Key(Kind.RESTART, 0))
        return level.write(nbytes), level.read(nbytes), level.discard(nbytes)

    costs = Costs(chain.advance, chain.record, chain.reverse, *seconds(near), *seconds(far))
    return Machine(chain.length - 1, near.slots, far.slots, costs)


def _bound(chain: Chain, platform: Platform, near: Room | None, far: list[Room]) -> float:
    """What takes at least as long as any schedule; of all levels together, if access cost nothing.

    For memory and one far level, and with numba, it counts what the channel has to do, too.
    """
    if chain.varies:
        smallest = int(chain.each("restart").min())
        slots = sum(level.slots(smallest, chain.length) for level in platform.levels)
        return sorted_bound(chain, platform, slots=slots, tapes=False)
    if near is not None and len(far) == 1 and chain.advance and compiled.available():
        from ckio.planners.overlapped.bound import bound

        if chain.length * far[0].slots <= _BOUNDED:
            return bound(_machine(chain, platform, near, far[0]))
    free = [replace(level, write=FREE, read=FREE, discard=FREE) for level in platform.levels]
    with without_notes():
        least = replace(platform, levels=tuple(free))
        return hrevolve.solve(chain, least, planner="overlapped", repaired=True).seconds


def _tighter(
    chain: Chain,
    platform: Platform,
    near: Room | None,
    far: list[Room],
    sought: tuple[float, float],
) -> float:
    """What `writes` and `reads` say of memory and one far level; 0 where they say nothing."""
    if near is None or len(far) != 1 or not chain.advance or not compiled.available():
        return 0.0
    from ckio.planners.overlapped.reads import bound_by_reads
    from ckio.planners.overlapped.writes import bound_by_writes

    machine, (_, enough) = _machine(chain, platform, near, far[0]), sought
    found = bound_by_writes(machine, *sought)
    return found if found >= enough else max(found, bound_by_reads(machine))


def _noted(made: Overlapped, how_made: str) -> Schedule:
    """Its schedule, with a sentence that says how to run it and how good it is."""
    how = f"with overlap {made.overlap}" if made.overlap else "without overlap"
    note = f"{how}: {made.makespan:.6g} s, {made.gap:.1%} above a bound"
    if made.overlap:
        note += f", and {1 - made.makespan / made.synchronous:.1%} less than without overlap"
    note += f"; {how_made}"
    log.info("overlapped: %s", note)
    return Schedule(made.schedule.chain, made.schedule.actions, note=note)
