"""The ranks of a job that run one schedule together: what fails on one of them fails on all.

The ranks agree by one collective call, which takes the largest of a few numbers: whether a rank has
failed, whether it was asked to stop, and its time. Because every such call is the same, a rank that
fails anywhere makes the next one from there, and the others receive it. All other messages go
through separate communicators, in which no rank waits for one that has failed.

Values that ranks could see differently, such as files, sizes and hashes, are decided by one rank,
or gathered from all.
"""

import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from traceback import format_exception_only
from typing import Final, NamedTuple, TypeVar

import numpy as np

from ckio import errors
from ckio.errors import CkioError, RankFailed, RunFailed, StorageError
from ckio.model.comm import SOLO, Comm

T = TypeVar("T")

_WELL, _ECHO, _FAILED = 0.0, 1.0, 2.0
"""A rank is well; it fails as another one did; it fails."""


class RankGroup:
    """The ranks of a job, which perform the same actions and fail together.

    Whatever a rank raises within `each`, `once` or `together` is raised by all of them, as an error
    that names it. Its kind is that of the first rank that failed, if it is one of ckio's, and
    RankFailed if not.

    Parameters
    ----------
    comm : Comm, optional
        The ranks; by default this process alone. Other users of the ranks take a communicator
        of their own by `apart`.
    wish : callable, optional
        Called before each agreement: whether this rank is to stop.

    Attributes
    ----------
    comm : Comm
        The communicator of the agreements, and of nothing else.
    rank, size : int
        As `comm` has them.
    wished : bool
        Whether some rank was to stop, as of the last agreement: the same on all ranks.
    clock : Clock
        The time of the last agreement: that of the slowest rank, the same on all. Reading it costs
        nothing, and it advances only when the ranks agree.
    """

    def __init__(self, comm: Comm = SOLO, /, *, wish: Callable[[], bool] | None = None) -> None:
        self.comm = comm
        self.rank, self.size = comm.rank, comm.size
        self._apart = comm.apart()
        self.wish = wish
        self.wished = False
        self.clock = AgreedClock()
        comm.largest(np.zeros(1))  # the time begins for all at once
        self._origin = time.perf_counter()

    @property
    def is_alone(self) -> bool:
        """Whether there is nobody to agree with."""
        return self.size == 1

    def gather(self, value: T, /) -> list[T]:
        """The values of all ranks, in their order; what pickle can carry.

        Raises RankFailed where one fails before it is there.
        """
        return self._apart.gather(value)

    def agree(
        self, error: BaseException | None = None, /, *, number: int = 0, named: bool = True
    ) -> None:
        """Wait for all others, and hear how they are; `error` is why this one fails.

        Raises what all raise, where one fails; and RunFailed where they come with another `number`.
        An error of ckio's says which rank it is of where that is to be `named`.
        """
        worst, least, most = self._heard(error, number)
        if worst != _WELL:
            raise _shared(self.comm.gather(_note(error)), named=named) from error
        if least != most:
            unlike = RunFailed(f"one rank is at step {least:.0f} where another is at {most:.0f}")
            unlike.shared = True
            raise unlike

    def each(
        self,
        do: Callable[[], T],
        /,
        *,
        undo: Callable[[T], object] | None = None,
        number: Callable[[T], int] | None = None,
        calls_off: bool = False,
    ) -> T:
        """Do something on every rank; where one cannot, those that could undo it, and all raise.

        `number` makes of what was done what has to be the same on all ranks: the step they are at.
        What fails `calls_off` where others may wait for this rank meanwhile, apart.
        """
        try:
            value = do()
        except Exception as error:
            if _is_shared(error):
                raise
            if calls_off:
                self.comm.call_off(_told(error))
            self.agree(error)
            raise  # not reached: who fails hears of it
        try:
            self.agree(number=0 if number is None else number(value))
        except CkioError:
            if undo is not None:
                with suppress(StorageError):
                    undo(value)
            raise
        return value

    def once(self, do: Callable[[], T], /) -> T:
        """Do something on the first rank alone; all return what it does, or raise what it did.

        What it returns must be what pickle can carry.
        """
        if self.is_alone:
            return do()
        pickled, failed = b"", None
        if self.rank == 0:
            try:
                pickled = pickle.dumps(do())  # here, where it may fail
            except Exception as error:
                if _is_shared(error):
                    raise
                failed = error
        self.agree(failed, named=False)
        value: T = pickle.loads(self.gather(pickled)[0])
        return value

    @contextmanager
    def together(self) -> Iterator[None]:
        """Run a block that all ranks end, or none: errors outside of collectives are shared, too.

        The others learn of it when they next agree, or earlier, in an exchange.
        """
        try:
            yield
        except BaseException as error:
            if not _is_shared(error):
                self.comm.call_off(_told(error))
                self.agree(error)
            raise
        self.agree()

    def _heard(self, error: BaseException | None, number: int) -> tuple[float, float, float]:
        """Return the worst state of all ranks, and the least and the largest of their numbers."""
        state = _WELL if error is None else _ECHO if isinstance(error, RankFailed) else _FAILED
        wish = self.wish is not None and self.wish()
        mine = np.array([state, wish, time.perf_counter() - self._origin, -number, number])
        try:
            worst, wished, seconds, least, most = self.comm.largest(mine).tolist()
        except RankFailed as gone:
            gone.shared = True
            raise
        self.wished, self.clock.seconds = bool(wished), seconds
        return worst, -least, most


