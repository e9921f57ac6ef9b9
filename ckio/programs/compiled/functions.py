"""Blocks as Python functions, with the line numbers of the program's file.

Each function receives the variables that its block needs. It returns the next block and the
variables that this needs:

    (number of a block, its variables)            for a jump or a branch
    (RETURNED, value)                             for a return
    (~number of the block after it, call)         for a call of a program

where a call is (program, arguments, keyword arguments, variables of the block after it).

A second version of each function is used with a tape. Every new array becomes a node of the tape,
so that later writes in place through any alias are recorded: the result of every call, and every
other computed value that is assigned, returned or passed to a call.
"""

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from operator import length_hint
from types import CellType, CodeType, FunctionType
from typing import Any, Final, TypeAlias, TypeVar

from ckio.errors import BadInput
from ckio.programs.compiled.dependencies import Scope
from ckio.programs.compiled.graph import Block, End, Graph
from ckio.programs.compiled.source import check_calls, parameters, read
from ckio.programs.compiled.statements import LENGTH, SEQUENCE, TOGETHER, load, translate

Node = TypeVar("Node", bound=ast.AST)

BlockFunction: TypeAlias = Callable[..., tuple[int, Any]]

RETURNED: Final = -1 << 30
"""The number of the next block of a program that has returned."""

_UNSET, _BIND, _OUT, _LIFT, _BUILD = "@unset", "@bind", "@out", "@lift", "@build"
"""Names in the functions. The last two are those of `Tape.lift` and of `operators.build`."""


class Unset:
    """The value that represents a variable that has not been set."""


class Code:
    """A compiled program: its blocks as functions, plain and with a tape.

    Attributes
    ----------
    name : str
        The qualified name of the function in its module.
    calls : frozenset of str
        The names under which it calls programs.
    graph : Graph
        The blocks, and the variables that they need.
    bind : callable
        A function that returns the variables of block 0 from the arguments of the program.
    blocks : tuple of callable
        The functions of the blocks.
    """

    def __init__(self, scope: Scope, /) -> None:
        source = scope.source
        check_calls(source, scope.is_program)
        self.name = source.function.__qualname__
        self.calls = scope.calls()
        self.graph = translate(scope)
        self._source = source
        self.bind: Callable[..., tuple[Any, ...]] = self._binder()
        self.blocks: tuple[BlockFunction, ...] = self._functions(self._compiled(lifts=False))

    def lifting(
        self, lift: Callable[[Any], Any], build: Callable[..., Any], /
    ) -> tuple[BlockFunction, ...]:
        """Return the functions of the blocks that call `lift` and `build` for new arrays."""
        return self._functions(self._lifting, {_LIFT: lift, _BUILD: build})

    @cached_property
    def _lifting(self) -> list[CodeType]:
        return self._compiled(lifts=True)

    def _compiled(self, *, lifts: bool) -> list[CodeType]:
        writer = _Writer(self.graph, lifts)
        return self._codes([writer.function(n) for n in range(len(self.graph.blocks))])

    def _binder(self) -> FunctionType:
        source, names = self._source, parameters(self._source.tree.args)
        own = [name if name in names else _UNSET for name in self.graph.live[0]]
        arguments = copy.deepcopy(source.tree.args)
        arguments.defaults, arguments.kw_defaults = [], [None for _ in arguments.kwonlyargs]
        body: list[ast.stmt] = [ast.Return(_row(own))]
        (binder,) = self._functions(self._codes([_define(_BIND, arguments, body)]))
        binder.__defaults__ = source.function.__defaults__
        binder.__kwdefaults__ = source.function.__kwdefaults__
        return binder

    def _codes(self, definitions: Sequence[ast.FunctionDef]) -> list[CodeType]:
        """Compile functions with the names of the source's function, including its closure."""
        function, file = self._source.function, self._source.origin.file
        around = _arguments([*function.__code__.co_freevars, *_GIVEN, _LIFT, _BUILD])
        module = ast.Module([_define("@around", around, [*definitions])], [])
        whole = compile(ast.fix_missing_locations(module), file, "exec", dont_inherit=True)
        codes = _inner(_inner(whole)["@around"])
        name, full = function.__name__, function.__qualname__
        own = (codes[each.name] for each in definitions)
        return [code.replace(co_name=name, co_qualname=full) for code in own]

    def _functions(
        self, codes: Sequence[CodeType], lifts: dict[str, Any] | None = None
    ) -> tuple[FunctionType, ...]:
        function = self._source.function
        free = function.__code__.co_freevars
        cells = dict(zip(free, function.__closure__ or (), strict=True))
        given = {**_GIVEN, _LIFT: None, _BUILD: None, **(lifts or {})}
        cells |= {name: CellType(value) for name, value in given.items()}
        space, name = function.__globals__, function.__name__
        return tuple(
            FunctionType(code, space, name, None, tuple(cells[each] for each in code.co_freevars))
            for code in codes
        )


