"""Functions that only move entries: each entry of the result is one of an argument, or constant.

Where from is asked of the function itself, done to the numbers of the entries instead of them.
"""

import operator
from typing import Any

import numpy as np

from ckio.programs.tape.memory import Array
from ckio.programs.tape.rules import Path, Pull, Rule, at, refused, replaced

NAMES = frozenset(
    [
        "a",
        "m",
        "x",
        "y",
        "arr",
        "array",
        "arrays",
        "tup",
        "ary",
        "v",
        "A",
        "values",
        "seq",
        "ar",
        "filt",
    ]
)
PADS = ("constant", "edge", "wrap", "reflect", "symmetric")


def gather(*positions: int) -> Rule:
    """The rule of a function whose entries come from the arguments at these positions."""

    def rule(
        perform: Any, result: Any, paths: list[Path], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Pull, Any]:
        for path in paths:
            if path[0] not in positions and path[0] not in NAMES:
                raise refused(
                    f"the derivative in argument {path[0]!r} of a function that moves entries"
                )
        named = {key: it for key, it in kwargs.items() if key not in ("dtype", "constant_values")}
        shapes: dict[Path, tuple[int, ...]] = {}
        template = replaced({}, args, named)
        for path in _data(args, named, positions):
            shapes[path] = np.shape(at(path, args, named))
        template = replaced(dict.fromkeys(shapes), *template)
        shaped = [(at(path, args, kwargs).dtype if hasattr(at(path, args, kwargs), "dtype")
                   else np.dtype(float)) for path in paths]  # fmt: skip
        return _scatter, (perform, _Held(shapes, paths, shaped), *template)

    return rule


def pad(
    perform: Any, result: Any, paths: list[Path], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Pull, Any]:
    """np.pad where it fills with constants, or with entries of the array."""
    mode = args[2] if len(args) > 2 else kwargs.get("mode", "constant")
    if mode not in PADS or kwargs.get("reflect_type", "even") != "even":
        raise refused(f"np.pad with mode {mode!r}")
    return gather(0)(perform, result, paths, args, kwargs)


def ordered(
    perform: Any, result: Any, paths: list[Path], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Pull, Any]:
    """np.sort."""

    def rank(array: Array, axis: int | None = -1, kind: Any = None, **_: Any) -> Any:
        return np.argsort(array, axis=axis, kind=kind)

    order = rank(*args, **kwargs)
    axis = args[1] if len(args) > 1 else kwargs.get("axis", -1)

    def pick(array: Array, order: Array) -> Array:
        flat = array.reshape(-1) if axis is None else array
        return np.take_along_axis(flat, order, -1 if axis is None else axis)

    return gather(0)(pick, result, paths, (args[0], order), {})


class _Held:
    """Shapes by path: no arrays, so that a node keeps none."""

    __slots__ = ("dtypes", "paths", "shapes")

    def __init__(self, shapes: dict[Path, tuple[int, ...]], paths: list[Path], dtypes: Any) -> None:
        self.shapes = shapes
        self.paths = paths
        self.dtypes = dtypes


def _scatter(g: Any, perform: Any, held: _Held, args: Any, kwargs: Any) -> Any:
    numbers: dict[Path, Any] = {}
    spans: dict[Path, tuple[int, int]] = {}
    count = 1
    for path, shape in held.shapes.items():
        size = int(np.prod(shape))
        if path in held.paths:
            numbers[path] = np.arange(count, count + size, dtype=np.intp).reshape(shape)
            spans[path] = count, count + size
            count += size
        else:
            numbers[path] = np.zeros(shape, np.intp)
    args, kwargs = replaced(numbers, args, kwargs)
    source = np.asarray(perform(*args, **kwargs)).ravel()
    flat = np.asarray(g).ravel()
    total = _added(source, flat, count)
    return tuple(
        total[slice(*spans[path])].reshape(held.shapes[path]).astype(
            np.result_type(dtype, total.dtype) if total.dtype.kind == "c" else dtype, copy=False
        )
        for path, dtype in zip(held.paths, held.dtypes, strict=True)
    )  # fmt: skip


def _added(source: Array, values: Array, count: int) -> Array:
    """Sums of values by where they came from."""
    if values.dtype.kind == "c":
        real = np.bincount(source, values.real, count)
        return real + 1j * np.bincount(source, values.imag, count)
    return np.bincount(source, values, count)


def _data(args: tuple[Any, ...], kwargs: dict[str, Any], positions: tuple[int, ...]) -> list[Path]:
    """The paths of all arrays and numbers at these positions."""
    found: list[Path] = []

    def walk(tree: Any, path: Path) -> None:
        if type(tree) in (list, tuple):
            for number, item in enumerate(tree):
                walk(item, (*path, number))
        else:
            found.append(path)

    for number, item in enumerate(args):
        if number in positions:
            walk(item, (number,))
    for key, item in kwargs.items():
        if key in NAMES:
            walk(item, (key,))
    return found


def _rules() -> dict[Any, Rule]:
    one = (
        *(np.roll, np.flip, np.fliplr, np.flipud, np.rot90, np.tile, np.repeat, np.reshape),
        *(np.ravel, np.transpose, np.swapaxes, np.moveaxis, np.rollaxis, np.expand_dims),
        *(np.squeeze, np.broadcast_to, np.take, np.take_along_axis, np.tril, np.triu, np.diag),
        *(np.diagflat, np.diagonal, np.delete, np.resize, np.concatenate, np.stack, np.hstack),
        *(np.vstack, np.dstack, np.column_stack, np.block, np.fft.fftshift, np.fft.ifftshift),
        *(np.matrix_transpose, np.atleast_1d, np.atleast_2d, np.atleast_3d, np.permute_dims),
        operator.getitem,
    )
    rules: dict[Any, Rule] = {function: gather(0) for function in one}
    rules |= {np.where: gather(1, 2), np.append: gather(0, 1), np.pad: pad, np.sort: ordered}
    rules |= {np.compress: gather(1), np.extract: gather(1), np.insert: gather(0, 2)}
    for function in (np.split, np.array_split, np.hsplit, np.vsplit, np.dsplit):
        rules[function] = gather(0)  # views, all of them
    return rules


RULES = _rules()
