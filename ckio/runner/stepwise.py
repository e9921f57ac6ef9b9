"""A run whose schedule is not known: it is done an action at a time, and each is checked first."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from traceback import format_exception_only
from typing import Final, NoReturn

from ckio.actions import Action, Advance, Discard, Key, Write
from ckio.actions.columns import ACCESSES, ADVANCE
from ckio.backends.base import Backend
from ckio.errors import CkioError, RunFailed, Stopped, StorageError
from ckio.model import Model, reached
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.platform.clock import Clock, WallClock
from ckio.runner.perform import Hands, Pace, where
from ckio.runner.remains import Failure
from ckio.runner.rule import Rule
from ckio.schedule.machine import Machine
from ckio.schedule.timeline import Event, TimelineRecorder

_ENDLESS: Final = 2**62
"""Of steps, or of bytes of all checkpoints: more than any run has."""


class Performance:
    """What has been done so far, and what does the next action."""

    def __init__(
        self,
        rule: Rule,
        model: Model,
        backends: Sequence[Backend],
        *,
        clock: Clock | None,
        watch: Callable[[Event], None] | None,
        stored: Sequence[Collection[Key]] = (),
    ) -> None:
        chain = rule.chain
        bytes_of_a_step = 1 + chain.restart + chain.tape + chain.adjoint
        endless = chain.with_steps(_ENDLESS // bytes_of_a_step)
        self.machine = Machine(endless, rule.platform, stored)
        self._state = self.machine.state
        self._doing: Action = Advance(0, 1)
        self.actions: list[Action] = []
        self.recorder = TimelineRecorder()
        self._model, self._watch = model, watch
        self._hands = Hands(model, backends)
        self._clock = clock or WallClock()
        self._origin, self._pace = self._clock.now(), Pace(self._clock)

    def do(self, action: Action) -> None:
        """Any action, if it is legal now."""
        self.machine.apply(action)
        self._doing = action
        start = self._now()
        with self._named(action):
            nbytes = self._hands.do(action)
        self._done(action, start, nbytes)

    def advance(self, begin: int, end: int) -> int:
        """Advance as far as there are steps; returns the step reached."""
        action = Advance(begin, end)
        self.machine.apply(action)
        self._doing = action
        start = self._now()
        with self._named(action):
            step = reached("advance", self._model.advance(begin, end), begin, end)
        self.machine.state = step
        if step > begin:
            self._done(Advance(begin, step), start, 0)
        return step

    def whole(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """An Advance as it is."""
        yield begin, end

    def pieces(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """It in pieces of about half a second."""
        for _, _, _, low, high, _ in self._pace.pieces((ADVANCE, 0, 0, begin, end, 0)):
            yield low, high

    def stopped(self) -> Stopped:
        """Where the model stands."""
        machine = self.machine
        return Stopped(
            f"stopped on the way forward: the state is x_{machine.state}",
            action=len(self.actions),
            state=machine.state,
            adjoint=machine.adjoint,
        )

    @property
    def known(self) -> int | None:
        """The last step, where the model knows it already."""
        steps: int | None = getattr(self._model, "steps", None)
        return steps

    def turn(self, steps: int) -> None:
        """From here on the chain has so many steps; the last of them has just been done."""
        endless = self.machine
        chain = endless.chain.with_steps(steps)
        self.machine = self._machine(chain, endless.platform, endless.stored)
        self.machine.turned = True

    def failure(self, error: StorageError, level: int) -> Failure:
        """What failed last, and where the model stands: where it stood before that."""
        machine, action = self.machine, self._doing
        stored = [set(keys) for keys in machine.stored]
        if isinstance(action, Write):  # whatever the level says, it is not to be relied on
            stored[level].discard(action.key)
        before = self._machine(machine.chain, machine.platform, stored)
        return Failure(error, level, action, before)

    def go_on(
        self, platform: Platform, backends: Sequence[Backend], stored: Sequence[Collection[Key]]
    ) -> None:
        """After a failure: with these levels, on which that is stored."""
        self._hands = Hands(self._model, backends)
        self.machine = self._machine(self.machine.chain, platform, stored)

    def give_up(self) -> NoReturn:
        """There is no step: discard what was stored, and say so."""
        for level, keys in enumerate(self.machine.stored):
            for key in list(keys):
                self.do(Discard(key, level))
        raise RunFailed("the model is finished at step 0; there is no step to reverse")

    def _machine(
        self, chain: Chain, platform: Platform, stored: Sequence[Collection[Key]]
    ) -> Machine:
        """The machine where the model stands, of another chain or with other levels."""
        machine = Machine(chain, platform, stored)
        machine.state, machine.count = self._state, len(self.actions)
        return machine

    def _done(self, action: Action, start: float, nbytes: int) -> None:
        stop = self._now()
        self._state = self.machine.state
        self.actions.append(action)
        self.recorder.add(start, stop, nbytes)
        if self._watch is not None:
            self._watch(Event(action, start, stop, nbytes))

    def _now(self) -> float:
        return self._clock.now() - self._origin

    @contextmanager
    def _named(self, action: Action) -> Iterator[None]:
        """Let what is raised say at which action, and on which level."""
        number = len(self.actions)
        what = f"#{number} {where(action, self.machine.platform)}"
        try:
            yield
        except CkioError as error:
            error.args = (f"{what}: {error}",)
            error.action = number
            if isinstance(error, StorageError) and isinstance(action, ACCESSES):
                error.level = action.level
            raise
        except Exception as error:
            words = " ".join(map(str.strip, format_exception_only(error)))
            failed = RunFailed(f"{what}: {words}")
            failed.action = number
            raise failed from error
