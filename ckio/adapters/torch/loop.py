"""A loop of tensors: its state, its step with all dependencies, and its run.

`Loop` contains everything that is constant. `TensorSteps` is the model that ckio runs. It has the
state, the tapes, the cotangent and the checkpoints.
"""

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import torch
from torch.autograd.graph import get_gradient_edge
from torch.utils._pytree import tree_flatten_with_path, tree_unflatten

from ckio.actions import Buffers, Key, Kind, Layout
from ckio.adapters.torch.tensors import (
    Tensors,
    field,
    flat,
    is_smooth,
    uninitialized,
    versions,
)
from ckio.errors import BadInput, UnsupportedKind
from ckio.model.arrays import as_bytes

Step = Callable[[Any, int], Any]
"""A function of x_i and i that returns x_{i+1}."""

Edge = tuple[Any, int]
"""A node of a graph, and the number of one of its outputs."""

_GENERATORS: Final = threading.RLock()
"""Held while states of random generators are read or set. `get_state` keeps a generator locked
while it makes a Python object. If Python collects garbage then, another thread may run, and wait
in `set_state` for ever with the interpreter's lock (PyTorch 2.13)."""

_LEAF: Final = "AccumulateGrad"
"""The type name of the node of a leaf, a tensor that no operation computed."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The structure of a state: a tensor, or a tuple, list or dict of such structures.

    Attributes
    ----------
    names : tuple of str
        The names of its tensors in messages and in files, for example "flow.u".
    spec : TreeSpec
        The structure as PyTorch describes it.
    """

    names: tuple[str, ...]
    spec: Any

    @staticmethod
    def of(x: Any, /) -> "Tree":
        """Return the tree of a state; raises BadInput if it contains anything else."""
        leaves, spec = tree_flatten_with_path(x)
        names = tuple(".".join(map(_key, path)) or "x" for path, _ in leaves)
        for name, (_, leaf) in zip(names, leaves, strict=True):
            if not isinstance(leaf, torch.Tensor):
                raise BadInput(
                    f"{name} is a {type(leaf).__name__}; a state is a tensor, or a tuple, list or"
                    " dict of tensors: give such a state"
                )
        return Tree(names, spec)

    def leaves(self, x: Any, /) -> Tensors:
        """Return the tensors of a state; raises BadInput if its structure differs from this one."""
        try:
            leaves = self.spec.flatten_up_to(x)
        except ValueError as error:
            raise BadInput(
                f"the state is a {type(x).__name__} of another structure than x0, which has the"
                f" tensors {', '.join(self.names) or 'nothing'}; let the step return the structure"
                " of x0"
            ) from error
        for name, leaf in zip(self.names, leaves, strict=True):
            if not isinstance(leaf, torch.Tensor):
                raise BadInput(
                    f"{name} is a {type(leaf).__name__}, and was a tensor in x0; let the step"
                    " return the structure of x0"
                )
        return tuple(leaves)

    def build(self, leaves: Iterable[torch.Tensor], /) -> Any:
        """Return the state with this structure and these tensors."""
        return tree_unflatten(leaves, self.spec)


def _key(key: Any) -> str:
    """Return the key, index or attribute of a step of a path."""
    return str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))))


