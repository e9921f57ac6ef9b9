"""Operations on traced values: done on the plain ones, then recorded on their tape."""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from ckio.errors import BadInput
from ckio.programs.tape.cells import FLOATS, Array, ViewSlot, root, view_in
from ckio.programs.tape.rules import RULES, SEVERAL, NumpyCall, Path, name_of, positional
from ckio.programs.tape.tape import Value
from ckio.programs.tape.ufuncs import CONSTANT, PULLS

Operation = Callable[..., Any]

NUMBERS = frozenset((int, float, complex, np.float64))
"""Constants that need not be copied."""

_INDEX = (int, np.integer, slice, type(None), type(Ellipsis))
"""Functions that return views."""

_ATOMS = frozenset((int, float, bool, str, type(None)))
"""Types of values that hold no others."""


# Arguments: which of them are traced, and what they are without


def traced(value: Any) -> bool:
    """Whether this is a traced value; its class says otherwise on purpose."""
    return isinstance(value, Value)


def plain(value: Any) -> Any:
    """Return a value with plain values for traced ones, in lists, tuples and dicts too."""
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


def leaves_of(tree: Any) -> Iterator[Any]:
    """Return the traced values in arguments."""
    if traced(tree):
        yield tree
    elif type(tree) in (list, tuple):
        for item in tree:
            yield from leaves_of(item)
    elif type(tree) is dict:
        yield from leaves_of(list(tree.values()))


def _opened(it: Any, path: Path, leaves: list[tuple[Path, Any]], arrays: list[Array]) -> Any:
    """Return a plain argument; traced values, with their paths, and arrays are put into the lists.

    It is no closure, as the cycle in one would keep tapes alive until the next garbage collection.
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
        return kind([_opened(item, (*path, i), leaves, arrays) for i, item in enumerate(it)])
    elif kind is dict:
        return {key: _opened(item, (*path, key), leaves, arrays) for key, item in it.items()}
    elif kind is slice:
        return plain(it)
    return it


def _settled(tape: Any, saved: Any, foreign: set[int]) -> Any:
    """Return what a node saves, with copies of the arrays that anybody may write into."""
    if isinstance(saved, np.ndarray):
        return tape.safe(saved) if id(root(saved)) in foreign else saved
    if type(saved) in (list, tuple):
        return type(saved)(_settled(tape, item, foreign) for item in saved)
    if type(saved) is dict:
        return {key: _settled(tape, item, foreign) for key, item in saved.items()}
    return saved


def basic(index: Any) -> bool:
    """Whether numpy makes a view by this index."""
    if type(index) is slice or type(index) is int:
        return True
    kinds = index if type(index) is tuple else (index,)
    return all(isinstance(it, _INDEX) and not isinstance(it, bool) for it in kinds)


def viewing_index(index: Any) -> tuple[Any, ...]:
    """Return an index that gives an array, of no dimensions perhaps, rather than a number."""
    if type(index) is slice:
        return index, ...
    index = index if type(index) is tuple else (index,)
    return index if any(it is Ellipsis for it in index) else (*index, ...)


def fixed_index(tape: Any, index: Any) -> Any:
    """Return an index that stays as it is."""
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
    """Return arguments of which `out`, if it is given, is given by name."""
    names = positional(function)
    position = names.index("out") if "out" in names else len(args)
    if len(args) <= position:
        return tuple(args), dict(kwargs)
    behind = dict(zip(names[position:], args[position:], strict=False))
    return tuple(args[:position]), {**kwargs, **behind}


def single(value: Any) -> Any:
    """Return a value to be written; derivatives of traced ones in a list would be lost."""
    if not traced(value) and any(True for _ in leaves_of(value)):
        raise BadInput("a list of traced values would lose their derivatives: use np.stack")
    return value


def common_tape(values: Sequence[Any]) -> Any:
    """Return the tape of these values, of which there is one."""
    tape = values[0].tape
    for it in values:
        if it.tape is not tape:
            raise BadInput("values of two tapes meet; use stop_gradient(x) on those of one")
    return tape


def target_of(out: Any) -> Any:
    """Return what is written into, if it can hold derivatives."""
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
    """Return the cotangent: the pull of what leaves entries as they are."""
    return g


# Ufuncs, and the operators of python that do the same


def unary(perform: Callable[..., Any], key: np.ufunc) -> Operation:
    """Return a ufunc of one operand, or an operator that does the same, for a traced one."""
    if key is np.sign:
        return _sign
    pull = None if key in CONSTANT else PULLS[key][0]
    if pull is None:
        return lambda x: constant(perform(x.value), x.tape)
    take, save = pull.pull, pull.save

    def operation(x: Any) -> Any:
        if x.cell is None:  # a number: the same in fewer steps
            value = x.held
            result = perform(value)
            if type(result) in FLOATS:
                return x.tape.number_noted(result, take, save(result, value, None), x.place)
            return x.tape.noted(result, take, save(result, value, None), x.place)
        value, place = x.value, x.place
        result = perform(value)
        if place is None or not differentiable(result):
            return constant(result, x.tape)
        return x.tape.noted(result, take, save(result, value, None), place)

    return operation


def _sign(x: Any) -> Any:
    if np.iscomplexobj(x.value):
        refuse("np.sign of complex numbers", "write z / np.abs(z)")
    return constant(np.sign(x.value), x.tape)


def binary(perform: Callable[..., Any], key: np.ufunc) -> Operation:
    """Return a ufunc of two operands, or such an operator, where one of them at least is traced."""
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
            if x.cell is None:  # numbers: the same in fewer steps
                a, kind = x.held, type(y)
                if kind in NUMBERS and save is not None:
                    result = perform(a, y)
                    if type(result) in FLOATS:
                        saved = save(result, a, y)
                        return x.tape.number_noted(result, take, saved, x._place)  # noqa: SLF001
                elif kind is type(x) and y.cell is None and y.tape is x.tape and save_both:
                    result = perform(a, y.held)
                    if type(result) in FLOATS:
                        saved = save_both(result, a, y.held)
                        into = (x._place, y._place)  # noqa: SLF001
                        return x.tape.number_noted(result, take_both, saved, into)
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
        return tape.noted(result, chosen.pull, chosen.save(result, a, b), into)

    return operation


def operation(perform: Callable[..., Any], key: np.ufunc) -> Operation:
    """Return a ufunc, or such an operator, of as many operands as it has."""
    return unary(perform, key) if key.nin == 1 else binary(perform, key)


OPERATIONS: dict[np.ufunc, Operation] = {
    key: operation(key, key) for key in (*PULLS, *CONSTANT) if key.nin <= 2
}


def divided(x: Any, y: Any) -> Any:
    """Return the quotient, of which the derivative is zero, and the remainder."""
    first = x if traced(x) else y
    quotient = constant(divmod(plain(x), plain(y))[0], first.tape)
    return quotient, _modulo(x, y)


_modulo = binary(lambda a, b: divmod(a, b)[1], np.remainder)


# Functions of any kind


def call(
    perform: Callable[..., Any], key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Perform a function, whose derivative is by the rule known for `key`."""
    out = kwargs.pop("out", None)
    if out is not None:
        out = out[0] if isinstance(out, tuple) else out
        result = call(perform, key, args, kwargs)
        target_of(out)[...] = result
        return out
    leaves: list[tuple[Path, Any]] = []
    arrays: list[Array] = []
    values = tuple([_opened(it, (i,), leaves, arrays) for i, it in enumerate(args)])
    named = {key: _opened(it, (key,), leaves, arrays) for key, it in kwargs.items()}
    if not leaves:
        return perform(*values, **named)
    tape = common_tape([it for _, it in leaves])
    rule = RULES.get(key)
    if rule is None and key not in SEVERAL:
        refuse(name_of(key))
    result = perform(*values, **named)
    shared = _shared(result, leaves)
    if shared is not None:
        return shared
    operands = [(path, it) for path, it in leaves if it.place is not None]
    several = isinstance(result, tuple | list)
    if not operands or not (several or differentiable(result)):
        return constant(result, tape)
    performed = NumpyCall(perform, result, [path for path, _ in operands], values, named)
    into = tuple([it.place for _, it in operands])
    if several:
        return _several(tape, key, performed, into)
    assert rule is not None
    pull, saved = rule(performed)
    if arrays:
        own = {id(root(it.value)) for _, it in leaves if it.cell is not None}
        saved = _settled(tape, saved, {id(root(it)) for it in arrays} - own)
    return tape.noted(result, pull, saved, into)


