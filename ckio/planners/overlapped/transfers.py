"""What the channel may be doing, in quanta of time. Needs numba.

A transfer takes a near slot for w_2 or r_2 seconds in a row, and goes on while the program does
something else, or stands still. So the channel is in a state (a, b, φ): a checkpoints wait in slots
to be written, b were read ahead and wait there to be used, and φ is how far the one is that is just
written or read, if any is. Where `WAITING` wait to be written, it may be more.

A checkpoint that was read may also be what something else is computed from, for another segment,
that will be written: it counts as a then. What is written brings a price λ.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckio.planners.compiled import kernel
from ckio.planners.overlapped.programs import Ints, Seconds

Matrix = NDArray[np.float64]

WAITING: Final = 1
"""How many wait to be written, of which no more are counted."""

NEVER = 1e18
SURELY = 1e17
_SAME = 1e-12


class Doing(NamedTuple):
    """A transfer that goes on, since so many quanta."""

    writes: bool
    since: int


class State(NamedTuple):
    """How many wait to be written, how many were read ahead, and what goes on."""

    waiting: int
    ahead: int
    doing: Doing | None = None

    @property
    def slots(self) -> int:
        """Near slots that the channel takes."""
        return self.waiting + self.ahead + (self.doing is not None)


class Times(NamedTuple):
    """How long transfers take, on a machine with so many near slots.

    Attributes
    ----------
    slots : int
    write, read : int
        Quanta, in full.
    write_seconds, read_seconds : float
    price : float
        λ, in seconds.
    """

    slots: int
    write: int
    read: int
    write_seconds: float
    read_seconds: float
    price: float


class Edges(NamedTuple):
    """What may follow, in the order of the states before.

    Attributes
    ----------
    begin, end : int64 arrays
        Numbers of states.
    cost : float64 array
        In seconds.
    slots : int64 array
        How many the channel takes meanwhile.
    """

    begin: Ints
    end: Ints
    cost: Seconds
    slots: Ints


class Channel(NamedTuple):
    """The states of a channel, in the order of the slots that it takes in them.

    Attributes
    ----------
    slots : int64 array
        By state.
    ticks : Edges
        What a quantum brings.
    passes : Edges
        The program passes a far checkpoint, which will be written, or is at once.
    reads : Edges
        The program uses a far checkpoint: one that was read ahead, or it waits for it.
    """

    slots: Ints
    ticks: Edges
    passes: Edges
    reads: Edges

    def within(self, slots: int) -> int:
        """How many states take no more slots: these are the first ones."""
        return int(np.searchsorted(self.slots, slots, side="right"))


Step = tuple[State, float, int]
"""A state that may follow, the cost, and the slots that are taken meanwhile."""


def states(times: Times) -> list[State]:
    """All of them; the first one is that of a channel at rest."""
    doing: list[Doing | None] = [None]
    doing += [Doing(True, since) for since in range(1, times.write)]
    doing += [Doing(False, since) for since in range(1, times.read)]
    numbers = range(WAITING + 1), range(times.slots + 1)
    every = [State(a, b, it) for a in numbers[0] for b in numbers[1] for it in doing]
    return sorted((it for it in every if it.slots <= times.slots), key=lambda it: it.slots)


def channel(times: Times) -> Channel:
    """All states, and what may follow each."""
    every = states(times)
    numbers = {state: number for number, state in enumerate(every)}

    def edges(following: Callable[[State, Times], Iterator[Step]]) -> Edges:
        rows = [
            (number, numbers[after], cost, slots)
            for state, number in numbers.items()
            for after, cost, slots in following(state, times)
            if after in numbers and slots <= times.slots
        ]
        begin, end, cost, slots = map(np.array, zip(*rows, strict=True))
        return Edges(begin, end, cost, slots)

    slots = np.array([state.slots for state in every])
    return Channel(slots, edges(_ticks), edges(_passes), edges(_reads))


def _ticks(state: State, times: Times) -> Iterator[Step]:
    waiting, ahead, doing = state
    if doing is not None:
        yield from _on(state, doing, times)
        return
    yield state, 0.0, state.slots
    for left in range(max(0, waiting - 1), waiting + (waiting == WAITING)):
        yield from _on(State(left, ahead), Doing(True, 0), times)
    yield from _on(state, Doing(False, 0), times)


def _on(state: State, doing: Doing, times: Times) -> Iterator[Step]:
    """A transfer goes on for a quantum, and perhaps ends then."""
    waiting, ahead, _ = state
    since, slots = doing.since + 1, waiting + ahead + 1
    if since < (times.write if doing.writes else times.read):
        yield State(waiting, ahead, Doing(doing.writes, since)), 0.0, slots
    elif doing.writes:
        yield State(waiting, ahead), -times.price, slots
    else:
        yield State(waiting, ahead + 1), 0.0, slots
        yield State(min(waiting + 1, WAITING), ahead), 0.0, slots


def _passes(state: State, times: Times) -> Iterator[Step]:
    waiting, ahead, doing = state
    yield State(min(waiting + 1, WAITING), ahead, doing), times.price, state.slots + 1
    if doing is None:
        yield state, times.write_seconds, state.slots


def _reads(state: State, times: Times) -> Iterator[Step]:
    waiting, ahead, doing = state
    if ahead:
        yield State(waiting, ahead - 1, doing), 0.0, state.slots
    if doing is None:
        yield state, times.read_seconds, state.slots


# By state behind: the least that leads there


@kernel
def follow(row: Seconds, edges: Edges, slots: int, found: Seconds) -> None:
    """What follows by edges that take no more than so many slots."""
    found[:] = NEVER
    for edge in range(len(edges.begin)):
        if edges.slots[edge] <= slots:
            value = row[edges.begin[edge]] + edges.cost[edge]
            found[edges.end[edge]] = min(found[edges.end[edge]], value)


@kernel
def stand_still(row: Seconds, edges: Edges, slots: int, quantum: float) -> None:
    """What may come of it, too, if the program stands still while the channel takes these slots."""
    changed = True
    while changed:
        changed = False
        for edge in range(len(edges.begin)):
            value = row[edges.begin[edge]] + edges.cost[edge] + quantum
            if edges.slots[edge] <= slots and value < min(row[edges.end[edge]] - _SAME, SURELY):
                row[edges.end[edge]] = value
                changed = True


# By state before: what it is worth


@kernel
def before(worth: Seconds, edges: Edges, more: float, found: Seconds) -> None:
    """What states are worth from which edges lead to others, at so much more."""
    edge, count = 0, len(edges.begin)
    for state in range(len(worth)):
        least = NEVER
        while edge < count and edges.begin[edge] == state:
            value = worth[edges.end[edge]] + edges.cost[edge]
            least = min(least, value)
            edge += 1
        found[state] = least + more


@kernel
def stood_still(worth: Seconds, edges: Edges, quantum: float) -> None:
    """The same, too, if the program may stand still before."""
    changed = True
    while changed:
        changed = False
        for edge in range(len(edges.begin) - 1, -1, -1):
            value = worth[edges.end[edge]] + edges.cost[edge] + quantum
            if value < worth[edges.begin[edge]] - _SAME:
                worth[edges.begin[edge]] = value
                changed = True
