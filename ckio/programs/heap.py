"""Python values and their parts: the leaves of structures, plain data for checkpoints, and copies.

    leaves, rebuild          structures of tuples, lists and dicts, and the names of their leaves
    flatten, restore         values as pieces of memory and a structure of JSON
    copy                     copies of values
    span                     the addresses of an array

Arrays that share memory also share it when they are restored, with the same strides. The reason is
that NumPy adds the entries of an array in the order of its memory, and another order would round
differently. Shared memory is stored once, from the first byte of these arrays to the last.

Nothing that a structure names is imported or called: a function or class is one of those that the
caller of `restore` gives, or one of a closed list.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from types import ModuleType
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.typing import NDArray

from ckio.errors import BadInput

Json: TypeAlias = Any
"""A value of JSON: None, bool, int, float, str, and lists of them and dicts with keys of text."""

Wrap = Callable[[str, Any], Any]
"""A function of the name and value of an array or number. It returns the object for the value."""

Span = tuple[int, int]
"""The address of the first byte, and the address after the last byte."""

_PLAIN: Final = (type(None), bool, int, str)
_KINDS: Final = frozenset("biufcSUmM")
"""Kinds of arrays that a checkpoint can store."""

_DTYPES: Final = "?bhilqBHILQefdFD"
"""The codes of NumPy's numbers that a checkpoint can store, all but those of long doubles."""

_KNOWN: Final = (
    *(bool, int, float, complex, str, list, tuple, dict, np.ndarray),
    *(np.dtype(code).type for code in _DTYPES),
    type(np.linalg.slogdet(np.eye(1))),
)
"""Classes that the values of any program may name."""

_RANDOM: Final = (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox,
                  np.random.SFC64)  # fmt: skip
"""The random generators that a checkpoint can store."""

_OBJECTS: Final = {"same", "list", "dict", "dtype", "random", "import"}
"""Codes of objects with an identity: several references to such an object must stay the same."""


# Structures and their leaves


def leaves(tree: object, name: str, /) -> dict[str, Any]:
    """Return each leaf by its path, for example `name.index` or `name.key`. None is not a leaf.

    >>> leaves({"u": 1.0, "history": [2.0, None, (3.0,)]}, "y")
    {'y.u': 1.0, 'y.history.0': 2.0, 'y.history.2.0': 3.0}
    """
    named: dict[str, Any] = {}

    def see(path: str, leaf: Any) -> None:
        if path in named:
            raise _twice(path)
        named[path] = leaf

    rebuild(tree, name, see)
    return named


def rebuild(tree: object, name: str, leaf: Callable[[str, Any], Any], /) -> Any:
    """Return a structure like this one with leaf(path, value) for each of its leaves.

    >>> rebuild((1.0, {"u": 2.0}), "x", lambda path, value: (path, 2 * value))
    (('x.0', 2.0), {'u': ('x.1.u', 4.0)})
    """
    match tree:
        case None:
            return None
        case tuple() | list():
            items = [rebuild(item, f"{name}.{n}", leaf) for n, item in enumerate(tree)]
            return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
        case dict():
            return {key: rebuild(item, f"{name}.{key}", leaf) for key, item in tree.items()}
        case _:
            return leaf(name, tree)


def _twice(path: str) -> BadInput:
    return BadInput(f"two values are called {path}; use keys that differ as text")


# Values as plain data


@dataclass(frozen=True)
class Heap:
    """Values, divided into a structure and pieces of memory.

    Attributes
    ----------
    structure : Json
        Everything except the content of arrays.
    memories : dict of str to array
        Each piece of memory, by the first path that leads to it, and not copied. It is the array
        itself if that is contiguous and no other array shares its memory. Otherwise it is a
        one-dimensional array of all bytes from the first to the last.
    holders : dict of str to list
        The original objects of each piece of memory, before `value_of`, and of each number that has
        a derivative: float, complex, and numpy's numbers of these kinds.
    objects : dict of str to object
        The functions, classes and modules that the structure names.
    """

    structure: Json
    memories: dict[str, NDArray[Any]]
    holders: dict[str, list[Any]]
    objects: dict[str, Any]

    def stored(self, value_of: Callable[[Any], Any], /) -> dict[str, NDArray[Any]]:
        """Return copies of the memories, in which bytes between arrays are 0."""
        views = {name: [value_of(each) for each in self.holders[name]] for name in self.memories}
        return {name: _stored(memory, views[name]) for name, memory in self.memories.items()}


