"""All code and constants on which a program depends, and a hash of them.

They are found by the names in the code. Functions and classes of the user's own modules are
followed. For a library, only its version is in the hash. Comments, layout and docstrings are not.

The hash is of the objects in memory: the syntax of programs, the bytecode of other functions, and
the values of names. Therefore a file that is edited while Python runs does not change it. Another
version of Python has other bytecode, and so another hash.
"""

import ast
import builtins
import dis
import pickle
import random
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from ckio.errors import BadInput
from ckio.programs.compiled.source import Source, dotted, locals_of, nested
from ckio.programs.heap import known

MISSING: Final = object()


@dataclass(frozen=True)
class Dependencies:
    """All code and constants on which a program depends.

    Attributes
    ----------
    fingerprint : str
        The hash.
    programs : dict
        The program itself, and then each program that it calls, by unique names.
    bindings : tuple
        The values of names: a namespace, a name in it, and its value.
    objects : dict
        The functions, classes and modules among them, by the names under which they are imported.
    """

    fingerprint: str
    programs: dict[str, Any]
    bindings: tuple[tuple[Any, str, object], ...]
    objects: dict[str, Any]

    def hold(self) -> bool:
        """Return whether all names still have the same values."""
        return all(_bound(place, name) is value for place, name, value in self.bindings)


def dependencies_of(program: Any, kind: type, /) -> Dependencies:
    """Return all code and constants on which a program depends; `kind` is the class of programs."""
    walk = _Walk(kind)
    walk.tag(program)
    fingerprint = sha256("\n\n".join(walk.lines).encode()).hexdigest()[:16]
    bindings = tuple(walk.bindings.values())
    return Dependencies(fingerprint, walk.programs, bindings, known(walk.objects()))


class Scope:
    """The names in a function and their values. `kind` is the class of programs."""

    def __init__(self, source: Source, kind: type) -> None:
        self.source, self._kind = source, kind
        self.locals = locals_of(source.tree)

    def value(self, chain: tuple[str, ...] | None, /) -> object:
        """Return the value of a.b.c, where a and a.b are modules, or MISSING."""
        if chain is None or chain[0] in self.locals:
            return MISSING
        values = [_bound(place, name) for place, name in _places(self.source.function, chain)]
        return values[-1] if len(values) == len(chain) else MISSING

    def is_program(self, call: ast.Call, /) -> bool:
        """Return whether a program is called."""
        return isinstance(self.value(dotted(call.func)), self._kind)

    def may_call(self, call: ast.Call, /) -> bool:
        """Return whether a program is called, if the function itself will become a program."""
        name = self.source.function.__name__
        itself = dotted(call.func) == (name,) and name not in self.locals
        return self.is_program(call) or itself

    def calls(self) -> frozenset[str]:
        """Return the names under which programs are called."""
        calls = (node for node in ast.walk(self.source.tree) if isinstance(node, ast.Call))
        return frozenset(ast.unparse(call.func) for call in calls if self.is_program(call))

    def is_shared(self, node: ast.expr, /) -> bool:
        """Return whether an expression names an array, list or dict outside of the function."""
        return isinstance(self.value(dotted(node)), np.ndarray | list | dict)

    def is_module(self, node: ast.expr, /) -> bool:
        """Return whether an expression names an object in a module, which does not change."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(self.value(dotted(node)), ModuleType)

    def is_builtin(self, name: str, /) -> bool:
        """Return whether a name is one of Python's built-in names."""
        own = name in self.locals or self.value((name,)) is not MISSING
        return not own and hasattr(builtins, name)


def _places(function: FunctionType, chain: tuple[str, ...]) -> Iterator[tuple[Any, str]]:
    """Yield the namespace and the name for each part of a chain, as long as parts are modules."""
    first, *rest = chain
    place: Any = function.__globals__
    if first in function.__code__.co_freevars:
        index = function.__code__.co_freevars.index(first)
        place = (function.__closure__ or ())[index]
    yield place, first
    value = _bound(place, first)
    for name in rest:
        if not isinstance(value, ModuleType):
            return
        yield vars(value), name
        value = vars(value).get(name, MISSING)


