"""Read compact schedules of Herrmann & Pallez (2020), as `ckio.planners.compact` writes them."""

import re
from typing import Final, Literal

from ckio.actions import Advance, Key, Kind, Read, Write
from ckio.errors import BadInput
from ckio.planners.blocks import Periods
from ckio.planners.compact import OUTER, Call, Compact, Operation, expand
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule

_MOST_DIGITS: Final = 18
_WORD: Final = re.compile(r"(?:1D-)?Revolve\s*\([^)]*\)?|[^\s,]+")
_CALL: Final = re.compile(r"(1D-Revolve|Revolve)\s*\(\s*(\d{1,18})\s*,\s*(\d{1,18})\s*\)", re.ASCII)
_ACTION: Final = re.compile(r"F_(\d{1,18})(?:->(\d{1,18}))?|([WR])D_(\d{1,18})", re.ASCII)
_PERIODS: Final = re.compile(r"Sequence:\s*\(([\d\s,]*);\s*(\d+)\s*\)", re.ASCII)
_LIST: Final = re.compile(r"Sequence:\s*\[([^\[\]]*)\]")


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
            return Compact(Periods(lengths, _steps(found[2])), once=once)
        except BadInput as error:
            raise BadInput(f"{source}: {error}") from None
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
