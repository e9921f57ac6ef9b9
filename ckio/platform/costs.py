"""A chain from a table of what each of its steps costs, as people and programs write it.

    # seconds, and bytes or sizes such as 64MiB; a line of numbers for each step
    advance, record, restart
    0.5,     0.75,   64MiB
    0.125,   0.25,   64MiB

The first line names columns: any of advance, record, reverse, restart, tape and adjoint. What has
no column is the same for all steps and is given beside the table. Empty lines and what follows a
`#` are passed over.
"""

from collections.abc import Iterator, Mapping
from math import isfinite
from types import MappingProxyType

from ckio.errors import BadInput
from ckio.platform import size
from ckio.platform.chain import COSTS, SIZES, Chain


def loads(
    text: str,
    alike: Mapping[str, float],
    known: Mapping[str, float] = MappingProxyType({}),
    /,
    *,
    source: str = "costs",
) -> Chain:
    """The chain of a table with as many steps as it has lines, and of the costs that are `alike`.

    What is `known` is for costs that neither has. `source` is named in errors, usually the file.
    Raises BadInput with the line and what is expected there; for a cost that is given twice, or not
    at all; and as `Chain` does.
    """
    lines = _lines(text)
    number, names = next(lines, (1, []))
    alike = {name: cost for name, cost in known.items() if name not in names} | dict(alike)
    _check_names(names, alike, f"{source}, line {number}")
    columns: dict[str, list[float]] = {name: [] for name in names}
    for number, words in lines:
        where = f"{source}, line {number}"
        if len(words) != len(names):
            raise BadInput(f"{where}: {len(words)} values; expected one each of {', '.join(names)}")
        for name, word in zip(names, words, strict=True):
            columns[name].append(_value(word, name, where))
    steps = len(columns[names[0]])
    if not steps:
        raise BadInput(f"{source}: no step; expected a line of numbers for each")
    try:
        return Chain(steps=steps, **{**alike, **columns})  # type: ignore[arg-type]
    except BadInput as error:
        raise BadInput(f"{source}: {error}") from None


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """The number and the words of every line that has any; spreadsheets put them in quotes."""
    for number, line in enumerate(text.splitlines(), 1):
        words = [word.strip(' \t"') for word in line.split("#", 1)[0].split(",")]
        if any(words):
            yield number, words


def _check_names(names: list[str], alike: Mapping[str, float], where: str) -> None:
    if not names or not set(names) <= set(COSTS) or len(set(names)) < len(names):
        raise BadInput(
            f"{where}: found {', '.join(names)[:80]!r}; expected the names of columns, each once"
            f" and with commas between them, of {', '.join(COSTS)}"
        )
    for name in COSTS:
        if name in names and name in alike:
            raise BadInput(f"{where}: {name} is given here and for all steps; once is enough")
        if name not in names and name not in alike:
            raise BadInput(f"{where}: no column {name}, and it is not given for all steps either")


def _value(word: str, name: str, where: str) -> float:
    try:
        if name in SIZES:
            return size(word)
        seconds = float(word)
    except (BadInput, ValueError):
        seconds = -1.0
    if isfinite(seconds) and seconds >= 0:
        return seconds
    expected = "bytes, or a size such as 64MiB" if name in SIZES else "seconds, a number >= 0"
    raise BadInput(f"{where}: {name} is {word[:80]!r}; expected {expected}")
