"""The memory in which a model computes, if it is not the memory of the host."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ckio.actions import Buffers, Key, Layout
from ckio.backends.base import Backend
from ckio.backends.ram import Ram
from ckio.errors import BadInput
from ckio.model import optional


class MemorySpace(Protocol):
    """Memory that the host cannot access, for example that of an accelerator.

    A model whose buffers are in such memory has it as its attribute `space`. It must wait for its
    results at the end of each action, because levels copy its buffers without a further wait. A
    level that takes such buffers has an attribute `space`, too, which is equal to the model's.
    """

    def level(self, capacity: int | None = None, /) -> Ram:
        """Return a new level in this memory."""

    def through(self, level: Backend, /) -> Backend:
        """Return a level that takes buffers in this memory, and stores them on the given level."""


def memory_for(model: object, capacity: int | None = None, /) -> Ram:
    """Return a new level in the memory in which a model computes."""
    space: MemorySpace | None = optional(model).space
    return Ram(capacity=capacity) if space is None else space.level(capacity)


def levels_for(model: object, levels: Sequence[Backend], /) -> Sequence[Backend]:
    """Return the given levels, each as it is or within one that takes the buffers of a model.

    Raises BadInput if one of them is no level.
    """
    for it in levels:
        if not isinstance(it, Backend):
            raise BadInput(
                f"{type(it).__name__} is no level; derive its class from"
                " ckio.backends.base.Backend, and open it"
            )
    space: MemorySpace | None = optional(model).space
    if space is None:
        return levels
    return [it if it.space == space else space.through(it) for it in levels]


def host_copy(space: MemorySpace, key: Key, layout: Layout, data: Buffers, /) -> Buffers:
    """Return a copy of a checkpoint's buffers in the memory of the host."""
    level = Ram()
    space.through(level).write(key, layout, data)
    copies = [np.empty(view.nbytes, np.uint8).data for view in data]
    level.read(key, copies)
    return copies
