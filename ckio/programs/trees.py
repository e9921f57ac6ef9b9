"""Structures of tuples, lists and dicts, and the names of their leaves."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any


def leaves(tree: object, name: str, /) -> dict[str, Any]:
    """Each leaf by the path to it, `name.index` or `name.key`; None has none.

    >>> leaves({"u": 1.0, "history": [2.0, None, (3.0,)]}, "y")
    {'y.u': 1.0, 'y.history.0': 2.0, 'y.history.2.0': 3.0}
    """
    return dict(_leaves(tree, name))


def rebuild(tree: object, name: str, leaf: Callable[[str, Any], Any], /) -> Any:
    """A structure like this one with leaf(path, value) for each of its leaves.

    >>> rebuild((1.0, {"u": 2.0}), "x", lambda path, value: (path, 2 * value))
    (('x.0', 2.0), {'u': ('x.1.u', 4.0)})
    """
    match tree:
        case None:
            return None
        case tuple() if hasattr(tree, "_fields"):
            return type(tree)(*(rebuild(t, path, leaf) for path, t in _children(tree, name)))
        case tuple() | list():
            return type(tree)(rebuild(t, path, leaf) for path, t in _children(tree, name))
        case dict():
            values = (rebuild(t, path, leaf) for path, t in _children(tree, name))
            return dict(zip(tree, values, strict=True))
        case _:
            return leaf(name, tree)


def same(tree: object, other: object, /) -> bool:
    """Whether two structures differ in their leaves alone."""
    return _shape(tree) == _shape(other)


def _shape(tree: object) -> object:
    match tree:
        case None:
            return None
        case tuple() | list():
            return tuple(map(_shape, tree))
        case dict():
            return {key: _shape(value) for key, value in tree.items()}
        case _:
            return "leaf"


def _leaves(tree: object, name: str) -> Iterator[tuple[str, Any]]:
    match tree:
        case None:
            return
        case tuple() | list() | dict():
            for path, child in _children(tree, name):
                yield from _leaves(child, path)
        case _:
            yield name, tree


def _children(tree: Any, name: str) -> Iterator[tuple[str, Any]]:
    pairs: Any = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
    return ((f"{name}.{key}", child) for key, child in pairs)
