"""The bytes of tensors in checkpoints, and the tensors that autograd saves, on levels."""

import math
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from threading import Lock
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch.multiprocessing.reductions import StorageWeakRef

from ckio.actions import Field, Key
from ckio.adapters.scratch import Scratch
from ckio.errors import BadInput, LevelFull, RunFailed, StorageError
from ckio.model.arrays import empty
from ckio.platform import Level, Platform

Tensors: TypeAlias = tuple[torch.Tensor, ...]


@cache
def dtype_of(dtype: torch.dtype, /) -> np.dtype[Any]:
    """Return the dtype of NumPy for the same bytes, or one of integers if NumPy has none."""
    try:
        same: np.dtype[Any] = torch.empty(0, dtype=dtype).numpy().dtype
    except TypeError:
        return np.dtype(f"u{dtype.itemsize}")
    return same


def flat(tensor: torch.Tensor, /) -> NDArray[Any]:
    """Return the elements of a contiguous tensor as an array with one dimension.

    It is the memory of a tensor on the CPU, and a copy of a tensor on another device.
    """
    memory = tensor.detach().cpu()
    memory = memory.as_strided((memory.numel(),), (1,))  # an axis of length 1 may have any stride
    return memory.view(torch.uint8).numpy().view(dtype_of(tensor.dtype))  # type: ignore[no-any-return]


def uninitialized(shape: Sequence[int], dtype: torch.dtype, /) -> torch.Tensor:
    """Return a new uninitialized tensor on the CPU. A large one begins at a page boundary."""
    count = math.prod(shape)
    if not count:
        return torch.empty(tuple(shape), dtype=dtype)
    raw = torch.from_numpy(empty((count * dtype.itemsize,), np.uint8))
    return raw.view(dtype).view(tuple(shape))


def over(view: memoryview, shape: Sequence[int], dtype: torch.dtype, /) -> torch.Tensor:
    """Return a tensor on the CPU in this memory, or in a copy if the memory is not aligned."""
    array = np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)
    if not array.flags.writeable or array.ctypes.data % max(1, dtype_of(dtype).alignment):
        array = array.copy()
    return torch.from_numpy(array).view(dtype).view(tuple(shape))


def field(name: str, tensor: torch.Tensor, /) -> Field:
    """Return the field of a tensor in a checkpoint."""
    return Field(name, dtype_of(tensor.dtype).str, tuple(tensor.shape))


def is_smooth(tensor: torch.Tensor, /) -> bool:
    """Return whether the numbers of a tensor have derivatives."""
    return bool(tensor.is_floating_point() or tensor.is_complex())


def owned(tensors: Sequence[torch.Tensor], /) -> Tensors:
    """Return contiguous copies in C order that belong to no graph."""
    return tuple(
        t.detach()
        .as_subclass(torch.Tensor)
        .clone(memory_format=torch.contiguous_format)
        .resolve_conj()
        .resolve_neg()
        for t in tensors
    )


def versions(tensors: Tensors, /) -> tuple[int, ...]:
    """Return how often each tensor was changed in place, or -1 for a tensor of inference mode."""
    return tuple(-1 if t.is_inference() else t._version for t in tensors)  # noqa: SLF001, the only way to ask


AT_LEAST: Final = 1 << 20
"""Bytes of the smallest tensor that `saved_on` stores by default."""


@contextmanager
def saved_on(*levels: Level, at_least: int = AT_LEAST) -> Iterator[Scratch]:
    """Store the tensors that autograd saves in a `with` block on levels. `backward` reads them.

    A tensor is stored on the first level with free space. It is removed when the graph that saved
    it is deleted. A tensor that several operations save is stored once. Tensors with less than
    `at_least` bytes stay in memory, and so do parameters, all other leaves that require a gradient,
    and their views.

    >>> from ckio import Level
    >>> x = torch.ones(1000, requires_grad=True)
    >>> with saved_on(Level(name="ram"), at_least=1000) as scratch:
    ...     y = (2 * x).sin()
    >>> len(list(scratch.backends[0].keys()))
    1
    >>> y.sum().backward()
    >>> bool(torch.equal(x.grad, 2 * torch.cos(2 * x)))
    True
    >>> list(scratch.backends[0].keys())
    []

    Parameters
    ----------
    *levels : Level
        The levels, nearest first.
    at_least : int
        Bytes of the smallest tensor that is stored.

    Returns
    -------
    context manager
        It returns the open levels, a `Scratch`. Their files are removed when neither a graph nor
        any other object refers to them.

    Raises
    ------
    BadInput, StorageError
        A level cannot be opened. In the block, LevelFull is raised if no level has free space.
        `backward` raises CorruptCheckpoint if stored bytes have changed, and RunFailed if a tensor
        that stayed in memory was changed in place.
    """
    if not levels:
        raise BadInput("saved_on needs at least one level; give a Level")
    scratch = Scratch(Platform(levels))
    saved = _SavedTensors(scratch, at_least)
    with torch.autograd.graph.saved_tensors_hooks(saved.pack, _unpack):
        yield scratch


