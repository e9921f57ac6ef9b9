"""Translation of a function's syntax to blocks: loops and branches become jumps.

A `for` loop stores its position in a variable. Expressions that call programs are divided in the
order in which Python evaluates them:

    a[i] * f(x) + g(h(y))      becomes      @1 = a[i]; call f; @3 = @1 * @2; call h; call g; @3 + @5

The values of the parts of such an expression are stored in new variables.
"""

import ast
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ckio.programs.compiled.dependencies import Scope
from ckio.programs.compiled.graph import Graph, Writing, graph
from ckio.programs.compiled.source import parameters

Node = TypeVar("Node", bound=ast.AST)
Expression = TypeVar("Expression", bound=ast.expr)

SEQUENCE, LENGTH, TOGETHER = "@sequence", "@len", "@together"
"""The names under which blocks call `items`, `len` and `together`."""


def translate(scope: Scope, /) -> Graph:
    """Return the blocks of a function without refused statements."""
    function, translation = scope.source.tree, _Translation(scope)
    translation.all(function.body)
    translation.writing.end(node=_at(ast.Constant(None), function.body[-1]))
    return graph(translation.writing.done(), frozenset(parameters(function.args)), scope.locals)


@dataclass
class _Translation:
    """Writes the blocks of one statement after the other.

    Attributes
    ----------
    names : int
        Number of new variables so far.
    loops : list
        The blocks to which `continue` and `break` jump, for each loop.
    """

    scope: Scope
    writing: Writing = field(default_factory=Writing)
    names: int = 0
    loops: list[tuple[int, int]] = field(default_factory=list)

    # Statements

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
                self.writing.end(self.loops[-1][isinstance(statement, ast.Break)])
            case ast.Return(value=value):
                value = value or _at(ast.Constant(None), statement)
                self.writing.end(node=self.hoist(value))
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
        """Write an `assert`, a `raise`, or an expression."""
        new = copy.copy(statement)
        for name, part in ast.iter_fields(statement):
            if isinstance(part, ast.expr) and name != "msg":
                setattr(new, name, self.hoist(part))
        self._do(new)
        if isinstance(new, ast.Raise):
            self.writing.end(node=_at(ast.Constant(None), statement))

    def _do(self, statement: ast.stmt) -> None:
        self.writing.statements.append(statement)

    def _if(self, statement: ast.If) -> None:
        arms = (lambda: self.all(statement.body)), (lambda: self.all(statement.orelse))
        self._fork(statement.test, *arms)

    def _fork(self, test: ast.expr, *arms: Callable[[], None]) -> None:
        yes, no, end = self.writing.new(), self.writing.new(), self.writing.new()
        self._branch(test, yes, no)
        for begin, arm in zip((yes, no), arms, strict=True):
            self.writing.begin(begin)
            arm()
            self.writing.end(end)
        self.writing.begin(end)

    def _branch(self, test: ast.expr, yes: int, no: int) -> None:
        match test:
            case ast.Constant(value=value):
                self.writing.end(yes if value else no)
            case _:
                self.writing.end(yes, no, node=self.hoist(test))

    def _while(self, statement: ast.While) -> None:
        top, body, end = self.writing.new(), self.writing.new(), self.writing.new()
        self.writing.end(top)
        self.writing.begin(top, head=not isinstance(statement.test, ast.Constant))
        self._branch(statement.test, body, end)
        self._loop(top, body, end, statement.body)

    def _loop(self, top: int, body: int, end: int, statements: Sequence[ast.stmt]) -> None:
        self.writing.begin(body)
        self.loops.append((top, end))
        self.all(statements)
        self.loops.pop()
        self.writing.end(top, begin=end)

    def _for(self, statement: ast.For) -> None:
        """Write a loop by index over the items at its start, so that its position can be stored."""
        place = self.name()
        tests, item = self._rows(statement.iter, place)
        self._do(_assignment(place, _at(ast.Constant(0), statement.iter)))
        top, body, end = self.writing.new(), self.writing.new(), self.writing.new()
        self.writing.end(top)
        self.writing.begin(top, head=True)
        inside = tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)
        self.writing.end(body, end, node=_at(inside, statement.iter))
        first = ast.Assign([statement.target], item)
        on = ast.AugAssign(ast.Name(place, ast.Store()), ast.Add(), ast.Constant(1))
        taken = [_at(first, statement.target), _at(on, statement.target)]
        self._loop(top, body, end, [*taken, *statement.body])

    def _rows(self, over: ast.expr, place: str) -> tuple[list[ast.expr], ast.expr]:
        """Return expressions that test whether a loop has an item at a position, and the item.

        An item is read at the beginning of its iteration, like in Python, also with `enumerate` and
        `zip`. Therefore an iteration sees values that earlier ones wrote into the items.
        """
        match over:
            case ast.Call(ast.Name("enumerate" as name), [row, *start], []) if (
                self.scope.is_builtin(name) and len(start) <= 1 and not _starred([row, *start])
            ):
                inside, item = self._rows(row, place)
                number: ast.expr = load(place)
                for first in start:
                    begin = self.keep(self.hoist(first))
                    number = ast.BinOp(number, ast.Add(), begin)
                return inside, ast.Tuple([number, item], ast.Load())
            case ast.Call(
                ast.Name("zip" as name),
                [_, *_] as parts,
                [] | [ast.keyword("strict", ast.Constant(True | False))] as strict,
            ) if self.scope.is_builtin(name) and not _starred(parts):
                parts_rows = [self._rows(part, place) for part in parts]
                inside = [test for tests, _ in parts_rows for test in tests]
                if strict and isinstance(strict[0].value, ast.Constant) and strict[0].value.value:
                    inside = [ast.Call(load(TOGETHER), inside, [])]
                return inside, ast.Tuple([item for _, item in parts_rows], ast.Load())
            case _:
                row_name = self.name()
                items = _at(_call(SEQUENCE, self.hoist(over)), over)
                self._do(_assignment(row_name, items))
                test = ast.Compare(load(place), [ast.Lt()], [_call(LENGTH, load(row_name))])
                return [test], ast.Subscript(load(row_name), load(place), ast.Load())

    def _assign(self, statement: ast.Assign) -> None:
        new = copy.copy(statement)
        new.value = self.hoist(statement.value)
        self._do(new)

    def _change(self, statement: ast.AugAssign) -> None:
        """Write `a[i] += value`. A call of a program keeps the order a, i, a[i], value."""
        new, target = copy.copy(statement), statement.target
        if isinstance(target, ast.Name) or not self.calls(statement.value):
            new.value = self.hoist(statement.value)
            self._do(new)
            return
        place = _with_parts(target, self.keep)
        before = copy.copy(place)
        before.ctx = ast.Load()
        current = self.name()
        self._do(_assignment(current, before))
        new.value = self.hoist(statement.value)
        new.target = ast.copy_location(ast.Name(current, ast.Store()), target)
        self._do(new)
        self._do(_at(ast.Assign([place], load(current)), statement))

    # Expressions

    def calls(self, node: ast.AST) -> bool:
        """Return whether a program is called in this expression, except within a lambda."""
        if isinstance(node, ast.Lambda):
            return False
        if isinstance(node, ast.Call) and self.scope.is_program(node):
            return True
        return any(map(self.calls, ast.iter_child_nodes(node)))

    def hoist(self, node: ast.expr) -> ast.expr:
        """Write the calls of programs in an expression, and return the rest of the expression."""
        if not self.calls(node):
            return node
        match node:
            case ast.BoolOp():
                return self._shortcut(node)
            case ast.IfExp():
                return self._choice(node)
            case ast.Call() if self.scope.is_program(node):
                call, result, after = self._hoist_parts(node), self.name(), self.writing.new()
                self.writing.end(after, node=call, result=result, begin=after)
                return load(result, node)
            case _:
                return self._hoist_parts(node)

    def name(self) -> str:
        """Return the name of a new variable."""
        self.names += 1
        return f"@{self.names}"

    def keep(self, node: ast.expr) -> ast.expr:
        """Return an expression whose value is computed now, so that no call can change it."""
        match node:
            case ast.Constant() | ast.Name():
                return node
            case ast.Attribute() if self.scope.is_module(node):
                return node
            case ast.Slice() | ast.Tuple() | ast.Lambda():
                return _with_parts(node, self.keep)
            case ast.Starred(value=value):
                row = ast.copy_location(ast.List([node], ast.Load()), node)
                return ast.copy_location(ast.Starred(self.store(row), ast.Load()), value)
            case _:
                return self.store(node)

    def store(self, node: ast.expr) -> ast.expr:
        """Assign a value to a new variable, and return the variable."""
        name = self.name()
        self._do(_assignment(name, node))
        return load(name, node)

    def _hoist_parts(self, node: Expression) -> Expression:
        """Write the parts of an operation in their order, and return the operation on them."""

        def value(part: ast.expr) -> ast.expr:
            hoisted = self.hoist(part)
            called = isinstance(node, ast.Call) and part is node.func
            return self._keep_callee(hoisted) if called else self.keep(hoisted)

        return _with_parts(node, value)

    def _keep_callee(self, node: ast.expr) -> ast.expr:
        """Evaluate a function before its arguments. A method is looked up only at the call."""
        if not isinstance(node, ast.Attribute) or self.scope.is_module(node):
            return self.keep(node)
        return _with_parts(node, self.keep)

    def _shortcut(self, node: ast.BoolOp) -> ast.expr:
        """Write `and` or `or`. A value is evaluated only if those before it did not decide."""
        result, end = self.name(), self.writing.new()
        for value in node.values[:-1]:
            self._into(result, value)
            after = self.writing.new()
            ways = (after, end) if isinstance(node.op, ast.And) else (end, after)
            self.writing.end(*ways, node=load(result, value), begin=after)
        self._into(result, node.values[-1])
        self.writing.end(end, begin=end)
        return load(result, node)

    def _choice(self, node: ast.IfExp) -> ast.expr:
        """Write `a if test else b`."""
        result = self.name()
        arms = (lambda: self._into(result, node.body)), (lambda: self._into(result, node.orelse))
        self._fork(node.test, *arms)
        return load(result, node)

    def _into(self, result: str, value: ast.expr) -> None:
        rest = self.hoist(value)  # before _do, because it may begin another block
        self._do(_assignment(result, rest))


