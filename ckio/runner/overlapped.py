"""The runner with overlap: the program, and behind it a thread for each channel.

All rules are those of `Traffic`. The program computes, copies to and from staging memory, and is
the only one to call the model and the memory level; far levels are called by the thread of their
channel (`channels.py`).
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress

from ckio.actions import Buffers, Key, Layout
from ckio.backends.base import Backend
from ckio.backends.forms import Form, form_of
from ckio.backends.payload import gather, scatter
from ckio.errors import BadInput, LevelFull, StorageError
from ckio.model import Model
from ckio.overlap.rules import ActionMode, Traffic, Transfer
from ckio.platform import Platform, memory_level
from ckio.platform.clock import Clock, WallClock
from ckio.runner.before import make_ready
from ckio.runner.channels import Channels
from ckio.runner.leaving import Loading
from ckio.runner.perform import Hands, Moved, Stop, Times, by_hands
from ckio.runner.staging import Staged, Staging, cut, make_staging
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap


def overlapped(
    schedule: Schedule,
    platform: Platform,
    model: Model,
    backends: Sequence[Backend],
    overlap: Overlap,
    /,
    *,
    clock: Clock | None = None,
    stop: Stop | None = None,
    moved: Moved | None = None,
) -> Generator[Times]:
    """`performed`, with transfers that go on behind the program.

    Whoever leaves the loop, or meets an error in it, finds all written that was staged; after an
    interrupt, what was just being written. No thread is left then, and no staging memory.

    Parameters
    ----------
    schedule, platform, model, backends, clock, stop
        As `perform` takes them; the clock is read by several threads.
    overlap
        How much may go on; no more than half of the memory that is available has room for.
    moved
        Told of each transfer that has ended: the number of its action, start, stop, and bytes. By
        one thread at a time, which holds up all the others; what it raises ends the run.

    Raises
    ------
    IllegalAction, BadInput, Stopped
        As `perform` does.
    StorageError, RunFailed
        As `perform` does; where a transfer failed, the message, `action` and `level` are those of
        the transfer, and the program may be further on. Notes say what else was not written.
    """
    make_ready(schedule, platform, model, backends)
    try:
        staging = make_staging(schedule, platform, backends, overlap)
    except LevelFull as error:
        raise BadInput(f"no memory for checkpoints on their way: {error}; overlap less") from error
    since = _Since(clock or WallClock())
    traffic = Traffic(schedule, staging.platform, staging.overlap)
    channels = Channels(traffic, platform, backends, staging.lender, clock=since, moved=moved)
    hands = _Hands(schedule, model, backends, staging, channels)
    told = None if stop is None else _Told(stop, channels)
    return _all(channels, hands, by_hands(schedule, platform, hands, since, told))


def _all(channels: Channels, hands: "_Hands", times: Iterator[Times]) -> Generator[Times]:
    with channels:
        for each in times:
            hands.leave()
            yield each


class _Told:
    """`stop`, which is told before it is asked how long it takes to write what is staged."""

    def __init__(self, stop: Stop, channels: Channels) -> None:
        self._stop, self._channels = stop, channels
        self._tell: Callable[[float], object] = getattr(stop, "tell", lambda _: None)
        if hasattr(stop, "clock"):
            self.clock = stop.clock

    def __call__(self) -> bool:
        with self._channels.turn:
            behind = self._channels.behind
        self._tell(behind)
        return self._stop()


class _Since:
    """A clock that begins when it is first read."""

    def __init__(self, clock: Clock) -> None:
        self._now, self.sleep = clock.now, clock.sleep
        self._origin: float | None = None

    def now(self) -> float:
        if self._origin is None:
            self._origin = self._now()
            return 0.0
        return self._now() - self._origin


class _Hands(Hands):
    """What each action does, as far as the program does it."""

    def __init__(
        self,
        schedule: Schedule,
        model: Model,
        backends: Sequence[Backend],
        staging: Staging,
        channels: Channels,
    ) -> None:
        super().__init__(model, backends)
        self._chain, self._channels, self._lender = schedule.chain, channels, staging.lender
        self._memory = memory_level(staging.platform)
        self._lossy = [not getattr(backend, "lossless", True) for backend in backends]
        for number, keys in enumerate(schedule.stored):
            for key in keys if number != self._memory else ():
                try:
                    form = form_of(backends[number].layout(key))
                    self._check_size(key, form, "the level's")
                except StorageError as error:
                    error.level = number
                    raise
                channels.forms[number, key] = form

    def advance(self, begin: int, end: int, /) -> int:
        self._go_on()
        return super().advance(begin, end)

    def record(self, begin: int, end: int, /) -> int:
        self._go_on()
        return super().record(begin, end)

    def reverse(self, begin: int, end: int, /) -> int:
        self._go_on()
        return super().reverse(begin, end)

    def write(self, key: Key, level: int, /) -> int:
        if level == self._memory:
            self._go_on()
            return super().write(key, level)
        layout, data = self._model.layout(key), self._model.dump(key)
        form, channels, model = self._form(key, layout, data), self._channels, self._hands_over(key)
        with channels.turn:
            channels.forms[level, key] = form
            step = channels.enter(level, data)
            if step.way is ActionMode.DIRECT:
                channels.land(level)
                return 0
            staged = channels.stage(_known(step.transfer), form, given=model is not None)
            channels.begin()
        if model is None:
            gather(staged.loan.memory, data)
        else:
            staged.given = model.give(key, self._lender.slot)
        return 0

    def read(self, key: Key, level: int, /) -> int:
        if level == self._memory:
            self._go_on()
            return super().read(key, level)
        channels = self._channels
        form = channels.forms[level, key]
        model = self._hands_over(key)
        memory = None if model is None else self._memory_for(form)
        if model is not None and memory is not None:
            # What is still being written is copied: the adjoint step may change what it spends.
            staged = self._bring(key, level, memory)
            if staged is not None and staged.given is None:
                memory = staged.buffers
            elif staged is not None:
                _copy(staged.given, memory)
            model.take(key, form.layout, memory)
            return 0
        with Loading(self._model.load(key, form.layout)) as into:
            if mismatch := form.mismatch(into):
                raise StorageError(f"level {level} cannot give {key}: {mismatch}")
            staged = self._bring(key, level, into)
            if staged is not None and staged.given is None:
                scatter(staged.loan.memory, into)
            elif staged is not None:
                _copy(staged.given, into)
        return 0

    def _memory_for(self, form: Form) -> Buffers | None:
        """Memory that the model may take; None where there is none."""
        with suppress(LevelFull):
            return cut(self._lender.slot(form.nbytes), form)
        return None

    def _bring(self, key: Key, level: int, into: Buffers) -> Staged | None:
        """Where a far checkpoint is, once it is there; None: in `into`, read directly."""
        channels = self._channels
        with channels.turn:
            if self._lossy[level]:  # what was not encoded is not what it will read later
                channels.wait_until_written(level, key)
            step = channels.enter(level, into)
            if step.way is ActionMode.DIRECT:
                channels.land(level)
                return None
            staged = channels.staged(_known(step.transfer))
            channels.begin()
            return staged

    def discard(self, key: Key, level: int, /) -> int:
        if level == self._memory:
            self._go_on()
            return super().discard(key, level)
        with self._channels.turn:
            step = self._channels.enter(level)
            if step.transfer is not None:  # it need not be written any more
                self._channels.give_back(step.transfer)
            del self._channels.forms[level, key]
        return 0

    def leave(self) -> None:
        """The current action has been done."""
        with self._channels.turn:
            self._channels.leave()

    def _go_on(self) -> None:
        """Begin an action that is done without the channels, and let those begin that are idle."""
        with self._channels.turn:
            self._channels.enter()
            self._channels.begin()

    def _form(self, key: Key, layout: Layout, data: Buffers) -> Form:
        form = form_of(layout)
        self._check_size(key, form, "the model's")
        if mismatch := form.mismatch(data):
            raise StorageError(f"{key} cannot be stored: {mismatch}")
        return form

    def _check_size(self, key: Key, form: Form, whose: str) -> None:
        planned = self._chain.nbytes(key)
        if form.nbytes != planned:
            raise BadInput(
                f"the schedule plans {planned} bytes for {key}; {whose} has {form.nbytes}: plan"
                " with the model's sizes"
            )


def _known(transfer: Transfer | None) -> Transfer:
    assert transfer is not None
    return transfer


def _copy(data: Buffers | None, into: Buffers) -> None:
    for source, target in zip(data or (), into, strict=True):
        target[:] = source
