"""All code and constants on which a program depends, and a hash of them.

They are found by the names in the code. Functions and classes of the user's own modules are
followed. For a library, only its version is in the hash. Comments, layout and docstrings are not.
"""

import ast
import builtins
import inspect
import pickle
import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from ckio.errors import BadInput
from ckio.programs.compiled.source import Source, dotted, is_current, locals_of, parse
from ckio.programs.heap import known

MISSING: Final = object()


@dataclass(frozen=True)
class Reach:
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

    def holds(self) -> bool:
        """Return whether all names still have the same values."""
        return all(_bound(place, name) is value for place, name, value in self.bindings)


def reach(program: Any, kind: type, /) -> Reach:
    """Return all code and constants on which a program depends; `kind` is the class of programs."""
    walk = _Reaching(kind)
    walk.tag(program)
    text = "\n\n".join(walk.lines)
    fingerprint = sha256(text.encode()).hexdigest()[:16]
    return Reach(fingerprint, walk.programs, tuple(walk.bindings.values()), known(walk.objects()))


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


class _Reaching:
    """Visits each object once, and writes a text for it."""

    def __init__(self, kind: type) -> None:
        self.lines: list[str] = []
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

    def _text(self, value: Any) -> str:  # noqa: PLR0911 - one for each kind
        if isinstance(value, self._kind):
            return self._program(value)
        if library := _library(value):
            return library
        match value:
            case ModuleType():
                return f"module {value.__name__}"
            case FunctionType():
                return self._function(value)
            case MethodType():
                return f"method {self.tag(value.__func__)} of {self.tag(value.__self__)}"
            case partial():
                parts = value.func, value.args, value.keywords
                return "partial " + " ".join(map(self.tag, parts))
            case type():
                return self._class(value)
            case _:
                return self._object(value)

    def _object(self, value: Any) -> str:  # noqa: PLR0911 - one for each kind
        match value:
            case np.ndarray() if value.dtype != object:
                digest = sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
                return f"array {value.dtype.str} {value.shape} {digest}"
            case np.generic():
                return f"number {value.dtype.str} {value.tobytes().hex()}"
            case tuple() | list():
                return f"{type(value).__name__} {' '.join(map(self.tag, value))}"
            case set() | frozenset():
                return f"set {' '.join(sorted(repr(each) for each in value))}"
            case dict():
                pairs = (f"{self.tag(key)}: {self.tag(each)}" for key, each in value.items())
                return f"dict {', '.join(pairs)}"
            case _ if (wrapped := _wrapped(value)) is not None:
                return f"{_library(type(value))} of {self.tag(wrapped)}"
            case _ if _library(type(value)) and not _ours(type(value)):
                return f"{_library(type(value))} {_pickled(value)}"
            case _:
                fields = sorted(_fields(value))
                pairs = (f"{name}={self.tag(each)}" for name, each in fields)
                return f"object {self.tag(type(value))} {' '.join(pairs)}"

    def _program(self, program: Any) -> str:
        name = base = program.function.__qualname__
        while name in self.programs:  # another function of the same name
            name = f"{base} {len(self.programs)}"
        self.programs[name] = program
        return "program " + self._code(program.function, program.source.tree)

    def _function(self, function: FunctionType) -> str:
        tree = parse(function)
        return self._code(function, tree if tree and is_current(function, tree) else None)

    def _code(self, function: FunctionType, tree: ast.AST | None) -> str:
        own = {*function.__code__.co_varnames, *function.__code__.co_cellvars}
        if tree is None:
            text, chains = _bytes(function.__code__), _code_names(function.__code__)
        else:
            text, chains = _canonical(tree), sorted(set(_chains(tree)))
        defaults = self.tag([function.__defaults__, function.__kwdefaults__])
        names = self._names(function, (chain for chain in chains if chain[0] not in own))
        return f"{text}\ndefaults {defaults}\n{names}"

    def _class(self, value: type) -> str:
        try:
            tree = ast.parse(inspect.getsource(value).lstrip())
        except (OSError, TypeError, SyntaxError):
            return f"class {value.__qualname__}"
        space = vars(sys.modules[value.__module__])
        standing = FunctionType((lambda: None).__code__, space)
        return f"{_canonical(tree)}\n{self._names(standing, sorted(set(_chains(tree))))}"

    def _names(self, function: FunctionType, chains: Iterable[tuple[str, ...]]) -> str:
        tags: dict[str, str] = {}
        for chain in chains:
            value = MISSING
            self._named += [_bound(*place) for place in _places(function, chain)]
            self._named.append(getattr(builtins, chain[0], MISSING))
            path: list[str] = []
            for place, name in _places(function, chain):
                value = _bound(place, name)
                path.append(name)
                self.bindings[id(place), name] = place, name, value
                if isinstance(value, ModuleType) and _library(value):
                    break
            _refuse_random(function, chain)
            if value is not MISSING:
                tags[".".join(path)] = self.tag(value)
        return "\n".join(f"{name} is {tag}" for name, tag in sorted(tags.items()))


def _refuse_random(function: FunctionType, chain: tuple[str, ...]) -> None:
    """Raise BadInput for a global source of random numbers, which differ from run to run."""
    *_, (place, name) = _places(function, chain)
    value = _bound(place, name)
    if isinstance(getattr(value, "__self__", value), _RANDOM):
        raise BadInput(
            f"{'.'.join(chain)} in {function.__qualname__} is random, but a program must return the"
            " same in each run; make a numpy.random.Generator an input of the program"
        )


_RANDOM: Final = (np.random.Generator, np.random.RandomState, random.Random)

_PLAIN: Final = (int, float, complex, str, bytes, range, slice, type(None), type(...))


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


def _wrapped(value: object) -> object:
    """Return the function that a library's object calls, for example a cache or np.vectorize."""
    if _library(type(value)) and not _ours(type(value)):
        names = "__wrapped__", "py_func", "pyfunc"
        return next((getattr(value, name) for name in names if hasattr(value, name)), None)
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


def _canonical(tree: ast.AST) -> str:
    """Return code without comments, layout, docstrings and decorators."""
    code = ast.parse(ast.unparse(tree))
    for node in ast.walk(code):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            node.decorator_list = []
            if ast.get_docstring(node, clean=False) is not None:
                node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(code)


def _chains(node: ast.AST) -> Iterator[tuple[str, ...]]:
    """Yield every dotted name that is read, for example ("a", "b", "c") for a.b.c."""
    chain = dotted(node) if isinstance(node, ast.expr) else None
    if chain is not None:
        yield chain
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        for part in node.body:
            yield from _chains(part)
        return
    for child in ast.iter_child_nodes(node):
        yield from _chains(child)


def _bytes(code: CodeType) -> str:
    inner = [_bytes(each) for each in code.co_consts if isinstance(each, CodeType)]
    plain = [_constant(each) for each in code.co_consts if not isinstance(each, CodeType)]
    return " ".join([code.co_code.hex(), *code.co_names, *plain, *inner])


def _constant(value: object) -> str:
    if isinstance(value, frozenset):  # its order differs between processes
        return f"set {' '.join(sorted(map(_constant, value)))}"
    return repr(value)


def _code_names(code: CodeType) -> list[tuple[str, ...]]:
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    names = {(name,) for name in (*code.co_names, *code.co_freevars)}
    return sorted(names.union(*map(_code_names, inner)))