def _inner(code: CodeType) -> dict[str, CodeType]:
    return {each.co_name: each for each in code.co_consts if isinstance(each, CodeType)}


class _Writer:
    """Writes the syntax of each block's function."""

    def __init__(self, graph: Graph, lifts: bool) -> None:
        self._graph, self._lifts = graph, lifts
        self._set = frozenset[str]().union(*(block.sets() for block in graph.blocks))
        self._late: frozenset[str] = frozenset()  # those of the current block

    def function(self, number: int) -> ast.FunctionDef:
        block = self._graph.blocks[number]
        used = {name for part in block.parts() for name in read(part)}
        own = block.sets()
        self._late = frozenset(_late(block)) & self._set & (own | {*self._graph.live[number]})
        deleted = self._graph.unset[number] & used
        doubtful = deleted - own
        body: list[ast.stmt] = [_unless_set(name) for name in sorted(deleted)]
        body += map(_lifting, block.statements) if self._lifts else block.statements
        body += self._end(block.end, doubtful)
        at = next(block.parts(), None)
        if block.end.jumps and block.statements:
            ast.copy_location(body[-1], block.statements[-1])
        definition = _define(f"@{number}", _arguments(self._graph.live[number]), body)
        return definition if at is None else ast.copy_location(definition, at)

    def _lifted(self, value: ast.expr) -> ast.expr:
        return _value_lifting(value) if self._lifts else value

    def _end(self, end: End, doubtful: frozenset[str]) -> list[ast.stmt]:
        match end.to, end.node:
            case (to,), None:
                return self._to(to, doubtful)
            case (to,), ast.Call() as call:
                return self._call(call, to, doubtful)
            case (yes, no), ast.expr() as test:
                ways = self._to(yes, doubtful), self._to(no, doubtful)
                return [ast.copy_location(ast.If(test, *ways), test)]
            case (), ast.expr() as value:
                row = ast.Tuple([ast.Constant(RETURNED), self._lifted(value)], ast.Load())
                return [ast.copy_location(ast.Return(ast.copy_location(row, value)), value)]
            case _:
                raise TypeError(end)

    def _to(self, to: int, doubtful: frozenset[str]) -> list[ast.stmt]:
        names = self._graph.live[to]
        row = ast.Tuple([ast.Constant(to), _row(names)], ast.Load())
        return [*_guards(doubtful, names), *_returned(row, self._late)]

    def _call(self, call: ast.Call, to: int, doubtful: frozenset[str]) -> list[ast.stmt]:
        names = self._graph.waiting(to)
        args = ast.Tuple([self._lifted(each) for each in call.args], ast.Load())
        named = ast.Dict(
            [None if each.arg is None else ast.Constant(each.arg) for each in call.keywords],
            [self._lifted(each.value) for each in call.keywords],
        )
        what = ast.Tuple([call.func, args, named, _row(names)], ast.Load())
        row = ast.Tuple([ast.Constant(~to), what], ast.Load())
        ends = _returned(row, self._late - set(read(call)))
        for part in chain.from_iterable(map(ast.walk, ends)):
            if isinstance(part, ast.stmt | ast.expr | ast.keyword) and not hasattr(part, "lineno"):
                ast.copy_location(part, call)
        return [*_guards(doubtful, names), *ends]


def _late(block: Block) -> Iterator[str]:
    """Yield the names that lambdas and generators of a block read when they are called."""
    for statement in block.statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Lambda | ast.GeneratorExp):
                yield from read(node)


def _returned(row: ast.expr, late: frozenset[str]) -> list[ast.stmt]:
    """Return statements that delete the variables `late`, and then return the row.

    A lambda that is called later would otherwise read the values that they have now.
    """
    if not late:
        return [ast.Return(row)]
    names = sorted(late)
    # A variable that may be unset can be deleted only after it is set.
    known = [ast.Assign([ast.Name(name, ast.Store())], ast.Constant(None)) for name in names]
    gone = ast.Delete([ast.Name(name, ast.Del()) for name in names])
    out = ast.Assign([ast.Name(_OUT, ast.Store())], row)
    return [out, *known, gone, ast.Return(load(_OUT))]


