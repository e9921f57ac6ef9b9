"""Python values as plain data: pieces of memory by name, and a structure that JSON can hold.

Arrays that share memory share it again when they are restored, with the strides that they had: a
sum goes over an array in the order of its memory, so that another order would round otherwise. What
is stored of memory is what the arrays span, once.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckio.errors import BadInput
from ckio.programs import sharing
from ckio.programs.protocol import Json

Wrap = Callable[[str, Any], Any]
"""What takes the place of an array or a number: of the name of its memory, and its plain value."""


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
    taking = _Taking(value_of)
    structure = {name: taking.encode(name, value) for name, value in values.items()}
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
    making = _Making(memories, wrap or (lambda _, value: value))
    return {name: making.decode(name, code) for name, code in structure.items()}


def copy(values: Mapping[str, object], /) -> dict[str, Any]:
    """The same values in memory of their own."""
    heap = flatten(values)
    return restore(heap.structure, {name: m.copy() for name, m in heap.memories.items()})


@dataclass(frozen=True, slots=True)
class _Found:
    """An array, where it was found, and the code that is to say which memory it views."""

    path: str
    array: NDArray[Any]
    holder: object
    code: dict[str, Json]


class _Taking:
    """Goes through values once, and remembers what it has seen."""

    def __init__(self, value_of: Callable[[Any], Any]) -> None:
        self.arrays: list[_Found] = []
        self.numbers: dict[str, Any] = {}
        self.holders: dict[str, list[Any]] = {}
        self._value_of = value_of
        self._seen: dict[int, tuple[str, object]] = {}  # kept, so that no id is used twice

    def encode(self, path: str, holder: object) -> Json:
        """The code of one value and all that it holds."""
        value = self._value_of(holder)
        if isinstance(value, np.ndarray):
            return self._array(path, value, holder)
        if isinstance(value, np.generic):
            return self._scalar(path, value, holder)
        if type(value) in (float, complex):
            return self._number(path, value, holder)
        if type(value) in _ALIKE or isinstance(value, tuple):
            return self._value(path, value)
        return value if type(value) in _PLAIN else self._once(path, value, holder)

    def _once(self, path: str, value: object, holder: object) -> Json:
        """What may be held in several places."""
        if id(holder) in self._seen:
            return {"same": self._seen[id(holder)][0]}
        self._seen[id(holder)] = path, holder
        return self._object(path, value)

    def _value(self, path: str, value: object) -> Json:
        """What is the same wherever it is equal."""
        match value:
            case tuple():
                named = {"as": _name(path, type(value))} if hasattr(value, "_fields") else {}
                return {"tuple": self._items(path, enumerate(value))} | named
            case bytes():
                return {"bytes": value.hex()}
            case range():
                return {"range": [value.start, value.stop, value.step]}
            case slice():
                ends = value.start, value.stop, value.step
                return {"slice": self._items(path, enumerate(ends))}
            case _:
                raise TypeError(type(value))

    def _object(self, path: str, value: object) -> Json:
        """What is one thing, however often it is held."""
        match value:
            case list() if type(value) is list:
                return {"list": self._items(path, enumerate(value))}
            case dict() if type(value) is dict:
                keys = [_key(path, key) for key in value]
                return {"dict": [keys, self._items(path, value.items())]}
            case np.dtype():
                return {"dtype": value.str}
            case np.random.Generator():
                return {"random": _plain(value.bit_generator.state)}
            case _:
                return {"import": _name(path, value)}

    def _items(self, path: str, pairs: Iterable[tuple[object, object]]) -> list[Json]:
        return [self.encode(f"{path}.{key}", value) for key, value in pairs]

    def _array(self, path: str, array: NDArray[Any], holder: object) -> Json:
        if type(array) is not np.ndarray or array.dtype.kind not in _KINDS:
            raise BadInput(
                f"{path} is a {type(array).__name__} of {array.dtype}, which a checkpoint cannot"
                " hold; make it a plain array of numbers"
            )
        code: dict[str, Json] = {}
        self.arrays.append(_Found(path, array, holder, code))
        return code

    def _scalar(self, path: str, value: np.generic, holder: object) -> Json:
        kind, size = value.dtype.kind, value.dtype.itemsize
        if kind not in _SIZES or size > _SIZES[kind]:
            raise BadInput(f"{path} is a {value.dtype}, which a checkpoint cannot hold")
        number = value.item()
        code = self._number(path, value, holder) if kind in "fc" else number
        return {"scalar": code, "dtype": value.dtype.str}

    def _number(self, path: str, value: Any, holder: object) -> Json:
        self.numbers[path] = value
        self.holders[path] = [holder]
        number = value.item() if isinstance(value, np.generic) else value
        if isinstance(number, float):
            return {"float": number.hex()}
        return {"complex": [number.real.hex(), number.imag.hex()]}


_PLAIN: Final = (type(None), bool, int, str)
_ALIKE: Final = (bytes, range, slice)
_KINDS: Final = "biufcSUmM"
_SIZES: Final = {"b": 1, "i": 8, "u": 8, "f": 8, "c": 16}
"""NumPy's scalars that python has a number for, by kind, with their largest size."""


