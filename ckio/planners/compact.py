"""Compact text for schedules of Disk-Revolve and similar planners: the paper's `--concat 1|2|3`.

    1   [WD_0, F_0->5, Revolve(9, 2), RD_0, Revolve(5, 2)]       one call for work in near slots
    2   [WD_0, F_0->15, ..., Revolve(9, 2), RD_0, 1D-Revolve(15, 2)]    one call for each period
    3   (16, 16, 11; 10)                                         only the periods, and the turn

WD_i, RD_i and F_i->j mean the same as in `papertext`. Revolve(l, c) reverses the l + 1 steps that
start at the current state, in c near slots. 1D-Revolve(l, c) reverses the period whose far
checkpoint was just read. The number of further reads of that checkpoint follows from u_f and the
seconds of a read, which the chain and the platform define. The text has no discards: each far
checkpoint is discarded directly after its last read. The levels are those that the planners choose.
With `--one_read_disk` after the list, the periods of form 3 are those of Per-Rev-Revolve. Source:
Herrmann and Pallez, "H-Revolve", ACM TOMS 2020, section 4.3.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import accumulate, pairwise
from typing import Final, Literal, TypeAlias

import numpy as np

from ckio.actions import Advance, Discard, Key, Kind, Read, Write
from ckio.actions.columns import ADVANCE, DISCARD, REVERSE, WRITE, Actions
from ckio.errors import BadInput, NoSchedule
from ckio.planners.base import LevelSlots, alike, level_slots, without_notes
from ckio.planners.blocks import (
    FIRST,
    Builder,
    NearAndFar,
    Periods,
    Piece,
    by_revolve,
    joined,
    revolved,
)
from ckio.planners.literature import by_1d_revolve
from ckio.platform import Platform
from ckio.platform.chain import Chain
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


@dataclass(frozen=True, slots=True)
class Compact:
    """A schedule in one of the three forms.

    Attributes
    ----------
    form : Periods or tuple of Operation
        The periods (form 3), or the operations of the list (forms 1 and 2).
    once : bool
        Whether the far checkpoint of each period of form 3 is read only once.
    """

    form: Periods | tuple[Operation, ...]
    once: bool = False


def expand(compact: Compact, chain: Chain, platform: Platform, /) -> Schedule:
    """Return the schedule that a compact form means on the levels that the planners choose.

    If the chain has no length, its length follows from the form. Raises BadInput for a form that
    means no schedule of this chain; NoSchedule if the levels are too small.
    """
    form = compact.form
    if isinstance(form, Periods):
        steps, writes = form.steps, len(form.lengths)
    elif not any(isinstance(operation, Call) for operation in form):
        raise BadInput(
            "the compact schedule reverses no step, because it has no Revolve: add"
            " Revolve(l, c) for the steps to be reversed"
        )
    else:
        steps = max(end for _, end in _spans(form))
        writes = sum(isinstance(operation, Write) for operation in form)
        back = sum(operation.length + 1 for operation in form if isinstance(operation, Call))
        if back > steps:
            raise BadInput(
                f"the compact schedule reverses {back} steps in total, but has only {steps};"
                " reverse each step once"
            )
    chain = chain.with_steps(steps) if chain.steps is None else chain
    if chain.steps != steps:
        raise BadInput(
            f"the compact schedule has {steps} steps, but the chain has {chain.steps}; give a chain"
            " of the same length, or without a length"
        )
    alike(chain, planner="a compact schedule")
    if steps == 1:
        return Schedule(chain, revolved(1, 1, level=0))
    near, far = _levels(chain, platform, writes)
    place = NearAndFar(slots=near.slots, far=far, advance=chain.advance)
    builder = Builder(near=near.number, far=far.number, slots=near.slots)
    if isinstance(form, Periods):
        cut = by_revolve if compact.once else by_1d_revolve(place)
        return Schedule(chain, builder.all(form, cut))
    return Schedule(chain, joined(list(_pieces(form, builder, place))))


def _levels(chain: Chain, platform: Platform, writes: int) -> tuple[LevelSlots, LevelSlots]:
    """Return the near level, and the first far level with slots for all writes.

    Without writes and without a far level, the near level takes its place.
    """
    with without_notes():  # a planner has reported the levels that are too small
        near, *beyond = level_slots(chain, platform, planner="the compact schedule")
    for far in (*beyond, *([] if writes else [near])):
        if far.slots >= writes:
            return near, far
    raise NoSchedule(
        f"the compact schedule needs {writes} slots of {chain.restart} bytes on a far level, and no"
        f" level after the near one, {platform.levels[near.number].name}, has them: give a far"
        " level more capacity"
    )


def _spans(form: Sequence[Operation]) -> Iterator[tuple[int, int]]:
    """Yield for each operation its first step, and the step after its last one."""
    at: int | None = 0
    for operation, before in zip(form, (None, *form), strict=False):
        match operation:
            case Write(key) | Read(key):
                at = key.step
                yield at, at + 1
            case Advance(begin, end):
                yield begin, end
                at = end
            case Call(name, length):
                if at is None or (name == "1D-Revolve" and not isinstance(before, Read)):
                    earlier = "RD_i" if name == "1D-Revolve" else "F_i->j or RD_i"
                    raise BadInput(f"{operation} has no first step: put {earlier} before it")
                yield at, at + length + 1
                at = None


def _pieces(form: Sequence[Operation], builder: Builder, place: NearAndFar) -> Iterator[Piece]:
    """Yield the actions of each operation; a far checkpoint is discarded after its last read."""
    last = {
        operation.key.step: number
        for number, operation in enumerate(form)
        if isinstance(operation, Read)
    }
    expansion = cache(partial(_expansion, builder=builder, place=place))
    for number, (operation, (begin, end)) in enumerate(zip(form, _spans(form), strict=True)):
        match operation:
            case Write():
                yield Actions.of([Write(FIRST, builder.far)]), begin
            case Read(key):
                if form[number + 1 : number + 2] and _is_period(form[number + 1]):
                    continue  # the next operation reads the checkpoint itself
                discard = [Discard(FIRST, builder.far)] if last[key.step] == number else []
                yield Actions.of([Read(FIRST, builder.far), *discard]), begin
            case Advance():
                yield Actions.of([Advance(0, end - begin)]), begin
            case Call():
                yield expansion(operation), begin


def _is_period(operation: Operation) -> bool:
    return isinstance(operation, Call) and operation.name == "1D-Revolve"


def _expansion(call: Call, *, builder: Builder, place: NearAndFar) -> Actions:
    if call.slots > place.slots or call.slots < 1 <= call.length:
        raise BadInput(
            f"{call} asks for {call.slots} near slots; this platform has {place.slots}: use from 1"
            f" to {place.slots}"
        )
    there = replace(builder, slots=call.slots)
    if call.name == "Revolve":
        return there.revolve(call.length + 1)
    return there.period(by_1d_revolve(replace(place, slots=call.slots))(call.length + 1))


def proposals(schedule: Schedule, platform: Platform, concat: int) -> Iterator[Compact]:
    """Yield compact forms that may mean the schedule; `expand` must show whether they do."""
    steps, actions = schedule.chain.length, schedule.actions
    written = list(dict.fromkeys(actions.level[actions.op == WRITE].tolist()))
    restart = schedule.chain.restart
    near = next((n for n, it in enumerate(platform.levels) if it.slots(restart, 1)), 0)
    slots = platform.levels[near].slots(restart, steps - 1)
    far = next((number for number in written if number != near), None)
    operations = tuple(_operations(actions, far, slots))
    periods = _periods(operations, steps)
    match concat:
        case 1:
            yield Compact(operations)
        case 2:
            yield Compact(tuple(_by_period(operations, periods, slots)))
        case _:
            yield Compact(periods)
            yield Compact(periods, once=True)


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


def _text(compact: Compact) -> str:
    form = compact.form
    if isinstance(form, Periods):
        text = f"Sequence: {form}\n"
    else:
        words = [_word(operation) for operation in form]
        lines = (", ".join(words[i : i + _PER_LINE]) for i in range(0, len(words), _PER_LINE))
        text = "Sequence: [" + ",\n".join(lines) + "]\n"
    return text + ("Options: --one_read_disk\n" if compact.once else "")


def _word(operation: Operation) -> str:
    match operation:
        case Advance(begin, end):
            return f"F_{begin}" if end == begin + 1 else f"F_{begin}->{end - 1}"
        case Call():
            return str(operation)
        case _:
            return f"{type(operation).__name__[0]}D_{operation.key.step}"


def dumps(schedule: Schedule, platform: Platform, /, *, concat: int) -> str:
    """Return a schedule as text in form 1, 2 or 3, given by `concat`.

    In form 2, a period whose far checkpoint is read once is written as Revolve, because 1D-Revolve
    would mean the same actions. Raises BadInput for a schedule that the form cannot express.
    """
    if concat not in (1, 2, 3):
        raise BadInput(f"concat = {concat!r}; it must be 1, 2 or 3")
    for compact in proposals(schedule, platform, concat):
        with suppress(BadInput):  # this form means no schedule, so that it cannot mean this one
            if expand(compact, schedule.chain, platform) == schedule:
                return _text(compact)
    raise BadInput(
        f"concat {concat} cannot express this schedule: it can express those of disk-revolve,"
        " 1d-revolve, periodic-disk-revolve and per-rev-revolve, and concat 1 also those of"
        " two-level and revolve: use the native text for others"
    )
