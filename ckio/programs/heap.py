"""Python values as plain data: pieces of memory by name, and a structure that JSON can hold.

Arrays that share memory share it again when they are restored, with the strides that they had: a
sum goes over an array in the order of its memory, so that another order would round otherwise. What
is stored of memory is what the arrays span, once.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ckio.programs import sharing
from ckio.programs.copying import Copying, Unclear
from ckio.programs.making import Making, Wrap
from ckio.programs.protocol import Json
from ckio.programs.taking import Taking


@dataclass(frozen=True)
class Heap:
    """Values taken apart.

    Attributes
    ----------
    structure : Json
        All but the arrays' content.
    memories : dict of str to array
        Each piece of memory, by the first path that leads to it: an array that is contiguous and
        all that lies there, or else everything between first byte and last, as a row. Not copied.
    numbers : dict of str to number
        What has a derivative and is no array: float, complex, and NumPy's scalars of such a kind.
    holders : dict of str to list
        The objects that each of these was found as, before `value_of`.
    """

    structure: Json
    memories: dict[str, NDArray[Any]]
    numbers: dict[str, Any]
    holders: dict[str, list[Any]]


def flatten(
    values: Mapping[str, object], value_of: Callable[[Any], Any] = lambda value: value, /
) -> Heap:
    """Take values apart; an object that stands for another is seen through by `value_of`.

    What it holds are arrays, numbers, text, and tuples, lists and dicts of them; ranges, slices,
    dtypes, random generators; functions, classes and modules that can be imported by their name.
    Raises BadInput, which names the path, for anything else.
    """
    taking = Taking(value_of)
    structure = {name: taking.whole(name, value) for name, value in values.items()}
    heap = Heap(structure, {}, taking.numbers, taking.holders)
    spans = sharing.spans([each.array for each in taking.arrays])
    for group in sharing.groups(spans):
        found = [taking.arrays[number] for number in group]
        memory = sharing.memory([it.array for it in found], [spans[number] for number in group])
        name = found[0].path
        heap.memories[name] = memory
        heap.holders[name] = [it.holder for it in found]
        for it in found:
            it.code.update({"array": name} | sharing.code(it.array, memory))
    return heap


def restore(
    structure: Json, memories: Mapping[str, NDArray[Any]], wrap: Wrap | None = None, /
) -> dict[str, Any]:
    """The values again, as views of these memories.

    Each array and number that has a derivative is what `wrap` makes of it. Raises BadInput where a
    memory lacks, or an object is not what it was called.
    """
    making = Making(memories, wrap or (lambda _, value: value))
    return {name: making.decode(name, code) for name, code in structure.items()}


def copy(values: Mapping[str, object], /) -> dict[str, Any]:
    """The same values in memory of their own."""
    with suppress(Unclear, RecursionError):
        copied: dict[str, Any] = Copying().copy(dict(values))
        return copied
    heap = flatten(values)
    return restore(heap.structure, {name: m.copy() for name, m in heap.memories.items()})
