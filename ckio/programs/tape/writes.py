"""Writing into traced arrays: the value as numpy does it, the cotangent to what was written."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ckio.programs.tape.apply import NUMBERS, Operation
from ckio.programs.tape.arguments import (
    as_array,
    basic,
    common_tape,
    fixed_index,
    opened,
    plain,
    refuse,
    same,
    single,
    target_of,
    traced,
)
from ckio.programs.tape.ufuncs import CONSTANT, PULLS, Pull
from ckio.programs.tape.values import Value

if TYPE_CHECKING:
    from ckio.programs.tape.traced import Traced


def inplace(perform: Callable[..., Any], otherwise: Operation, key: np.ufunc) -> Operation:
    """An operator in place: of an array into its memory, of a number another number."""
    if key in CONSTANT:
        return lambda x, y: (
            otherwise(x, y)
            if x.cell is None
            else into_array(lambda *values, out: perform(out, values[1]), key, (x, y), x, {})
        )
    left, right, both = PULLS[key]
    sign = 1 if key is np.add else -1 if key is np.subtract else 0

    def operation(x: Any, y: Any) -> Any:
        cell, tape = x.cell, x.tape
        if cell is None:
            return otherwise(x, y)
        place, other = x.place, None
        if isinstance(y, Value):
            other = y.place
            if y.tape is not tape:
                common_tape((x, y))
        a, b = x.value, y.value if isinstance(y, Value) else y
        if place is None and other is None:
            tape.own(cell)
            perform(x.value, b)
            return x
        if sign and place is not None:  # what was there stays
            tape.own(cell)
            perform(x.value, y.value if isinstance(y, Value) else y)
            if other is not None:
                tape.record(tape.written(x, add=sign), same, (), other)
            return x
        into: Any
        if other is None:
            chosen, into = left, place
        elif place is None:
            chosen, into = right, other
        else:
            chosen, into = both, (place, other)
        assert chosen is not None
        if b is y and type(b) not in NUMBERS:
            b = tape.safe(as_array(b))
        tape.keep([it for it, name in ((a, "x"), (b, "y")) if name in chosen.names])
        tape.own(cell)
        perform(x.value, y.value if isinstance(y, Value) else y)
        saved = chosen.save(x.value, a, b)
        tape.record(tape.written(x), chosen.pull, saved, into)
        return x

    return operation


def setitem(x: "Traced", index: Any, value: Any) -> None:
    """Write into a part of an array."""
    cell, tape = x.cell, x.tape
    if cell is None:
        x.value[plain(index)] = plain(value)  # raises what numpy or python raises
        return
    simple = basic(index)
    if not simple:
        index = plain(index)
        simple = basic(index)
    place, safe, there = None, None, x
    if simple:
        there = tape.viewing(cell, x.value[opened(index)])
    else:
        safe = fixed_index(tape, index)
    if isinstance(value, Value):
        if value.tape is not tape:
            common_tape((x, value))
        if simple and value.cell is cell and value.lies is there.lies:
            return
        place = value.place
    if place is not None or cell.slot is not None:
        there.lies  # noqa: B018, as it is before the memory is another
    tape.own(cell)
    x.value[index] = value.value if isinstance(value, Value) else value
    if place is not None:
        tape.record(tape.written(there, safe), same, (), place)
    elif cell.slot is not None:
        tape.record(tape.written(there, safe), none, (), ())


def into_array(
    perform: Callable[..., Any], key: np.ufunc, operands: tuple[Any, ...], out: Any,
    kwargs: dict[str, Any],
) -> Any:  # fmt: skip
    """A ufunc whose result is written into a traced array."""
    target, mask = target_of(out), plain(kwargs.get("where"))
    tape = common_tape([target, *(it for it in operands if traced(it))])
    found = None if key in CONSTANT else pull_of(key, operands)
    values = [it.value if traced(it) else it for it in operands]
    arrays = [v if traced(o) else tape.safe(as_array(v)) for v, o in zip(values, operands)]  # noqa: B905
    arrays = [*arrays, None][:2]
    if found is not None:
        tape.keep([it for it, name in zip(arrays, "xy", strict=True) if name in found[0].names])
    tape.own(target.cell)
    values = [it.value if traced(it) else it for it in operands]
    perform(*values, out=target.value, **plain(kwargs))
    mask = None if mask is None or mask is True else np.array(mask)
    if found is not None:
        pull, into = found
        saved = pull.save(target.value, *arrays)
        tape.record(tape.written(target, None, mask), pull.pull, saved, into)
    elif target.cell.slot is not None:
        tape.record(tape.written(target, None, mask), none, (), ())
    return out


def pull_of(key: np.ufunc, operands: tuple[Any, ...]) -> tuple[Pull, Any] | None:
    """The pull to those operands that have a derivative, and where they gather theirs."""
    places = [it.place if traced(it) else None for it in operands]
    left, right, both = PULLS[key]
    chosen: Pull | None
    if len(places) == 1 or places[1] is None:
        chosen, into = left, places[0]
    elif places[0] is None:
        chosen, into = right, places[1]
    else:
        chosen, into = both, tuple(places)
    return None if into is None or chosen is None else (chosen, into)


def at_entries(function: np.ufunc, x: Any, index: Any, value: Any = None) -> None:
    """Add to some entries, or subtract from them, some perhaps several times."""
    if function not in (np.add, np.subtract):
        refuse(f"np.{function.__name__}.at")
    tape = target_of(x).tape
    index = fixed_index(tape, plain(index))
    single(value)
    place = value.place if traced(value) else None
    tape.own(x.cell)
    function.at(x.value, index, plain(value))
    if place is not None:
        sign = 1 if function is np.add else -1
        tape.record(tape.written(x, index, None, sign), same, (), place)


def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    """As np.copyto."""
    target, tape = target_of(dst), dst.tape
    single(src)
    place = src.place if traced(src) else None
    tape.own(target.cell)
    np.copyto(target.value, plain(src), casting=casting, where=plain(where))
    mask = None if where is True else np.array(plain(where))
    if place is not None:
        tape.record(tape.written(target, None, mask), same, (), place)
    elif target.cell.slot is not None:
        tape.record(tape.written(target, None, mask), none, (), ())


def none(g: Any) -> tuple[()]:
    """The pull of what writes plain values."""
    return ()
