"""Read compact schedules of Herrmann & Pallez (2020), as `oracles.compact` writes them.

A compact form means a schedule on the levels that the planners choose: `expand` returns it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate, pairwise
from typing import Final, Literal

from oracles.compact import OUTER, Call, Operation, periods_text

from ckio.actions import Advance, Discard, Key, Kind, Read, Write
from ckio.actions.columns import Actions
from ckio.errors import BadInput, NoSchedule
from ckio.planners.base import LevelSlots, alike, level_slots, without_notes
from ckio.planners.blocks import Periods, period, revolved
from ckio.planners.draft import Draft
from ckio.planners.spacing import cut_1d
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule

FIRST: Final = Key(Kind.RESTART, 0)

_MOST_DIGITS: Final = 18
_WORD: Final = re.compile(r"(?:1D-)?Revolve\s*\([^)]*\)?|[^\s,]+")
_CALL: Final = re.compile(r"(1D-Revolve|Revolve)\s*\(\s*(\d{1,18})\s*,\s*(\d{1,18})\s*\)", re.ASCII)
_ACTION: Final = re.compile(r"F_(\d{1,18})(?:->(\d{1,18}))?|([WR])D_(\d{1,18})", re.ASCII)
_PERIODS: Final = re.compile(r"Sequence:\s*\(([\d\s,]*);\s*(\d+)\s*\)", re.ASCII)
_LIST: Final = re.compile(r"Sequence:\s*\[([^\[\]]*)\]")


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


def is_compact(text: str, /) -> bool:
    """Return whether a text is in one of the three forms, and not a list of single operations."""
    text = _without_comments(text)
    found = _LIST.search(text)
    return _PERIODS.search(text) is not None or (found is not None and "Revolve" in found[1])


def parse(text: str, /, *, source: str = "schedule") -> Compact:
    """Parse a text in one of the three forms.

    Other text around it is ignored, and so are comments after `#`. Raises BadInput, with `source`
    and the line, if the text is in none of the forms.
    """
    text = _without_comments(text)
    once = "--one_read_disk" in text
    if found := _PERIODS.search(text):
        try:
            lengths = tuple(map(_steps, re.findall(r"\d+", found[1])))
            periods = Periods(lengths, _steps(found[2]))
        except BadInput as error:
            raise BadInput(f"{source}: {error}") from None
        if min((periods.turn, *lengths)) < 1:
            raise BadInput(f"{source}: {periods_text(periods)} has a period without a step")
        return Compact(periods, once=once)
    if not (found := _LIST.search(text)):
        raise BadInput(
            f"{source}: no compact schedule is in the text: write one as `Sequence: [WD_0, ...,"
            " Revolve(9, 2), ...]` or as `Sequence: (16, 16, 11; 10)`"
        )
    operations: list[Operation] = []
    for word in _WORD.finditer(found[1]):
        try:
            operations.append(_operation(word[0]))
        except BadInput as error:
            line = 1 + text.count("\n", 0, found.start(1) + word.start())
            raise BadInput(f"{source}, line {line}: {word[0][:80]!r}: {error}") from None
    return Compact(tuple(operations), once=once)


def _without_comments(text: str) -> str:
    return re.sub(r"#.*", "", text)


def _steps(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise BadInput(
            f"{digits[:_MOST_DIGITS]}... is too large a number of steps; it may have at most"
            f" {_MOST_DIGITS} digits"
        )
    return int(digits)


def _operation(word: str) -> Operation:
    if call := _CALL.fullmatch(word):
        name: Literal["Revolve", "1D-Revolve"] = "Revolve" if call[1] == "Revolve" else "1D-Revolve"
        return Call(name, int(call[2]), int(call[3]))
    match = _ACTION.fullmatch(word)
    if match is None:
        raise BadInput(
            "this is no operation of a compact schedule; use WD_i, RD_i, F_i, F_i->j,"
            " Revolve(l, c) and 1D-Revolve(l, c)"
        )
    if match[1]:
        return Advance(int(match[1]), int(match[2] or match[1]) + 1)
    key = Key(Kind.RESTART, int(match[4]))
    return Write(key, OUTER) if match[3] == "W" else Read(key, OUTER)


def loads(text: str, chain: Chain, platform: Platform, /, *, source: str = "schedule") -> Schedule:
    """Return the schedule that a compact text means on this platform.

    If the chain has no length, its length follows from the text. Raises BadInput, with `source`,
    for a text that means no schedule of this chain; NoSchedule if the levels are too small.
    """
    compact = parse(text, source=source)
    try:
        return expand(compact, chain, platform)
    except BadInput as error:
        error.args = (f"{source}: {error}",)
        raise


def expand(compact: Compact, chain: Chain, platform: Platform, /) -> Schedule:
    """Return the schedule that a compact form means on the levels that the planners choose.

    If the chain has no length, its length follows from the form. Raises BadInput for a form that
    means no schedule of this chain; NoSchedule if the levels are too small.
    """
    form = compact.form
    if isinstance(form, Periods):
        steps, writes = sum(form.lengths) + form.turn, len(form.lengths)
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
    if isinstance(form, Periods):
        form = tuple(_by_period(form, near.slots, "Revolve" if compact.once else "1D-Revolve"))
    draft = Draft()
    for actions, begin in _pieces(form, chain, near, far):
        draft.lay(actions, (begin,))
    return Schedule(chain, draft.actions())


def _by_period(
    form: Periods, slots: int, name: Literal["Revolve", "1D-Revolve"]
) -> Iterator[Operation]:
    """Yield form 2 of a schedule in form 3."""
    begins = list(accumulate(form.lengths, initial=0))
    for begin, end in pairwise(begins):
        yield Write(Key(Kind.RESTART, begin), OUTER)
        yield Advance(begin, end)
    yield Call("Revolve", form.turn - 1, slots)
    for begin, end in reversed(list(pairwise(begins))):
        yield Read(Key(Kind.RESTART, begin), OUTER)
        yield Call(name, end - begin - 1, slots)


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


def _pieces(
    form: Sequence[Operation], chain: Chain, near: LevelSlots, far: LevelSlots
) -> Iterator[tuple[Actions, int]]:
    """Yield the actions of each operation; a far checkpoint is discarded after its last read."""
    last = {
        operation.key.step: number
        for number, operation in enumerate(form)
        if isinstance(operation, Read)
    }
    expansion = cache(partial(_expansion, advance=chain.advance, near=near, far=far))
    for number, (operation, (begin, end)) in enumerate(zip(form, _spans(form), strict=True)):
        match operation:
            case Write():
                yield Actions.of([Write(FIRST, far.number)]), begin
            case Read(key):
                if form[number + 1 : number + 2] and _is_period(form[number + 1]):
                    continue  # the next operation reads the checkpoint itself
                discard = [Discard(FIRST, far.number)] if last[key.step] == number else []
                yield Actions.of([Read(FIRST, far.number), *discard]), begin
            case Advance():
                yield Actions.of([Advance(0, end - begin)]), begin
            case Call():
                yield expansion(operation), begin


def _is_period(operation: Operation) -> bool:
    return isinstance(operation, Call) and operation.name == "1D-Revolve"


def _expansion(call: Call, *, advance: float, near: LevelSlots, far: LevelSlots) -> Actions:
    if call.slots > near.slots or call.slots < 1 <= call.length:
        raise BadInput(
            f"{call} asks for {call.slots} near slots; this platform has {near.slots}: use from 1"
            f" to {near.slots}"
        )
    steps = call.length + 1
    if call.name == "Revolve":
        return revolved(steps, call.slots, level=near.number)
    return period(cut_1d(steps, call.slots, advance, far.read), call.slots, near.number, far.number)
