"""What is left by an error is left in order: a run in the middle, and a model's load."""

from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import TypeVar

from ckio.actions import Buffers

T = TypeVar("T")


@contextmanager
def within(run: Generator[T]) -> Iterator[None]:
    """A block that takes from a run what it gives: what the block raises ends the run too.

    Otherwise the run would go on with its levels for as long as somebody holds the error, and with
    it the frames that it came through: though they are closed, or used for something else, by then.
    """
    try:
        yield
    except BaseException as error:
        run.throw(error)  # raises it, with notes on what else has failed
        raise


class Loading:
    """What `load` of a model returned; an error within remains one, also if the model hides it.

    Its state would be another one than everybody thinks, and so would the gradient.
    """

    def __init__(self, loading: AbstractContextManager[Buffers]) -> None:
        self._loading = loading

    def __enter__(self) -> Buffers:
        return self._loading.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._loading.__exit__(kind, error, at)
