"""States as plain data: named arrays, and what JSON can hold."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckio.errors import BadInput
from ckio.programs.compiled.compiling import Code
from ckio.programs.compiled.frames import (
    Finished,
    Frame,
    Frames,
    Now,
    Started,
    expected,
    named,
    renamed,
)
from ckio.programs.values import Json, flatten, restore

Codes = Mapping[str, Code]
"""The code of each function that a program reaches, by its name."""


def pack(state: Frames, codes: Codes, fingerprint: str, /) -> tuple[dict[str, NDArray[Any]], Json]:
    """A state's arrays, copied, and all else; raises BadInput for what cannot be stored."""
    flat = flatten(named(state.now))
    arrays = {name: memory.copy() for name, memory in flat.memories.items()}
    names = {code: name for name, code in codes.items()}
    match state.now:
        case Started():
            at: Json = "start"
        case Finished():
            at = "end"
        case frames:
            at = [[names[frame.code], frame.block] for frame in frames]
    meta = {"fingerprint": fingerprint, "ticks": state.ticks, "at": at, "values": flat.structure}
    return arrays, meta


def unpack(
    arrays: Mapping[str, NDArray[Any]], meta: Json, codes: Codes, fingerprint: str, /
) -> Frames:
    """The state again, in memory of its own; raises BadInput for one that is not of this code."""
    match meta:
        case {"fingerprint": str(other), "ticks": int(ticks), "at": at, "values": dict(values)}:
            pass
        case _:
            raise BadInput("this is not the state of a program: its description is of another kind")
    if other != fingerprint:
        raise BadInput(
            "this state is of other code: the program, or something that it uses, has changed since"
            f" it was stored ({other}, and now {fingerprint}); start again, or go back to that code"
        )
    now = _place(at, codes)
    _check(now, values)
    try:
        copies = {name: np.array(array, order="C") for name, array in arrays.items()}
        restored = restore(values, copies)
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
        raise BadInput(f"this state of a program cannot be read: {error}") from error
    return Frames(ticks, renamed(now, restored))


def _place(at: Json, codes: Codes) -> Now:
    """A state without values."""
    match at:
        case "start":
            return Started(())
        case "end":
            return Finished(None)
        case [_, *_]:
            return tuple(_frame(each, codes) for each in at)
        case _:
            raise BadInput(f"a program cannot be at {at!r}")


def _frame(at: Json, codes: Codes) -> Frame:
    match at:
        case [str(name), int(block)] if name in codes:
            if 0 <= block < len(codes[name].graph.blocks):
                return Frame(codes[name], block, ())
            raise BadInput(f"{name} has no block {block}, at which this state is")
        case _:
            raise BadInput(f"this state is in {at!r}, which is no function of this program")


def _check(now: Now, values: Mapping[str, Json]) -> None:
    """Raises BadInput unless these are the variables that are needed here."""
    match now:
        case Started():
            needed, allowed = {"x"}, {"x"}
        case Finished():
            needed, allowed = {"y"}, {"y"}
        case frames:
            found = dict(expected(frames))
            needed, allowed = {name for name, unset in found.items() if not unset}, set(found)
    if needed - values.keys():
        raise BadInput(f"this state lacks {', '.join(sorted(needed - values.keys()))}")
    if values.keys() - allowed:
        strange = ", ".join(sorted(values.keys() - allowed))
        raise BadInput(f"this state has {strange}, which the program does not have there")
