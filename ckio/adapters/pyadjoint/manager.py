"""The manager of the checkpoints of a tape, as pyadjoint calls it, by a schedule of ckio."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self, assert_never

from pyadjoint import Tape

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.checks import is_whole
from ckio.adapters import registry
from ckio.adapters.pyadjoint.steps import Held, Recording, TapeSteps, endless, live, split, used
from ckio.adapters.pyadjoint.storage import AWAY, TapeStorage, arrays_of
from ckio.adapters.scratch import Scratch
from ckio.errors import BadInput, LevelFull
from ckio.planners.base import Planner
from ckio.planners.dp import hrevolve
from ckio.planners.online import Online
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule
from ckio.schedule.replay import validate

NAME: Final = "ckio"
"""Of ckio's data on a tape."""

FIRST: Final = 5
"""Steps that are measured before anything is planned: the last of them is the first of a scheme of
third order that starts from nothing that step 0 has made.
"""


def enable(
    tape: Tape,
    platform: Platform,
    /,
    *,
    steps: int | None,
    planner: Planner | str = hrevolve,
    chain: Chain | None = None,
) -> "Manager":
    """Plan the checkpoints of a tape, and store them on the levels of a platform.

    Call this before anything is annotated. The levels are opened now. They are closed and their
    files removed by `close()`, by `tape.clear_tape()`, or when the tape is deleted.

    Parameters
    ----------
    tape
        An empty tape.
    platform
        The levels. Its `working_memory` limits the bytes of tapes in memory.
    steps
        Number of time steps of the loop over `tape.timestepper`; None if it is not known.
    planner
        A planner or its name. If `steps` is None, the first evaluation is planned by `online`.
    chain
        Costs of steps and sizes of their checkpoints. Without it the first five steps are measured:
        the sizes are those of their largest checkpoints, and the seconds are those of the fastest
        step, also for recording and reversing.

    Raises
    ------
    BadInput
        The tape is not empty or has a manager, or an argument is invalid.
    StorageError
        A level cannot be opened.
    """
    if tape._checkpoint_manager is not None:  # noqa: SLF001  the only name it has
        raise BadInput(
            "checkpoints of this tape are managed already: enable it once, on a new Tape()"
        )
    if len(tape.get_blocks()):
        raise BadInput("something is annotated already: enable checkpoints on an empty tape first")
    if steps is not None and not (is_whole(steps) and steps >= 1):
        raise BadInput(f"steps = {steps!r}; it must be a whole number of at least 1, or None")
    if steps is not None and chain is not None and chain.steps not in (None, steps):
        raise BadInput(f"steps = {steps}, but the chain has {chain.steps}")
    plan: Planner = registry.find("planners", planner) if isinstance(planner, str) else planner
    manager = Manager(tape, TapeStorage(Scratch(platform)), steps, plan, chain)
    tape._package_data[NAME] = manager.storage  # noqa: SLF001  which is meant for packages
    tape._checkpoint_manager = manager  # noqa: SLF001  as Tape.enable_checkpointing does
    return manager


