"""From a function's syntax to blocks: loops and branches become jumps, a `for` keeps its place."""

import ast
import copy
from collections.abc import Callable, Sequence
from typing import TypeVar, assert_never

from ckio.programs.compiled.blocks import Branch, Graph, Jump, Return, Writing, graph
from ckio.programs.compiled.expressions import Expressions, assign
from ckio.programs.compiled.scopes import locals_of, parameters

Node = TypeVar("Node", bound=ast.AST)

SEQUENCE, LENGTH, TOGETHER = "@sequence", "@len", "@together"
"""The names under which blocks call `items`, `len` and `together`."""


def lowered(
    function: ast.FunctionDef,
    is_program: Callable[[ast.Call], bool],
    is_module: Callable[[ast.expr], bool],
    is_builtin: Callable[[str], bool],
    /,
) -> Graph:
    """The blocks of a function that `check` has nothing against."""
    writing = Writing()
    statements = _Statements(Expressions(writing, is_program, is_module), is_builtin)
    statements.all(function.body)
    writing.end(Return(_at(ast.Constant(None), function.body[-1])))
    mine = locals_of(function)
    return graph(writing.done(), frozenset(parameters(function.args)), mine)


class _Statements:
    """Writes one statement after the other."""

    def __init__(self, expressions: Expressions, is_builtin: Callable[[str], bool]) -> None:
        self._of, self._is_builtin = expressions, is_builtin
        self._writing = expressions.writing
        self._loops: list[tuple[int, int]] = []  # where `continue` and `break` go

    def all(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self._one(statement)

    def _one(self, statement: ast.stmt) -> None:
        match statement:
            case ast.If():
                self._if(statement)
            case ast.While():
                self._while(statement)
            case ast.For():
                self._for(statement)
            case ast.Break() | ast.Continue():
                self._writing.end(Jump(self._loops[-1][isinstance(statement, ast.Break)]))
            case ast.Return(value=value):
                value = value or _at(ast.Constant(None), statement)
                self._writing.end(Return(self._of.lowered(value)))
            case ast.Pass() | ast.Expr(value=ast.Constant()) | ast.AnnAssign(value=None):
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(_at(ast.Assign([target], value), statement))
            case ast.Assign():
                self._assign(statement)
            case ast.AugAssign():
                self._change(statement)
            case _:
                self._plain(statement)

    def _plain(self, statement: ast.stmt) -> None:
        """`assert`, `raise`, or an expression alone."""
        made = copy.copy(statement)
        before = statement.value if isinstance(statement, ast.Expr) else None
        for name, part in ast.iter_fields(statement):
            if isinstance(part, ast.expr) and name != "msg":
                setattr(made, name, self._of.lowered(part))
        if (
            isinstance(made, ast.Expr)
            and isinstance(made.value, ast.Name)
            and made.value is not before
        ):
            return  # the program has been called, and this was its result
        self._do(made)
        if isinstance(made, ast.Raise):
            self._writing.end(Return(_at(ast.Constant(None), statement)))

    def _do(self, statement: ast.stmt) -> None:
        self._writing.statements.append(statement)

    def _if(self, statement: ast.If) -> None:
        yes, no, end = self._writing.new(), self._writing.new(), self._writing.new()
        self._branch(statement.test, yes, no)
        for begin, body in ((yes, statement.body), (no, statement.orelse)):
            self._writing.begin(begin)
            self.all(body)
            self._writing.end(Jump(end))
        self._writing.begin(end)

    def _branch(self, test: ast.expr, yes: int, no: int) -> None:
        match test:
            case ast.Constant(value=value):
                self._writing.end(Jump(yes if value else no))
            case _:
                self._writing.end(Branch(self._of.lowered(test), yes, no))

    def _while(self, statement: ast.While) -> None:
        top, body, end = self._writing.new(), self._writing.new(), self._writing.new()
        self._writing.end(Jump(top))
        self._writing.begin(top, head=not isinstance(statement.test, ast.Constant))
        self._branch(statement.test, body, end)
        self._loop(top, body, end, statement.body)

    def _loop(self, top: int, body: int, end: int, statements: Sequence[ast.stmt]) -> None:
        self._writing.begin(body)
        self._loops.append((top, end))
        self.all(statements)
        self._loops.pop()
        self._writing.end(Jump(top))
        self._writing.begin(end)

    def _for(self, statement: ast.For) -> None:
        """A loop over what is there at its start, by number, so that its place can be stored."""
        place = self._of.name()
        tests, item = self._rows(statement.iter, place)
        self._do(assign(place, _at(ast.Constant(0), statement.iter)))
        top, body, end = self._writing.new(), self._writing.new(), self._writing.new()
        self._writing.end(Jump(top))
        self._writing.begin(top, head=True)
        inside = tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)
        self._writing.end(Branch(_at(inside, statement.iter), body, end))
        first = ast.Assign([statement.target], item)
        on = ast.AugAssign(ast.Name(place, ast.Store()), ast.Add(), ast.Constant(1))
        taken = [_at(first, statement.target), _at(on, statement.target)]
        self._loop(top, body, end, [*taken, *statement.body])

    def _rows(self, over: ast.expr, place: str) -> tuple[list[ast.expr], ast.expr]:
        """Whether there is an item at a place in what a loop goes over, and the item.

        It is taken when its turn comes, as python does, also within `enumerate` and `zip`: what the
        loop writes there is seen.
        """
        match over:
            case ast.Call(ast.Name("enumerate" as name), [row, *start], []) if (
                self._is_builtin(name) and len(start) <= 1 and not _starred([row, *start])
            ):
                inside, item = self._rows(row, place)
                number: ast.expr = _load(place)
                for first in start:
                    begin = self._of.kept(self._of.lowered(first))
                    number = ast.BinOp(number, ast.Add(), begin)
                return inside, ast.Tuple([number, item], ast.Load())
            case ast.Call(
                ast.Name("zip" as name),
                [_, *_] as parts,
                [] | [ast.keyword("strict", ast.Constant(True | False))] as strict,
            ) if self._is_builtin(name) and not _starred(parts):
                found = [self._rows(part, place) for part in parts]
                inside = [test for tests, _ in found for test in tests]
                if strict and isinstance(strict[0].value, ast.Constant) and strict[0].value.value:
                    inside = [ast.Call(_load(TOGETHER), inside, [])]
                return inside, ast.Tuple([item for _, item in found], ast.Load())
            case _:
                row_name = self._of.name()
                items = _at(_call(SEQUENCE, self._of.lowered(over)), over)
                self._do(assign(row_name, items))
                test = ast.Compare(_load(place), [ast.Lt()], [_call(LENGTH, _load(row_name))])
                return [test], ast.Subscript(_load(row_name), _load(place), ast.Load())

    def _assign(self, statement: ast.Assign) -> None:
        match statement.targets:
            case [ast.Name(id=name)] if self._of.called(statement.value, name):
                return
            case targets if not any(map(self._of.calls, targets)):
                made = copy.copy(statement)
                made.value = self._of.lowered(statement.value)
                self._do(made)
            case targets:
                value = self._of.kept(self._of.lowered(statement.value))
                for target in targets:
                    self._store(target, value)

    def _store(self, target: ast.expr, value: ast.expr) -> None:
        """Assign to a target in which programs are called."""
        match target:
            case ast.Tuple(elts=parts) | ast.List(elts=parts) if self._of.calls(target):
                names = [self._of.name() for _ in parts]
                row = ast.Tuple([_stored(n, p) for n, p in zip(names, parts, strict=True)], _STORE)
                self._do(_at(ast.Assign([row], value), target))
                for name, part in zip(names, parts, strict=True):
                    inner = part.value if isinstance(part, ast.Starred) else part
                    self._store(inner, _at(_load(name), part))
            case _:
                self._do(_at(ast.Assign([self._of.lowered(target)], value), target))

    def _change(self, statement: ast.AugAssign) -> None:
        """`a[i] += value`: a, i, a[i] and the value in this order, where programs are called."""
        made = copy.copy(statement)
        if not self._of.calls(statement):
            self._do(made)
            return
        target = statement.target
        match target:
            case ast.Name():
                made.value = self._of.lowered(statement.value)
                self._do(made)
            case ast.Attribute() | ast.Subscript():
                place = copy.copy(self._of.lowered(target))
                assert isinstance(place, ast.Attribute | ast.Subscript)
                place.value = self._of.kept(place.value)
                if isinstance(place, ast.Subscript):
                    place.slice = self._of.kept(place.slice)
                before = copy.copy(place)
                before.ctx = ast.Load()
                held = self._of.assigned(before)
                assert isinstance(held, ast.Name)
                made.value = self._of.lowered(statement.value)
                made.target = ast.copy_location(ast.Name(held.id, _STORE), target)
                self._do(made)
                self._do(_at(ast.Assign([place], held), statement))
            case _:
                assert_never(target)


_STORE = ast.Store()


def _at(node: Node, at: ast.AST) -> Node:
    """A node that python writes nowhere, with the line of another, and so its parts."""
    for part in ast.walk(node):
        if isinstance(part, ast.expr | ast.stmt) and not hasattr(part, "lineno"):
            ast.copy_location(part, at)
    return node


def _starred(parts: Sequence[ast.expr]) -> bool:
    return any(isinstance(part, ast.Starred) for part in parts)


def _stored(name: str, part: ast.expr) -> ast.expr:
    target = ast.Name(name, _STORE)
    return ast.Starred(target, _STORE) if isinstance(part, ast.Starred) else target


def _load(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _call(name: str, argument: ast.expr) -> ast.expr:
    return ast.Call(_load(name), [argument], [])
