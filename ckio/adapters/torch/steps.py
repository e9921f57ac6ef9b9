"""A loop as ckio drives it, which is a model: the state, tapes, a cotangent, and checkpoints."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ckio.actions import Buffers, Key, Kind, Layout
from ckio.adapters.torch.loop import At, Loop, versions, without_hooks
from ckio.adapters.torch.tensors import Tensors, field, flat, over, room
from ckio.errors import BadInput, UnsupportedKind
from ckio.model.arrays import as_bytes


class Steps:
    """Forward steps without a graph, and back a step at a time, each by autograd.

    The tape of step i is x_i, as a checkpoint is: from it the step is done again with its graph. Of
    the last step that was recorded the graph is kept, so that one that is reversed at once is not.

    Parameters
    ----------
    loop : Loop
    at : At
        Where it begins.
    done : callable, optional
        Whether the loop ends at x_i, of x_i and i.
    on_step : callable, optional
        Called after each step of either sweep with where it now stands.

    Attributes
    ----------
    at : At
        x_i, and what is random from there on.
    cotangent : list of tensor or None
        Of each tensor of the state, where the adjoint stands; None is zero. Set it before going
        back.
    gradient : list of tensor or None
        Of each of the loop's params.
    """

    def __init__(
        self,
        loop: Loop,
        at: At,
        /,
        *,
        done: Callable[[Any, int], Any] | None = None,
        on_step: Callable[[int], None] | None = None,
    ) -> None:
        self.loop, self.at, self.on_step = loop, at, on_step
        self.cotangent: list[torch.Tensor | None] = [None] * len(at.state)
        self.gradient: list[torch.Tensor | None] = [None] * len(loop.params)
        self._done = done
        self._tapes: dict[int, tuple[At, tuple[int, ...]]] = {}  # and how often it was changed
        self._traced: tuple[int, Tensors, Tensors] | None = None
        fields = zip(loop.names(), at.tensors, strict=True)
        self._layout: Layout = tuple(field(name, tensor) for name, tensor in fields)
        self._like = [(tuple(t.shape), t.dtype, t.device) for t in at.tensors]

    def layout(self, key: Key, /) -> Layout:
        if key.kind is Kind.ADJOINT or key.name:
            raise UnsupportedKind(f"{key} is no checkpoint of a loop: it has whole states")
        return self._layout

    def advance(self, begin: int, end: int, /) -> int:
        with torch.no_grad(), self.loop.inside(self.at.random):
            for i in range(begin, end):
                if self.is_done(i):
                    return i
                self._go_to(self.loop.after(self.at.state, i), i)
        return end

    def record(self, begin: int, end: int, /) -> int:
        self._tapes, self._traced = {}, None
        with torch.no_grad(), self.loop.inside(self.at.random):
            for i in range(begin, end):
                if self.is_done(i):
                    return i
                self._tapes[i] = self.at, versions(self.at.state)
                if i < end - 1:
                    self._go_to(self.loop.after(self.at.state, i), i)
                else:
                    inputs, outputs = self.loop.traced(self.at.state, i)
                    self._traced = i, inputs, outputs
                    self._go_to(tuple(t.detach() for t in outputs), i)
        return end

    def reverse(self, begin: int, end: int, /) -> None:
        for i in reversed(range(begin, end)):
            self._pull(*self._graph_of(i))
            if self.on_step is not None:
                self.on_step(i)

    def dump(self, key: Key, /) -> Buffers:
        self.layout(key)
        at = self.at if key.kind is Kind.RESTART else self._tape(key.step)
        return [as_bytes(flat(tensor)) for tensor in at.tensors]

    def take(self, key: Key, layout: Layout, data: Buffers, /) -> None:
        """Adopt a checkpoint where it is."""
        self._check_layout(key, layout)
        filled = [
            over(view, shape, dtype)
            for view, (shape, dtype, _) in zip(data, self._like, strict=True)
        ]
        self._adopt(key, filled)

    @contextmanager
    def load(self, key: Key, layout: Layout, /) -> Generator[Buffers]:
        self._check_layout(key, layout)
        filled = [room(shape, dtype) for shape, dtype, _ in self._like]
        yield [as_bytes(flat(tensor)) for tensor in filled]
        self._adopt(key, filled)

    def _check_layout(self, key: Key, layout: Layout) -> None:
        if layout != self.layout(key):
            raise BadInput(f"{key} does not fit this loop: was it written by another?")

    def _adopt(self, key: Key, filled: Sequence[torch.Tensor]) -> None:
        there = [t.to(device) for t, (*_, device) in zip(filled, self._like, strict=True)]
        states = len(self.at.state)
        at = At(tuple(there[:states]), tuple(there[states:]))
        if key.kind is Kind.RESTART:
            self.at = at
        else:
            self._tapes, self._traced = {key.step: (at, versions(at.state))}, None

    def is_done(self, i: int, /) -> bool:
        """Whether the loop ends where it stands, which is x_i."""
        if self._done is None:
            return False
        return bool(self._done(self.loop.tree.build(iter(self.at.state)), i))

    def _go_to(self, state: Tensors, i: int) -> None:
        self.at = At(state, self.loop.random())
        if self.on_step is not None:
            self.on_step(i + 1)

    def _tape(self, i: int) -> At:
        at, before = self._tapes[i]
        if versions(at.state) != before:
            raise BadInput(
                f"a step changed in place what step {i} was given, after that step: let a step"
                " return new tensors, and no room that others use again"
            )
        return at

    def _graph_of(self, i: int) -> tuple[Tensors, Tensors]:
        at, traced, self._traced = self._tape(i), self._traced, None
        del self._tapes[i]
        if traced is not None and traced[0] == i:
            return traced[1:]
        with self.loop.inside(at.random):
            return self.loop.traced(at.state, i)

    def _pull(self, inputs: Tensors, outputs: Tensors) -> None:
        """The cotangent from what a step returned to what it was given."""
        back = [
            (y, g)
            for y, g in zip(outputs, self.cotangent, strict=True)
            if g is not None and y.requires_grad
        ]
        smooth = [x for x in inputs if x.requires_grad]
        wanted = [*smooth, *self.loop.params]
        found: list[torch.Tensor | None] = [None] * len(wanted)
        if back and wanted:
            ends, cotangent = zip(*back, strict=True)
            try:
                with without_hooks(self.loop.params):
                    found = list(torch.autograd.grad(ends, wanted, cotangent, allow_unused=True))
            except RuntimeError as error:
                if "second time" not in str(error):
                    raise
                raise BadInput(
                    "a step reads what was computed before it, with a graph, from `params`: give"
                    " what was computed in `params`, or compute it within the step"
                ) from error
        of_state = iter(found)
        self.cotangent = [next(of_state) if x.requires_grad else None for x in inputs]
        for number, more in enumerate(of_state):
            self._add(number, more)

    def _add(self, number: int, more: torch.Tensor | None) -> None:
        if more is None:
            return
        if (so_far := self.gradient[number]) is None:
            self.gradient[number] = more.clone()
        else:
            so_far.add_(more)
