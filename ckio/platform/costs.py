"""Read the costs of each step of a chain from a table.

    # seconds, and bytes or sizes such as 64MiB; a line of numbers for each step
    advance, record, restart
    0.5,     0.75,   64MiB
    0.125,   0.25,   64MiB

The first line names the columns: any of advance, record, reverse, restart, tape and adjoint. A cost
without a column is the same for all steps and is given separately. Empty lines, and all text after
a `#`, are ignored.
"""

from collections.abc import Iterator, Mapping
from math import isfinite
from types import MappingProxyType

from ckio.errors import BadInput
from ckio.platform import size
from ckio.platform.chain import ALL_COSTS, COSTS, SIZES, Chain, known_with


def loads(
    text: str,
    alike: Mapping[str, float],
    known: Mapping[str, float] = MappingProxyType({}),
    /,
    *,
    source: str = "costs",
) -> Chain:
    r"""Return the chain described by a table; it has as many steps as the table has data lines.

    Parameters
    ----------
    text
        The table.
    alike
        Costs that are the same for all steps, in seconds or bytes.
    known
        Default values for costs that are neither in the table nor in `alike`.
    source
        Name for errors; usually the file name.

    Raises BadInput with the line and the expected content; also if a cost is given twice or is
    missing, and as `Chain` does.

    >>> costs = dict(record=0.75, reverse=1.0, restart=64, tape=128, adjoint=64)
    >>> chain = loads("advance\n0.5\n0.125", costs)
    >>> chain.steps, list(chain.advance), chain.record
    (2, [0.5, 0.125], 0.75)
    """
    lines = _lines(text)
    number, names = next(lines, (1, []))
    known = known_with(known, {*names, *alike})
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
    """Yield the number and the words of each line with data, without a spreadsheet's quotes."""
    for number, line in enumerate(text.splitlines(), 1):
        words = [word.strip(' \t"') for word in line.split("#", 1)[0].split(",")]
        if any(words):
            yield number, words


def _check_names(names: list[str], alike: Mapping[str, float], where: str) -> None:
    if not names or not set(names) <= set(ALL_COSTS) or len(set(names)) < len(names):
        raise BadInput(
            f"{where}: found {', '.join(names)[:80]!r}; expected the names of columns, each once"
            f" and with commas between them, of {', '.join(ALL_COSTS)}"
        )
    for name in ALL_COSTS:
        if name in names and name in alike:
            raise BadInput(f"{where}: {name} is given here and for all steps; once is enough")
        if name in COSTS and name not in names and name not in alike:
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
