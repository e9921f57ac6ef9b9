"""A cotangent taken back over some ticks: they are run on a tape, from a state and to a state."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckio.programs.compiled.code import BlockFunction
from ckio.programs.compiled.compiling import Code
from ckio.programs.compiled.frames import Finished, Frames, Now, Started, named, renamed
from ckio.programs.compiled.machine import run
from ckio.programs.interface import Cotangent, taped
from ckio.programs.tape import Tape, Traced
from ckio.programs.values import Heap, flatten, leaves, restore

Array = NDArray[Any]


def pullback(code: Code, state: Frames, ticks: int, cotangent: Cotangent, /) -> dict[str, Array]:
    """The cotangent of `state` from that of the state so many ticks later; zeros are left out."""
    if ticks <= 0 or isinstance(state.now, Finished):
        return {name: np.array(each) for name, each in cotangent.items()}
    tape = Tape()
    inputs = _Inputs(tape, flatten(named(state.now)))
    before = renamed(state.now, inputs.values)
    after = run(code, Frames(state.ticks, before), ticks, _taped(tape))
    seeds = list(_seeds(after.now, cotangent))
    taped(tape.nodes, tape.nbytes)
    wanted = inputs.by_name(before)
    found = tape.backward(seeds, list(wanted.values()))
    return {
        name: inputs.shaped(name, traced, each)
        for (name, traced), each in zip(wanted.items(), found, strict=True)
        if each is not None
    }


def _taped(tape: Tape) -> Callable[[Code], tuple[BlockFunction, ...]]:
    """The blocks of programs on this tape, each made once."""
    made: dict[Code, tuple[BlockFunction, ...]] = {}

    def blocks(code: Code) -> tuple[BlockFunction, ...]:
        if code not in made:
            made[code] = code.lifting(tape.lift)
        return made[code]

    return blocks


class _Inputs:
    """The values of a state, on a tape."""

    def __init__(self, tape: Tape, heap: Heap) -> None:
        self._tape = tape
        self._bytes = {name for name, memory in heap.memories.items() if memory.dtype == np.uint8}
        self._owners: dict[str, Any] = {}
        copies = {name: memory.copy() for name, memory in heap.memories.items()}
        for name, copied in copies.items():
            widest = _widest(copied, heap.holders[name])
            if widest.dtype.kind in "fc":
                self._owners[name] = tape.input(widest)
        self.values = restore(heap.structure, copies, self._traced)

    def _traced(self, name: str, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return self._tape.view(self._owners[name], value)
        self._owners[name] = self._tape.input(value)
        return self._owners[name]

    def by_name(self, now: Now) -> dict[str, Traced]:
        """What has a cotangent: all memory, or the inputs one by one."""
        if not isinstance(now, Started):
            return self._owners
        found = leaves(now.inputs, "x").items()
        return {name: leaf for name, leaf in found if type(leaf) is Traced}

    def shaped(self, name: str, traced: Traced, cotangent: Any) -> Array:
        """A cotangent as the memory is stored."""
        found = np.asarray(
            cotangent, traced.value.dtype if hasattr(traced.value, "dtype") else None
        )
        return found.view(np.uint8) if name in self._bytes else found


def _seeds(now: Now, cotangent: Mapping[str, Array]) -> Iterator[tuple[Any, ...]]:
    """The cotangent of a state, for those of its values that are on the tape."""
    if isinstance(now, Finished):
        found = leaves(now.result, "y")
        yield from ((found[name], each) for name, each in cotangent.items() if name in found)
        return
    heap = flatten(named(now), _plain)
    for name, each in cotangent.items():
        holders = heap.holders.get(name, ())
        holder = next((held for held in holders if type(held) is Traced), None)
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
    """Memory that several dtypes view, as the largest of them: complex rather than its parts."""
    dtype = max((_plain(held).dtype for held in holders), key=lambda dtype: dtype.itemsize)
    whole = memory.dtype == np.uint8 and memory.nbytes % dtype.itemsize == 0
    return memory.view(dtype) if whole and memory.ndim == 1 else memory
