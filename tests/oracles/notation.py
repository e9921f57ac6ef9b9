"""Read and write schedules in the notation of Herrmann & Pallez (2020), Tables 3 and 4 (H-Revolve).

    F_i, F_i->j      forward steps i to j, inclusive          Advance[i, j+1)
    B_i              backward step i, with the forward step   Record[i, i+1), Reverse[i, i+1)
                     that records its tape
    W^k_i            write x_i to level k                     Write(x_i, level k)
    R^k_i            read it                                  Read(x_i, level k)
    D^k_i            discard it                               Discard(x_i, level k)

In listings of two levels, WM_i is W^0_i, for memory, and WD_i is W^1_i, for the disk. A
chain of size l in the paper has l forward steps F_0 to F_{l-1} and l + 1 backward steps B_0 to B_l.
Here such a chain has n = l + 1 steps.
"""

import re
from collections.abc import Iterator
from typing import Final

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.errors import BadInput
from ckio.platform.chain import Chain
from ckio.schedule import Schedule

_OPERATION: Final = re.compile(
    r"F_(?P<first>\d{1,18})(->(?P<last>\d{1,18}))?"
    r"|B_(?P<back>\d{1,18})"
    r"|(?P<access>[WRD])(\^(?P<level>\d{1,4})|(?P<place>[MD]))_(?P<step>\d{1,18})",
    re.ASCII,
)
_ACCESSES: Final[dict[str, type[Write | Read | Discard]]] = {"W": Write, "R": Read, "D": Discard}
_PLACES: Final = {"M": 0, "D": 1}


def loads(text: str, chain: Chain, /, *, source: str = "schedule") -> Schedule:
    """Read the list `[W^2_0, F_0->6, ...]` that follows `Sequence:`, or the first list without it.

    Other text (a command, the makespan, comments after `#`) is ignored. A chain without a length
    gets the length that the list implies.

    >>> costs = Chain(steps=None, advance=1, record=1, reverse=1, restart=1, tape=1, adjoint=1)
    >>> print(*loads("Sequence: [W^0_0, F_0->1, B_2]", costs).actions)
    Write(x_0, level 0) Advance[0, 2) Record[2, 3) Reverse[2, 3)
    """
    text = re.sub(r"#.*", lambda comment: " " * len(comment[0]), text)
    titled = re.search(r"Sequence:\s*\[", text)
    begin = titled.end() if titled else text.find("[") + 1
    end = text.find("]", begin)
    if not begin or end < 0:
        raise BadInput(
            f"{source}: no list of operations; it must contain one, as in `[W^0_0, F_0->6, ...]`"
        )
    actions: list[Action] = []
    for word in re.findall(r"[^\s,]+", text[begin:end]):
        actions += _operation(word)
    if chain.steps is None:
        ends = [action.end for action in actions if isinstance(action, Advance | Record)]
        chain = chain.with_steps(max(ends, default=1))
    return Schedule(chain, actions)


def _operation(word: str) -> list[Action]:
    match = _OPERATION.fullmatch(word)
    if match is None:
        raise BadInput(f"{word[:80]!r} is not an operation")
    if match["first"]:
        return [Advance(int(match["first"]), int(match["last"] or match["first"]) + 1)]
    if match["back"]:
        step = int(match["back"])
        return [Record(step, step + 1), Reverse(step, step + 1)]
    level = int(match["level"]) if match["level"] else _PLACES[match["place"]]
    return [_ACCESSES[match["access"]](Key(Kind.RESTART, int(match["step"])), level)]


_PER_LINE: Final = 10


def dumps(schedule: Schedule, /) -> str:
    """Return a schedule of restart checkpoints as `Sequence: [...]`, with the numbers of levels."""
    words = list(_words(schedule))
    lines = (", ".join(words[i : i + _PER_LINE]) for i in range(0, len(words), _PER_LINE))
    return "Sequence: [" + ",\n".join(lines) + "]\n"


def _words(schedule: Schedule) -> Iterator[str]:
    for action in schedule.actions:
        match action:
            case Advance(begin, end):
                yield f"F_{begin}" if end == begin + 1 else f"F_{begin}->{end - 1}"
            case Reverse(begin, _):
                yield f"B_{begin}"
            case Write(key, level) | Read(key, level) | Discard(key, level):
                yield f"{type(action).__name__[0]}^{level}_{key.step}"
