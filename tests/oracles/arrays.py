"""A schedule on single variables, an array at a time, beside the columns of `ckio.analysis`.

`plan_schedule` has the writes, reads and discards of single variables apart from the schedule, each
array written at the latest or at the earliest site.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from ckio.actions import Action, Discard, Key, Kind, Read, Write
from ckio.actions.columns import READ, WRITE, Actions
from ckio.actions.variables import ChainFlows, Step, as_names
from ckio.analysis.dataflow import needed_arrays
from ckio.analysis.placing import ArrayReads, PlacedActions, WriteSite
from ckio.platform import Level, Platform
from ckio.schedule import Schedule, counts
from ckio.schedule.occupancy import BEFORE
from ckio.schedule.replay import validate


class Array(NamedTuple):
    """One version of a variable: the actions at which it is read, and its sites, in order."""

    version: int
    reads: tuple[int, ...]
    sites: tuple[WriteSite, ...]


def arrays_of(needed: ArrayReads, /) -> Iterator[Array]:
    """All arrays of a variable, each by itself."""
    for version, reads, sites in needed.arrays():
        yield Array(version, tuple(reads), tuple(sites))


@dataclass(frozen=True, slots=True)
class Copy:
    """An array on a level, and the actions at which it is read from there; then it is discarded."""

    site: WriteSite
    reads: tuple[int, ...]

    def accesses(self, key: Key, /) -> Iterator[tuple[int, Action]]:
        """All that is done with it, each with the number of the action that it goes with."""
        place, level, _ = self.site
        if place != BEFORE:
            yield place, Write(key, level)
        for read in self.reads:
            yield read, Read(key, level)
        yield self.reads[-1], Discard(key, level)


Placing: TypeAlias = Callable[[str, Array], tuple[Copy, ...]]
"""Chooses among the sites of an array of a variable: one of them, or several."""


def latest(_name: str, array: Array, /) -> tuple[Copy, ...]:
    """One copy, written at the last site before it is first read: it lies there a short time.

    What is there from the start is not written again.
    """
    return (Copy(_once(array)[-1], array.reads),)


def earliest(_name: str, array: Array, /) -> tuple[Copy, ...]:
    """One copy, written at the first site."""
    return (Copy(_once(array)[0], array.reads),)


def in_slots(array: Array, levels: Sequence[Level], nbytes: int, /) -> tuple[Copy, ...]:
    """For each read the slot with the fewest seconds, the nearest level first; shared by reads.

    Empty if a read has no slot. A slot is a level, and the action at which it ends.
    """
    slots: dict[tuple[int, int], list[int]] = {}
    chosen: dict[tuple[int, int], WriteSite] = {}
    for read in array.reads:
        best: dict[tuple[int, int], WriteSite] = {}
        for site in array.sites:
            slot = site.level, site.until
            stays = slot in best and best[slot].place == BEFORE
            if site.place < read <= site.until and not stays:
                best[slot] = site
        if not best:
            return ()
        slot = min(best, key=lambda slot: (seconds_of(best[slot], levels, nbytes), slot[0]))
        slots.setdefault(slot, []).append(read)
        chosen.setdefault(slot, best[slot])
    return tuple(Copy(chosen[slot], tuple(reads)) for slot, reads in slots.items())


def seconds_of(site: WriteSite, levels: Sequence[Level], nbytes: int, /, reads: int = 1) -> float:
    """The seconds to write a copy at a site, to read it so often, and to discard it."""
    level = levels[site.level]
    write = 0.0 if site.place == BEFORE else level.write(nbytes)
    return write + reads * level.read(nbytes) + level.discard(nbytes)


def _once(array: Array) -> list[WriteSite]:
    """The sites before the first read, or those that need no writing where there are such."""
    before = [site for site in array.sites if site.place < array.reads[0]]
    return [site for site in before if site.place == BEFORE][:1] or before


@dataclass(frozen=True, slots=True)
class ArrayPlan:
    """What a schedule does on single variables, beside its computing and its tapes.

    A variable in one version is Key(RESTART, version, variable): as it is in x_version, where it
    was last overwritten. A Write of restart data becomes the writes of some variables or of none,
    so does a Read; a Discard of restart data becomes nothing, as arrays are discarded where they
    are read for the last time. Beside tapes there may be variables, too, which adjoint steps use in
    place. Adjoint checkpoints stay as they are.

    Attributes
    ----------
    places : tuple of int
        For each access, in order, the number of the action that it goes with.
    accesses : Actions
        Writes, Reads and Discards of single variables.
    stored : tuple of frozenset of Key
        What of the checkpoints that the schedule starts with is needed, on each level.
    """

    places: tuple[int, ...]
    accesses: Actions
    stored: tuple[frozenset[Key], ...]

    def at(self, place: int, /) -> Actions:
        """What is done where the schedule has its action number `place`."""
        begin, end = (bisect_left(self.places, number) for number in (place, place + 1))
        return self.accesses[begin:end]

    @property
    def writes(self) -> int:
        """How many arrays are written."""
        return int((self.accesses.op == WRITE).sum())

    @property
    def reads(self) -> int:
        """How many arrays are read."""
        return int((self.accesses.op == READ).sum())

    def peaks(self, nbytes: Mapping[str, int], /) -> tuple[int, ...]:
        """The most bytes of arrays on each level at one time, by the bytes of each variable.

        A level may come to hold more than with whole checkpoints: an array that these hold on
        several levels, or write again later, is kept on one of them for all that time.
        """
        used = [sum(nbytes[key.name] for key in keys) for keys in self.stored]
        used += [0] * (int(self.accesses.level.max(initial=-1)) + 1 - len(used))
        most = list(used)
        for access in self.accesses:
            match access:
                case Write(key, level):
                    used[level] += nbytes[key.name]
                    most[level] = max(most[level], used[level])
                case Discard(key, level):
                    used[level] -= nbytes[key.name]
                case _:
                    pass
        return tuple(most)


def plan_schedule(
    schedule: Schedule,
    steps: Step | Sequence[Step],
    /,
    *,
    seed: Iterable[str],
    placing: Placing = latest,
) -> ArrayPlan:
    """What a schedule of whole checkpoints has to store, variable by variable.

    Parameters
    ----------
    schedule : Schedule
        A legal one, by any planner, or the beginning of one: what comes after it is not known here.
    steps : Step, or sequence of Step
        What the steps of the chain use and overwrite: one for all of them, or one for each.
    seed : iterable of str
        What the functional and the start of the adjoint read of x_n, when the forward gets there.
    placing : callable
        `latest` or `earliest`: when and where an array is written, of the sites that there are.

    Raises
    ------
    IllegalAction
        Where the schedule is not legal.
    BadInput
        Where no reading of arrays can make the schedule right for these steps: an adjoint step uses
        in place what is neither there nor stored (it has to be on the tape); or where the number of
        steps is not that of the chain, or an action is on a single variable already.
    """
    validate(schedule, roomy(schedule))
    chain_steps, names = (
        ChainFlows(steps, schedule.chain.length),
        as_names("plan_schedule: seed", seed),
    )
    stored: list[set[Key]] = [set() for _ in schedule.stored]
    found: list[PlacedActions] = []
    for needed in needed_arrays(schedule, chain_steps, names):
        for array in arrays_of(needed):
            key = Key(Kind.RESTART, array.version, needed.name)
            for copy in placing(needed.name, array):
                places, actions = zip(*copy.accesses(key), strict=True)
                found.append(PlacedActions(np.array(places), Actions.of(actions)))
                if copy.site.place == BEFORE:
                    stored[copy.site.level].add(key)
    accesses = PlacedActions.together(found)
    return ArrayPlan(
        tuple(accesses.place.tolist()), accesses.actions, tuple(map(frozenset, stored))
    )


def roomy(schedule: Schedule) -> Platform:
    """Levels that never fill, as many as the schedule uses: here only its order matters."""
    return Platform(tuple(Level(name=f"level{n}") for n in range(len(counts(schedule).levels))))