def _key(path: str, key: object) -> Json:
    if type(key) in _PLAIN:
        return key
    raise BadInput(f"{path} is a dict with the key {key!r}; keys must be text or whole numbers")


def _name(path: str, value: object) -> str:
    """The name that imports this very object."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if isinstance(value, ModuleType):
        module, name = value.__name__, ""
    full = f"{module}:{name}"
    with suppress(ImportError, AttributeError, TypeError):
        if _imported(full) is value:
            return full
    raise BadInput(
        f"{path} is a {type(value).__name__}, which a checkpoint cannot hold; keep arrays and"
        " numbers, and what can be imported by its name"
    )


def _imported(full: str) -> object:
    module, _, name = full.partition(":")
    found: object = importlib.import_module(module)
    return reduce(getattr, filter(None, name.split(".")), found)


def _plain(state: object) -> Json:
    """The state of a random generator, whose arrays are of whole numbers."""
    match state:
        case dict():
            return {key: _plain(value) for key, value in state.items()}
        case np.ndarray():
            return {"words": state.tolist(), "dtype": state.dtype.str}
        case _:
            return state


def _unplain(code: Json) -> Any:
    match code:
        case {"words": words, "dtype": dtype}:
            return np.array(words, dtype)
        case dict():
            return {key: _unplain(value) for key, value in code.items()}
        case _:
            return code


_OBJECTS: Final = {"same", "list", "dict", "dtype", "random", "import"}


class _Making:
    """Builds values, each shared object once."""

    def __init__(self, memories: Mapping[str, NDArray[Any]], wrap: Wrap) -> None:
        self._memories, self._wrap = memories, wrap
        self._made: dict[str, Any] = {}
        self._arrays: dict[tuple[object, ...], Any] = {}

    def decode(self, path: str, code: Json) -> Any:
        """The value of one code."""
        match code:
            case {"array": str()}:
                return self._array(code)
            case {"float": _} | {"complex": _}:
                return self._wrap(path, _to_number(code))
            case {"scalar": number, "dtype": dtype}:
                value = np.dtype(dtype).type(_to_number(number))
                return self._wrap(path, value) if value.dtype.kind in "fc" else value
            case dict() if code.keys() & _OBJECTS:
                return self._object(path, code)
            case dict():
                return self._value(path, code)
            case _:
                return code

    def _value(self, path: str, code: Json) -> Any:
        match code:
            case {"tuple": items, "as": name}:
                return _found(path, name)(*self._items(path, enumerate(items)))
            case {"tuple": items}:
                return tuple(self._items(path, enumerate(items)))
            case {"bytes": text}:
                return bytes.fromhex(text)
            case {"range": ends}:
                return range(*ends)
            case {"slice": ends}:
                return slice(*self._items(path, enumerate(ends)))
            case _:
                raise BadInput(f"{path}: {code!r} is not the code of a value")

    def _object(self, path: str, code: Json) -> Any:
        made: Any
        match code:
            case {"same": other}:
                return self._made[other]
            case {"list": items}:
                made = self._made[path] = []
                made.extend(self._items(path, enumerate(items)))
            case {"dict": [keys, items]}:
                made = self._made[path] = {}
                values = self._items(path, zip(keys, items, strict=True))
                made.update(zip(keys, values, strict=True))
            case {"dtype": name}:
                made = self._made[path] = np.dtype(name)
            case {"random": state}:
                made = self._made[path] = _generator(_unplain(state))
            case _:
                made = self._made[path] = _found(path, code["import"])
        return made

    def _items(self, path: str, pairs: Iterable[tuple[object, Json]]) -> list[Any]:
        return [self.decode(f"{path}.{key}", code) for key, code in pairs]

    def _array(self, code: Mapping[str, Json]) -> Any:
        name = code["array"]
        place = (name, str(code))
        if place not in self._arrays:
            if name not in self._memories:
                raise BadInput(f"the array {name} lacks in this checkpoint")
            array = sharing.view(self._memories[name], code)
            differs = array.dtype.kind in "fc"
            self._arrays[place] = self._wrap(name, array) if differs else array
        return self._arrays[place]


def _to_number(code: Json) -> Any:
    match code:
        case {"float": text}:
            return float.fromhex(text)
        case {"complex": [real, imag]}:
            return complex(float.fromhex(real), float.fromhex(imag))
        case _:
            return code


def _generator(state: Json) -> np.random.Generator:
    bits = getattr(np.random, state["bit_generator"])()
    bits.state = state
    return np.random.Generator(bits)


def _found(path: str, name: str) -> Any:
    try:
        return _imported(name)
    except (ImportError, AttributeError) as error:
        raise BadInput(f"{path} was {name}, which cannot be imported here: {error}") from error
