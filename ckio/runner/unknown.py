"""A run of unknown length: forward by a rule until the model is finished, then back.

Before the run only the rule is known. Therefore each action is checked just before it is performed:
it is first applied to a `Machine`, and performed if it is legal. The result is a schedule that is
legal for a chain of the final number of steps. `failover.run_forward` has only the forward sweep,
and continues if a level fails.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, Protocol

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Write, nbytes_of
from ckio.actions.columns import ADVANCE, KINDS, Actions, Row, row_of
from ckio.backends.base import Backend
from ckio.errors import BadInput, LevelFull, RunFailed, Stopped
from ckio.model import Model, layout_of, optional, reached
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.platform.clock import Clock, WallClock
from ckio.platform.memory import available
from ckio.runner.perform import BEGIN, Performer, Stop, Times, in_turn, is_estimated, within
from ckio.schedule import Schedule
from ckio.schedule.machine import Machine
from ckio.schedule.timeline import Event, Timeline, TimelineRecorder

AT_ONCE: Final = 64
"""Maximum steps of an Advance, so that `watch` is called regularly if a model never finishes."""

_X0: Final = Key(Kind.RESTART, 0)

_ENDLESS: Final = 2**62
"""A number of steps, or of bytes of all checkpoints, that is larger than that of any run."""


class RuleLevel(Protocol):
    """The part of a level that a rule uses."""

    @property
    def number(self) -> int: ...
    @property
    def slots(self) -> int: ...


class RuleFollower(Protocol):
    """The actions of a rule, requested for one step after the other."""

    def at(self, step: int, /) -> Actions:
        """Return the actions at x_step; the model is at x_step before and after them."""

    def until(self, step: int, /) -> int:
        """Return the first step after this one at which the rule may have actions."""


class Rule(Protocol):
    """A rule that decides the actions of a run whose length is not known.

    The actions depend only on the step and on the stored keys. In the forward sweep a rule stores
    only restart data. Two rules are `ckio.planners.unknown.Online` and
    `ckio.planners.midpoint.Bisection`.
    """

    @property
    def chain(self) -> Chain: ...
    @property
    def platform(self) -> Platform: ...
    @property
    def levels(self) -> Sequence[RuleLevel]:
        """All levels that the rule may use in the forward sweep."""

    def follow(self, step: int, stored: Sequence[Iterable[Key]], /) -> RuleFollower:
        """Return the actions of a run that is at x_step, and that performs all of them."""

    def finish(self, steps: int, stored: Sequence[Iterable[Key]], /) -> Schedule:
        """Return the reverse sweep from the end x_steps, which the model has just reached."""


def run_to_end(
    rule: Rule,
    model: Model,
    backends: Sequence[Backend],
    /,
    *,
    clock: Clock | None = None,
    watch: Callable[[Event], None] | None = None,
) -> tuple[Schedule, Timeline]:
    """Run a model forward until it is finished, then back; return the schedule and its timeline.

    The model is finished when `advance` returns a smaller step than the requested one. If this
    happens exactly at a step at which the rule stores a checkpoint, that checkpoint is stored
    without need, unless the model has an attribute `steps` with its length.

    The schedule is that of a chain with the final number of steps. If `run` performs it with a
    fresh model, it does the same. In the forward sweep an Advance has at most `AT_ONCE` steps.

    Parameters
    ----------
    rule
        The rule, for a chain and a platform, that decides which checkpoints are stored.
    model
        A fresh model at x_0.
    backends
        One open storage level for each level of the platform, in the same order, without
        checkpoints. They stay open. Memory with a capacity is reserved completely, as far as the
        rule may use it; files on disks grow during the run.
    clock
        The clock for all times; by default the clock of the machine.
    watch
        Function that is called with each event after it has happened. If it raises an error, the
        run ends immediately with this error. This is the way to stop a model that never finishes.

    Raises
    ------
    IllegalAction
        The rule breaks a rule of `Machine`. The action was not performed.
    BadInput
        Before the first action: the arguments do not fit together, the checkpoints of the rule do
        not fit the levels, or the levels are not empty. The rule may also raise NoSchedule, which
        is a BadInput.
    StorageError
        A level failed. The message has the name of the level and the action; `level` and `action`
        are their numbers. The stored checkpoints are intact.
    RunFailed
        The model was finished at step 0, so that there is nothing to reverse. Then all levels are
        empty again, and the model knows its functional. Or the model finished early in the reverse
        sweep; or the model or a backend raised an error that is not one of ckio's, which is then
        the `__cause__`.
    """
    check_fit(rule, model, backends, [])
    reserve(rule, model, backends)
    run, recorder = RuleRun(rule, model, backends), TimelineRecorder()
    times = run.times(chain(run.forward(), run.back()), clock or WallClock())
    with within(times):
        for each in times:
            recorder.add(*each)
            if watch is not None:
                watch(Event(run.actions[-1], *each))
    done = Actions.of(run.actions)
    schedule = Schedule(run.machine.chain, done, note="forward sweep without knowing the end")
    return schedule, recorder.timeline(done)


class OpenPerformer(Performer):
    """A performer for a model that may finish at any step of the forward sweep.

    Attributes
    ----------
    reached : int
        The current step of the model.
    end : int or None
        The step at which the model is finished, if it is known; then it advances no more.
    is_back : bool
        Whether the run is in the reverse sweep, in which the model must not finish early.
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
            if self.reached < end or self.reached == optional(self._model).steps:
                self.end = self.reached
        return 0