@dataclass(frozen=True, slots=True)
class Position:
    """The state of a loop and of its random generators, which determine all later steps.

    Attributes
    ----------
    state : tuple of tensors
        x_i as contiguous tensors without a graph. They are never changed.
    random : tuple of tensors
        The state of each random generator.
    """

    state: Tensors
    random: Tensors

    @property
    def tensors(self) -> Tensors:
        return self.state + self.random


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A step, and everything that it depends on except the state.

    Attributes
    ----------
    step : callable
    tree : Tree
        The structure of its state.
    like : tuple of (shape, dtype, device)
        The properties of its tensors.
    params : tuple of tensors
        Tensors with a gradient that steps read in addition to the state.
    sources : tuple of torch.Generator
        The generators from which steps draw random numbers.
    casts : tuple of (device type, enabled, dtype)
        The settings of autocast during the steps.
    """

    step: Step
    tree: Tree
    like: tuple[Any, ...]
    params: Tensors
    sources: tuple[Any, ...] = ()
    casts: tuple[Any, ...] = ()

    @staticmethod
    def of(
        step: Step, tree: Tree, state: Tensors, params: Tensors, sources: tuple[Any, ...], /
    ) -> "Loop":
        """Return the loop of states like this one, with the current settings of autocast."""
        return Loop(
            step=step,
            tree=tree,
            like=tuple(map(describe, state)),
            params=params,
            sources=sources,
            casts=casts_of(t.device.type for t in state),
        )

    @cached_property
    def _edges(self) -> tuple[Edge, ...]:
        return tuple(map(_edge, self.params))

    def names(self) -> Iterator[str]:
        """Yield the names of all tensors in a checkpoint."""
        yield from self.tree.names
        yield from (f"random {number}" for number in range(len(self.sources)))

    def random(self) -> Tensors:
        """Return the states of the random generators."""
        with _GENERATORS:
            return tuple(source.get_state() for source in self.sources)

    def set_random(self, random: Tensors) -> None:
        """Set the states of the random generators."""
        with _GENERATORS:
            for source, state in zip(self.sources, random, strict=True):
                source.set_state(state)

    @contextmanager
    def inside(self, random: Tensors) -> Iterator[None]:
        """Run a `with` block in these random states and with the loop's settings of autocast."""
        outside = self.random()
        try:
            self.set_random(random)
            with ExitStack() as stack:
                for device, enabled, dtype in self.casts:
                    # The cache is off, because a copy cast without a graph has no gradient.
                    cast = torch.autocast(device, dtype, enabled=enabled, cache_enabled=False)
                    stack.enter_context(cast)
                yield
        finally:
            self.set_random(outside)

    def after(self, state: Tensors, i: int) -> Tensors:
        """Compute one step; raises BadInput if it returns other tensors or changes its input."""
        before = versions(state)
        try:
            returned = self.step(self.tree.build(state), i)
        except RuntimeError as error:
            if "leaf Variable that requires grad" in str(error):
                raise _in_place(i) from error
            raise
        if versions(state) != before:
            raise _in_place(i)
        leaves = self.tree.leaves(returned)
        for name, like, leaf in zip(self.tree.names, self.like, leaves, strict=True):
            if (now := describe(leaf)) != like:
                raise BadInput(
                    f"step {i} returns {name} as {_text_of(now)}, but x0 has {_text_of(like)}; let"
                    " the step keep shapes, dtypes and devices"
                )
        return tuple(leaf.contiguous().resolve_conj().resolve_neg() for leaf in leaves)

    def trace(self, state: Tensors, i: int) -> tuple[Tensors, Tensors]:
        """Compute one step with its graph, and return its inputs and outputs.

        Raises BadInput for the reasons of `after`, and if a tensor that is neither in the state nor
        in `params` requires a gradient, because this gradient would be lost.
        """
        inputs, outputs = self._with_graph(state, i)
        self._check_known(inputs, outputs, i)
        return inputs, outputs

    def advance(self, state: Tensors, i: int) -> Tensors:
        """Compute one step.

        It has a graph meanwhile, because a step may keep a tensor for later steps, for example a
        weight that it computes from parameters once. Without its graph the gradient would be lost.
        """
        return tuple(t.detach() for t in self._with_graph(state, i)[1])

    def _with_graph(self, state: Tensors, i: int) -> tuple[Tensors, Tensors]:
        inputs = tuple(t.detach().requires_grad_(is_smooth(t)) for t in state)
        with torch.enable_grad():
            return inputs, self.after(inputs, i)

    def _check_known(self, inputs: Tensors, outputs: Tensors, i: int) -> None:
        known = {*(_edge(t) for t in inputs if t.requires_grad), *self._edges}
        for node, _ in _edges_behind((_edge(t) for t in outputs if t.requires_grad), known):
            if type(node).__name__ == _LEAF:
                refuse(i, node.variable)


def _in_place(i: int) -> BadInput:
    return BadInput(
        f"step {i} changed its state in place, or a parameter; let it return new tensors, for"
        " example by beginning with x = x.clone()"
    )


def refuse(i: int, tensor: torch.Tensor) -> None:
    """Raise BadInput, because this tensor was not given in `params`."""
    raise BadInput(
        f"step {i} reads a tensor of shape {tuple(tensor.shape)} that requires a gradient, and is"
        " neither in the state nor in `params`; give it in params=[...], or detach it"
    )


