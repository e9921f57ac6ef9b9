"""What a loop is, apart from where it stands: its step, and all that a step depends on."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import torch
from torch.autograd.graph import get_gradient_edge

from ckio.adapters.torch.tensors import Tensors, Tree, is_smooth
from ckio.errors import BadInput

Step = Callable[[Any, int], Any]
"""From x_i and i to x_{i+1}."""

Edge = tuple[Any, int]
"""A node of a graph, and which of its outputs."""

_LEAF: Final = "AccumulateGrad"
"""What torch calls the node of a tensor that was computed from nothing."""


@dataclass(frozen=True, slots=True)
class At:
    """Where a loop stands, as far as what comes depends on it.

    Attributes
    ----------
    state : tuple of tensors
        x_i; contiguous, of no graph, and changed by nobody.
    random : tuple of tensors
        The state of each source of random numbers.
    """

    state: Tensors
    random: Tensors

    @property
    def tensors(self) -> Tensors:
        return self.state + self.random


@dataclass(frozen=True, kw_only=True)
class Loop:
    """What a loop is.

    Attributes
    ----------
    step : callable
    tree : Tree
        How its state is made of tensors.
    like : tuple of (shape, dtype, device)
        What those are.
    params : tuple of tensors
        What steps read beside the state, and the gradient is taken of; those that require it.
    sources : tuple of torch.Generator
        What is random in steps comes from these.
    casts : tuple of (device type, enabled, dtype)
        The autocasting that steps run in.
    """

    step: Step
    tree: Tree
    like: tuple[Any, ...]
    params: Tensors
    sources: tuple[Any, ...] = ()
    casts: tuple[Any, ...] = ()

    @cached_property
    def _edges(self) -> tuple[Edge, ...]:
        return tuple(map(_edge, self.params))

    def names(self) -> Iterator[str]:
        """Of all that a checkpoint holds."""
        yield from self.tree.names()
        yield from (f"random {number}" for number in range(len(self.sources)))

    def random(self) -> Tensors:
        """Where the sources of random numbers are."""
        return tuple(source.get_state() for source in self.sources)

    def restore(self, random: Tensors) -> None:
        """Put the sources of random numbers there."""
        for source, state in zip(self.sources, random, strict=True):
            source.set_state(state)

    @contextmanager
    def inside(self, random: Tensors) -> Iterator[None]:
        """Within, it is as within the loop; afterwards as before."""
        outside = self.random()
        try:
            self.restore(random)
            with ExitStack() as stack:
                for device, enabled, dtype in self.casts:
                    # No cache: what is cast without a graph must not be met again with one.
                    cast = torch.autocast(device, dtype, enabled=enabled, cache_enabled=False)
                    stack.enter_context(cast)
                yield
        finally:
            self.restore(outside)

    def after(self, state: Tensors, i: int) -> Tensors:
        """One step; raises BadInput where it returns another kind of state, or changed this one."""
        before = versions(state)
        found = self.step(self.tree.build(iter(state)), i)
        if versions(state) != before:
            raise BadInput(
                f"step {i} changed its state in place; let it return new tensors"
                " (begin with x = x.clone(), say)"
            )
        leaves = tuple(self.tree.leaves(found))
        for name, like, leaf in zip(self.tree.names(), self.like, leaves, strict=True):
            if (now := described(leaf)) != like:
                raise BadInput(f"step {i} returns {name} as {_said(now)}; it was {_said(like)}")
        return tuple(leaf.contiguous().resolve_conj().resolve_neg() for leaf in leaves)

    def traced(self, state: Tensors, i: int) -> tuple[Tensors, Tensors]:
        """One step with its graph: its inputs, and what it returns; raises BadInput as `after`.

        And where the gradient would flow to a tensor that is neither in the state nor in `params`:
        its part would be lost.
        """
        inputs = tuple(t.detach().requires_grad_(is_smooth(t)) for t in state)
        with torch.enable_grad():
            outputs = self.after(inputs, i)
        self._check_known(inputs, outputs, i)
        return inputs, outputs

    def _check_known(self, inputs: Tensors, outputs: Tensors, i: int) -> None:
        known = {*(_edge(t) for t in inputs if t.requires_grad), *self._edges}
        todo = [_edge(t) for t in outputs if t.requires_grad]
        seen: set[Any] = set()
        while todo:
            edge = node, _ = todo.pop()
            if node is None or node in seen or edge in known:
                continue
            if type(node).__name__ == _LEAF:
                refuse(i, node.variable)
            seen.add(node)
            todo += node.next_functions


def refuse(i: int, tensor: torch.Tensor) -> None:
    """Say that this tensor was not given."""
    raise BadInput(
        f"step {i} reads a tensor of shape {tuple(tensor.shape)} that requires a gradient, and is"
        " neither in the state nor in `params`; give it in params=[...], or detach it"
    )


def described(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What must be the same of a tensor in every state."""
    return tuple(tensor.shape), tensor.dtype, tensor.device


