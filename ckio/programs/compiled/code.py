"""Blocks as python functions, which carry the lines of the file in which the program is written.

Each takes the variables that it needs and returns where to go on and what is needed there:

    (number of a block, its variables)            for a jump or a branch
    (RETURNED, value)                             for a return
    (~number of the block after it, call)         for a call of a program

where a call is (program, arguments, keyword arguments, variables of the block after it).
"""

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from types import CellType, CodeType, FunctionType
from typing import Any, Final, TypeAlias, assert_never

from ckio.programs.compiled.blocks import Block, Branch, Call, Graph, Jump, Return
from ckio.programs.compiled.lifting import BUILD, LIFT, lifting, value_lifting
from ckio.programs.compiled.lowering import LENGTH, SEQUENCE, TOGETHER
from ckio.programs.compiled.scopes import bound, parameters, read
from ckio.programs.compiled.sequences import items, together
from ckio.programs.compiled.source import Source

BlockFunction: TypeAlias = Callable[..., tuple[int, Any]]

RETURNED: Final = -1 << 30
"""Where a program goes on that has returned."""


class Unset:
    """What stands for a variable that has not been set."""


UNSET, BIND, OUT = "@unset", "@bind", "@out"
_GIVEN: Final[dict[str, Any]] = {SEQUENCE: items, LENGTH: len, TOGETHER: together, UNSET: Unset}


@dataclass(frozen=True)
class Compiled:
    """Code of functions that see what the source's function sees, its closure's cells among it."""

    function: FunctionType
    codes: tuple[CodeType, ...]

    def functions(self, lift: Callable[[Any], Any] | None = None, /) -> tuple[FunctionType, ...]:
        """The functions; what calls return goes through `lift`, where they were compiled so."""
        names = self.function.__code__.co_freevars
        cells = dict(zip(names, self.function.__closure__ or (), strict=True))
        given = {**_GIVEN, LIFT: lift, BUILD: None if lift is None else _building(lift)}
        cells |= {name: CellType(value) for name, value in given.items()}
        space, name = self.function.__globals__, self.function.__name__
        return tuple(
            FunctionType(code, space, name, None, tuple(cells[each] for each in code.co_freevars))
            for code in self.codes
        )


def compiled(source: Source, graph: Graph, lifts: bool, /) -> Compiled:
    """A function for each block; with `lifts` all that calls return goes through `lift`."""
    writer = _Writer(graph, lifts)
    return _compiled(source, [writer.function(number) for number in range(len(graph.blocks))])


def binder(source: Source, graph: Graph, /) -> Callable[..., tuple[Any, ...]]:
    """Takes the arguments of the function, and gives the variables that block 0 needs."""
    names = parameters(source.tree.args)
    own = [name if name in names else UNSET for name in graph.live[0]]
    arguments = copy.deepcopy(source.tree.args)
    arguments.defaults, arguments.kw_defaults = [], [None for _ in arguments.kwonlyargs]
    body: list[ast.stmt] = [ast.Return(_row(own))]
    (made,) = _compiled(source, [_define(BIND, arguments, body)]).functions()
    made.__defaults__ = source.function.__defaults__
    made.__kwdefaults__ = source.function.__kwdefaults__
    return made


def _compiled(source: Source, definitions: Sequence[ast.FunctionDef]) -> Compiled:
    function = source.function
    around = _arguments([*function.__code__.co_freevars, *_GIVEN, LIFT, BUILD])
    module = ast.Module([_define("@around", around, [*definitions])], [])
    whole = compile(ast.fix_missing_locations(module), source.place.file, "exec", dont_inherit=True)
    codes = _codes(_codes(whole)["@around"])
    name, full = function.__name__, function.__qualname__
    own = (codes[each.name] for each in definitions)
    return Compiled(function, tuple(code.replace(co_name=name, co_qualname=full) for code in own))


def _codes(code: CodeType) -> dict[str, CodeType]:
    return {each.co_name: each for each in code.co_consts if isinstance(each, CodeType)}


