"""The source of a function, with the line and column numbers of its file."""

import ast
import inspect
import linecache
from dataclasses import dataclass
from types import FunctionType

from ckio.programs.compiled.refusals import NotResumable, Place, check
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
        raise NotResumable(f"@program is for a function, and this is a {type(function).__name__}")
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
