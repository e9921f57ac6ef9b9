"""What the program and the channels are told to do."""

from dataclasses import dataclass
from enum import Enum

from ckio.actions import Discard, Read, Write


class Way(Enum):
    """How the program does an action."""

    ITSELF = "by itself: it computes, or uses the memory level"
    STAGE = "copies the state to the pool; the transfer follows"
    STAGED = "copies the state from a write that is staged"
    AHEAD = "copies the state from what was read ahead"
    DIRECT = "waits until the transfer has ended"
    LATER = "does nothing: the channel does, or nothing is to be done any more"


@dataclass(frozen=True, slots=True)
class Transfer:
    """What a channel does.

    Attributes
    ----------
    row : int
        The number of the action in the schedule; at most one transfer has it.
    action : Write or Read or Discard
    direct : bool
        Whether it is from or to the model itself, and the program waits; else the pool is used.
    """

    row: int
    action: Write | Read | Discard
    direct: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """How the program does its next action, and the transfer that has to do with it, if any."""

    way: Way
    transfer: Transfer | None = None
