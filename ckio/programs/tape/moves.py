"""Functions that move entries, of which the way back is as short as the way there.

What is not said here, the rule of `gathers` knows, which asks the function itself.
"""

from typing import Any

import numpy as np

from ckio.programs.tape.gathers import RULES as GATHERS
from ckio.programs.tape.gathers import pad
from ckio.programs.tape.memory import Array
from ckio.programs.tape.rules import Path, Pull, Rule, refused

Found = tuple[Pull, Any]
Arguments = tuple[Any, ...]
Named = dict[str, Any]


def _roll(perform: Any, result: Any, paths: list[Path], args: Arguments, kwargs: Named) -> Found:
    if any(path not in ((0,), ("a",)) for path in paths):
        raise refused("np.roll by a shift that has a derivative")

    def taken(a: Any, shift: Any, axis: Any = None) -> Found:
        return _rolled, (tuple(-np.ravel(shift).astype(int)), _axes(shift, axis))

    return taken(*args, **kwargs)


def _axes(shift: Any, axis: Any) -> Any:
    """Axes as many as shifts; None where there is no axis."""
    if axis is None or np.ndim(axis):
        return axis
    return (axis,) * np.size(shift)


def _rolled(g: Any, back: Any, axis: Any) -> Any:
    return (np.roll(g, sum(back) if axis is None else back, axis),)


def _where(perform: Any, result: Any, paths: list[Path], args: Arguments, kwargs: Named) -> Found:
    return _chosen, (np.asarray(args[0], bool), [path[0] for path in paths])


def _chosen(g: Any, condition: Any, wanted: list[int]) -> Any:
    parts: dict[int, Any] = {0: lambda: None, 1: lambda: np.where(condition, g, 0),
             2: lambda: np.where(condition, 0, g)}  # fmt: skip
    return tuple(parts[number]() for number in wanted)


def _joined(kind: str) -> Rule:
    """Arrays behind each other: along a given axis, a new one, or that of hstack and the others."""

    def rule(perform: Any, result: Any, paths: list[Path], args: Arguments, kwargs: Named) -> Found:
        items: Any = args[0] if args else None
        axis = args[1] if len(args) > 1 else kwargs.get("axis", 0)
        if type(items) not in (list, tuple) or axis is None or kwargs.keys() - {"axis"}:
            return GATHERS[_NAMES[kind]](perform, result, paths, args, kwargs)
        shapes = [np.shape(item) for item in items]
        match kind:
            case "stack":
                ahead = (slice(None),) * (axis % result.ndim)
                return _parts, [((*ahead, path[1]), shapes[int(path[1])]) for path in paths]
            case "hstack":
                axis = 1 if len(shapes[0]) > 1 else 0
            case "vstack":
                axis = 0
            case "column_stack":
                axis = 1
            case _:
                axis %= result.ndim
        ends = np.cumsum([_length(shape, axis, result.ndim, kind) for shape in shapes])
        cuts = [slice(end - _length(s, axis, result.ndim, kind), end)
                for s, end in zip(shapes, ends.tolist(), strict=True)]  # fmt: skip
        ahead = (slice(None),) * axis
        return _parts, [((*ahead, cuts[int(path[1])]), shapes[int(path[1])]) for path in paths]

    return rule


def _length(shape: tuple[int, ...], axis: int, ndim: int, kind: str) -> int:
    """Of an array along the axis, once it has as many dimensions as the result."""
    if len(shape) == ndim:
        return shape[axis]
    return 1


def _parts(g: Any, *parts: tuple[Any, tuple[int, ...]]) -> Any:
    return tuple(g[cut].reshape(shape) for cut, shape in parts)


def _pad(perform: Any, result: Any, paths: list[Path], args: Arguments, kwargs: Named) -> Found:
    found = pad(perform, result, paths, args, kwargs)  # refuses what it must

    def taken(array: Array, pad_width: Any, mode: str = "constant", **_: Any) -> Found:
        if mode != "constant" or isinstance(pad_width, dict):
            return found
        before = np.broadcast_to(pad_width, (np.ndim(array), 2))[:, 0].tolist()
        cuts = [slice(b, b + n) for b, n in zip(before, np.shape(array), strict=True)]
        return _parts, [(tuple(cuts), np.shape(array))]

    return taken(*args, **kwargs)


def _diff(perform: Any, result: Any, paths: list[Path], args: Arguments, kwargs: Named) -> Found:
    def taken(a: Any, n: int = 1, axis: int = -1) -> Found:
        return _differences, (np.shape(a), n, axis)

    return taken(*args, **kwargs)


def _differences(g: Any, shape: tuple[int, ...], n: int, axis: int) -> Any:
    for _ in range(n):
        longer = list(g.shape)
        longer[axis] += 1
        found = np.zeros(longer, g.dtype)
        turned = np.moveaxis(found, axis, -1)
        turned[..., 1:] += np.moveaxis(g, axis, -1)
        turned[..., :-1] -= np.moveaxis(g, axis, -1)
        g = found
    return (g,)


_NAMES = {
    "concatenate": np.concatenate, "stack": np.stack, "hstack": np.hstack, "vstack": np.vstack,
    "column_stack": np.column_stack,
}  # fmt: skip

RULES: dict[Any, Rule] = {
    np.roll: _roll, np.where: _where, np.pad: _pad,
} | {function: _joined(kind) for kind, function in _NAMES.items()}  # fmt: skip


def diff(otherwise: Rule) -> Rule:
    """The rule of np.diff; `otherwise` is for what is put before and behind."""

    def rule(perform: Any, result: Any, paths: list[Path], args: Arguments, kwargs: Named) -> Found:
        if len(args) > 3 or kwargs.keys() - {"n", "axis"}:
            return otherwise(perform, result, paths, args, kwargs)
        return _diff(perform, result, paths, args, kwargs)

    return rule
