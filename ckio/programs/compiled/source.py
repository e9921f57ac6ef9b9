"""The source of a function: its syntax, its names in Python's scopes, and refused statements.

Line and column numbers are those of its file. Statements are refused when a function is decorated.
The error has the line, the reason, and a remedy.
"""

import __future__

import ast
import linecache
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, Final, TypeGuard

import numpy as np

from ckio.errors import BadInput

# Names


Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def is_comprehension(node: ast.AST, /) -> TypeGuard[Comprehension]:
    """Return whether this is a comprehension or a generator expression."""
    return isinstance(node, Comprehension)


def parameters(arguments: ast.arguments, /) -> list[str]:
    """Return the names of a function's parameters."""
    given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    given += [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
    return [each.arg for each in given]


def locals_of(function: ast.FunctionDef, /) -> frozenset[str]:
    """Return a function's own variables: its parameters, and all names that it assigns to."""
    stored = (name for statement in function.body for name in bound(statement))
    return frozenset(parameters(function.args)) | frozenset(stored)


def bound(node: ast.AST, /) -> Iterator[str]:
    """Yield the names that are assigned to in this scope."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    if isinstance(node, ast.Lambda) or is_comprehension(node):
        return
    for child in ast.iter_child_nodes(node):
        yield from bound(child)


def read(node: ast.AST, /) -> Iterator[str]:
    """Yield the names of this scope that are read, in it or in inner scopes."""
    match node:
        case ast.Name(id=name, ctx=ast.Load()):
            yield name
        case ast.AugAssign(target=ast.Name(id=name)):
            yield name
            yield from read(node.value)
        case ast.Lambda(args=arguments, body=body):
            for default in (*arguments.defaults, *filter(None, arguments.kw_defaults)):
                yield from read(default)
            yield from set(read(body)) - set(parameters(arguments))
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            yield from _read_within(node)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from read(child)


def _read_within(node: Comprehension) -> Iterator[str]:
    own = {name for each in node.generators for name in bound(each.target)}
    yield from read(node.generators[0].iter)
    inner: list[ast.AST] = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    for number, each in enumerate(node.generators):
        inner += [each.target, *each.ifs, *([each.iter] if number else [])]
    for part in inner:
        yield from set(read(part)) - own


def dotted(node: ast.expr, /) -> tuple[str, ...] | None:
    """Return ("a", "b", "c") for the expression a.b.c, and None for any other expression."""
    match node:
        case ast.Name(id=name):
            return (name,)
        case ast.Attribute(value=value, attr=name):
            before = dotted(value)
            return None if before is None else (*before, name)
        case _:
            return None


# Sources


class NotResumable(BadInput):
    """A function cannot be interrupted and resumed. The message has line, reason and remedy."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The source file and the name of a function, for messages."""

    file: str
    name: str

    def refusal(self, line: int, what: str, advice: str, /) -> NotResumable:
        """Return the error for a line: `what` is the reason, and `advice` the remedy."""
        return NotResumable(f"{self.file}:{line}: program {self.name}: {what}; {advice}")


@dataclass(frozen=True)
class Source:
    """A function with its source: the compiled function, its syntax, and its file and name."""

    function: FunctionType
    tree: ast.FunctionDef
    origin: Origin


def source_of(function: object, /) -> Source:
    """Return the source of a function that becomes a program; raises NotResumable."""
    if not isinstance(function, FunctionType):
        raise NotResumable(
            f"@program needs a function, but this is a {type(function).__name__}; write it in the"
            " line next to the def of a function, from which you can call this object"
        )
    origin = Origin(function.__code__.co_filename, function.__name__)
    line = function.__code__.co_firstlineno
    if function.__name__ == "<lambda>":
        raise origin.refusal(line, "a lambda cannot be a program", "write it with def")
    if hasattr(function, "__wrapped__"):
        what = "another decorator was applied to it first"
        raise origin.refusal(line, what, "write @program in the line next to def")
    outer = function.__qualname__.rpartition(".")[0]
    if outer and not outer.endswith("<locals>"):
        what = f"it is a method of {outer}"
        advice = "write a function of arrays and numbers, and call it from the method"
        raise origin.refusal(line, what, advice)
    tree = _syntax(function, origin)
    if isinstance(tree, ast.AsyncFunctionDef):
        raise origin.refusal(line, "an async function cannot be resumed", "write a plain def")
    refusals = [*_signature(tree), *_body(tree), *_writes(tree)]
    if refusals:
        raise origin.refusal(*min(refusals, key=lambda refusal: refusal[0]))
    _check_defaults(function, tree, origin)
    return Source(function, tree, origin)


def _syntax(function: FunctionType, origin: Origin) -> ast.FunctionDef | ast.AsyncFunctionDef:
    """Return the syntax of a function; raises NotResumable unless Python compiled it from that."""
    code = function.__code__
    linecache.checkcache(origin.file)
    text = "".join(linecache.getlines(origin.file, function.__globals__))
    if not text:
        what = "it has no source file, for example in an interactive session or a binary module"
        raise origin.refusal(code.co_firstlineno, what, "write it into a file and import it")
    with suppress(SyntaxError):
        module, codes = _compiled(text, code.co_flags & __future__.annotations.compiler_flag)
        for node in ast.walk(module):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            line = min(each.lineno for each in (node, *node.decorator_list))
            if (node.name, line) == (code.co_name, code.co_firstlineno) and (
                code in codes or _is_extended(code, node)
            ):
                return node
    what = "its source file has changed since it was imported"
    raise origin.refusal(code.co_firstlineno, what, "start Python again")


@lru_cache(maxsize=1)  # the programs of a file are often decorated one after the other
def _compiled(text: str, flags: int) -> tuple[ast.Module, list[CodeType]]:
    """Return the syntax and the code of a file, or of a cell of a notebook."""
    module = ast.parse(text)
    flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    return module, list(nested(compile(module, "", "exec", flags, dont_inherit=True)))


def _is_extended(code: CodeType, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a tool inserted code into a function, as pytest does for `assert`."""
    names = parameters(node.args)
    inserted = not all(name.isidentifier() for name in code.co_varnames)
    return inserted and names == list(code.co_varnames[: len(names)])


def nested(code: CodeType, /) -> Iterator[CodeType]:
    """Yield compiled code, and the code of all functions and classes within it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from nested(each)


# Refusals: line, reason, and remedy

Refusals = Iterator[tuple[int, str, str]]

_ASIDE: Final = "move it into a plain function, which then runs within one tick"
_RETURNED: Final = "pass the value and return it"
_LISTED: Final = "return the values in a list or an array"
_OUTSIDE: Final = "define it outside"

_STATEMENTS: Final[dict[str, tuple[str, str]]] = {
    "Try": ("a try statement cannot be resumed", _ASIDE),
    "TryStar": ("a try statement cannot be resumed", _ASIDE),
    "With": ("a with statement cannot be resumed", _ASIDE),
    "Global": ("a global name is not part of its state", _RETURNED),
    "Nonlocal": ("a nonlocal name is not part of its state", _RETURNED),
    "FunctionDef": (
        "a function is defined within it",
        "define it outside and pass the values that it needs as arguments",
    ),
    "AsyncFunctionDef": ("an async function is defined within it", _OUTSIDE),
    "ClassDef": ("a class is defined within it", _OUTSIDE),
    "TypeAlias": ("a type is defined within it", _OUTSIDE),
    "Match": ("a match statement cannot be resumed", "write if and elif, or " + _ASIDE),
    "Delete": ("del is not supported", "remove it: a variable that is not used is not stored"),
    "Import": ("an import within it is not supported", "import at the top of the file"),
    "ImportFrom": ("an import within it is not supported", "import at the top of the file"),
    "NamedExpr": ("it assigns within an expression (:=)", "assign in a separate line"),
    "Yield": ("a generator cannot be resumed", _LISTED),
    "YieldFrom": ("a generator cannot be resumed", _LISTED),
}
"""Refused statements by the name of their class, because not every version of Python has each."""

_FRAMED: Final = {"locals", "vars", "eval", "exec", "super"}
"""Built-in functions that read the frame of their caller."""


def _signature(function: ast.FunctionDef) -> Refusals:
    for star, given in (("*", function.args.vararg), ("**", function.args.kwarg)):
        if given is not None:
            what = f"the parameter {star}{given.arg} takes any number of arguments"
            yield given.lineno, what, "name them, or take one tuple or dict"


def _body(function: ast.FunctionDef) -> Refusals:
    own = locals_of(function)
    for statement in function.body:
        for node in ast.walk(statement):
            line = getattr(node, "lineno", 0)
            if type(node).__name__ in _STATEMENTS:
                yield line, *_STATEMENTS[type(node).__name__]
            match node:
                case ast.For(orelse=[first, *_]) | ast.While(orelse=[first, *_]):
                    advice = "set a flag before break, and test it after the loop"
                    yield first.lineno, "the else of a loop is not supported", advice
                case ast.Call(func=ast.Name(id=name)) if name in _FRAMED - own:
                    what = f"{name}() reads the frame of its caller, which a program does not have"
                    yield line, what, "name the variables"
                case _:
                    pass
        yield from _late(statement)


def _late(statement: ast.stmt) -> Refusals:
    """Find lambdas and generators that are stored, because they read variables when called."""
    arguments = {
        argument
        for call in ast.walk(statement)
        if isinstance(call, ast.Call)
        for argument in (*call.args, *(keyword.value for keyword in call.keywords))
    }
    for node in ast.walk(statement):
        if isinstance(node, ast.Lambda) and node not in arguments:
            advice = "use it as an argument of a call, or define a function outside of the program"
            yield node.lineno, "a lambda cannot be stored in a variable", advice
        if isinstance(node, ast.GeneratorExp) and node not in arguments:
            advice = "write a list [...], or use it as an argument of a call"
            yield node.lineno, "a generator cannot be stored in a variable", advice


def _writes(function: ast.FunctionDef) -> Refusals:
    """Find changes of objects that are not variables of the program."""
    own = locals_of(function)
    for line, name in _written(function):
        if name not in own:
            what = f"it writes into {name}, which is not a variable of the program"
            yield line, what, "pass it as an argument, or copy it into a variable first"


def _check_defaults(function: FunctionType, tree: ast.FunctionDef, origin: Origin) -> None:
    """Raise NotResumable for a default that a run may change, because later runs would differ."""
    code, given = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount][code.co_argcount - len(given) :]
    defaults: dict[str, Any] = dict(zip(names, given, strict=True))
    changed = _changed(tree)
    for name, value in (defaults | (function.__kwdefaults__ or {})).items():
        array = isinstance(value, np.ndarray) and name in changed
        if array or isinstance(value, list | dict | set | bytearray | np.random.Generator):
            what = f"the default of {name} is one {type(value).__name__} for all calls"
            advice = "make it None and set the value in the program, or make it a tuple"
            raise origin.refusal(tree.lineno, what, advice)


def check_aliases(source: Source, is_shared: Callable[[ast.expr], bool], /) -> None:
    """Raise NotResumable if a variable is an array from outside of the function and is changed."""
    changed = _changed(source.tree)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assign) and is_shared(node.value):
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            for name in sorted(names & changed):
                whose = ast.unparse(node.value)
                what = f"{name} is {whose} itself and is changed, so that later runs would differ"
                raise source.origin.refusal(node.lineno, what, f"copy it: {name} = {whose}.copy()")