def _assignment(name: str, value: ast.expr, /) -> ast.stmt:
    """Return `name = value`."""
    target = ast.copy_location(ast.Name(name, ast.Store()), value)
    return ast.copy_location(ast.Assign([target], value), value)


def load(name: str, at: ast.AST | None = None) -> ast.expr:
    """Return an expression that reads a name, with the line of another node if one is given."""
    node = ast.Name(name, ast.Load())
    return node if at is None else ast.copy_location(node, at)


def _with_parts(node: Node, new: Callable[[ast.expr], ast.expr], /) -> Node:
    """Return an expression with new(part) for each part, in the order in which Python evaluates."""
    whole: Any = copy.copy(node)
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        changed = [(key and new(key), new(value)) for key, value in pairs]
        whole.keys, whole.values = [key for key, _ in changed], [value for _, value in changed]
        return whole  # type: ignore[no-any-return]

    def changed_part(part: Any) -> Any:
        if isinstance(part, ast.keyword | ast.arguments):
            return _with_parts(part, new)
        return new(part) if isinstance(part, ast.expr) else part

    for name, part in ast.iter_fields(node):
        if isinstance(node, ast.Lambda) and name == "body":
            continue  # it is evaluated by a call, and only the defaults are evaluated now
        many = isinstance(part, list)
        setattr(whole, name, list(map(changed_part, part)) if many else changed_part(part))
    return whole  # type: ignore[no-any-return]


def _at(node: Node, at: ast.AST) -> Node:
    """Return a new node whose parts have the line of another node."""
    for part in ast.walk(node):
        if isinstance(part, ast.expr | ast.stmt) and not hasattr(part, "lineno"):
            ast.copy_location(part, at)
    return node


def _starred(parts: Sequence[ast.expr]) -> bool:
    return any(isinstance(part, ast.Starred) for part in parts)


def _call(name: str, argument: ast.expr) -> ast.expr:
    return ast.Call(load(name), [argument], [])
