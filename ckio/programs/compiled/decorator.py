"""`@program` makes a plain Python function interruptible after any tick.

To propagate a cotangent backwards over some ticks, these ticks are run on a tape.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, update_wrapper
from math import inf
from operator import attrgetter
from threading import RLock
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckio.errors import BadInput
from ckio.programs.compiled.dependencies import Dependencies, Scope, dependencies_of
from ckio.programs.compiled.frames import (
    Boundary,
    Frames,
    Now,
    pack,
    run,
    unpack,
    values_of,
    with_values,
)
from ckio.programs.compiled.functions import BlockFunction, Code
from ckio.programs.compiled.source import check_aliases, check_calls, source_of
from ckio.programs.heap import Heap, Json, copy, flatten, leaves, rebuild, restore
from ckio.programs.interface import Cotangent, report_tape
from ckio.programs.tape.operators import Traced, build
from ckio.programs.tape.tape import Tape

Array = NDArray[Any]

_BLOCKS: Final[Callable[[Code], Any]] = attrgetter("blocks")

_MAKING: Final = RLock()
"""Lock for compiling a program and for collecting its code, because states refer to the code."""


def program(function: Callable[..., Any], /) -> "CompiledProgram":
    """Return a `Program` made from a function of arrays and numbers. You can still call it.

    The function may contain nested loops, branches, and calls of other programs and of itself, and
    it may change arrays in place. It can be interrupted between statements. A loop over an object
    without an index (for example a dict) runs over a list that is made at its start. A call of a
    plain function runs within one tick. Raises NotResumable, with file and line, if the function
    contains statements that cannot be resumed.
    """
    return CompiledProgram(function)


class CompiledProgram:
    """A function that `@program` decorates: a `Program` whose states are `Frames`.

    Attributes
    ----------
    function : callable
        The original function.
    source : Source
        The source of the function.
    """

    def __init__(self, function: Callable[..., Any], /) -> None:
        self.source: Final = source_of(function)
        self.function = self.source.function
        self._scope = Scope(self.source, CompiledProgram)
        self._code: Code | None = None
        self._known: Dependencies | None = None
        self._given: dict[str, Any] = {}  # functions and classes of inputs
        check_calls(self.source, self._scope.may_call)
        check_aliases(self.source, self._scope.is_shared)
        update_wrapper(self, function)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the function itself, without ticks."""
        return self.function(*args, **named)

    def __repr__(self) -> str:
        return f"<program {self.function.__qualname__}>"

    def __reduce__(self) -> str:
        return self.function.__qualname__  # pickled by name, like a function

    @property
    def fingerprint(self) -> str:
        """A hash of the code and of everything that it uses: functions, constants, libraries."""
        return self._dependencies().fingerprint

    @property
    def code(self) -> Code:
        """The blocks of the program, which are compiled at the first use."""
        with _MAKING:
            if self._code is None:
                self._code = Code(self._scope)
            return self._code

    def start(self, *x: Any) -> Frames:
        self._dependencies()
        self.code.bind(*x)
        self._given |= flatten({"x": x}).objects
        return Frames(0, Boundary("x", rebuild(x, "x", _copy_leaf)))

    def advance(self, state: Frames, limit: float = inf, /) -> tuple[Frames, int, bool]:
        """Run ticks. An exception of the program reaches the caller, with a note of its place."""
        self._check(state)
        after = run(
            self.code,
            Frames(state.ticks, with_values(state.now, copy(values_of(state.now)))),
            limit,
            _BLOCKS,
        )
        return after, after.ticks - state.ticks, after.finished

    def result(self, state: Frames, /) -> Any:
        if not isinstance(state.now, Boundary) or not state.finished:
            raise BadInput(f"{self!r} has not finished after {state.ticks} ticks; advance it first")
        return copy({"y": state.now.value})["y"]

    def pullback(
        self, state: Frames, ticks: int, cotangent: Cotangent, /
    ) -> dict[str, NDArray[Any]]:
        """Propagate a cotangent backwards over some ticks.

        The leaves of an unfinished state have names like "0.u" or "1.stack.0": the number of the
        frame, the variable, and the path. Arrays that share memory are one leaf, which has the
        first of their names.
        """
        self._check(state)
        return _pull_back(self.code, state, ticks, cotangent, partial(self._pack, value_of=_plain))

    def pack(self, state: Frames, /) -> tuple[dict[str, NDArray[Any]], Json]:
        self._check(state)
        return self._pack(state)

    def _pack(
        self, state: Frames, value_of: Callable[[Any], Any] = lambda value: value
    ) -> tuple[dict[str, NDArray[Any]], Json]:
        return pack(state, self._codes(), self.fingerprint, self._objects(), value_of)

    def unpack(self, arrays: Mapping[str, NDArray[Any]], meta: Json, /) -> Frames:
        return unpack(arrays, meta, self._codes(), self.fingerprint, self._objects())

    def renew(self) -> None:
        """Recompile if a called function has become a program, or is not a program any more."""
        if self._code and self._code.calls != self._scope.calls():
            self._code = None

    def _dependencies(self) -> Dependencies:
        with _MAKING:
            if self._known is None or not self._known.hold():
                known = dependencies_of(self, CompiledProgram)
                for each in known.programs.values():
                    each.renew()
                self._known = known
            return self._known

    def _codes(self) -> dict[str, Code]:
        return {name: each.code for name, each in self._dependencies().programs.items()}

    def _objects(self) -> dict[str, Any]:
        """Return the functions, classes and modules that a state of this process may contain."""
        return self._dependencies().objects | self._given

    def _check(self, state: Frames) -> None:
        """Raise BadInput if the state belongs to other code than the present one."""
        if isinstance(state.now, tuple):
            known = list(self._codes().values())  # its own code first
            strange = {frame.code for frame in state.now}.difference(known)
            if strange or state.now[0].code is not known[0]:
                name = (strange or {state.now[0].code}).pop().name
                raise BadInput(
                    f"{self!r} cannot resume a state of {name}: it is other code; resume it with"
                    " the program that it belongs to"
                )