def check_calls(source: Source, is_program: Callable[[ast.Call], bool], /) -> None:
    """Raise NotResumable if a program is called in an expression that cannot be divided."""
    for node in ast.walk(source.tree):
        for part, where, advice in _whole(node):
            for call in ast.walk(part):
                if isinstance(call, ast.Call) and is_program(call):
                    what = f"{ast.unparse(call.func)} is called in {where}"
                    raise source.origin.refusal(call.lineno, what, advice)


def _whole(node: ast.AST) -> Iterator[tuple[ast.AST, str, str]]:
    """Yield the parts of a node that cannot be divided, what they are, and a remedy."""
    before = "call it in a line before, and use its result here"
    match node:
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            advice = "write a loop, which can be interrupted between the calls"
            yield node, "a comprehension", advice
        case ast.Compare(ops=[_, _, *_]):
            yield node, "a chain of comparisons", before
        case ast.JoinedStr():
            yield node, "an f-string", before
        case ast.Assign(targets=targets):
            yield from ((target, "the target of an assignment", before) for target in targets)
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target) | ast.For(target=target):
            yield target, "the target of an assignment", before
        case _:
            pass


def _changed(function: ast.FunctionDef) -> set[str]:
    """Return the names whose values may be changed in place."""
    augmented = (n.target for n in ast.walk(function) if isinstance(n, ast.AugAssign))
    parts = {name for _, name in _written(function)}
    return parts | {target.id for target in augmented if isinstance(target, ast.Name)}


def _written(function: ast.FunctionDef) -> Iterator[tuple[int, str]]:
    """Yield line and variable of each change in place: `a[i] = x`, `a.b = x`, and `out=a`."""
    for node in ast.walk(function):
        match node:
            case ast.Subscript(ctx=ast.Store()) | ast.Attribute(ctx=ast.Store()):
                parts: list[ast.expr] = [node]
            case ast.keyword(arg="out", value=value):
                parts = value.elts if isinstance(value, ast.Tuple) else [value]
            case _:
                continue
        for part in parts:
            variable = part
            while isinstance(variable, ast.Subscript | ast.Attribute):
                variable = variable.value
            if isinstance(variable, ast.Name):
                yield variable.lineno, variable.id