def _bound(place: Any, name: str) -> object:
    if isinstance(place, dict):
        return place.get(name, MISSING)
    try:
        return place.cell_contents
    except ValueError:
        return MISSING


class _Walk:
    """Visits each object once, and writes a text for it."""

    def __init__(self, kind: type) -> None:
        # Another version of ckio may divide a program into other blocks.
        self.lines: list[str] = [str(_library(kind))]
        self.programs: dict[str, Any] = {}
        self.bindings: dict[tuple[int, str], tuple[Any, str, object]] = {}
        self._kind = kind
        self._seen: dict[int, tuple[str, object]] = {}
        self._named: list[object] = []

    def objects(self) -> list[object]:
        """Return all objects that were visited, and all that the code names."""
        return [*(value for _, value in self._seen.values()), *self._named]

    def tag(self, value: Any) -> str:
        """Return a text that represents a value. The text of code is appended to `lines`."""
        if isinstance(value, _PLAIN):
            return f"{type(value).__name__} {value!r}"
        if id(value) not in self._seen:
            self._seen[id(value)] = f"#{len(self._seen)}", value
            text = self._text(value)
            self.lines.append(f"{self._seen[id(value)][0]} {text}")
        return self._seen[id(value)][0]

    def _tags(self, values: Iterable[Any]) -> str:
        return " ".join(map(self.tag, values))

    def _named_tags(self, values: Mapping[str, Any]) -> str:
        return " ".join(f"{name}={self.tag(value)}" for name, value in sorted(values.items()))

    def _text(self, value: Any) -> str:  # noqa: PLR0911, PLR0912 - each kind
        if isinstance(value, self._kind):
            return self._program(value)
        if library := _library(value):
            return library
        match value:
            case ModuleType():
                return f"module {value.__name__}"
            case FunctionType():
                return f"function {_code(value.__code__, value.__doc__)}\n{self._names(value)}"
            case MethodType():
                return f"method {self._tags((value.__func__, value.__self__))}"
            case partial():
                return f"partial {self._tags((value.func, value.args, value.keywords))}"
            case type():
                bases, own = self._tags(value.__bases__), self._named_tags(_definitions(value))
                return f"class {value.__qualname__} of {bases}: {own}"
            case np.ndarray() if value.dtype != object:
                digest = sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
                return f"array {value.dtype.str} {value.shape} {digest}"
            case np.generic():
                return f"number {value.dtype.str} {value.tobytes().hex()}"
            case tuple() | list():
                return f"{type(value).__name__} {self._tags(value)}"
            case set() | frozenset():
                return f"set {' '.join(sorted(repr(each) for each in value))}"
            case dict():
                return f"dict {' '.join(map(self._tags, value.items()))}"
            case _:
                return self._object(value)

    def _object(self, value: Any) -> str:
        library = None if _ours(type(value)) else _library(type(value))
        if library is None:
            return f"object {self.tag(type(value))} {self._named_tags(dict(_fields(value)))}"
        wrapped = [getattr(value, name) for name in _WRAPPED if hasattr(value, name)]
        return f"{library} of {self._tags(wrapped) if wrapped else _pickled(value)}"

    def _program(self, program: Any) -> str:
        name = base = program.function.__qualname__
        while name in self.programs:  # another function of the same name
            name = f"{base} {len(self.programs)}"
        self.programs[name] = program
        tree = program.source.tree
        # Syntax, because the same bytecode may be divided into other blocks.
        plain = (s for s in tree.body if not (isinstance(s, ast.Expr) and _is_text(s.value)))
        text = "\n".join(map(ast.dump, (tree.args, *plain)))
        return f"program {text}\n{self._names(program.function)}"

    def _names(self, function: FunctionType) -> str:
        """Return the tags of the defaults of a function, and of all that its code names."""
        tags = {"defaults": self.tag([function.__defaults__, function.__kwdefaults__])}
        for chain in sorted(set(_chains(function))):
            found = [(place, name, _bound(place, name)) for place, name in _places(function, chain)]
            self._named += [value for _, _, value in found]
            self._named.append(getattr(builtins, chain[0], MISSING))
            _refuse_random(found[-1][2], chain, function)
            modules = (isinstance(value, ModuleType) and _library(value) for _, _, value in found)
            # What is in a library is not followed.
            last = next((n for n, library in enumerate(modules) if library), len(found) - 1)
            self.bindings |= {(id(each[0]), each[1]): each for each in found[: last + 1]}
            if found[last][2] is not MISSING:
                tags[".".join(chain[: last + 1])] = self.tag(found[last][2])
        return "\n".join(f"{name} is {tag}" for name, tag in sorted(tags.items()))


