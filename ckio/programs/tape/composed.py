"""Functions that give several arrays, each of which is that of a simpler one."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ckio.programs.tape.arguments import plain


def _gradient(f: Any, *spacing: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Along each axis by itself."""
    ndim = np.ndim(plain(f))
    axes = range(ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    one = isinstance(axis, int) or len(axes) == 1
    apart = [1.0] * len(axes) if not spacing else spacing * (len(axes) if len(spacing) == 1 else 1)
    if len(apart) != len(axes) or (len(spacing) == 1 and np.ndim(plain(spacing[0])) and not one):
        refused: Any = np.gradient
        refused(plain(f), *plain(spacing), axis=axis, edge_order=edge_order)  # raises
    found = [
        along(f, *((h,) if spacing else ()), axis=i, edge_order=edge_order)
        for h, i in zip(apart, axes, strict=True)
    ]
    return found[0] if one else tuple(found)


def along(f: Any, *spacing: Any, axis: int, edge_order: int) -> Any:
    """np.gradient along one axis."""
    from ckio.programs.tape.apply import call

    named = {"axis": axis, "edge_order": edge_order}
    return call(np.gradient, np.gradient, (f, *spacing), named)


def _broadcast_arrays(*arrays: Any, subok: bool = False) -> Any:
    shape = np.broadcast_shapes(*(np.shape(plain(it)) for it in arrays))
    found = [np.broadcast_to(it, shape) for it in arrays]
    return tuple(found)


def _meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    spread = []
    for number, x in enumerate(xi):
        shape = [1] * len(xi)
        shape[number] = -1
        spread.append(np.reshape(x, tuple(shape)))
    if indexing == "xy" and len(xi) > 1:
        spread = [np.swapaxes(it, 0, 1) for it in spread]
    if not sparse:
        spread = list(_broadcast_arrays(*spread))
    return tuple(np.copy(it, order="C") if copy else it for it in spread)


COMPOSED: dict[Any, Callable[..., Any]] = {
    np.gradient: _gradient,
    np.broadcast_arrays: _broadcast_arrays,
    np.meshgrid: _meshgrid,
}
"""What is done instead, to traced arguments."""
