"""Runs blocks one after the other: a call puts a frame on the stack, a return takes it off.

Nothing here calls itself: a program may call itself as deeply as memory allows.
"""

from collections.abc import Callable
from math import inf
from typing import Any, Final, TypeAlias

from ckio.programs.compiled.code import RETURNED, BlockFunction
from ckio.programs.compiled.compiling import Code
from ckio.programs.compiled.frames import Finished, Frame, Frames, Started

BlocksOf: TypeAlias = Callable[[Code], tuple[BlockFunction, ...]]


_LATE: Final = (
    "a lambda or a generator of a program has to be used up by the statement that it is in: pass"
    " what it needs as the default of a parameter, or define a function outside of the program"
)


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
