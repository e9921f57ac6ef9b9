"""Writing into traced arrays: the value as numpy does it, the cotangent to what was written."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ckio.programs.tape.apply import elementwise, pull_of
from ckio.programs.tape.arguments import (
    as_array,
    basic,
    common_tape,
    fixed_index,
    opened,
    plain,
    refuse,
    same,
    target_of,
    traced,
)
from ckio.programs.tape.ufuncs import CONSTANT

if TYPE_CHECKING:
    from ckio.programs.tape.traced import Traced


def inplace(
    perform: Callable[..., Any], otherwise: Callable[..., Any], key: np.ufunc, x: Any, y: Any
) -> Any:
    """An operator in place: of an array into its memory, of a number another number."""
    if x.cell is None:
        return elementwise(otherwise, key, (x, y))
    return into_array(lambda *values, out: perform(out, values[1]), key, (x, y), x, {})


def setitem(x: "Traced", index: Any, value: Any) -> None:
    """Write into a part of an array."""
    index = plain(index)
    target = x.value
    cell = x.cell
    if cell is None:
        target[index] = plain(value)  # raises what numpy or python raises
        return
    if basic(index):
        part = target[opened(index)]
        there, safe = x.tape.viewing(cell, part), None
        if traced(value) and value.cell is cell and _alike(value.lies, there.lies):
            return
    else:
        there, safe = x, fixed_index(x.tape, index)
    place = value.place if traced(value) else None
    tape = x.tape
    if traced(value):
        common_tape([x, value])
    tape.own(cell)
    x.value[index] = value.value if traced(value) else value
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


def at_entries(function: np.ufunc, x: Any, index: Any, value: Any) -> None:
    """Add to some entries, or subtract from them, some perhaps several times."""
    if function not in (np.add, np.subtract):
        refuse(f"np.{function.__name__}.at")
    tape = target_of(x).tape
    index = fixed_index(tape, plain(index))
    place = value.place if traced(value) else None
    tape.own(x.cell)
    function.at(x.value, index, plain(value))
    if place is not None:
        sign = 1 if function is np.add else -1
        tape.record(tape.written(x, index, None, sign), same, (), place)


def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    """As np.copyto."""
    target, tape = target_of(dst), dst.tape
    place = src.place if traced(src) else None
    tape.own(target.cell)
    np.copyto(target.value, plain(src), casting=casting, where=plain(where))
    mask = None if where is True else np.array(plain(where))
    if place is not None:
        tape.record(tape.written(target, None, mask), same, (), place)
    elif target.cell.slot is not None:
        tape.record(tape.written(target, None, mask), none, (), ())


def _alike(one: Any, other: Any) -> bool:
    return bool(
        (one.shape, one.offset, one.strides, one.dtype)
        == (other.shape, other.offset, other.strides, other.dtype)
    )


def none(g: Any) -> tuple[()]:
    """The pull of what writes plain values."""
    return ()
