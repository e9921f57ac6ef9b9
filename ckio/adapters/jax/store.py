"""A gradient as a table of rows, and its states on the levels of a platform.

The sweeps of a gradient perform the rows one after the other. The callbacks of a compiled program
find its states by the number of the gradient, in `STORE`. XLA may call them from any of its
threads. They never call a compiled function of JAX, because within a callback this could deadlock:
the function may need a thread that waits for the callback.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from ckio.actions import Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.adapters import registry
from ckio.adapters.jax.blocks import bits_of
from ckio.adapters.scratch import Scratch
from ckio.errors import BadInput
from ckio.planners.base import Planner
from ckio.platform import FREE, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule
from ckio.schedule.replay import validate

Slot = tuple[int, int]
"""The number of a level, and the number of the block whose first state is stored there."""

ABSENT: Final = -1
"""The value of a part that a row does not have."""


class SweepRow(NamedTuple):
    """One row of the table: up to four operations, performed in this order.

    Attributes
    ----------
    read : int
        The number of the access that reads a state, or ABSENT.
    begin, end : int
        Advance from the first state of block `begin` to that of block `end`; equal for no advance.
    write : int
        The number of the access that writes the state, or ABSENT.
    reverse : int
        The block to reverse from its first state, or ABSENT.
    """

    read: int = ABSENT
    begin: int = 0
    end: int = 0
    write: int = ABSENT
    reverse: int = ABSENT


_AFTER_ALL: Final = len(SweepRow._fields)
"""A number after that of every part, so that the next part begins a new row."""


@dataclass(frozen=True)
class SweepPlan:
    """The two sweeps of a gradient. The forward sweep ends at the first state of the last block.

    Attributes
    ----------
    platform : Platform
    forward, backward : tuple of SweepRow
    slots : tuple of Slot
        The slot of each access.
    drops : tuple of tuple of Slot
        The slots to discard after each access.
    accesses_forward : int
        Number of accesses in the forward sweep.
    """

    platform: Platform
    forward: tuple[SweepRow, ...]
    backward: tuple[SweepRow, ...]
    slots: tuple[Slot, ...]
    drops: tuple[tuple[Slot, ...], ...]
    accesses_forward: int


def plan(
    count: int,
    nbytes: int,
    platform: Platform,
    planner: str | Planner,
    seconds: Callable[[], float],
    /,
) -> SweepPlan:
    """Plan the gradient of `count` blocks whose states have `nbytes` bytes each.

    `seconds` is called only if the levels have costs. It returns the seconds of a block forward.
    Raises NoSchedule, and BadInput for a planner that stores tapes or adjoints.
    """
    has_costs = any(level.write != FREE or level.read != FREE for level in platform.levels)
    advance = seconds() if has_costs else 1.0
    chain = Chain(
        steps=count,
        advance=advance,
        record=0.0,  # a record only keeps the state, because the reverse computes the tapes itself
        reverse=0.0,  # each block is reversed once, in every plan
        restart=nbytes,
        tape=nbytes,
        adjoint=nbytes,
    )
    one = replace(platform, working_memory=max(1, nbytes))
    make: Planner = registry.find("planners", planner) if isinstance(planner, str) else planner
    schedule = make(chain, one)
    validate(schedule, one)
    return _RowWriter(planner).plan(schedule, platform)


class _RowWriter:
    """The rows of a schedule up to the action that was read last.

    A Record only marks the state at which a block begins. Therefore the state may be one block
    behind that of the schedule. The missing block is computed when its result is needed.

    For example, the schedule [Write x_0, Advance(0, 2), Record(2, 3), Reverse(2, 3), Read x_0,
    Advance(0, 1), Record(1, 2), Reverse(1, 2), ...] has the forward rows (write by access 0),
    (advance 0 to 2), and the reverse rows (reverse 2), (read by access 1, advance 0 to 1,
    reverse 1), ...
    """

    def __init__(self, planner: object) -> None:
        self._planner, self._at = planner, 0
        self._rows: list[SweepRow] = []
        self._part = _AFTER_ALL  # the number of the last part in the last row
        self._slots: list[Slot] = []
        self._drops: list[tuple[Slot, ...]] = []

    def plan(self, schedule: Schedule, platform: Platform) -> SweepPlan:
        turn: tuple[int, int] | None = None  # the numbers of rows and accesses of the forward sweep
        for action in schedule.actions:
            match action:
                case Advance(_, end):
                    self._advance(end)
                case Record(begin, end) if end - begin == 1:
                    self._advance(begin)
                    if end == schedule.chain.steps and turn is None:
                        turn, self._part = (len(self._rows), len(self._slots)), _AFTER_ALL
                case Reverse(begin, _) if begin == self._at:
                    self._add(reverse=begin)
                case Write(Key(Kind.RESTART, step), level):
                    self._advance(step)
                    self._add(write=self._access(level, step))
                case Read(Key(Kind.RESTART, step), level):
                    self._add(read=self._access(level, step))
                    self._at = step
                case Discard(Key(_, step), level):
                    self._drops[-1] += ((level, step),)
                case _:
                    raise BadInput(
                        f"planner {self._planner!r}: {action}; a block of steps stores no tape: use"
                        " a planner that stores restart data only, for example hrevolve"
                    )
        assert turn is not None, "a schedule that was validated reverses its last step"
        rows, slots = tuple(self._rows), tuple(self._slots)
        return SweepPlan(
            platform, rows[: turn[0]], rows[turn[0] :], slots, tuple(self._drops), turn[1]
        )

    def _advance(self, end: int) -> None:
        if self._at < end:
            self._add(begin=self._at, end=end)
            self._at = end

    def _access(self, level: int, step: int) -> int:
        self._slots.append((level, step))
        self._drops.append(())
        return len(self._slots) - 1

    def _add(self, **parts: int) -> None:
        """Add parts to the last row, or to a new row if the last has the same or a later part."""
        part = SweepRow._fields.index(min(parts, key=SweepRow._fields.index))
        if part <= self._part:
            self._rows.append(SweepRow())
        self._rows[-1], self._part = self._rows[-1]._replace(**parts), part


WAITING: Final = 16
"""Number of gradients that may wait for their reverse sweep. Older ones lose their states, and
repeat their forward sweep."""

GONE: Final = np.int32(-1)
"""The number that replaces a gradient's number if its states are no longer stored."""


