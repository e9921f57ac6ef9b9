"""Tapes of pyadjoint whose values lie on the levels of a platform, by a schedule that ckio plans.

    enable(tape, platform, steps=1000)
    for i in tape.timestepper(range(1000)):
        ...                                   what pyadjoint annotates, as ever

A time step of the tape is a step of the chain. What it starts from (pyadjoint's checkpointable
state) is restart data x_i; the inputs and outputs of its blocks are its tape t_i. pyadjoint asks
four things of what manages its checkpoints, and `Manager` does them by the actions of a schedule;
`TapeStorage` has the checkpoints on the levels, and `steps` goes forward and back.
"""

from ckio.errors import BadInput

try:
    import pyadjoint  # noqa: F401
except ImportError as error:
    raise BadInput(
        "ckio.adapters.pyadjoint needs pyadjoint: pip install 'ckio[pyadjoint]'"
    ) from error

from ckio.adapters.pyadjoint.manager import Manager, enable
from ckio.adapters.pyadjoint.storage import TapeStorage, register

__all__ = ["Manager", "TapeStorage", "enable", "register"]
