"""Planners that need no search: store every tape, recompute every step, or one block at a time.

store-all and periodic keep as many tapes as possible in the working memory, and write the others to
one level. If the working memory has space for all tapes (of the chain, or of one block), these
two schedules are Tables 2 and 3 of Maddison (2024), "Step-based checkpointing with high-level
algorithmic differentiation". In Table 3 the length of the chain is not known at first, so that the
last block is advanced over before it is recorded. Here the length is known from the start, so that
the last block is recorded immediately.

Let n steps be cut into blocks of p steps, with q = floor((n - 1) / p) blocks before the last one.
Let h be the number of tapes in the working memory, u_f the seconds to advance one step, and (w + r)
the seconds to write, read and discard a checkpoint. In addition to the time to record and reverse
each step once, which every schedule needs, these schedules need

    seconds = q p u_f + q (w + r)(restart) + (q max(0, p - h) + max(0, n - q p - h)) (w + r)(tape)

For example, let n = 10, p = 4, h = 2, u_f = 1 s, and let a write and a read together take 1 s for
a restart checkpoint and 3 s for a tape. Then q = 2, and the schedule needs
2 * 4 * 1 + 2 * 1 + (2 * 2 + 0) * 3 = 22 s:

>>> from ckio.platform import Affine
>>> from ckio.schedule import makespan
>>> chain = Chain(steps=10, advance=1, record=0, reverse=0, restart=1, tape=3, adjoint=1)
>>> level = Level(name="disk", capacity=99, write=Affine(0, 0.5), read=Affine(0, 0.5))
>>> platform = Platform((level,), working_memory=6)
>>> makespan(periodic(chain, platform, period=4), platform)
22.0

recompute-all needs n (n - 1) / 2 advances and n - 1 reads of x_0. The steps may differ in store-all
and recompute-all, but not in periodic.
"""

from math import inf

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Key, Kind
from ckio.actions.checks import is_whole
from ckio.errors import BadInput
from ckio.planners.base import (
    Ints,
    access_seconds,
    alike,
    candidates,
    held_ends,
    held_steps,
    nearest,
)
from ckio.planners.draft import Draft
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule


def store_all(chain: Chain, platform: Platform, /, *, on: str | None = None) -> Schedule:
    """Return the schedule that stores the tape of every step and takes no step twice.

    The tapes of the last steps stay in the working memory, as many as fit in it. All other tapes
    are written to one level: the nearest with space for them, or the level called `on`. If all
    tapes fit in the working memory, the schedule is Table 2 of Maddison (2024). Nothing else is
    assumed; the steps may differ.

    Raises NoSchedule if no level has space for these tapes, or if the working memory cannot hold
    the tape of one step.

    For example, let the working memory hold one of four tapes, and let a tape take 0.5 s to write
    and 0.5 s to read. Then four steps of 1 s to record and 1 s to reverse take
    4 * 2 + 3 * 1 = 11 s:

    >>> from ckio.platform import Affine
    >>> from ckio.schedule import makespan
    >>> chain = Chain(steps=4, advance=1, record=1, reverse=1, restart=8, tape=8, adjoint=8)
    >>> level = Level(name="disk", capacity=24, write=Affine(0.5), read=Affine(0.5))
    >>> platform = Platform((level,), working_memory=8)
    >>> makespan(store_all(chain, platform), platform)
    11.0
    """
    held_steps(chain, platform)
    levels, held = candidates(platform, on), int((held_ends(chain, platform) == chain.length).sum())
    spilled = chain.each("tape")[: chain.length - held]
    draft, number = Draft(), 0
    if spilled.size:
        level = nearest(
            levels,
            lambda level: level.capacity is None or _stored(level, spilled) <= level.capacity,
            planner="store-all",
            needs=f"{spilled.sum()} bytes on one level (steps whose tape stays in working memory:"
            f" {held})",
        )
        number = platform.number(level.name)
    _reverse_block(draft, 0, chain.length, held, number)
    return draft.schedule(chain)


def recompute_all(chain: Chain, platform: Platform, /, *, on: str | None = None) -> Schedule:
    """Return the schedule that stores x_0 only, and recomputes every state from x_0.

    This is the baseline with the least storage. Its n steps need n (n - 1) / 2 advances and n - 1
    reads. The level is the nearest that can store x_0, or the level called `on`. Nothing else is
    assumed; the steps may differ.

    Raises NoSchedule if the chain has more than one step and no level can store x_0, or if the
    working memory cannot hold the tape of one step.

    For example, four steps need 3 + 2 + 1 = 6 advances. If it takes 1 s to advance, record or
    reverse one step and no time to read x_0 from memory, these are 6 + 4 + 4 = 14 s:

    >>> from ckio.schedule import makespan
    >>> chain = Chain(steps=4, advance=1, record=1, reverse=1, restart=8, tape=8, adjoint=8)
    >>> platform = Platform((Level(name="ram", capacity=8),), working_memory=8)
    >>> makespan(recompute_all(chain, platform), platform)
    14.0
    """
    held_steps(chain, platform)
    levels, last = candidates(platform, on), chain.length - 1
    draft = Draft()
    if last:
        nbytes = chain.nbytes(Key(Kind.RESTART, 0))
        level = nearest(
            levels,
            lambda level: level.slots(nbytes, 1) == 1,
            planner="recompute-all",
            needs=f"a level that can store x_0, which has {nbytes} bytes",
        )
        _replay_from_the_start(draft, last, level=platform.number(level.name))
    else:
        draft.step_back(0)
    return draft.schedule(chain)


