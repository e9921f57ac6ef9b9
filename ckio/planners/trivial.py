"""Planners that need no search: keep every tape, replay every step, or a block of steps at a time.

store-all and periodic keep tapes in the working memory as far as it goes and put the others on the
level that they use; with room for all they are Tables 2 and 3 of Maddison, "On the implementation
of checkpointing with high-level algorithmic differentiation" (where the end is known from the start
here, so that the last block is not advanced over first). For n steps in blocks of p, q of them
before the last one, with h tapes in working memory and (w + r) the round trip of a checkpoint,

    seconds = q p u_f + q (w + r)(restart) + (q max(0, p - h) + max(0, n - q p - h)) (w + r)(tape)

and what every schedule pays for recording and reversing each step once. recompute-all has
n (n - 1) / 2 advances and n - 1 reads of x_0. Steps may differ in store-all and recompute-all.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Key, Kind
from ckio.actions.checks import is_whole
from ckio.errors import BadInput
from ckio.planners.base import alike, candidates, nearest, tapes
from ckio.planners.draft import Draft
from ckio.platform import Level, Platform, copies
from ckio.platform.chain import Chain
from ckio.schedule import Schedule

_Ints = NDArray[np.int64]


def store_all(chain: Chain, platform: Platform, /, *, on: str | None = None) -> Schedule:
    """Every tape is kept, no step is taken twice.

    The level, where the working memory does not hold all tapes, is the nearest with room for the
    others, or the one called `on`. Raises NoSchedule where none has.
    """
    tapes(chain, platform)
    levels, held = candidates(platform, on), _held_at_the_end(chain, platform)
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
    """Only x_0 is stored, and every step is reached from it.

    The level is the nearest that holds a checkpoint, or the one called `on`. Raises NoSchedule
    where n > 1 and no level does.
    """
    tapes(chain, platform)
    levels, last = candidates(platform, on), chain.length - 1
    draft = Draft()
    if last:
        nbytes = chain.nbytes(Key(Kind.RESTART, 0))
        level = nearest(
            levels,
            lambda level: level.slots(nbytes, 1) == 1,
            planner="recompute-all",
            needs=f"a level with room for x_0, which has {nbytes} bytes",
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
    """Every `period`-th state is stored; going back, a block at a time is recorded and reversed.

    Without a period, the one of least makespan among those that fit. The level is the nearest
    where one fits, or the one called `on`. Raises NoSchedule where none does, and BadInput for a
    period that is no length of a block.
    """
    alike(chain, planner="periodic")
    steps = chain.length
    if period is None:
        periods = np.arange(1, steps + 1)
    elif is_whole(period) and 1 <= period <= steps:
        periods = np.array([period])
    else:
        raise BadInput(f"period = {period!r}; it must be between 1 and the chain's {steps} steps")
    return _cheapest(chain, platform, periods, planner="periodic", on=on)


def _cheapest(
    chain: Chain, platform: Platform, periods: _Ints, /, *, planner: str, on: str | None
) -> Schedule:
    held = tapes(chain, platform)
    levels = candidates(platform, on)
    if held == chain.length and chain.length in periods:
        return _schedule(chain, chain.length, held, level=0)  # which stores nothing
    blocks = _Blocks(chain, platform, periods, held)
    least = blocks.peak(chain.restart, chain.tape).min()
    level = nearest(
        levels,
        lambda level: bool(blocks.fit(level).any()),
        planner=planner,
        needs=f"{least} bytes on one level (steps whose tape stays in working memory: {held})",
    )
    seconds = np.where(blocks.fit(level), blocks.seconds(level), np.inf)
    best = int(periods[seconds.argmin()])
    return _schedule(chain, best, held, level=platform.number(level.name))


@dataclass(frozen=True, slots=True)
class _Blocks:
    """A chain in blocks of `period` steps, the last of them shorter, for many periods at once.

    x_i of each block's beginning is stored but for the last, which is recorded when the first
    sweep comes to it. Of a block's tapes, the last `held` stay in the register.
    """

    chain: Chain
    platform: Platform
    period: _Ints
    held: int

    @property
    def restarts(self) -> _Ints:
        """How many blocks come before the last one."""
        return (self.chain.length - 1) // self.period

    @property
    def spilled(self) -> _Ints:
        """How many tapes of each block but the last go to the level."""
        spilled: _Ints = np.maximum(0, self.period - self.held)
        return spilled

    @property
    def spilled_last(self) -> _Ints:
        """How many tapes of the last block go there."""
        steps = self.chain.length - self.restarts * self.period
        spilled: _Ints = np.maximum(0, steps - self.held)
        return spilled

    def peak(self, restart: int, tape: int) -> _Ints:
        """The most bytes on a level where a checkpoint takes so many.

        They lie there while the last block is reversed, or the one before it, whose x_i is gone.
        """
        last = self.restarts * restart + self.spilled_last * tape
        before = (self.restarts - 1) * restart + self.spilled * tape
        peak: _Ints = np.maximum(last, before)
        return peak

    def fit(self, level: Level) -> NDArray[np.bool_]:
        """For which periods the level has room."""
        if level.capacity is None:
            return np.ones(len(self.period), np.bool_)
        peak = self.peak(level.stored(self.chain.restart), level.stored(self.chain.tape))
        return np.less_equal(peak, level.capacity)

    def seconds(self, level: Level) -> NDArray[np.float64]:
        """The makespan, but for recording and reversing each step once."""
        stored = self.restarts * self._round_trip(level, self.chain.restart, Kind.RESTART)
        spilled = self.restarts * self.spilled + self.spilled_last
        advanced = self.restarts * self.period * self.chain.advance
        return np.asarray(
            advanced + stored + spilled * self._round_trip(level, self.chain.tape, Kind.TAPE),
            np.float64,
        )

    def _round_trip(self, level: Level, nbytes: int, kind: Kind) -> float:
        number = self.platform.number(level.name)
        moved = nbytes * copies(self.chain, self.platform, number, kind)
        return level.write(moved) + level.read(moved) + level.discard(nbytes)


def _schedule(chain: Chain, period: int, held: int, *, level: int) -> Schedule:
    """The schedule of one period."""
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


def _stored(level: Level, sizes: _Ints) -> int:
    return int(level.stored_of(sizes).sum())


def _held_at_the_end(chain: Chain, platform: Platform) -> int:
    """The tapes of how many last steps the working memory holds together."""
    if platform.working_memory is None:
        return chain.length
    together = chain.each("tape")[::-1].cumsum()
    room = min(platform.working_memory, int(together[-1]))
    return int(np.searchsorted(together, room, side="right"))


def _replay_from_the_start(draft: Draft, last: int, *, level: int) -> None:
    """Reverse every step by coming to it from x_0."""
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
        draft.record(step, step + 1)
        draft.write(step, level=level, kind=Kind.TAPE)
    draft.record(middle, end)
    draft.reverse(middle, end)
    for step in reversed(range(begin, middle)):
        draft.read(step, level=level, kind=Kind.TAPE)
        draft.discard(step, level=level, kind=Kind.TAPE)
        draft.reverse(step, step + 1)
