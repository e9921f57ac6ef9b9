"""The recurrence on all levels together, for short chains.

The free space F is a single number here, the number of a row; the columns are the numbers of steps
n. There is a row for each combination of free space on the levels. The last row means that a
checkpoint does not fit; all its values are infinite. The time is O(K n^2) for each row.

For example, one level of two slots that cost nothing, steps of 1 s, and memory for one tape:

    >>> from ckio.planners.dp.spaces import slots_of
    >>> level = slots_of("RAM", 0, 2, write=0, read=0)
    >>> solve((level,), 5, move=1, held=1).seconds[2, 1:].tolist()
    [0.0, 1.0, 2.0, 4.0, 6.0]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Kind
from ckio.planners.compiled import kernel
from ckio.planners.dp.spaces import Numbers, Space, rows
from ckio.planners.dp.unroll import LOWER, StoreDecision

Seconds = NDArray[np.float64]


@dataclass(frozen=True)
class JointTable:
    """The solution of the recurrence on some levels; a stage of `unroll`.

    Attributes
    ----------
    spaces : tuple of Space
        The levels, with costs in seconds.
    held : int
        The steps whose tapes the working memory holds; they cost nothing.
    seconds : float array (F, n)
        P: x_0 is only in the register. The time to record and reverse each step once is left out.
    again : float array (levels, F, n)
        n u + r_k + Q, a term of the inner minimum.
    after_restart, after_tape : arrays of int (levels, F)
        The rows of F - a e_k and F - b e_k; -1, the last row, if the checkpoint does not fit.
    """

    spaces: tuple[Space, ...]
    held: int
    seconds: Seconds
    again: Seconds
    after_restart: Numbers
    after_tape: Numbers

    @property
    def empty(self) -> int:
        """F if nothing is stored."""
        return len(self.seconds) - 2

    @property
    def last(self) -> int:
        return self.empty

    def least_free(self, length: int, free: int, /) -> int:
        """Return `free`, because no smaller number is known to be as good."""
        return free

    def store(self, length: int, free: int, /) -> StoreDecision:
        """Return what to store if x_0 is in the register only; of equal costs, a tape."""
        costs = {LOWER: 0.0 if length <= self.held else inf}
        for place, space in enumerate(self.spaces):
            after = self.after_tape[place, free]
            costs[StoreDecision(Kind.TAPE, place)] = space.tape + self.seconds[after, length - 1]
        for place, space in enumerate(self.spaces):
            costs[StoreDecision(Kind.RESTART, place)] = (
                space.write + self._sweep(length, free, place)[0]
            )
        return min(costs, key=costs.__getitem__)

    def advance(self, length: int, free: int, place: int, /) -> int:
        """Return how far to advance from x_0, which is stored; 0 to discard it."""
        seconds, j = self._sweep(length, free, place)
        return 0 if self.seconds[free, length] < seconds else j

    def _sweep(self, length: int, free: int, place: int) -> tuple[float, int]:
        """Return Q0, the cost if x_0 is stored and the next action is to advance, and its j."""
        if length < 2:
            return inf, 0
        inner = self.seconds[self.after_restart[place, free]]
        costs = inner[length - 1 : 0 : -1] + self.again[place, free, 1:length]
        best = int(costs.argmin())  # of equal costs, the smallest j
        return float(costs[best]), best + 1


def solve(spaces: Sequence[Space], steps: int, /, *, move: float, held: int) -> JointTable:
    """Solve the recurrence for up to `steps` steps; going forward a step costs `move` seconds.

    The working memory holds the tapes of `held` steps.
    """
    after_restart, after_tape = _after(spaces)
    seconds = np.full((rows(spaces), steps + 1), inf)
    seconds[:-1, : held + 1] = 0.0
    again = np.full((len(spaces), *seconds.shape), inf)
    costs = np.array([space.costs for space in spaces])
    _fill(costs, float(move), (after_restart, after_tape), seconds, again)
    return JointTable(tuple(spaces), held, seconds, again, after_restart, after_tape)


@kernel
def _fill(
    costs: Seconds, move: float, after: tuple[Numbers, Numbers], seconds: Seconds, again: Seconds
) -> None:
    """Set P, and n u + r + Q, for more and more free space.

    `seconds` already has P without a level.
    """
    after_restart, after_tape = after
    levels, rows = after_restart.shape
    for row in range(rows):
        for n in range(1, seconds.shape[1]):
            least = seconds[row, n]
            for k in range(levels):
                least = min(least, costs[k, 2] + seconds[after_tape[k, row], n - 1])
                sweep, inner, later = np.inf, seconds[after_restart[k, row]], again[k, row]
                for j in range(1, n):
                    sweep = min(sweep, inner[n - j] + later[j])
                later[n] = sweep
                least = min(least, costs[k, 0] + sweep)
            seconds[row, n] = least
            for k in range(levels):
                again[k, row, n] = n * move + costs[k, 1] + min(again[k, row, n], least)


def _after(spaces: Sequence[Space]) -> tuple[Numbers, Numbers]:
    """Return the rows after a restart checkpoint, and after a tape, is stored on each level."""
    shape = [space.empty + 1 for space in spaces]
    numbers = np.indices(shape).reshape(len(shape), -1)
    here = np.arange(numbers.shape[1])

    def moved(k: int, after: Numbers) -> Numbers:
        to = after[numbers[k]]
        return np.where(to < 0, -1, here + (to - numbers[k]) * prod(shape[k + 1 :]))

    return (
        np.array([moved(k, space.after_restart) for k, space in enumerate(spaces)]),
        np.array([moved(k, space.after_tape) for k, space in enumerate(spaces)]),
    )


def warm_up() -> None:
    """Call each kernel once."""
    from ckio.planners.dp.spaces import slots_of

    solve([slots_of("RAM", 0, 3, write=1, read=1)], 9, move=1, held=1)
