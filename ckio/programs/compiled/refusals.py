"""What a program may not contain, found when it is decorated: each with its place and a way out."""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ckio.errors import BadInput
from ckio.programs.compiled.scopes import is_comprehension, locals_of

Function = ast.FunctionDef


class NotResumable(BadInput):
    """A function that cannot be interrupted and resumed: it says where, why, and what to do."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a program is written, for messages.

    Attributes
    ----------
    file : str
        Its source file.
    name : str
        Of the function.
    """

    file: str
    name: str

    def refusal(self, line: int, what: str, advice: str, /) -> NotResumable:
        """The error that says what is in this line, and what to write instead."""
        return NotResumable(f"{self.file}:{line}: program {self.name}: {what}; {advice}")


_ASIDE = "move it into a plain function, which then runs within one tick"

_STATEMENTS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Try: ("a try statement cannot be resumed", _ASIDE),
    ast.TryStar: ("a try statement cannot be resumed", _ASIDE),
    ast.With: ("a with statement cannot be resumed", _ASIDE),
    ast.AsyncWith: ("a with statement cannot be resumed", _ASIDE),
    ast.AsyncFor: ("an async loop cannot be resumed", "write a plain loop"),
    ast.Global: ("a global name would be no part of its state", "pass the value and return it"),
    ast.Nonlocal: ("a nonlocal name would be no part of its state", "pass the value and return it"),
    ast.FunctionDef: (
        "a function is defined within it",
        "define it outside and pass what it needs as arguments",
    ),
    ast.AsyncFunctionDef: ("an async function is defined within it", "define it outside"),
    ast.ClassDef: ("a class is defined within it", "define it outside"),
    ast.Match: ("a match statement cannot be resumed", "write if and elif, or " + _ASIDE),
    ast.Delete: ("del is not supported", "leave it out: what is not used again is not stored"),
    ast.Import: ("an import within it is not supported", "import at the top of the file"),
    ast.ImportFrom: ("an import within it is not supported", "import at the top of the file"),
    ast.NamedExpr: ("an assignment within an expression (:=)", "assign in a line of its own"),
    ast.Yield: ("a generator cannot be resumed", "return the values in a list or an array"),
    ast.YieldFrom: ("a generator cannot be resumed", "return the values in a list or an array"),
    ast.Await: ("await cannot be resumed", "programs compute; do the waiting outside of them"),
}
if hasattr(ast, "TypeAlias"):
    _STATEMENTS[ast.TypeAlias] = ("a type is defined within it", "define it outside")

_FRAMED = {"locals", "vars", "eval", "exec", "super"}
"""Built-in functions that look at the frame that calls them."""


def check(function: Function, place: Place, /) -> None:
    """Raises NotResumable for the first line of a program that cannot be resumed."""
    found = [*_signature(function, place), *_body(function, place), *_writes(function, place)]
    if found:
        raise min(found, key=lambda each: each[0])[1]


Found = Iterator[tuple[int, NotResumable]]


def _signature(function: Function, place: Place) -> Found:
    for star, given in (("*", function.args.vararg), ("**", function.args.kwarg)):
        if given is not None:
            what = f"the parameter {star}{given.arg} takes any number of arguments"
            advice = "name them, or take one tuple or dict"
            yield given.lineno, place.refusal(given.lineno, what, advice)


def _body(function: Function, place: Place) -> Found:
    own = locals_of(function)
    for statement in function.body:
        for node in ast.walk(statement):
            line = getattr(node, "lineno", 0)
            if type(node) in _STATEMENTS:
                yield line, place.refusal(line, *_STATEMENTS[type(node)])
            match node:
                case ast.For(orelse=[first, *_]) | ast.While(orelse=[first, *_]):
                    what = "the else of a loop is not supported"
                    advice = "set a flag before break, and test it after the loop"
                    yield line, place.refusal(first.lineno, what, advice)
                case ast.Call(func=ast.Name(id=name)) if name in _FRAMED - own:
                    what = f"{name}() looks at a frame, which is not there"
                    yield line, place.refusal(line, what, "name the variables")
                case _:
                    pass
        yield from _late(statement, place)


