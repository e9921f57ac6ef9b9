"""The lines of a picture of a schedule, the merging of many shapes, and tooltips.

If checkpoints are single variables, their accesses have no marks: dozens of them would lie on one
another at each step, and their versions are older than the state.
"""

from typing import Final, assert_never

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Advance, Discard, Kind, Read, Record, Reverse, Write
from ckio.actions.columns import DISCARD, KIND_CODE, READ, RECORD, REVERSE, WRITE, Actions
from ckio.platform.readable import bytes_text, seconds_text
from ckio.schedule.occupancy import Bools, Floats, Ints, Lifetimes
from ckio.schedule.timeline import Event, Timeline

Grid = NDArray[np.bool_]

STROKES: Final = 6000
"""The largest number of strokes of a merged class. More strokes are merged more coarsely."""


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


def whole(actions: Actions, /) -> Bools:
    """Return whether each access is one of a whole checkpoint, which has a mark."""
    marked: Bools = (actions.op >= WRITE) & (actions.name == 0)
    return marked


def lines(actions: Actions, /) -> Ints:
    """Return the line of each action: the number of its sweep, from 0.

    A Discard, and an access of a single variable, has the line of the action before it.
    """
    drawn = np.flatnonzero((actions.op < WRITE) | (whole(actions) & (actions.op != DISCARD)))
    line = np.zeros(len(actions), np.int64)
    line[drawn] = _lines(actions.take(drawn))
    return np.maximum.accumulate(line)


def _lines(drawn: Actions) -> Ints:
    """Return the line of each mark, or span."""
    sweep = _sweeps(drawn)
    breaks = np.diff(sweep, prepend=0) > 0
    # Marks at one place would hide one another, so the second one begins a new line.
    place = np.where(drawn.op < WRITE, -1 - np.arange(len(drawn)), 2 * drawn.begin)
    place[drawn.kind == _TAPE] += 1
    previous, last = _previous(sweep, place), -1
    for number in np.flatnonzero(previous >= 0).tolist():
        if previous[number] >= last:
            breaks[number], last = True, number
    return np.cumsum(breaks)


def _sweeps(drawn: Actions) -> Ints:
    """Return the sweep of each action. A turn, or the start from another x_i, begins a new sweep.

    The program starts from another x_i if it reads it as a whole; or if it goes on forward from
    there, because it has read the variables of x_i.
    """
    read, back, forward = drawn.op == READ, drawn.op == REVERSE, drawn.op <= RECORD
    restart = read & (drawn.kind == _RESTART)
    turn = np.select([forward | restart, back | read], [1, -1], 0)
    given = np.maximum.accumulate(np.where(turn != 0, np.arange(len(turn)), 0))
    direction = np.where(turn[given] == 0, 1, turn[given])
    new = restart.copy()
    new[1:] |= direction[1:] != direction[:-1]
    moves = np.flatnonzero(forward | restart)
    reached = np.where(forward, drawn.end, drawn.begin)[moves]
    new[moves[1:]] |= forward[moves[1:]] & (drawn.begin[moves[1:]] != reached[:-1])
    new[:1] = False
    return np.cumsum(new)


def _previous(sweep: Ints, place: Ints) -> Ints:
    """Return for each action the last earlier one with the same sweep and place, or -1."""
    order = np.lexsort((place, sweep))
    same = (np.diff(sweep[order]) == 0) & (np.diff(place[order]) == 0)
    previous = np.full(len(order), -1)
    previous[order[1:][same]] = order[:-1][same]
    return previous


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


def whole_stays(actions: Actions, /) -> Lifetimes:
    """Return the periods for which whole checkpoints are stored on a level."""
    stays = Lifetimes.of(actions)
    return stays.take(stays.named.name == 0)


def is_tape(stays: Lifetimes, /) -> Bools:
    """Return whether each stay is that of a tape, whose mark is inside its step."""
    tape: Bools = stays.named.kind == _TAPE
    return tape


def seconds_of_stays(stays: Lifetimes, timeline: Timeline, until: float) -> tuple[Floats, Floats]:
    """Return the start and the end of each stay. Without a Discard it ends at `until`."""
    start, stop = stays.seconds(timeline)
    stop[stays.discarded == len(timeline)] = until
    return start, stop


def stay_titles(stays: Lifetimes, level: str, timeline: Timeline, until: float, /) -> list[str]:
    """Return the tooltip of each stay: its checkpoint, and its times on the level."""
    start, stop = seconds_of_stays(stays, timeline, until)
    keys = map(stays.named.key, stays.named.rows())
    return [
        f"{key} on {level}\n{seconds_text(begin)} to {seconds_text(end)}"
        for key, begin, end in zip(keys, start.tolist(), stop.tolist(), strict=True)
    ]