def flatten(
    values: Mapping[str, object], value_of: Callable[[Any], Any] = lambda value: value, /
) -> Heap:
    """Separate values into a structure and pieces of memory.

    `value_of` maps an object that represents another one to that object. The values may be arrays,
    numbers, text, and tuples, lists and dicts of them; ranges, slices, dtypes and random
    generators; and functions, classes and modules that can be imported by name. For any other
    value, raises BadInput with its path.
    """
    encoder = _Encoder(value_of)
    structure = {}
    for name, value in values.items():
        try:
            structure[name] = encoder.encode(name, value)
        except RecursionError as error:
            what = "tuples, lists or dicts that are nested too deep for a checkpoint; nest fewer"
            raise BadInput(f"{name} has {what}") from error
    heap = Heap(structure, {}, encoder.holders, encoder.objects)
    spans = [span(array) for _, array, _, _ in encoder.arrays]
    for group in _overlapping(spans):
        views = [encoder.arrays[number] for number in group]
        arrays = [array for _, array, _, _ in views]
        name, memory = views[0][0], _memory(arrays, [spans[number] for number in group])
        heap.memories[name] = memory
        heap.holders[name] = [holder for _, _, holder, _ in views]
        for _, array, _, code in views:
            code.update({"array": name} | _view_code(array, memory))
    return heap


def restore(
    structure: Json, memories: Mapping[str, NDArray[Any]], objects: Mapping[str, Any],
    wrap: Wrap | None = None, /
) -> dict[str, Any]:  # fmt: skip
    """Return the values of a structure, as views of these memories.

    `objects` has the functions, classes and modules that it may name; see `known`. Each array and
    number that has a derivative is replaced by the result of `wrap`. Raises KeyError if a memory is
    missing, and BadInput if the structure names another object.
    """
    decoder = _Decoder(memories, objects, wrap or (lambda _, value: value))
    return {name: decoder.decode(name, code) for name, code in structure.items()}


def known(objects: Iterable[object], /) -> dict[str, Any]:
    """Return these objects by name, if they can be imported, and the classes of any program."""
    named = ((_import_name(each), each) for each in (*_KNOWN, *objects))
    return {name: each for name, each in named if name is not None}


class _Encoder:
    """Encodes values, and remembers the objects that it has encoded.

    For each array it stores the path, the array, its original object, and a code. `flatten` adds to
    the code which memory the array views.
    """

    def __init__(self, value_of: Callable[[Any], Any]) -> None:
        self.arrays: list[tuple[str, NDArray[Any], object, dict[str, Json]]] = []
        self.holders: dict[str, list[Any]] = {}
        self.objects: dict[str, Any] = {}
        self._value_of = value_of
        self._paths: set[str] = set()
        self._seen: dict[int, tuple[str, object]] = {}  # keeps objects, so that ids stay unique

    def encode(self, path: str, holder: object) -> Json:  # noqa: PLR0911, PLR0912 - each kind
        """Return the code of one value and its parts."""
        value = self._value_of(holder)
        kind = type(value)
        if isinstance(value, np.ndarray):
            return self._array(path, value, holder)
        if isinstance(value, np.generic) or kind is float or kind is complex:
            return self._number(path, value, holder)
        if kind in _PLAIN:
            return value
        match value:  # these have no identity: equal values are the same value
            case tuple():
                named = {"as": self._named(path, kind)} if hasattr(value, "_fields") else {}
                return {"tuple": self._items(path, enumerate(value))} | named
            case bytes() if kind is bytes:
                return {"bytes": value.hex()}
            case range():
                return {"range": [value.start, value.stop, value.step]}
            case slice():
                ends = value.start, value.stop, value.step
                return {"slice": self._items(path, enumerate(ends))}
            case _:
                pass
        if id(holder) in self._seen:
            return {"same": self._seen[id(holder)][0]}
        self._new(path)
        self._seen[id(holder)] = path, holder
        match value:
            case list() if kind is list:
                return {"list": self._items(path, enumerate(value))}
            case dict() if kind is dict:
                keys = [_key_code(path, key) for key in value]
                return {"dict": [keys, self._items(path, value.items())]}
            case np.dtype() if np.dtype(value.str) == value:
                return {"dtype": value.str}
            case np.random.Generator() if type(value.bit_generator) in _RANDOM:
                state = value.bit_generator.state
                return {"random": rebuild(state, path, _listed)}
            case _:
                return {"import": self._named(path, value)}

    def _items(self, path: str, pairs: Iterable[tuple[object, object]]) -> list[Json]:
        return [self.encode(f"{path}.{key}", value) for key, value in pairs]

    def _named(self, path: str, value: object) -> str:
        name = _import_name(value)
        if name is None:
            raise BadInput(
                f"{path} is a {type(value).__name__}, which a checkpoint cannot store; use arrays,"
                " numbers, and objects that can be imported by name"
            )
        self.objects[name] = value
        return name

    def _new(self, path: str) -> None:
        """Register a path. Raise BadInput if another value has it."""
        if path in self._paths:
            raise _twice(path)
        self._paths.add(path)

    def _array(self, path: str, array: NDArray[Any], holder: object) -> Json:
        if type(array) is not np.ndarray or array.dtype.kind not in _KINDS:
            raise BadInput(
                f"{path} is a {type(array).__name__} of {array.dtype}, which a checkpoint cannot"
                " store; make it a plain array of numbers"
            )
        self._new(path)
        code: dict[str, Json] = {}
        self.arrays.append((path, array, holder, code))
        return code

    def _number(self, path: str, value: Any, holder: object) -> Json:
        dtype = np.asarray(value).dtype
        if dtype.char not in _DTYPES:
            raise BadInput(
                f"{path} is a {dtype}, which a checkpoint cannot store; make it a number in"
                " double precision"
            )
        if dtype.kind in "fc":
            self._new(path)
            self.holders[path] = [holder]
        if isinstance(value, np.generic):
            return {"scalar": value.tobytes().hex(), "dtype": dtype.str}
        return {type(value).__name__: repr(value)}


