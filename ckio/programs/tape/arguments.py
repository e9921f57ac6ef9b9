"""Arguments of traced operations: what of them is traced, and what they are without."""

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from ckio.errors import BadInput
from ckio.programs.tape.memory import Array, root
from ckio.programs.tape.rules import Path
from ckio.programs.tape.values import Value

INDEX = (int, np.integer, slice, type(None), type(Ellipsis))
"""What views are made by."""


def traced(value: Any) -> bool:
    """Whether this is a traced value; its class says otherwise on purpose."""
    return isinstance(value, Value)


def plain(value: Any) -> Any:
    """The same with plain values for traced ones, in lists, tuples and dicts too."""
    if traced(value):
        return value.value
    if type(value) in (list, tuple):
        return type(value)(plain(item) for item in value)
    if type(value) is dict:
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(plain(value.start), plain(value.stop), plain(value.step))
    return value


def refuse(name: str, instead: str = "") -> NoReturn:
    """Say that there is no rule."""
    raise BadInput(
        f"{name} has no rule for derivatives; "
        + (instead or "wrap it by primitive(vjp=...), or give it stop_gradient(x)")
    )


def leaves_of(tree: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Traced values in arguments, with their paths: those of (args, kwargs) begin behind these."""
    if traced(tree):
        yield path[1:], tree
    elif type(tree) in (list, tuple):
        for number, item in enumerate(tree):
            yield from leaves_of(item, (*path, number))
    elif type(tree) is dict:
        for key, item in tree.items():
            yield from leaves_of(item, (*path, key))


def arrays_of(tree: Any) -> Iterator[Array]:
    """Plain arrays in arguments."""
    if isinstance(tree, np.ndarray):
        yield tree
    elif type(tree) in (list, tuple):
        for item in tree:
            yield from arrays_of(item)
    elif type(tree) is dict:
        yield from arrays_of(list(tree.values()))


def settled(tape: Any, saved: Any, foreign: set[int]) -> Any:
    """What a node saves, with copies of the arrays that anybody may write into."""
    if isinstance(saved, np.ndarray):
        return tape.safe(saved) if id(root(saved)) in foreign else saved
    if type(saved) in (list, tuple):
        return type(saved)(settled(tape, item, foreign) for item in saved)
    if type(saved) is dict:
        return {key: settled(tape, item, foreign) for key, item in saved.items()}
    return saved


def basic(index: Any) -> bool:
    """Whether numpy makes a view by this index."""
    kinds = index if type(index) is tuple else (index,)
    return all(isinstance(it, INDEX) and not isinstance(it, bool) for it in kinds)


def opened(index: Any) -> tuple[Any, ...]:
    """The same index so that it gives an array, of no dimensions perhaps, rather than a number."""
    index = index if type(index) is tuple else (index,)
    return index if any(it is Ellipsis for it in index) else (*index, ...)


def fixed_index(tape: Any, index: Any) -> Any:
    """An index that stays as it is."""
    if isinstance(index, list):
        return np.array(index)
    return (
        tuple(fixed_index(tape, it) for it in index) if type(index) is tuple else tape.safe(index)
    )


def name_of(function: Any) -> str:
    """The name of a function, as people write it."""
    module = getattr(function, "__module__", "") or ""
    name = getattr(function, "__name__", str(function))
    return f"{module.replace('numpy', 'np')}.{name}" if module.startswith("numpy") else name


def as_array(value: Any) -> Any:
    """Lists as arrays."""
    return np.array(value) if isinstance(value, list | tuple) else value


def common_tape(values: Sequence[Any]) -> Any:
    """The tape of these values, of which there is one."""
    tape = values[0].tape
    if any(it.tape is not tape for it in values):
        raise BadInput("values of two tapes meet; use stop_gradient(x) on those of one")
    return tape


def target_of(out: Any) -> Any:
    """What is written into, if it can hold derivatives."""
    if not traced(out) or out.cell is None:
        raise BadInput(
            "a plain array cannot take traced values: make it by np.zeros_like(u), or within a "
            "@program, or write stop_gradient(x)"
        )
    return out


def differentiable(result: Any) -> bool:
    """Whether a result can have a derivative."""
    if isinstance(result, np.ndarray):
        return result.dtype.kind in "fc"
    return isinstance(result, float | complex | np.inexact)


def same(g: Any) -> Any:
    """The pull of what leaves entries as they are."""
    return g
