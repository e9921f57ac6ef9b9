"""The channels: threads that transfer checkpoints between the far levels and memory.

A thread that calls `Traffic` must have the lock `turn`. There is only one such lock, and long work
is done without it. After each change, the thread that made it starts new transfers on idle
channels.

If a transfer fails, its channel begins no more transfers. A failed read ahead is an exception: it
fails only when the program comes to this read. The error is raised when the program uses the
channel or waits for it, or else at the end. Before that, all other channels write their staged
checkpoints.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, pairwise
from queue import SimpleQueue
from threading import Condition, Thread
from types import TracebackType
from typing import Self, assert_never

from ckio.actions import Buffers, Discard, Key, Read, Write
from ckio.backends.base import Backend
from ckio.backends.forms import Form
from ckio.backends.ram import Loan, Ram
from ckio.errors import CkioError, RunFailed
from ckio.overlap.rules import Handling, Traffic, Transfer
from ckio.platform import Platform
from ckio.platform.clock import Clock
from ckio.runner.perform import Moved, named, own, where

Place = tuple[int, Key]
"""The number of a level, and a key on it."""

_INTERRUPTS = KeyboardInterrupt, SystemExit
"""Errors after which the run does not wait until all staged checkpoints are written."""

_LOOK = 0.1
"""Maximum seconds of a single wait, because a signal just before a wait does not end it."""


@dataclass(slots=True)
class Staged:
    """A checkpoint in staging memory.

    Attributes
    ----------
    transfer : Transfer
        The transfer between the staging memory and its level.
    form : Form
    loan : Loan
        The staging memory.
    ended : bool
        Whether the transfer has ended.
    given : buffers or None
        The model's own buffers, if the model passed the checkpoint without a copy. Then the loan
        has no memory.
    """

    transfer: Transfer
    form: Form
    loan: Loan
    ended: bool = False
    given: Buffers | None = None

    @property
    def buffers(self) -> Buffers:
        """The buffers of the fields; in staging memory they follow each other."""
        return cut(self.loan.memory, self.form) if self.given is None else self.given


def cut(memory: memoryview, form: Form, /) -> Buffers:
    """Return the buffers of the fields of a checkpoint that is in one piece of memory."""
    cuts = accumulate(form.sizes, initial=0)
    return [memory[begin:end] for begin, end in pairwise(cuts)]


@dataclass(frozen=True, slots=True)
class TransferFailure:
    """A transfer that failed in the background.

    Attributes
    ----------
    transfer : Transfer
    error : CkioError
        The error that ends the run.
    words : str
        The message of the error, without the action.
    """

    transfer: Transfer
    error: CkioError
    words: str

    def named(self, platform: Platform) -> CkioError:
        """Return the error with the action of the transfer, not the program's current action."""
        self.error.args = (self.words,)
        return named(self.error, self.transfer.row, self.transfer.action, platform)


