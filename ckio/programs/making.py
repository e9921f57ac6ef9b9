"""From codes to values again."""

import importlib
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckio.errors import BadInput
from ckio.programs import sharing
from ckio.programs.protocol import Json

Wrap = Callable[[str, Any], Any]
"""What takes the place of an array or a number: of the name of its memory, and its plain value."""

_OBJECTS: Final = {"same", "list", "dict", "dtype", "random", "import"}


class Making:
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
                plain = Making({}, lambda _, value: value)
                found = [plain.decode(path, key) for key in keys]
                values = self._items(path, zip(found, items, strict=True))
                made.update(zip(found, values, strict=True))
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
        return imported(name)
    except (ImportError, AttributeError) as error:
        raise BadInput(f"{path} was {name}, which cannot be imported here: {error}") from error


def imported(full: str, /) -> object:
    """What `module:name` imports; raises what python raises."""
    module, _, name = full.partition(":")
    found: object = importlib.import_module(module)
    return reduce(getattr, filter(None, name.split(".")), found)


def _unplain(code: Json) -> Any:
    match code:
        case {"words": words, "dtype": dtype}:
            return np.array(words, dtype)
        case dict():
            return {key: _unplain(value) for key, value in code.items()}
        case _:
            return code
