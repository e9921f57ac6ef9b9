"""What a derivative rule of a function is.

`rule(perform, result, paths, args, kwargs) -> (pull, saved)`: `paths` say which arguments have a
derivative, `pull(g, *saved)` returns one cotangent for each; it may have the shape that the
argument has after broadcasting.
"""

from collections.abc import Callable
from typing import Any

from ckio.errors import BadInput

Path = tuple[int | str, ...]
Pull = Callable[..., Any]
Rule = Callable[[Any, Any, list[Path], tuple[Any, ...], dict[str, Any]], tuple[Pull, Any]]
Parts = dict[str, tuple[Any, ...]]


def by_name(rule: Callable[..., Parts], name: str) -> Rule:
    """A rule from one that takes result and arguments, and gives {argument: (pull, *saved)}."""
    code = rule.__code__
    names = code.co_varnames[1 : code.co_argcount]

    def full(
        perform: Any, result: Any, paths: list[Path], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Pull, Any]:
        parts = rule(result, *args, **kwargs)
        wanted = []
        for path in paths:
            argument = names[path[0]] if isinstance(path[0], int) else path[0]
            if argument not in parts or len(path) > 1:
                raise BadInput(
                    f"{name} has no rule for the derivative in {argument!r}: wrap it by "
                    "primitive(vjp=...), or give it stop_gradient(x)"
                )
            wanted.append(parts[argument])
        return _each, tuple(wanted)

    return full


def refused(what: str) -> BadInput:
    """The error for arguments that no rule is for."""
    return BadInput(f"{what} has no rule for derivatives; wrap it by primitive(vjp=...)")


def at(path: Path, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The argument at this path."""
    value: Any = args[path[0]] if isinstance(path[0], int) else kwargs[path[0]]
    for step in path[1:]:
        value = value[step]
    return value


def replaced(
    values: dict[Path, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments with others at these paths."""

    def walk(tree: Any, path: Path) -> Any:
        if path in values:
            return values[path]
        if type(tree) in (list, tuple):
            return type(tree)(walk(item, (*path, i)) for i, item in enumerate(tree))
        return tree

    return (
        tuple(walk(item, (i,)) for i, item in enumerate(args)),
        {key: walk(item, (key,)) for key, item in kwargs.items()},
    )


def _each(g: Any, *parts: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(pull(g, *saved) for pull, *saved in parts)
