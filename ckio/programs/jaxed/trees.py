"""Inputs and results: structures of arrays and numbers that JAX can hold."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ckio.analysis.partitioned.jaxprs import jax
from ckio.errors import BadInput
from ckio.programs.trees import leaves, rebuild, same

Number = bool | int | float | complex


@dataclass(frozen=True)
class Structure:
    """A structure without its leaves.

    Attributes
    ----------
    template : object
        The structure, where each leaf is its own name.
    names : tuple of str
        Of the leaves, in order.
    """

    template: Any
    names: tuple[str, ...]

    @classmethod
    def of(cls, tree: Any, name: str) -> Self:
        """Of these inputs or this result; raises BadInput where two leaves have one name."""
        names: list[str] = []

        def see(path: str, _: Any) -> str:
            names.append(path)
            return path

        template = rebuild(tree, name, see)
        if len(set(names)) < len(names):
            twice = next(path for path in names if names.count(path) > 1)
            raise BadInput(f"jax_program: two leaves are called {twice!r}; rename a key")
        return cls(template, tuple(names))

    def fits(self, tree: Any) -> bool:
        """Whether a structure is the same but for its leaves."""
        return same(tree, self.template)

    def leaves(self, tree: Any) -> dict[str, Any]:
        """The leaves of such a structure, in the order of `names`."""
        root = self.names[0].partition(".")[0] if self.names else ""
        found = leaves(tree, root)
        return {name: found[name] for name in self.names}

    def tree(self, values: Mapping[str, Any]) -> Any:
        """Such a structure, with these leaves."""
        return rebuild(self.template, "", lambda _, name: values[name])


def traceable(name: str, leaf: Any) -> Any:
    """A leaf as what JAX traces; raises BadInput where it would not be what it is."""
    if isinstance(leaf, Number) and not isinstance(leaf, np.generic):
        return leaf
    try:
        aval = jax().typeof(leaf)
    except TypeError:
        raise BadInput(
            f"jax_program: {name} is a {type(leaf).__name__}; inputs and results are arrays and"
            " numbers of JAX, in tuples, lists and dicts"
        ) from None
    if isinstance(leaf, np.ndarray | np.generic) and leaf.dtype != aval.dtype:
        raise BadInput(
            f"jax_program: {name} is {leaf.dtype}, of which JAX would make {aval.dtype}:"
            " jax.config.update('jax_enable_x64', True) before, or give it an array of that kind"
        )
    return leaf


def as_leaf(name: str, leaf: Any, like: Any) -> Any:
    """A copy of a leaf as an array of JAX; raises BadInput for another shape, or lost digits.

    A Python number becomes what is asked for, unless it is of a richer kind.
    """
    array = np.asarray(leaf)
    plain = isinstance(leaf, Number) and not isinstance(leaf, np.generic)
    fits = np.can_cast(array.dtype, like.dtype, "same_kind" if plain else "safe")
    if array.shape != like.shape or not fits:
        raise BadInput(
            f"{name} is {array.dtype}{list(array.shape)}; this program was made for"
            f" {like.dtype}{list(like.shape)}: make another one from an example like this"
        )
    return jax().numpy.array(array, dtype=like.dtype, copy=True)
