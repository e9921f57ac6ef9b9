"""The other side of the callbacks: levels that are open while a gradient is between its sweeps.

XLA may call these from any of its threads. Nothing here calls JAX to compute: a function that is
compiled, called from within a callback, may wait for a thread that waits for the callback.
"""

import threading
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Key
from ckio.adapters.jax.plans import Plan, Slot
from ckio.adapters.scratch import Scratch

WAITING: Final = 16
"""Gradients that may wait for their way back; for older ones it begins with another way forward."""

GONE: Final = np.int32(-1)


@dataclass
class Run:
    """One gradient under way.

    Attributes
    ----------
    scratch : Scratch
    keys : dict
        Under which key the state in a slot is stored.
    waits : bool
        Whether the way forward is done, and the way back has not begun.
    """

    scratch: Scratch
    keys: dict[Slot, Key] = field(default_factory=dict)
    waits: bool = False


class Store:
    """All gradients under way in this process; each has a number."""

    def __init__(self) -> None:
        self._runs: dict[int, Run] = {}
        self._lock = threading.Lock()
        self._last = 0

    def __len__(self) -> int:
        return len(self._runs)

    def begin(self, plan: Plan, /) -> NDArray[np.int32]:
        """Open the levels; returns the number."""
        run = Run(Scratch(plan.platform))
        with self._lock:
            self._last = self._last % (2**31 - 1) + 1
            number = self._last
            self._runs[number] = run
            waiting = [number for number, run in self._runs.items() if run.waits]
            old = [self._runs.pop(each) for each in waiting[: len(waiting) - WAITING + 1]]
        for each in old:
            each.scratch.close()
        return np.int32(number)  # type: ignore[return-value]

    def take(self, number: Any, /) -> NDArray[np.int32]:
        """The same number, whose way back begins now; or GONE."""
        with self._lock:
            run = self._runs.get(int(number))
            if run is None or not run.waits:
                return GONE  # type: ignore[return-value]
            run.waits = False
        return np.int32(number)  # type: ignore[return-value]

    def put(self, plan: Plan, number: Any, access: Any, leaves: list[Any], /) -> NDArray[np.int32]:
        """Do a write; returns the number."""
        run, slot = self._runs[int(number)], plan.slots[int(access)]
        stored = {str(i): _bits(np.asarray(leaf)) for i, leaf in enumerate(leaves)}
        try:
            run.keys[slot] = run.scratch.put(slot[0], stored)
            self._drop(plan, run, int(access))
        except BaseException:
            self._end(int(number))
            raise
        run.waits = int(access) == plan.written - 1
        return np.int32(number)  # type: ignore[return-value]

    def get(self, plan: Plan, number: Any, access: Any, like: list[Any], /) -> tuple[Any, ...]:
        """Do a read; returns the number and the leaves. The last read ends the gradient."""
        run, slot = self._runs[int(number)], plan.slots[int(access)]
        try:
            found = run.scratch.get(slot[0], run.keys[slot])
            self._drop(plan, run, int(access))
        except BaseException:
            self._end(int(number))
            raise
        if int(access) == len(plan.slots) - 1:
            self._end(int(number))
        leaves = [x.view(it.dtype) for x, it in zip(found.values(), like, strict=True)]
        return np.int32(number), leaves

    def _drop(self, plan: Plan, run: Run, access: int) -> None:
        for slot in plan.drops[access]:
            run.scratch.drop(slot[0], run.keys.pop(slot))

    def _end(self, number: int) -> None:
        with self._lock:
            run = self._runs.pop(number, None)
        if run is not None:
            run.scratch.close()


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    """The same bits as numbers of NumPy's own, where they are not: of bfloat16 and its like."""
    return array if array.dtype.kind in "biufc" else array.view(f"u{array.dtype.itemsize}")


STORE: Final = Store()