class RuleRun:
    """A run by a rule, from the stored checkpoints or from the current state of the model.

    Parameters
    ----------
    rule, model, backends
        As in `run_to_end`.
    stored
        The keys on each level. The restart data of the latest step is read first, unless the model
        is at this step or a later one.
    state
        The current step of the model.
    count
        Number of actions that were done before; numbers in errors begin there.

    Attributes
    ----------
    machine : Machine
        The stored keys and the model's state and adjoint, after the action that was begun last.
    actions : list of Action
        The actions that were done; an Advance ends at the step that the model reached.
    end : int or None
        The step at which the model is finished, if it is known.
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
        self._rule, self._model, self._backends, self._count = rule, model, backends, count
        self._performer = OpenPerformer(model, backends)
        self._names = {"": 0}
        self._state = state  # the step before the action that was begun last
        self._action: Action | None = None

    @property
    def end(self) -> int | None:
        return self._performer.end

    def reserve(self) -> None:
        """Reserve memory levels with a capacity for the rule's checkpoints; raises BadInput."""
        reserve(self._rule, self._model, self._backends)

    def times(
        self, actions: Iterable[Action], clock: Clock, stop: Stop | None = None, /
    ) -> Generator[Times]:
        """Check and perform one action after the other; yield the times of each.

        The action itself is the last one of `actions` then.
        """
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
            for each in times:
                if (action := self._done()) is not None:
                    self.actions.append(action)
                    yield each

    def failed(self) -> tuple[Action, Machine]:
        """Return the action that failed, and the machine before this action."""
        action, machine = self._action, self.machine
        assert action is not None
        stored = [set(keys) for keys in machine.stored]
        if isinstance(action, Write):  # its checkpoint is not trusted, even if the level lists it
            stored[action.level].discard(action.key)
        return action, _machine(machine.chain, machine.platform, stored, self._state)

    def forward(self) -> Iterator[Action]:
        """Yield the actions from the latest state, stored or current, to the end of the model.

        If the end is step 0, raises RunFailed after discarding all checkpoints.
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
        """Yield the actions of the reverse sweep from the end, which the model has just reached."""
        end, endless = self.machine.state, self.machine
        assert end is not None
        self.machine = _machine(
            endless.chain.with_steps(end), endless.platform, endless.stored, end
        )
        self.machine.turned = self._performer.is_back = True
        yield from self._rule.finish(end, self.machine.stored).actions

    def _begin(self, action: Action) -> tuple[int, Row]:
        """Check an action and return its number and its row."""
        machine, number = self.machine, self._count + len(self.actions)
        machine.count = number
        self._state = machine.state
        machine.apply(action)
        self._action = action
        return number, row_of(action, self._names)

    def _done(self) -> Action | None:
        """Return the action that was done; None for an Advance without any step."""
        action = self._action
        if isinstance(action, Advance) and not self._performer.is_back:
            step = self._performer.reached
            return Advance(action.begin, step) if action.begin < step else None
        return action

    def _key(self, kind: int, step: int, name: int) -> Key:
        return Key(KINDS[kind], step, [*self._names][name])

    def _stopped(self, number: int, piece: Row) -> Stopped:
        """Return the error with the current step of the model."""
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
    """Return the machine of a model at x_state."""
    machine = Machine(chain, platform, stored)
    machine.state = state
    return machine


def _further(state: int, stored: Sequence[Collection[Key]]) -> Read | None:
    """Return the Read of the restart data of the latest step, from the lowest level that has it.

    Return None if no stored restart data is of a later step than `state`.
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
    """Raise BadInput unless the rule, the model and the open levels fit together."""
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
        present = set(backend.keys())
        if other := set(map(str, present.difference(keys))):
            raise BadInput(
                f"level {level.name!r} already holds {min(other)}, and a run of unknown length must"
                " know all checkpoints on its levels; give it an empty level, or discard the old"
                " checkpoints"
            )
        if missing := set(map(str, set(keys) - present)):
            raise BadInput(
                f"the run continues from {min(missing)}, which is missing on level {level.name!r};"
                " begin a new run, or restore the level"
            )
    if (free := available()) is not None and rule.chain.tape > free:
        raise BadInput(
            f"the reverse sweep needs memory for the tape of a step, {rule.chain.tape} bytes;"
            f" {free} are available"
        )


def reserve(rule: Rule, model: Model, backends: Sequence[Backend], /) -> None:
    """Reserve memory levels with a capacity for all checkpoints of the rule; raises BadInput."""
    nbytes = rule.chain.restart
    for used in rule.levels:
        level, backend = rule.platform.levels[used.number], backends[used.number]
        if level.capacity is None or backend.durable or nbytes == 0:
            continue
        try:
            backend.reserve({nbytes: used.slots})
            backend.prepare(_X0, model.layout(_X0), used.slots)
        except LevelFull as error:
            raise BadInput(
                f"level {level.name!r} has no space for the checkpoints of this rule: {error};"
                " free some, or lower the level's capacity and plan again"
            ) from error
