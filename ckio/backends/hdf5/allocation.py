"""The groups of an archive: which slots are free, and which of them a checkpoint may take.

A new group has as many slots as were reserved for its size; without a reservation, as many as its
like have already. Plain bytes share slots of a few sizes, so that an archive gets by with few
groups, however well a codec does: but only those with the same name and unit, which describes
the checkpoint once it is decoded.
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
"""Bytes of metadata and rounding that the reservation of a size adds."""

_FOR_VIEWS: Final = 1024
_VIEWED: Final = 1024
"""Bytes for the entries of fields in each slot, and stored bytes for each byte more of them.

An entry takes some 50 bytes, and there is one for each field; where it is encoded, one for each MiB
of a large one.
"""

_LINE: Final = 64
"""Slots for plain bytes have a multiple of so many."""

_REMEMBERED: Final = 64
"""Forms whose groups are remembered."""

Make = Callable[[Key, Form, int], Group]
"""Function that makes a group of so many slots for such checkpoints, or raises LevelFull."""


class ArchiveSlots:
    """The slots of an archive.

    Parameters
    ----------
    capacity
        Payload bytes that the level may hold; None: as many as the disk.
    make
        Makes a new group.

    Attributes
    ----------
    free : dict
        The free slots of each group; the last one is taken first.
    reserved : dict
        Slots that were reserved, `{bytes: how many}`, and are not made yet.
    """

    def __init__(self, capacity: int | None, make: Make) -> None:
        self.free: dict[Group, list[int]] = {}
        self.reserved: dict[int, int] = {}
        self._capacity, self._make = capacity, make
        self._families: dict[tuple[Kind, Layout], list[Group]] = {}
        self._serving: dict[tuple[Kind, Form], list[Group]] = {}
        self._prepared: set[Group] = set()

    def adopt(self, group: Group, free: Iterable[int], /) -> None:
        """Add a group."""
        self.free[group] = list(free)
        self._serving.clear()
        self._families.setdefault((group.kind, family(group.form.layout)), []).append(group)

    def lacking(self, sizes: Mapping[int, int], /) -> dict[int, int]:
        """Return the slots that a reservation `{bytes: how many}` has still to make."""
        slots = dict.fromkeys(sizes, 0)
        for group in self.free:
            for nbytes in slots:
                slots[nbytes] += group.slots * (group.form.nbytes in (nbytes, slot_size(nbytes)))
        return {n: count - slots[n] for n, count in sizes.items() if count > slots[n]}

    def bytes_for(self, lacking: Mapping[int, int], /) -> int:
        """Return the bytes of the file that new groups for a reservation take at most."""
        first = sum(_SLACK + (TILE if n >= TILE else 0) for n in lacking)
        return first + sum(count * self._bytes_of(n) for n, count in lacking.items())

    @staticmethod
    def _bytes_of(nbytes: int) -> int:
        """Return the bytes of the file that a slot takes at most."""
        return slot_size(nbytes) + ROW.itemsize + _FOR_VIEWS + nbytes // _VIEWED

    def prepare(self, key: Key, form: Form, count: int, /) -> None:
        """Make the slots that are lacking for `count` such checkpoints; raises LevelFull."""
        slots = self._count_for(key.kind, form)
        while slots < count:
            group = self._new(key, form, count - slots)
            self._prepared.add(group)
            slots += group.slots

    def group_for(self, key: Key, form: Form, /) -> Group:
        """Return a group with a free slot for a checkpoint, new if need be; raises LevelFull."""
        kind = key.kind
        for group in self._serving.get((kind, form)) or self._find_serving(kind, form):
            if self.free[group]:
                return group
        # A checkpoint that shrank more than was promised has slots nevertheless.
        large = [group for group in self._relatives(kind, form) if group.holds(form.nbytes)]
        for group in large:
            if group in self._prepared and self.free[group]:
                return group
        for count in dict.fromkeys((self._wanted(kind, form), 1)):
            try:
                return self._new(key, form, count)
            except LevelFull as error:
                refusal = error
        # A new one does not fit: any slot will do that is free and large enough.
        for group in large:
            if self.free[group]:
                return group
        raise refusal

    def _new(self, key: Key, form: Form, count: int) -> Group:
        """Make a group of `count` slots, or of as many as a group has; raises LevelFull."""
        count = min(count, MOST_SLOTS)
        size = self._size(key.kind, form)
        group = self._make(key, form_of(slot_layout(form.layout, size)), count)
        if size in self.reserved:
            self.reserved[size] = max(0, self.reserved[size] - count)
        return group

    def _size(self, kind: Kind, form: Form) -> int:
        """Return the bytes of the slots of a new group.

        They are those of a reservation that serves; or of a group that serves, but is full. Where
        all groups are of other sizes, more such will come: slots are half as large again.
        """
        layout, nbytes = form.layout, form.nbytes
        sizes = [n for n in self.reserved if serves(slot_nbytes(layout, n), layout, nbytes)]
        if sizes:
            return min(sizes)
        if groups := self._find_serving(kind, form):
            return max(group.form.nbytes for group in groups)
        return nbytes * 3 // 2 if self._relatives(kind, form) else nbytes

    def _wanted(self, kind: Kind, form: Form) -> int:
        """Return how many slots a new group should have."""
        slots, nbytes = self._count_for(kind, form), form.nbytes
        # Sizes that drift must not begin with a single slot each time.
        taken = sum(group.slots - len(self.free[group]) for group in self._relatives(kind, form))
        wanted = max(self.reserved.get(self._size(kind, form), 0), slots, taken // 2, 1)
        if self._capacity is None or not nbytes:
            return wanted
        return max(1, min(wanted, self._capacity // nbytes - slots))

    def _count_for(self, kind: Kind, form: Form) -> int:
        """Return how many slots serve checkpoints of this form, free or not."""
        return sum(group.slots for group in self._find_serving(kind, form))

    def _relatives(self, kind: Kind, form: Form) -> list[Group]:
        """Return the groups of the same family."""
        return self._families.get((kind, family(form.layout)), [])

    def _find_serving(self, kind: Kind, form: Form) -> list[Group]:
        """Return the groups whose slots may hold checkpoints of this form, and remember them."""
        groups, layout, nbytes = self._relatives(kind, form), form.layout, form.nbytes
        serving = [group for group in groups if serves(group.form.nbytes, layout, nbytes)]
        if len(self._serving) >= _REMEMBERED:
            self._serving.clear()
        self._serving[kind, form] = serving
        return serving


# Layouts that share slots, and the sizes of these


def family(layout: Layout, /) -> Layout:
    """Return the layout that stands for all those which share slots: itself, or no plain bytes.

    Plain bytes come in any number, as codecs make them: slots of a few sizes serve them all.
    """
    return (replace(layout[0], shape=(0,)),) if is_plain(layout) else layout


def slot_layout(layout: Layout, nbytes: int, /) -> Layout:
    """Return the layout of slots for checkpoints like this one, with up to `nbytes`."""
    return (replace(layout[0], shape=(slot_size(nbytes),)),) if is_plain(layout) else layout


def slot_nbytes(layout: Layout, nbytes: int, /) -> int:
    """Return the bytes of such a slot."""
    return slot_size(nbytes) if is_plain(layout) else nbytes


def serves(size: int, layout: Layout, nbytes: int, /) -> bool:
    """Return whether a checkpoint may take a slot of this size; at most half of it is unused."""
    return size == nbytes or (is_plain(layout) and nbytes <= size <= 2 * max(nbytes, _LINE))


def slot_size(nbytes: int, /) -> int:
    """Return `nbytes` rounded up as those of free slots are; 0 stays 0."""
    return rounded(nbytes, _LINE) if nbytes else 0