def _refuse_random(value: object, chain: tuple[str, ...], function: FunctionType) -> None:
    """Raise BadInput for a global source of random numbers, which differ from run to run."""
    if isinstance(getattr(value, "__self__", value), _RANDOM):
        raise BadInput(
            f"{'.'.join(chain)} in {function.__qualname__} is random, but a program must return the"
            " same in each run; make a numpy.random.Generator an input of the program"
        )


_RANDOM: Final = (np.random.Generator, np.random.RandomState, random.Random)

_PLAIN: Final = (int, float, complex, str, bytes, range, slice, type(None), type(...))

_WRAPPED: Final = ("__wrapped__", "py_func", "pyfunc", "func", "fget", "fset")
"""Attributes of a library's object with a function that it calls: a cache, property, vectorize."""


def _library(value: object) -> str | None:
    """Return the library of an object with its version, or None for the user's own object."""
    if isinstance(value, ModuleType):
        module, name = value.__name__, ""
    elif isinstance(value, FunctionType | BuiltinFunctionType | type | np.ufunc):
        module = getattr(value, "__module__", None) or "numpy"
        name = getattr(value, "__qualname__", value.__name__)
    else:
        return None
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return None if top == "__main__" else f"python {module} {name}"
    package = sys.modules.get(top)
    file = getattr(package, "__file__", None) or ""
    if f"{module}.".startswith("ckio.programs.") or {"site-packages", "dist-packages"} & {
        *file.replace("\\", "/").split("/")
    }:
        return f"{top} {getattr(package, '__version__', '')} {name}"
    return None


def _ours(kind: type) -> bool:
    """Return whether a type is one of ckio.programs, whose objects contain the user's code."""
    return kind.__module__.startswith("ckio.programs.")


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(value, "__dict__", {}).items()
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name):
                yield name, getattr(value, name)


def _pickled(value: object) -> str:
    with suppress(Exception):
        return sha256(pickle.dumps(value, 4)).hexdigest()
    return ""


def _definitions(kind: type) -> dict[str, Any]:
    """Return the attributes that a class defines, without those that Python adds."""
    return {
        name: value
        for name, value in vars(kind).items()
        if not name.startswith("__") or callable(value) or hasattr(value, "__wrapped__")
    }


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _code(code: CodeType, docstring: str | None = None) -> str:
    """Return the text of bytecode, its names and its constants, without line numbers."""
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
    constants = [_constant(each) for each in code.co_consts if each != docstring]
    return f"{code.co_code.hex()} {counts} {code.co_names} {code.co_varnames} {constants}"


def _constant(value: object) -> str:
    match value:
        case CodeType():
            return _code(value)
        case frozenset():  # its order differs between processes
            return f"set {sorted(map(_constant, value))}"
        case tuple():
            return f"tuple {list(map(_constant, value))}"
        case _:
            return repr(value)


def _chains(function: FunctionType) -> Iterator[tuple[str, ...]]:
    """Yield every dotted name from outside that is read, for example ("a", "b", "c") for a.b.c."""
    free = function.__code__.co_freevars
    for code in nested(function.__code__):
        chain: tuple[str, ...] = ()
        for each in dis.get_instructions(code):
            if each.opname == "EXTENDED_ARG":
                continue
            if chain and each.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                chain = (*chain, each.argval)
                continue
            if chain:
                yield chain
            outer = each.opname in ("LOAD_GLOBAL", "LOAD_NAME") or (
                each.opname.endswith("DEREF") and each.argval in free
            )
            chain = (each.argval,) if outer else ()
