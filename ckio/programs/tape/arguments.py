"""Arguments of traced operations: what of them is traced, and what they are without."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NoReturn

import numpy as np

from ckio.errors import BadInput
from ckio.programs.tape.memory import Array, root
from ckio.programs.tape.rules import Path
from ckio.programs.tape.values import Value

INDEX = (int, np.integer, slice, type(None), type(Ellipsis))
"""What views are made by."""


ATOMS = frozenset((int, float, bool, str, type(None)))
"""What has nothing in it."""


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


def given(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], list[tuple[Path, Any]], list[Array]]:
    """Arguments as plain values, what of them is traced, with its paths, and their plain arrays."""
    leaves: list[tuple[Path, Any]] = []
    arrays: list[Array] = []

    def opened_up(it: Any, path: Path) -> Any:
        kind = type(it)
        if kind in ATOMS:
            return it
        if isinstance(it, Value):
            leaves.append((path, it))
            return it.value
        if kind is np.ndarray:
            arrays.append(it)
        elif kind is list or kind is tuple:
            return kind([opened_up(item, (*path, i)) for i, item in enumerate(it)])
        elif kind is dict:
            return {key: opened_up(item, (*path, key)) for key, item in it.items()}
        elif kind is slice:
            return plain(it)
        return it

    values = tuple([opened_up(it, (i,)) for i, it in enumerate(args)])
    return values, {key: opened_up(it, (key,)) for key, it in kwargs.items()}, leaves, arrays


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
    if type(index) is slice or type(index) is int:
        return True
    kinds = index if type(index) is tuple else (index,)
    return all(isinstance(it, INDEX) and not isinstance(it, bool) for it in kinds)


def opened(index: Any) -> tuple[Any, ...]:
    """The same index so that it gives an array, of no dimensions perhaps, rather than a number."""
    if type(index) is slice:
        return index, ...
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


@cache
def _names(function: Any) -> tuple[str, ...]:
    """The names of the arguments of a function that may be given without."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # of a few that are not written in Python
        return {"dot": ("a", "b", "out"), "concatenate": ("arrays", "axis", "out")}.get(
            getattr(function, "__name__", ""), ()
        )
    positional = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return tuple(name for name, it in parameters.items() if it.kind in positional)


def with_named_out(
    function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of which `out`, if it is given, is given by name."""
    names = _names(function)
    position = names.index("out") if "out" in names else len(args)
    if len(args) <= position:
        return tuple(args), dict(kwargs)
    behind = dict(zip(names[position:], args[position:], strict=False))
    return tuple(args[:position]), {**kwargs, **behind}


def single(value: Any) -> Any:
    """A value to be written; lists of traced ones have nobody to take their derivatives."""
    if not traced(value) and any(True for _ in leaves_of(value)):
        raise BadInput("a list of traced values would lose their derivatives: use np.stack")
    return value


def common_tape(values: Sequence[Any]) -> Any:
    """The tape of these values, of which there is one."""
    tape = values[0].tape
    for it in values:
        if it.tape is not tape:
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
    if type(result) is np.ndarray:
        return result.dtype.kind in "fc"
    return isinstance(result, float | complex | np.inexact)


def same(g: Any) -> Any:
    """The pull of what leaves entries as they are."""
    return g
