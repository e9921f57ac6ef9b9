"""The manager of a tape's checkpoints. pyadjoint calls it, and it performs a schedule of ckio."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import islice
from os import PathLike
from typing import Any, Final, Self, TypeVar, assert_never

from pyadjoint import Tape

from ckio.actions import Action, Advance, Discard, Read, Record, Reverse, Write
from ckio.actions.checks import is_whole
from ckio.adapters import registry
from ckio.adapters.mpi import world
from ckio.adapters.pyadjoint.steps import Held, Recording, TapeSteps, endless, live, split, used
from ckio.adapters.pyadjoint.storage import AWAY, TapeStorage
from ckio.adapters.scratch import Scratch
from ckio.errors import BadInput, CkioError, LevelFull
from ckio.model.comm import Comm
from ckio.parallel.group import ALONE, RankGroup
from ckio.planners.base import Planner
from ckio.planners.dp import hrevolve
from ckio.planners.unknown import Online
from ckio.platform import Platform, memory_level, platform_of
from ckio.platform.chain import Chain
from ckio.runner.reproducible import ReplayCheck
from ckio.schedule import Schedule
from ckio.schedule.policy import SYNCHRONOUS, Overlap
from ckio.schedule.replay import validate

T = TypeVar("T")

NAME: Final = "ckio"
"""The name of ckio's data on a tape."""

FIRST: Final = 5
"""Number of steps that are measured before the schedule is planned. The fifth step is the first one
that is typical for a scheme of third order, because it uses no values that step 0 has computed.
"""


def enable(
    tape: Tape,
    platform: Platform | str | PathLike[str] | None = None,
    /,
    *,
    steps: int | None,
    planner: Planner | str = hrevolve,
    chain: Chain | None = None,
    comm: Comm | None = None,
    allow_rounding: bool = False,
    overlap: Overlap = SYNCHRONOUS,
    ram: int | str | None = None,
    disk: str | PathLike[str] | None = None,
    archive: str | PathLike[str] | None = None,
) -> "Manager":
    """Store the checkpoints of a tape on the levels of a platform, by a schedule of ckio.

    Call this before any block is annotated. It opens the levels. They are closed and their files
    are removed by `close()`, by `tape.clear_tape()`, or when the tape is deleted.

    Parameters
    ----------
    tape
        An empty tape.
    platform
        The levels. Its `working_memory` limits the bytes of tapes in memory. Without a platform,
        the tape of one step is in memory, and without levels in words, too, states are stored in
        half of the available memory.
    steps
        Number of time steps of the loop over `tape.timestepper`, or None if it is not known.
    planner
        A planner or its name. If `steps` is None, the planner of the first evaluation is `online`.
    chain
        Costs of steps in seconds, and sizes of their checkpoints in bytes, the same on all ranks.
        Without it the first five steps are measured. The sizes are then those of their largest
        checkpoints. The costs of a forward, a recorded and a reversed step are all the seconds of
        the fastest step. On many ranks they are those of the slowest rank, and the sizes those of
        the largest part.
    comm
        The ranks that compute this tape together; they follow one plan, made by the first of them.
        By default they are all ranks of the job. Give `ckio.adapters.mpi.of(mesh.comm)` for those
        of a mesh, or `ckio.model.comm.SOLO` if each rank has a tape of its own. If one rank fails,
        all raise its error, with its number. If they cannot, because they wait for it in a call of
        the framework, the job is ended after 20 seconds, with this error.
    allow_rounding
        Whether a state may differ by rounding when it is computed again.
    overlap
        How many checkpoints are written, and how many read, while steps are computed, for example
        `Overlap(write_behind=1, read_ahead=1)`. They take memory in addition to the levels.
    ram, disk, archive
        The levels in words instead of a platform, with usual costs: memory such as "2GiB", a
        directory and an HDF5 file such as "/scratch:200GiB"; see `Platform.of`. Sizes are those of
        one rank.

    Returns
    -------
    Manager
        The manager of the checkpoints.

    Raises
    ------
    BadInput
        The tape is not empty or already has a manager, or an argument is invalid.
    StorageError
        A level cannot be opened.
    """
    if tape._checkpoint_manager is not None:  # noqa: SLF001  the only name it has
        raise BadInput(
            "checkpoints of this tape are managed already; call enable(...) once, on a new Tape()"
        )
    if len(tape.get_blocks()):
        raise BadInput("blocks are annotated already; call enable(...) on an empty tape")
    if steps is not None and not (is_whole(steps) and steps >= 1):
        raise BadInput(f"steps = {steps!r}; it must be a whole number of at least 1, or None")
    if steps is not None and chain is not None and chain.steps not in (None, steps):
        raise BadInput(
            f"steps = {steps}, but the chain has {chain.steps}; give both the same number"
        )
    plan: Planner = registry.find("planners", planner) if isinstance(planner, str) else planner
    known: Any = comm  # mypy cannot see that the argument of a cached function is hashable
    ranks = _group_of(known)

    def levels() -> Platform:
        size = ranks.size
        given = platform_of(platform, ram=ram, disk=disk, archive=archive, ranks=size)
        return given or Platform.of(ranks=size)

    # What is free is decided by one rank. A given platform may differ, for example in its paths.
    common = ranks.once(levels) if platform is None else None

    def open_levels() -> TapeStorage:
        return TapeStorage(Scratch(common or levels()), overlap)

    storage = _on_all(ranks, open_levels, undo=TapeStorage.clear)
    manager = Manager(
        tape,
        storage,
        steps,
        plan,
        chain,
        one_tape=platform is None,
        ranks=ranks,
        read_ahead=overlap.read_ahead or 0,
        allow_rounding=allow_rounding,
    )
    tape._package_data[NAME] = manager.storage  # noqa: SLF001  pyadjoint intends it for packages
    tape._checkpoint_manager = manager  # noqa: SLF001  Tape.enable_checkpointing sets it, too
    return manager


