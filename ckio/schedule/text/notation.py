"""Write schedules in the notation of Herrmann & Pallez (2020), Tables 3 and 4 (H-Revolve).

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

from collections.abc import Iterator
from typing import Final

from ckio.actions import Action, Advance, Discard, Kind, Read, Record, Reverse, Write
from ckio.errors import BadInput
from ckio.schedule import Schedule

_PER_LINE: Final = 10


def dumps(schedule: Schedule, /) -> str:
    """Return the schedule as `Sequence: [...]`, with the numbers of its levels.

    Raises BadInput if the notation cannot express the schedule: if tapes or adjoints are stored, or
    single variables; if more than one step is recorded or reversed by one action; or if checkpoints
    are stored at the start.
    """
    if schedule.stored:
        raise BadInput(
            "the notation of Herrmann & Pallez (2020) cannot express that checkpoints are stored at"
            " the start"
        )
    words = list(_words(schedule))
    lines = (", ".join(words[i : i + _PER_LINE]) for i in range(0, len(words), _PER_LINE))
    return "Sequence: [" + ",\n".join(lines) + "]\n"


def _words(schedule: Schedule) -> Iterator[str]:
    actions = iter(enumerate(schedule.actions))
    for number, action in actions:
        match action:
            case Advance(begin, end):
                yield f"F_{begin}" if end == begin + 1 else f"F_{begin}->{end - 1}"
            case Record(begin, end) if end == begin + 1:
                following = next(actions, (number, None))[1]
                if following != Reverse(begin, end):
                    raise _beyond(number, action, "`Reverse` of this step must come next")
                yield f"B_{begin}"
            case Record() | Reverse():
                raise _beyond(number, action, "B_i records one step and reverses it")
            case Write(key, level) | Read(key, level) | Discard(key, level):
                if key.kind is not Kind.RESTART or key.name:
                    raise _beyond(number, action, "only whole restart data x_i can be stored")
                yield f"{type(action).__name__[0]}^{level}_{key.step}"


def _beyond(number: int, action: Action, rule: str) -> BadInput:
    return BadInput(
        f"the notation of Herrmann & Pallez (2020) cannot express #{number} {action}: {rule}"
    )
