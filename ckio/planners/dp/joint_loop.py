"""The recurrence of `joint` in compiled code, for tables with many comparisons.

A module with kernels loads numba, which takes a second, so that `joint` imports this one only for
such tables; and it is compiled alone, in a fifth of the time of all kernels.
"""

import numpy as np
from numpy.typing import NDArray

from ckio.planners.compiled import kernel
from ckio.planners.dp.spaces import Numbers

Seconds = NDArray[np.float64]


@kernel
def fill(
    costs: Seconds, move: float, after: tuple[Numbers, Numbers], unstored: Seconds, again: Seconds
) -> None:
    """Set P, and n u + r + Q, for more and more free space.

    `unstored` already has P without the levels.
    """
    after_restart, after_tape = after
    levels, rows = after_restart.shape
    for row in range(rows):
        for n in range(1, unstored.shape[1]):
            least = unstored[row, n]
            for k in range(levels):
                least = min(least, costs[k, 2] + unstored[after_tape[k, row], n - 1])
                sweep, inner, later = np.inf, unstored[after_restart[k, row]], again[k, row]
                for j in range(1, n):
                    sweep = min(sweep, inner[n - j] + later[j])
                later[n] = sweep
                least = min(least, costs[k, 0] + sweep)
            unstored[row, n] = least
            for k in range(levels):
                again[k, row, n] = n * move + costs[k, 1] + min(again[k, row, n], least)


def warm_up() -> None:
    """Call the kernel once."""
    table = np.zeros((2, 3))
    after = np.zeros((1, 1), np.intp)
    fill(np.zeros((1, 3)), 1.0, (after, after), table, np.zeros((1, 2, 3)))
