"""The predicted or measured times at which every action began and ended."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Action
from ckio.actions.columns import ACCESSES, SPANS, WRITE, Actions
from ckio.errors import BadInput
from ckio.platform.readable import bytes_text, counted, seconds_text, sheet_text


@dataclass(frozen=True, slots=True)
class Event:
    """One action: seconds from the start of the run, and bytes moved to or from a level."""

    action: Action
    start: float
    stop: float
    nbytes: int = 0


class Timeline(Sequence[Event]):
    """The events of a run in the order of its actions, stored in columns.

    Attributes
    ----------
    actions : Actions
        The actions.
    start, stop : float64 arrays
        Seconds from the start of the run.
    nbytes : int64 array
        Bytes that the action moved to or from the level. 0 for computing, and for an action whose
        bytes were moved by a concurrent transfer.
    transfers : Timeline
        With overlap: the concurrent transfers, in the order in which they ended. The times of an
        action are then those of the program: of its own work, and of its waiting.
    """

    __slots__ = ("_transfers", "actions", "nbytes", "start", "stop")

    def __init__(
        self,
        actions: Actions,
        start: NDArray[np.float64],
        stop: NDArray[np.float64],
        nbytes: NDArray[np.int64],
        transfers: "Timeline | None" = None,
    ) -> None:
        if not len(actions) == len(start) == len(stop) == len(nbytes):
            raise BadInput("Timeline: the columns differ in length; they must be equally long")
        self.actions = actions
        self.start = np.ascontiguousarray(start, np.float64)
        self.stop = np.ascontiguousarray(stop, np.float64)
        self.nbytes = np.ascontiguousarray(nbytes, np.int64)
        self._transfers = transfers

    @property
    def transfers(self) -> "Timeline":
        return EMPTY if self._transfers is None else self._transfers

    @property
    def makespan(self) -> float:
        """The seconds from 0 to the end of the last event or transfer."""
        transfers = 0.0 if self._transfers is None else self._transfers.makespan
        return max(float(self.stop.max(initial=0.0)), transfers)

    def __len__(self) -> int:
        return len(self.actions)

    @overload
    def __getitem__(self, index: int, /) -> Event: ...
    @overload
    def __getitem__(self, index: slice, /) -> "Timeline": ...
    def __getitem__(self, index: int | slice, /) -> "Event | Timeline":
        if isinstance(index, slice):
            return Timeline(
                self.actions[index], self.start[index], self.stop[index], self.nbytes[index]
            )
        return Event(
            self.actions[index],
            float(self.start[index]),
            float(self.stop[index]),
            int(self.nbytes[index]),
        )

    def __iter__(self) -> Iterator[Event]:
        times = zip(self.start.tolist(), self.stop.tolist(), self.nbytes.tolist(), strict=True)
        for action, (start, stop, nbytes) in zip(self.actions, times, strict=True):
            yield Event(action, start, stop, nbytes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Timeline):
            return NotImplemented
        return (
            self.actions == other.actions
            and all(
                np.array_equal(getattr(self, column), getattr(other, column))
                for column in ("start", "stop", "nbytes")
            )
            and (self._transfers or None) == (other._transfers or None)
        )

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        rows = list(_rows(self))
        if len(self.transfers):
            rows += [[f"transfer: {name}", *row] for name, *row in _rows(self.transfers)]
        title = f"timeline of {counted(len(self), 'event')}: {seconds_text(self.makespan)}"
        return sheet_text(title, ["class of action", "events", "seconds", "bytes"], rows)

    def __repr__(self) -> str:
        return f"<timeline of {len(self)} events, {self.makespan:.6g} s>"


def _rows(timeline: Timeline) -> Iterator[list[str]]:
    """Yield a row of words for each class of action."""
    actions, seconds = timeline.actions, timeline.stop - timeline.start
    for op, action in enumerate((*SPANS, *ACCESSES)):
        for level in np.unique(actions.level[actions.op == op]).tolist():
            rows = (actions.op == op) & (actions.level == level)
            where = f" level {level}" if op >= WRITE else ""
            nbytes = int(timeline.nbytes[rows].sum())
            yield [
                f"{action.__name__.lower()}{where}",
                f"{int(rows.sum())}",
                seconds_text(float(seconds[rows].sum())),
                bytes_text(nbytes) if nbytes else "",
            ]


EMPTY = Timeline(Actions.of([]), np.empty(0), np.empty(0), np.empty(0, np.int64))
"""A timeline without events."""


class TimelineRecorder:
    """Collects the times of actions as they happen, and makes a timeline of them."""

    def __init__(self) -> None:
        self._start, self._stop, self._nbytes = array("d"), array("d"), array("q")

    def add(self, start: float, stop: float, nbytes: int, /) -> None:
        """Add the seconds and bytes of the next action."""
        self._start.append(start)
        self._stop.append(stop)
        self._nbytes.append(nbytes)

    def timeline(self, actions: Actions, transfers: Timeline | None = None, /) -> Timeline:
        """Return the timeline of the times so far, which belong to the first of `actions`."""
        return Timeline(
            actions[: len(self._start)],
            np.array(self._start, np.float64),
            np.array(self._stop, np.float64),
            np.array(self._nbytes, np.int64),
            transfers,
        )


class TransferRecorder:
    """Collects transfers as they end, and makes a timeline of them."""

    def __init__(self) -> None:
        self._rows, self._recorder = array("q"), TimelineRecorder()

    def add(self, row: int, start: float, stop: float, nbytes: int, /) -> None:
        """Add a transfer: the number of its action, its seconds and its bytes."""
        self._rows.append(row)
        self._recorder.add(start, stop, nbytes)

    def timeline(self, actions: Actions, /) -> Timeline | None:
        """Return the timeline of the transfers so far, with their `actions`; None without
        transfers.
        """
        if not self._rows:
            return None
        return self._recorder.timeline(actions.take(np.array(self._rows, np.intp)))