def periodic(
    chain: Chain,
    platform: Platform,
    /,
    *,
    period: int | None = None,
    on: str | None = None,
) -> Schedule:
    """Return the schedule that stores every `period`-th state, and tapes of one block at a time.

    If the working memory holds the tapes of a block, the schedule is Table 3 of Maddison (2024),
    for a known number of steps. The forward sweep stores the first state of each
    block of `period` steps. The reverse sweep takes one block after the other, from the last to the
    first: it reads this state, records the tapes of the block, and reverses its steps. Tapes that
    do not fit in the working memory are written to the level and read again.

    Assumptions: all steps are alike, and one level stores all checkpoints. This level is the
    nearest that has space for at least one period, or the level called `on`. Without `period`, the
    planner takes the period of least makespan among those for which the level has space.

    Raises BadInput if the steps differ or if the period is not from 1 to the number of steps.
    Raises NoSchedule if no level has space, or if the working memory cannot hold the tape of one
    step.

    The module's docstring has the formula of the makespan. For example, let the working memory hold
    the tapes of two of four steps, and let it take 1 s to advance, record or reverse a step and no
    time to access memory. Two blocks of two steps then need 2 advances, 4 recordings and 4
    reversals:

    >>> from ckio.schedule import makespan
    >>> chain = Chain(steps=4, advance=1, record=1, reverse=1, restart=8, tape=8, adjoint=8)
    >>> platform = Platform((Level(name="ram", capacity=8),), working_memory=16)
    >>> makespan(periodic(chain, platform, period=2), platform)
    10.0
    """
    alike(chain, planner="periodic")
    check_period(period, chain)
    steps, held, levels = chain.length, held_steps(chain, platform), candidates(platform, on)
    periods = np.arange(1, steps + 1) if period is None else np.array([period])
    if held == steps and steps in periods:
        return _schedule(chain, steps, held, level=0)  # stores nothing on the level
    blocks = (steps - 1) // periods  # before the last one
    spilled, spilled_last = (
        np.maximum(0, each - held) for each in (periods, steps - blocks * periods)
    )

    def peak(restart: int, tape: int) -> Ints:
        """Return the most bytes at a time: when the last block is reversed, or that before it."""
        last, before = (
            blocks * restart + spilled_last * tape,
            (blocks - 1) * restart + spilled * tape,
        )
        most: Ints = np.maximum(last, before)
        return most

    def fit(level: Level) -> NDArray[np.bool_]:
        """Return for which periods the level has space."""
        most = inf if level.capacity is None else level.capacity
        return np.less_equal(peak(level.stored(chain.restart), level.stored(chain.tape)), most)

    level = nearest(
        levels,
        lambda level: bool(fit(level).any()),
        planner="periodic",
        needs=f"{peak(chain.restart, chain.tape).min()} bytes on one level (steps whose tape stays"
        f" in working memory: {held})",
    )
    number = platform.number(level.name)
    restart, tape = (
        sum(access_seconds(chain, platform, number, kind, nbytes))
        for kind, nbytes in ((Kind.RESTART, chain.restart), (Kind.TAPE, chain.tape))
    )
    seconds = blocks * (periods * chain.advance + restart)
    seconds += (blocks * spilled + spilled_last) * tape
    best = int(periods[np.where(fit(level), seconds, inf).argmin()])
    return _schedule(chain, best, held, level=number)


def check_period(period: int | None, chain: Chain, /) -> None:
    """Raise BadInput if the period is not a number from 1 to the chain's steps; None is allowed."""
    if period is not None and not (is_whole(period) and 1 <= period <= chain.length):
        raise BadInput(
            f"period = {period!r}; it must be between 1 and the chain's {chain.length} steps"
        )


def _schedule(chain: Chain, period: int, held: int, *, level: int) -> Schedule:
    """Return the schedule for one period."""
    draft, last = Draft(), (chain.length - 1) // period * period
    begins = range(0, last, period)
    for begin in begins:
        draft.write(begin, level=level)
        draft.advance(begin, begin + period)
    _reverse_block(draft, last, chain.length, held, level)
    for begin in reversed(begins):
        draft.read(begin, level=level)
        draft.discard(begin, level=level)
        _reverse_block(draft, begin, begin + period, held, level)
    return draft.schedule(chain)


def _stored(level: Level, sizes: Ints) -> int:
    return int(level.stored_of(sizes).sum())


def _replay_from_the_start(draft: Draft, last: int, *, level: int) -> None:
    """Reverse every step after recomputing its state from x_0."""
    draft.write(0, level=level)
    for step in reversed(range(last + 1)):
        if step < last:
            draft.read(0, level=level)
        if step:
            draft.advance(0, step)
        else:
            draft.discard(0, level=level)
        draft.step_back(step)


def _reverse_block(draft: Draft, begin: int, end: int, held: int, level: int) -> None:
    """Record and reverse a block whose first state is in the register."""
    middle = max(begin, end - held)
    for step in range(begin, middle):
        draft.store_tape(step, level=level)
    draft.record(middle, end)
    draft.reverse(middle, end)
    for step in reversed(range(begin, middle)):
        draft.spend_tape(step, level=level)
