"""Expressions that call programs, taken apart in the order in which python evaluates them.

    a[i] * f(x) + g(h(y))      becomes      @1 = a[i]; call f; @3 = @1 * @2; call h; call g; @3 + @5

What python evaluates before a call, and could be changed by it, goes into a variable of its own.
"""

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ckio.programs.compiled.blocks import Branch, Call, Jump, Writing

Node = TypeVar("Node", bound=ast.expr)

Slot = tuple[Any, Any]
"""Where a part of an expression is kept: an object and the name of its attribute, or a list and
an index."""


@dataclass
class Expressions:
    """Takes expressions apart into the blocks that are being written.

    Attributes
    ----------
    writing : Writing
        Where calls and what comes before them go.
    is_program : callable
        Whether what is called here is a program.
    is_module : callable
        Whether this names something in a module, which stays what it is.
    """

    writing: Writing
    is_program: Callable[[ast.Call], bool]
    is_module: Callable[[ast.expr], bool]
    names: int = field(default=0)

    def calls(self, node: ast.AST) -> bool:
        """Whether a program is called in this expression, other than from within a lambda."""
        if isinstance(node, ast.Lambda):
            return False
        if isinstance(node, ast.Call) and self.is_program(node):
            return True
        return any(map(self.calls, ast.iter_child_nodes(node)))

    def lowered(self, node: ast.expr) -> ast.expr:
        """What is left of an expression when all programs in it have been called."""
        if not self.calls(node):
            return node
        match node:
            case ast.BoolOp():
                return self._shortcut(node)
            case ast.IfExp():
                return self._choice(node)
            case ast.Compare() if len(node.ops) > 1:
                return self._chain(node)
            case ast.Call() if self.is_program(node):
                result = self.name()
                self.call(self._parts_lowered(node), result)
                return _load(result, node)
            case _:
                return self._parts_lowered(node)

    def call(self, call: ast.Call, result: str) -> None:
        """A call of a program with arguments that call none; its result goes into a variable."""
        after = self.writing.new()
        self.writing.end(Call(call, result, after))
        self.writing.begin(after)

    def called(self, node: ast.expr, result: str) -> bool:
        """Call the program that this expression is a call of into a variable; else do nothing."""
        if not (isinstance(node, ast.Call) and self.is_program(node)):
            return False
        self.call(self._parts_lowered(node), result)
        return True

    def name(self) -> str:
        """A variable that no function has."""
        self.names += 1
        return f"@{self.names}"

    def kept(self, node: ast.expr) -> ast.expr:
        """An expression evaluated now: what it is must not be changed by a call."""
        match node:
            case ast.Constant() | ast.Name() | ast.Lambda():
                return node
            case ast.Attribute() if self.is_module(node):
                return node
            case ast.Slice() | ast.Tuple():
                return self._parts_kept(node)
            case ast.Starred(value=value):
                row = ast.copy_location(ast.List([node], ast.Load()), node)
                return ast.copy_location(ast.Starred(self.assigned(row), ast.Load()), value)
            case ast.FormattedValue():
                text = self.assigned(ast.copy_location(ast.JoinedStr([node]), node))
                return ast.copy_location(ast.FormattedValue(text, -1), node)
            case _:
                return self.assigned(node)

    def assigned(self, node: ast.expr) -> ast.expr:
        """A variable of its own for this value."""
        name = self.name()
        self.writing.statements.append(assign(name, node))
        return _load(name, node)

    def _parts_lowered(self, node: Node) -> Node:
        """The same operation on parts that call no program."""
        made = copy.copy(node)
        slots = list(_slots(made))
        last = max((n for n, slot in enumerate(slots) if self.calls(_get(slot))), default=-1)
        for number, slot in enumerate(slots[: last + 1]):
            part = self.lowered(_get(slot))
            if number < last:
                called = isinstance(node, ast.Call) and slot == (made, "func")
                part = self._callee_kept(part) if called else self.kept(part)
            _set(slot, part)
        return made

    def _callee_kept(self, node: ast.expr) -> ast.expr:
        """What is called, with arguments that come after: a method is looked up at the call."""
        if not isinstance(node, ast.Attribute) or self.is_module(node):
            return self.kept(node)
        made = copy.copy(node)
        made.value = self.kept(node.value)
        return made

    def _parts_kept(self, node: ast.expr) -> ast.expr:
        made = copy.copy(node)
        for slot in _slots(made):
            _set(slot, self.kept(_get(slot)))
        return made

    def _shortcut(self, node: ast.BoolOp) -> ast.expr:
        """`and`, `or`: on with the next value only where the last one did not decide."""
        result, end = self.name(), self.writing.new()
        for value in node.values[:-1]:
            self._into(result, value)
            after = self.writing.new()
            ways = (after, end) if isinstance(node.op, ast.And) else (end, after)
            self.writing.end(Branch(_load(result, value), *ways))
            self.writing.begin(after)
        self._into(result, node.values[-1])
        self._join(end)
        return _load(result, node)

    def _choice(self, node: ast.IfExp) -> ast.expr:
        """`a if test else b`."""
        result = self.name()
        yes, no, end = self.writing.new(), self.writing.new(), self.writing.new()
        self.writing.end(Branch(self.lowered(node.test), yes, no))
        for begin, value in ((yes, node.body), (no, node.orelse)):
            self.writing.begin(begin)
            self._into(result, value)
            self.writing.end(Jump(end))
        self.writing.begin(end)
        return _load(result, node)

    def _chain(self, node: ast.Compare) -> ast.expr:
        """`a < b < c`: each part once, and none after the first comparison that is false."""
        result, end = self.name(), self.writing.new()
        left = self.lowered(node.left)
        for number, (op, each) in enumerate(zip(node.ops, node.comparators, strict=True)):
            if self.calls(each):
                left = self.kept(left)
            right = self.lowered(each)
            if number < len(node.ops) - 1:
                left, right = self.kept(left), self.kept(right)
            compared = ast.copy_location(ast.Compare(left, [op], [right]), node)
            self.writing.statements.append(assign(result, compared))
            if number < len(node.ops) - 1:
                after = self.writing.new()
                self.writing.end(Branch(_load(result, node), after, end))
                self.writing.begin(after)
            left = right
        self._join(end)
        return _load(result, node)

    def _into(self, result: str, value: ast.expr) -> None:
        if not self.called(value, result):
            left = self.lowered(value)  # first: it may begin another block
            self.writing.statements.append(assign(result, left))

    def _join(self, end: int) -> None:
        self.writing.end(Jump(end))
        self.writing.begin(end)


