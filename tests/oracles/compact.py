"""Compact text for schedules of Disk-Revolve and similar planners: the paper's `--concat 1|2|3`.

    1   [WD_0, F_0->5, Revolve(9, 2), RD_0, Revolve(5, 2)]       one call for work in near slots
    2   [WD_0, F_0->15, ..., Revolve(9, 2), RD_0, 1D-Revolve(15, 2)]    one call for each period
    3   (16, 16, 11; 10)                                         only the periods, and the turn

WD_i, RD_i and F_i->j mean the same as in `notation`. Revolve(l, c) reverses the l + 1 steps that
start at the current state, in c near slots. 1D-Revolve(l, c) reverses the period whose far
checkpoint was just read. The number of further reads of that checkpoint follows from u_f and the
seconds of a read, which the chain and the platform define. The text has no discards: each far
checkpoint is discarded directly after its last read. The levels are those that the planners choose.
With `--one_read_disk` after the list, the periods of form 3 are those of Per-Rev-Revolve. Source:
Herrmann and Pallez, "H-Revolve", ACM TOMS 2020, section 4.3.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, Literal, TypeAlias

import numpy as np

from ckio.actions import Advance, Key, Kind, Read, Write
from ckio.actions.columns import ADVANCE, DISCARD, REVERSE, WRITE, Actions
from ckio.errors import BadInput
from ckio.planners.blocks import Periods
from ckio.platform import Platform
from ckio.schedule import Schedule

OUTER: Final = 1
"""The level of the writes and reads in an `Operation`; it means the far level of any platform."""


@dataclass(frozen=True, slots=True)
class Call:
    """Revolve or 1D-Revolve of `length` + 1 steps, with `slots` near slots."""

    name: Literal["Revolve", "1D-Revolve"]
    length: int
    slots: int

    def __str__(self) -> str:
        return f"{self.name}({self.length}, {self.slots})"


Operation: TypeAlias = Write | Read | Advance | Call
"""An operation of forms 1 and 2; the level of a write or read is 1, for the far level."""


_READ_ONCE: Final = ("per-rev-revolve", "two-level")
"""The planners that read each far checkpoint once."""

_PLANNERS: Final = (
    "revolve",
    "disk-revolve",
    "1d-revolve",
    "periodic-disk-revolve",
    *_READ_ONCE,
)
"""The planners whose schedules have all three forms."""


def dumps(schedule: Schedule, platform: Platform, /, *, planner: str, concat: int) -> str:
    """Return the schedule of this planner as text in form 1, 2 or 3, given by `concat`.

    In form 2, a period whose far checkpoint is read once is written as Revolve, because 1D-Revolve
    would mean the same actions. Raises BadInput for a planner whose schedules have no such form.
    """
    if concat not in (1, 2, 3):
        raise BadInput(f"concat = {concat!r}; it must be 1, 2 or 3")
    if planner not in _PLANNERS:
        raise BadInput(
            f"concat {concat} cannot express a schedule of {planner}, only those of"
            f" {', '.join(_PLANNERS)}: name one of these planners, or leave concat out"
        )
    steps, actions = schedule.chain.length, schedule.actions
    restart = schedule.chain.restart
    near = next((n for n, level in enumerate(platform.levels) if level.slots(restart, 1)), 0)
    slots = platform.levels[near].slots(restart, steps - 1)
    written = actions.level[actions.op == WRITE]
    far = next(iter(written[written != near].tolist()), None)
    operations = tuple(_operations(actions, far, slots))
    periods = _periods(operations, steps)
    if concat == 3:
        once = "Options: --one_read_disk\n" * (planner in _READ_ONCE and bool(periods.lengths))
        return f"Sequence: {periods_text(periods)}\n{once}"
    return _text(operations if concat == 1 else [*_by_period(operations, periods, slots)])


def periods_text(periods: Periods) -> str:
    """Return the periods as the paper writes them: `(16, 16, 11; 10)`."""
    return f"({', '.join(map(str, periods.lengths))}; {periods.turn})"


def _operations(actions: Actions, far: int | None, slots: int) -> Iterator[Operation]:
    """Yield form 1: accesses of the far level, the advances after them, and Revolve otherwise."""
    op = actions.op
    back = np.concatenate(([0], np.cumsum(op == REVERSE)))
    there = (op >= WRITE) & (actions.level == (-1 if far is None else far))
    accesses = np.flatnonzero(there & (op != DISCARD)).tolist()
    if not accesses:
        yield Call("Revolve", int(back[-1]) - 1, slots)
    for number, end in pairwise([*accesses, len(op)]):
        access = Write if op[number] == WRITE else Read
        yield access(Key(Kind.RESTART, int(actions.begin[number])), OUTER)
        after = number + 1
        if after < end and op[after] == DISCARD:
            after += 1
        if after < end and op[after] == ADVANCE:
            yield Advance(int(actions.begin[after]), int(actions.end[after]))
            after += 1
        if length := int(back[end] - back[after]):
            yield Call("Revolve", length - 1, slots)


def _periods(operations: Sequence[Operation], steps: int) -> Periods:
    """Return form 3: the steps that the forward sweep advances after each write."""
    lengths = tuple(
        advance.end - advance.begin
        for write, advance in pairwise(operations)
        if isinstance(write, Write) and isinstance(advance, Advance)
    )
    return Periods(lengths, steps - sum(lengths))


def _by_period(
    operations: Sequence[Operation], periods: Periods, slots: int
) -> Iterator[Operation]:
    """Yield form 2: a period whose checkpoint is read several times is one call after its read."""
    reads = Counter(read.key.step for read in operations if isinstance(read, Read))
    length = dict(zip(accumulate((0, *periods.lengths)), periods.lengths, strict=False))
    within = None
    for operation in operations:
        if isinstance(operation, Read) and operation.key.step != within:
            step = operation.key.step
            yield operation
            within = step if reads[step] > 1 else None
            if within is not None:
                yield Call("1D-Revolve", length.get(step, 1) - 1, slots)
        elif within is None:
            yield operation


_PER_LINE: Final = 6


def _text(operations: Sequence[Operation]) -> str:
    words = [_word(operation) for operation in operations]
    lines = (", ".join(words[i : i + _PER_LINE]) for i in range(0, len(words), _PER_LINE))
    return "Sequence: [" + ",\n".join(lines) + "]\n"


def _word(operation: Operation) -> str:
    match operation:
        case Advance(begin, end):
            return f"F_{begin}" if end == begin + 1 else f"F_{begin}->{end - 1}"
        case Call():
            return str(operation)
        case _:
            return f"{type(operation).__name__[0]}D_{operation.key.step}"
