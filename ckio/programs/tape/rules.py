"""Rules of derivatives by function of numpy, and the rules of functions that only move entries.

A rule receives a call that was performed and returns (pull, saved). `pull(g, *saved)` returns a
tuple with one cotangent for each argument that has a derivative, from the cotangent g of the
result. A cotangent may have the shape that its argument has after broadcasting. `RULES` has a rule
for each function. Functions that move entries are in this module, and `numerics` and `equivalents`
add the others.
"""

import inspect
import operator
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from ckio.errors import BadInput
from ckio.programs.tape.cells import Array

Path = tuple[int | str, ...]
Pulled = tuple[Callable[..., Any], Any]
Parts = dict[str, tuple[Any, ...]]


class NumpyCall(NamedTuple):
    """A call of a function: its result, its arguments, and the paths to those with a derivative."""

    perform: Callable[..., Any]
    result: Any
    paths: list[Path]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def argument(self, number: int, name: str, default: Any = None) -> Any:
        """Return an argument that may be given by position or by name."""
        return self.args[number] if len(self.args) > number else self.kwargs.get(name, default)


Rule = Callable[[NumpyCall], Pulled]

RULES: Final[dict[Any, Rule]] = {}

_AROUND: Final = {
    "where": "give it u[mask], or neutral other entries: np.where(mask, u, 0) for a sum",
    "initial": "apply the same function to the result and this value",
    "prepend": "join the arrays by np.concatenate first",
    "append": "join the arrays by np.concatenate first",
    "edge_order": "write the one-sided difference, (4 * u[1] - 3 * u[0] - u[2]) / (2 * dx)",
}
"""How to do without keywords for which no rule has a derivative."""

_INSTEAD: Final = {
    "np.average": "write np.sum(weights * u) / np.sum(weights)",
    "np.ptp": "write np.max(u) - np.min(u)",
    "np.nansum": "write np.sum(np.where(np.isnan(u), 0.0, u))",
    "np.nan_to_num": "write np.where(np.isfinite(u), u, 0.0)",
    "np.kron": "use np.einsum('ij,kl->ikjl', u, v), and reshape the result",
    "np.inner": "write u @ v, or u @ v.T",
    "np.tensordot": "use np.einsum",
    "np.meshgrid": "write u[None, :] and v[:, None], or use np.broadcast_to",
    "np.broadcast_arrays": "use np.broadcast_to",
    "np.linspace": "write a + (b - a) * np.linspace(0, 1, n)",
    "np.polyval": "write a loop with y = y * x + c for each coefficient c",
    "np.sinc": "write np.sin(np.pi * u) / (np.pi * u)",
    "np.angle": "write np.arctan2(z.imag, z.real)",
    "np.gradient with several results": "give it one axis: np.gradient(u, dx, axis=0)",
    "np.linalg.slogdet": "write np.log(np.abs(np.linalg.det(a))), or for a large positive definite"
    " matrix 2 * np.sum(np.log(np.diagonal(np.linalg.cholesky(a))))",
    "np.linalg.cross": "use np.cross",
    "np.linalg.outer": "use np.outer",
    "np.linalg.trace": "use np.trace",
    "np.add.reduce": "use np.sum",
    "np.multiply.reduce": "use np.prod",
    "np.maximum.reduce": "use np.max",
    "np.minimum.reduce": "use np.min",
    "np.add.accumulate": "use np.cumsum",
    "np.multiply.accumulate": "use np.cumprod",
    "np.maximum.accumulate": "write a loop with np.maximum",
    "np.minimum.accumulate": "write a loop with np.minimum",
    "np.copysign": "write np.where(v < 0, -np.abs(u), np.abs(u))",
    "np.float_power": "write u ** v",
    "np.heaviside": "write np.where(u < 0, 0.0, 1.0)",
    "np.ldexp": "write u * 2.0 ** k",
    "np.logaddexp2": "write np.log2(2.0**u + 2.0**v)",
    "np.divmod": "write u // v and u % v",
}
"""How to do without functions that have no rule. Others must be wrapped by `primitive`."""