class Channels:
    """The channels of a run, and the staging memory that they use.

    This is a context manager; the threads live within the context. Its exit waits until all staged
    checkpoints are written; after an interrupt, only until the current transfers have ended.

    Attributes
    ----------
    traffic : Traffic
    turn : Condition
        The lock; a caller of any method must have acquired it.
    forms : dict
        The forms of the checkpoints that are, or will be, on far levels: {(level, key): form}.
    """

    def __init__(
        self,
        traffic: Traffic,
        platform: Platform,
        backends: Sequence[Backend],
        lender: Ram,
        /,
        *,
        clock: Clock,
        moved: Moved | None,
    ) -> None:
        self.traffic, self.turn = traffic, Condition()
        self.forms: dict[Place, Form] = {}
        self._platform, self._backends, self._lender = platform, backends, lender
        self._clock, self._moved = clock.now, moved
        names = traffic.channels
        self._now: list[Transfer | None] = [None] * len(names)
        self._halted = False  # no more transfers begin
        self._waits = False  # the program waits; it must continue before other transfers begin
        self._direct: Buffers = ()  # the model's own buffers, for the direct transfer
        self._staged: dict[int, Staged] = {}  # by row
        self._left = [0.0] * len(names)  # seconds that each channel needs to write all staged
        self._copied: Staged | None = None  # the program copies from it now
        self._failures: dict[str, TransferFailure] = {}  # by channel
        self._unread: dict[int, TransferFailure] = {}  # failed reads ahead, by row
        self._unwritten: list[Transfer] = []
        self._tasks: list[SimpleQueue[Transfer | None]] = [SimpleQueue() for _ in names]
        self._threads = [
            Thread(target=self._serve, args=(number,), name=f"ckio-{name}", daemon=True)
            for number, name in enumerate(names)
        ]

    def __enter__(self) -> Self:
        for name, thread in zip(self.traffic.channels, self._threads, strict=True):
            try:
                thread.start()
            except RuntimeError as error:
                self._stop()
                raise RunFailed(
                    f"no thread can be started for channel {name!r} ({error}); allow the process"
                    " more threads, or run without overlap"
                ) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            if not isinstance(error, _INTERRUPTS):
                self._drain()
        finally:
            self._stop()
        self._report(error)

    # For the program

    def enter(self, level: int | None = None, direct: Buffers = (), /) -> Handling:
        """Wait until the next action can begin, and return how it is to be done.

        `level` is the number of the far level that the action uses, if any; `direct` are the
        model's own buffers in case of a direct transfer. Raises the error of this level's channel,
        or of another one if the action would have to wait for it forever.
        """
        self._direct = direct
        self._check(level)
        while (step := self.traffic.enter()) is None:
            self._wait(level)
        return step

    def leave(self) -> None:
        """Finish the current action, which has been done."""
        copied, self._copied = self._copied, None
        if copied is not None and copied.ended:
            self.give_back(copied.transfer)
        self.traffic.leave()

    def begin(self) -> None:
        """Start transfers on all idle channels, as far as the rules permit."""
        for number, now in enumerate(self._now):
            if now is None and not self._halted:
                transfer = self._now[number] = self.traffic.begin(number)
                if transfer is not None:
                    self._tasks[number].put(transfer)

    def land(self, level: int, /) -> None:
        """Wait until the direct transfer has ended.

        After any error, too, no thread uses the model's memory any more.
        """
        try:
            while not self.traffic.ended():
                self._wait(level)
        except _INTERRUPTS:
            self._halted = True
            while any(transfer.direct for transfer in self._busy()):
                with suppress(*_INTERRUPTS):
                    self.turn.wait(_LOOK)
            raise

    def wait_until_written(self, level: int, key: Key, /) -> None:
        """Wait until a checkpoint is not staged any more."""
        while any(
            each.transfer.action == Write(key, level) and not each.ended
            for each in self._staged.values()
        ):
            self._wait(level)

    def stage(self, transfer: Transfer, form: Form, /, *, given: bool = False) -> Staged:
        """Return staging memory for a transfer.

        If the model passes the checkpoint without a copy (`given`), its bytes only count.
        """
        lend = self._lender.hold if given else self._lender.lend
        staged = Staged(transfer, form, lend(form.nbytes))
        self._staged[transfer.row] = staged
        self._left[self.traffic.channel(transfer)] += self._price(staged)
        return staged

    def staged(self, transfer: Transfer, /) -> Staged:
        """Return the staged checkpoint of a read; raises the error if the read has failed.

        The program copies from it until `leave`.
        """
        if (failure := self._unread.get(transfer.row)) is not None:
            raise failure.error
        self._copied = self._staged[transfer.row]
        return self._copied

    def give_back(self, transfer: Transfer, /) -> None:
        """Return the staging memory of a transfer to the level that lent it."""
        staged = self._staged.pop(transfer.row)
        self._left[self.traffic.channel(transfer)] -= self._price(staged)
        self._lender.give_back(staged.loan)

    @property
    def behind(self) -> float:
        """Estimated seconds until all staged checkpoints are written, by the levels' costs."""
        return max(self._left, default=0.0)

    def _price(self, staged: Staged) -> float:
        action = staged.transfer.action
        level = self._platform.levels[action.level]
        return level.write(staged.form.nbytes) if isinstance(action, Write) else 0.0

    def _check(self, level: int | None) -> None:
        if level is not None and self._failures:
            failure = self._failures.get(self._platform.levels[level].channel)
            if failure is not None:
                raise failure.error

    def _wait(self, level: int | None) -> None:
        """Wait until a transfer has ended; raises a failure if no transfer is left to wait for."""
        self.begin()
        if not any(self._busy()):
            for failure in self._failures.values():
                raise failure.error
            raise AssertionError(f"action #{self.traffic.row} waits for ever")
        self._waits = True
        try:
            self.turn.wait(_LOOK)
        finally:
            self._waits = False
        self._check(level)

    def _busy(self) -> Iterator[Transfer]:
        """Yield the current transfers."""
        for name, now in zip(self.traffic.channels, self._now, strict=True):
            if now is not None and name not in self._failures:
                yield now

    # The threads

    def _serve(self, number: int) -> None:
        """Execute the transfers of a channel, one after the other."""
        while (transfer := self._tasks[number].get()) is not None:
            try:
                start = self._clock()
                nbytes = self._move(transfer)
                stop = self._clock()
                with self.turn:
                    if self._moved is not None:
                        self._moved(transfer.row, start, stop, nbytes)
                    self._ended(number, transfer)
            except BaseException as error:  # every error, or the program would wait forever
                failed = own(error)
                with self.turn:
                    self._failed(number, TransferFailure(transfer, failed, str(failed)))

    def _move(self, transfer: Transfer) -> int:
        """Execute a transfer; return the bytes that were written to or read from the level."""
        match transfer.action:
            case Discard(key, level):
                self._backends[level].discard(key)
                return 0
            case Write(key, level) if transfer.direct:
                return self._backends[level].write(key, self.forms[level, key].layout, self._direct)
            case Write(key, level):
                staged = self._staged[transfer.row]
                return self._backends[level].write(key, staged.form.layout, staged.buffers)
            case Read(key, level) if transfer.direct:
                return self._backends[level].read(key, self._direct)
            case Read(key, level):
                with self.turn:
                    staged = self.stage(transfer, self.forms[level, key])
                return self._backends[level].read(key, staged.buffers)
            case _:
                assert_never(transfer.action)

    def _ended(self, number: int, transfer: Transfer) -> None:
        self._now[number] = None
        staged = self._staged.get(transfer.row)
        if staged is not None:
            staged.ended = True
            if isinstance(transfer.action, Write) and staged is not self._copied:
                self.give_back(transfer)
        if not self._halted:
            self.traffic.end(number)
            if not self._waits:
                self.begin()
        self.turn.notify_all()

    def _failed(self, number: int, failure: TransferFailure) -> None:
        transfer = failure.transfer
        if isinstance(transfer.action, Read) and not transfer.direct:
            self._unread[transfer.row] = failure
            self._ended(number, transfer)
        else:
            self._failures[self.traffic.channels[number]] = failure
            self.turn.notify_all()

    # The end

    def _drain(self) -> None:
        """Wait until all staged checkpoints are written."""
        with self.turn:
            self.traffic.stop()
            self.begin()
            while any(self._busy()):
                self.turn.wait(_LOOK)

    def _stop(self) -> None:
        """End the threads after their current transfers, and return all staging memory."""
        self._halted = True
        for tasks in self._tasks:
            tasks.put(None)
        interrupt: BaseException | None = None
        for thread in self._threads:
            while thread.is_alive():
                try:
                    thread.join()
                except _INTERRUPTS as error:
                    interrupt = error
        self._direct = ()
        failed = [failure.transfer for failure in self._failures.values()]
        for staged in list(self._staged.values()):
            transfer, ended = staged.transfer, staged.ended
            if isinstance(transfer.action, Write) and not ended and transfer not in failed:
                self._unwritten.append(transfer)
            self.give_back(transfer)
        if interrupt is not None:
            raise interrupt

    def _report(self, error: BaseException | None) -> None:
        """Report all failed transfers.

        If `error` is the error of a transfer, its message gets the action. If there is no other
        error, the first failure is raised. All further failures are added as notes.
        """
        failures = list(self._failures.values())
        first = next((it for it in (*failures, *self._unread.values()) if it.error is error), None)
        if first is None and failures and (error is None or isinstance(error, GeneratorExit)):
            first = failures[0]
        outcome = error if first is None else first.named(self._platform)
        if outcome is None:
            return
        for failure in failures:
            if failure is not first:
                outcome.add_note(f"(and {failure.named(self._platform)})")
        if self._unwritten:
            what = ", ".join(where(it.action, self._platform) for it in self._unwritten)
            outcome.add_note(f"(not written any more: {what})")
        if outcome is not error:
            raise outcome