class StoredStates:
    """The open levels of one gradient, and the states that its plan stores on them.

    The levels are closed and their files removed after the last access, if an access fails, and
    when this object is deleted. JAX keeps it in the structure of the residuals, because it contains
    no arrays.
    """

    def __init__(self, plan: SweepPlan, /, end: Callable[[], object] = lambda: None) -> None:
        self._plan, self._scratch, self._end = plan, Scratch(plan.platform), end
        self._keys: dict[Slot, Key] = {}
        self._accesses, self._taken = 0, threading.Lock()
        self.replay: Any = None  # the states that the forward sweep has hashed, outside of XLA

    @property
    def waits(self) -> bool:
        """Whether the forward sweep is done and the reverse sweep has not begun."""
        return self._accesses == self._plan.accesses_forward and not self._taken.locked()

    def take(self) -> bool:
        """Begin the reverse sweep; return False if it has begun before."""
        return self._taken.acquire(blocking=False)

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
        self._end()
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
        if self._accesses == len(self._plan.slots):
            self.close()
        return result


jax.tree_util.register_pytree_node(StoredStates, lambda it: ((), it), lambda it, _: it)


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
        with self._lock:
            self._last = number = self._last % (2**31 - 1) + 1
        waiting = [it for it in list(self._gradients.values()) if it.waits]
        for old in waiting[: max(0, len(waiting) - WAITING + 1)]:
            if old.take():  # unless another thread has begun its reverse sweep meanwhile
                old.close()
        self._gradients[number] = StoredStates(plan, partial(self._gradients.pop, number, None))
        return np.int32(number)

    def take(self, number: Any, /) -> Any:
        """Begin the reverse sweep of a gradient, and return its number, or GONE."""
        states = self._gradients.get(int(number))
        return np.int32(number) if states is not None and states.take() else GONE

    def put(self, number: Any, access: Any, leaves: list[Any], /) -> Any:
        """Perform a write, and return the number."""
        self._gradients[int(number)].put(int(access), leaves)
        return np.int32(number)

    def get(self, like: list[Any], number: Any, access: Any, /) -> tuple[Any, list[Any]]:
        """Perform a read, and return the number and leaves of the dtypes of `like`."""
        bits = self._gradients[int(number)].get(int(access))
        return np.int32(number), [x.view(it.dtype) for x, it in zip(bits, like, strict=True)]


STORE: Final = GradientStore()