def add(rules: dict[Any, Callable[..., Parts]], /) -> None:
    """Add rules that return {argument: (pull, *saved)} from the result and the named arguments."""
    for function, rule in rules.items():
        RULES[function] = by_name(rule, name_of(function), positional(function))


@cache
def positional(function: Any) -> tuple[str, ...]:
    """Return the names of the arguments of a function that may be given by position."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a few functions in C have no signature
        return {"dot": ("a", "b", "out"), "concatenate": ("arrays", "axis", "out")}.get(
            getattr(function, "__name__", ""), ()
        )
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return tuple(name for name, it in parameters.items() if it.kind in kinds)


def by_name(rule: Callable[..., Parts], name: str, names: tuple[str, ...]) -> Rule:
    """Return a rule with named arguments as a rule of calls; `names` are all its arguments."""

    def full(call: NumpyCall) -> Pulled:
        given = dict(zip(names, call.args, strict=False)) | call.kwargs
        parts = rule(call.result, **check_keywords(name, rule, given))
        wanted = []
        for path in call.paths:
            argument = names[path[0]] if isinstance(path[0], int) else path[0]
            if argument not in parts or len(path) > 1:
                raise BadInput(
                    f"{name} has no rule for the derivative with respect to {argument!r}; wrap it "
                    "by primitive(vjp=...), or give it stop_gradient(x)"
                )
            wanted.append(parts[argument])
        return _each, tuple(wanted)

    return full


def _each(g: Any, *parts: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(pull(g, *saved) for pull, *saved in parts)


def check_keywords(name: str, rule: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the named arguments of a call, without defaults. Raise BadInput for unknown ones."""
    given = {key: it for key, it in given.items() if it is not np._NoValue}  # noqa: SLF001
    if given.get("where") is True:
        del given["where"]
    for key in given.keys() - _parameters(rule):
        raise refusal(f"{name} with {key}=", _AROUND.get(key, ""))
    return given


@cache
def _parameters(rule: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(rule).parameters)


def refusal(name: str, instead: str = "") -> BadInput:
    """Return the error for a function, or a use of one, that has no rule."""
    around = "wrap it by primitive(vjp=...), or give it stop_gradient(x)"
    return BadInput(f"{name} has no rule for derivatives; {instead or _INSTEAD.get(name, around)}")


def name_of(function: Any) -> str:
    """Return the usual name of a function, for example "np.linalg.solve"."""
    module = getattr(function, "__module__", "") or ""
    name = getattr(function, "__name__", str(function))
    return f"{module.replace('numpy', 'np')}.{name}" if module.startswith("numpy") else name


