"""Operations on traced values. They are performed on plain values and recorded on the tape."""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ckio.errors import BadInput
from ckio.programs.tape.cells import FLOATS, Array, ViewSlot, root, view_in
from ckio.programs.tape.rules import RULES, NumpyCall, Path, name_of, positional, refusal
from ckio.programs.tape.tape import Value
from ckio.programs.tape.ufuncs import CONSTANT, PULLS

Operation = Callable[..., Any]

NUMBERS = frozenset((int, float, complex, np.float64))
"""Types of constants that need not be copied."""

_INDEX = (int, np.integer, slice, type(None), type(Ellipsis))
"""Types of indices with which NumPy returns views."""

_ATOMS = frozenset((int, float, bool, str, type(None)))
"""Types of values that contain no other values."""


# Arguments, traced and plain


def traced(value: Any) -> bool:
    """Return whether this is a traced value. `__class__` is that of the plain value instead."""
    return isinstance(value, Value)


def plain(value: Any) -> Any:
    """Return a value with traced values replaced by plain ones, also in lists, tuples and dicts."""
    if traced(value):
        return value.value
    if type(value) in (list, tuple):
        return type(value)(plain(item) for item in value)
    if type(value) is dict:
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(plain(value.start), plain(value.stop), plain(value.step))
    return value


def leaves_of(tree: Any) -> Iterator[Any]:
    """Yield the traced values in arguments."""
    if traced(tree):
        yield tree
    elif type(tree) in (list, tuple):
        for item in tree:
            yield from leaves_of(item)
    elif type(tree) is dict:
        yield from leaves_of(list(tree.values()))


def _open(it: Any, path: Path, leaves: list[tuple[Path, Any]], arrays: list[Array]) -> Any:
    """Return an argument with plain values, and append traced values and arrays to the lists.

    This is not a closure, because a recursive closure is a reference cycle, which would keep tapes
    alive until the next garbage collection.
    """
    kind = type(it)
    if kind in _ATOMS:
        return it
    if isinstance(it, Value):
        leaves.append((path, it))
        return it.value
    if kind is np.ndarray:
        arrays.append(it)
    elif kind is list or kind is tuple:
        return kind([_open(item, (*path, i), leaves, arrays) for i, item in enumerate(it)])
    elif kind is dict:
        return {key: _open(item, (*path, key), leaves, arrays) for key, item in it.items()}
    elif kind is slice:
        return plain(it)
    return it


def _settle(tape: Any, saved: Any, foreign: set[int]) -> Any:
    """Return the values that a node saves, with copies of arrays that the program may change."""
    if isinstance(saved, np.ndarray):
        return tape.safe(saved) if id(root(saved)) in foreign else saved
    if type(saved) in (list, tuple):
        return type(saved)(_settle(tape, item, foreign) for item in saved)
    if type(saved) is dict:
        return {key: _settle(tape, item, foreign) for key, item in saved.items()}
    return saved


def basic(index: Any) -> bool:
    """Return whether numpy returns a view for this index."""
    if type(index) is slice or type(index) is int:
        return True
    kinds = index if type(index) is tuple else (index,)
    return all(isinstance(it, _INDEX) and not isinstance(it, bool) for it in kinds)


def viewing_index(index: Any) -> tuple[Any, ...]:
    """Return an index that selects the same, but returns an array of shape () for a number."""
    if type(index) is slice:
        return index, ...
    index = index if type(index) is tuple else (index,)
    return index if any(it is Ellipsis for it in index) else (*index, ...)


def fixed_index(tape: Any, index: Any) -> Any:
    """Return an index that the program cannot change."""
    if isinstance(index, list):
        return np.array(index)
    if type(index) is tuple:
        return tuple(fixed_index(tape, it) for it in index)
    return tape.safe(index)


def as_array(value: Any) -> Any:
    """Return lists as arrays."""
    return np.array(value) if isinstance(value, list | tuple) else value