def check_mode() -> None:
    """Raise BadInput where a loop's derivatives would be lost, or torch's words say too little."""
    forward = torch.autograd.forward_ad._current_level >= 0  # noqa: SLF001, the only way to ask
    if forward or torch._C._functorch.peek_interpreter_stack() is not None:  # noqa: SLF001, as above
        raise BadInput(
            "a checkpointed loop has no derivatives in forward mode, and none within torch.func or"
            " vmap; call it outside of these, and take its gradient by backward()"
        )


def casts_of(devices: Iterable[str]) -> tuple[Any, ...]:
    """The autocasting of now, for these types of devices."""
    return tuple(
        (kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
        for kind in sorted({"cpu", *devices})
    )


def generators_of(devices: Iterable[torch.device]) -> tuple[Any, ...]:
    """PyTorch's own sources of random numbers for these devices, and the CPU.

    Raises BadInput where it does not say which they are.
    """
    found = [torch.default_generator]
    for device in sorted(set(devices), key=str):
        if device.type == "cpu":
            continue
        own = getattr(torch.get_device_module(device.type), "default_generators", None)
        if own is None:
            raise BadInput(
                f"the generators of {device} are not known: give preserve_rng_state=False, and"
                " those that steps draw from in generators=[...]"
            )
        found.append(own[device.index or 0])
    return tuple(found)


def params_of(step: Step, params: Any) -> Tensors:
    """What was given as parameters, or else those of a step that is a module, or its method."""
    module = params if params is not None else step
    module = getattr(module, "__self__", module)
    if isinstance(module, torch.nn.Module):
        found: Sequence[Any] = list(module.parameters())
    elif isinstance(params, torch.Tensor):
        found = [params]
    else:
        found = [] if params is None else list(params)
    for tensor in found:
        if not isinstance(tensor, torch.Tensor):
            raise BadInput(f"params holds a {type(tensor).__name__}; it is a module, or tensors")
    return tuple({id(t): t for t in found if t.requires_grad}.values())


def check_apart(params: Tensors) -> None:
    """Raise BadInput where one is computed from another: what flows on to that would count twice.

    Once within the steps, whose graph goes on beyond what is given, and once outside.
    """
    known = {_edge(t): t for t in params}
    todo: list[Edge] = [edge for t in params if t.grad_fn for edge in t.grad_fn.next_functions]
    seen: set[Any] = set()
    while todo:
        edge = node, _ = todo.pop()
        if edge in known:
            raise BadInput(
                "one of `params` is computed from another, of shape"
                f" {tuple(known[edge].shape)}: let the step compute it"
            )
        if node is not None and node not in seen:
            seen.add(node)
            todo += node.next_functions


def _edge(tensor: torch.Tensor) -> Edge:
    edge = get_gradient_edge(tensor)
    return edge.node, edge.output_nr


def versions(state: Tensors, /) -> tuple[int, ...]:
    """How often each was changed in place; torch does not count that in inference mode."""
    return tuple(-1 if t.is_inference() else t._version for t in state)  # noqa: SLF001, the only way to ask


@contextmanager
def without_hooks(tensors: Tensors, /) -> Iterator[None]:
    """Within, what was hooked to these is not called, nor `.grad` set: a part is no gradient.

    The whole gradient comes to them later, through the graph that the loop is part of.
    """
    hooked = [t._backward_hooks for t in tensors if t._backward_hooks]  # noqa: SLF001, the only way to ask
    hooks = [dict(there) for there in hooked]
    kept = [(t, t.grad) for t in tensors if t.retains_grad]
    try:
        for there in hooked:
            there.clear()
        yield
    finally:
        for there, before in zip(hooked, hooks, strict=True):
            there.update(before)
        for tensor, grad in kept:
            tensor.grad = grad


def _said(what: tuple[Any, ...]) -> str:
    shape, dtype, device = what
    return f"{str(dtype).removeprefix('torch.')}{list(shape)} on {device}"
