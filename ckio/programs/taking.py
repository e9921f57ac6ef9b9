"""From values to their codes: what JSON can hold of them, and the arrays that were found."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckio.errors import BadInput
from ckio.programs.making import imported
from ckio.programs.protocol import Json


@dataclass(frozen=True, slots=True)
class Found:
    """An array, where it was found, and the code that is to say which memory it views."""

    path: str
    array: NDArray[Any]
    holder: object
    code: dict[str, Json]


class Taking:
    """Goes through values once, and remembers what it has seen."""

    def __init__(self, value_of: Callable[[Any], Any]) -> None:
        self.arrays: list[Found] = []
        self.numbers: dict[str, Any] = {}
        self.holders: dict[str, list[Any]] = {}
        self._value_of = value_of
        self._paths: set[str] = set()
        self._seen: dict[int, tuple[str, object]] = {}  # kept, so that no id is used twice

    def whole(self, name: str, value: object) -> Json:
        """The code of a value that nothing else holds; raises BadInput where it is too deep."""
        try:
            return self.encode(name, value)
        except RecursionError as error:
            what = "tuples, lists or dicts too deep in each other for a checkpoint; keep them flat"
            raise BadInput(f"{name} has {what}") from error

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

    def _new(self, path: str) -> None:
        """Raises BadInput for a path that leads to something else already."""
        if path in self._paths:
            raise BadInput(f"two values are called {path}; take keys that differ as text")
        self._paths.add(path)

    def _once(self, path: str, value: object, holder: object) -> Json:
        """What may be held in several places."""
        if id(holder) in self._seen:
            return {"same": self._seen[id(holder)][0]}
        self._new(path)
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
        self._new(path)
        code: dict[str, Json] = {}
        self.arrays.append(Found(path, array, holder, code))
        return code

    def _scalar(self, path: str, value: np.generic, holder: object) -> Json:
        kind, size = value.dtype.kind, value.dtype.itemsize
        if kind not in _SIZES or size > _SIZES[kind]:
            raise BadInput(f"{path} is a {value.dtype}, which a checkpoint cannot hold")
        number = value.item()
        code = self._number(path, value, holder) if kind in "fc" else number
        return {"scalar": code, "dtype": value.dtype.str}

    def _number(self, path: str, value: Any, holder: object) -> Json:
        self._new(path)
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
    """The code of a key: what is the same wherever it is equal."""
    if type(key) is tuple:
        return {"tuple": [_key(path, each) for each in key]}
    if type(key) in _PLAIN:
        return key
    if type(key) in (float, bytes) or isinstance(key, np.number | np.bool_):
        return Taking(lambda value: value).encode(path, key)
    raise BadInput(
        f"{path} is a dict with the key {key!r}; keys must be text, numbers, or tuples of them"
    )


def _name(path: str, value: object) -> str:
    """The name that imports this very object."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if isinstance(value, ModuleType):
        module, name = value.__name__, ""
    full = f"{module}:{name}"
    with suppress(ImportError, AttributeError, TypeError):
        if imported(full) is value:
            return full
    raise BadInput(
        f"{path} is a {type(value).__name__}, which a checkpoint cannot hold; keep arrays and"
        " numbers, and what can be imported by its name"
    )


def _plain(state: object) -> Json:
    """The state of a random generator, whose arrays are of whole numbers."""
    match state:
        case dict():
            return {key: _plain(value) for key, value in state.items()}
        case np.ndarray():
            return {"words": state.tolist(), "dtype": state.dtype.str}
        case _:
            return state
