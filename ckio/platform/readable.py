"""Readable forms of values: tables, times, sizes and counts, and texts that people write.

Names come from files and models. Therefore characters that would control a terminal are escaped.
"""

import difflib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from ckio.errors import BadInput

MOST_BYTES: Final = 1 << 26
"""The most bytes of a text that is read: a table of the costs of a million steps has some 50 MB."""


def sheet_text(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Iterable[str] = (),
    /,
) -> str:
    """Return a title, a table with a left-aligned first column, and lines of notes below it."""
    table = aligned(header, rows) if rows else []
    return "\n".join([shown(title), *table, *map(shown, notes)])


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], /) -> list[str]:
    r"""Return the lines of a table; the first column is left-aligned, the others right-aligned.

    >>> print("\n".join(aligned(["level", "writes"], [["ram", "9"], ["nvme", "10"]])))
    level  writes
    -------------
    ram         9
    nvme       10
    """
    cells = [[shown(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    first, *lines = (
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    )
    return [first, "-" * (sum(widths) + 2 * (len(widths) - 1)), *lines]


def shown(text: object, /, *, keep: str = "") -> str:
    r"""Return a text that can be printed safely: a name in a file may contain control characters.

    Every character that is not printable, except those in `keep`, is replaced by its escape.

    >>> shown("x_0.a\x1b[2J\n")
    'x_0.a\\x1b[2J\\n'
    """
    return "".join(
        letter
        if letter.isprintable() or letter in keep
        else letter.encode("unicode_escape").decode()
        for letter in str(text)
    )


def time_unit(seconds: float, /) -> tuple[float, str]:
    """Return a suitable unit for a time: its length in seconds, and its symbol.

    >>> time_unit(0.02)
    (0.001, 'ms')
    """
    for unit, sign in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= unit:
            return unit, sign
    return (1e-9, "ns") if seconds else (1.0, "s")


def seconds_text(seconds: float, /) -> str:
    """Return a time with four digits and a unit, for example 1.25 s or 310 ms.

    >>> seconds_text(1.25), seconds_text(0.31), seconds_text(34567.8), seconds_text(0.0)
    ('1.25 s', '310 ms', '34568 s', '0 s')
    """
    unit, sign = time_unit(seconds)
    value = seconds / unit
    return f"{value:.0f} {sign}" if value >= 1000 else f"{value:.4g} {sign}"


def age_text(seconds: float, /) -> str:
    """Return a long time span in one unit.

    >>> age_text(0.2), age_text(90), age_text(7200), age_text(200000), age_text(1e6)
    ('0 s', '90 s', '120 min', '56 h', '12 days')
    """
    for unit, name, most in ((1, "s", 120), (60, "min", 180), (3600, "h", 96)):
        if seconds < most * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86400:.0f} days"


def bytes_text(nbytes: int, /) -> str:
    """Return a number of bytes with three digits and a unit.

    >>> bytes_text(640), bytes_text(1536), bytes_text(1023 << 20)
    ('640 B', '1.5 KiB', '1023 MiB')
    """
    power = min(5, max(0, nbytes.bit_length() - 1) // 10)
    value = nbytes / 1024**power
    digits = 3 if value < 1000 else 4
    return f"{value:.{digits}g} {('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[power]}"


def counted(count: int, what: str, /) -> str:
    """Return a count with its noun in the singular or plural.

    >>> counted(1, "checkpoint"), counted(2, "checkpoint")
    ('1 checkpoint', '2 checkpoints')
    """
    return f"{count} {what}{'' if count == 1 else 's'}"


def json_line(data: Mapping[str, Any], /) -> str:
    """Return an object as one line of JSON. Infinity and NaN, which JSON lacks, become null.

    >>> json_line({"seconds": 1.5, "bound": float("inf")})
    '{"seconds": 1.5, "bound": null}'
    """
    return json.dumps(_finite(data), allow_nan=False)


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {name: _finite(entry) for name, entry in value.items()}
        case list() | tuple():
            return [_finite(entry) for entry in value]
        case _:
            return value


def typed(text: str, /) -> str | int | float | bool:
    """Return the bool, int or float that a text represents, or else the text itself."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


_SECONDS: Final = {"d": 86400, "h": 3600, "m": 60, "s": 1}
"""Seconds in a unit of time."""


_ON_COMMAND_LINE: Final = ContextVar("on_command_line", default=False)
"""Whether a command reports errors, and not a Python program."""

_FLAGS: Final = frozenset(
    {"allow_nan", "allow_rounding", "by_variable", "check", "guarded", "resume"}
)
"""The options without a value on the command line."""

_UNLIKE: Final = {
    "capacities": "--capacity",
    "check": "--check-gradient",
    "directory": "--into",
    "settings": "--set",
}
"""The options whose name on the command line is not that of the keyword."""


@contextmanager
def on_command_line() -> Iterator[None]:
    """Let errors within this context name options as they are typed in a shell."""
    before = _ON_COMMAND_LINE.set(True)
    try:
        yield
    finally:
        _ON_COMMAND_LINE.reset(before)


def option(keyword: str, value: object = None, /) -> str:
    """Return how the reader of an error gives an option: as a keyword, or on the command line.

    >>> option("steps"), option("by_variable"), option("overlap", "auto")
    ('steps', 'by_variable=True', "overlap='auto'")
    >>> with on_command_line():
    ...     option("steps"), option("by_variable"), option("overlap", "auto")
    ('--steps', '--by-variable', '--overlap auto')
    """
    if _ON_COMMAND_LINE.get():
        name = _UNLIKE.get(keyword, f"--{keyword.replace('_', '-')}")
        return name if value is None else f"{name} {value}"
    if value is not None:
        return f"{keyword}={value!r}"
    return f"{keyword}=True" if keyword in _FLAGS else keyword


def did_you_mean(name: str, known: Iterable[str], /, *, rule: str = "", cutoff: float = 0.5) -> str:
    """Return the remedy for an unknown name: the most similar known name as a question.

    If none is similar, return `rule`, or else the list of known names. `cutoff` is the minimum
    similarity, from 0 to 1.

    >>> did_you_mean("hdf", ["ram", "hdf5"]), did_you_mean("x", ["ram", "hdf5"])
    ('did you mean hdf5?', 'known: hdf5, ram')
    """
    if near := difflib.get_close_matches(name, known := sorted(known), n=1, cutoff=cutoff):
        return f"did you mean {near[0]}?"
    return rule or f"known: {', '.join(known) or 'none'}"


def path_of(text: str | os.PathLike[str], /) -> Path:
    """Return the path that a person wrote; "~" is the home directory, as in a shell."""
    return Path(os.path.expanduser(text))  # noqa: PTH111  (that of Path fails without a home)


def read_text(path: Path, /) -> str:
    """Return the text of a file, without a byte order mark.

    Raises BadInput if the file cannot be read, or has more than `MOST_BYTES`, as a device may.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise BadInput(
                f"{path}: it has more than {MOST_BYTES} bytes, the most that is read; name another"
                " file"
            )
        return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise BadInput(f"{path}: not text") from None
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None


def duration(text: str, /) -> float:
    """Return the seconds of a time span written by a person; raises BadInput if it is none.

    >>> duration("90"), duration("30m"), duration("3h55m"), duration("1d"), duration("2.5s")
    (90.0, 1800.0, 14100.0, 86400.0, 2.5)

    The forms of SLURM with a colon or a hyphen have the same meaning as in SLURM: minutes:seconds,
    hours:minutes:seconds, days-hours, days-hours:minutes and days-hours:minutes:seconds.

    >>> duration("10:00"), duration("00:10:00"), duration("1-12"), duration("1-12:00:00")
    (600.0, 600.0, 129600.0, 129600.0)

    A number alone means seconds here, although it means minutes in SLURM.
    """
    seconds = _in_units(text) or _in_fields(text)
    if not seconds:
        raise BadInput(
            f"{text[:80]!r} is not a time; write seconds, or e.g. 30m, 3h55m, 1d, 00:30:00,"
            " 1-12:00:00"
        )
    return seconds


def _in_units(text: str) -> float:
    """Return the seconds of numbers with units, or of a number alone; 0 for any other text."""
    number = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)"
    units = "".join(rf"(?:{number}\s*{unit}\s*)?" for unit in _SECONDS)
    match = re.fullmatch(rf"\s*(?:{number}|{units})\s*", text)
    parts = zip(match.groups() if match else (), (1, *_SECONDS.values()), strict=False)
    return sum(float(part) * unit for part, unit in parts if part)


def _in_fields(text: str) -> float:
    """Return the seconds of a time in a form of SLURM; 0 for any other text."""
    first, hours, sixty = "([0-9]{1,9})", "([01]?[0-9]|2[0-3])", "([0-5]?[0-9])"
    days = rf"{first}-{hours}(?::{sixty}(?::{sixty})?)?"
    match = re.fullmatch(rf"\s*(?:{days}|{first}:{sixty}(?::{sixty})?)\s*", text)
    if match is None:
        return 0.0
    if match[1] is not None:
        parts = match.groups(default="0")[:4]
    else:
        clock = [part for part in match.groups()[4:] if part is not None]
        parts = ("0",) * (4 - len(clock)) + tuple(clock)
    return float(sum(int(part) * unit for part, unit in zip(parts, _SECONDS.values(), strict=True)))
