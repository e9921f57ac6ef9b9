"""The ranks of a job that perform one schedule. An error on one rank is raised on all ranks.

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
"""The states of a rank: no error; an error caused by the failure of another rank; its own error."""


class RankGroup:
    """The ranks of a job, which perform the same actions and fail together.

    An error that one rank raises within `each`, `once` or `together` is raised on all ranks, with
    the number of that rank in its text. Its class is that of the error on the first rank that
    failed, if it is an error of ckio, and otherwise RankFailed.

    Parameters
    ----------
    comm : Comm, optional
        The ranks; by default this process alone. The group uses this communicator only for
        agreements; other users need a separate one from `duplicate`.
    wish : callable, optional
        Returns whether this rank is asked to stop. It is called before each agreement.

    Attributes
    ----------
    comm : Comm
        The communicator of the agreements.
    rank, size : int
        The number of this rank, and the number of ranks.
    wished : bool
        Whether any rank was asked to stop, at the last agreement. It is the same on all ranks.
    clock : Clock
        The time of the last agreement on the slowest rank, the same on all ranks. Reading it needs
        no communication, and it advances only when the ranks agree.
    """

    def __init__(self, comm: Comm = SOLO, /, *, wish: Callable[[], bool] | None = None) -> None:
        self.comm = comm
        self.rank, self.size = comm.rank, comm.size
        self._separate = comm.duplicate()
        self.wish = wish
        self.wished = False
        self.clock = AgreedClock()
        comm.largest(np.zeros(1))  # all ranks wait here, so that their time begins together
        self._origin = time.perf_counter()

    @property
    def is_alone(self) -> bool:
        """Whether the job has only one rank."""
        return self.size == 1

    def gather(self, value: T, /) -> list[T]:
        """Return the values of all ranks, in the order of the ranks. Values must be picklable.

        Raises RankFailed if a rank fails before it makes this call.
        """
        return self._separate.gather(value)

    def agree(
        self, error: BaseException | None = None, /, *, number: int = 0, named: bool = True
    ) -> None:
        """Wait for all other ranks, and raise the same error on all if one of them has failed.

        Parameters
        ----------
        error : exception, optional
            The error with which this rank has failed; None if it has not failed.
        number : int
            A number that must be the same on all ranks, such as the step. If it is not, all ranks
            raise RunFailed.
        named : bool
            Whether the text of an error of ckio names the rank.
        """
        worst, least, most = self._exchanged(error, number)
        if worst != _WELL:
            raise _shared(self.comm.gather(_note(error)), named=named) from error
        if least != most:
            unlike = RunFailed(
                f"one rank is at step {least:.0f} and another at {most:.0f}; the model must return"
                " the same step on all ranks"
            )
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
        """Call `do` on every rank, and return its value. If it fails on one rank, all ranks raise.

        Parameters
        ----------
        do : callable
            The work of this rank.
        undo : callable, optional
            Called with the value of `do` on each rank that succeeded, if another rank failed.
        number : callable, optional
            Returns, for the value of `do`, a number that must be the same on all ranks, such as
            the step that is reached.
        calls_off : bool
            Whether a rank that fails calls `Comm.call_off`, because other ranks may wait for it in
            a separate communicator.
        """
        try:
            value = do()
        except Exception as error:
            if _is_shared(error):
                raise
            if calls_off:
                self.comm.call_off(_text_of(error))
            self.agree(error)
            raise  # not reached, because agree raises on a rank that has failed
        try:
            self.agree(number=0 if number is None else number(value))
        except CkioError:
            if undo is not None:
                with suppress(StorageError):
                    undo(value)
            raise
        return value

    def once(self, do: Callable[[], T], /) -> T:
        """Call `do` on the first rank only. All ranks return its value, or raise its error.

        The value must be picklable.
        """
        if self.is_alone:
            return do()
        pickled, failed = b"", None
        if self.rank == 0:
            try:
                pickled = pickle.dumps(do())  # in the try block, because pickling may fail, too
            except Exception as error:
                if _is_shared(error):
                    raise
                failed = error
        self.agree(failed, named=False)
        value: T = pickle.loads(self.gather(pickled)[0])
        return value

    @contextmanager
    def together(self) -> Iterator[None]:
        """Return a context whose block all ranks complete, or none.

        Errors outside of collective calls are therefore shared, too. The other ranks learn of an
        error at their next agreement, or earlier, in an exchange.
        """
        try:
            yield
        except BaseException as error:
            if not _is_shared(error):
                self.comm.call_off(_text_of(error))
                self.agree(error)
            raise
        self.agree()

    def _exchanged(self, error: BaseException | None, number: int) -> tuple[float, float, float]:
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
    """The time of the last agreement, in seconds since the group was created."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float, /) -> None:
        time.sleep(seconds)


class CollectiveClock:
    """A clock for measurements: each reading is an agreement of all ranks.

    Therefore a measured interval begins on all ranks at the same time, and ends with the slowest.
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
            return _ErrorNote(_FAILED, type(error).__name__, _text_of(error))


def _text_of(error: BaseException) -> str:
    """Return the text of an error, preceded by its class unless it is an error of ckio."""
    if isinstance(error, CkioError):
        return "; ".join([str(error), *getattr(error, "__notes__", ())])
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return " ".join(map(str.strip, format_exception_only(error)))


def _shared(notes: list[_ErrorNote], *, named: bool) -> CkioError:
    """Return the error that all ranks raise."""
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
"""Errors of ckio whose constructors need more than a text."""


def _is_shared(error: BaseException) -> bool:
    return isinstance(error, CkioError) and error.shared
