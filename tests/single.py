"""One action at a time, for tests of what a model and its levels do with it."""

from collections.abc import Sequence

from ckio.actions import Action, Advance, Record, Reverse
from ckio.backends.base import Backend
from ckio.model import Model
from ckio.runner.perform import Performer


def perform_one(action: Action, model: Model, backends: Sequence[Backend], /) -> int:
    """Do one action; return the bytes that reached or left a level."""
    method = getattr(Performer(model, backends), type(action).__name__.lower())
    match action:
        case Advance(begin, end) | Record(begin, end) | Reverse(begin, end):
            moved: int = method(begin, end)
        case _:
            moved = method(action.key, action.level)
    return moved
