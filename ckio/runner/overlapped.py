"""The runner with overlap: the program, and a thread for each channel.

The rules are those of `Traffic`. The program computes and copies to and from staging memory; only
the program calls the model and the memory level. Each far level is called only by the thread of its
channel (`channels.py`).

Between the model and the far levels, checkpoints are in staging memory. The memory level lends it,
so that it shares the capacity with that level's checkpoints. If level 0 is not plain memory, the
runner allocates its own. Memory that a run is likely to use is allocated and touched before the
run.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from typing import Final

import numpy as np

from ckio.actions import Buffers, Key, Kind, Layout
from ckio.actions.columns import READ, WRITE
from ckio.backends.base import Backend
from ckio.backends.forms import Form, form_of
from ckio.backends.ram import Ram
from ckio.backends.wrapper import unwrapped
from ckio.errors import BadInput, LevelFull, StorageError
from ckio.model import Model, optional
from ckio.overlap.rules import ActionMode, Traffic, Transfer
from ckio.platform import Platform, memory_level
from ckio.platform.clock import Clock, WallClock
from ckio.platform.memory import available
from ckio.runner.channels import Channels, Staged, cut
from ckio.runner.perform import (
    DeferredStop,
    Loading,
    Moved,
    Performer,
    Stop,
    Times,
    by_schedule,
    longest_tape,
    make_ready,
    slots_of,
)
from ckio.runner.space import memory_for
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap

SHARE: Final = 0.5
"""Maximum fraction of the available memory for staging."""

Sizes = Mapping[int, int]
"""The number of checkpoints of each size in bytes."""


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
    """Perform a schedule as `perform`, with transfers concurrent with the program.

    They use at most half of the available memory. If the caller leaves the loop, or an error ends
    it, all staged checkpoints are written before; after an interrupt, only the current transfers
    are completed. Then no thread and no staging memory are left.

    Raises the same errors. If a transfer failed, the message, `action` and `level` are those of the
    transfer, and the program may be at a later action. Notes list further checkpoints that were not
    written.
    """
    make_ready(schedule, platform, model, backends)
    try:
        staging = make_staging(schedule, platform, model, backends, overlap)
    except LevelFull as error:
        raise BadInput(f"no memory for staged checkpoints: {error}; allow less overlap") from error
    since = _Since(clock or WallClock())
    traffic = Traffic(schedule, staging.platform, staging.overlap)
    channels = Channels(traffic, platform, backends, staging.lender, clock=since, moved=moved)
    performer = OverlappedPerformer(schedule, model, backends, staging, channels)
    wish = None if stop is None else _reporting(stop, channels)
    return _all(channels, performer, by_schedule(schedule, platform, performer, since, wish))


def _all(
    channels: Channels, performer: "OverlappedPerformer", times: Iterator[Times]
) -> Generator[Times]:
    with channels:
        for each in times:
            performer.leave()
            yield each


def _reporting(stop: Stop, channels: Channels) -> Stop:
    """Return `stop`, which hears before each call how long all that is staged takes to write."""
    report: Callable[[float], object] = getattr(stop, "report_backlog", lambda _: None)

    def reported() -> bool:
        with channels.turn:
            behind = channels.behind
        report(behind)
        return True

    return DeferredStop(stop, reported)


class _Since:
    """A clock that starts at 0 when it is first read."""

    def __init__(self, clock: Clock) -> None:
        self._now, self.sleep = clock.now, clock.sleep
        self._origin: float | None = None

    def now(self) -> float:
        if self._origin is None:
            self._origin = self._now()
            return 0.0
        return self._now() - self._origin


class OverlappedPerformer(Performer):
    """The actions, as far as the program itself does them; the channels do the rest."""

    def __init__(
        self,
        schedule: Schedule,
        model: Model,
        backends: Sequence[Backend],
        staging: "Staging",
        channels: Channels,
    ) -> None:
        super().__init__(model, backends)
        self._chain, self._channels, self._lender = schedule.chain, channels, staging.lender
        self._memory = memory_level(staging.platform)
        self._lossy = [not backend.lossless for backend in backends]
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
            self.put(staged.loan.memory, data)
        else:
            staged.given = model.give(key, self._lender.slot)
        return 0

    def read(self, key: Key, level: int, /) -> int:
        if level == self._memory:
            self._go_on()
            return super().read(key, level)
        if key.kind is Kind.TAPE:
            self._taken = None
        channels = self._channels
        form = channels.forms[level, key]
        model = self._hands_over(key)
        memory = None if model is None else self._memory_for(form)
        if model is not None and memory is not None:
            # A checkpoint that is still being written must be copied, because the adjoint step may
            # change the tape that it consumes.
            staged = self._bring(key, level, memory)
            if staged is not None and staged.given is None:
                memory = staged.buffers
            elif staged is not None:
                self._copy(staged.given, memory)
            model.take(key, form.layout, memory)
            return 0
        with Loading(self._model.load(key, form.layout)) as into:
            if mismatch := form.mismatch(into):
                raise StorageError(f"level {level} cannot give {key}: {mismatch}")
            staged = self._bring(key, level, into)
            if staged is not None and staged.given is None:
                self.get(staged.loan.memory, into)
            elif staged is not None:
                self._copy(staged.given, into)
        return 0

    def put(self, memory: memoryview, data: Buffers, /) -> None:
        """Copy a checkpoint of the model to staging memory."""
        self._lender.gather(memory, data)

    def get(self, memory: memoryview, into: Buffers, /) -> None:
        """Copy a checkpoint from staging memory to the model."""
        self._lender.scatter(memory, into)

    def _copy(self, data: Buffers | None, into: Buffers) -> None:
        for source, target in zip(data or (), into, strict=True):
            self._lender.scatter(source, (target,))

    def _memory_for(self, form: Form) -> Buffers | None:
        """Return memory of which the model may take ownership; None if there is none."""
        with suppress(LevelFull):
            return cut(self._lender.slot(form.nbytes), form)
        return None

    def _bring(self, key: Key, level: int, into: Buffers) -> Staged | None:
        """Wait for a far checkpoint; return its staging memory, or None if it is in `into`."""
        channels = self._channels
        with channels.turn:
            # With a lossy codec, the staged values differ from those that a later read returns.
            # Therefore a checkpoint is always read back from the level.
            if self._lossy[level]:
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
            if step.transfer is not None:  # its write has not begun and is not needed any more
                self._channels.give_back(step.transfer)
            del self._channels.forms[level, key]
        return 0

    def leave(self) -> None:
        """Finish the current action, which has been done."""
        with self._channels.turn:
            self._channels.leave()

    def _go_on(self) -> None:
        """Begin an action that uses no channel, and start transfers on idle channels."""
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


@dataclass(frozen=True, slots=True)
class Staging:
    """The staging memory of a run, and the overlap that it permits.

    Attributes
    ----------
    lender : Ram
        The level that lends the memory.
    platform : Platform
        The platform; the capacity of its memory level is that of the open level.
    overlap : Overlap
        The overlap, limited to the number of checkpoints for which there is memory.
    """

    lender: Ram
    platform: Platform
    overlap: Overlap


def make_staging(
    schedule: Schedule,
    platform: Platform,
    model: Model,
    backends: Sequence[Backend],
    overlap: Overlap,
    /,
) -> Staging:
    """Return the staging memory for a run; raises LevelFull if there is not enough memory."""
    overlap, wanted = staged_sizes(schedule, platform, overlap)
    memory = memory_level(platform)
    lender = None if memory is None else unwrapped(backends[memory])
    space = optional(model).space
    if memory is None or not (isinstance(lender, Ram) and lender.near and lender.space == space):
        own = memory_for(model)
        own.reserve(wanted)
        return Staging(own, platform, overlap)
    platform = _as_open(platform, memory, lender)
    near = dict(enumerate(slots_of(schedule, platform, model))).get(memory, {})
    backends[memory].reserve(_together(near, wanted, platform.levels[memory].capacity))
    return Staging(lender, platform, overlap)


def staged_sizes(
    schedule: Schedule, platform: Platform, overlap: Overlap, /
) -> tuple[Overlap, Sizes]:
    """Return the overlap for which there is memory, and the checkpoints that it may stage."""
    writes, reads = (_far(schedule, platform, op) for op in (WRITE, READ))
    behind, ahead = _counts(schedule, overlap, writes, reads)
    wanted = {
        nbytes: min(behind, writes.get(nbytes, 0)) + min(ahead, reads.get(nbytes, 0))
        for nbytes in writes.keys() | reads.keys()
    }
    return replace(overlap, write_behind=behind, read_ahead=ahead), wanted


def _far(schedule: Schedule, platform: Platform, op: int) -> Sizes:
    """Return the number of accesses to far levels with this operation, for each size."""
    actions, memory = schedule.actions, memory_level(platform)
    rows = (actions.op == op) & (actions.level != (-1 if memory is None else memory))
    nbytes = schedule.chain.nbytes_of(actions)[rows]
    sizes, most = np.unique(nbytes, return_counts=True)
    return dict(zip(sizes.tolist(), most.tolist(), strict=True))


def _counts(schedule: Schedule, overlap: Overlap, writes: Sizes, reads: Sizes) -> tuple[int, int]:
    """Return the maximum numbers of checkpoints to write behind and to read ahead.

    They are limited by the schedule, by the policy and by the available memory. Each of the two may
    use half of the memory, and more if the other one needs less than its half.
    """
    behind, ahead = sum(writes.values()), sum(reads.values())
    behind = behind if overlap.write_behind is None else min(behind, overlap.write_behind)
    ahead = ahead if overlap.read_ahead is None else min(ahead, overlap.read_ahead)
    if (free := available()) is not None:
        largest = max((1, *writes, *reads))
        slots = max(0, int(SHARE * (free - longest_tape(schedule)[0]))) // largest
        ahead = min(ahead, max(slots // 2, slots - behind))
        behind = min(behind, slots - ahead)
    return behind, ahead


def _as_open(platform: Platform, memory: int, lender: Ram) -> Platform:
    level = platform.levels[memory]
    capacities = [free for free in (level.capacity, lender.capacity) if free is not None]
    levels = list(platform.levels)
    levels[memory] = replace(level, capacity=min(capacities, default=None))
    return replace(platform, levels=tuple(levels))


def _together(near: Sizes, wanted: Sizes, capacity: int | None) -> Sizes:
    """Return the slots to reserve: for the level's checkpoints, then for staged ones that fit."""
    free: float = inf if capacity is None else capacity
    slots: dict[int, int] = {}
    for sizes in (near, wanted):
        for nbytes, most in sorted(sizes.items(), reverse=True):
            count = most if most * nbytes <= free else int(free) // nbytes
            slots[nbytes] = slots.get(nbytes, 0) + count
            free -= count * nbytes
    return slots
