"""Operations on traced values: done on the plain ones, then noted on their tape."""

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ckio.programs.tape.adjoint import Place
from ckio.programs.tape.arguments import (
    arrays_of,
    as_array,
    basic,
    common_tape,
    differentiable,
    fixed_index,
    leaves_of,
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
from ckio.programs.tape.ufuncs import CONSTANT, PULLS, Pull

if TYPE_CHECKING:
    from ckio.programs.tape.traced import Traced


def elementwise(perform: Callable[..., Any], key: np.ufunc, operands: tuple[Any, ...]) -> Any:
    """A ufunc, or an operator that is the same, of one or two operands."""
    first = operands[0] if traced(operands[0]) else operands[1]
    values = [it.value if traced(it) else it for it in operands]
    result = perform(*values)
    common_tape([it for it in operands if traced(it)])
    if key in CONSTANT:
        return constant(result, first)
    found = pull_of(key, operands)
    if found is None or not differentiable(result):
        return constant(result, first)
    pull, into = found
    tape = first.tape
    x, *others = [it if traced(o) else tape.safe(as_array(it)) for it, o in zip(values, operands)]  # noqa: B905
    made = new(tape, result)
    tape.record(made.place, pull.pull, pull.save(result, x, others[0] if others else None), into)
    return made


def call(
    perform: Callable[..., Any], key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A function of any kind, by the rule known for `key`."""
    out = kwargs.pop("out", None)
    leaves = list(leaves_of((args, kwargs)))
    operands = [(path, it) for path, it in leaves if it.place is not None]
    if out is not None:
        out = out[0] if isinstance(out, tuple) else out
        result = call(perform, key, args, kwargs)
        target_of(out)[...] = result
        return out
    values, named = plain(args), plain(kwargs)
    if not leaves:
        return perform(*values, **named)
    tape = common_tape([it for _, it in leaves])
    rule = FUNCTIONS.get(key)
    if rule is None and key not in SEVERAL:
        refuse(name_of(key))
    result = perform(*values, **named)
    shared = _shared(result, [it for _, it in leaves])
    if shared is not None:
        return shared
    if not operands or not differentiable(result):
        if isinstance(result, tuple | list) and operands:
            return _several(perform, key, result, operands, values, named)
        return constant(result, leaves[0][1])
    assert rule is not None
    pull, saved = rule(perform, result, [path for path, _ in operands], values, named)
    own = {id(root(it.value)) for _, it in leaves if it.cell is not None}
    foreign = {id(root(it)) for it in arrays_of((values, named))} - own
    made = new(tape, result)
    saved = settled(tape, saved, foreign)
    tape.record(made.place, pull, saved, tuple(it.place for _, it in operands))
    return made


def new(tape: Any, result: Any) -> "Traced":
    """A traced value for a result that has a derivative."""
    if isinstance(result, np.ndarray):
        made: Traced = tape.result(result, True)
    else:
        made = tape.number(result, tape.slot())
    return made


def constant(result: Any, like: Any) -> Any:
    """A result without a derivative: float arrays can be written into, the others are plain."""
    if isinstance(result, np.ndarray) and result.dtype.kind in "fc":
        return like.tape.result(result, False)
    if isinstance(result, np.ndarray) and result.dtype.kind == "O":
        refuse("an array of objects")
    if isinstance(result, tuple):
        items = [constant(item, like) for item in result]
        return type(result)(*items) if hasattr(result, "_fields") else tuple(items)
    return [constant(item, like) for item in result] if type(result) is list else result


def divided(x: Any, y: Any) -> Any:
    """Quotient, of which the derivative is zero, and remainder."""
    first = x if traced(x) else y
    quotient = constant(divmod(plain(x), plain(y))[0], first)
    return quotient, elementwise(lambda a, b: divmod(a, b)[1], np.remainder, (x, y))


def getitem(x: "Traced", index: Any) -> Any:
    """A part of an array: in the same memory where numpy has it there."""
    index = plain(index)
    cell, place = x.cell, x.place
    if cell is None:
        return call(operator.getitem, operator.getitem, (x, index), {})
    result = x.value[index]
    simple = basic(index)
    if simple and differentiable(result) and isinstance(result, np.ndarray):
        return x.tape.viewing(cell, result)
    if place is None or not differentiable(result):
        return constant(result, x)
    made = new(x.tape, result)
    if simple:
        element = Place(place.slot, view_in(cell.memory, x.value[opened(index)]))
        x.tape.record(made.place, same, (), element)
    else:
        saved = x.value.shape, x.value.dtype, fixed_index(x.tape, index)
        x.tape.record(made.place, _scatter, saved, place)
    return made


def _several(
    perform: Callable[..., Any], key: Any, result: Any, operands: Any, /, *given: Any
) -> Any:
    """Several results, each by itself."""
    if key not in SEVERAL:
        refuse(f"{name_of(key)} with several results")
    tape, items = operands[0][1].tape, []
    for rule, item in zip(SEVERAL[key], result, strict=True):
        if rule is None:
            items.append(constant(item, operands[0][1]))
            continue
        pull, saved = rule(perform, item, [path for path, _ in operands], *given)
        made = new(tape, item)
        tape.record(made.place, pull, saved, tuple(it.place for _, it in operands))
        items.append(made)
    return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)


def pull_of(key: np.ufunc, operands: tuple[Any, ...]) -> tuple[Pull, Any] | None:
    """The pull to those operands that have a derivative, and where they gather theirs."""
    places = [it.place if traced(it) else None for it in operands]
    entry = PULLS[key]
    if len(places) == 1 or places[1] is None:
        chosen, into = entry[0], places[0]
    elif places[0] is None:
        chosen, into = entry[1], places[1]
    else:
        chosen, into = entry[2], tuple(places)
    return None if into is None or chosen is None else (chosen, into)


def _shared(result: Any, operands: list[Any]) -> Any:
    """Results that lie in the memory of an operand; None if they do not."""
    if isinstance(result, list | tuple) and result:
        items = [_shared(item, operands) for item in result]
        return None if any(it is None for it in items) else type(result)(items)
    if isinstance(result, np.ndarray) and result.dtype.kind in "fc":
        owner = root(result)
        for it in operands:
            if it.cell is not None and root(it.cell.memory) is owner:
                return it.tape.viewing(it.cell, result)
    return None


def _scatter(g: Any, shape: tuple[int, ...], dtype: Any, index: Any) -> Any:
    buffer = np.zeros(shape, dtype)
    np.add.at(buffer, index, g)
    return buffer
