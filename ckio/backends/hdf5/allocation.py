"""The groups of an archive: their free slots, and the choice of a slot for a checkpoint.

A new group has as many slots as were reserved for its size; without a reservation, as many as the
groups for such checkpoints have already. Checkpoints of plain bytes, for example compressed ones,
share slots of a few sizes. Therefore an archive needs only few groups even if each checkpoint
compresses differently. Only checkpoints with the same name and unit share slots, because the unit
describes the checkpoint before its compression.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from ckio.actions import Key, Kind, Layout
from ckio.backends.files import TILE
from ckio.backends.forms import Form, form_of
from ckio.backends.freeslots import rounded
from ckio.backends.hdf5.heads import MOST_SLOTS, ROW, Group, is_plain
from ckio.errors import LevelFull

_SLACK: Final = 1 << 17
"""Upper bound of the bytes of metadata and rounding for each reserved size."""

_FOR_VIEWS: Final = 1024
_VIEWED: Final = 1024
"""Space for the entries of fields: 1024 bytes per slot, plus one byte per 1024 stored bytes.

An entry has about 50 bytes. Each field has one entry; an encoded field has one for each MiB.
"""

_LINE: Final = 64
"""The size of a slot for plain bytes is a multiple of this number of bytes."""

_REMEMBERED: Final = 64
"""Number of forms whose groups are remembered."""

Make = Callable[[Key, Form, int], Group]
"""Function that makes a group with this number of slots for a key and form; raises LevelFull."""


class ArchiveSlots:
    """The slots of an archive.

    Parameters
    ----------
    capacity
        Maximum payload bytes of the level; None means no limit but the disk.
    make
        Function that makes a new group.

    Attributes
    ----------
    free : dict
        The free slots of each group; the last one is taken first.
    reserved : dict
        Slots that were reserved and are not made yet, `{bytes: number}`.
    """

    def __init__(self, capacity: int | None, make: Make) -> None:
        self.free: dict[Group, list[int]] = {}
        self.reserved: dict[int, int] = {}
        self._capacity, self._make = capacity, make
        self._families: dict[tuple[Kind, Layout], list[Group]] = {}
        self._serving: dict[tuple[Kind, Form], list[Group]] = {}
        self._prepared: set[Group] = set()

    def adopt(self, group: Group, free: Iterable[int], /) -> None:
        """Add a group with these free slots."""
        self.free[group] = list(free)
        self._serving.clear()
        self._families.setdefault((group.kind, family(group.form.layout)), []).append(group)

    def lacking(self, sizes: Mapping[int, int], /) -> dict[int, int]:
        """Return the slots that a reservation must still make; both are `{bytes: number}`."""
        slots = dict.fromkeys(sizes, 0)
        for group in self.free:
            for nbytes in slots:
                slots[nbytes] += group.slots * (group.form.nbytes in (nbytes, slot_size(nbytes)))
        return {n: count - slots[n] for n, count in sizes.items() if count > slots[n]}

    def bytes_for(self, lacking: Mapping[int, int], /) -> int:
        """Return an upper bound of the file's growth in bytes when these slots are made."""
        first = sum(_SLACK + (TILE if n >= TILE else 0) for n in lacking)
        return first + sum(count * self._bytes_of(n) for n, count in lacking.items())

    @staticmethod
    def _bytes_of(nbytes: int) -> int:
        """Return an upper bound of the bytes of one slot in the file."""
        return slot_size(nbytes) + ROW.itemsize + _FOR_VIEWS + nbytes // _VIEWED

    def prepare(self, key: Key, form: Form, count: int, /) -> None:
        """Make slots until there are `count` for such checkpoints; raises LevelFull."""
        slots = self._count_for(key.kind, form)
        while slots < count:
            group = self._new(key, form, count - slots)
            self._prepared.add(group)
            slots += group.slots

    def group_for(self, key: Key, form: Form, /) -> Group:
        """Return a group with a free slot for a checkpoint, if necessary a new group.

        Raises LevelFull if the file cannot grow and has no free slot that is large enough.
        """
        kind = key.kind
        for group in self._serving.get((kind, form)) or self._find_serving(kind, form):
            if self.free[group]:
                return group
        # A checkpoint may be much smaller than the prepared slots because it compressed better than
        # expected. It takes one of those slots nevertheless.
        large = [group for group in self._relatives(kind, form) if group.holds(form.nbytes)]
        for group in large:
            if group in self._prepared and self.free[group]:
                return group
        for count in dict.fromkeys((self._wanted(kind, form), 1)):
            try:
                return self._new(key, form, count)
            except LevelFull as error:
                refusal = error
        # A new group does not fit: take any free slot that is large enough.
        for group in large:
            if self.free[group]:
                return group
        raise refusal

    def _new(self, key: Key, form: Form, count: int) -> Group:
        """Make a group of `count` slots, or of the maximum of a group; raises LevelFull."""
        count = min(count, MOST_SLOTS)
        size = self._size(key.kind, form)
        group = self._make(key, form_of(slot_layout(form.layout, size)), count)
        if size in self.reserved:
            self.reserved[size] = max(0, self.reserved[size] - count)
        return group

    def _size(self, kind: Kind, form: Form) -> int:
        """Return the slot size of a new group in bytes.

        It is the smallest suitable size of a reservation; otherwise that of a suitable group, which
        is full. If all groups for this layout have unsuitable sizes, the sizes of later checkpoints
        will also differ: then the slots are 1.5 times as large as the checkpoint.
        """
        layout, nbytes = form.layout, form.nbytes
        sizes = [n for n in self.reserved if serves(slot_nbytes(layout, n), layout, nbytes)]
        if sizes:
            return min(sizes)
        if groups := self._find_serving(kind, form):
            return max(group.form.nbytes for group in groups)
        return nbytes * 3 // 2 if self._relatives(kind, form) else nbytes

    def _wanted(self, kind: Kind, form: Form) -> int:
        """Return the number of slots of a new group."""
        slots, nbytes = self._count_for(kind, form), form.nbytes
        # If the sizes of checkpoints drift, each new group must have more than one slot: it gets
        # half as many as are occupied in the groups of other sizes.
        taken = sum(group.slots - len(self.free[group]) for group in self._relatives(kind, form))
        wanted = max(self.reserved.get(self._size(kind, form), 0), slots, taken // 2, 1)
        if self._capacity is None or not nbytes:
            return wanted
        return max(1, min(wanted, self._capacity // nbytes - slots))

    def _count_for(self, kind: Kind, form: Form) -> int:
        """Return the number of slots for checkpoints of this form, free or not."""
        return sum(group.slots for group in self._find_serving(kind, form))

    def _relatives(self, kind: Kind, form: Form) -> list[Group]:
        """Return the groups of the same kind and family."""
        return self._families.get((kind, family(form.layout)), [])

    def _find_serving(self, kind: Kind, form: Form) -> list[Group]:
        """Return the groups with suitable slots for checkpoints of this form, and remember them."""
        groups, layout, nbytes = self._relatives(kind, form), form.layout, form.nbytes
        serving = [group for group in groups if serves(group.form.nbytes, layout, nbytes)]
        if len(self._serving) >= _REMEMBERED:
            self._serving.clear()
        self._serving[kind, form] = serving
        return serving


# Layouts that share slots, and the sizes of these


def family(layout: Layout, /) -> Layout:
    """Return the layout that represents all layouts with which this one shares slots.

    For plain bytes it is the layout of 0 bytes, because plain bytes of any number share slots. For
    any other layout it is the layout itself.
    """
    return (replace(layout[0], shape=(0,)),) if is_plain(layout) else layout


def slot_layout(layout: Layout, nbytes: int, /) -> Layout:
    """Return the layout of slots for checkpoints of this layout with up to `nbytes`."""
    return (replace(layout[0], shape=(slot_size(nbytes),)),) if is_plain(layout) else layout


def slot_nbytes(layout: Layout, nbytes: int, /) -> int:
    """Return the bytes of a slot of `slot_layout(layout, nbytes)`."""
    return slot_size(nbytes) if is_plain(layout) else nbytes


def serves(size: int, layout: Layout, nbytes: int, /) -> bool:
    """Return whether a slot of this size suits a checkpoint; at most half of it stays unused."""
    return size == nbytes or (is_plain(layout) and nbytes <= size <= 2 * max(nbytes, _LINE))


def slot_size(nbytes: int, /) -> int:
    """Return `nbytes` rounded up to a slot size (`freeslots.rounded`); 0 stays 0."""
    return rounded(nbytes, _LINE) if nbytes else 0