def _copy_leaf(path: str, leaf: Any) -> Any:
    return copy({path: leaf})[path]


def _pull_back(
    code: Code, state: Frames, ticks: int, cotangent: Cotangent, pack: Callable[[Frames], Any], /
) -> dict[str, Array]:
    """Return the cotangent of `state` from that `ticks` ticks later, without zeros."""
    if ticks <= 0 or state.finished:
        return {name: np.array(each) for name, each in cotangent.items()}
    tape = Tape()
    inputs = _Inputs(tape, flatten(values_of(state.now)))
    before = with_values(state.now, inputs.values)
    wanted = inputs.by_name(before)  # now, because the program may replace items of its inputs
    after = run(code, Frames(state.ticks, before), ticks, _taped(tape))
    seeds = list(_seeds(after.now, cotangent))
    report_tape(tape.nodes, tape.nbytes, partial(pack, after))
    bars = tape.backward(seeds, list(wanted.values()))
    return {
        name: inputs.shaped(name, traced, each)
        for (name, traced), each in zip(wanted.items(), bars, strict=True)
        if each is not None
    }


def _taped(tape: Tape) -> Callable[[Code], tuple[BlockFunction, ...]]:
    """Return a function that returns the blocks of a program for this tape, each lifted once."""
    lifted: dict[Code, tuple[BlockFunction, ...]] = {}

    def blocks(code: Code) -> tuple[BlockFunction, ...]:
        if code not in lifted:
            lifted[code] = code.lifting(tape.lift, partial(build, tape.lift))
        return lifted[code]

    return blocks


class _Inputs:
    """The values of a state, on a tape."""

    def __init__(self, tape: Tape, heap: Heap) -> None:
        self._tape = tape
        self._bytes = {name for name, memory in heap.memories.items() if memory.dtype == np.uint8}
        self._owners: dict[str, Any] = {}
        copies = {name: memory.copy() for name, memory in heap.memories.items()}
        for name, memory in copies.items():
            widest = _widest(memory, heap.holders[name])
            if widest.dtype.kind in "fc":
                self._owners[name] = tape.input(widest)
        self.values = restore(heap.structure, copies, heap.objects, self._traced)

    def _traced(self, name: str, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return self._tape.view(self._owners[name], value)
        self._owners[name] = self._tape.input(value)
        return self._owners[name]

    def by_name(self, now: Now) -> dict[str, Traced]:
        """Return the values that have a cotangent: each memory, or at the start each input."""
        if not isinstance(now, Boundary):
            return self._owners
        named_leaves = leaves(now.value, "x").items()
        return {name: leaf for name, leaf in named_leaves if type(leaf) is Traced}

    def shaped(self, name: str, traced: Traced, cotangent: Any) -> Array:
        """Return a cotangent with the dtype of the stored memory."""
        bar = np.asarray(cotangent, traced.value.dtype if hasattr(traced.value, "dtype") else None)
        return bar.view(np.uint8) if name in self._bytes else bar


def _seeds(now: Now, cotangent: Mapping[str, Array]) -> Iterator[tuple[Any, ...]]:
    """Yield the seeds of `Tape.backward` for the values of a state that are on the tape."""
    if isinstance(now, Boundary):
        results = leaves(now.value, "y")
        yield from ((results[name], each) for name, each in cotangent.items() if name in results)
        return
    heap = flatten(values_of(now), _plain)
    for name, each in cotangent.items():
        holders = heap.holders.get(name, ())
        holder = next((one for one in holders if type(one) is Traced), None)
        if holder is None:
            continue
        if name in heap.memories:
            memory = _widest(heap.memories[name], holders)
            yield holder, each.view(memory.dtype), memory
        else:
            yield holder, each


def _plain(value: Any) -> Any:
    return value.value if type(value) is Traced else value


def _widest(memory: Array, holders: Sequence[Any]) -> Array:
    """Return memory with the largest dtype of its views, for example complex instead of float."""
    dtype = max((_plain(holder).dtype for holder in holders), key=lambda dtype: dtype.itemsize)
    whole = memory.dtype == np.uint8 and memory.nbytes % dtype.itemsize == 0
    return memory.view(dtype) if whole and memory.ndim == 1 else memory