class _Decoder:
    """Decodes values. A shared object is decoded once."""

    def __init__(
        self, memories: Mapping[str, NDArray[Any]], known: Mapping[str, Any], wrap: Wrap
    ) -> None:
        self._memories, self._known, self._wrap = memories, known, wrap
        self._objects: dict[str, Any] = {}
        self._arrays: dict[str, Any] = {}

    def decode(self, path: str, code: Json) -> Any:  # noqa: PLR0911 - one for each kind
        """Return the value of one code."""
        match code:
            case {"array": str()}:
                return self._array(code)
            case {"float": text}:
                return self._wrap(path, float(text))
            case {"complex": text}:
                return self._wrap(path, complex(text))
            case {"scalar": text, "dtype": name}:
                value = np.frombuffer(bytes.fromhex(text), _dtype(path, name))[0]
                return self._wrap(path, value) if value.dtype.kind in "fc" else value
            case dict() if code.keys() & _OBJECTS:
                return self._object(path, code)
            case {"tuple": items, "as": name}:
                return self._tuple(path, name)(*self._items(path, enumerate(items)))
            case {"tuple": items}:
                return tuple(self._items(path, enumerate(items)))
            case {"bytes": text}:
                return bytes.fromhex(text)
            case {"range": ends}:
                return range(*ends)
            case {"slice": ends}:
                return slice(*self._items(path, enumerate(ends)))
            case _:
                return code

    def _object(self, path: str, code: Json) -> Any:
        objects = self._objects
        match code:
            case {"same": other}:
                return objects[other]
            case {"list": items}:
                objects[path] = []
                objects[path].extend(self._items(path, enumerate(items)))
            case {"dict": [keys, items]}:
                objects[path] = {}
                plain = _Decoder({}, {}, lambda _, value: value)
                known = [plain.decode(path, key) for key in keys]
                values = self._items(path, zip(known, items, strict=True))
                objects[path].update(zip(known, values, strict=True))
            case {"dtype": name}:
                objects[path] = _dtype(path, name)
            case {"random": state}:
                bits = next(kind for kind in _RANDOM if kind.__name__ == state["bit_generator"])()
                bits.state = state
                objects[path] = np.random.Generator(bits)
            case _:
                objects[path] = self._named(path, code["import"])
        return objects[path]

    def _named(self, path: str, name: str) -> Any:
        if name not in self._known:
            raise BadInput(
                f"{path} was {name}, which is neither in the code of this program nor in its"
                " inputs; restore that code, or start again"
            )
        return self._known[name]

    def _tuple(self, path: str, name: str) -> Callable[..., Any]:
        kind = self._named(path, name)
        if not (isinstance(kind, type) and issubclass(kind, tuple)):
            raise BadInput(f"{path} was a {name}, which is no named tuple; use another checkpoint")
        return kind

    def _items(self, path: str, pairs: Iterable[tuple[object, Json]]) -> list[Any]:
        return [self.decode(f"{path}.{key}", code) for key, code in pairs]

    def _array(self, code: Mapping[str, Json]) -> Any:
        name, key = code["array"], str(code)
        if key not in self._arrays:
            array = self._memories[name]
            if "offset" in code:
                shape, strides = tuple(code["shape"]), tuple(code["strides"])
                dtype = _dtype(name, code["dtype"])
                array = np.ndarray(shape, dtype, array, code["offset"], strides)
            self._arrays[key] = self._wrap(name, array) if array.dtype.kind in "fc" else array
        return self._arrays[key]


