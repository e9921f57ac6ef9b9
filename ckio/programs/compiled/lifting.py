"""Code in which all arrays that it makes are lifted onto a tape, as soon as they are made.

What depends on the inputs can then be written into them, under whatever name. Lifted is what a call
returns, and what else is computed and then assigned, returned, or handed to a call.
"""

import ast
import copy
from typing import Final, TypeVar

Node = TypeVar("Node", bound=ast.AST)

LIFT: Final = "@lift"
BUILD: Final = "@build"
"""The names under which code calls `Tape.lift`, and `build` with it."""

_BUILDERS: Final = ("array", "asarray", "full")
"""What `build` is asked about, by the last part of its name."""

_MADE: Final = (ast.BinOp, ast.UnaryOp, ast.IfExp, ast.BoolOp, ast.Compare, ast.List, ast.Tuple)
_FILLED: Final = (ast.Dict, ast.ListComp, ast.DictComp)


def lifting(node: Node, /) -> Node:
    """The same expression or statement with its arrays lifted."""
    made: Node = _Lifting().visit(copy.deepcopy(node))
    if isinstance(made, ast.Assign):
        made.value = _lifted(made.value)
    if isinstance(made, ast.Expr) and isinstance(made.value, ast.Call) and _is_lift(made.value):
        made.value = made.value.args[0]  # nobody has what it returns
    return made


def value_lifting(node: ast.expr, /) -> ast.expr:
    """The same for a value that is handed on."""
    return _lifted(lifting(node))


class _Lifting(ast.NodeTransformer):
    """Lifts what every call returns, but for those of functions that are called later."""

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
            node.func = ast.copy_location(ast.Name(BUILD, ast.Load()), node.func)
        return node if own else _call(node)


def _is_lift(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == LIFT


def _lifted(node: ast.expr) -> ast.expr:
    return _call(node) if isinstance(node, _MADE + _FILLED) else node


def _call(node: ast.expr) -> ast.expr:
    function = ast.copy_location(ast.Name(LIFT, ast.Load()), node)
    return ast.copy_location(ast.Call(function, [node], []), node)