class Manager:
    """The checkpoints of one tape; `enable` returns it.

    Attributes
    ----------
    storage : TapeStorage
        The stored checkpoints.
    schedule : Schedule or None
        The actions of an evaluation and a derivative. It is known from the fifth step on, or, if
        the number of steps is not known, when the functional is evaluated again.
    """

    def __init__(
        self,
        tape: Tape,
        storage: TapeStorage,
        steps: int | None,
        planner: Planner,
        chain: Chain | None,
    ) -> None:
        self.storage = storage
        self.schedule: Schedule | None = None
        self._tape, self._length, self._planner, self._chain = tape, steps, planner, chain
        self._held, self._pinned = Held(), set[Any]()
        self._begun, self._seconds, self._sound = time.perf_counter(), list[float](), True
        self._rule: Online | None = None
        self._recording: Recording | None = None
        self._steps: TapeSteps | None = None
        self._blocks, self._count = tape.get_blocks(), 0
        self._forward: Sequence[Action] = ()
        self._back: Sequence[Action] = ()
        self._evaluated = False
        self._blocks.append_step()
        tape.latest_checkpoint = float("inf")  # steps save what they take,
        tape._eagerly_checkpoint_outputs = True  # noqa: SLF001  and what they make

    # What the tape asks for.

    def end_timestep(self, step: int, /) -> None:
        """End an annotated step, and begin another one; raises BadInput, StorageError."""
        if self._steps is not None:
            raise BadInput("the loop goes on after its functional was evaluated; use a new tape")
        if self._length is not None and step + 1 >= self._length:
            raise BadInput(f"the loop makes more than the {self._length} steps it was said to make")
        self._annotated(step)
        self._blocks.append_step()

    def recompute(self, functional: Any = None) -> None:
        """Evaluate everything for the values that the controls have now."""
        steps = self._taped()
        if functional is not None:
            self._pin([functional.block_variable])
        self._evaluate(steps)

    def evaluate_adj(self, last_block: int, markings: bool) -> None:
        """Evaluate the adjoints of all blocks, from the last to the first."""
        if last_block != 0:
            raise BadInput("with checkpoints the adjoint of a tape is evaluated as a whole")
        steps = self._taped()
        self._recover_controls(steps)
        if not self._evaluated:
            self._evaluate(steps)
        self._evaluated = False
        with self._tape.progress_bar("Evaluating Adjoint", max=self._length) as bar:
            for action in self._back:
                self._do(action, steps, bar, markings=markings)

    # For its user.

    def close(self) -> None:
        """Close the levels and remove their files; the tape cannot be evaluated any more."""
        self.storage.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # While the tape is recorded.

    def _annotated(self, step: int, *, last: bool = False) -> None:
        """Do what is planned for a step that has just been annotated.

        There is no plan before the first steps show what steps are like: these are kept.
        """
        now = time.perf_counter()
        self._seconds.append(now - self._begun)
        if self._recording is not None:
            with self._unbroken():
                self._recording.annotated(step)
        elif last or step + 1 == FIRST:
            with self._unbroken():
                self._begin_recording(step)
        self._begun = time.perf_counter()

    @contextmanager
    def _unbroken(self) -> Iterator[None]:
        """Let nothing be done any more after something has failed halfway."""
        self._check_sound()
        self._sound = False
        try:
            yield
        except LevelFull as error:
            if self._chain is not None:
                error.args = (
                    f"{error}. Planned are {self._chain.restart} bytes to start a step from, and"
                    f" {self._chain.tape} for its tape: where later steps need more than the first"
                    f" {FIRST}, say so with `chain`",
                )
            raise
        self._sound = True

    def _check_sound(self) -> None:
        if not self._sound:
            raise BadInput("a checkpoint of this tape could not be stored; use a new tape")

    def _begin_recording(self, last: int) -> None:
        """Plan, and catch up with the steps that have been annotated."""
        measured = _chain_of(self._blocks.steps, self._seconds, self._chain)
        if self._length is None:
            self._chain = measured.with_steps(1)
            self._rule = Online(self._chain, self.storage.scratch.platform)
            forward = endless(self._rule)
        else:
            self._plan(measured.with_steps(self._length))
            forward = iter(self._forward)
        steps = self._blocks.steps
        self._recording = Recording(steps, self._held, self.storage, forward)
        kept = [it for step in steps for it in (*live(step), *used(step))]
        self._held.take(kept)
        for step in range(last + 1):
            self._recording.annotated(step)
        self._held.release(kept)

    def _plan(self, chain: Chain) -> None:
        """Plan all that is done when the number of steps is known."""
        platform = self.storage.scratch.platform
        schedule = self._planner(chain, platform)
        if validate(schedule, platform).adjoint != 0:
            raise BadInput("the planner's schedule does not reverse all steps")
        self._forward, self._back = split(schedule)
        self._chain, self.schedule = chain, schedule

    # When it has been recorded.

    def _taped(self) -> TapeSteps:
        """Return the steps; ends the recording if it still goes on."""
        self.storage.check_open()
        if self._steps is None:
            self._steps = self._turn(len(self._blocks.steps))
            self._count, self._evaluated = len(self._blocks), True
        if self._tape.get_blocks() is not self._blocks or len(self._blocks) != self._count:
            raise BadInput(
                "the tape has changed since it was first evaluated: annotate all functionals"
                " before, and do not optimize a tape that has checkpoints"
            )
        return self._steps

    def _turn(self, length: int) -> TapeSteps:
        """End the recording, where it shows how many steps there are."""
        self._check_sound()
        if self._length not in (None, length):
            raise BadInput(f"the loop made {length} steps; it was said to make {self._length}")
        if self._recording is None:
            self._length = length
        self._annotated(length - 1, last=True)
        self._length = length
        if self._rule is not None:
            self._back = list(self._rule.finish(length, self.storage.stored).actions)
        steps = TapeSteps(self._blocks.steps, self._held)
        steps.begin(self._recording.tapes if self._recording else ())
        return steps

    def _evaluate(self, steps: TapeSteps) -> None:
        """Evaluate all steps, from x_0 to the end."""
        self._evaluated = False
        self.storage.empty()
        steps.forget()
        if self.schedule is None and self._chain is not None:
            self._plan(self._chain.with_steps(len(self._blocks.steps)))
        with self._tape.progress_bar("Evaluating Functional", max=self._length) as bar:
            for action in self._forward:
                self._do(action, steps, bar)
        self._evaluated = True

    def _do(self, action: Action, steps: TapeSteps, bar: Any, *, markings: bool = False) -> None:
        """Do one action of the schedule."""
        match action:
            case Advance(begin, end):
                for step in range(begin, end):
                    steps.forward(step)
                    _tick(bar)
            case Record(begin, end):
                steps.replace_tapes()
                for step in range(begin, end):
                    steps.forward(step, keep=True)
                    _tick(bar)
            case Reverse(begin, end):
                for step in reversed(range(begin, end)):
                    steps.back(step, markings=markings)
                    _tick(bar)
            case Write(key, level):
                self.storage.write(key, level, steps.variables(key))
            case Read(key, level):
                steps.set(key, self.storage.read(key, level))
            case Discard(key, level):
                self.storage.discard(key, level)
            case _:
                assert_never(action)

    def _pin(self, variables: Iterable[Any]) -> None:
        """Let these stay in memory from now on."""
        new = set(variables) - self._pinned
        self._pinned |= new
        self._held.take(new)

    def _recover_controls(self, steps: TapeSteps) -> None:
        """Compute the values of controls that blocks have made, as long as nobody has set them."""
        outputs = (it for block in self._blocks for it in block.get_outputs())
        lost = [it for it in outputs if it.is_control and it.checkpoint in (None, AWAY)]
        if not lost:
            return
        self._pin(lost)
        for control in lost:
            control.is_control = False
        try:
            self._evaluate(steps)
        finally:
            for control in lost:
                control.is_control = True


