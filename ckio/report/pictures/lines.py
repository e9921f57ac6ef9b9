"""The places of actions in the pictures of a schedule, and their tooltips.

If checkpoints are single variables, a key gives the version of a variable, which may be older than
the state that the variable belongs to. Its mark is at the current step of the program: for a Write,
at the step of the state, and for a Read, at the step for which the variable is read. All variables
written at one step, or read at one step, share one mark.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, assert_never

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Advance, Discard, Kind, Read, Record, Reverse, Write
from ckio.actions.columns import (
    DISCARD,
    KIND_CODE,
    READ,
    RECORD,
    REVERSE,
    VERBS,
    WRITE,
    Actions,
    changes,
)
from ckio.actions.variables import following
from ckio.platform.readable import bytes_text, seconds_text
from ckio.report.staging import key_numbers, latest
from ckio.schedule.occupancy import BEFORE, Bools, Floats, Ints, Lifetimes
from ckio.schedule.timeline import Event, Timeline

Grid = NDArray[np.bool_]

STROKES: Final = 6000
"""The largest number of strokes of a merged class. More strokes are merged more coarsely."""
MOST_TITLES: Final = 8
"""The largest number of tooltips of one shape. If there are more, it has the first ones."""


def covered(line: Ints, begin: Ints, end: Ints, /, *, lines: int, length: int) -> Grid:
    """Return the cells of a `lines` by `length` grid that half-open spans [begin, end) cover."""
    edges = np.zeros((lines, length + 1), np.int32)
    np.add.at(edges, (line, begin), 1)
    np.add.at(edges, (line, end), -1)
    grid: Grid = edges.cumsum(axis=1)[:, :length] > 0
    return grid


def runs(grid: Grid, /) -> tuple[Ints, Ints, Ints]:
    """Return the spans of a grid by line, (line, begin, end). Spans that touch are merged."""
    padded = np.zeros((grid.shape[0], grid.shape[1] + 2), np.int8)
    padded[:, 1:-1] = grid
    change = np.diff(padded, axis=1)
    line, begin = np.nonzero(change == 1)
    return line, begin, np.nonzero(change == -1)[1]


def strokes(
    line: Ints, begin: Ints, end: Ints, /, *, lines: int, length: int
) -> list[tuple[int, int, int]]:
    """Return the spans of `runs`, (line, begin, end), merged more coarsely if they are too many.

    Coarse spans begin and end at multiples of a power of two, which may exceed `length`.
    """
    unit, spans = 1, runs(covered(line, begin, end, lines=lines, length=length))
    while len(spans[0]) > STROKES:
        unit *= 2
        cells = covered(
            line, begin // unit, -(-end // unit), lines=lines, length=-(-length // unit)
        )
        spans = runs(cells)
    columns = (spans[0], spans[1] * unit, spans[2] * unit)
    return list(zip(*(column.tolist() for column in columns), strict=True))


_RESTART: Final = KIND_CODE[Kind.RESTART]
_TAPE: Final = KIND_CODE[Kind.TAPE]


@dataclass(frozen=True, slots=True)
class Places:
    """The place of each action in a picture.

    Attributes
    ----------
    line : int64 array
        The number of the sweep, from 0. A Discard has the line of the action before it.
    step : int64 array
        The first step of a span. For an access, i of the state x_i or of the tape.
    mark : int64 array
        The index of the first action with the same mark; its own index if the mark is its own.
    """

    line: Ints
    step: Ints
    mark: Ints

    @staticmethod
    def of(actions: Actions, /) -> "Places":
        """Return the places of a schedule, or of the beginning of a schedule."""
        step = _steps(actions)
        shown = np.flatnonzero(actions.op != DISCARD)
        first = shown[_opens(actions.take(shown), step[shown])]
        line = np.zeros(len(actions), np.int64)
        line[first] = _lines(actions.take(first), step[first])
        mark = np.arange(len(actions))
        alike = np.maximum.accumulate(np.where(np.isin(mark, first), mark, 0))
        mark[shown] = alike[shown]
        return Places(np.maximum.accumulate(line), step, mark)

    def take(self, index: Ints, /) -> "Places":
        """Return the places of some of the actions."""
        return Places(self.line[index], self.step[index], self.mark[index])

    def of_stays(self, stays: Lifetimes, /) -> Ints:
        """Return the step of each Write; for data stored before the start, their version."""
        before = stays.written == BEFORE
        return np.where(before, stays.named.begin, self.step[stays.written])

    def together(self, stays: Lifetimes, /) -> tuple[Lifetimes, Ints]:
        """Merge the stays that share a mark; each merged stay ends at the last Discard.

        Returns the merged stays, and for each original stay the number of its merged one. All stays
        are on one level.
        """
        count = len(stays.written)
        alone = np.arange(count) - count
        mark = np.where(stays.written == BEFORE, alone, self.mark[stays.written])
        _, first, which = np.unique(mark, return_index=True, return_inverse=True)
        until = np.zeros(len(first), np.int64)
        np.maximum.at(until, which, stays.discarded)
        return replace(stays.take(first), discarded=until), which


def members(which: Ints, /) -> list[list[int]]:
    """Return for each group the numbers of its members, in order."""
    ends = np.cumsum(np.bincount(which))
    parts = np.split(np.argsort(which, kind="stable"), ends[:-1]) if len(which) else []
    return [part.tolist() for part in parts]


def tooltip(event: Event, /, place: str = "") -> str:
    """Return a tooltip: the action, and below it the level in `place`, the times and seconds."""
    verb = type(event.action).__name__.lower()
    match event.action:
        case Advance(begin, end) | Record(begin, end) | Reverse(begin, end):
            steps = f"step {begin}" if end == begin + 1 else f"steps {begin} to {end - 1}"
            what = f"{verb} {steps}"
        case Write(key, _) | Read(key, _) | Discard(key, _):
            what = f"{verb} {key}" + (f", {bytes_text(event.nbytes)}" if event.nbytes else "")
        case _:
            assert_never(event.action)
    when = f"{seconds_text(event.start)} to {seconds_text(event.stop)}"
    return f"{what}\n{place}{when}: {seconds_text(event.stop - event.start)}"


def together(titles: Sequence[str], /) -> str:
    """Return the tooltip of a shape that stands for several actions or checkpoints.

    >>> together([f"x_{i}" for i in range(10)]).splitlines()[-2:]
    ['x_7', 'and 2 more']
    """
    more = len(titles) - MOST_TITLES
    return "\n".join([*titles[:MOST_TITLES], *([f"and {more} more"] if more > 0 else [])])


def some(count: int, shown: int, /) -> str:
    """Return the number of checkpoints, or of variables if fewer marks than that are shown."""
    return f"{count:,} {'checkpoints' if count == shown else 'variables'}"


def of_program(events: Timeline, program: Timeline, level: int, /) -> Ints:
    """Return for each event of a level its index in the program, or BEFORE if it has none.

    Only the values for Writes are used.

    A channel writes later than the program, and it does not write data whose transfer is cancelled.
    """
    rows = np.flatnonzero((program.actions.op >= WRITE) & (program.actions.level == level))
    own, count = program.actions.take(rows), len(rows)
    if own == events.actions:
        return rows
    both = own + events.actions
    alike = key_numbers(both) * len(VERBS) + both.op
    last = latest(alike[:count], program.start[rows], alike[count:], events.start)
    return np.append(rows, BEFORE)[last]


@dataclass(frozen=True, slots=True)
class DrawnStays:
    """The stays of checkpoints on one level. Stays that share a mark are drawn as one.

    Attributes
    ----------
    each : Lifetimes
        The stays of single checkpoints or variables.
    stays : Lifetimes
        The stays that are drawn.
    which : int64 array
        For each stay in `each`, the number of the drawn stay.
    step : int64 array
        For each drawn stay, the step at which it was written.
    level : str
        The name of the level.
    """

    each: Lifetimes
    stays: Lifetimes
    which: Ints
    step: Ints
    level: str

    @staticmethod
    def of(each: Lifetimes, places: Places, level: str, /) -> "DrawnStays":
        """Merge the stays of one level by their marks."""
        stays, which = places.together(each)
        return DrawnStays(each, stays, which, places.of_stays(stays), level)

    def __len__(self) -> int:
        return len(self.step)

    @property
    def tape(self) -> Bools:
        """Whether each stay is that of a tape, whose mark is inside its step."""
        tape: Bools = self.stays.named.kind == _TAPE
        return tape

    @property
    def title(self) -> str:
        """The tooltip of a shape that stands for all stays."""
        return f"{some(len(self.each.written), len(self))} on {self.level}"

    def titles(self, timeline: Timeline, until: float, /) -> list[str]:
        """Return the tooltip of each stay: checkpoints, and their times on the level."""
        start, stop = seconds_of_stays(self.each, timeline, until)
        keys = map(self.each.named.key, self.each.named.rows())
        titles = [
            f"{key} on {self.level}\n{seconds_text(begin)} to {seconds_text(end)}"
            for key, begin, end in zip(keys, start.tolist(), stop.tolist(), strict=True)
        ]
        return [together([titles[k] for k in these]) for these in members(self.which)]


def seconds_of_stays(stays: Lifetimes, timeline: Timeline, until: float) -> tuple[Floats, Floats]:
    """Return the start and the end of each stay. Without a Discard it ends at `until`."""
    start, stop = stays.seconds(timeline)
    stop[stays.discarded == len(timeline)] = until
    return start, stop


def _steps(actions: Actions) -> Ints:
    """Return the step of each action; for a variable it follows from the actions around it."""
    step = actions.begin.copy()
    named = (actions.op >= WRITE) & (actions.name > 0)
    if not named.any():
        return step
    does, back = actions.op < WRITE, actions.op == REVERSE
    before, after = _last(does), following(does)
    came = np.append(np.where(back, actions.begin, actions.end), 0)[before]
    goes = np.append(np.where(back, actions.end, actions.begin), 0)[after]
    goes = np.where(after < len(actions), goes, came)
    # After a Reverse, a Write belongs to the next forward step.
    turned = np.append(back, False)[before] & ~np.append(back, True)[after]
    for kind, inside in ((_RESTART, 0), (_TAPE, 1)):
        ours = named & (actions.kind == kind)
        loaded = _last((actions.op == READ) & (actions.kind == kind)) > before
        place = np.where(loaded | turned, goes, came) - inside
        step[ours] = np.maximum(place, 0)[ours]
    return step


def _last(happens: Bools) -> Ints:
    """Return for each index the last index up to it at which `happens` is true, or -1."""
    last: Ints = np.maximum.accumulate(np.where(happens, np.arange(len(happens)), -1))
    return last


def _opens(drawn: Actions, step: Ints) -> Bools:
    """Return whether each action has a mark of its own. A variable may share the previous mark."""
    opens, named = changes(drawn.op, drawn.kind, step), drawn.name > 0
    opens[1:] |= ~(named[1:] & named[:-1])
    return opens


def _lines(drawn: Actions, step: Ints) -> Ints:
    """Return the line of each mark, or span."""
    sweep = _sweeps(drawn, step)
    breaks = np.diff(sweep, prepend=0) > 0
    # Marks at one place would hide one another, so the second one begins a new line.
    place = np.where(drawn.op < WRITE, -1 - np.arange(len(drawn)), 2 * step)
    place[drawn.kind == _TAPE] += 1
    previous, last = _previous(sweep, place), -1
    for number in np.flatnonzero(previous >= 0).tolist():
        if previous[number] >= last:
            breaks[number], last = True, number
    return np.cumsum(breaks)


def _sweeps(drawn: Actions, step: Ints) -> Ints:
    """Return the sweep of each action. A turn, or a Read of another x_i, begins a new sweep."""
    read, back = drawn.op == READ, drawn.op == REVERSE
    restart = read & (drawn.kind == _RESTART)
    does, named = drawn.op < WRITE, drawn.name > 0
    before, after = _last(does), following(does)
    # A variable may be read while the state stays x_i, or for the adjoint: this is no turn.
    adjoint = restart & named & np.append(back, False)[after]
    stays = (drawn.op[before] <= RECORD) & (drawn.end[before] == step) & (before >= 0)
    moves = restart & ~adjoint & ~(named & stays)
    forward = (drawn.op <= RECORD) | (restart & ~adjoint)
    turn = np.select([forward, back | (read & ~adjoint)], [1, -1], 0)
    given = np.maximum.accumulate(np.where(turn != 0, np.arange(len(turn)), 0))
    direction = np.where(turn[given] == 0, 1, turn[given])
    new = moves.copy()
    new[1:] |= direction[1:] != direction[:-1]
    new[:1] = False
    return np.cumsum(new)


def _previous(sweep: Ints, place: Ints) -> Ints:
    """Return for each action the last earlier one with the same sweep and place, or -1."""
    order = np.lexsort((place, sweep))
    same = (np.diff(sweep[order]) == 0) & (np.diff(place[order]) == 0)
    previous = np.full(len(order), -1)
    previous[order[1:][same]] = order[:-1][same]
    return previous