def _late(statement: ast.stmt, place: Place) -> Found:
    """Lambdas and generators that would outlive the block: they read variables when called."""
    arguments = {
        argument
        for call in ast.walk(statement)
        if isinstance(call, ast.Call)
        for argument in (*call.args, *(keyword.value for keyword in call.keywords))
    }
    for node in ast.walk(statement):
        if isinstance(node, ast.Lambda | ast.GeneratorExp) and node not in arguments:
            what = "a lambda" if isinstance(node, ast.Lambda) else "a generator"
            advice = "hand it to a call directly, or define a function outside of the program"
            if isinstance(node, ast.GeneratorExp):
                advice = "write a list [...], or hand it to a call directly"
            refusal = place.refusal(node.lineno, f"{what} cannot be kept in a variable", advice)
            yield node.lineno, refusal


def _writes(function: Function, place: Place) -> Found:
    """Changes of what is not the program's own."""
    own = locals_of(function)
    for line, name, whole in _written(function):
        if name not in own and not whole:
            what = f"it writes into {name}, which is not its own"
            advice = "pass it as an argument, or copy it into a variable first"
            yield line, place.refusal(line, what, advice)


def check_defaults(function: Function, defaults: Mapping[str, object], place: Place, /) -> None:
    """Raises NotResumable for a default that would remember what former runs did to it."""
    changed = _changed(function)
    for name, value in defaults.items():
        array = isinstance(value, np.ndarray) and name in changed
        if array or isinstance(value, list | dict | set | bytearray | np.random.Generator):
            what = f"the default of {name} is one {type(value).__name__} for all calls"
            advice = "make it None, and what it is to be within, or make it a tuple"
            raise place.refusal(function.lineno, what, advice)


def check_aliases(
    function: Function, is_shared: Callable[[ast.expr], bool], place: Place, /
) -> None:
    """Raises NotResumable where an array that is no variable's own is changed under a variable."""
    changed = _changed(function)
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and is_shared(node.value):
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            for name in sorted(names & changed):
                whose = ast.unparse(node.value)
                what = f"{name} is {whose} itself, and is written into"
                raise place.refusal(node.lineno, what, f"copy it: {name} = {whose}.copy()")


def _changed(function: Function) -> set[str]:
    """The names under which what they hold may be changed in place."""
    augmented = (n.target for n in ast.walk(function) if isinstance(n, ast.AugAssign))
    parts = {name for _, name, whole in _written(function) if not whole}
    return parts | {target.id for target in augmented if isinstance(target, ast.Name)}


def _written(function: Function) -> Iterator[tuple[int, str, bool]]:
    """What is assigned to: line, name, and whether it is the name and no part of what it holds."""
    for node in ast.walk(function):
        targets: list[ast.expr]
        match node:
            case ast.Assign(targets=found):
                targets = found
            case (
                ast.AugAssign(target=target) | ast.AnnAssign(target=target) | ast.For(target=target)
            ):
                targets = [target]
            case ast.Call(keywords=keywords):
                targets = [each.value for each in keywords if each.arg == "out"]
                targets = [each for each in targets if not isinstance(each, ast.Constant)]
            case _:
                continue
        for target in (part for each in targets for part in _parts(each)):
            if name := _root(target):
                whole = isinstance(target, ast.Name) and not isinstance(node, ast.Call)
                yield node.lineno, name, whole


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    match target:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for part in parts:
                yield from _parts(part)
        case ast.Starred(value=value):
            yield from _parts(value)
        case _:
            yield target


def _root(target: ast.expr) -> str | None:
    """The variable of which this is a part."""
    while isinstance(target, ast.Subscript | ast.Attribute):
        target = target.value
    return target.id if isinstance(target, ast.Name) else None


def check_comprehensions(
    tree: ast.AST, is_program: Callable[[ast.Call], bool], place: Place, /
) -> None:
    """Raises NotResumable for a program that is called in a comprehension."""
    for node in ast.walk(tree):
        if is_comprehension(node):
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and is_program(call):
                    what = f"{ast.unparse(call.func)} is called in a comprehension"
                    advice = "write a loop, which can be interrupted between the calls"
                    raise place.refusal(call.lineno, what, advice)
