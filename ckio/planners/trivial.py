"""Planners that need no search: keep every tape, replay every step, or a block of steps at a time.

store-all and periodic keep tapes in the working memory as far as it goes and put the others on the
level that they use.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ckio.actions import Kind
from ckio.chain import Chain, is_whole
from ckio.errors import BadInput
from ckio.planners.base import candidates, nearest, tapes
from ckio.planners.binomial import on_one_level
from ckio.planners.draft import Draft
from ckio.platforms import Level, Platform
from ckio.schedule import Schedule


def store_all(chain: Chain, platform: Platform, /, *, on: str | None = None) -> Schedule:
    """Every tape is kept, no step is taken twice.

    The level, where the working memory does not hold all tapes, is the nearest with room for the
    others, or the one called `on`. Raises NoSchedule where none has.
    """
    return _cheapest(chain, platform, [chain.length], planner="store-all", on=on)


def recompute_all(chain: Chain, platform: Platform, /, *, on: str | None = None) -> Schedule:
    """Only x_0 is stored, and every step is reached from it.

    The level is the nearest that holds a checkpoint, or the one called `on`. Raises NoSchedule
    where n > 1 and no level does.
    """
    return on_one_level(chain, platform, most=1, planner="recompute-all", on=on)


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
    steps = chain.length
    if period is None:
        periods: Sequence[int] = range(1, steps + 1)
    elif is_whole(period) and 1 <= period <= steps:
        periods = [period]
    else:
        raise BadInput(f"period = {period!r}; it must be between 1 and the chain's {steps} steps")
    return _cheapest(chain, platform, periods, planner="periodic", on=on)


def _cheapest(
    chain: Chain, platform: Platform, periods: Sequence[int], /, *, planner: str, on: str | None
) -> Schedule:
    held = tapes(chain, platform)
    levels = candidates(platform, on)
    if held == chain.length and chain.length in periods:
        return _Blocks(chain, chain.length, held).schedule(level=0)  # which stores nothing
    plans = [_Blocks(chain, period, held) for period in periods]
    least = min(plan.peak(int) for plan in plans)
    level = nearest(
        levels,
        lambda level: any(plan.fits(level) for plan in plans),
        planner=planner,
        needs=f"{least} bytes on one level (steps whose tape stays in working memory: {held})",
    )
    fitting = (plan for plan in plans if plan.fits(level))
    best = min(fitting, key=lambda plan: plan.seconds(level))
    return best.schedule(level=platform.number(level.name))


@dataclass(frozen=True, slots=True)
class _Blocks:
    """A chain in blocks of `period` steps, the last of them shorter.

    x_i of each block's beginning is stored but for the last, which is recorded when the first
    sweep comes to it. Of a block's tapes, the last `held` stay in the register.
    """

    chain: Chain
    period: int
    held: int

    @property
    def last(self) -> int:
        """Where the last block begins."""
        return (self.chain.length - 1) // self.period * self.period

    def spilled(self, begin: int) -> int:
        """How many tapes of the block at `begin` go to the level."""
        end = min(begin + self.period, self.chain.length)
        return max(0, end - begin - self.held)

    def peak(self, stored: Callable[[int], int]) -> int:
        """The most bytes on the level, which takes `stored(nbytes)` for a checkpoint.

        They lie there while the last block is reversed, or the one before it, whose x_i is gone.
        """
        restarts = self.last // self.period
        restart, tape = stored(self.chain.restart), stored(self.chain.tape)
        return max(
            restarts * restart + self.spilled(self.last) * tape,
            (restarts - 1) * restart + self.spilled(0) * tape,
        )

    def fits(self, level: Level) -> bool:
        return level.capacity is None or self.peak(level.stored) <= level.capacity

    def seconds(self, level: Level) -> float:
        """The makespan, but for recording and reversing each step once."""
        restarts = self.last // self.period
        spilled = restarts * self.spilled(0) + self.spilled(self.last)
        return (
            self.last * self.chain.advance
            + restarts * _round_trip(level, self.chain.restart)
            + spilled * _round_trip(level, self.chain.tape)
        )

    def schedule(self, *, level: int) -> Schedule:
        draft = Draft()
        begins = range(0, self.last, self.period)
        for begin in begins:
            draft.write(begin, level=level)
            draft.advance(begin, begin + self.period)
        self._block(draft, self.last, self.chain.length, level)
        for begin in reversed(begins):
            draft.read(begin, level=level)
            draft.discard(begin, level=level)
            self._block(draft, begin, begin + self.period, level)
        return draft.schedule(self.chain)

    def _block(self, draft: Draft, begin: int, end: int, level: int) -> None:
        """Record and reverse a block whose first state is in the register."""
        middle = max(begin, end - self.held)
        for step in range(begin, middle):
            draft.record(step, step + 1)
            draft.write(step, level=level, kind=Kind.TAPE)
        draft.record(middle, end)
        draft.reverse(middle, end)
        for step in reversed(range(begin, middle)):
            draft.read(step, level=level, kind=Kind.TAPE)
            draft.discard(step, level=level, kind=Kind.TAPE)
            draft.reverse(step, step + 1)


def _round_trip(level: Level, nbytes: int) -> float:
    return level.write(nbytes) + level.read(nbytes) + level.discard(nbytes)
