"""Checkpoints of a pyadjoint tape on the levels of a platform, by a schedule of ckio.

    enable(tape, steps=1000, ram="2GiB", disk="/scratch")
    for i in tape.timestepper(range(1000)):
        ...                                   annotated by pyadjoint as usual

A time step of the tape is a step of the chain. Its initial state (pyadjoint's checkpointable state)
is restart data x_i, and the inputs and outputs of its blocks are its tape t_i. pyadjoint calls four
methods of the manager of its checkpoints. `Manager` implements them by the actions of a schedule,
`TapeStorage` stores the checkpoints on the levels, and the module `steps` computes and reverses
steps.
"""

from ckio.errors import BadInput

try:
    import pyadjoint  # noqa: F401
except ImportError as error:
    raise BadInput(
        "ckio.adapters.pyadjoint needs pyadjoint: pip install 'ckio[pyadjoint]'"
    ) from error

from ckio.adapters.pyadjoint.manager import Manager, enable
from ckio.adapters.pyadjoint.storage import TapeStorage, keep_in_memory, register

__all__ = ["Manager", "TapeStorage", "enable", "keep_in_memory", "register"]