@cache  # a tape may be made for each evaluation, and MPI has some two thousand communicators
def _group_of(comm: Any) -> RankGroup:
    comm = world() if comm is None else comm
    return RankGroup(comm) if comm.size > 1 else ALONE


def _on_all(
    ranks: RankGroup,
    do: Callable[[], T],
    /,
    *,
    undo: Callable[[T], object] | None = None,
    waits: bool = False,
) -> T:
    """Call `do` on all ranks, and return its value; if it fails on one, all raise its error.

    `waits` says whether the ranks wait for each other in `do`, as the blocks of a framework do.
    """
    if ranks.is_alone:
        return do()
    try:
        return ranks.each(do, undo=undo, calls_off=waits)
    except CkioError:
        if waits:  # the communicator of a rank that has failed is of no use any more
            _group_of.cache_clear()
        raise


class Manager:
    """The manager of one tape's checkpoints, which `enable` returns.

    It is also a context manager that calls `close`, and shares an error of the program among the
    ranks.

    Attributes
    ----------
    storage : TapeStorage
        The stored checkpoints.
    schedule : Schedule or None
        The actions of an evaluation and a derivative. It is None before the end of the fifth step.
        If the number of steps is not known, it is None until the functional is evaluated again.
    """

    def __init__(
        self,
        tape: Tape,
        storage: TapeStorage,
        steps: int | None,
        planner: Planner,
        chain: Chain | None,
        *,
        one_tape: bool = False,
        ranks: RankGroup = ALONE,
        read_ahead: int = 0,
        allow_rounding: bool = False,
    ) -> None:
        self.storage, self._one_tape, self._ranks = storage, one_tape, ranks
        self.schedule: Schedule | None = None
        self._tape, self._length, self._planner, self._chain = tape, steps, planner, chain
        self._held, self._pinned = Held(), set[Any]()
        self._begun, self._seconds = time.perf_counter(), list[float]()
        self._rule: Online | None = None
        self._recording: Recording | None = None
        self._steps: TapeSteps | None = None
        self._blocks, self._count = tape.get_blocks(), 0
        self._forward: Sequence[Action] = ()
        self._back: Sequence[Action] = ()
        self._evaluated, self._allow_rounding = False, allow_rounding
        self._read_ahead = read_ahead
        self._replay = ReplayCheck(allow_rounding=allow_rounding)
        self._blocks.append_step()
        tape.latest_checkpoint = float("inf")  # pyadjoint saves the inputs of each step
        tape._eagerly_checkpoint_outputs = True  # noqa: SLF001  and its outputs

    # Methods that the tape calls.

    def end_timestep(self, step: int, /) -> None:
        """End an annotated step, and begin the next one; raises BadInput and StorageError."""
        if self._steps is not None:
            raise BadInput(
                "the loop makes another step after its functional was evaluated; use a new tape"
            )
        if self._length is not None and step + 1 >= self._length:
            raise BadInput(
                f"the loop makes more than the {self._length} steps that enable(...) received; give"
                " it the number of steps, or None"
            )
        self._annotated(step)
        self._blocks.append_step()

    def recompute(self, functional: Any = None) -> None:
        """Evaluate all steps for the current values of the controls."""
        steps = self._taped()
        if functional is not None:
            self._pin([functional.block_variable])
        self._evaluate(steps)

    def evaluate_adj(self, last_block: int, markings: bool) -> None:
        """Evaluate the adjoints of all blocks, from the last to the first."""
        if last_block != 0:
            raise BadInput(
                "the adjoint of a tape with checkpoints must be evaluated as a whole; use"
                " last_block = 0"
            )
        steps = self._taped()
        self._recover_controls(steps)
        if not self._evaluated:
            self._evaluate(steps)
        self._evaluated = False
        with self._tape.progress_bar("Evaluating Adjoint", max=self._length) as bar:
            memory = memory_level(self.storage.scratch.platform)
            reads = deque(
                (row, it)
                for row, it in enumerate(self._back)
                if isinstance(it, Read) and it.level != memory
            )
            for row, action in enumerate(self._back):
                while reads and reads[0][0] <= row:
                    reads.popleft()
                if not isinstance(action, Read):
                    for _, read in islice(reads, self._read_ahead):
                        self.storage.fetch(read.key, read.level)
                self._perform(action, steps, bar, markings=markings)

    # Methods for users.

    def close(self) -> None:
        """Close the levels and remove their files. The tape cannot be evaluated afterwards."""
        self.storage.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        self.close()
        if self._ranks.is_alone or not isinstance(error, Exception | None):
            return

        def fail() -> None:
            if error is not None:
                raise error

        _on_all(self._ranks, fail, waits=True)

    # The recording of the tape.

    def _annotated(self, step: int, *, last: bool = False) -> None:
        """Perform the planned actions for a step that has just been annotated.

        The schedule is planned when the first steps have been measured. Until then, all their
        values stay in memory.
        """
        now = time.perf_counter()
        self._seconds.append(now - self._begun)
        for block in self._blocks.steps[step]:
            for output in block.get_outputs():
                self.storage.settle(output)
        recording = self._recording
        if recording is not None:
            with self._unbroken():
                _on_all(self._ranks, lambda: recording.annotated(step))
        elif last or step + 1 == FIRST:
            with self._unbroken():
                _on_all(self._ranks, lambda: self._begin_recording(step))
        self._begun = time.perf_counter()

    @contextmanager
    def _unbroken(self) -> Iterator[None]:
        """Run a `with` block. If it fails halfway, close the levels: the tape lacks checkpoints."""
        self.storage.check_open()
        try:
            yield
        except BaseException as error:
            self.close()
            if isinstance(error, LevelFull) and self._chain is not None:
                error.args = (
                    f"{error}. The schedule is planned for {self._chain.restart} bytes of restart"
                    f" data and {self._chain.tape} bytes of tape for each step; if later steps need"
                    f" more than the first {FIRST}, give enable(...) their sizes in `chain`",
                )
            raise

    def _begin_recording(self, last: int) -> None:
        """Plan the schedule, and perform its actions for the steps that have been annotated."""
        measured = self._chain_of_ranks()
        if self._length is None:
            self._chain = measured.with_steps(1)
            self._rule = Online(self._chain, self._platform_of_ranks())
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

    def _platform_of_ranks(self) -> Platform:
        """Return the platform of the first rank, with the least capacities of all ranks.

        All ranks have the same. Raises BadInput on all ranks if they have other numbers of levels.
        """
        own = self.storage.scratch.platform
        if self._ranks.is_alone:
            return own
        first = Platform.loads(self._ranks.once(own.dumps))
        every = self._ranks.gather([own.working_memory, *(it.capacity for it in own.levels)])
        if len({len(limits) for limits in every}) > 1:
            raise BadInput("the ranks have platforms with different numbers of levels; give one")
        memory, *least = (
            min((it for it in limits if it is not None), default=None)
            for limits in zip(*every, strict=True)
        )
        pairs = zip(first.levels, least, strict=True)
        levels = tuple(replace(level, capacity=capacity) for level, capacity in pairs)
        return replace(first, levels=levels, working_memory=memory)

    def _chain_of_ranks(self) -> Chain:
        """Return the given chain, or else one measured from the steps so far.

        All ranks have the same, with the costs of the slowest rank, and the sizes of the largest
        part. Raises BadInput on all ranks if they have tapes of different lengths.
        """
        lengths = self._ranks.gather(self._length)
        if len(set(lengths)) > 1:
            raise BadInput(
                f"the ranks have tapes of {', '.join(map(str, lengths))} steps; give enable(...)"
                " those that compute this tape together in `comm`, or SOLO if each has its own"
            )
        if self._chain is not None:
            return self._chain

        def measured() -> tuple[float, int, int]:
            steps, nbytes = self._blocks.steps, self.storage.nbytes
            tape = max(nbytes(used(it)) for it in steps)
            restart = max((nbytes(live(it)) for it in steps[1:]), default=tape)
            return min(self._seconds[1:] or self._seconds), restart, tape

        every = self._ranks.gather(self._ranks.each(measured))
        fastest, restart, tape = map(max, zip(*every, strict=True))
        return Chain(
            steps=None,
            advance=fastest,
            record=fastest,
            reverse=fastest,
            restart=restart,
            tape=tape,
            adjoint=restart,
        )

    def _plan(self, chain: Chain) -> None:
        """Plan the forward and the reverse sweep when the number of steps is known."""
        platform = self._platform_of_ranks()
        if self._one_tape:
            platform = replace(platform, working_memory=chain.largest("tape"))

        def planned() -> Schedule:
            schedule = self._planner(chain, platform)
            if validate(schedule, platform).adjoint != 0:
                raise BadInput(
                    "the planner's schedule does not reverse all steps; use another planner"
                )
            return schedule

        schedule = self._ranks.once(planned)
        self._forward, self._back = split(schedule)
        self._chain, self.schedule = chain, schedule

    # Evaluations after the recording.

    def _taped(self) -> TapeSteps:
        """Return the steps. If the recording has not ended, end it."""
        self.storage.check_open()
        if self._steps is None:
            self._steps = self._turn(len(self._blocks.steps))
            self._count, self._evaluated = len(self._blocks), True
        if self._tape.get_blocks() is not self._blocks or len(self._blocks) != self._count:
            raise BadInput(
                "the tape has changed since it was first evaluated; annotate all functionals before"
                " the first evaluation, and do not optimize a tape that has checkpoints"
            )
        return self._steps

    def _turn(self, length: int) -> TapeSteps:
        """End the recording, and return its steps, whose number is known now."""
        if self._length not in (None, length):
            raise BadInput(
                f"the loop made {length} steps, but enable(...) received steps = {self._length};"
                " give it the right number"
            )
        if self._recording is None:
            self._length = length
        self._annotated(length - 1, last=True)
        self._length = length
        if self._rule is not None:
            self._back = list(self._rule.finish(length, self.storage.stored).actions)
        steps = TapeSteps(self._blocks.steps, self._held, self.storage)
        steps.begin(self._recording.tapes if self._recording else ())
        return steps

    def _evaluate(self, steps: TapeSteps) -> None:
        """Evaluate all steps, from x_0 to the end."""
        self._evaluated, self._replay = False, ReplayCheck(allow_rounding=self._allow_rounding)
        self.storage.empty()
        steps.forget()
        if self.schedule is None and self._chain is not None:
            self._plan(self._chain.with_steps(len(self._blocks.steps)))
        with self._tape.progress_bar("Evaluating Functional", max=self._length) as bar:
            for action in self._forward:
                self._perform(action, steps, bar, markings=False)
        self._evaluated = True

    def _perform(self, action: Action, steps: TapeSteps, bar: Any, *, markings: bool) -> None:
        """Perform one action on all ranks; if it fails on one of them, all close their levels."""
        waits = isinstance(action, Advance | Record | Reverse)
        try:
            _on_all(
                self._ranks, lambda: self._do(action, steps, bar, markings=markings), waits=waits
            )
        except CkioError:
            if not self._ranks.is_alone:
                self.close()
            raise

    def _do(self, action: Action, steps: TapeSteps, bar: Any, *, markings: bool) -> None:
        """Perform one action of the schedule."""
        match action:
            case Advance(begin, end):
                for step in range(begin, end):
                    self._evaluate_step(steps, step, bar)
            case Record(begin, end):
                steps.replace_tapes()
                for step in range(begin, end):
                    self._evaluate_step(steps, step, bar, keep=True)
            case Reverse(begin, end):
                for step in reversed(range(begin, end)):
                    steps.back(step, markings=markings)
                    _tick(bar)
                self._replay.passed(begin)
            case Write(key, level):
                self.storage.write(key, level, steps.variables(key))
            case Read(key, level):
                steps.set(key, self.storage.read(key, level))
            case Discard(key, level):
                self.storage.discard(key, level)
            case _:
                assert_never(action)

    def _evaluate_step(self, steps: TapeSteps, step: int, bar: Any, *, keep: bool = False) -> None:
        """Evaluate a step; its result must be the same each time that it is computed."""
        steps.forward(step, keep=keep)
        if self._replay.may(step + 1):
            self._replay.look(step + 1, lambda: steps.arrays(step + 1), since=step)
        _tick(bar)

    def _pin(self, variables: Iterable[Any]) -> None:
        """Keep the values of these variables in memory until the end."""
        new = set(variables) - self._pinned
        self._pinned |= new
        self._held.take(new)

    def _recover_controls(self, steps: TapeSteps) -> None:
        """Compute the values of controls that are outputs of blocks and have not been set."""
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
    """Show in the progress bar that a step is done; None is a bar of pyadjoint that is off."""
    if bar is not None:
        bar.next()
