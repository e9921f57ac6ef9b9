"""What the first steps of a tape show: how large checkpoints are, and how long steps take."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from ckio.actions import Key, Kind
from ckio.adapters.pyadjoint.steps import live, used
from ckio.adapters.pyadjoint.values import arrays_of
from ckio.errors import BadInput
from ckio.platform.chain import Chain

FIRST: Final = 5
"""Steps that are looked at before anything is planned: the last of them is the first of a scheme of
third order that starts from nothing that step 0 has made.
"""


def chain_of(steps: Sequence[Any], seconds: Sequence[float], said: Chain | None, /) -> Chain:
    """What was said of steps, where it holds for these; otherwise what they show.

    Raises BadInput where they have more bytes than was said.
    """
    if said is not None:
        _check(steps, said)
        return said
    tape = max(_bytes(used(it)) for it in steps)
    restart = max((_bytes(live(it)) for it in steps[1:]), default=tape)
    fastest = min(seconds[1:] or seconds)
    return Chain(
        steps=None,
        advance=fastest,
        record=fastest,
        reverse=fastest,
        restart=restart,
        tape=tape,
        adjoint=restart,
    )


def _check(steps: Sequence[Any], said: Chain) -> None:
    for number in range(1, len(steps)):
        for kind, there in (Kind.RESTART, live), (Kind.TAPE, used):
            key, has = Key(kind, number), _bytes(there(steps[number]))
            if has > said.nbytes(key):
                raise BadInput(
                    f"the chain says that {key} has {said.nbytes(key)} bytes; it has {has}"
                )


def _bytes(variables: Iterable[Any]) -> int:
    return sum(array.nbytes for it in variables for array in arrays_of(it).values())
