"""Write schedules in the notation of Herrmann & Pallez (2020), Tables 3 and 4 (H-Revolve).

    F_i, F_i->j      forward steps i to j, inclusive          Advance[i, j+1)
    B_i              backward step i, with the forward step   Record[i, i+1), Reverse[i, i+1)
                     that records its tape
    W^k_i, WM_i      write x_i to level k; to memory          Write(x_i, level k); level 0
    R^k_i, RM_i      read it                                  Read(x_i, ...)
    D^k_i, DM_i      discard it                               Discard(x_i, ...)

WD_i, RD_i and DD_i are those of the disk, level 1. A chain of size l in the paper has l forward
steps F_0 to F_{l-1} and l + 1 backward steps B_0 to B_l. Here such a chain has n = l + 1 steps.
"""

from collections.abc import Iterator
from typing import Final

from ckio.actions import Action, Advance, Discard, Kind, Read, Record, Reverse, Write
from ckio.errors import BadInput
from ckio.schedule import Schedule

_PER_LINE: Final = 10


def dumps(schedule: Schedule, /, *, disk: bool = False) -> str:
    """Return the schedule as `Sequence: [...]`, its levels by number or, with `disk`, as M and D.

    Raises BadInput if the notation cannot express the schedule: if tapes or adjoints are stored, or
    single variables; if more than one step is recorded or reversed by one action; or if checkpoints
    are stored at the start.
    """
    if schedule.stored:
        raise BadInput(
            "the notation of Herrmann & Pallez (2020) cannot express that checkpoints are stored at"
            " the start"
        )
    words = list(_words(schedule, "MD" if disk else None))
    lines = (", ".join(words[i : i + _PER_LINE]) for i in range(0, len(words), _PER_LINE))
    return "Sequence: [" + ",\n".join(lines) + "]\n"


def _words(schedule: Schedule, places: str | None) -> Iterator[str]:
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
                if places is not None and level >= len(places):
                    raise _beyond(number, action, "M and D are levels 0 and 1")
                place = f"^{level}" if places is None else places[level]
                yield f"{type(action).__name__[0]}{place}_{key.step}"


def _beyond(number: int, action: Action, rule: str) -> BadInput:
    return BadInput(
        f"the notation of Herrmann & Pallez (2020) cannot express #{number} {action}: {rule}"
    )
