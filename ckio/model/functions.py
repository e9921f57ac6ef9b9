"""Two pure functions as a model: a step, and its adjoint, which return new arrays."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import numpy as np

from ckio.actions.checks import describe
from ckio.errors import BadInput, RunFailed
from ckio.model import TANGENT, ArrayModel, Arrays
from ckio.model.arrays import Array, check_unmasked

Tree = Any
"""One array, or a mapping of names to arrays."""

Step = Callable[[Any, Any, int], tuple[Tree, Any]]
Adjoint = Callable[[Any, Any, Any, int], tuple[Tree, Tree]]
Tangent = Callable[[Any, Any, int, Any, Any], tuple[Tree, Any]]
Second = Callable[[Any, Any, Any, int, Any, Any, Any], tuple[Tree, Tree]]

_LARGEST: Final = {"f": 8, "c": 16}
"""The bytes of numbers by kind; longer ones have bytes that mean nothing, and are not equal."""

_ALONE: Final = {"x0": "x", "params": "p"}
"""The names of single arrays."""


def functions(
    step: Step,
    adjoint: Adjoint,
    x0: Tree,
    params: Tree = None,
    /,
    *,
    tangent: Tangent | None = None,
    second: Second | None = None,
    shared: Collection[str] | None = None,
) -> Callable[[], ArrayModel]:
    """Return a function that makes a model of two pure functions.

    J is the sum of all j. Both functions return new arrays; they neither change nor keep those that
    they get. An array may be a number. Where x or p is a mapping, results have its names. Every
    step costs a copy of the state.

    Parameters
    ----------
    step : callable
        `step(x, p, i)` returns x_{i+1} and j, the contribution of step i to J, for x_i.
    adjoint : callable
        `adjoint(xbar, x, p, i)` returns dJ/dx_i and the contribution of step i to dJ/dp, where
        `xbar` is dJ/dx_{i+1} and `x` is x_i. Both include the derivative of j.
    x0 : array, or mapping of str to array
        The initial state. Each array is a control, with its name; the name of a single array is
        "x".
    params : array, or mapping of str to array, optional
        The parameters p, which are controls, too; the name of a single array is "p".
    tangent, second : callable, optional
        The derivatives of both functions, for `hessian_product`: `tangent(x, p, i, dx, dp)` is that
        of `step` along the direction (dx, dp), and `second(xbar, x, p, i, dxbar, dx, dp)` that of
        `adjoint` along (dxbar, dx, dp). Each returns what its function does. With JAX or PyTorch,
        their `jvp` computes both.
    shared : collection of str, optional
        On many ranks: the controls that all ranks share, whose gradient is the sum over the ranks.
        The others are the parts of each rank. `j` is then the sum over all ranks.

    Raises
    ------
    BadInput
        If an array has other numbers than floating-point ones, or a name occurs twice.
    RunFailed
        In a run, if a function does not return what it must.

    For example, the sum of u² before each of three steps u ← r u, from u = 1 and r = 2:

    >>> def step(u, r, i):
    ...     return r * u, u**2
    >>> def adjoint(ubar, u, r, i):
    ...     return r * ubar + 2 * u, u * ubar
    >>> model = functions(step, adjoint, 1.0, 2.0)()
    >>> model.record(0, 3)
    3
    >>> model.reverse(0, 3)
    >>> model.functional, model.gradient["x"].item(), model.gradient["p"].item()
    (21.0, 42.0, 36.0)
    """
    more = {} if tangent is None and second is None else {"tangent": tangent, "second": second}
    for what, function in {"step": step, "adjoint": adjoint, **more}.items():
        if not callable(function):
            raise BadInput(
                f"functions: {what} is {describe(function)}; give a function. For a step in JAX or"
                " PyTorch, whose adjoint they compute, use ckio.adapters.jax.checkpointed_scan or"
                " ckio.adapters.torch.checkpointed_loop"
            )
    x, p = _arrays("x0", x0), _arrays("params", params)
    if not x:
        raise BadInput("functions: x0 has no array; it is the initial state")
    for name in x:
        if name in p:
            raise BadInput(f"functions: {name!r} is in x0 and in params; rename one of them")
    single = not isinstance(x0, Mapping), not isinstance(params, Mapping)

    def make() -> ArrayModel:
        model = Functions((step, adjoint), x, p, single)
        model.derivatives = None if tangent is None or second is None else (tangent, second)
        model.shared_controls = None if shared is None else tuple(shared)
        return model

    make.__module__, make.__qualname__ = step.__module__, getattr(step, "__qualname__", "step")
    make.model_of = step  # type: ignore[attr-defined]
    return make


class Functions(ArrayModel):
    """The model of `functions`."""

    records_late = True  # the adjoint function gets x_i and p only
    derivatives: tuple[Tangent, Second] | None = None
    shared_controls: tuple[str, ...] | None = None

    def __init__(
        self,
        both: tuple[Step, Adjoint],
        x0: Mapping[str, Array],
        params: Mapping[str, Array],
        single: tuple[bool, bool],
    ) -> None:
        (self._step_of, self._adjoint_of), self._single = both, single
        self._names = tuple(x0), tuple(params)
        super().__init__({**x0, "J": 0.0}, control={**x0, **params}, tape=x0)

    def step(self, state: Arrays, i: int, /) -> None:
        x, p = self._given(state, 0), self._given(self.control, 1)
        after, j = _two("step", "x_{i+1} and j", _called("step", self._step_of, x, p, i), i)
        values = self._checked("step", state, after, 0, i)
        number = _array(j)
        if number.ndim or number.dtype.kind not in "fiu":
            raise RunFailed(
                f"step {i}: step returned {describe(j)} as j; it must return a real number, the"
                " contribution of the step to J: 0.0 if there is none"
            )
        state["J"] += number  # before the arrays change, of which j may be one
        for name, value in values.items():
            state[name][...] = value

    def adjoint_step(self, adjoint: Arrays, tape: Arrays, i: int, /) -> None:
        given = self._given(adjoint, 0), self._given(tape, 0), self._given(self.control, 1)
        found = _called("adjoint", self._adjoint_of, *given, i)
        before, more = _two("adjoint", "dJ/dx_i and dJ/dp", found, i)
        values = self._checked("adjoint", adjoint, before, 0, i)
        added = self._checked("adjoint", self.gradient, more, 1, i) if self._names[1] else {}
        for name, value in values.items():
            adjoint[name][...] = value
        for name, value in added.items():
            self.gradient[name][...] = self.gradient[name] + value

    def tangent_model(self) -> "Functions":
        """Return the model of the pair (x, dx), as `TwiceDifferentiable` says.

        Let a = (p, x) and l be dJ/dx. The adjoint of dx_{i+1} = F'(a) da is l again, because its
        steps are those of the first-order adjoint. That of x_{i+1} = F(a) is the derivative of l
        along the direction, which `second` takes from step to step.
        """
        if self.derivatives is None:
            raise BadInput(
                "functions: a Hessian product needs tangent and second, the derivatives of step and"
                " adjoint; give functions(..., tangent=, second=)"
            )
        tangent, second = self.derivatives

        def step(z: Arrays, q: Arrays, i: int) -> tuple[Tree, Any]:
            (x, dx), (p, dp) = self._halves(z, 0), self._halves(q, 1)
            after, _ = _two("step", "x_{i+1} and j", _called("step", self._step_of, x, p, i), i)
            found = _called("tangent", tangent, x, p, i, dx, dp)
            moved, j = _two("tangent", "dx_{i+1} and dj", found, i)
            return self._pair(("step", after), ("tangent", moved), 0, i), j

        def adjoint(bar: Arrays, z: Arrays, q: Arrays, i: int) -> tuple[Tree, Tree]:
            (dxbar, xbar), (x, dx) = self._halves(bar, 0), self._halves(z, 0)
            p, dp = self._halves(q, 1)
            found = _called("adjoint", self._adjoint_of, xbar, x, p, i)
            bars, of_p = _two("adjoint", "dJ/dx_i and dJ/dp", found, i)
            found = _called("second", second, xbar, x, p, i, dxbar, dx, dp)
            moved, of_dp = _two("second", "the derivatives of both results of adjoint", found, i)
            both = self._pair(("second", moved), ("adjoint", bars), 0, i)
            return both, self._pair(("second", of_dp), ("adjoint", of_p), 1, i)

        trees = ({name: self.control[name] for name in names} for names in self._names)
        x, p = ({**it, **{TANGENT + n: 0 * a for n, a in it.items()}} for it in trees)
        model = Functions((step, adjoint), x, p, (False, False))
        if (shared := self.shared_controls) is not None:
            model.shared_controls = (*shared, *(TANGENT + name for name in shared))
        return model

    def _halves(self, pair: Arrays, which: int) -> tuple[Tree, Tree]:
        """Return both parts of the x (0) or p (1) of a pair."""
        moved = {name: pair[TANGENT + name] for name in self._names[which]}
        return self._given(pair, which), self._given(moved, which)

    def _pair(
        self, one: tuple[str, Tree], other: tuple[str, Tree], which: int, i: int
    ) -> dict[str, Any]:
        """Return what two functions returned for both parts of a pair."""
        first, moved = self._by_name(*one, which, i), self._by_name(*other, which, i)
        return {**first, **{TANGENT + name: value for name, value in moved.items()}}

    def _given(self, arrays: Mapping[str, Array], which: int) -> Tree:
        """Return x (0) or p (1) as its function gets it: read-only."""
        views = {name: arrays[name].view() for name in self._names[which]}
        for view in views.values():
            view.flags.writeable = False
        return next(iter(views.values()), None) if self._single[which] else views

    def _checked(
        self, function: str, like: Mapping[str, Array], returned: Tree, which: int, i: int
    ) -> dict[str, Array]:
        """Return the arrays that a function returned, by name; raises RunFailed if one is wrong."""
        what = f"step {i}: {function} returned"
        values = {
            name: _array(it) for name, it in self._by_name(function, returned, which, i).items()
        }
        for name, value in values.items():
            shape, dtype = like[name].shape, like[name].dtype
            if value.shape != shape or not np.can_cast(value.dtype, dtype, "same_kind"):
                raise RunFailed(
                    f"{what} {name!r} with shape {value.shape} and type {value.dtype}; it must have"
                    f" shape {shape} and type {dtype}"
                )
        # What was returned may be an array that was given, also as a tensor, and would change now.
        given = list(like.values())
        return {
            name: value.copy() if any(np.may_share_memory(value, it) for it in given) else value
            for name, value in values.items()
        }

    def _by_name(self, function: str, returned: Tree, which: int, i: int) -> dict[str, Any]:
        """Return what a function returned by name; raises RunFailed if names are wrong."""
        names, what = self._names[which], f"step {i}: {function} returned"
        if not names:
            return {}
        if self._single[which]:
            return {names[0]: returned}
        if not isinstance(returned, Mapping) or set(returned) != set(names):
            has = describe(returned)
            if isinstance(returned, Mapping) and returned:
                has = f"a dict with the names {', '.join(map(str, returned))}"
            raise RunFailed(
                f"{what} {has}; it must return a dict with the names {', '.join(names)}"
            )
        return {name: returned[name] for name in names}


def _arrays(what: str, tree: Tree) -> dict[str, Array]:
    """Return copies of the arrays of x0 or of the parameters by name."""
    if tree is None:
        return {}
    named = tree if isinstance(tree, Mapping) else {_ALONE[what]: tree}
    arrays = {}
    for name, value in named.items():
        check_unmasked(f"functions: {what}: {name!r}", value)
        try:
            array = np.array(value)
        except (TypeError, ValueError):
            array = np.array(None)
        is_exact = array.dtype.kind in "fc" and array.dtype.itemsize <= _LARGEST[array.dtype.kind]
        if not isinstance(name, str) or name == "J" or not is_exact:
            raise BadInput(
                f"functions: {what}: {name!r} is {describe(value)} of type {array.dtype}; give"
                " floating-point numbers of at most 64 bits, such as 3.0 or np.zeros(8), with"
                " names other than 'J'"
            )
        arrays[name] = array
    return arrays


def _array(value: object) -> Array:
    """Return what a function returned as an array; one of no numbers if it is none."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # such as a tensor that requires its gradient
        return np.array(None)


def _called(name: str, function: Callable[..., Any], /, *given: Any) -> object:
    """Call a function of the user; say why, if it fails because it changes its arguments."""
    try:
        return function(*given)
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        raise RunFailed(
            f"{name} changes an array that it was given ({error}); it must return new arrays, as in"
            " x = x + 1 in place of x += 1"
        ) from error


def _two(function: str, what: str, returned: object, i: int) -> tuple[Any, Any]:
    """Return the two results of a function."""
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise RunFailed(
            f"step {i}: {function} returned {describe(returned)}; it must return two values, as a"
            f" tuple: {what}"
        )
    return returned