def _unless_set(name: str) -> ast.stmt:
    """Return `if name is @unset: del name`, so that Python raises its own error for a read."""
    test = ast.Compare(load(name), [ast.Is()], [load(_UNSET)])
    return ast.If(test, [ast.Delete([ast.Name(name, ast.Del())])], [])


def _guards(doubtful: frozenset[str], names: Sequence[str]) -> list[ast.stmt]:
    """Return statements that mark those of the doubtful variables that are not set."""
    return [_guard(name) for name in names if name in doubtful]


def _guard(name: str) -> ast.stmt:
    store = ast.Assign([ast.Name(name, ast.Store())], load(_UNSET))
    handler = ast.ExceptHandler(load("UnboundLocalError"), None, [store])
    return ast.Try([ast.Expr(load(name))], [handler], [], [])


def _row(names: Sequence[str]) -> ast.expr:
    return ast.Tuple([load(name) for name in names], ast.Load())


def _arguments(names: Sequence[str]) -> ast.arguments:
    given = [ast.arg(name) for name in names]
    return ast.arguments([], given, None, [], [], None, [])


def _define(name: str, arguments: ast.arguments, body: list[ast.stmt]) -> ast.FunctionDef:
    return ast.FunctionDef(name=name, args=arguments, body=body, decorator_list=[])


# Lifting

_BUILDERS: Final = ("array", "asarray", "full")
"""Functions that build arrays, by the last part of their names."""

_MADE: Final = (ast.BinOp, ast.UnaryOp, ast.IfExp, ast.BoolOp, ast.Compare, ast.List, ast.Tuple)
_FILLED: Final = (ast.Dict, ast.ListComp, ast.DictComp)


def _lifting(node: Node, /) -> Node:
    """Return an expression or statement with its arrays lifted."""
    copied: Node = _Lifting().visit(copy.deepcopy(node))
    if isinstance(copied, ast.Assign):
        copied.value = _lifted(copied.value)
    match copied:
        case ast.Expr(ast.Call(ast.Name(id=name), [call])) if name == _LIFT:
            copied.value = call  # its result is not used
        case _:
            pass
    return copied


def _value_lifting(node: ast.expr, /) -> ast.expr:
    """Return a value that is returned or passed to a call, lifted as a whole."""
    return _lifted(_lifting(node))


class _Lifting(ast.NodeTransformer):
    """Lifts the results of all calls, except for calls within lambdas."""

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        node.args = [_lifted(each) for each in node.args]
        for keyword in node.keywords:
            keyword.value = _lifted(keyword.value)
        own = isinstance(node.func, ast.Name) and node.func.id.startswith("@")
        if getattr(node.func, "attr", getattr(node.func, "id", "")) in _BUILDERS:
            node.args = [node.func, *node.args]
            node.func = ast.copy_location(ast.Name(_BUILD, ast.Load()), node.func)
        return node if own else _call(node)


def _lifted(node: ast.expr) -> ast.expr:
    return _call(node) if isinstance(node, _MADE + _FILLED) else node


def _call(node: ast.expr) -> ast.expr:
    function = ast.copy_location(ast.Name(_LIFT, ast.Load()), node)
    return ast.copy_location(ast.Call(function, [node], []), node)


# The items of a loop, which must have an index

_ROWS: Final = (range, list, tuple, str, bytes)


def items(value: Any, /) -> Any:
    """Return the items of a loop with an index: the object itself if it has one, or else a list.

    Raises BadInput for an object that may never end, or whose order differs between processes.
    """
    if isinstance(value, _ROWS):
        return value
    rest = iter(value)
    if hasattr(value, "__array_ufunc__"):
        return value
    if isinstance(value, set | frozenset):
        raise BadInput(
            "a program cannot loop over a set, whose order differs between processes; sort it first"
        )
    if length_hint(value, -1) >= 0:
        return list(rest)
    raise BadInput(
        f"a program cannot store its position in a {type(value).__name__}, which may not end; make"
        " a list of it before the loop, or loop with `while` and a number"
    )


def together(*inside: bool) -> bool:
    """Return whether all rows of a strict `zip` have an item; raises its ValueError."""
    return bool(list(zip(*map(range, inside), strict=True)))


_GIVEN: Final[dict[str, Any]] = {SEQUENCE: items, LENGTH: len, TOGETHER: together, _UNSET: Unset}
"""Names that the functions of blocks have in addition to those of the source's function."""
