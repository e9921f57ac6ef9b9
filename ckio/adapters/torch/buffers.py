"""Buffers of modules, such as the running means of a BatchNorm.

A step may change a buffer. The buffer is then a part of the state: it is stored in checkpoints, and
a step that is run again finds the value that it found first.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import torch

from ckio.adapters.torch.tensors import versions
from ckio.errors import BadInput


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer of one or more modules.

    Attributes
    ----------
    name : str
    places : tuple of (module, name)
        The modules that have this buffer, and its name in each.
    """

    name: str
    places: tuple[tuple[Any, str], ...]

    @property
    def tensor(self) -> torch.Tensor:
        """The tensor that is the buffer now. A step may change it, or replace it by another."""
        module, name = self.places[0]
        return getattr(module, name)

    def set(self, tensor: torch.Tensor) -> None:
        """Replace the tensor."""
        for module, name in self.places:
            setattr(module, name, tensor)

    def copy(self) -> torch.Tensor:
        """Return a copy of the tensor; raises BadInput if a gradient would be lost."""
        if self.tensor.requires_grad:
            raise BadInput(
                f"a step stores in the buffer {self.name!r} a tensor that requires a gradient; make"
                " it a part of the state, or detach it"
            )
        return self.tensor.clone(memory_format=torch.contiguous_format)

    def mark(self) -> tuple[int, ...]:
        """Return the identity and the version of the tensor. A change of a buffer sets one of them.

        BatchNorm's kernel is an exception, but BatchNorm also counts its calls in a buffer.
        """
        return id(self.tensor), *versions((self.tensor,))


def buffers_of(*owners: Any) -> tuple[Buffer, ...]:
    """Return the buffers of those objects that are modules or methods of modules."""
    found: dict[int, Buffer] = {}
    for owner in owners:
        root = getattr(owner, "__self__", owner)
        for prefix, module in root.named_modules() if isinstance(root, torch.nn.Module) else ():
            for name, tensor in module.named_buffers(recurse=False):
                known = found.get(id(tensor), Buffer(f"{prefix}.{name}".lstrip("."), ()))
                places = dict.fromkeys((*known.places, (module, name)))
                found[id(tensor)] = Buffer(known.name, tuple(places))
    return tuple(found.values())


class Watch:
    """Which of some buffers were changed since they were added."""

    def __init__(self) -> None:
        self._before: list[tuple[Buffer, Any, torch.Tensor]] = []

    def add(self, buffer: Buffer) -> None:
        self._before.append((buffer, buffer.mark(), buffer.copy()))

    def changed(self) -> list[Buffer]:
        return [
            buffer
            for buffer, mark, copy in self._before
            if buffer.mark() != mark or not torch.equal(buffer.tensor, copy)
        ]


@contextmanager
def no_change_of_others(known: tuple[Buffer, ...]) -> Iterator[None]:
    """Raise BadInput if a module that is called in this `with` block changes another buffer."""
    mine, seen = get_ident(), {place for it in known for place in it.places}
    watch = Watch()

    def look(module: Any, _: Any) -> None:
        if get_ident() == mine:
            for name, _tensor in module.named_buffers(recurse=False):
                if (module, name) not in seen:
                    seen.add((module, name))
                    watch.add(Buffer(f"{type(module).__name__}.{name}", ((module, name),)))

    handle = torch.nn.modules.module.register_module_forward_pre_hook(look)
    try:
        yield
    finally:
        handle.remove()
    if names := [buffer.name for buffer in watch.changed()]:
        raise BadInput(
            f"a step changes the buffers {names}, which are changed once more when the step is run"
            " again; give their module in `params`, or several modules as a torch.nn.ModuleList"
        )
