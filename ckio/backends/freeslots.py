"""The free slots of a level, by size; they are used again before new slots are made.

A reservation makes slots of exactly its sizes. A checkpoint that was not reserved takes a free slot
of up to twice its size, or else a new slot. The size of a new slot is rounded up to one of eight
sizes between one power of two and the next. Therefore even checkpoints that all differ in size, as
compressed ones do, need only a bounded number of slot sizes. If a new slot does not fit, the
checkpoint takes the smallest free slot that is large enough.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from ckio.errors import LevelFull


class SizedSlot(Protocol):
    """Space for one checkpoint of up to `size` bytes."""

    @property
    def size(self) -> int: ...


S = TypeVar("S", bound=SizedSlot)
S_co = TypeVar("S_co", bound=SizedSlot, covariant=True)


class Make(Protocol[S_co]):
    """A function that makes at least `count` new slots, or raises an error and makes none.

    With `ahead`, before a run, the function also writes to the slots, because the first use of a
    slot is slow.
    """

    def __call__(self, size: int, count: int, /, *, ahead: bool) -> Iterable[S_co]: ...


@dataclass(slots=True)
class SlotsOfSize(Generic[S]):
    """The slots of one size: their number, the number that is reserved, and the free ones."""

    count: int = 0
    reserved: int = 0
    free: list[S] = field(default_factory=list)


class FreeSlots(Generic[S]):
    """The slots of a level.

    Parameters
    ----------
    unit
        All sizes are multiples of this number of bytes.
    make
        Function that makes new slots.
    drop
        `drop(size)` releases all slots of this size; it is called only if all of them are free.
    """

    def __init__(
        self,
        *,
        unit: int,
        make: Make[S],
        drop: Callable[[int], None],
    ) -> None:
        self._unit, self._make, self._drop = unit, make, drop
        self._sizes: dict[int, SlotsOfSize[S]] = {}

    def take(self, nbytes: int, /) -> S:
        """Return a slot for `nbytes`: the smallest that is free, or a new one."""
        slots = self._sizes.get(_multiple(nbytes, self._unit))
        if slots is not None and slots.free:
            return slots.free.pop()
        for size in self._fitting(nbytes):
            slots = self._sizes[size]
            if slots.free:
                return slots.free.pop()
        self._drop_idle()
        try:
            return self._more(rounded(nbytes, self._unit), 1, ahead=False).free.pop()
        except (OSError, LevelFull):
            for size in self._at_least(nbytes):
                if free := self._sizes[size].free:
                    return free.pop()
            raise

    def give(self, slot: S, /) -> None:
        """Take back a slot."""
        self._sizes[slot.size].free.append(slot)

    def put(self, size: int, *, count: int, free: Iterable[S]) -> None:
        """Add slots that exist already, `count` of them."""
        slots = self._of(size)
        slots.count += count
        slots.free.extend(free)

    def lacking(self, sizes: Mapping[int, int], /) -> dict[int, int]:
        """Return the slots that a reservation must still make; both are `{bytes: number}`."""
        return {
            size: count - self._sizes[size].count if size in self._sizes else count
            for size, count in self._wanted(sizes).items()
            if size not in self._sizes or self._sizes[size].count < count
        }

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        """Make the slots of a reservation, which replaces the previous reservation."""
        try:
            for size, count in self.lacking(sizes).items():
                self._more(size, count, ahead=True)
        except BaseException:
            self._drop_idle()
            raise
        self._reserved(sizes)

    def expect(self, sizes: Mapping[int, int], /) -> None:
        """Replace the previous reservation; its slots are kept when they have been made."""
        for size in self._wanted(sizes):
            self._of(size)
        self._reserved(sizes)

    def prepare(self, nbytes: int, count: int, /) -> None:
        """Make `count` slots for `nbytes` all at once, less those that exist; reserve none."""
        for size, lacking in self.lacking({nbytes: count}).items():
            self._more(size, lacking, ahead=False)

    def _reserved(self, sizes: Mapping[int, int]) -> None:
        wanted = self._wanted(sizes)
        for size, slots in self._sizes.items():
            slots.reserved = wanted.get(size, 0)

    def _wanted(self, sizes: Mapping[int, int]) -> dict[int, int]:
        wanted: dict[int, int] = {}
        for nbytes, count in sizes.items():
            if count > 0:
                size = _multiple(nbytes, self._unit)
                wanted[size] = wanted.get(size, 0) + count
        return wanted

    def _fitting(self, nbytes: int) -> Iterator[int]:
        most = 2 * max(nbytes, self._unit)
        return (size for size in self._at_least(nbytes) if size <= most)

    def _at_least(self, nbytes: int) -> list[int]:
        return sorted(size for size in self._sizes if size >= nbytes)

    def _of(self, size: int) -> SlotsOfSize[S]:
        if size not in self._sizes:
            self._sizes[size] = SlotsOfSize()
        return self._sizes[size]

    def _more(self, size: int, count: int, *, ahead: bool) -> SlotsOfSize[S]:
        slots = list(self._make(size, count, ahead=ahead))
        self.put(size, count=len(slots), free=slots)
        return self._sizes[size]

    def _drop_idle(self) -> None:
        """Drop each size that is not reserved and not in use.

        Otherwise, if the sizes of checkpoints drift during a run, unused slots would accumulate.
        """
        for size, slots in list(self._sizes.items()):
            if not slots.reserved and len(slots.free) == slots.count:
                del self._sizes[size]
                self._drop(size)


def _multiple(nbytes: int, unit: int) -> int:
    return max(unit, -(-nbytes // unit) * unit)


def rounded(nbytes: int, unit: int) -> int:
    """Return `nbytes` rounded up to a slot size.

    There are eight sizes between one power of two and the next; each is then rounded up to a
    multiple of `unit`. For example, the sizes after 1024 are 1152, 1280, ..., 2048:

    >>> rounded(1025, 1), rounded(1025, 512)
    (1152, 1536)
    """
    step = 1 << max(0, (nbytes - 1).bit_length() - 4)
    return _multiple(-(-nbytes // step) * step, unit)
