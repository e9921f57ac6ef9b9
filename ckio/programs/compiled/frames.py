"""States of programs: the running functions, the position in each, and their live variables.

`run` runs block after block. A call pushes a frame on a stack, and a return pops it. `run` is not
recursive, so that a program may call itself as deeply as memory allows. `pack` and `unpack` convert
states to and from plain data: named arrays, and values of JSON.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ckio.errors import BadInput
from ckio.programs.compiled.functions import RETURNED, BlockFunction, Code, Unset
from ckio.programs.heap import Json, flatten, restore

BlocksOf: TypeAlias = Callable[[Code], tuple[BlockFunction, ...]]

Codes: TypeAlias = Mapping[str, Code]
"""The code of each function on which a program depends, by its name."""

_LATE: Final = (
    "a lambda or a generator of a program must not be used after its statement; pass the values"
    " that it needs as defaults of parameters, or define a function outside of the program"
)


@dataclass(frozen=True, slots=True)
class Boundary:
    """The first state, named x, with the inputs, or the last state, named y, with the result."""

    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class Frame:
    """A function that is running.

    Attributes
    ----------
    code : Code
        The blocks of the function.
    block : int
        The number of the next block, which runs when the called functions have returned.
    values : tuple
        The values of the variables that this block needs, without the result of the call.
    """

    code: Code
    block: int
    values: tuple[Any, ...]


Now: TypeAlias = Boundary | tuple[Frame, ...]
"""The frames are those of the started function, of the function that it called, and so on."""


@dataclass(frozen=True, slots=True)
class Frames:
    """The state of a program after some ticks. It is a value that must not be changed.

    Attributes
    ----------
    ticks : int
        The number of ticks since the start.
    now : Boundary or tuple of Frame
        The inputs, the functions that are running, or the result.
    """

    ticks: int
    now: Now

    @property
    def finished(self) -> bool:
        return isinstance(self.now, Boundary) and self.now.name == "y"


def values_of(now: Now, /) -> dict[str, Any]:
    """Return all values of a state by name: x, y, or the number of the frame and the variable.

    A variable that is not set is left out.
    """
    if isinstance(now, Boundary):
        return {now.name: now.value}
    pairs = (zip(names, frame.values, strict=True) for frame, names in _named_frames(now))
    return {name: value for each in pairs for name, value in each if value is not Unset}


def with_values(now: Now, values: Mapping[str, Any], /) -> Now:
    """Return a state like this one with other values. A variable that lacks one is not set."""
    if isinstance(now, Boundary):
        return Boundary(now.name, values[now.name])
    return tuple(
        Frame(frame.code, frame.block, tuple(values.get(name, Unset) for name in names))
        for frame, names in _named_frames(now)
    )


def _named_frames(frames: tuple[Frame, ...]) -> Iterator[tuple[Frame, list[str]]]:
    """Yield each frame with the names of its values. All but the last wait for a call."""
    for number, frame in enumerate(frames):
        graph = frame.code.graph
        last = number == len(frames) - 1
        live = graph.live[frame.block] if last else graph.waiting(frame.block)
        yield frame, [f"{number}.{name}" for name in live]


def run(code: Code, state: Frames, limit: float, blocks_of: BlocksOf, /) -> Frames:
    """Return the state after at most `limit` more ticks of the program with this code.

    The given state must not be used afterwards, because its arrays may be overwritten. An exception
    of a block reaches the caller, with a note of its place.
    """
    now = state.now
    if state.finished or limit <= 0:
        return state
    ticks, last = state.ticks, state.ticks + (limit if limit == inf else int(limit))
    stack: list[tuple[Code, int, Any]] = []
    try:
        if isinstance(now, Boundary):
            at, values = 0, code.bind(*now.value)
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
                return Frames(ticks, Boundary("y", values))
            blocks = blocks_of(code)
    except Exception as error:
        error.add_note(f"in tick {ticks} of a run, in the program {code.name}")
        if isinstance(error, NameError) and "free variable" in str(error):
            error.add_note(_LATE)
        raise
    frames = (Frame(*each) for each in (*stack, (code, at, values)))
    return Frames(ticks, tuple(frames))


_ENDS: Final = {"x": "start", "y": "end"}


def pack(
    state: Frames, codes: Codes, fingerprint: str, objects: Mapping[str, Any],
    value_of: Callable[[Any], Any] = lambda value: value, /
) -> tuple[dict[str, NDArray[Any]], Json]:  # fmt: skip
    """Return copies of the arrays, and all else as JSON. Raise BadInput for other values.

    Equal states are packed to equal bits. `objects` are those that `unpack` will be given.
    """
    flat = flatten(values_of(state.now), value_of)
    if strange := flat.objects.keys() - objects.keys():
        raise BadInput(
            f"a variable is {min(strange)}, which is neither in the code of this program nor in its"
            " inputs, so that a checkpoint cannot store it; name it in the program"
        )
    arrays = flat.stored(value_of)
    names = {code: name for name, code in codes.items()}
    if isinstance(state.now, Boundary):
        at: Json = _ENDS[state.now.name]
    else:
        at = [[names[frame.code], frame.block] for frame in state.now]
    meta = {"fingerprint": fingerprint, "ticks": state.ticks, "at": at, "values": flat.structure}
    return arrays, meta


def unpack(
    arrays: Mapping[str, NDArray[Any]], meta: Json, codes: Codes, fingerprint: str,
    objects: Mapping[str, Any], /
) -> Frames:  # fmt: skip
    """Return the state that was packed. Raise BadInput if it belongs to other code.

    `objects` are the functions, classes and modules that a state may contain, by name.
    """
    other = meta.get("fingerprint")
    if other != fingerprint:
        raise BadInput(
            "this state is of other code: the program, or something that it uses, has changed since"
            f" it was stored ({other}, and now {fingerprint}), or the version of Python or of a"
            " library has; start again, or restore that code"
        )
    try:
        now = _place(meta["at"], codes)
        copies = {name: np.array(array, order="C") for name, array in arrays.items()}
        restored = restore(meta["values"], copies, objects)
        return Frames(meta["ticks"], with_values(now, restored))
    except (TypeError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise BadInput(
            f"this state of a program cannot be read: {error}; use another state"
        ) from error


def _place(at: Json, codes: Codes) -> Now:
    """Return a state without values."""
    if isinstance(at, str):
        return Boundary({end: name for name, end in _ENDS.items()}[at], None)
    return tuple(Frame(codes[name], block, ()) for name, block in at)
