"""What a gradient keeps on levels between its sweeps, and gradients by number for callbacks.

XLA may call a `Store` from any of its threads. Nothing here calls JAX to compute: a function that
is compiled, called from within a callback, may wait for a thread that waits for the callback.
"""

import threading
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Key
from ckio.adapters.jax.plans import Plan, Slot
from ckio.adapters.scratch import Scratch

WAITING: Final = 16
"""Gradients that may wait for their way back; for older ones it begins with another way forward."""

GONE: Final = np.int32(-1)


class Run:
    """The levels of one gradient under way, and what its plan stores there.

    They are closed and their files removed after the last access, where one fails, and when nobody
    knows this object any more.
    """

    def __init__(self, plan: Plan, /) -> None:
        self._plan, self._scratch = plan, Scratch(plan.platform)
        self._keys: dict[Slot, Key] = {}
        self.waits = False  # whether the way forward is done, and the way back has not begun

    def put(self, access: int, leaves: list[Any], /) -> None:
        """Do a write; raises StorageError."""
        level, _ = slot = self._plan.slots[access]
        try:
            stored = {str(i): _bits(np.asarray(leaf)) for i, leaf in enumerate(leaves)}
            self._keys[slot] = self._scratch.put(level, stored)
            self._drop(access)
        except BaseException:
            self.close()
            raise
        self.waits = access == self._plan.written - 1

    def get(self, access: int, like: list[Any], /) -> list[NDArray[Any]]:
        """Do a read, of leaves with the dtypes of others; raises StorageError."""
        level, _ = slot = self._plan.slots[access]
        try:
            found = self._scratch.get(level, self._keys[slot])
            self._drop(access)
        except BaseException:
            self.close()
            raise
        if access == len(self._plan.slots) - 1:
            self.close()
        return [x.view(it.dtype) for x, it in zip(found.values(), like, strict=True)]

    def close(self) -> None:
        self._scratch.close()

    def _drop(self, access: int) -> None:
        for slot in self._plan.drops[access]:
            self._scratch.drop(slot[0], self._keys.pop(slot))


class Store:
    """All gradients under way in compiled programs of this process; each has a number."""

    def __init__(self) -> None:
        self._runs: dict[int, Run] = {}
        self._lock = threading.Lock()
        self._last = 0

    def __len__(self) -> int:
        return len(self._runs)

    def begin(self, plan: Plan, /) -> NDArray[np.int32]:
        """Open the levels; returns the number."""
        run = Run(plan)
        with self._lock:
            self._last = self._last % (2**31 - 1) + 1
            number = self._last
            self._runs[number] = run
            waiting = [number for number, run in self._runs.items() if run.waits]
            old = [self._runs.pop(each) for each in waiting[: len(waiting) - WAITING + 1]]
        for each in old:
            each.close()
        return np.int32(number)  # type: ignore[return-value]

    def take(self, number: Any, /) -> NDArray[np.int32]:
        """The same number, whose way back begins now; or GONE."""
        with self._lock:
            run = self._runs.get(int(number))
            if run is None or not run.waits:
                return GONE  # type: ignore[return-value]
            run.waits = False
        return np.int32(number)  # type: ignore[return-value]

    def claim(self, number: Any, /) -> Run | None:
        """The gradient whose way back begins now, which has no number any more; if it is there."""
        with self._lock:
            run = self._runs.get(int(number))
            return self._runs.pop(int(number)) if run is not None and run.waits else None

    def put(self, number: Any, access: Any, leaves: list[Any], /) -> NDArray[np.int32]:
        """Do a write; returns the number."""
        try:
            self._runs[int(number)].put(int(access), leaves)
        except BaseException:
            self._forget(number)
            raise
        return np.int32(number)  # type: ignore[return-value]

    def get(self, last: int, number: Any, access: Any, like: list[Any], /) -> tuple[Any, ...]:
        """Do a read; returns the number and the leaves. The last read ends the gradient."""
        try:
            leaves = self._runs[int(number)].get(int(access), like)
        except BaseException:
            self._forget(number)
            raise
        if int(access) == last:
            self._forget(number)
        return np.int32(number), leaves

    def _forget(self, number: Any) -> None:
        with self._lock:
            self._runs.pop(int(number), None)


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    """The same bits as numbers of NumPy's own, where they are not: of bfloat16 and its like."""
    return array if array.dtype.kind in "biufc" else array.view(f"u{array.dtype.itemsize}")


STORE: Final = Store()
