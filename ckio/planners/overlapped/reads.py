"""A time below which no schedule on two levels is expected to come, where reads take near slots.

It is the bound of `writes` with the functions of `worths` in place of those of `lengths`: with few
near slots and slow reads it counts that each far read, too, takes its time in one piece, keeps a
slot until it is used, and lets nothing else be transferred meanwhile.

It rests on what `writes` rests on.
"""

from math import floor
from typing import Final

import numpy as np

from ckio.planners.overlapped.inner import Rules, inner
from ckio.planners.overlapped.lengths import begun
from ckio.planners.overlapped.programs import Seconds
from ckio.planners.overlapped.progress import Steps
from ckio.planners.overlapped.segments import Machine
from ckio.planners.overlapped.transfers import WAITING, Times, channel, states
from ckio.planners.overlapped.worths import lengths_of, worth_of
from ckio.planners.overlapped.writes import MOST_SLOTS, least_after

_MOST_STATES: Final = 300
"""Of the channel: with more of them it takes too long."""
_MOST_WORK: Final = 8 * 10**9
"""Quanta of the chain, times its steps, times states: some twenty seconds."""
_LEAST_READ: Final = 0.5
"""Of a write: how long a read takes, at least. Where it takes less, `writes` says more."""
_LEAST: Final = 4.0
_MOST: Final = 48.0
"""Steps that a write and a read take together."""
_PARTS: Final = 28
"""Quanta of both, but no less than one for each step."""
_SHORT: Final = 36
"""The longest near segments of which matrices are made."""
_PRICE: Final = 0.01
"""Of a write, in what it takes: where reads are slow, the channel has time for writes."""


def bound_by_reads(machine: Machine) -> float:
    """The bound, in seconds; 0 where it is not looked for."""
    costs = machine.costs
    both = (costs.far_write + costs.far_read) / costs.advance
    if machine.near > MOST_SLOTS:
        return 0.0
    if not _LEAST <= both <= _MOST or costs.far_read < _LEAST_READ * costs.far_write:
        return 0.0
    parts = max(1, floor(_PARTS / both))
    quantum = costs.advance / parts
    times = _times(machine, quantum, _PRICE * costs.far_write)
    count = len(states(times))
    if count > _MOST_STATES or machine.length**2 * parts * count > _MOST_WORK:
        return 0.0
    return _bound(machine, quantum, times)


def _times(machine: Machine, quantum: float, price: float) -> Times:
    costs = machine.costs
    return Times(
        slots=machine.near,
        write=max(1, floor(costs.far_write / quantum + 1e-9)),
        read=max(1, floor(costs.far_read / quantum + 1e-9)),
        write_seconds=costs.far_write,
        read_seconds=costs.far_read,
        price=price,
    )


def _bound(machine: Machine, quantum: float, times: Times) -> float:
    """The bound for one λ."""
    costs, length = machine.costs, machine.length
    rules = _rules(machine, quantum, times)
    seconds: Seconds = np.arange(length + 1.0) * costs.advance
    taken = (seconds + costs.near_write + costs.near_read) / quantum
    steps = Steps(np.ceil(taken - 1e-9).astype(np.int64), seconds)
    tables = inner(machine.near, min(length, _SHORT), steps, rules)
    worth = worth_of(tables, steps, rules, times, max(0.0, length / (machine.far + 1) - 1))

    def before(q: int) -> Seconds:
        return _before(machine, q, worth, times, quantum)

    return least_after(machine, lengths_of(tables, steps, rules, worth), before)


def _rules(machine: Machine, quantum: float, times: Times) -> Rules:
    costs = machine.costs
    back = costs.record + costs.reverse
    return Rules(
        channel=channel(times),
        price=times.price,
        quantum=quantum,
        back=begun(back / quantum),
        write=times.write,
        advance=costs.advance,
        back_seconds=back,
        near_write=costs.near_write,
        near_read=costs.near_read,
    )


def _before(machine: Machine, q: int, worth: Seconds, times: Times, quantum: float) -> Seconds:
    """What the first sweep costs for each n, with q far checkpoints still to be written.

    What was read ahead by its end was read in time that the channel had.
    """
    costs, n = machine.costs, np.arange(machine.far + 1)
    found = np.full(len(n), np.inf)
    for number, (waiting, ahead, doing) in enumerate(states(times)):
        writes = doing is not None and doing.writes
        if waiting == min(q - writes, WAITING):
            since = doing.since * quantum if doing else 0.0
            busy = (n - q) * costs.far_write + ahead * costs.far_read + since
            sweep = np.maximum(machine.length * costs.advance, busy)
            found = np.minimum(found, sweep + worth[number])
    return np.where(q <= n, found + q * times.price, np.inf)
