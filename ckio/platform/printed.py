"""Values as people read them: `print(value)` is a short table, and a notebook shows the same.

Names come from files and models. They are shown without what would steer a terminal or be read as
HTML.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

PICTURES: dict[str, Callable[[Any], str]] = {}
"""What draws a value for a notebook as SVG, by the name of its class.

The pictures are made by what is built on top of these values, so that `ckio/__init__.py` enters
here what draws them.
"""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A title, a table with its first column to the left, and lines below it."""

    title: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()

    def text(self) -> str:
        """The sheet in lines."""
        table = aligned(self.header, self.rows) if self.rows else []
        return "\n".join([shown(self.title), *table, *map(shown, self.notes)])

    def html(self) -> str:
        """The sheet as HTML."""
        parts = [f"<p><b>{_safe(self.title)}</b></p>"]
        if self.rows:
            head = "".join(f"<th>{_safe(cell)}</th>" for cell in self.header)
            rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in self.rows)
            parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>")
        parts += [f"<p>{_safe(note)}</p>" for note in self.notes]
        return "\n".join(parts)


class Printed:
    """A value that is printed, and shown in a notebook, as its sheet."""

    __slots__ = ()

    def _sheet(self) -> Sheet:
        raise NotImplementedError

    def __str__(self) -> str:
        return self._sheet().text()

    def _repr_html_(self) -> str:
        picture = PICTURES.get(type(self).__name__)
        return self._sheet().html() + ("" if picture is None else f"\n{picture(self)}")


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], /) -> list[str]:
    r"""The lines of a table with its first column to the left and the others to the right.

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
    r"""Return a text as it may be printed: a name in a file may have been made to steer a terminal.

    Every letter that is not printable is written as its escape, but for those to `keep`.

    >>> shown("x_0.a\x1b[2J\n")
    'x_0.a\\x1b[2J\\n'
    """
    return "".join(
        letter
        if letter.isprintable() or letter in keep
        else letter.encode("unicode_escape").decode()
        for letter in str(text)
    )


def _safe(text: str) -> str:
    return escape(shown(text))


def _cell(text: str) -> str:
    return f"<td>{_safe(text)}</td>"


def time_unit(seconds: float, /) -> tuple[float, str]:
    """The unit (in seconds) in which a time is easy to read, and its sign."""
    for unit, sign in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= unit:
            return unit, sign
    return (1e-9, "ns") if seconds else (1.0, "s")


def seconds_text(seconds: float, /) -> str:
    """Seconds with four digits and a unit: 1.25 s, 310 ms.

    >>> seconds_text(1.25), seconds_text(0.31), seconds_text(34567.8), seconds_text(0.0)
    ('1.25 s', '310 ms', '34568 s', '0 s')
    """
    unit, sign = time_unit(seconds)
    value = seconds / unit
    return f"{value:.0f} {sign}" if value >= 1000 else f"{value:.4g} {sign}"


def bytes_text(nbytes: int, /) -> str:
    """Bytes with three digits and a unit.

    >>> bytes_text(640), bytes_text(1536), bytes_text(1023 << 20)
    ('640 B', '1.5 KiB', '1023 MiB')
    """
    power = min(5, max(0, nbytes.bit_length() - 1) // 10)
    value = nbytes / 1024**power
    digits = 3 if value < 1000 else 4
    return f"{value:.{digits}g} {('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[power]}"


def counted(count: int, what: str, /) -> str:
    """So many of them.

    >>> counted(1, "checkpoint"), counted(2, "checkpoint")
    ('1 checkpoint', '2 checkpoints')
    """
    return f"{count} {what}{'' if count == 1 else 's'}"
