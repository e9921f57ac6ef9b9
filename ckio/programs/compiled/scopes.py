"""Which names an expression or a statement reads and sets, as python scopes them."""

import ast
from collections.abc import Iterator
from typing import TypeGuard

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def is_comprehension(node: ast.AST, /) -> TypeGuard[Comprehension]:
    """Whether this is a comprehension or a generator expression."""
    return isinstance(node, Comprehension)


def parameters(arguments: ast.arguments, /) -> list[str]:
    """The names of a function's parameters."""
    found = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    found += [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
    return [each.arg for each in found]


def locals_of(function: ast.FunctionDef, /) -> frozenset[str]:
    """A function's own variables: its parameters, and all that it assigns to."""
    stored = (name for statement in function.body for name in bound(statement))
    return frozenset(parameters(function.args)) | frozenset(stored)


def bound(node: ast.AST, /) -> Iterator[str]:
    """The names that are assigned to, in this scope."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    if isinstance(node, ast.Lambda) or is_comprehension(node):
        return
    for child in ast.iter_child_nodes(node):
        yield from bound(child)


def read(node: ast.AST, /) -> Iterator[str]:
    """The names that are read, in this scope or from within it."""
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
    """("a", "b", "c") of a.b.c; None of anything else."""
    match node:
        case ast.Name(id=name):
            return (name,)
        case ast.Attribute(value=value, attr=name):
            before = dotted(value)
            return None if before is None else (*before, name)
        case _:
            return None