def _tick(bar: Any) -> None:
    """Show that a step is done; pyadjoint's bar that shows nothing is None."""
    if bar is not None:
        bar.next()


def _chain_of(steps: Sequence[Any], seconds: Sequence[float], said: Chain | None, /) -> Chain:
    """Return the chain that was given, where it holds for these steps; otherwise a measured one.

    Raises BadInput where they have more bytes than was said.
    """
    if said is not None:
        _check(steps, said)
        return said
    tape = max(_bytes(used(it)) for it in steps)
    restart = max((_bytes(live(it)) for it in steps[1:]), default=tape)
    fastest = min(seconds[1:] or seconds)
    return Chain(
        steps=None,
        advance=fastest,
        record=fastest,
        reverse=fastest,
        restart=restart,
        tape=tape,
        adjoint=restart,
    )


def _check(steps: Sequence[Any], said: Chain) -> None:
    for number in range(1, len(steps)):
        for kind, there in (Kind.RESTART, live), (Kind.TAPE, used):
            key, has = Key(kind, number), _bytes(there(steps[number]))
            if has > said.nbytes(key):
                raise BadInput(
                    f"the chain says that {key} has {said.nbytes(key)} bytes; it has {has}"
                )


def _bytes(variables: Iterable[Any]) -> int:
    return sum(array.nbytes for it in variables for array in arrays_of(it).values())
