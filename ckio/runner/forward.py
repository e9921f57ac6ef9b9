"""Forward alone, to an end that is not known, also when a level fails on the way.

A rule asks at every step what is stored, so it goes on as a run that was killed would: with a rule
for what is left of the levels, from the restart data that has come furthest, or from where the
model stands. It always ends, as in `persevere.py`: each failure leaves less to fail.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from ckio.actions import Key, Kind, Read
from ckio.actions.columns import Actions
from ckio.backends.base import Backend
from ckio.backends.ram import Ram
from ckio.errors import BadInput, LevelFull, StorageError
from ckio.model import Model
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.platform.clock import Clock
from ckio.runner.before import reserve as make_room
from ckio.runner.perform import Stop
from ckio.runner.remains import Failure, NotReady, Remains
from ckio.runner.rule import Rule
from ckio.runner.stepwise import Performance
from ckio.runner.unknown import check_fit, forward, reserve
from ckio.schedule import Schedule
from ckio.schedule.machine import Machine
from ckio.schedule.timeline import Event, Timeline

Stored: TypeAlias = Sequence[Collection[Key]]
"""The keys on each level."""

Rules: TypeAlias = Callable[[Platform, Stored], Rule]
"""The rule for a platform on which that is stored; raises BadInput where none is of use."""


class Forward(NamedTuple):
    """What came of the way forward.

    Attributes
    ----------
    steps : int
        Where the model is finished.
    timeline : Timeline
        What was done; what failed has no event, but its time passes between those of the others.
        Steps that were done again are in it again.
    platform : Platform
        The levels as they are left: one that was given up has no capacity, and one that is full no
        more than what it holds.
    backends : list of Backend
        One for each of them; one that is full is not asked to make room any more.
    """

    steps: int
    timeline: Timeline
    platform: Platform
    backends: list[Backend]


def run_forward(
    rules: Rules,
    platform: Platform,
    model: Model,
    backends: Sequence[Backend],
    /,
    *,
    say: Callable[[str], None],
    stored: Stored = (),
    clock: Clock | None = None,
    watch: Callable[[Event], None] | None = None,
    stop: Stop | None = None,
) -> Forward:
    """Run a model forward until it is finished, and go on when a level fails.

    The rest can then be planned from what is stored, for a fresh model of a chain of so many steps,
    as the rest of a run that was killed is. So x_0 need not be stored.

    What becomes of a level that fails is what `persevere` says: one that is full keeps what it
    holds, what is lost is discarded, and any other error gives a level up.

    Parameters
    ----------
    rules
        Makes the rule for this platform, and after a failure for what is left of it. It may keep
        room for other things aside, but not that of what is stored.
    platform, model, backends, clock, watch
        As `run_to_end` takes them, but for what is stored.
    say
        Told once of each failure, when it is known how the run goes on.
    stored
        What lies on each level of a run that goes on. The restart data that has come furthest is
        read first.
    stop
        Asked at every action, and about every half second; `Stopped` is raised once it says yes.

    Raises
    ------
    Stopped
        `stop` said yes; the model stands at x_state, and `adjoint` is beyond the end.
    StorageError
        No level is left that holds a checkpoint; the first failure is the `__cause__`. What lies on
        durable levels is intact, and the run can be resumed from it.
    IllegalAction, BadInput, RunFailed
        As `run_to_end` does.
    """
    rule = rules(platform, stored)
    check_fit(rule, model, backends, stored)
    reserve(rule, model, backends)
    performance = Performance(rule, model, backends, clock=clock, watch=watch, stored=stored)
    remains = Remains(performance.machine.chain, platform, backends)
    first: StorageError | None = None
    try:
        while not isinstance(reached := _advanced(rule, performance, stop), int):
            first = first or reached.error
            rule, there = _again(rules, model, remains, reached, first)
            remains.tell(say)
            performance.go_on(rule.platform, remains.backends[:-1], there)
        left = _uncarried(remains)
    finally:
        remains.close()
    timeline = performance.recorder.timeline(Actions.of(performance.actions))
    return Forward(reached, timeline, left, _left(platform, left, backends))


def ready_for_the_way_back(
    plan: Callable[[Platform, Stored], Schedule],
    chain: Chain,
    done: Forward,
    /,
    *,
    say: Callable[[str], None],
) -> tuple[Schedule, Forward]:
    """The plan of the way back, for which there is room, and the levels as they are left by then.

    A level that cannot say what it holds, or make room, has failed as on the way forward: the plan
    is made again without it, or from what it holds. Raises StorageError where there is none then,
    and what `plan` raises where nothing failed.
    """
    stored = [_held(backend) for backend in done.backends]
    machine = Machine(chain, done.platform, stored)
    remains, failure = Remains(chain, done.platform, done.backends), None
    full = set[int]()
    try:
        while True:
            there = remains.stored(machine)[:-1]
            platform = _uncarried(remains)
            try:
                schedule = plan(platform, there)
                make_room(schedule, platform, remains.backends[:-1])
            except NotReady as failed:
                failure = Failure(failed.error, failed.level, None, machine)
                remains.note(failure)
                full |= {failed.level} if isinstance(failed.error, LevelFull) else set()
                continue
            except BadInput as none:
                if failure is None:
                    raise
                raise remains.hopeless(none, failure) from failure.error
            remains.tell(say)
            left = _left(done.platform, platform, done.backends, full)
            return schedule, done._replace(platform=platform, backends=left)
    finally:
        remains.close()


def _held(backend: Backend) -> Collection[Key]:
    """The keys on a level; none where it cannot say."""
    with suppress(StorageError):
        return set(backend.keys())
    return ()


def _advanced(rule: Rule, performance: Performance, stop: Stop | None) -> int | Failure:
    """From the furthest state that there is to where the model is finished, or a level fails."""
    machine = performance.machine
    try:
        if read := _further(machine.state or 0, machine.stored):
            performance.do(read)
        return forward(rule, performance, machine.state or 0, stop)
    except StorageError as error:
        if error.level is None:
            raise
        return performance.failure(error, error.level)


def _further(state: int, stored: Stored) -> Read | None:
    """The Read, from the nearest level, of the restart data that has come further than x_state."""
    found = [
        (-key.step, number, Read(key, number))
        for number, keys in enumerate(stored)
        for key in keys
        if key.kind is Kind.RESTART and key.step > state
    ]
    return min(found, key=lambda row: row[:2], default=(0, 0, None))[2]


def _again(
    rules: Rules, model: Model, remains: Remains, failure: Failure, first: StorageError
) -> tuple[Rule, Stored]:
    """The rule for what a failure leaves, and what is stored; raises StorageError if none is."""
    while True:
        remains.note(failure)
        stored = remains.stored(failure.machine)[:-1]
        try:
            rule = rules(_uncarried(remains), stored)
            reserve(rule, model, remains.backends)
        except BadInput as none:
            raise remains.hopeless(none, failure) from first
        except NotReady as failed:
            failure = failure._replace(error=failed.error, level=failed.level, action=None)
        else:
            return rule, stored


def _uncarried(remains: Remains) -> Platform:
    """What is left of the levels; the model is not carried anywhere, but goes on itself."""
    platform = remains.platform
    return replace(platform, levels=platform.levels[:-1])


def _left(
    before: Platform, after: Platform, backends: Sequence[Backend], full: Collection[int] = ()
) -> list[Backend]:
    """The levels for who goes on: as they were, or full, or nothing where one was given up.

    One whose capacity has changed is full, and so are these, which may be so by their capacity.
    """
    left = list(backends)
    for number, (old, new) in enumerate(zip(before.levels, after.levels, strict=True)):
        if old.capacity != new.capacity or number in full:
            left[number] = _Full(backends[number]) if new.capacity else Ram(capacity=0)
    return left


class _Full:
    """A level that is full: what a plan stores there takes the place of what is there."""

    def __init__(self, backend: Backend) -> None:
        self.durable = backend.durable
        self.write, self.layout, self.read = backend.write, backend.layout, backend.read
        self.discard, self.keys, self.close = backend.discard, backend.keys, backend.close

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        """Nothing: it has no more room."""