def describe(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return the properties of a tensor that all states have in common."""
    return tuple(tensor.shape), tensor.dtype, tensor.device


def check_mode() -> None:
    """Raise BadInput in modes in which derivatives would be lost or torch's error is unclear."""
    forward = torch.autograd.forward_ad._current_level >= 0  # noqa: SLF001, the only way to ask
    if forward or torch._C._functorch.peek_interpreter_stack() is not None:  # noqa: SLF001, as above
        raise BadInput(
            "a checkpointed loop has no derivatives in forward mode, and none within torch.func or"
            " vmap; call it outside of these, and take its gradient by backward()"
        )


def casts_of(devices: Iterable[str]) -> tuple[Any, ...]:
    """Return the current settings of autocast for these types of devices."""
    return tuple(
        (kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
        for kind in sorted({"cpu", *devices})
    )


def generators_of(devices: Iterable[torch.device]) -> tuple[Any, ...]:
    """Return PyTorch's own random generators of the CPU and of these devices.

    Raises BadInput for a device whose generators are not known.
    """
    generators = [torch.default_generator]
    for device in sorted(set(devices), key=str):
        if device.type == "cpu":
            continue
        own = getattr(torch.get_device_module(device.type), "default_generators", None)
        if own is None:
            raise BadInput(
                f"the generators of {device} are not known to ckio; give preserve_rng_state=False,"
                " and the generators from which steps draw in generators=[...]"
            )
        generators.append(own[device.index or 0])
    return tuple(generators)


def params_of(step: Step, params: Any) -> Tensors:
    """Return the given parameters with a gradient.

    Without any, return those of the step if it is a module or a method of a module.
    """
    module = params if params is not None else step
    module = getattr(module, "__self__", module)
    if isinstance(module, torch.nn.Module):
        tensors: Sequence[Any] = list(module.parameters())
    elif isinstance(params, torch.Tensor):
        tensors = [params]
    else:
        tensors = [] if params is None else list(params)
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            raise BadInput(
                f"params contains a {type(tensor).__name__}; give a module, or tensors only"
            )
    return tuple({id(t): t for t in tensors if t.requires_grad}.values())


def check_apart(params: Tensors) -> None:
    """Raise BadInput if one parameter is computed from another, because it would count twice.

    Its contribution would be added once within the steps, whose graph reaches beyond the given
    tensors, and once outside.
    """
    known = {_edge(t): t for t in params}
    begin = [edge for t in params if t.grad_fn for edge in t.grad_fn.next_functions]
    for edge in _edges_behind(begin, set()):
        if edge in known:
            raise BadInput(
                "one of `params` is computed from another, of shape"
                f" {tuple(known[edge].shape)}; give only the other one, and let the step compute it"
            )


def _edges_behind(begin: Iterable[Edge], known: set[Edge]) -> Iterator[Edge]:
    """Yield these edges of a graph and those from which they are computed, up to known ones."""
    todo, seen = list(begin), set()
    while todo:
        edge = node, _ = todo.pop()
        if node is None or edge in seen or edge in known:
            continue
        yield edge
        seen.add(edge)
        todo += node.next_functions


def _edge(tensor: torch.Tensor) -> Edge:
    edge = get_gradient_edge(tensor)
    return edge.node, edge.output_nr


@contextmanager
def without_hooks(tensors: Tensors, /) -> Iterator[None]:
    """Run a `with` block without the hooks of these tensors and without setting `.grad`.

    The tensors get the whole gradient later, through the graph that contains the loop.
    """
    hooked = [t._backward_hooks for t in tensors if t._backward_hooks]  # noqa: SLF001, the only way to ask
    hooks = [dict(current) for current in hooked]
    gradients = [(t, t.grad) for t in tensors if t.retains_grad]
    try:
        for current in hooked:
            current.clear()
        yield
    finally:
        for current, before in zip(hooked, hooks, strict=True):
            current.update(before)
        for tensor, grad in gradients:
            tensor.grad = grad


class ConstantBuffers:
    """The buffers of all modules that the first step calls; no step may change them."""

    def __init__(self) -> None:
        self._marks: dict[tuple[Any, str], tuple[int, ...]] | None = None

    @contextmanager
    def during_step(self) -> Iterator[None]:
        """Raise BadInput if a buffer is changed in this `with` block."""
        if self._marks is None:
            self._marks = {}
            with self._found(self._marks):
                yield
        else:
            yield
        if changed := [
            f"{type(module).__name__}.{name}"
            for (module, name), mark in self._marks.items()
            if _mark(getattr(module, name)) != mark
        ]:
            raise BadInput(
                f"a step changes the buffers {changed}, which are changed once more when the step"
                " is run again; call eval() of their module before the loop, or make them a part of"
                " the state"
            )

    @staticmethod
    @contextmanager
    def _found(marks: dict[tuple[Any, str], tuple[int, ...]]) -> Iterator[None]:
        mine = threading.get_ident()

        def remember(module: Any, _: Any) -> None:
            if threading.get_ident() == mine:
                for name, buffer in module.named_buffers(recurse=False):
                    marks.setdefault((module, name), _mark(buffer))

        handle = torch.nn.modules.module.register_module_forward_pre_hook(remember)
        try:
            yield
        finally:
            handle.remove()


def _mark(buffer: torch.Tensor) -> tuple[int, ...]:
    """Return the identity and the version of a tensor; a change of a buffer changes one of them.

    BatchNorm's kernel changes neither, but BatchNorm also counts its calls in a buffer.
    """
    return id(buffer), *versions((buffer,))


def _text_of(properties: tuple[Any, ...]) -> str:
    shape, dtype, device = properties
    return f"{str(dtype).removeprefix('torch.')}{list(shape)} on {device}"


class TensorSteps:
    """Forward steps whose graph is not kept, and reversed steps by autograd, one at a time.

    The tape of step i is x_i, from which the step is computed again with its graph. The graph of
    the last recorded step is kept, so that this step is not computed again if it is reversed next.

    Parameters
    ----------
    loop : Loop
    at : Position
        The initial state.
    done : callable, optional
        `done(x, i)` returns whether the loop ends at x_i.

    Attributes
    ----------
    at : Position
        x_i, and the state of the random generators.
    cotangent : list of tensor or None
        The adjoint of each tensor of the state; None means zero. Set it before the first reverse.
    of_params : list of tensor or None
        The gradient with respect to each of the loop's params.
    """

    def __init__(
        self,
        loop: Loop,
        at: Position,
        /,
        *,
        done: Callable[[Any, int], Any] | None = None,
    ) -> None:
        self._loop, self.at = loop, at
        self.on_step: Callable[[int], None] | None = None
        self.cotangent: list[torch.Tensor | None] = [None] * len(at.state)
        self.of_params: list[torch.Tensor | None] = [None] * len(loop.params)
        self._done = done
        self._buffers = ConstantBuffers()
        # x_i of each recorded step, and the versions of its tensors
        self._tapes: dict[int, tuple[Position, tuple[int, ...]]] = {}
        self._traced: tuple[int, Tensors, Tensors] | None = None
        fields = zip(loop.names(), at.tensors, strict=True)
        self._layout: Layout = tuple(field(name, tensor) for name, tensor in fields)
        self._like = list(map(describe, at.tensors))

    def layout(self, key: Key, /) -> Layout:
        if key.kind is Kind.ADJOINT or key.name:
            raise UnsupportedKind(
                f"{key} is not a checkpoint of a loop; use a planner that stores whole states"
            )
        return self._layout

    def advance(self, begin: int, end: int, /) -> int:
        with torch.no_grad(), self._loop.inside(self.at.random):
            for i in range(begin, end):
                if self.is_done(i):
                    return i
                self._advance(i)
        return end

    def _advance(self, i: int) -> None:
        with self._buffers.during_step():
            after = self._loop.advance(self.at.state, i)
        self._go_to(after, i)

    def record(self, begin: int, end: int, /) -> int:
        self._tapes, self._traced = {}, None
        with torch.no_grad(), self._loop.inside(self.at.random):
            for i in range(begin, end):
                if self.is_done(i):
                    return i
                self._tapes[i] = self.at, versions(self.at.state)
                if i < end - 1:
                    self._advance(i)
                else:
                    with self._buffers.during_step():
                        inputs, outputs = self._loop.trace(self.at.state, i)
                    self._traced = i, inputs, outputs
                    self._go_to(tuple(t.detach() for t in outputs), i)
        return end

    def reverse(self, begin: int, end: int, /) -> None:
        for i in reversed(range(begin, end)):
            self._pull(*self._graph_of(i))
            if self.on_step is not None:
                self.on_step(i)

    def dump(self, key: Key, /) -> Buffers:
        return [as_bytes(flat(tensor)) for tensor in self._stored(key)]

    @contextmanager
    def load(self, key: Key, layout: Layout, /) -> Generator[Buffers]:
        filled = [uninitialized(shape, dtype) for shape, dtype, _ in self._fitting(key, layout)]
        yield [as_bytes(flat(tensor)) for tensor in filled]
        self._adopt(key, filled)

    def _stored(self, key: Key) -> Tensors:
        """Return the tensors of a checkpoint."""
        self.layout(key)
        at = self.at if key.kind is Kind.RESTART else self._tape(key.step)
        return at.tensors

    def _described(self, key: Key) -> list[tuple[Any, ...]]:
        """Return the shape, dtype and device of each tensor of a checkpoint."""
        return self._like

    def _fitting(self, key: Key, layout: Layout) -> list[tuple[Any, ...]]:
        """Return these properties; raises BadInput if the layout is that of another checkpoint."""
        if layout != self.layout(key):
            raise BadInput(
                f"{key} does not fit this loop; make it with the step, the state and the options of"
                " the run that wrote it"
            )
        return self._described(key)

    def _adopt(self, key: Key, filled: Sequence[torch.Tensor]) -> None:
        like = self._described(key)
        tensors = [t.to(device) for t, (*_, device) in zip(filled, like, strict=True)]
        states = len(self.at.state)
        at = Position(tuple(tensors[:states]), tuple(tensors[states:]))
        if key.kind is Kind.RESTART:
            self.at = at
        else:
            self._tapes, self._traced = {key.step: (at, versions(at.state))}, None

    def is_done(self, i: int, /) -> bool:
        """Return whether the loop ends at its current state x_i."""
        if self._done is None:
            return False
        return bool(self._done(self._loop.tree.build(self.at.state), i))

    def _go_to(self, state: Tensors, i: int) -> None:
        self.at = Position(state, self._loop.random())
        if self.on_step is not None:
            self.on_step(i + 1)

    def _tape(self, i: int) -> Position:
        at, before = self._tapes[i]
        if versions(at.state) != before:
            raise BadInput(
                f"a later step changed in place the state that step {i} received; let each step"
                " return new tensors, not memory that other steps use again"
            )
        return at

    def _graph_of(self, i: int) -> tuple[Tensors, Tensors]:
        at, traced, self._traced = self._tape(i), self._traced, None
        del self._tapes[i]
        if traced is not None and traced[0] == i:
            return traced[1:]
        with self._loop.inside(at.random):
            return self._loop.trace(at.state, i)

    def _pull(self, inputs: Tensors, outputs: Tensors) -> None:
        """Compute the cotangent of a step's inputs from that of its outputs."""
        back = [
            (y, g)
            for y, g in zip(outputs, self.cotangent, strict=True)
            if g is not None and y.requires_grad
        ]
        smooth = [x for x in inputs if x.requires_grad]
        wanted = [*smooth, *self._loop.params]
        gradients: list[torch.Tensor | None] = [None] * len(wanted)
        if back and wanted:
            ends, cotangent = zip(*back, strict=True)
            try:
                with without_hooks(self._loop.params):
                    gradients = list(
                        torch.autograd.grad(ends, wanted, cotangent, allow_unused=True)
                    )
            except RuntimeError as error:
                if "second time" not in str(error):
                    raise
                raise BadInput(
                    "a step reads a tensor that was computed from `params` before the loop, or that"
                    " another step keeps, such as a cached weight; compute it within each step, or"
                    " before the loop and give this tensor in `params`"
                ) from error
        of_state = iter(gradients)
        self.cotangent = [next(of_state) if x.requires_grad else None for x in inputs]
        for number, more in enumerate(of_state):
            if more is not None and (so_far := self.of_params[number]) is not None:
                so_far.add_(more)
            elif more is not None:
                self.of_params[number] = more.clone()
