"""A loop in PyTorch as a model, which ckio runs and can resume in another process."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from ckio.actions import Buffers, Key, Kind, Layout
from ckio.adapters.torch.loop import (
    Loop,
    Position,
    Step,
    TensorSteps,
    Tree,
    describe,
    generators_of,
)
from ckio.adapters.torch.tensors import Tensors, field, is_smooth, over, owned
from ckio.errors import BadInput, RunFailed
from ckio.model.arrays import Array, Arrays


class TorchModel(TensorSteps):
    """A model whose step is a function of tensors, differentiated by autograd.

    >>> class Decay(TorchModel):
    ...     def __init__(self, cells: int = 3):
    ...         rate = torch.full((cells,), 0.5, dtype=torch.float64)
    ...         state = {"u": torch.arange(1.0, cells + 1, dtype=torch.float64)}
    ...         super().__init__(
    ...             lambda x, i: {"u": x["u"] * rate},
    ...             state,
    ...             lambda x: x["u"].sum(),
    ...             params={"rate": rate.requires_grad_()},
    ...         )
    >>> model = Decay()
    >>> model.record(0, 2)
    2
    >>> model.reverse(0, 2)
    >>> model.functional, model.gradient["u"].tolist(), model.gradient["rate"].tolist()
    (1.5, [0.25, 0.25, 0.25], [1.0, 2.0, 3.0])

    The gradient is that of the plain loop, and does not depend on the schedule. Random numbers come
    from torch's own generator. At x_0 it is in the state that `torch.manual_seed(seed)` gives it,
    and its state is part of each checkpoint.

    Parameters
    ----------
    step : callable
        `step(x, i)` returns x_{i+1}, with the structure of x_i, as new tensors.
    state : tensor, or tuple, list or dict
        Initial state x_0, on the CPU, which is copied. Tensors are named by their keys, for example
        "u" or "flow.u"; a state that is one tensor has the name "x".
    functional : callable
        J(x_n), a tensor with one real number.
    params : module, or mapping of str to tensor
        Tensors that steps read in addition to the state. The gradient includes those that require
        a gradient.
    done : callable, optional
        `done(x, i)` returns whether the loop ends at x_i, for runs of unknown length.
    seed : int
        Seed of the random numbers.

    Attributes
    ----------
    control, gradient : mapping of str to array
        Real and complex arrays, by the names of the state's tensors and the parameters. The arrays
        of `control` are views. Change them in place, and only before the first step.
    functional : float
        J at the end of the forward sweep.

    Raises
    ------
    BadInput
        Two tensors have the same name, or a control is not on the CPU, or NumPy does not have its
        dtype.
    """

    def __init__(
        self,
        step: Step,
        state: Any,
        functional: Callable[[Any], torch.Tensor],
        /,
        *,
        params: torch.nn.Module | Mapping[str, torch.Tensor] = {},  # noqa: B006, it is only read
        done: Callable[[Any, int], Any] | None = None,
        seed: int = 0,
    ) -> None:
        named = params
        if isinstance(params, torch.nn.Module):
            named = dict(params.named_parameters())
        if not isinstance(named, Mapping) or any(
            not isinstance(tensor, torch.Tensor) for tensor in named.values()
        ):
            raise BadInput(
                f"TorchModel: params is a {type(params).__name__}; give a module, or a mapping of"
                " names to tensors"
            )
        known = {name: tensor for name, tensor in named.items() if tensor.requires_grad}
        self._tree = Tree.of(_with_dict(state))
        leaves = owned(self._tree.leaves(_with_dict(state)))
        names = [*self._tree.names, *known]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise BadInput(
                f"TorchModel: {twice} are names of several tensors of the state and the parameters;"
                " rename all but one"
            )
        self._first = dict(zip(names, leaves, strict=False))
        smooth = {name: t for name, t in self._first.items() if is_smooth(t)}
        try:
            arrays = {name: t.detach().numpy() for name, t in {**smooth, **known}.items()}
        except TypeError as error:
            raise BadInput(
                f"TorchModel: {error}; controls are arrays of NumPy: give tensors on the CPU, for"
                " example in float32, and let the step convert them"
            ) from error
        self._control = Arrays(arrays)
        self._params = known
        self._functional = functional
        loop = Loop.of(
            lambda x, i: _with_dict(step(x, i)),
            self._tree,
            leaves,
            tuple(known.values()),
            generators_of(()),
        )
        self._begin = Position(leaves, (torch.Generator().manual_seed(seed).get_state(),))
        super().__init__(loop, self._begin, done=done)
        self._started = False
        self._farthest = 0, self._begin
        self._j: torch.Tensor | None = None  # None before the adjoint starts

    @property
    def control(self) -> Arrays:
        return self._control

    @property
    def gradient(self) -> Mapping[str, Array]:
        return {name: tensor.detach().numpy() for name, tensor in self._sums().items()}

    @property
    def functional(self) -> float:
        if self._j is not None:
            return float(self._j)
        self._start()
        _, at = self._farthest
        with torch.no_grad(), self._loop.inside(at.random):
            return float(_real(self._functional(self._tree.build(at.state))))

    def layout(self, key: Key, /) -> Layout:
        if key.kind is not Kind.ADJOINT:
            return super().layout(key)
        return tuple(field(name, tensor) for name, tensor in self._adjoint().items())

    def advance(self, begin: int, end: int, /) -> int:
        self._start()
        return self._reached(super().advance(begin, end))

    def record(self, begin: int, end: int, /) -> int:
        self._start()
        return self._reached(super().record(begin, end))

    def reverse(self, begin: int, end: int, /) -> None:
        self._start_adjoint(end)
        super().reverse(begin, end)

    @property
    def handed(self) -> frozenset[Kind]:
        return frozenset((Kind.RESTART, Kind.TAPE))

    exchanges = False

    def give(self, key: Key, slot: Callable[[int], memoryview], /) -> Buffers:
        return self.dump(key)  # without a copy: a step that changes a tensor in place is detected

    def take(self, key: Key, layout: Layout, data: Buffers, /) -> None:
        like = zip(data, self._fitting(key, layout), strict=True)
        self._adopt(key, [over(view, shape, dtype) for view, (shape, dtype, _) in like])

    def _stored(self, key: Key) -> Tensors:
        self._start()
        if key.kind is not Kind.ADJOINT:
            return super()._stored(key)
        self._start_adjoint(key.step)
        return tuple(tensor.contiguous() for tensor in self._adjoint().values())

    def _described(self, key: Key) -> list[tuple[Any, ...]]:
        if key.kind is not Kind.ADJOINT:
            return super()._described(key)
        return list(map(describe, self._adjoint().values()))

    def _adopt(self, key: Key, filled: Sequence[torch.Tensor]) -> None:
        self._start()
        if key.kind is not Kind.ADJOINT:
            super()._adopt(key, filled)
            return
        *sums, self._j = filled
        read = iter(sums)
        self.cotangent = [next(read) if is_smooth(t) else None for t in self._first.values()]
        self.of_params = list(read)

    def _adjoint(self) -> dict[str, torch.Tensor]:
        """Return the tensors of a checkpoint of the adjoint."""
        sums = {f"adjoint {name}": tensor for name, tensor in self._sums().items()}
        zero = torch.zeros((), dtype=torch.float64)
        return {**sums, "functional J": zero if self._j is None else self._j}

    def _sums(self) -> dict[str, torch.Tensor]:
        """Return the current adjoint of the state and gradient of the parameters."""
        whole = [*self._first.items(), *self._params.items()]
        sums: Sequence[torch.Tensor | None] = self.cotangent + self.of_params
        return {
            name: torch.zeros_like(like, requires_grad=False) if total is None else total
            for (name, like), total in zip(whole, sums, strict=True)
            if is_smooth(like)
        }

    def _start(self) -> None:
        """Make x_0 from the controls, which the user may have changed in place."""
        if not self._started:
            self._started = True
            self.at = Position(owned(self._begin.state), self._begin.random)
            self._farthest = 0, self.at

    def _reached(self, i: int) -> int:
        if self._j is None and i >= self._farthest[0]:
            self._farthest = i, self.at
        return i

    def _start_adjoint(self, n: int) -> torch.Tensor:
        """Return J. If the adjoint has not started, the derivative of J becomes the adjoint."""
        if self._j is not None:
            return self._j
        reached, at = self._farthest
        if reached != n:
            raise RunFailed(
                f"the adjoint cannot start at step {n}: the forward sweep has reached step"
                f" {reached}, and J is known only at its end; reverse from step {reached}"
            )
        leaves = [t.detach().requires_grad_(is_smooth(t)) for t in at.state]
        with torch.enable_grad(), self._loop.inside(at.random):
            j = _real(self._functional(self._tree.build(leaves)))
        self.cotangent = _derivatives(j, leaves)
        self._j, self._farthest = j.detach().to(torch.float64), (n, self._begin)
        return self._j


def _with_dict(state: Any) -> Any:
    """Return a state, but any mapping as a dict, so that a step may return another kind."""
    return dict(state) if isinstance(state, Mapping) else state


def _derivatives(j: torch.Tensor, leaves: Iterable[torch.Tensor]) -> list[torch.Tensor | None]:
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    derivatives = iter(torch.autograd.grad(j, wanted, allow_unused=True) if j.requires_grad else ())
    return [next(derivatives, None) if leaf.requires_grad else None for leaf in leaves]


def _real(j: Any) -> torch.Tensor:
    if not isinstance(j, torch.Tensor) or j.numel() != 1 or not j.is_floating_point():
        raise BadInput(f"TorchModel: J is {j!r:.80}; it must be a tensor of one real number")
    return j.reshape(())
