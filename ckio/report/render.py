"""A schedule as a picture in plain text: steps across, actions down.

    action  0     1     2     3     4
         0  0---------->1---->=====>        write x_0 to level 0, x_2 to level 1
         5  |           |     <~~~~~
         6  |           1=====>             read x_2; afterwards it is discarded
         9  |           <~~~~~

One line is one sweep, forward or adjoint, with the checkpoints that it writes and reads. The column
of a checkpoint continues below it while the checkpoint is stored.
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
from ckio.report.pictures.lines import Places, covered
from ckio.schedule import Schedule
from ckio.schedule.occupancy import BEFORE, Lifetimes
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
SCATTERED: Final = "*"
"""The mark of variables that are written, or read, at one step on several levels."""


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
    places = Places.of(actions)
    steps = np.maximum(actions.end, places.step + (actions.kind == _TAPE)).max()
    scale = _TextScale.of(int(steps), width)
    fold = -(-(int(places.line[-1]) + 1) // LINES)
    row = places.line // fold
    canvas = _draw(actions, places, row, scale, folded=fold > 1)

    first = np.flatnonzero(np.diff(row, prepend=-1))
    labels = (
        [str(place) for place in first] if start is None else [f"{start[i]:.4g}" for i in first]
    )
    lines = [
        f"{label:>{MARGIN - 2}}  {line.tobytes().decode('ascii')}".rstrip()
        for label, line in zip(labels, canvas, strict=True)
    ]
    what = "action" if start is None else "seconds"
    return "\n".join(
        [
            *_legend(actions, places, scale, fold, width),
            "",
            f"{what:>{MARGIN - 2}}  {scale.ruler(width - MARGIN)}".rstrip(),
            *lines,
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


def _draw(
    actions: Actions, places: Places, row: _Ints, scale: _TextScale, *, folded: bool
) -> _Canvas:
    """Paint in layers, the most important last: marks, or the adjoint if lines are folded."""
    canvas = np.full((int(row[-1]) + 1, scale.columns), ord(" "), np.uint8)
    _paint_stays(canvas, actions, places, row, scale)
    _paint_spans(canvas, actions, row, scale, op=ADVANCE, body="-", head=">")
    _paint_spans(canvas, actions, row, scale, op=RECORD, body="=", head=">")
    if folded:
        _paint_marks(canvas, actions, places, row, scale)
    _paint_spans(canvas, actions, row, scale, op=REVERSE, body="~", head="<")
    if not folded:
        _paint_marks(canvas, actions, places, row, scale)
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
    lines, length = canvas.shape
    canvas[covered(line, begin, stop, lines=lines, length=length)] = ord(body)
    if op == REVERSE:
        canvas[line, begin] = ord(head)
    else:
        long = stop - begin > 2
        canvas[line[long], stop[long] - 1] = ord(head)


def _paint_marks(
    canvas: _Canvas, actions: Actions, places: Places, row: _Ints, scale: _TextScale
) -> None:
    scattered = _scattered(actions, places)
    for kind, (marks, _) in _MARKS.items():
        codes = np.frombuffer((marks + "+").encode(), np.uint8)
        rows = np.isin(actions.op, (WRITE, READ)) & (actions.kind == KIND_CODE[kind])
        column = _mark_column(places.step[rows], actions.kind[rows], scale)
        code = codes[np.minimum(actions.level[rows], len(marks))]
        canvas[row[rows], column] = np.where(scattered[rows], ord(SCATTERED), code)


def _scattered(actions: Actions, places: Places) -> NDArray[np.bool_]:
    """Return whether the mark of each action stands for variables on several levels."""
    several = np.zeros(len(actions), np.bool_)
    several[places.mark[actions.level != actions.level[places.mark]]] = True
    return several[places.mark]


def _paint_stays(
    canvas: _Canvas, actions: Actions, places: Places, row: _Ints, scale: _TextScale
) -> None:
    stays = Lifetimes.of(actions)
    lines, length = canvas.shape
    begin = np.where(stays.written == BEFORE, 0, row[stays.written] + 1)
    end = np.append(row + 1, lines)[stays.discarded]
    column = _mark_column(places.of_stays(stays), stays.named.kind, scale)
    canvas[covered(column, begin, end, lines=length, length=lines).T] = ord("|")


def _mark_column(step: _Ints, kind: NDArray[np.uint8], scale: _TextScale) -> _Ints:
    """Return the column of a mark: between two steps, or for a tape inside its step."""
    inside = (kind == _TAPE) & (scale.cell > 1)
    column: _Ints = scale.column(step) + inside
    return column


def _legend(
    actions: Actions, places: Places, scale: _TextScale, fold: int, width: int
) -> list[str]:
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
        rows = (actions.op >= WRITE) & (actions.kind == KIND_CODE[kind])
        levels = np.unique(actions.level[rows]).tolist()
        if levels:
            used = " ".join(dict.fromkeys((marks + "+")[min(k, len(marks))] for k in levels))
            entries.append(f"{used} {word} on level {', '.join(map(str, levels))}")
    if _scattered(actions, places).any():
        entries.append(f"{SCATTERED} variables on several levels")
    if (actions.op == WRITE).any():
        entries.append("| as long as it is stored")
    return _wrapped(entries, width)


def _wrapped(entries: list[str], width: int) -> list[str]:
    lines = [entries[0]]
    for entry in entries[1:]:
        longer = f"{lines[-1]}   {entry}"
        if len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(entry)
    return lines