def _several(tape: Any, key: Any, performed: NumpyCall, into: tuple[Any, ...]) -> Any:
    """Return several results, each recorded by itself."""
    if key not in SEVERAL:
        refuse(f"{name_of(key)} with several results")
    result, items = performed.result, []
    for rule, item in zip(SEVERAL[key], result, strict=True):
        if rule is None:
            items.append(constant(item, tape))
        else:
            pull, saved = rule(performed._replace(result=item))
            items.append(tape.noted(item, pull, saved, into))
    return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)


def _shared(result: Any, leaves: list[Any]) -> Any:
    """Return results that lie in the memory of an operand; None if they do not."""
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
    """Return a result without a derivative: float arrays can be written into, others are plain."""
    if type(result) is np.ndarray:
        if result.dtype.kind in "fc":
            return tape.result(result, None)
        if result.dtype.kind == "O":
            refuse("an array of objects")
        return result
    if isinstance(result, tuple):
        items = [constant(item, tape) for item in result]
        return type(result)(*items) if hasattr(result, "_fields") else tuple(items)
    return [constant(item, tape) for item in result] if type(result) is list else result


def getitem(x: Any, index: Any) -> Any:
    """Return a part of an array: in the same memory where numpy has it there."""
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
        return x.tape.noted(result, same, (), element)
    saved = x.value.shape, x.value.dtype, fixed_index(x.tape, index)
    return x.tape.noted(result, _scatter, saved, place)


def _scatter(g: Any, shape: tuple[int, ...], dtype: Any, index: Any) -> Any:
    buffer = np.zeros(shape, dtype)
    if type(index) is np.ndarray and index.dtype == bool:
        buffer[index] = g
    else:
        np.add.at(buffer, index, g)
    return buffer