class AgreedClock:
    """The time of the last agreement, in seconds since the group was made."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float, /) -> None:
        time.sleep(seconds)


class CollectiveClock:
    """A clock that makes the ranks agree whenever it is read, for measurements.

    What is measured begins on all ranks at once, and ends with the slowest.
    """

    def __init__(self, ranks: RankGroup) -> None:
        self._ranks = ranks

    def now(self) -> float:
        self._ranks.agree()
        return self._ranks.clock.now()

    def sleep(self, seconds: float, /) -> None:
        time.sleep(seconds)


ALONE: Final = RankGroup()
"""The group of this process alone."""


class _ErrorNote(NamedTuple):
    """The state of a rank, and the error that explains it."""

    state: float
    kind: str
    text: str


def _note(error: BaseException | None) -> _ErrorNote:
    match error:
        case None:
            return _ErrorNote(_WELL, "", "")
        case RankFailed():
            return _ErrorNote(_ECHO, "", str(error))
        case _:
            return _ErrorNote(_FAILED, type(error).__name__, _told(error))


def _told(error: BaseException) -> str:
    """Return the text of an error, with its class where that is not one of ckio's."""
    if isinstance(error, CkioError):
        return "; ".join([str(error), *getattr(error, "__notes__", ())])
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return " ".join(map(str.strip, format_exception_only(error)))


def _shared(notes: list[_ErrorNote], *, named: bool) -> CkioError:
    """The error that all ranks raise."""
    worst = max(note.state for note in notes)
    first = next(rank for rank, note in enumerate(notes) if note.state == worst)
    note = notes[first]
    everybody = all(other == note for other in notes)
    kind = getattr(errors, note.kind, None)
    known = isinstance(kind, type) and issubclass(kind, CkioError) and kind not in _OWN_ARGUMENTS
    unnamed = everybody or worst == _ECHO or (known and not named)
    text = note.text if unnamed else f"rank {first}: {note.text}"
    others = sum(other.state == worst for other in notes) - 1
    if others and not everybody and worst != _ECHO:
        text += f" (and so {'does one other' if others == 1 else f'do {others} others'})"
    error = kind(text) if kind and known else RankFailed(text, rank=first)
    error.shared = True
    return error


_OWN_ARGUMENTS: Final = (RankFailed, errors.Stopped)
"""Errors that are made of more than words."""


def _is_shared(error: BaseException) -> bool:
    return isinstance(error, CkioError) and error.shared