def with_named_out(
    function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments, with `out` as a keyword argument if it is given."""
    names = positional(function)
    position = names.index("out") if "out" in names else len(args)
    if len(args) <= position:
        return tuple(args), dict(kwargs)
    behind = dict(zip(names[position:], args[position:], strict=False))
    return tuple(args[:position]), {**kwargs, **behind}


def single(value: Any) -> Any:
    """Return a value to write. Raise BadInput for a list of traced values."""
    if not traced(value) and any(True for _ in leaves_of(value)):
        raise BadInput("a list of traced values would lose their derivatives; use np.stack")
    return value


def common_tape(values: Sequence[Any]) -> Any:
    """Return the tape of these values. Raise BadInput if they are on different tapes."""
    tape = values[0].tape
    for it in values:
        if it.tape is not tape:
            raise BadInput(
                "an operation has values of two tapes; use stop_gradient(x) for those of one tape"
            )
    return tape


def target_of(out: Any) -> Any:
    """Return the target of a write. Raise BadInput if it cannot have a derivative."""
    if not traced(out) or out.cell is None:
        raise BadInput(
            "traced values cannot be written into a plain array; create the array by"
            " np.zeros_like(u), or within a @program, or write stop_gradient(x)"
        )
    return out


def differentiable(result: Any) -> bool:
    """Return whether a result can have a derivative."""
    if type(result) is np.ndarray:
        return result.dtype.kind in "fc"
    return isinstance(result, float | complex | np.inexact)


def same(g: Any) -> Any:
    """Return the cotangent. This is the pull of an operation that copies entries."""
    return g


# Ufuncs, and the equivalent operators of Python


def unary(perform: Callable[..., Any], key: np.ufunc) -> Operation:
    """Return a ufunc of one operand, or the equivalent operator, for a traced operand."""
    if key is np.sign:
        return _sign
    pull = None if key in CONSTANT else PULLS[key][0]
    if pull is None:
        return lambda x: constant(perform(x.value), x.tape)
    take, save = pull.pull, pull.save

    def operation(x: Any) -> Any:
        if x.cell is None:  # a shorter path for numbers
            value = x.held
            result = perform(value)
            if type(result) in FLOATS:
                return x.tape.record_number(result, take, save(result, value, None), x.place)
            return x.tape.record_result(result, take, save(result, value, None), x.place)
        value, place = x.value, x.place
        result = perform(value)
        if place is None or not differentiable(result):
            return constant(result, x.tape)
        return x.tape.record_result(result, take, save(result, value, None), place)

    return operation


def _sign(x: Any) -> Any:
    if np.iscomplexobj(x.value):
        raise refusal("np.sign of complex numbers", "write z / np.abs(z)")
    return constant(np.sign(x.value), x.tape)


def binary(perform: Callable[..., Any], key: np.ufunc) -> Operation:
    """Return a ufunc of two operands, or the equivalent operator, if one or both are traced."""
    if key in CONSTANT:
        return lambda x, y: constant(
            perform(plain(x), plain(y)), common_tape([it for it in (x, y) if traced(it)])
        )
    left, right, both = PULLS[key]
    take, save = (left.pull, left.save) if left else (same, None)
    take_both, save_both = (both.pull, both.save) if both else (same, None)

    def operation(x: Any, y: Any) -> Any:  # noqa: PLR0912 - the hot path, in one piece
        chosen: Any
        into: Any
        if isinstance(x, Value):
            if x.cell is None:  # a shorter path for numbers
                a, kind = x.held, type(y)
                if kind in NUMBERS and save is not None:
                    result = perform(a, y)
                    if type(result) in FLOATS:
                        saved = save(result, a, y)
                        return x.tape.record_number(result, take, saved, x._place)  # noqa: SLF001
                elif kind is type(x) and y.cell is None and y.tape is x.tape and save_both:
                    result = perform(a, y.held)
                    if type(result) in FLOATS:
                        saved = save_both(result, a, y.held)
                        into = (x._place, y._place)  # noqa: SLF001
                        return x.tape.record_number(result, take_both, saved, into)
            tape, a, into, chosen = x.tape, x.value, x.place, left
            if isinstance(y, Value):
                b, place = y.value, y.place
                if y.tape is not tape:
                    common_tape((x, y))
                if into is None:
                    into, chosen = place, right
                elif place is not None:
                    into, chosen = (into, place), both
            else:
                b = y
        else:
            tape, a, b, into, chosen = y.tape, x, y.value, y.place, right
        result = perform(a, b)
        if into is None or chosen is None or not differentiable(result):
            return constant(result, tape)
        if b is y and type(b) not in NUMBERS and "y" in chosen.names:
            b = tape.safe(as_array(b))
        elif a is x and type(a) not in NUMBERS and "x" in chosen.names:
            a = tape.safe(as_array(a))
        return tape.record_result(result, chosen.pull, chosen.save(result, a, b), into)

    return operation


def operation(perform: Callable[..., Any], key: np.ufunc) -> Operation:
    """Return a ufunc of one or two operands, or the equivalent operator, for traced operands."""
    return unary(perform, key) if key.nin == 1 else binary(perform, key)


OPERATIONS: dict[np.ufunc, Operation] = {
    key: operation(key, key) for key in (*PULLS, *CONSTANT) if key.nin <= 2
}


# Functions of any kind


def call(
    perform: Callable[..., Any], key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Perform a function, and record it with the rule of `key`. Raise BadInput without a rule."""
    out = kwargs.pop("out", None)
    if out is not None:
        out = out[0] if isinstance(out, tuple) else out
        result = call(perform, key, args, kwargs)
        target_of(out)[...] = result
        return out
    leaves: list[tuple[Path, Any]] = []
    arrays: list[Array] = []
    values = tuple([_open(it, (i,), leaves, arrays) for i, it in enumerate(args)])
    named = {key: _open(it, (key,), leaves, arrays) for key, it in kwargs.items()}
    if not leaves:
        return perform(*values, **named)
    tape = common_tape([it for _, it in leaves])
    rule = RULES.get(key)
    if rule is None:
        raise refusal(name_of(key))
    result = perform(*values, **named)
    shared = _shared(result, leaves)
    if shared is not None:
        return shared
    operands = [(path, it) for path, it in leaves if it.place is not None]
    if operands and isinstance(result, tuple | list):
        raise refusal(f"{name_of(key)} with several results")
    if not operands or not differentiable(result):
        return constant(result, tape)
    pull, saved = rule(NumpyCall(perform, result, [path for path, _ in operands], values, named))
    if arrays:
        own = {id(root(it.value)) for _, it in leaves if it.cell is not None}
        saved = _settle(tape, saved, {id(root(it)) for it in arrays} - own)
    return tape.record_result(result, pull, saved, tuple([it.place for _, it in operands]))


def _shared(result: Any, leaves: list[Any]) -> Any:
    """Return results that are views of an operand's memory, or None if they are not."""
    if isinstance(result, list | tuple) and result:
        items = [_shared(item, leaves) for item in result]
        return None if any(it is None for it in items) else type(result)(items)
    if type(result) is np.ndarray and result.dtype.kind in "fc":
        owner = root(result)
        for _, it in leaves:
            if it.cell is not None and root(it.cell.memory) is owner:
                return it.tape.viewing(it.cell, result)
    return None


def constant(result: Any, tape: Any) -> Any:
    """Return a result without a derivative. Float arrays are traced, for writes into them."""
    if type(result) is np.ndarray:
        if result.dtype.kind in "fc":
            return tape.result(result, None)
        if result.dtype.kind == "O":
            raise refusal("an array of objects")
        return result
    if isinstance(result, tuple):
        items = [constant(item, tape) for item in result]
        return type(result)(*items) if hasattr(result, "_fields") else tuple(items)
    return [constant(item, tape) for item in result] if type(result) is list else result


def getitem(x: Any, index: Any) -> Any:
    """Return a part of an array. It is in the same memory if numpy returns a view."""
    cell = x.cell
    if cell is None:
        return call(operator.getitem, operator.getitem, (x, plain(index)), {})
    simple = basic(index)
    if not simple:
        index = plain(index)
        simple = basic(index)
    result = x.value[index]
    if type(result) is np.ndarray and simple and result.dtype.kind in "fc":
        return x.tape.viewing(cell, result)
    place = x.place
    if place is None or not differentiable(result):
        return constant(result, x.tape)
    if simple:
        element = ViewSlot(place.slot, view_in(cell.memory, x.value[viewing_index(index)]))
        return x.tape.record_result(result, same, (), element)
    saved = x.value.shape, x.value.dtype, fixed_index(x.tape, index)
    return x.tape.record_result(result, _scatter, saved, place)


def _scatter(g: Any, shape: tuple[int, ...], dtype: Any, index: Any) -> Any:
    buffer = np.zeros(shape, dtype)
    if type(index) is np.ndarray and index.dtype == bool:
        buffer[index] = g
    else:
        np.add.at(buffer, index, g)
    return buffer
