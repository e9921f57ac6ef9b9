"""The states of a gradient on the levels of a platform, and gradients by number for callbacks.

XLA may call a `GradientStore` from any of its threads. This module never calls a compiled function
of JAX, because within a callback this could deadlock: the function may need a thread that waits for
the callback.
"""

import threading
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Key
from ckio.adapters.jax.blocks import bits_of
from ckio.adapters.jax.plans import Slot, SweepPlan
from ckio.adapters.scratch import Scratch

WAITING: Final = 16
"""Number of gradients that may wait for their reverse sweep. Older ones lose their states, and
repeat their forward sweep."""

GONE: Final = np.int32(-1)
"""The number that replaces a gradient's number if its states are no longer stored."""


class StoredStates:
    """The open levels of one gradient, and the states that its plan stores on them.

    The levels are closed and their files removed after the last access, if an access fails, and
    when this object is deleted.
    """

    def __init__(self, plan: SweepPlan, /) -> None:
        self._plan, self._scratch = plan, Scratch(plan.platform)
        self._keys: dict[Slot, Key] = {}
        self._accesses, self.is_reversing = 0, False
        self.replay: Any = None  # the states that the forward sweep has hashed, outside of XLA

    @property
    def waits(self) -> bool:
        """Whether the forward sweep is done and the reverse sweep has not begun."""
        return self._accesses == self._plan.accesses_forward and not self.is_reversing

    @property
    def is_done(self) -> bool:
        """Whether the last access is done."""
        return self._accesses == len(self._plan.slots)

    def put(self, access: int, leaves: list[Any], /) -> None:
        """Perform a write; raises StorageError."""

        def write(slot: Slot) -> None:
            arrays = {str(i): bits_of(leaf) for i, leaf in enumerate(leaves)}
            self._keys[slot] = self._scratch.put(slot[0], arrays)

        self._access(access, write)

    def get(self, access: int, /) -> list[NDArray[Any]]:
        """Perform a read, and return the bits of the leaves; raises StorageError."""
        read = self._access(access, lambda slot: self._scratch.get(slot[0], self._keys[slot]))
        return list(read.values())

    def close(self) -> None:
        self._scratch.close()

    def _access(self, access: int, do: Callable[[Slot], Any]) -> Any:
        try:
            result = do(self._plan.slots[access])
            for slot in self._plan.drops[access]:
                self._scratch.drop(slot[0], self._keys.pop(slot))
        except BaseException:
            self.close()
            raise
        self._accesses = access + 1
        if self.is_done:
            self.close()
        return result


class GradientStore:
    """The unfinished gradients of compiled programs in this process, by number."""

    def __init__(self) -> None:
        self._gradients: dict[int, StoredStates] = {}
        self._lock = threading.Lock()
        self._last = 0

    def __len__(self) -> int:
        return len(self._gradients)

    def begin(self, plan: SweepPlan, /) -> Any:
        """Open the levels of a new gradient, and return its number."""
        states = StoredStates(plan)
        with self._lock:
            self._last = self._last % (2**31 - 1) + 1
            number = self._last
            self._gradients[number] = states
            waiting = [number for number, it in self._gradients.items() if it.waits]
            old = [self._gradients.pop(each) for each in waiting[: len(waiting) - WAITING + 1]]
        for each in old:
            each.close()
        return np.int32(number)

    def take(self, number: Any, /) -> Any:
        """Begin the reverse sweep of a gradient, and return its number or GONE."""
        with self._lock:
            states = self._gradients.get(int(number))
            if states is None or not states.waits:
                return GONE
            states.is_reversing = True
        return np.int32(number)

    def claim(self, number: Any, /) -> StoredStates | None:
        """Remove and return a gradient that waits for its reverse sweep, or return None."""
        with self._lock:
            states = self._gradients.get(int(number))
            return self._gradients.pop(int(number)) if states is not None and states.waits else None

    def put(self, number: Any, access: Any, leaves: list[Any], /) -> Any:
        """Perform a write, and return the number."""
        self._access(number, lambda states: states.put(int(access), leaves))
        return np.int32(number)

    def get(self, like: list[Any], number: Any, access: Any, /) -> tuple[Any, list[Any]]:
        """Perform a read, and return the number and leaves of the dtypes of `like`."""
        bits = self._access(number, lambda states: states.get(int(access)))
        return np.int32(number), [x.view(it.dtype) for x, it in zip(bits, like, strict=True)]

    def _access(self, number: Any, do: Callable[[StoredStates], Any]) -> Any:
        """Perform an access. The gradient ends with its last access, or if an access fails."""
        states = self._gradients[int(number)]
        is_over = True
        try:
            result = do(states)
            is_over = states.is_done
        finally:
            if is_over:
                with self._lock:
                    self._gradients.pop(int(number), None)
        return result


STORE: Final = GradientStore()
