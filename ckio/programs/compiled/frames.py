"""States of programs: which functions are running, where each is, and its live variables.

`run` goes from one to another, block after block: a call puts a frame on the stack, a return takes
it off. Nothing here calls itself, so that a program may call itself as deeply as memory allows.
`pack` and `unpack` are for states as plain data: named arrays, and values that JSON can hold.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ckio.errors import BadInput
from ckio.programs.compiled.functions import RETURNED, BlockFunction, Code, Unset
from ckio.programs.heap import Json, QuickCopy, Unclear, copy, flatten, restore

BlocksOf: TypeAlias = Callable[[Code], tuple[BlockFunction, ...]]

Codes: TypeAlias = Mapping[str, Code]
"""The code of each function that a program reaches, by its name."""

_LATE: Final = (
    "a lambda or a generator of a program has to be used up by the statement that it is in: pass"
    " what it needs as the default of a parameter, or define a function outside of the program"
)


@dataclass(frozen=True, slots=True)
class Started:
    """Before the first tick: the inputs."""

    inputs: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """A function that is running.

    Attributes
    ----------
    code : Code
        Its blocks.
    block : int
        The one that is next, once all functions that this one called have returned.
    values : tuple
        Of the variables that it needs then; without the result that it waits for.
    """

    code: Code
    block: int
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """After the last tick: the result."""

    result: Any


Now: TypeAlias = Started | tuple[Frame, ...] | Finished
"""The frames are those of the function that was started, of the one that it called, and so on."""


@dataclass(frozen=True, slots=True)
class Frames:
    """The state of a program after some ticks; it is a value, and nothing in it is to be changed.

    Attributes
    ----------
    ticks : int
        How many since the start.
    now : Started, tuple of Frame, or Finished
        Where it is.
    """

    ticks: int
    now: Now


def named(now: Now, /) -> dict[str, Any]:
    """All values of a state by name: x, y, or number of the frame and variable.

    What is unset has no value.
    """
    match now:
        case Started(inputs=inputs):
            return {"x": inputs}
        case Finished(result=result):
            return {"y": result}
        case _:
            return dict(_variables(now))


def renamed(now: Now, values: Mapping[str, Any], /) -> Now:
    """A state like this one with other values: what has no name in `values` is unset."""
    match now:
        case Started():
            return Started(values["x"])
        case Finished():
            return Finished(values["y"])
        case _:
            return tuple(
                Frame(frame.code, frame.block, tuple(values.get(n, Unset) for n in names))
                for frame, names in zip(now, _names(now), strict=True)
            )


def copied(now: Now, /) -> Now:
    """Return a copy of a state; raises BadInput for what a checkpoint cannot hold."""
    quick = QuickCopy().copy
    try:
        match now:
            case Started(inputs=inputs):
                return Started(quick(inputs))
            case Finished(result=result):
                return Finished(quick(result))
            case _:
                return tuple(
                    Frame(f.code, f.block, tuple(v if v is Unset else quick(v) for v in f.values))
                    for f in now
                )
    except (Unclear, RecursionError):
        return renamed(now, copy(named(now)))


def _names(frames: tuple[Frame, ...]) -> Iterator[tuple[str, ...]]:
    """The names of the values of each frame; only the last one waits for nothing."""
    for number, frame in enumerate(frames):
        graph = frame.code.graph
        last = number == len(frames) - 1
        live = graph.live[frame.block] if last else graph.waiting(frame.block)
        yield tuple(f"{number}.{name}" for name in live)


def _variables(frames: tuple[Frame, ...]) -> Iterator[tuple[str, Any]]:
    for frame, names in zip(frames, _names(frames), strict=True):
        for name, value in zip(names, frame.values, strict=True):
            if value is not Unset:
                yield name, value


def expected(frames: tuple[Frame, ...], /) -> Iterator[tuple[str, bool]]:
    """Each variable that frames of these functions hold here, and whether it may be unset."""
    for frame, names in zip(frames, _names(frames), strict=True):
        unset = frame.code.graph.unset[frame.block]
        for name in names:
            yield name, name.partition(".")[2] in unset


def run(code: Code, state: Frames, limit: float, blocks_of: BlocksOf, /) -> Frames:
    """The state after at most `limit` more ticks of the program with this code.

    What the state holds is used up: its arrays may be written into. An error that a block raises
    goes on to the caller with a note that says where it happened.
    """
    now = state.now
    if isinstance(now, Finished) or limit <= 0:
        return state
    ticks, last = state.ticks, state.ticks + (limit if limit == inf else int(limit))
    stack: list[tuple[Code, int, Any]] = []
    try:
        if isinstance(now, Started):
            at, values = 0, code.bind(*now.inputs)
        else:
            stack += [(frame.code, frame.block, frame.values) for frame in now]
            code, at, values = stack.pop()
        blocks = blocks_of(code)
        while ticks < last:
            ticks += 1
            at, values = blocks[at](*values)
            if at >= 0:
                continue
            if at != RETURNED:
                program, args, named, kept = values
                stack.append((code, ~at, kept))
                code, at = program.code, 0
                values = code.bind(*args, **named)
            elif stack:
                result = values
                code, at, values = stack.pop()
                if code.graph.takes[at]:
                    values = (*values, result)
            else:
                return Frames(ticks, Finished(values))
            blocks = blocks_of(code)
    except Exception as error:
        error.add_note(f"in tick {ticks} of a run, in the program {code.name}")
        if isinstance(error, NameError) and "free variable" in str(error):
            error.add_note(_LATE)
        raise
    frames = (Frame(*each) for each in (*stack, (code, at, values)))
    return Frames(ticks, tuple(frames))


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
            known = dict(expected(frames))
            needed, allowed = {name for name, unset in known.items() if not unset}, {*known}
    if needed - values.keys():
        raise BadInput(f"this state lacks {', '.join(sorted(needed - values.keys()))}")
    if values.keys() - allowed:
        strange = ", ".join(sorted(values.keys() - allowed))
        raise BadInput(f"this state has {strange}, which the program does not have there")
