"""The slots of an archive that are free, and which of them a checkpoint may take.

A new group has as many slots as were reserved for its size; without a reservation, as many as
there are already. Plain bytes share slots of a few sizes (see `group`), so that an archive
gets by with few groups, however well a codec does: but only those with the same name and unit,
which says what they are once decoded.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ckio.actions import Key, Kind, Layout
from ckio.backends.files import TILE
from ckio.backends.forms import Form, form_of
from ckio.backends.hdf5.group import (
    MOST_SLOTS,
    Group,
    family,
    room,
    serves,
    slot_layout,
    slot_nbytes,
)
from ckio.backends.hdf5.rows import ROW
from ckio.errors import LevelFull

_SLACK: Final = 1 << 17
"""Bytes of metadata and rounding for which the reservation of a size leaves room."""

_FOR_VIEWS: Final = 1024
_VIEWED: Final = 1024
"""Bytes for the entries of fields in each slot, and stored bytes for each byte more of them.

An entry takes some 50 bytes, and there is one for each field; where it is encoded, one for each MiB
of a large one.
"""

_REMEMBERED: Final = 64
"""For how many forms the groups that serve them are remembered."""

Make = Callable[[Key, Form, int], Group]
"""Makes a group of so many slots for checkpoints like this one, or raises LevelFull."""


class Slots:
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
        What was reserved, `{bytes: how many}`, and has no slots yet.
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
        """Of a reservation `{bytes: how many}`, what there are no slots for."""
        there = dict.fromkeys(sizes, 0)
        for group in self.free:
            for nbytes in there:
                there[nbytes] += group.slots * (group.form.nbytes in (nbytes, room(nbytes)))
        return {n: count - there[n] for n, count in sizes.items() if count > there[n]}

    def bytes_for(self, lacking: Mapping[int, int], /) -> int:
        """Bytes of the file that new groups for a reservation take at most."""
        first = sum(_SLACK + (TILE if n >= TILE else 0) for n in lacking)
        return first + sum(count * self._bytes_of(n) for n, count in lacking.items())

    @staticmethod
    def _bytes_of(nbytes: int) -> int:
        """Bytes of the file that a slot takes at most."""
        return room(nbytes) + ROW.itemsize + _FOR_VIEWS + nbytes // _VIEWED

    def prepare(self, key: Key, form: Form, count: int, /) -> None:
        """Make the slots that are lacking for `count` such checkpoints; raises LevelFull."""
        there = self._count_for(key.kind, form)
        while there < count:
            group = self._new(key, form, count - there)
            self._prepared.add(group)
            there += group.slots

    def group_for(self, key: Key, form: Form, /) -> Group:
        """A group with a free slot for a checkpoint, new if need be; raises LevelFull."""
        kind = key.kind
        for group in self._serving.get((kind, form)) or self._find_serving(kind, form):
            if self.free[group]:
                return group
        # What shrank more than was promised has slots nevertheless.
        large = [group for group in self._relatives(kind, form) if group.holds(form.nbytes)]
        for group in large:
            if group in self._prepared and self.free[group]:
                return group
        for count in dict.fromkeys((self._wanted(kind, form), 1)):
            try:
                return self._new(key, form, count)
            except LevelFull as error:
                refusal = error
        # No room for a new one: any slot will do that is free and large enough.
        for group in large:
            if self.free[group]:
                return group
        raise refusal

    def _new(self, key: Key, form: Form, count: int) -> Group:
        """A new group of `count` slots, or of as many as a group has; raises LevelFull."""
        count = min(count, MOST_SLOTS)
        size = self._size(key.kind, form)
        group = self._make(key, form_of(slot_layout(form.layout, size)), count)
        if size in self.reserved:
            self.reserved[size] = max(0, self.reserved[size] - count)
        return group

    def _size(self, kind: Kind, form: Form) -> int:
        """Bytes of the slots of a new group.

        Those of a reservation that will do; or of a group whose slots will do, but are taken. Plain
        bytes that find only others are not the last of another size: they get half as much again.
        """
        layout, nbytes = form.layout, form.nbytes
        sizes = [n for n in self.reserved if serves(slot_nbytes(layout, n), layout, nbytes)]
        if sizes:
            return min(sizes)
        if there := self._find_serving(kind, form):
            return max(group.form.nbytes for group in there)
        return nbytes * 3 // 2 if self._relatives(kind, form) else nbytes

    def _wanted(self, kind: Kind, form: Form) -> int:
        """How many slots a new group should have."""
        there, nbytes = self._count_for(kind, form), form.nbytes
        # Sizes that drift must not begin with a single slot each time.
        taken = sum(group.slots - len(self.free[group]) for group in self._relatives(kind, form))
        wanted = max(self.reserved.get(self._size(kind, form), 0), there, taken // 2, 1)
        if self._capacity is None or not nbytes:
            return wanted
        return max(1, min(wanted, self._capacity // nbytes - there))

    def _count_for(self, kind: Kind, form: Form) -> int:
        """How many slots serve checkpoints of this form, free or not."""
        return sum(group.slots for group in self._find_serving(kind, form))

    def _relatives(self, kind: Kind, form: Form) -> list[Group]:
        """The groups of the same family."""
        return self._families.get((kind, family(form.layout)), [])

    def _find_serving(self, kind: Kind, form: Form) -> list[Group]:
        """The groups whose slots may hold checkpoints of this form; remembered for the next."""
        groups, layout, nbytes = self._relatives(kind, form), form.layout, form.nbytes
        found = [group for group in groups if serves(group.form.nbytes, layout, nbytes)]
        if len(self._serving) >= _REMEMBERED:
            self._serving.clear()
        self._serving[kind, form] = found
        return found
