"""Everything ckio raises on purpose.

    CkioError
    ├── BadInput             something that came from outside breaks a rule (also ValueError)
    │   └── NoSchedule       no plan of this kind fits this chain and platform
    ├── IllegalAction        a schedule breaks a rule of the Machine: the schedule is wrong
    ├── RunFailed            a run could not go on, and not because of storage
    │   └── RankFailed           another rank of the job failed, which is named
    ├── Stopped              a run was asked to stop, and did
    └── StorageError         a level did not do what it was asked
        ├── LevelFull        no room: capacity reached, or the disk under it is full
        ├── LevelInUse       another process, or another run, owns this place
        │   └── ForeignLevel     what lies in it was stored by another run (also BadInput)
        ├── MissingCheckpoint   nothing complete is stored under this key (also KeyError)
        ├── CorruptCheckpoint   what is stored fails its checksum or its header
        └── UnsupportedKind  this backend or model cannot hold this kind of checkpoint

Each message names the thing, the rule, and what to do. On the command line, BadInput ends with
exit status 2 and all the others with 1.
"""

from functools import partial
from typing import Any


class CkioError(Exception):
    """The root: `except CkioError` catches everything that ckio raises on purpose.

    Attributes
    ----------
    action : int or None
        The number of the action, from 0, at which this ended a run; None outside of runs.
    shared : bool
        Whether all ranks of a job raise it, at the same place, wherever it comes from.
    """

    action: int | None = None
    shared: bool = False


class BadInput(CkioError, ValueError):
    """A value, a file or an option from outside breaks a rule."""


class NoSchedule(BadInput):
    """No plan of this kind fits this chain and platform."""


class IllegalAction(CkioError):
    """A schedule breaks a rule of the Machine: which action, which rule, what is stored."""


class RunFailed(CkioError):
    """A run could not go on, and the cause is not storage (a model that stopped early, say)."""


class RankFailed(RunFailed):
    """Another rank of the job failed, and this one cannot go on without it.

    Attributes
    ----------
    rank : int
        Which one.
    """

    def __init__(self, message: str, /, *, rank: int) -> None:
        super().__init__(message)
        self.rank = rank

    def __reduce__(self) -> tuple[Any, ...]:
        # Or no pickle of it could be read: it is not made of its message alone.
        return partial(RankFailed, rank=self.rank), self.args, vars(self)


class Stopped(CkioError):
    """A run was asked to stop, and did, with the model between two steps.

    Attributes
    ----------
    action : int
        The number of the action that is to be done next; a part of it may have been done.
    state : int or None
        The model stands at x_state; None where it holds no state.
    adjoint : int
        Steps from here to the end are reversed.
    """

    def __init__(self, message: str, /, *, action: int, state: int | None, adjoint: int) -> None:
        super().__init__(message)
        self.action = action
        self.state = state
        self.adjoint = adjoint

    def __reduce__(self) -> tuple[Any, ...]:
        # The numbers come with its attributes.
        return partial(Stopped, action=0, state=None, adjoint=0), self.args, vars(self)


class StorageError(CkioError):
    """A level did not do what it was asked; what it held before is intact.

    Attributes
    ----------
    level : int or None
        The number of the level in the platform, where this ended a run at an access to it.
    """

    level: int | None = None


class LevelFull(StorageError):
    """A level has no room for a checkpoint: its capacity, or the disk under it, is full."""


class LevelInUse(StorageError):
    """Another process, or another run, owns this place."""


class ForeignLevel(LevelInUse, BadInput):
    """What lies in this place was stored by another run; it is left as it is."""


class MissingCheckpoint(StorageError, KeyError):
    """Nothing complete is stored under this key."""

    def __str__(self) -> str:
        # KeyError would print the repr of the message.
        return Exception.__str__(self)


class CorruptCheckpoint(StorageError):
    """What is stored under this key fails its checksum or does not match its header."""


class UnsupportedKind(StorageError):
    """A backend or model cannot hold this kind of checkpoint."""
