"""Convert a schedule of whole checkpoints to one of single variables, storing only what is needed.

    whole      write x 0, advance 0 4, write x 4, ..., read x 4, record 4 5, ...
    lowered    write x 0 u, write x 0 v, advance 0 4, write x 4 u, ..., read x 4 u, record 4 5, ...

In the lowered schedule, each version of each variable is written if it will be needed, read if the
state has another version, and discarded after its last read. Variables that all steps treat in the
same way are stored together. Checkpoints then become smaller, so that more of them fit.
`ByVariable` makes any planner plan with these reduced sizes.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias, TypeVar

import numpy as np

from ckio.actions import Action, Discard, Key, Kind, Write
from ckio.actions.columns import KIND_CODE, READ, RECORD, WRITE, Actions
from ckio.actions.variables import Ints, Variables, of_a_fresh_model
from ckio.analysis.dataflow import NONE, CheckpointTimes, needed_arrays
from ckio.analysis.placing import ArrayReads, PlacedActions, WriteSites, place_copies
from ckio.errors import BadInput, IllegalAction, NoSchedule
from ckio.planners.base import Planner
from ckio.planners.recovery import Stored
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, counts, makespan
from ckio.schedule.occupancy import BEFORE
from ckio.schedule.replay import Register, validate

T = TypeVar("T")

Keys: TypeAlias = Sequence[Collection[Key]]
"""The keys stored on each level."""


def lower(
    schedule: Schedule,
    variables: Variables,
    /,
    *,
    platform: Platform | None = None,
    stored: Keys = (),
) -> Schedule:
    """Return the schedule that stores only the variables that are needed of each checkpoint.

    Parameters
    ----------
    schedule : Schedule
        A legal schedule of whole checkpoints, by any planner.
    variables : Variables
        The arrays of a state, and how the steps use and overwrite them.
    platform : Platform or None
        If it is given, copies are placed by its costs in the slots of the schedule's checkpoints,
        so that they fit if whole checkpoints fit (`in_slots`). Otherwise each array is written once
        and stored until its last read (`latest`), whatever the capacities are.
    stored : sequence of collections of Key
        The keys of variables that are stored on each level at the start. If the schedule starts
        with restart data or tapes, these consist of them. Keys that are not needed are discarded.

    Returns
    -------
    Schedule
        A schedule whose chain has the `variables`. Those that all steps treat in the same way are
        combined.

    Raises
    ------
    IllegalAction
        If the schedule is not legal, or if the lowered schedule does not fit on the platform.
    BadInput
        For the same reasons as `needed_arrays`. Also if the schedule starts with a checkpoint that
        `stored` does not contain.
    """
    levels = range(len(counts(schedule).levels))
    # The levels have no capacity here, so that only the other rules are checked.
    validate(schedule, Platform(tuple(Level(name=f"level{n}") for n in levels)))
    none = [frozenset[Key]()] * (len(schedule.stored) - len(stored))
    start = [*map(frozenset, stored), *none]
    if platform is None:
        return _lowered(schedule, variables.together(), None, start)
    apart, whole = variables.together(), variables.together(whole=True)
    schedules = [_lowered(schedule, apart, platform, start)]
    if whole != apart and not stored:
        with suppress(BadInput):  # a group may be read before all of it can be written
            schedules.append(_lowered(schedule, whole, platform, start))
    # Groups may need more capacity, so that the fastest schedule may not fit.
    *others, last = sorted(schedules, key=lambda each: makespan(each, platform))
    for each in others:
        with suppress(IllegalAction):
            validate(each, platform)
            return each
    validate(last, platform)
    return last


def _lowered(
    schedule: Schedule, variables: Variables, platform: Platform | None, stored: Keys
) -> Schedule:
    """Return a legal schedule for these variables, without grouping them further."""
    _check_stored(schedule, variables, stored)
    steps = variables.over(schedule.chain.length)
    arrays = [
        (Kind.RESTART, _available(each, stored))
        for each in needed_arrays(schedule, steps, variables.seed)
    ]
    accesses: list[tuple[int, Action]] = []
    needed: set[tuple[int, Key]] = set()
    for kind, each in [*arrays, *_tapes(schedule, variables)]:
        for copy in place_copies(each, platform, variables.nbytes[each.name]):
            key = Key(kind, copy.version, each.name)
            accesses += copy.accesses(key)
            if copy.place == BEFORE:
                needed.add((copy.level, key))
    first = _at_first(stored, needed, by_variable=variables.kinds)
    unchanged = _unchanged(schedule, by_variable=variables.kinds)
    every = [first, PlacedActions.of(accesses), unchanged]

    chain = replace(schedule.chain, variables=variables)
    start = [set(keys) for keys in stored]
    for level, keys in enumerate(schedule.stored):
        start[level] |= {key for key in keys if key.kind not in variables.kinds}
    return Schedule(chain, PlacedActions.together(every).actions, start, note=schedule.note)


def _check_stored(schedule: Schedule, variables: Variables, stored: Keys) -> None:
    for level, keys in enumerate(schedule.stored):
        for key in (key for key in keys if key.kind in variables.kinds):
            missing = set(variables.parts(key, schedule.chain.length)).difference(stored[level])
            missing -= {it for it in missing if key.step and of_a_fresh_model(it)}
            if missing:
                raise BadInput(
                    f"lower: the schedule starts with {key} on level {level}, of which"
                    f" {min(map(str, missing))} is not stored there"
                )


def _available(needed: ArrayReads, stored: Keys) -> ArrayReads:
    """Return the arrays without checkpoints at the start in which they are dead and not stored."""
    sites, name = needed.sites, needed.name
    available = sites.place != BEFORE
    for at in np.flatnonzero(~available).tolist():
        key = Key(Kind.RESTART, int(sites.version[at]), name)
        # The variables of a fresh model can be written before the first action.
        available[at] = of_a_fresh_model(key) or key in stored[int(sites.level[at])]
    arrays = replace(needed, sites=sites.take(available))
    for version, _ in arrays.late():
        key = Key(Kind.RESTART, version, name)
        raise BadInput(f"lower: {key} is read before it is computed, and is not stored")
    return arrays


def _tapes(schedule: Schedule, variables: Variables) -> Iterator[tuple[Kind, ArrayReads]]:
    """Yield the arrays of tape variables that have to be stored."""
    if not variables.taped:
        return
    steps, times = variables.over(schedule.chain.length), CheckpointTimes.of(schedule, Kind.TAPE)
    for name in sorted(variables.taped):
        version = np.where(steps.has(name, "record", "use"), steps.versions(name)[:-1], NONE)
        place = _reads_of_tapes(schedule.actions, version)
        of, until = version[schedule.actions.begin[place]], times.until(version)
        sites = WriteSites(version[times.step], times.written, times.level, until)
        yield Kind.TAPE, ArrayReads.of(name, of, place, [sites])


def _reads_of_tapes(actions: Actions, version: Ints) -> Ints:
    """Return the Reads of tapes that need another version than the register has."""
    read = (actions.op == READ) & (actions.kind == KIND_CODE[Kind.TAPE])
    needs = np.where(read, version[actions.begin * read], NONE)
    changes = (actions.op == RECORD) | (needs != NONE)
    has = Register(NONE, changes, needs).before()
    return np.flatnonzero((needs != NONE) & (needs != has))


def _at_first(
    stored: Keys, needed: Collection[tuple[int, Key]], *, by_variable: Collection[Kind]
) -> PlacedActions:
    """Return the first actions: discards of variables that are never read, and writes of x_0."""
    discards = [
        Discard(key, level)
        for level, keys in enumerate(stored)
        for key in sorted(keys, key=str)
        if key.kind in by_variable and (level, key) not in needed
    ]
    writes = [Write(key, level) for level, key in needed if key not in stored[level]]
    actions = Actions.of([*discards, *sorted(writes, key=str)])
    return PlacedActions(np.full(len(actions), BEFORE), actions)


def _unchanged(schedule: Schedule, *, by_variable: Collection[Kind]) -> PlacedActions:
    """Return the actions that do not concern single variables."""
    actions = schedule.actions
    codes = [KIND_CODE[kind] for kind in by_variable]
    place = np.flatnonzero((actions.op < WRITE) | ~np.isin(actions.kind, codes))
    return PlacedActions(place, actions.take(place))


@dataclass(frozen=True)
class ByVariable:
    """A planner for single variables that uses a planner for whole checkpoints.

    It plans with the reduced sizes of checkpoints, and lowers the result: see `lower`.

    Attributes
    ----------
    planner : Planner
        A planner for whole checkpoints.
    variables : Variables
        The arrays of a state, and how the steps use and overwrite them.
    """

    planner: Planner
    variables: Variables

    def __call__(self, chain: Chain, platform: Platform, /) -> Schedule:
        """Return a schedule on single variables: see `by_variable`."""

        def plan(smaller: Chain, space: Platform, _: Stored) -> tuple[Schedule, None]:
            return self.planner(smaller, space), None

        return by_variable(plan, replace(chain, variables=self.variables), platform)[0]


def by_variable(
    plan: Callable[[Chain, Platform, Stored], tuple[Schedule, T]],
    chain: Chain,
    platform: Platform,
    stored: Keys = (),
    /,
) -> tuple[Schedule, T]:
    """Return the schedule of a chain with variables, from the variables stored on each level.

    `plan` makes a schedule of whole checkpoints with reduced sizes, from the checkpoints of which
    all variables are stored, and anything else, which is returned. There are two ways to reduce the
    sizes: all versions of a variable that is seldom overwritten are stored once, in reserved
    capacity, or each checkpoint has them. Both are tried, and the schedule with the smaller
    makespan is returned, because one of them may have no space for the stored checkpoints. If
    neither gives a schedule that fits, the chain is planned from the adjoint checkpoints alone.

    Raises the errors of the planner and of `lower`; but NoSchedule if the lowered schedules do not
    fit on the platform.
    """
    assert chain.variables is not None
    variables, stored = chain.variables, tuple(frozenset(keys) for keys in stored)
    adjoints = tuple(frozenset(key for key in keys if key.kind is Kind.ADJOINT) for keys in stored)
    in_one = tuple(frozenset(key for key in keys if not key.name) for keys in stored)
    free = _reduced_by(platform, chain, in_one, 1)
    whole_chain = replace(chain, variables=None)
    ways = [reduced(whole_chain, free, variables, apart=apart) for apart in (True, False)]
    reason: BadInput | IllegalAction | None = None
    for there in dict.fromkeys((stored, adjoints)):
        plans = list[tuple[Schedule, T]]()
        for smaller, left in ways if ways[0] != ways[1] else ways[:1]:
            space = _reduced_by(left, chain, in_one, -1)
            try:
                schedule, more = plan(
                    smaller, space, whole_checkpoints(there, smaller, space, variables)
                )
                schedule = lower(schedule, variables, platform=platform, stored=stored)
                plans.append((schedule, more))
            except (BadInput, IllegalAction) as error:
                reason = reason or error
        if plans:
            return min(plans, key=lambda each: makespan(each[0], platform))
    if isinstance(reason, BadInput):
        raise reason
    raise NoSchedule(
        f"the schedule does not fit if each variable is stored separately: {reason}; give the"
        " levels more capacity, choose another planner, or store whole checkpoints"
    )


def reduced(
    chain: Chain, platform: Platform, variables: Variables, /, *, apart: bool = True
) -> tuple[Chain, Platform]:
    """Return the chain with reduced sizes of checkpoints, and the platform with the free capacity.

    A checkpoint of restart data has the bytes of all variables that are live and overwritten. With
    `apart`, a variable with so few versions that all of them fit takes capacity for these once, and
    no bytes in each checkpoint. The tape of a step has the bytes of its variables that some step
    overwrites.

    For example, u (8 bytes) is overwritten by all of 100 steps, and k (16 bytes) by one of them.
    Whole checkpoints then have 24 bytes, and 5 of them fit into 120 bytes. If both versions of k
    are stored once, 11 checkpoints of u fit:

    >>> from ckio.actions.variables import Flow, Step
    >>> step, thaw = Step(Flow({"u", "k"}, {"u"})), Step(Flow({"u", "k"}, {"u", "k"}))
    >>> variables = Variables({"u": 8, "k": 16}, [*[step] * 50, thaw, *[step] * 49])
    >>> chain = Chain(steps=100, advance=1, record=1, reverse=1, restart=24, tape=24, adjoint=8)
    >>> ram = Platform((Level(name="ram", capacity=120),))
    >>> smaller, less = reduced(chain, ram, variables)
    >>> smaller.restart, less.levels[0].capacity
    (8, 88)
    """
    columns = variables.columns(Kind.RESTART, chain.length)
    versions = {name: len(np.unique(version[:-1][live[:-1]])) for name, version, live in columns}
    slots = [_slots(level, variables, versions) for level in platform.levels]
    least = min(filter(None, slots), default=0) if apart else 0
    few = {name: count for name, count in versions.items() if count <= least}
    if len(few) == len(versions):  # empty checkpoints would have no slots
        few = {}
    each = [variables.nbytes[name] for name in versions.keys() - few.keys()]
    tape = sum(variables.nbytes[name] for name in variables.taped) if variables.tape else chain.tape
    levels = tuple(_less(level, variables, few, each) for level in platform.levels)
    # Single variables are always copied, so that `handed` is empty.
    smaller = replace(chain, restart=sum(each), tape=tape, handed=frozenset[Kind]())
    return smaller, replace(platform, levels=levels)


def _slots(level: Level, variables: Variables, versions: Mapping[str, int]) -> int | None:
    """Return how many checkpoints that share variables fit on a level; None without a capacity."""
    if level.capacity is None:
        return None

    def needed(slots: int) -> int:
        return sum(
            min(count, slots) * level.stored(variables.nbytes[name])
            for name, count in versions.items()
        )

    most = max(versions.values(), default=0)
    return bisect_right(range(1, most + 1), level.capacity, key=needed)


def _less(level: Level, variables: Variables, few: Mapping[str, int], each: Sequence[int]) -> Level:
    """Return the level without the capacity for all versions of the variables in `few`.

    The capacity is also reduced because the variables of a checkpoint, whose bytes are `each`, may
    take more than the whole checkpoint: a codec rounds up the bytes of each variable.
    """
    if level.capacity is None:
        return level
    taken = sum(count * level.stored(variables.nbytes[name]) for name, count in few.items())
    free, parts = max(0, level.capacity - taken), sum(map(level.stored, each))
    return replace(level, capacity=free * level.stored(sum(each)) // parts if parts else free)


def _reduced_by(
    platform: Platform, chain: Chain, stored: Sequence[Collection[Key]], sign: int, /
) -> Platform:
    """Return the platform with capacities reduced (1) or increased (-1) by the stored bytes."""
    levels = list(platform.levels)
    for number, keys in enumerate(stored):
        level = levels[number]
        if level.capacity is not None:
            taken = sum(level.stored(chain.nbytes(key)) for key in keys)
            levels[number] = replace(level, capacity=max(0, level.capacity - sign * taken))
    return replace(platform, levels=tuple(levels))


def whole_checkpoints(
    stored: Sequence[Collection[Key]], chain: Chain, platform: Platform, variables: Variables, /
) -> tuple[frozenset[Key], ...]:
    """Return the checkpoints of which every part is on one level: a plan can start from them.

    Checkpoints at or after the stored adjoint are left out. If checkpoints share so many variables
    that there are more of them than slots, those that are nearest to the one before are left out.

    Parameters
    ----------
    stored : sequence of collections of Key
        The keys stored on each level: variables, as in the chain of a lowered schedule, and whole
        checkpoints, which are returned unchanged.
    chain, platform : Chain, Platform
        The chain and platform of the plan, with reduced sizes.
    variables : Variables
        The variables of the lowered schedule.
    """
    adjoints = (key.step for keys in stored for key in keys if key.kind is Kind.ADJOINT)
    left = min(adjoints, default=chain.length + 1)
    return tuple(
        frozenset(_whole(set(keys), chain, level, variables, left))
        for keys, level in zip(stored, platform.levels, strict=False)
    )


def _whole(
    keys: set[Key], chain: Chain, level: Level, variables: Variables, left: int
) -> Iterator[Key]:
    given = {key for key in keys if not key.name}
    yield from given
    free = level.capacity
    for kind in variables.kinds if keys - given else ():
        steps = [it for it in variables.complete(keys, kind, chain.length) if it < left]
        if free is not None:
            free -= sum(level.stored(chain.nbytes(key)) for key in given)
            each = max(1, level.stored(chain.nbytes(Key(kind, 0))))
            while len(steps) > max(0, free) // each:
                gaps = [after - before for before, after in pairwise([-1, *steps])]
                del steps[gaps.index(min(gaps))]
        given = {Key(kind, step) for step in steps}
        yield from given
