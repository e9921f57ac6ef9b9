"""What a checkpoint is made of, and of which checkpoints all is there that they are made of."""

from collections.abc import Collection, Iterator

import numpy as np

from ckio.actions import Key, Kind
from ckio.variables import Bools, Ints, Variables


def kinds(variables: Variables, /) -> tuple[Kind, ...]:
    """What is stored variable by variable."""
    return (Kind.RESTART, Kind.TAPE) if variables.taped else (Kind.RESTART,)


def parts(variables: Variables, key: Key, length: int, /) -> tuple[Key, ...]:
    """The variables of a whole checkpoint, each in its version, in a chain of this length.

    Of x_i those that are live there: the state may hold anything of the others. Of t_i those that
    the tape of this step is made of. What is stored whole is one part.
    """
    if key.name or key.kind not in kinds(variables):
        return (key,)
    columns = _columns(variables, key.kind, length)
    return tuple(
        Key(key.kind, version.item(key.step), name)
        for name, version, needed in columns
        if needed[key.step]
    )


def complete(
    keys: Collection[Key], kind: Kind, variables: Variables, length: int, /
) -> tuple[int, ...]:
    """The steps of the checkpoints of which all parts are among these keys, in order.

    A fresh model has all variables as they are in x_0: of other states, what is still so need not
    be there. A checkpoint that has no parts is always there.
    """
    there: Bools = np.ones(length + (kind is Kind.RESTART), np.bool_)
    for name, version, needed in _columns(variables, kind, length):
        held = [key.step for key in keys if key.kind is kind and key.name == name]
        found: Bools = ~needed | np.isin(version, held)
        if kind is Kind.RESTART:
            found[1:] |= version[1:] == 0
        there &= found
    return tuple(np.flatnonzero(there).tolist())


def of_a_fresh_model(key: Key, /) -> bool:
    """Whether it is a variable of the state as a fresh model has it."""
    return key.kind is Kind.RESTART and key.step == 0 and key.name != ""


def _columns(variables: Variables, kind: Kind, length: int) -> Iterator[tuple[str, Ints, Bools]]:
    """Of each variable that is stored: its name, and for each step its version and its need."""
    over = variables.over(length)
    if kind is Kind.RESTART:
        for name in sorted(variables.stored):
            yield name, over.versions(name), over.live(name, seed=name in variables.seed)
    else:
        for name in sorted(variables.taped):
            yield name, over.versions(name)[:-1], over.has(name, "record", "use")
