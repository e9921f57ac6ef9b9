"""A schedule as a picture in plain text: steps across, actions down.

    action  0     1     2     3     4
         0  0---------->1---->=====>        write x_0 to level 0, x_2 to level 1
         5  |           |     <~~~~~
         6  |           1=====>             read x_2; afterwards it is discarded
         9  |           <~~~~~

One line is one sweep, forward or adjoint, with the checkpoints that it writes and reads. The column
of a checkpoint continues below it while the checkpoint is stored. Checkpoints of single variables
have no marks.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Action, Kind
from ckio.actions.columns import ADVANCE, KIND_CODE, READ, RECORD, REVERSE, WRITE, Actions
from ckio.errors import BadInput
from ckio.platform.readable import counted
from ckio.report.pictures.lines import covered, lines, whole, whole_stays
from ckio.schedule import Schedule
from ckio.schedule.occupancy import BEFORE
from ckio.schedule.timeline import Event, Timeline

MARGIN: Final = 11
"""The number of columns for the label at the left of a line."""
LINES: Final = 100
"""The largest number of lines. If there are more sweeps, several share one line."""
NARROWEST: Final = 40

_Ints = NDArray[np.int64]
_Canvas = NDArray[np.uint8]
_TAPE = KIND_CODE[Kind.TAPE]
_MARKS: Final = {
    Kind.RESTART: ("0123456789", "restart data"),
    Kind.TAPE: ("abcdefghij", "tape"),
    Kind.ADJOINT: ("ABCDEFGHIJ", "adjoint"),
}
"""The marks of each kind on levels 0 to 9. The mark on all further levels is '+'."""


def render(events: Schedule | Iterable[Event | Action], /, *, width: int = 80) -> str:
    """Return a picture of a schedule, actions or a timeline, in lines of at most `width` columns.

    The label of a line is the number of its first action, or the start of that action in seconds if
    `events` have times. If there are too many, several steps share a column and several sweeps
    share a line. Raises BadInput if `width` is below 40.
    """
    if width < NARROWEST:
        raise BadInput(f"render: width = {width}; a picture needs at least {NARROWEST} columns")
    actions, start = _columns(events)
    if not len(actions):
        return "no actions"
    sweep = lines(actions)
    steps = np.maximum(actions.end, actions.begin + (actions.kind == _TAPE)).max()
    scale = _TextScale.of(int(steps), width)
    fold = -(-(int(sweep[-1]) + 1) // LINES)
    row = sweep // fold
    canvas = _draw(actions, row, scale, folded=fold > 1)

    first = np.flatnonzero(np.diff(row, prepend=-1))
    labels = (
        [str(place) for place in first] if start is None else [f"{start[i]:.4g}" for i in first]
    )
    rows = [
        f"{label:>{MARGIN - 2}}  {line.tobytes().decode('ascii')}".rstrip()
        for label, line in zip(labels, canvas, strict=True)
    ]
    what = "action" if start is None else "seconds"
    return "\n".join(
        [
            *_legend(actions, scale, fold, width),
            "",
            f"{what:>{MARGIN - 2}}  {scale.ruler(width - MARGIN)}".rstrip(),
            *rows,
        ]
    )


@dataclass(frozen=True, slots=True)
class _TextScale:
    """The horizontal scale: `cell` columns for a step, or one column for `fold` steps."""

    steps: int
    cell: int
    fold: int

    @staticmethod
    def of(steps: int, width: int) -> "_TextScale":
        columns = width - MARGIN - 1
        return _TextScale(
            steps, cell=max(1, min(6, columns // max(1, steps))), fold=-(-steps // columns) or 1
        )

    @property
    def columns(self) -> int:
        return self.steps * self.cell // self.fold + 1

    def column(self, step: _Ints) -> _Ints:
        """Return the column of the state x_step."""
        return step * self.cell // self.fold

    def stop(self, step: _Ints) -> _Ints:
        """Return one more than the last column of a span that ends at `step`."""
        return -(-step * self.cell // self.fold)

    def ruler(self, width: int) -> str:
        """Return a line with step numbers above their columns, with space between them."""
        apart = (len(str(self.steps)) + 2) * self.fold / self.cell
        stride = next(
            nice * 10**power
            for power in range(20)
            for nice in (1, 2, 5)
            if nice * 10**power >= apart
        )
        text = ""
        for step in range(0, self.steps + 1, stride):
            text = text.ljust(step * self.cell // self.fold) + str(step)
        return text if len(text) <= width else text[: text.rindex(" ")]


def _columns(
    events: Schedule | Iterable[Event | Action],
) -> tuple[Actions, NDArray[np.float64] | None]:
    if isinstance(events, Schedule):
        return events.actions, None
    if isinstance(events, Timeline):
        return events.actions, events.start
    if isinstance(events, Actions):
        return events, None
    items = list(events)
    start = [item.start for item in items if isinstance(item, Event)]
    actions = Actions.of(item.action if isinstance(item, Event) else item for item in items)
    return actions, np.array(start) if start else None


def _draw(actions: Actions, row: _Ints, scale: _TextScale, *, folded: bool) -> _Canvas:
    """Paint in layers, the most important last: marks, or the adjoint if lines are folded."""
    canvas = np.full((int(row[-1]) + 1, scale.columns), ord(" "), np.uint8)
    _paint_stays(canvas, actions, row, scale)
    _paint_spans(canvas, actions, row, scale, op=ADVANCE, body="-", head=">")
    _paint_spans(canvas, actions, row, scale, op=RECORD, body="=", head=">")
    if folded:
        _paint_marks(canvas, actions, row, scale)
    _paint_spans(canvas, actions, row, scale, op=REVERSE, body="~", head="<")
    if not folded:
        _paint_marks(canvas, actions, row, scale)
    return canvas


def _paint_spans(
    canvas: _Canvas,
    actions: Actions,
    row: _Ints,
    scale: _TextScale,
    *,
    op: int,
    body: str,
    head: str,
) -> None:
    rows = actions.op == op
    line = row[rows]
    begin, stop = scale.column(actions.begin[rows]), scale.stop(actions.end[rows])
    count, length = canvas.shape
    canvas[covered(line, begin, stop, lines=count, length=length)] = ord(body)
    if op == REVERSE:
        canvas[line, begin] = ord(head)
    else:
        long = stop - begin > 2
        canvas[line[long], stop[long] - 1] = ord(head)


def _paint_marks(canvas: _Canvas, actions: Actions, row: _Ints, scale: _TextScale) -> None:
    marked = whole(actions) & np.isin(actions.op, (WRITE, READ))
    for kind, (marks, _) in _MARKS.items():
        codes = np.frombuffer((marks + "+").encode(), np.uint8)
        rows = marked & (actions.kind == KIND_CODE[kind])
        column = _mark_column(actions.begin[rows], actions.kind[rows], scale)
        canvas[row[rows], column] = codes[np.minimum(actions.level[rows], len(marks))]


def _paint_stays(canvas: _Canvas, actions: Actions, row: _Ints, scale: _TextScale) -> None:
    stays = whole_stays(actions)
    count, length = canvas.shape
    begin = np.where(stays.written == BEFORE, 0, row[stays.written] + 1)
    end = np.append(row + 1, count)[stays.discarded]
    column = _mark_column(stays.named.begin, stays.named.kind, scale)
    canvas[covered(column, begin, end, lines=length, length=count).T] = ord("|")


def _mark_column(step: _Ints, kind: NDArray[np.uint8], scale: _TextScale) -> _Ints:
    """Return the column of a mark: between two steps, or for a tape inside its step."""
    inside = (kind == _TAPE) & (scale.cell > 1)
    column: _Ints = scale.column(step) + inside
    return column


def _legend(actions: Actions, scale: _TextScale, fold: int, width: int) -> list[str]:
    entries = [counted(scale.steps, "step") + ", " + counted(len(actions), "action")]
    if scale.fold > 1:
        entries.append(f"one column is {scale.fold} steps")
    if fold > 1:
        entries.append(f"one line is {fold} sweeps")
    entries += [
        f"{arrow} {word}"
        for op, arrow, word in (
            (ADVANCE, "-->", "advance"),
            (RECORD, "==>", "record"),
            (REVERSE, "<~~", "reverse"),
        )
        if (actions.op == op).any()
    ]
    for kind, (marks, word) in _MARKS.items():
        rows = whole(actions) & (actions.kind == KIND_CODE[kind])
        levels = np.unique(actions.level[rows]).tolist()
        if levels:
            used = " ".join(dict.fromkeys((marks + "+")[min(k, len(marks))] for k in levels))
            entries.append(f"{used} {word} on level {', '.join(map(str, levels))}")
    if (whole(actions) & (actions.op == WRITE)).any():
        entries.append("| as long as it is stored")
    return _wrapped(entries, width)


def _wrapped(entries: list[str], width: int) -> list[str]:
    wrapped = [entries[0]]
    for entry in entries[1:]:
        longer = f"{wrapped[-1]}   {entry}"
        if len(longer) <= width:
            wrapped[-1] = longer
        else:
            wrapped.append(entry)
    return wrapped
