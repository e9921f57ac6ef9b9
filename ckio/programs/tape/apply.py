"""Operations on traced values: done on the plain ones, then noted on their tape."""

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ckio.programs.tape.adjoint import FLOATS, Place
from ckio.programs.tape.arguments import (
    as_array,
    basic,
    common_tape,
    differentiable,
    fixed_index,
    given,
    name_of,
    opened,
    plain,
    refuse,
    same,
    settled,
    target_of,
    traced,
)
from ckio.programs.tape.functions import FUNCTIONS, SEVERAL
from ckio.programs.tape.memory import root, view_in
from ckio.programs.tape.ufuncs import CONSTANT, PULLS
from ckio.programs.tape.values import Value

if TYPE_CHECKING:
    from ckio.programs.tape.traced import Traced

Operation = Callable[..., Any]
NUMBERS = frozenset((int, float, complex, np.float64))
"""Constants that need not be copied."""


def unary(perform: Callable[..., Any], key: np.ufunc) -> Operation:
    """What a ufunc of one operand, or an operator that is the same, does with a traced one."""
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
    """The same of two operands, of which one at least is traced."""
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
    """The same of as many operands as it has."""
    return unary(perform, key) if key.nin == 1 else binary(perform, key)


OPERATIONS: dict[np.ufunc, Operation] = {
    key: operation(key, key) for key in (*PULLS, *CONSTANT) if key.nin <= 2
}
"""What ufuncs do."""


def call(
    perform: Callable[..., Any], key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A function of any kind, by the rule known for `key`."""
    out = kwargs.pop("out", None)
    if out is not None:
        out = out[0] if isinstance(out, tuple) else out
        result = call(perform, key, args, kwargs)
        target_of(out)[...] = result
        return out
    values, named, leaves, arrays = given(args, kwargs)
    if not leaves:
        return perform(*values, **named)
    tape = common_tape([it for _, it in leaves])
    rule = FUNCTIONS.get(key)
    if rule is None and key not in SEVERAL:
        refuse(name_of(key))
    result = perform(*values, **named)
    shared = _shared(result, leaves)
    if shared is not None:
        return shared
    operands = [(path, it) for path, it in leaves if it.place is not None]
    if not operands or not differentiable(result):
        if isinstance(result, tuple | list) and operands:
            return _several(perform, key, result, operands, values, named)
        return constant(result, tape)
    assert rule is not None
    pull, saved = rule(perform, result, [path for path, _ in operands], values, named)
    if arrays:
        own = {id(root(it.value)) for _, it in leaves if it.cell is not None}
        saved = settled(tape, saved, {id(root(it)) for it in arrays} - own)
    return tape.noted(result, pull, saved, tuple([it.place for _, it in operands]))


def new(tape: Any, result: Any) -> "Traced":
    """A traced value for a result that has a derivative."""
    slot = tape.slot()
    made: Traced
    made = tape.result(result, slot) if type(result) is np.ndarray else tape.number(result, slot)
    return made


def constant(result: Any, tape: Any) -> Any:
    """A result without a derivative: float arrays can be written into, the others are plain."""
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


def divided(x: Any, y: Any) -> Any:
    """Quotient, of which the derivative is zero, and remainder."""
    first = x if traced(x) else y
    quotient = constant(divmod(plain(x), plain(y))[0], first.tape)
    return quotient, _modulo(x, y)


_modulo = binary(lambda a, b: divmod(a, b)[1], np.remainder)


def getitem(x: "Traced", index: Any) -> Any:
    """A part of an array: in the same memory where numpy has it there."""
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
        element = Place(place.slot, view_in(cell.memory, x.value[opened(index)]))
        return x.tape.noted(result, same, (), element)
    saved = x.value.shape, x.value.dtype, fixed_index(x.tape, index)
    return x.tape.noted(result, _scatter, saved, place)


def _several(
    perform: Callable[..., Any], key: Any, result: Any, operands: Any, /, *given: Any
) -> Any:
    """Several results, each by itself."""
    if key not in SEVERAL:
        refuse(f"{name_of(key)} with several results")
    tape, items = operands[0][1].tape, []
    for rule, item in zip(SEVERAL[key], result, strict=True):
        if rule is None:
            items.append(constant(item, tape))
            continue
        pull, saved = rule(perform, item, [path for path, _ in operands], *given)
        made = new(tape, item)
        tape.record(made.place, pull, saved, tuple(it.place for _, it in operands))
        items.append(made)
    return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)


def _shared(result: Any, leaves: list[Any]) -> Any:
    """Results that lie in the memory of an operand; None if they do not."""
    if isinstance(result, list | tuple) and result:
        items = [_shared(item, leaves) for item in result]
        return None if any(it is None for it in items) else type(result)(items)
    if type(result) is np.ndarray and result.dtype.kind in "fc":
        owner = root(result)
        for _, it in leaves:
            if it.cell is not None and root(it.cell.memory) is owner:
                return it.tape.viewing(it.cell, result)
    return None


def _scatter(g: Any, shape: tuple[int, ...], dtype: Any, index: Any) -> Any:
    buffer = np.zeros(shape, dtype)
    if type(index) is np.ndarray and index.dtype == bool:
        buffer[index] = g
    else:
        np.add.at(buffer, index, g)
    return buffer
