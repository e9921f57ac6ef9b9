"""A run that does not know its end: forward by a rule, until the model says that it is finished.

Nothing is known before but the rule, so what `run` checks of a whole schedule is checked here an
action at a time: each is applied to a Machine first, and performed if it is legal. The schedule is
what comes out, and is legal for a chain of as many steps as there turned out to be. `failover` has
the first half alone, which continues when a level fails.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, Protocol

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Write, nbytes_of
from ckio.actions.columns import ADVANCE, KINDS, Actions, Row, row_of
from ckio.backends.base import Backend
from ckio.errors import BadInput, LevelFull, RunFailed, Stopped
from ckio.model import Model, layout_of, reached
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.platform.clock import Clock, WallClock
from ckio.platform.memory import available
from ckio.runner.perform import BEGIN, Performer, Stop, in_turn, is_estimated, within
from ckio.schedule import Schedule
from ckio.schedule.machine import Machine
from ckio.schedule.timeline import Event, Timeline, TimelineRecorder

AT_ONCE: Final = 64
"""Steps of an Advance, the most: so often the watcher of a model that never finishes is heard."""

_X0: Final = Key(Kind.RESTART, 0)

_ENDLESS: Final = 2**62
"""Of steps, or of bytes of all checkpoints: more than any run has."""


class RuleLevel(Protocol):
    """The part of a level that a rule uses."""

    @property
    def number(self) -> int: ...
    @property
    def slots(self) -> int: ...


class FarRuleLevel(Protocol):
    """A level that is used from some step on."""

    @property
    def room(self) -> RuleLevel: ...


class RuleLevels(Protocol):
    """All levels that a rule may use on the way forward."""

    @property
    def near(self) -> RuleLevel: ...
    @property
    def far(self) -> Sequence[FarRuleLevel]: ...


class RuleFollower(Protocol):
    """A rule asked at one step after the other."""

    def at(self, step: int, /) -> Actions:
        """Return the actions at x_step, which is in the register before and after."""

    def until(self, step: int, /) -> int:
        """Return the first step after this one at which there may be anything to do."""


class Rule(Protocol):
    """The actions while the end is not known, and then; pure, of the step and of what is stored.

    `ckio.planners.online.Online` and `ckio.planners.bisection.Bisection` are two. It stores restart
    data alone.
    """

    @property
    def chain(self) -> Chain: ...
    @property
    def platform(self) -> Platform: ...
    @property
    def levels(self) -> RuleLevels: ...

    def follow(self, step: int, stored: Sequence[Iterable[Key]], /) -> RuleFollower:
        """Return the actions of a run that stands at x_step, and performs all of them."""

    def finish(self, steps: int, stored: Sequence[Iterable[Key]], /) -> Schedule:
        """Return the way back from x_steps, which has just been reached and is the end."""


def run_to_end(
    rule: Rule,
    model: Model,
    backends: Sequence[Backend],
    /,
    *,
    clock: Clock | None = None,
    watch: Callable[[Event], None] | None = None,
) -> tuple[Schedule, Timeline]:
    """Run a model forward until it is finished, then back; returns what was done, and when.

    The model is finished where `advance` returns less than it was asked for. Should that be just
    where the rule stores something, it is stored in vain: before, nobody knows, unless the model
    has an attribute `steps` that says so.

    The schedule is for a chain of the steps that there were. Performed again by `run`, on a fresh
    model, it does the same. On the way forward an Advance is of `AT_ONCE` steps at most.

    Parameters
    ----------
    rule
        What is stored on the way, of which chain and on which platform.
    model
        A fresh model at x_0.
    backends
        One open storage level for each level of the platform, in its order, with nothing stored.
        They stay open. Memory that the rule may use is reserved to the full, where it has a
        capacity; what lies on disks grows as it fills.
    clock
        What measures; the wall clock by default.
    watch
        Called with each event after it has happened; what it raises ends the run as it is, and is
        the way to stop a model that does not finish.

    Raises
    ------
    IllegalAction
        The rule breaks a rule of the Machine. The action has not been done.
    BadInput
        Something does not fit together, the levels have no room for what the rule may store, or are
        not empty: before the start. So is NoSchedule, which the rule raises.
    StorageError
        A level failed; its name and the action are in the message, and their numbers in `level`
        and `action`. What was stored is intact.
    RunFailed
        The model was finished at step 0, so that there is nothing to reverse: then all levels are
        empty again, and the model knows its functional. Or it finished early on the way back; or
        it, or a backend, raised something that is not ckio's own, which is then the `__cause__`.
    """
    check_fit(rule, model, backends, [])
    reserve(rule, model, backends)
    performed, recorder = RuleRun(rule, model, backends), TimelineRecorder()
    actions = chain(performed.forward(), performed.back())
    events = performed.events(actions, clock or WallClock())
    with within(events):
        for event in events:
            recorder.add(event.start, event.stop, event.nbytes)
            if watch is not None:
                watch(event)
    done = Actions.of(performed.actions)
    note = f"forward without knowing the end; back: {performed.note}"
    schedule = Schedule(performed.machine.chain, done, note=note)
    return schedule, recorder.timeline(done)


class OpenPerformer(Performer):
    """A performer of a model that may be finished where nobody expects it.

    Attributes
    ----------
    reached : int
        Where the model stands.
    end : int or None
        Where it is finished, once that is known; it is asked for no more steps then.
    is_back : bool
        Whether the run is on its way back, where every step is there.
    """

    def __init__(self, model: Model, backends: Sequence[Backend]) -> None:
        super().__init__(model, backends)
        self.reached = 0
        self.end: int | None = None
        self.is_back = False

    def advance(self, begin: int, end: int, /) -> int:
        if self.is_back:
            return super().advance(begin, end)
        if self.end is None:
            self.reached = reached("advance", self._model.advance(begin, end), begin, end)
            if self.reached < end or self.reached == getattr(self._model, "steps", None):
                self.end = self.reached
        return 0


class RuleRun:
    """A run by a rule, from what is stored or from where the model stands.

    Parameters
    ----------
    rule, model, backends
        As `run_to_end` takes them.
    stored
        What lies on each level. The restart data that has come furthest is read first, unless the
        model has.
    state
        i, where the model stands at x_i.
    count
        How many actions were done before; errors count from there.

    Attributes
    ----------
    machine : Machine
        What is stored where, and where the model stands: after the action that was begun last.
    actions : list of Action
        Those that were done, each as far as there were steps.
    end : int or None
        The step where the model is finished, once that is known.
    note : str
        Of the plan of the way back.
    """

    def __init__(
        self,
        rule: Rule,
        model: Model,
        backends: Sequence[Backend],
        /,
        *,
        stored: Sequence[Collection[Key]] = (),
        state: int | None = 0,
        count: int = 0,
    ) -> None:
        costs = rule.chain
        bytes_of_a_step = 1 + costs.restart + costs.tape + costs.adjoint
        endless = costs.with_steps(_ENDLESS // bytes_of_a_step)
        self.machine = _machine(endless, rule.platform, stored, state)
        self.actions = list[Action]()
        self.note = ""
        self._rule, self._count = rule, count
        self._performer = OpenPerformer(model, backends)
        self._names = {"": 0}
        self._state = state  # before the action that was begun last
        self._action: Action | None = None

    @property
    def end(self) -> int | None:
        return self._performer.end

    def events(
        self, actions: Iterable[Action], clock: Clock, stop: Stop | None = None, /
    ) -> Generator[Event]:
        """Perform actions, each once it is found legal; gives each event as it has happened."""
        times = in_turn(
            map(self._begin, actions),
            self._key,
            self.machine.platform,
            self._performer,
            clock=clock,
            stop=stop,
            stopped=self._stopped,
        )
        with within(times):
            for start, end, nbytes in times:
                if (action := self._done()) is not None:
                    self.actions.append(action)
                    yield Event(action, start, end, nbytes)

    def failed(self) -> tuple[Action, Machine]:
        """Return the action that failed, and the machine where the model stood before that."""
        action, machine = self._action, self.machine
        assert action is not None
        stored = [set(keys) for keys in machine.stored]
        if isinstance(action, Write):  # whatever the level says, it is not to be relied on
            stored[action.level].discard(action.key)
        return action, _machine(machine.chain, machine.platform, stored, self._state)

    def forward(self) -> Iterator[Action]:
        """Yield the actions from the furthest state that there is to where the model is finished.

        Raises RunFailed where that is step 0, once all that was stored is discarded.
        """
        machine, performer = self.machine, self._performer
        step = machine.state or 0
        if read := _further(step, machine.stored):
            yield read
            step = read.key.step
        follower = self._rule.follow(step, machine.stored)
        while performer.end is None:
            yield from follower.at(step)
            until = max(step + 1, follower.until(step))
            while step < until and performer.end is None:
                yield Advance(step, min(until, step + AT_ONCE))
                step = machine.state = performer.reached
        if performer.end == 0:
            for level, keys in enumerate(machine.stored):
                for key in list(keys):
                    yield Discard(key, level)
            raise RunFailed("the model is finished at step 0; there is no step to reverse")

    def back(self) -> Iterator[Action]:
        """Yield the actions back from the end, which has just been reached."""
        end, endless = self.machine.state, self.machine
        assert end is not None
        self.machine = _machine(
            endless.chain.with_steps(end), endless.platform, endless.stored, end
        )
        self.machine.turned = self._performer.is_back = True
        plan = self._rule.finish(end, self.machine.stored)
        self.note = plan.note
        yield from plan.actions

    def _begin(self, action: Action) -> tuple[int, Row]:
        """Return the number and the row of an action that is legal now."""
        machine, number = self.machine, self._count + len(self.actions)
        machine.count = number
        self._state = machine.state
        machine.apply(action)
        self._action = action
        return number, row_of(action, self._names)

    def _done(self) -> Action | None:
        """Return the action that has been done; None for an Advance that found no step."""
        action = self._action
        if isinstance(action, Advance) and not self._performer.is_back:
            step = self._performer.reached
            return Advance(action.begin, step) if action.begin < step else None
        return action

    def _key(self, kind: int, step: int, name: int) -> Key:
        return Key(KINDS[kind], step, [*self._names][name])

    def _stopped(self, number: int, piece: Row) -> Stopped:
        """Return the error that says where the model stands."""
        state = self._state
        if piece[0] == ADVANCE and isinstance(self._action, Advance):
            end = self.end
            state = piece[BEGIN] if end is None else end
        return Stopped(
            f"stopped on the way forward: the state is x_{state}",
            action=number,
            state=state,
            adjoint=self.machine.adjoint,
        )


def _machine(
    chain: Chain, platform: Platform, stored: Sequence[Collection[Key]], state: int | None
) -> Machine:
    """Return the machine of a model that stands at x_state."""
    machine = Machine(chain, platform, stored)
    machine.state = state
    return machine


def _further(state: int, stored: Sequence[Collection[Key]]) -> Read | None:
    """Return the Read, from the nearest level, of the restart data that has come furthest.

    None where x_state has come as far.
    """
    reads = [
        (-key.step, number, Read(key, number))
        for number, keys in enumerate(stored)
        for key in keys
        if key.kind is Kind.RESTART and key.step > state
    ]
    return min(reads, key=lambda row: row[:2], default=(0, 0, None))[2]


def check_fit(
    rule: Rule, model: Model, backends: Sequence[Backend], stored: Sequence[Collection[Key]], /
) -> None:
    """Raise BadInput unless the rule, the model and the open levels speak of the same things."""
    levels = rule.platform.levels
    if len(backends) != len(levels):
        raise BadInput(f"{len(backends)} open levels for a platform of {len(levels)}")
    real = nbytes_of(layout_of(model, _X0))
    if rule.chain.restart != real and not is_estimated(model):
        raise BadInput(
            f"the rule plans {rule.chain.restart} bytes for a restart checkpoint;"
            f" the model's has {real}: plan with the model's sizes"
        )
    for number, (level, backend) in enumerate(zip(levels, backends, strict=True)):
        keys = stored[number] if number < len(stored) else ()
        there = set(backend.keys())
        if other := set(map(str, there.difference(keys))):
            raise BadInput(
                f"level {level.name!r} already holds {min(other)}, and what a run of unknown"
                " length writes there is not known; give it an empty level, or discard what was"
                " left"
            )
        if missing := set(map(str, set(keys) - there)):
            raise BadInput(f"the run goes on from {min(missing)}, which level {level.name!r} lacks")
    if (room := available()) is not None and rule.chain.tape > room:
        raise BadInput(
            f"the way back holds the tape of a step in memory, {rule.chain.tape} bytes; {room} are"
            " available"
        )


def reserve(rule: Rule, model: Model, backends: Sequence[Backend], /) -> None:
    """Make room for all that the rule may store in memory that has an end; raises BadInput."""
    nbytes, levels = rule.chain.restart, rule.levels
    for room in (levels.near, *(far.room for far in levels.far)):
        level, backend = rule.platform.levels[room.number], backends[room.number]
        if level.capacity is None or backend.durable or nbytes == 0:
            continue
        try:
            backend.reserve({nbytes: room.slots})
            if (prepare := getattr(backend, "prepare", None)) is not None:
                prepare(_X0, model.layout(_X0), room.slots)
        except LevelFull as error:
            raise BadInput(
                f"level {level.name!r} has no room for what this rule may store: {error};"
                " free some, or lower the level's capacity and plan again"
            ) from error
