"""A process of simpy for each group of ranks: its private stretches, and its turns to share."""

from collections.abc import Callable, Generator
from typing import Any, Final, TypeAlias

import numpy as np
import simpy

from ckio.sim.ranks.channel import Channel, Gate
from ckio.sim.ranks.fold import Folded
from ckio.sim.ranks.groups import Groups, Seconds
from ckio.sim.ranks.words import Ranks

Watch: TypeAlias = Callable[[int], object]
_Process: TypeAlias = Generator[simpy.Event, Any, None]

_OFTEN = 1 << 14
"""Transfers between two calls of `watch`."""

ROUNDING: Final = 1e-12
"""What a difference between two times is no more exact than, as a part of the later one."""


class Told:
    """Tells a `watch` of transfers, many at a time."""

    def __init__(self, watch: Watch | None, /) -> None:
        self._watch, self._unheard = watch, 0

    def hear(self, clients: int, /) -> None:
        """So many ranks have made a transfer."""
        self._unheard += clients
        if self._unheard >= _OFTEN:
            self.tell()

    def tell(self) -> None:
        """Tell what was not told yet."""
        if self._watch is not None and self._unheard:
            self._watch(self._unheard)
        self._unheard = 0


class Processes:
    """All groups, from their start to the end of the last.

    Attributes
    ----------
    channels : list of Channel
        The shared ones, in their order.
    finish : float64 array
        For each group, when it is done.
    waited : float64 array
        For each group, seconds at the gate.
    slowed : float64 array, groups by channels
        Seconds beyond those that the transfers would have taken alone.
    nbytes : list of float
        Bytes moved on each shared channel.
    """

    def __init__(self, folded: Folded, ranks: Ranks, groups: Groups, watch: Watch | None) -> None:
        self._environment = simpy.Environment()
        self.channels = [
            Channel(self._environment, shared.bandwidth, speeds)
            for shared, speeds in zip(ranks.shared.values(), folded.transfers.lanes, strict=True)
        ]
        self.finish, self.waited = np.zeros((2, len(groups.clients)))
        self.slowed = np.zeros((len(groups.clients), len(self.channels)))
        self._gate = Gate(self._environment, ranks.count)
        moved = map(folded.transfers.moved, range(len(self.channels)))
        self.nbytes = [ranks.count * nbytes for nbytes in moved]
        self._transfers = folded.transfers.rows()
        self._told = Told(watch)
        for number, group in enumerate(zip(groups.clients.tolist(), groups.stretches, strict=True)):
            self._environment.process(self._perform(number, *group))

    def run(self) -> None:
        """Let all groups come to their ends."""
        self._environment.run()
        self._told.tell()

    def _perform(self, number: int, clients: int, stretches: Seconds) -> _Process:
        """One group: a stretch, a transfer, a stretch, and a stretch in the end."""
        environment, gate, channels = self._environment, self._gate, self.channels
        told, waited, slowed = self._told, 0.0, [0.0] * len(channels)
        private = iter(stretches.data)  # of a memory view: plain numbers, eight bytes each
        for channel, lane, nbytes, latency, alone, collective in self._transfers:
            yield environment.timeout(next(private))
            if collective:
                come = environment.now
                yield gate.enter(clients)
                waited += environment.now - come
                yield environment.timeout(latency)
            begun = environment.now
            yield channels[channel].transfer(lane, nbytes, clients)
            more = environment.now - begun - alone
            if more > ROUNDING * environment.now:
                slowed[channel] += more
            told.hear(clients)
        yield environment.timeout(next(private))
        self.finish[number], self.waited[number] = environment.now, waited
        self.slowed[number] = slowed
