"""Tensors as ckio stores them: their bytes, and room for those; and states made of tensors."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from ckio.actions import Field
from ckio.errors import BadInput
from ckio.model.arrays import empty

Tensors: TypeAlias = tuple[torch.Tensor, ...]


@cache
def dtype_of(dtype: torch.dtype, /) -> np.dtype[Any]:
    """The dtype that NumPy has for the same bytes; whole numbers where it has none."""
    try:
        same: np.dtype[Any] = torch.empty(0, dtype=dtype).numpy().dtype
    except TypeError:
        return np.dtype(f"u{dtype.itemsize}")
    return same


def flat(tensor: torch.Tensor, /) -> NDArray[Any]:
    """The memory of a contiguous tensor on the CPU, in one dimension and without a copy.

    Of a tensor elsewhere it is a copy.
    """
    there = tensor.detach().cpu()
    there = there.as_strided((there.numel(),), (1,))  # strides of 1 element may be anything
    return there.view(torch.uint8).numpy().view(dtype_of(tensor.dtype))  # type: ignore[no-any-return]


def room(shape: Sequence[int], dtype: torch.dtype, /) -> torch.Tensor:
    """A new tensor on the CPU, without content; a large one begins where a page begins."""
    count = math.prod(shape)
    if not count:
        return torch.empty(tuple(shape), dtype=dtype)
    raw = torch.from_numpy(empty((count * dtype.itemsize,), np.uint8))
    return raw.view(dtype).view(tuple(shape))


def over(view: memoryview, shape: Sequence[int], dtype: torch.dtype, /) -> torch.Tensor:
    """A tensor on the CPU in this memory; a copy of it where no such tensor may begin there."""
    array = np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)
    if not array.flags.writeable or array.ctypes.data % max(1, dtype_of(dtype).alignment):
        array = array.copy()
    return torch.from_numpy(array).view(dtype).view(tuple(shape))


def field(name: str, tensor: torch.Tensor, /) -> Field:
    """What a tensor is in a checkpoint."""
    return Field(name, dtype_of(tensor.dtype).str, tuple(tensor.shape))


def is_smooth(tensor: torch.Tensor, /) -> bool:
    """Whether its numbers have derivatives."""
    return bool(tensor.is_floating_point() or tensor.is_complex())


def owned(tensors: Sequence[torch.Tensor], /) -> Tensors:
    """Copies in C order that belong to no graph."""
    return tuple(
        t.detach().clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()
        for t in tensors
    )


@dataclass(frozen=True, slots=True)
class Tree:
    """How a state is made of tensors: it is one, or a tuple, list or dict of such.

    Attributes
    ----------
    name : str
        What it is called in messages and in files.
    kind : type or None
        Of the tuple, list or dict; None for a tensor.
    keys : tuple
        Of its parts.
    parts : tuple of Tree
    """

    name: str
    kind: Any = None
    keys: tuple[Any, ...] = ()
    parts: tuple["Tree", ...] = ()

    @staticmethod
    def of(x: Any, name: str = "x", /) -> "Tree":
        """Raises BadInput where anything else is in it."""
        match x:
            case torch.Tensor():
                if x.layout != torch.strided:
                    raise BadInput(f"{name} is a tensor of layout {x.layout}; the state is dense")
                if x.is_meta:
                    raise BadInput(f"{name} is on the device 'meta', where there are no numbers")
                return Tree(name)
            case tuple() | list():
                keys: tuple[Any, ...] = tuple(range(len(x)))
            case dict():
                keys = tuple(x)
            case _:
                raise BadInput(
                    f"{name} is a {type(x).__name__}; a state is a tensor, or a tuple, list or"
                    " dict of tensors"
                )
        inner = "" if name == "x" else f"{name}."
        parts = tuple(Tree.of(x[key], f"{inner}{key}") for key in keys)
        return Tree(name, type(x), keys, parts)

    def leaves(self, x: Any, /) -> Iterator[torch.Tensor]:
        """The tensors of a state that is made alike; raises BadInput for another."""
        if self.kind is None:
            if not isinstance(x, torch.Tensor):
                raise BadInput(f"{self.name} is a {type(x).__name__}, and was a tensor")
            yield x
            return
        mine = type(x) is self.kind and len(x) == len(self.keys)
        if not mine or (isinstance(x, Mapping) and not all(key in x for key in self.keys)):
            raise BadInput(f"{self.name} is another {type(x).__name__} than it was: {self}")
        for key, part in zip(self.keys, self.parts, strict=True):
            yield from part.leaves(x[key])

    def build(self, leaves: Iterator[torch.Tensor], /) -> Any:
        """The state of these tensors."""
        if self.kind is None:
            return next(leaves)
        parts = [part.build(leaves) for part in self.parts]
        if issubclass(self.kind, dict):
            found = self.kind()
            found.update(zip(self.keys, parts, strict=True))
            return found
        return self.kind(*parts) if hasattr(self.kind, "_fields") else self.kind(parts)

    def names(self) -> Iterator[str]:
        """Of all tensors."""
        if self.kind is None:
            yield self.name
        for part in self.parts:
            yield from part.names()

    def __str__(self) -> str:
        return ", ".join(self.names()) or "nothing"