class _StoredTensor:
    """A tensor on a level. It is discarded when no object refers to this one."""

    def __init__(self, scratch: Scratch, tensor: torch.Tensor) -> None:
        (whole,) = owned((tensor,))
        self._place = _put(scratch, flat(whole))
        self._scratch, self._like = scratch, (tensor.shape, tensor.dtype, tensor.device)
        self._end = weakref.finalize(self, _drop, scratch, *self._place)

    def tensor(self) -> torch.Tensor:
        """Return the stored tensor, in C order."""
        shape, dtype, device = self._like
        whole = uninitialized(shape, dtype)
        self._scratch.get(*self._place, {"": flat(whole)})
        return whole.to(device)


class _TensorInPlace:
    """A tensor that stays in memory. It must not be changed in place before it is used."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor, self._version = tensor, tensor._version  # noqa: SLF001, the only way to ask

    def tensor(self) -> torch.Tensor:
        if self._version != self._tensor._version:  # noqa: SLF001, as above
            raise RunFailed(
                f"a tensor of shape {tuple(self._tensor.shape)} that autograd saved was changed in"
                " place before backward(), for example by an optimizer; call backward() first"
            )
        return self._tensor


_Packed: TypeAlias = _StoredTensor | _TensorInPlace


class _SavedTensors:
    """The tensors that autograd saves within one `saved_on`."""

    def __init__(self, scratch: Scratch, at_least: int) -> None:
        self._scratch, self._at_least = scratch, at_least
        self._known: weakref.WeakValueDictionary[Any, _StoredTensor] = weakref.WeakValueDictionary()
        self._lock = Lock()

    def pack(self, tensor: torch.Tensor) -> _Packed:
        if tensor.layout != torch.strided or tensor.nbytes < self._at_least or _is_alive(tensor):
            return _TensorInPlace(tensor)
        # As long as the weak reference exists, no new storage gets the same number.
        storage = StorageWeakRef(tensor.untyped_storage())
        what = _TensorView(storage, tensor)
        with self._lock:
            if (stored := self._known.get(what)) is None:
                stored = self._known[what] = _StoredTensor(self._scratch, tensor)
        return stored


class _TensorView:
    """The identity of the numbers in a tensor. Equal identities mean equal numbers."""

    def __init__(self, storage: StorageWeakRef, tensor: torch.Tensor) -> None:
        self._storage = storage
        self._view = (
            storage.cdata,
            tensor.storage_offset(),
            tuple(tensor.shape),
            tensor.stride(),
            tensor.dtype,
            tensor.is_conj(),
            tensor.is_neg(),
            tensor._version,  # noqa: SLF001, the only way to ask
        )

    def __hash__(self) -> int:
        return hash(self._view)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _TensorView) and self._view == other._view


def _unpack(packed: _Packed) -> torch.Tensor:
    return packed.tensor()


def _is_alive(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a leaf that requires a gradient, or a view of such a leaf."""
    base: Any = tensor if tensor._base is None else tensor._base  # noqa: SLF001, the only way to ask
    return bool(base.is_leaf and base.requires_grad)


def _put(scratch: Scratch, array: Any) -> tuple[int, Key]:
    """Store an array on the first level with free space, and return the level and the key."""
    *nearer, last = range(len(scratch.backends))
    for level in nearer:
        with suppress(LevelFull):
            return level, scratch.put(level, {"": array})
    return last, scratch.put(last, {"": array})


def _drop(scratch: Scratch, level: int, key: Key) -> None:
    with suppress(StorageError):  # the levels may be closed already
        scratch.drop(level, key)
