"""Schedules of Disk-Revolve and its relatives written as calls: the paper's `--concat 1|2|3`.

    1   [WD_0, F_0->5, Revolve(9, 2), RD_0, Revolve(5, 2)]       all that happens in near slots
    2   [WD_0, F_0->15, ..., Revolve(9, 2), RD_0, 1D-Revolve(15, 2)]      and whole periods
    3   (16, 16, 11; 10)                                         the periods, and the turn

WD_i, RD_i and F_i->j are as in `papertext`. Revolve(l, c) reverses the l + 1 steps from where the
state is, in c near slots; 1D-Revolve(l, c) reverses the period whose far checkpoint was just read.
How often that is read follows from u_f and the seconds to read it: chain and platform tell. The
text has no discards; each far checkpoint is discarded directly after its last read. Beside the list
there may be the names of the levels, `Memory: ram` and `Disk: nvme` (where they are missing, they
are found as the planners find them), and `--one_read_disk`, which makes the periods of form 3 those
of Per-Rev-Revolve. This is section 4.3 of Herrmann and Pallez, "H-Revolve", ACM TOMS 2020.
"""

import re
from contextlib import suppress
from typing import Final, Literal

from ckio.actions import Advance, Key, Kind, Read, Write
from ckio.errors import BadInput
from ckio.planners.blocks import Periods
from ckio.planners.calls import FAR, Call, Compact, Operation, expand, proposals
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule

_PER_LINE: Final = 6
_MOST_DIGITS: Final = 18
_WORD: Final = re.compile(r"(?:1D-)?Revolve\s*\([^)]*\)?|[^\s,]+")
_CALL: Final = re.compile(r"(1D-Revolve|Revolve)\s*\(\s*(\d{1,18})\s*,\s*(\d{1,18})\s*\)", re.ASCII)
_ACTION: Final = re.compile(r"F_(\d{1,18})(?:->(\d{1,18}))?|([WR])D_(\d{1,18})", re.ASCII)
_PERIODS: Final = re.compile(r"Sequence:\s*\(([\d\s,]*);\s*(\d+)\s*\)", re.ASCII)
_LIST: Final = re.compile(r"Sequence:\s*\[([^\[\]]*)\]")
_NAME: Final = r"^{}:[ \t]*([A-Za-z0-9_.-]+)[ \t]*$"


def is_compact(text: str, /) -> bool:
    """Whether a text is in one of the three forms, rather than a list of single operations."""
    text = _without_comments(text)
    found = _LIST.search(text)
    return _PERIODS.search(text) is not None or (found is not None and "Revolve" in found[1])


def parse(text: str, /, *, source: str = "schedule") -> Compact:
    """Read one of the three forms; what stands around it is passed over, as are comments after `#`.

    Raises BadInput with `source` and the line.
    """
    text = _without_comments(text)
    near, far = (re.search(_NAME.format(place), text, re.MULTILINE) for place in ("Memory", "Disk"))
    once = "--one_read_disk" in text
    names = {"near": near and near[1], "far": far and far[1]}
    if found := _PERIODS.search(text):
        try:
            lengths = tuple(map(_steps, re.findall(r"\d+", found[1])))
            return Compact(Periods(lengths, _steps(found[2])), **names, once=once)
        except BadInput as error:
            raise BadInput(f"{source}: {error}") from None
    if not (found := _LIST.search(text)):
        raise BadInput(
            f"{source}: no compact schedule is in it, neither `Sequence: [WD_0, ..., Revolve(9, 2),"
            " ...]` nor `Sequence: (16, 16, 11; 10)`"
        )
    operations: list[Operation] = []
    for word in _WORD.finditer(found[1]):
        try:
            operations.append(_operation(word[0]))
        except BadInput as error:
            line = 1 + text.count("\n", 0, found.start(1) + word.start())
            raise BadInput(f"{source}, line {line}: {word[0][:80]!r}: {error}") from None
    return Compact(tuple(operations), **names, once=once)


def _without_comments(text: str) -> str:
    return re.sub(r"#.*", "", text)


def _steps(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise BadInput(f"{digits[:_MOST_DIGITS]}... is more steps than any chain has")
    return int(digits)


def _operation(word: str) -> Operation:
    if call := _CALL.fullmatch(word):
        name: Literal["Revolve", "1D-Revolve"] = "Revolve" if call[1] == "Revolve" else "1D-Revolve"
        return Call(name, int(call[2]), int(call[3]))
    match = _ACTION.fullmatch(word)
    if match is None:
        raise BadInput(
            "no operation of a compact schedule; they are WD_i, RD_i, F_i, F_i->j, Revolve(l, c)"
            " and 1D-Revolve(l, c)"
        )
    if match[1]:
        return Advance(int(match[1]), int(match[2] or match[1]) + 1)
    key = Key(Kind.RESTART, int(match[4]))
    return Write(key, FAR) if match[3] == "W" else Read(key, FAR)


def _text(compact: Compact) -> str:
    form = compact.form
    if isinstance(form, Periods):
        text = f"Sequence: {form}\n"
    else:
        words = [_word(operation) for operation in form]
        lines = (", ".join(words[i : i + _PER_LINE]) for i in range(0, len(words), _PER_LINE))
        text = "Sequence: [" + ",\n".join(lines) + "]\n"
    names = (("Memory", compact.near), ("Disk", compact.far))
    text += "".join(f"{place}: {name}\n" for place, name in names if name is not None)
    return text + ("Options: --one_read_disk\n" if compact.once else "")


def _word(operation: Operation) -> str:
    match operation:
        case Advance(begin, end):
            return f"F_{begin}" if end == begin + 1 else f"F_{begin}->{end - 1}"
        case Call():
            return str(operation)
        case _:
            return f"{type(operation).__name__[0]}D_{operation.key.step}"


def loads(text: str, chain: Chain, platform: Platform, /, *, source: str = "schedule") -> Schedule:
    """The schedule that a compact text stands for on this platform.

    A chain without a length gets the one that the text implies. Raises BadInput with `source`, and
    NoSchedule where the levels are too small.
    """
    compact = parse(text, source=source)
    try:
        return expand(compact, chain, platform)
    except BadInput as error:
        error.args = (f"{source}: {error}",)
        raise


def dumps(schedule: Schedule, platform: Platform, /, *, concat: int) -> str:
    """A schedule in form 1, 2 or 3; `loads` of it with the same chain and platform gives it again.

    A period whose far checkpoint is read once is written as Revolve in form 2, as that is what
    1D-Revolve comes to. Raises BadInput for a schedule that the form cannot say.
    """
    if concat not in (1, 2, 3):
        raise BadInput(f"concat = {concat!r}; it must be 1, 2 or 3")
    for compact in proposals(schedule, platform, concat):
        with suppress(BadInput):  # it means nothing, so it does not mean this schedule
            if expand(compact, schedule.chain, platform) == schedule:
                return _text(compact)
    raise BadInput(
        f"concat {concat} cannot say this schedule: it says those of disk-revolve, 1d-revolve,"
        " periodic-disk-revolve and per-rev-revolve, and with 1, of two-level and revolve too"
    )
