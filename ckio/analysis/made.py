"""Of which checkpoints all is there that they are made of."""

from collections.abc import Collection

import numpy as np

from ckio.actions import Key, Kind
from ckio.actions.variables import Bools, Variables


def complete(
    keys: Collection[Key], kind: Kind, variables: Variables, length: int, /
) -> tuple[int, ...]:
    """The steps of the checkpoints of which all parts are among these keys, in order.

    A fresh model has all variables as they are in x_0: of other states, what is still so need not
    be there. A checkpoint that has no parts is always there.
    """
    there: Bools = np.ones(length + (kind is Kind.RESTART), np.bool_)
    for name, version, needed in variables.columns(kind, length):
        held = [key.step for key in keys if key.kind is kind and key.name == name]
        found: Bools = ~needed | np.isin(version, held)
        if kind is Kind.RESTART:
            found[1:] |= version[1:] == 0
        there &= found
    return tuple(np.flatnonzero(there).tolist())


def of_a_fresh_model(key: Key, /) -> bool:
    """Whether it is a variable of the state as a fresh model has it."""
    return key.kind is Kind.RESTART and key.step == 0 and key.name != ""
