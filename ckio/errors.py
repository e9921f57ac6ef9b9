"""The exceptions that ckio raises on purpose.

    CkioError
    ├── BadInput             a value from outside breaks a rule (also a ValueError)
    │   └── NoSchedule       the planner finds no schedule for this chain and platform
    ├── IllegalAction        a schedule breaks a rule of the Machine: the schedule is wrong
    ├── RunFailed            a run had to end, and the cause is not storage
    │   ├── NotVerified          the run ended, but the check of its gradient failed
    │   └── RankFailed           another rank of the job failed; the error has its number
    ├── Stopped              a run was asked to stop, and stopped
    └── StorageError         a level did not do what was asked of it
        ├── LevelFull        the level has reached its capacity, or its disk is full
        ├── LevelInUse       another process, or another run, owns this storage
        │   └── ForeignLevel     another run stored the data in this storage (also a BadInput)
        ├── MissingCheckpoint   no complete checkpoint is stored under this key (also a KeyError)
        ├── CorruptCheckpoint   a stored checkpoint does not match its checksum or its header
        └── UnsupportedKind  this backend or model does not support this kind of checkpoint

Each message names the thing, the rule, and the remedy. On the command line, BadInput ends with
exit status 2 and all the others with 1.
"""

from functools import partial
from typing import Any


class CkioError(Exception):
    """The base class: `except CkioError` catches every error that ckio raises on purpose.

    Attributes
    ----------
    action : int or None
        The number of the action, counted from 0, at which this error ended a run. None outside of
        runs.
    shared : bool
        Whether all ranks of a job raise this error at the same point of the program, even if its
        cause is on one rank only.
    """

    action: int | None = None
    shared: bool = False


class BadInput(CkioError, ValueError):
    """A value, a file or an option from outside breaks a rule."""


class NoSchedule(BadInput):
    """The planner finds no schedule for this chain and platform."""


class IllegalAction(CkioError):
    """A schedule breaks a rule of the Machine; the message has the action and the stored keys."""


class RunFailed(CkioError):
    """A run had to end, and the cause is not storage (for example, the model ended early)."""


class NotVerified(RunFailed):
    """A run has ended and its result is stored, but the check of its gradient failed.

    The gradient is wrong, or the check is inconclusive.

    Attributes
    ----------
    result : Result
        The result of the run. `result.check` has the verdict, if this process made the check.
    """

    def __init__(self, message: str, /, *, result: Any) -> None:
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(NotVerified, result=self.result), self.args, vars(self)


class RankFailed(RunFailed):
    """Another rank of the job failed, and this rank cannot continue without it.

    Attributes
    ----------
    rank : int
        The number of the rank that failed.
    """

    def __init__(self, message: str, /, *, rank: int) -> None:
        super().__init__(message)
        self.rank = rank

    def __reduce__(self) -> tuple[Any, ...]:
        # By default, unpickling passes the message only, and `rank` would be missing.
        return partial(RankFailed, rank=self.rank), self.args, vars(self)


class Stopped(CkioError):
    """A run was asked to stop, and stopped with the model between two steps.

    Attributes
    ----------
    action : int
        The number of the next action. A part of this action may already be done.
    state : int or None
        The step of the model's state: the model holds x_state. None if it holds no state.
    adjoint : int
        The step of the adjoint: all steps from this one to the end are reversed.
    """

    def __init__(self, message: str, /, *, action: int, state: int | None, adjoint: int) -> None:
        super().__init__(message)
        self.action = action
        self.state = state
        self.adjoint = adjoint

    def __reduce__(self) -> tuple[Any, ...]:
        # `vars` then restores the true numbers.
        return partial(Stopped, action=0, state=None, adjoint=0), self.args, vars(self)


class StorageError(CkioError):
    """A level did not do what was asked of it. The checkpoints stored before are intact.

    Attributes
    ----------
    level : int or None
        The number of the level in the platform, if this error ended a run during an access to
        the level.
    """

    level: int | None = None


class LevelFull(StorageError):
    """A level has no space for a checkpoint: its capacity is reached, or its disk is full."""


class LevelInUse(StorageError):
    """Another process, or another run, owns this storage."""


class ForeignLevel(LevelInUse, BadInput):
    """Another run stored the data in this storage. The data are not changed."""


class MissingCheckpoint(StorageError, KeyError):
    """No complete checkpoint is stored under this key."""

    def __str__(self) -> str:
        # KeyError would print the repr of the message.
        return Exception.__str__(self)


class CorruptCheckpoint(StorageError):
    """A stored checkpoint does not match its checksum or its header."""


class UnsupportedKind(StorageError):
    """A backend or a model does not support this kind of checkpoint."""