class _Writer:
    """The syntax of each block's function."""

    def __init__(self, graph: Graph, lifts: bool) -> None:
        self._graph, self._lifts = graph, lifts
        self._set = {n for b in graph.blocks for each in b.statements for n in bound(each)}
        self._late: frozenset[str] = frozenset()  # of the block that is being written

    def function(self, number: int) -> ast.FunctionDef:
        block = self._graph.blocks[number]
        used = {name for part in _parts(block) for name in read(part)}
        own = {name for each in block.statements for name in bound(each)}
        self._late = frozenset(_late(block)) & self._set & (own | {*self._graph.live[number]})
        deleted = self._graph.unset[number] & used
        doubtful = deleted - own
        body: list[ast.stmt] = [_unless_set(name) for name in sorted(deleted)]
        body += map(lifting, block.statements) if self._lifts else block.statements
        body += self._end(block.end, doubtful)
        at = next(_parts(block), None)
        if isinstance(block.end, Jump) and block.statements:
            ast.copy_location(body[-1], block.statements[-1])
        made = _define(f"@{number}", _arguments(self._graph.live[number]), body)
        return made if at is None else ast.copy_location(made, at)

    def _lifted(self, value: ast.expr) -> ast.expr:
        return value_lifting(value) if self._lifts else value

    def _end(self, end: Jump | Branch | Call | Return, doubtful: frozenset[str]) -> list[ast.stmt]:
        match end:
            case Jump(to=to):
                return self._to(to, doubtful)
            case Branch(test=test, yes=yes, no=no):
                ways = self._to(yes, doubtful), self._to(no, doubtful)
                return [ast.copy_location(ast.If(test, *ways), test)]
            case Return(value=value):
                row = ast.Tuple([ast.Constant(RETURNED), self._lifted(value)], ast.Load())
                return [ast.copy_location(ast.Return(ast.copy_location(row, value)), value)]
            case Call(call=call, to=to):
                return self._call(call, to, doubtful)
            case _:
                assert_never(end)

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


def _building(lift: Callable[[Any], Any]) -> Callable[..., Any]:
    from ckio.programs.tape.traced import build  # the tape is loaded only now

    return partial(build, lift)


def _parts(block: Block) -> Iterator[ast.AST]:
    """All that a block evaluates."""
    yield from block.statements
    match block.end:
        case Branch(test=part) | Call(call=part) | Return(value=part):
            yield part
        case Jump():
            pass


def _late(block: Block) -> Iterator[str]:
    """What lambdas and generators in statements read: when they are called, as it is then."""
    for statement in block.statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Lambda | ast.GeneratorExp):
                yield from read(node)


def _returned(row: ast.expr, late: frozenset[str]) -> list[ast.stmt]:
    """A return, before which variables are gone that nobody may read later as they are now."""
    if not late:
        return [ast.Return(row)]
    names = sorted(late)
    # What may be unset cannot be deleted before it is set.
    known = [ast.Assign([ast.Name(name, ast.Store())], ast.Constant(None)) for name in names]
    gone = ast.Delete([ast.Name(name, ast.Del()) for name in names])
    out = ast.Assign([ast.Name(OUT, ast.Store())], row)
    return [out, *known, gone, ast.Return(_load(OUT))]


def _unless_set(name: str) -> ast.stmt:
    """`if name is @unset: del name`: whoever reads it is told so in python's own words."""
    test = ast.Compare(_load(name), [ast.Is()], [_load(UNSET)])
    return ast.If(test, [ast.Delete([ast.Name(name, ast.Del())])], [])


def _guards(doubtful: frozenset[str], names: Sequence[str]) -> list[ast.stmt]:
    """What is unset may be needed further on, or not."""
    return [_guard(name) for name in names if name in doubtful]


def _guard(name: str) -> ast.stmt:
    store = ast.Assign([ast.Name(name, ast.Store())], _load(UNSET))
    handler = ast.ExceptHandler(_load("UnboundLocalError"), None, [store])
    return ast.Try([ast.Expr(_load(name))], [handler], [], [])


def _load(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _row(names: Sequence[str]) -> ast.expr:
    return ast.Tuple([_load(name) for name in names], ast.Load())


def _arguments(names: Sequence[str]) -> ast.arguments:
    given = [ast.arg(name) for name in names]
    return ast.arguments([], given, None, [], [], None, [])


def _define(name: str, arguments: ast.arguments, body: list[ast.stmt]) -> ast.FunctionDef:
    return ast.FunctionDef(name=name, args=arguments, body=body, decorator_list=[])
