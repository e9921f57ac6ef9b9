"""The source of a function, with the line and column numbers of its file."""

import __future__

import ast
import copy
import inspect
import linecache
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, Final

from ckio.programs.compiled.refusals import NotResumable, Place, check, check_defaults
from ckio.programs.compiled.scopes import parameters


@dataclass(frozen=True)
class Source:
    """A function as it is written.

    Attributes
    ----------
    function : FunctionType
        What python made of it.
    tree : FunctionDef
        Its syntax.
    place : Place
        Its file and name.
    """

    function: FunctionType
    tree: ast.FunctionDef
    place: Place


def source_of(function: object, /) -> Source:
    """The source of a function that is to be a program; raises NotResumable if it cannot be one."""
    if not isinstance(function, FunctionType):
        raise NotResumable(
            f"@program is for a function, and this is a {type(function).__name__}; write it in the"
            " line next to the def of a function, which may call whatever there is"
        )
    place = Place(function.__code__.co_filename, function.__name__)
    line = function.__code__.co_firstlineno
    if function.__name__ == "<lambda>":
        raise place.refusal(line, "a lambda cannot be a program", "write it with def")
    if hasattr(function, "__wrapped__"):
        what = "another decorator has been at it before"
        raise place.refusal(line, what, "write @program in the line next to def")
    outer = function.__qualname__.rpartition(".")[0]
    if outer and not outer.endswith("<locals>"):
        what = f"it is a method of {outer}"
        advice = "write a function of arrays and numbers, and call it from the method"
        raise place.refusal(line, what, advice)
    tree = parse(function)
    if tree is None:
        what = "its source is not there, as in an interactive session or an installed binary"
        raise place.refusal(line, what, "write it into a file and import it")
    if isinstance(tree, ast.AsyncFunctionDef):
        raise place.refusal(line, "an async function cannot be resumed", "write a plain def")
    if not _agree(function, tree):
        what = "its source file has changed since it was imported"
        raise place.refusal(line, what, "start python again")
    check(tree, place)
    check_defaults(tree, defaults(function), place)
    return Source(function, tree, place)


def parse(function: FunctionType, /) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The syntax of a function, or None where its source is not there."""
    try:
        lines, first = inspect.getsourcelines(function.__code__)  # and not what it wraps
    except (OSError, TypeError):
        return None
    # What is indented is read as the body of an if, which keeps its columns.
    indented = lines[0][:1].isspace()
    text = "".join(["if 1:\n", *lines] if indented else lines)
    try:
        module = ast.parse(text)
    except SyntaxError:
        return None
    ast.increment_lineno(module, first - 1 - indented)
    found: ast.stmt = module.body[0]
    if isinstance(found, ast.If):
        found = found.body[0]
    return found if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef) else None


def _agree(function: FunctionType, tree: ast.FunctionDef) -> bool:
    """Whether the file still says what was imported, as far as the names go."""
    linecache.checkcache(function.__code__.co_filename)
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    names = parameters(tree.args)[:count]
    return tree.name == function.__name__ and names == list(code.co_varnames[:count])


def defaults(function: FunctionType, /) -> dict[str, Any]:
    """The parameters of a function that have a default, and what it is."""
    code, given = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount][code.co_argcount - len(given) :]
    return dict(zip(names, given, strict=True)) | (function.__kwdefaults__ or {})


def is_current(function: FunctionType, tree: ast.AST, /) -> bool:
    """Whether this syntax is what python has made the function of.

    It is not where the file was changed since, or where what was compiled is not what is written.
    """
    made = copy.deepcopy(tree)
    assert isinstance(made, ast.FunctionDef | ast.AsyncFunctionDef)
    made.decorator_list = []
    free = [ast.arg(name) for name in function.__code__.co_freevars]
    arguments = ast.arguments([], free, None, [], [], None, [])
    around = ast.FunctionDef(name="around", args=arguments, body=[made], decorator_list=[])
    module = ast.fix_missing_locations(ast.Module([around], []))
    flags = function.__code__.co_flags & _FUTURE
    outer = _inner(compile(module, "", "exec", flags, dont_inherit=True), "around")
    return _equal(_inner(outer, made.name), function.__code__)


_FUTURE: Final = __future__.annotations.compiler_flag


def _inner(code: CodeType, name: str) -> CodeType:
    return next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)


def _equal(code: CodeType, other: CodeType) -> bool:
    """Whether two functions do the same, whatever their lines are."""
    mine, theirs = _constants(code), _constants(other)
    return (
        (code.co_code, code.co_names, code.co_varnames, mine[0])
        == (other.co_code, other.co_names, other.co_varnames, theirs[0])
        and len(mine[1]) == len(theirs[1])
        and all(map(_equal, mine[1], theirs[1]))
    )


def _constants(code: CodeType) -> tuple[list[str], list[CodeType]]:
    own = [repr(c) for c in code.co_consts if not isinstance(c, CodeType | frozenset)]
    return own, [c for c in code.co_consts if isinstance(c, CodeType)]