def at(path: Path, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the argument at this path."""
    value: Any = args[path[0]] if isinstance(path[0], int) else kwargs[path[0]]
    for step in path[1:]:
        value = value[step]
    return value


def replace(
    values: dict[Path, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with those at the given paths replaced."""
    return (
        tuple(_replace(values, item, (i,)) for i, item in enumerate(args)),
        {key: _replace(values, item, (key,)) for key, item in kwargs.items()},
    )


def _replace(values: dict[Path, Any], tree: Any, path: Path) -> Any:
    if path in values:
        return values[path]
    if type(tree) in (list, tuple):
        return type(tree)(_replace(values, item, (*path, i)) for i, item in enumerate(tree))
    return tree


# Functions that move entries: each entry of the result is an entry of an argument, or constant. To
# find which one, the function is applied to the numbers of the entries instead of their values.

_NAMES: Final = frozenset((
    "a", "m", "x", "y", "arr", "array", "arrays", "tup", "ary", "v", "A", "values", "seq", "ar",
    "filt",
))  # fmt: skip
"""Names of arguments whose entries are moved."""

_PADS: Final = ("constant", "edge", "wrap", "reflect", "symmetric")


def _gather(*positions: int) -> Rule:
    """Return the rule of a function whose entries come from the arguments at these positions."""

    def rule(call: NumpyCall) -> Pulled:
        for path in call.paths:
            if path[0] not in positions and path[0] not in _NAMES:
                raise refusal(
                    f"the derivative with respect to argument {path[0]!r} of a function that moves"
                    " entries"
                )
        args, kwargs = call.args, call.kwargs
        named = {key: it for key, it in kwargs.items() if key not in ("dtype", "constant_values")}
        paths = [path for n in positions if n < len(args) for path in _paths(args[n], (n,))]
        paths += [path for key in named if key in _NAMES for path in _paths(named[key], (key,))]
        shapes = {path: np.shape(at(path, args, named)) for path in paths}
        dtypes = [getattr(at(path, args, kwargs), "dtype", np.dtype(float)) for path in call.paths]
        template = replace(dict.fromkeys(shapes), args, named)
        return _scatter, (
            call.perform,
            shapes,
            dict(zip(call.paths, dtypes, strict=True)),
            template,
        )

    return rule


def _scatter(g: Any, perform: Any, shapes: Any, dtypes: dict[Path, Any], template: Any) -> Any:
    """Return the cotangent of the argument at each path in `dtypes`.

    The cotangent of each entry of the result is added to that of the entry from which it came.
    """
    numbers: dict[Path, Any] = {}
    spans: dict[Path, slice] = {}
    count = 1
    for path, shape in shapes.items():
        size = int(np.prod(shape))
        if path in dtypes:
            numbers[path] = np.arange(count, count + size, dtype=np.intp).reshape(shape)
            spans[path] = slice(count, count + size)
            count += size
        else:
            numbers[path] = np.zeros(shape, np.intp)
    args, kwargs = replace(numbers, *template)
    source, values = np.asarray(perform(*args, **kwargs)).ravel(), np.asarray(g).ravel()
    total: Any = np.bincount(source, values.real, count)
    if values.dtype.kind == "c":
        total = total + 1j * np.bincount(source, values.imag, count)
    parts = []
    for path, dtype in dtypes.items():
        part = total[spans[path]].reshape(shapes[path])
        wide = np.result_type(dtype, total.dtype) if total.dtype.kind == "c" else dtype
        parts.append(part.astype(wide, copy=False))
    return tuple(parts)


def _paths(tree: Any, path: Path) -> list[Path]:
    """Return the paths of all arrays and numbers in an argument."""
    if type(tree) not in (list, tuple):
        return [path]
    return [inner for n, item in enumerate(tree) for inner in _paths(item, (*path, n))]


def _sort(call: NumpyCall) -> Pulled:
    def rank(array: Array, axis: int | None = -1, kind: Any = None, **_: Any) -> Any:
        return np.argsort(array, axis=axis, kind=kind)

    order, axis = rank(*call.args, **call.kwargs), call.argument(1, "axis", -1)

    def pick(array: Array, order: Array) -> Array:
        flat = array.reshape(-1) if axis is None else array
        return np.take_along_axis(flat, order, -1 if axis is None else axis)

    return _gather(0)(call._replace(perform=pick, args=(call.args[0], order), kwargs={}))


_ONE: Final = (
    *(np.roll, np.flip, np.fliplr, np.flipud, np.rot90, np.tile, np.repeat, np.reshape),
    *(np.ravel, np.transpose, np.swapaxes, np.moveaxis, np.rollaxis, np.expand_dims),
    *(np.squeeze, np.broadcast_to, np.take, np.take_along_axis, np.tril, np.triu, np.diag),
    *(np.diagflat, np.diagonal, np.delete, np.resize, np.concatenate, np.stack, np.hstack),
    *(np.vstack, np.dstack, np.column_stack, np.block, np.fft.fftshift, np.fft.ifftshift),
    *(np.matrix_transpose, np.atleast_1d, np.atleast_2d, np.atleast_3d, np.permute_dims),
    *(np.split, np.array_split, np.hsplit, np.vsplit, np.dsplit, operator.getitem),
)

RULES.update({function: _gather(0) for function in _ONE})
RULES.update({np.append: _gather(0, 1), np.insert: _gather(0, 2), np.sort: _sort})
RULES.update({np.compress: _gather(1), np.extract: _gather(1)})


# Functions whose pull can be written directly, which is faster than `_gather`.


def _roll(call: NumpyCall) -> Pulled:
    if any(path not in ((0,), ("a",)) for path in call.paths):
        raise refusal("np.roll with a shift that has a derivative")

    def rolled(a: Any, shift: Any, axis: Any = None) -> Pulled:
        axes = axis if axis is None or np.ndim(axis) else (axis,) * np.size(shift)
        return _rolled, (tuple(-np.ravel(shift).astype(int)), axes)

    return rolled(*call.args, **call.kwargs)


def _rolled(g: Any, back: Any, axis: Any) -> Any:
    return (np.roll(g, sum(back) if axis is None else back, axis),)


def _where(call: NumpyCall) -> Pulled:
    return _chosen, (np.asarray(call.args[0], bool), [path[0] for path in call.paths])


def _chosen(g: Any, condition: Any, wanted: list[int]) -> Any:
    parts: dict[int, Any] = {0: lambda: None, 1: lambda: np.where(condition, g, 0),
             2: lambda: np.where(condition, 0, g)}  # fmt: skip
    return tuple(parts[number]() for number in wanted)


def _join(function: Callable[..., Any]) -> Rule:
    """Return the rule of a function that joins arrays along an axis."""
    name, general = function.__name__, RULES[function]

    def rule(call: NumpyCall) -> Pulled:
        items: Any = call.args[0] if call.args else None
        axis = call.argument(1, "axis", 0)
        if type(items) not in (list, tuple) or axis is None or call.kwargs.keys() - {"axis"}:
            return general(call)
        shapes, ndim = [np.shape(item) for item in items], call.result.ndim
        axes = {"hstack": int(len(shapes[0]) > 1), "vstack": 0, "column_stack": 1}
        axis = axes.get(name, axis % ndim)
        cuts: list[Any] = list(range(len(shapes)))
        if name != "stack":
            lengths = [shape[axis] if len(shape) == ndim else 1 for shape in shapes]
            ends = np.cumsum(lengths).tolist()
            cuts = [slice(end - n, end) for n, end in zip(lengths, ends, strict=True)]
        ahead, numbers = (slice(None),) * axis, [int(path[1]) for path in call.paths]
        return _cut, [((*ahead, cuts[number]), shapes[number]) for number in numbers]

    return rule


def _cut(g: Any, *parts: tuple[Any, tuple[int, ...]]) -> Any:
    return tuple(g[cut].reshape(shape) for cut, shape in parts)


def _pad(call: NumpyCall) -> Pulled:
    mode = call.argument(2, "mode", "constant")
    if mode not in _PADS or call.kwargs.get("reflect_type", "even") != "even":
        raise refusal(f"np.pad with mode {mode!r}")
    general, width = _gather(0)(call), call.argument(1, "pad_width")
    if mode != "constant" or isinstance(width, dict):
        return general
    shape = np.shape(call.argument(0, "array"))
    before = np.broadcast_to(width, (len(shape), 2))[:, 0].tolist()
    return _cut, [(tuple(slice(b, b + n) for b, n in zip(before, shape, strict=True)), shape)]


RULES.update({np.roll: _roll, np.where: _where, np.pad: _pad})
RULES.update({
    function: _join(function)
    for function in (np.concatenate, np.stack, np.hstack, np.vstack, np.column_stack)
})  # fmt: skip