def _key_code(path: str, key: object) -> Json:
    """Return the code of a key of a dict."""
    if type(key) is tuple:
        return {"tuple": [_key_code(path, each) for each in key]}
    if type(key) in (*_PLAIN, float, bytes) or isinstance(key, np.number | np.bool_):
        return _Encoder(lambda value: value).encode(path, key)
    raise BadInput(
        f"{path} is a dict with the key {key!r}; keys must be text, numbers, or tuples of them"
    )


def _import_name(value: object) -> str | None:
    """Return the name by which exactly this object can be imported, or None."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if isinstance(value, ModuleType):
        module, name = value.__name__, ""
    elif not isinstance(module, str) or not isinstance(name, str):
        return None
    with suppress(ImportError, AttributeError, TypeError, ValueError):
        parts = filter(None, name.split("."))
        if reduce(getattr, parts, importlib.import_module(module)) is value:
            return f"{module}:{name}"
    return None


def _dtype(path: str, name: object) -> np.dtype[Any]:
    dtype = np.dtype(name) if isinstance(name, str) else None
    if dtype is None or dtype.kind not in _KINDS or dtype.names:
        raise BadInput(f"{path} has the dtype {name!r}, which a checkpoint cannot store")
    return dtype


def _listed(_: str, value: Any) -> Json:
    return value.tolist() if isinstance(value, np.ndarray) else value


# Arrays that share memory


def span(array: NDArray[Any], /) -> Span:
    """Return the address of the first byte of an array, and the address after its last byte."""
    if array.flags.c_contiguous or not array.size:
        return _address(array), _address(array) + array.nbytes
    return byte_bounds(array)


def _overlapping(spans: Sequence[Span]) -> list[list[int]]:
    """Return groups of overlapping spans by their numbers, in the order of their first numbers.

    >>> _overlapping([(0, 8), (8, 16), (3, 3), (12, 20)])
    [[0], [1, 3], [2]]
    """
    groups: list[list[int]] = []
    end = -1
    for low, high, number in sorted((*each, number) for number, each in enumerate(spans)):
        if low == high:
            groups.insert(0, [number])
        elif low >= end:
            groups.append([number])
            end = high
        else:
            groups[-1].append(number)
            end = max(end, high)
    return sorted(map(sorted, groups))


def _memory(arrays: Sequence[NDArray[Any]], spans: Sequence[Span]) -> NDArray[Any]:
    """Return an array that contains all of these: one of them, or all bytes of their span."""
    if len(arrays) == 1 and arrays[0].flags.c_contiguous:
        return arrays[0]
    low, high = min(first for first, _ in spans), max(behind for _, behind in spans)
    dtypes = {array.dtype for array in arrays}
    if len(dtypes) == 1:
        for array, each in zip(arrays, spans, strict=True):
            if array.flags.c_contiguous and each == (low, high):
                return array
    dtype = dtypes.pop() if len(dtypes) == 1 else np.dtype(np.uint8)
    if any((address - low) % dtype.itemsize for each in spans for address in each):
        dtype = np.dtype(np.uint8)
    return np.asarray(_ByteRow(low, (high - low) // dtype.itemsize, dtype, arrays))


class _ByteRow:
    """Memory that begins at an address, in numpy's array interface. It keeps its owners alive."""

    def __init__(self, low: int, count: int, dtype: np.dtype[Any], of: Sequence[object]) -> None:
        self._of = of
        self.__array_interface__ = {
            "version": 3, "data": (low, False), "shape": (count,), "typestr": dtype.str,
        }  # fmt: skip


def _stored(memory: NDArray[Any], arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    if any(array is memory for array in arrays):
        return memory.copy()
    copy = np.zeros_like(memory)
    for array in arrays:
        at = _address(array) - _address(memory) if array.size else 0
        np.ndarray(array.shape, array.dtype, copy, at, array.strides)[...] = array
    return copy


def _view_code(array: NDArray[Any], memory: NDArray[Any]) -> dict[str, Json]:
    """Return the code of an array in this memory. It is empty if the array is the whole memory."""
    if array is memory:
        return {}
    offset = _address(array) - _address(memory) if array.size else 0
    view = {"shape": array.shape, "strides": array.strides, "dtype": array.dtype}
    if offset == 0 and all(getattr(memory, name) == value for name, value in view.items()):
        return {}
    shape, strides = list(array.shape), list(array.strides)
    return {"offset": offset, "shape": shape, "strides": strides, "dtype": array.dtype.str}


def _address(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def copy(values: Mapping[str, object], /) -> dict[str, Any]:
    """Return a copy of the values that shares no memory with them."""
    heap = flatten(values)
    memories = {name: memory.copy() for name, memory in heap.memories.items()}
    return restore(heap.structure, memories, heap.objects)
