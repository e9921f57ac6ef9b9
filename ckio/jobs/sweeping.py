"""The makespan over the capacity of a level: what more of it would save, and what less would cost.

swept = sweep(plan_of(steps=1000, platform=Path("platform.toml")))
print(swept.text())         for example: Twice the memory would save 11%; half would cost 15%.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from ckio.actions.columns import WRITE
from ckio.errors import BadInput
from ckio.jobs.display import QUIET, Display
from ckio.jobs.planning import Planning
from ckio.planners.base import without_notes
from ckio.planners.trivial import recompute_all, store_all
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.readable import bytes_text, option, seconds_text
from ckio.schedule import bytes_moved, counts
from ckio.schedule import makespan as seconds_alone
from ckio.sim.engine import makespan

if TYPE_CHECKING:
    from ckio.report.pictures import MemoryCurve

_MOST_DOUBLINGS: Final = 10
"""Plans are made for capacities from 1/1024 of the present one to 1024 times the present one."""

_AS_LONG: Final = 1.001
"""Of two makespans that differ by at most 0.1 %, one is as long as the other."""

_ENOUGH: Final = 1.01
"""A capacity is enough if its plan takes at most 1 % longer than the best plan of the table."""


@dataclass(frozen=True)
class Row:
    """The plan for one capacity.

    Attributes
    ----------
    capacity : int
        Bytes of the level.
    makespan : float
        Seconds, with the plan's own policy of overlap.
    forward_steps : int
        The number of forward steps, advanced and recorded.
    written : int
        The bytes that are written to all levels.
    reason : str
        Why there is no plan; then all numbers are 0. Empty if there is one.
    """

    capacity: int
    makespan: float = 0.0
    forward_steps: int = 0
    written: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Sweep:
    """The plans of one chain for several capacities of a level.

    Attributes
    ----------
    level : str
        The name of the level.
    present : int or None
        Its capacity on the platform, in bytes; None without a limit.
    is_first : bool
        Whether it is the first level, whose capacity is called memory.
    rows : tuple of Row
        The plans, in the order of the capacities.
    everything : (int, float)
        The bytes and the makespan if every tape is stored in memory.
    nothing : float
        The makespan if only x_0 is stored.
    """

    level: str
    present: int | None
    is_first: bool
    rows: tuple[Row, ...]
    everything: tuple[int, float]
    nothing: float

    @property
    def planned(self) -> list[Row]:
        """The rows that have a plan."""
        return [row for row in self.rows if not row.reason]

    @property
    def _points(self) -> list[tuple[int, float]]:
        """Capacities above 0, and the makespans of their plans."""
        return [(row.capacity, row.makespan) for row in self.planned if row.capacity]

    def curve(self) -> "MemoryCurve":
        """Return the curve for drawing; raises BadInput if no capacity above 0 has a plan."""
        from ckio.report.pictures import MemoryCurve

        if not (points := self._points):
            raise BadInput(f"there is nothing to draw: {self.text()}")
        what = "memory" if self.is_first else f"capacity of {self.level}"
        return MemoryCurve(points, self.present, self.everything, self.nothing, what)

    def text(self) -> str:
        """Return the result in a sentence.

        It is about twice and half the capacity of the platform, if these are among the rows.
        Otherwise it names the least capacity that is enough.
        """
        if not self.planned:
            return f"no capacity has a schedule: {self.rows[0].reason}"
        if self.present and self._points and (text := self.curve().changes()):
            return text
        least = min(row.makespan for row in self.planned)
        enough = next(row for row in self.planned if row.makespan <= least * _ENOUGH)
        amount = f"{bytes_text(enough.capacity)} of {self.level}"
        if enough is not self.planned[-1]:
            useless = f"Level {self.level} saves less than 1%."
            return f"{amount} are enough: more saves less than 1%." if enough.capacity else useless
        first, seconds = self.planned[0], seconds_text(enough.makespan)
        saved = f", {1 - enough.makespan / first.makespan:.0%} less than with"
        more = "" if first is enough else f"{saved} {bytes_text(first.capacity)}"
        return f"With {amount} the makespan is {seconds}{more}."

    def figures(self) -> dict[str, Any]:
        """Return the rows and the sentence as plain data, as `--json` prints them."""
        return {
            "level": self.level,
            "present": self.present,
            "points": [asdict(row) for row in self.rows],
            "everything": {"bytes": self.everything[0], "makespan": self.everything[1]},
            "nothing": self.nothing,
            "answer": self.text(),
        }


def sweep(
    plan: Planning,
    /,
    *,
    level: str = "",
    capacities: Sequence[int] = (),
    display: Display = QUIET,
) -> Sweep:
    """Plan the chain for several capacities of one level.

    Parameters
    ----------
    plan : Planning
        The planner, the chain and the platform.
    level : str
        The name of the level; by default it is the first level.
    capacities : sequence of int
        Bytes; 0 is a platform without the level. By default, the present capacity of the level
        times powers of two, from one checkpoint to the bytes of all tapes, as many as show where
        the makespan changes.

    Raises
    ------
    BadInput
        If there is no such level, or it has no limit and no capacities are given.
    """
    platform = plan.platform
    if not platform.levels:
        raise BadInput("sweep: the platform has no level; add one to its file")
    number = platform.number(level) if level else 0
    here = platform.levels[number]
    values = sorted(set(capacities)) or _around(here, plan.chain)
    # Those that are asked for; or else the ends, and what the sentence is about.
    present = here.capacity or 0
    first = set(capacities) or {values[0], values[-1], present // 2, present, 2 * present}
    plan.load(display)
    with display.progress("planning", len(values), unit="plans") as tick:

        def planned(capacity: int) -> Row:
            tick()
            return _row(plan, number, capacity)

        rows = _where_it_bends(values, first, planned)
    nothing = seconds_alone(recompute_all(plan.chain, platform), platform)
    tapes = everything(plan.chain)
    return Sweep(here.name, here.capacity, number == 0, tuple(rows), tapes, nothing)


def _where_it_bends(
    values: Sequence[int], first: Collection[int], planned: Callable[[int], Row]
) -> list[Row]:
    """Return plans for the values in `first`, and for those between which the makespan changes.

    More capacity never costs time. Therefore values between two that take as long are left out.
    """
    rows = {place: planned(each) for place, each in enumerate(values) if each in first}
    parts = list(pairwise(sorted(rows)))
    while parts:
        begin, end = parts.pop()
        middle = (begin + end) // 2
        if middle > begin and _differ(rows[begin], rows[end]):
            rows[middle] = planned(values[middle])
            parts += [(begin, middle), (middle, end)]
    return [rows[place] for place in sorted(rows)]


def _differ(less: Row, more: Row) -> bool:
    return bool(less.reason or more.reason) or less.makespan > more.makespan * _AS_LONG


def _around(level: Level, chain: Chain) -> list[int]:
    """Return the capacity of a level times powers of two."""
    if not level.capacity:
        raise BadInput(
            f"sweep: level {level.name} has no capacity that could be doubled; give"
            f" {option('capacities')}"
        )
    least = level.stored(chain.largest("restart"))
    most = 2 * max(everything(chain)[0], level.capacity)
    less = [level.capacity >> power for power in range(_MOST_DOUBLINGS, 0, -1)]
    more = [level.capacity << power for power in range(1, _MOST_DOUBLINGS + 1)]
    known = {nbytes for nbytes in (*less, *more) if least <= nbytes < most}
    return sorted(known | {level.capacity})


def everything(chain: Chain, /) -> tuple[int, float]:
    """Return the bytes of all tapes, and the makespan if they are stored in memory."""
    endless = Platform((), working_memory=None)
    return chain.tape_bytes(0, chain.length), seconds_alone(store_all(chain, endless), endless)


def _row(plan: Planning, number: int, capacity: int) -> Row:
    levels = list(plan.platform.levels)
    levels[number] = replace(levels[number], capacity=capacity)
    platform = replace(plan.platform, levels=tuple(levels))
    try:
        with without_notes():
            planned = replace(plan, platform=platform).planned()
    except BadInput as error:
        return Row(capacity, reason=str(error))
    seconds = makespan(planned, platform) if planned.makespan is None else planned.makespan
    written = bytes_moved(planned, platform)[planned.actions.op == WRITE].sum()
    return Row(capacity, seconds, counts(planned).forward, int(written))
