"""The slots of an archive that are free, and which of them a checkpoint may take.

A new group has as many slots as were reserved for its size; without a reservation, as many as
there are already. Plain bytes share slots of a few sizes (see `hdf5_group`).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ckio.actions import Key, Kind, Layout
from ckio.backends.forms import Form, form_of
from ckio.backends.hdf5_group import Group, family, room, serves, slot_layout, slot_nbytes
from ckio.backends.hdf5_rows import ROW
from ckio.errors import LevelFull

_SLACK: Final = 1 << 16
"""Bytes of metadata and rounding for which the reservation of a size leaves room."""

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
        return sum((room(n) + ROW.itemsize) * count + _SLACK for n, count in lacking.items())

    def count_for(self, kind: Kind, form: Form, /) -> int:
        """How many slots may hold checkpoints of this form, free or not."""
        return sum(group.slots for group in self._find_serving(kind, form))

    def group_for(self, key: Key, form: Form, /) -> Group:
        """A group with a free slot for a checkpoint, new if need be; raises LevelFull."""
        kind = key.kind
        for group in self._serving.get((kind, form)) or self._find_serving(kind, form):
            if self.free[group]:
                return group
        for count in dict.fromkeys((self._wanted(kind, form), 1)):
            try:
                return self.make(key, form, count)
            except LevelFull as error:
                refusal = error
        # No room for a new one: any slot will do that is free and large enough.
        for group in self._families.get((kind, family(form.layout)), []):
            if self.free[group] and group.holds(form.nbytes):
                return group
        raise refusal

    def make(self, key: Key, form: Form, count: int, /) -> Group:
        """A new group of `count` slots; raises LevelFull."""
        size = self._size(form)
        group = self._make(key, form_of(slot_layout(form.layout, size)), count)
        if size in self.reserved:
            self.reserved[size] = max(0, self.reserved[size] - count)
        return group

    def _size(self, form: Form) -> int:
        """Bytes of the slots of a new group: those of a reservation that will do, or its own."""
        layout, nbytes = form.layout, form.nbytes
        sizes = [n for n in self.reserved if serves(slot_nbytes(layout, n), layout, nbytes)]
        return min(sizes, default=nbytes)

    def _wanted(self, kind: Kind, form: Form) -> int:
        """How many slots a new group should have."""
        there, nbytes = self.count_for(kind, form), form.nbytes
        wanted = max(self.reserved.get(self._size(form), 0), there, 1)
        if self._capacity is None or not nbytes:
            return wanted
        return max(1, min(wanted, self._capacity // nbytes - there))

    def _find_serving(self, kind: Kind, form: Form) -> list[Group]:
        """The groups whose slots may hold checkpoints of this form; remembered for the next."""
        groups = self._families.get((kind, family(form.layout)), [])
        found = [group for group in groups if serves(group.form.nbytes, form.layout, form.nbytes)]
        if len(self._serving) >= _REMEMBERED:
            self._serving.clear()
        self._serving[kind, form] = found
        return found