def assign(name: str, value: ast.expr, /) -> ast.stmt:
    """`name = value`."""
    target = ast.copy_location(ast.Name(name, ast.Store()), value)
    return ast.copy_location(ast.Assign([target], value), value)


def _load(name: str, at: ast.AST) -> ast.expr:
    return ast.copy_location(ast.Name(name, ast.Load()), at)


def _slots(node: ast.AST) -> Iterator[Slot]:
    """The places of an expression's parts, in the order in which python evaluates them."""
    if isinstance(node, ast.Dict):
        node.keys, node.values = list(node.keys), list(node.values)
        for number, key in enumerate(node.keys):
            if key is not None:
                yield node.keys, number
            yield node.values, number
        return
    for name, part in ast.iter_fields(node):
        if isinstance(part, ast.expr):
            yield node, name
        elif isinstance(part, list):
            own = [copy.copy(p) if isinstance(p, ast.keyword) else p for p in part]
            setattr(node, name, own)
            for number, each in enumerate(own):
                if isinstance(each, ast.keyword):
                    yield each, "value"
                elif isinstance(each, ast.expr):
                    yield own, number


def _get(slot: Slot) -> ast.expr:
    holder, place = slot
    found: ast.expr = holder[place] if isinstance(holder, list) else getattr(holder, place)
    return found


def _set(slot: Slot, part: ast.expr) -> None:
    holder, place = slot
    if isinstance(holder, list):
        holder[place] = part
    else:
        setattr(holder, place, part)
