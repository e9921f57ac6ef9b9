"""For how long a version of a variable may lie on a level, in the room of whole checkpoints."""

from dataclasses import dataclass

import numpy as np

from ckio.actions import Kind
from ckio.actions.columns import KIND_CODE
from ckio.actions.variables import Ints
from ckio.schedule import Schedule
from ckio.schedule.occupancy import BEFORE, Lifetimes


@dataclass(frozen=True, slots=True)
class Stays:
    """The stays of all checkpoints of one kind on their levels: a row for each.

    Attributes
    ----------
    level, step : int64 array
        Where it lies, and of which step it is.
    written, discarded : int64 array
        The places of its Write, or BEFORE, and of its Discard, or the number of actions.
    """

    level: Ints
    step: Ints
    written: Ints
    discarded: Ints

    @staticmethod
    def of(schedule: Schedule, kind: Kind, /) -> "Stays":
        """Those of a legal schedule, in the order of their Writes."""
        all_of_them = Lifetimes.of(schedule.actions)
        some = all_of_them.take(all_of_them.named.kind == KIND_CODE[kind])
        there = set(zip(some.named.level.tolist(), some.named.begin.tolist(), strict=True))
        untouched = [
            (level, key.step)
            for level, keys in enumerate(schedule.stored)
            for key in keys
            if key.kind is kind and (level, key.step) not in there
        ]
        level, step = np.array(untouched, np.int64).reshape(-1, 2).T
        rows = Stays(
            np.concatenate((level, some.named.level)),
            np.concatenate((step, some.named.begin)),
            np.concatenate((np.full(len(level), BEFORE), some.written)),
            np.concatenate((np.full(len(level), len(schedule)), some.discarded)),
        )
        return rows.take(np.argsort(rows.written, kind="stable"))

    def take(self, index: Ints, /) -> "Stays":
        """Some of them."""
        return Stays(
            self.level[index], self.step[index], self.written[index], self.discarded[index]
        )

    def until(self, version: Ints, /) -> Ints:
        """For each stay, the end of the time for which some checkpoint there has the same version.

        Stays on one level of checkpoints with one version that overlap make one time together:
        all that time there is room for this version. `version` is that of x_0, ..., x_n.
        """
        # Times of other levels and versions are moved apart, so that one sweep serves them all.
        group = self.level * (len(version) + 2) + version[self.step] + 1
        apart = group * (self.discarded.max(initial=0) + 2)
        order = np.lexsort((self.written, group))
        written, ends = (self.written + apart)[order], (self.discarded + apart)[order]
        ends = np.maximum.accumulate(ends)
        closes = np.append(written[1:] >= ends[:-1], True)[: len(ends)]
        last = np.flatnonzero(closes)
        end = ends[last[np.searchsorted(last, np.arange(len(ends)))]]
        until = np.empty_like(end)
        until[order] = end - apart[order]
        return until
