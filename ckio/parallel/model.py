"""A model of which every rank computes its part: a step is done if every rank has done it."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from ckio.actions import Buffers, Key, Layout
from ckio.model import Differentiable, Handing, Sizes, reached, sizes_of
from ckio.parallel.team import Team

T = TypeVar("T")


class Together:
    """A rank's part of a model, whose moves end well on all ranks or on none.

    A rank that fails in the middle of a step calls it off, so that none waits for its halo. Ranks
    may have parts of different size: what is planned is for the largest.

    Parameters
    ----------
    model : Differentiable
    team : Team

    Attributes
    ----------
    largest_sizes : Sizes
        Bytes of a checkpoint of each kind on the rank where they are largest.
    unequal : bool
        Whether they are smaller on other ranks.
    estimated : bool
        Whether they are, or are not known beforehand.
    """

    def __init__(self, model: Differentiable, team: Team, /) -> None:
        self._model, self._team = model, team
        mine = team.each(lambda: sizes_of(model))
        every = team.gather(mine)
        self.largest_sizes = Sizes(
            restart=max(sizes["restart"] for sizes in every),
            tape=max(sizes["tape"] for sizes in every),
            adjoint=max(sizes["adjoint"] for sizes in every),
        )
        self.unequal = any(sizes != mine for sizes in every)
        self.estimated = self.unequal or bool(getattr(model, "estimated", False))
        if isinstance(model, Handing):
            self.handed, self.give, self.take = model.handed, model.give, model.take

    def advance(self, begin: int, end: int, /) -> int:
        return self._stepped("advance", self._model.advance, begin, end)

    def record(self, begin: int, end: int, /) -> int:
        return self._stepped("record", self._model.record, begin, end)

    def reverse(self, begin: int, end: int, /) -> None:
        self._moved(lambda: self._model.reverse(begin, end))

    def layout(self, key: Key, /) -> Layout:
        return self._model.layout(key)

    def dump(self, key: Key, /) -> Buffers:
        return self._model.dump(key)

    def load(self, key: Key, layout: Layout, /) -> AbstractContextManager[Buffers]:
        return self._model.load(key, layout)

    @property
    def functional(self) -> float:
        return self._moved(lambda: self._model.functional)

    @property
    def gradient(self) -> Mapping[str, Any]:
        return self._model.gradient

    @property
    def control(self) -> Mapping[str, Any]:
        return self._model.control

    @property
    def on_step(self) -> Any:
        """What the model calls after each step, where it does."""
        return getattr(self._model, "on_step")  # noqa: B009  (not every model has it)

    @on_step.setter
    def on_step(self, call: Callable[[int], None] | None) -> None:
        setattr(self._model, "on_step", call)  # noqa: B010

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def _stepped(self, name: str, move: Callable[[int, int], int], begin: int, end: int) -> int:
        """The step that all ranks came to."""
        return self._moved(lambda: reached(name, move(begin, end), begin, end), number=int)

    def _moved(self, move: Callable[[], T], *, number: Callable[[T], int] | None = None) -> T:
        """Move on all ranks; one that fails leaves nobody waiting for its halo."""
        return self._team.each(move, number=number, calls_off=True)
