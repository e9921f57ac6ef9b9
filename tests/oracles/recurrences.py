"""The papers' recurrences, written down as they are printed and as slowly as that is.

Second opinions on what the planners find: nothing of ckio is used here. HP is Herrmann and Pallez,
"H-Revolve", 2020, with u_b = 0 throughout; M is Maddison, "Step-based checkpointing with high-level
algorithmic differentiation", 2024. A row is indexed by HP's length l.
"""

from collections.abc import Callable, Sequence
from functools import cache
from math import comb, inf

Row = list[float]

Slots = tuple[int, float, float]
"""A level as HP give it: how many slots, seconds to write, seconds to read."""


def beta(x: int, y: int) -> int:
    """HP (3); 0 where there is nothing to choose from, which Theorem 4 needs below w + r = 1."""
    return comb(x + y, x) if x >= 0 and y >= 0 else 0


def revolve_forward_steps(steps: int, slots: int) -> int:
    """Revolve's steps, advanced or recorded: Griewank and Walther, Algorithm 799, 2000.

    For example, 1000 steps with 20 slots need r = 3, because beta(20, 2) = 231 and beta(20, 3) =
    1771: 3 * 1000 - C(23, 21) = 2747 are advanced, and 1000 recorded.
    """
    if steps == 1:
        return 1
    slots, r = min(slots, steps - 1), 0
    while beta(slots, r) < steps:
        r += 1
    return steps + r * steps - comb(slots + r, slots + 1)


def revolve(longest: int, slots: int, *, u_f: float = 1) -> Row:
    """Time-Revolve, HP's Definition 3: one level, free to reach."""
    row = alone = [length * (length + 1) / 2 * u_f for length in range(longest + 1)]
    for _ in range(1, slots):
        outer, row = row, [0.0]
        for length in range(1, longest + 1):
            splits = (j * u_f + outer[length - j] + row[j - 1] for j in range(1, length))
            row.append(min(alone[length], *splits, inf))
    return row


def revolve_1d(longest: int, slots: int, read: float, *, u_f: float = 1) -> Row:
    """1D-Revolve: x_0 lies on disk, and nothing else is ever put there."""
    memory, row = revolve(longest, slots, u_f=u_f), [0.0]
    for length in range(1, longest + 1):
        splits = (j * u_f + memory[length - j] + read + row[j - 1] for j in range(1, length))
        row.append(min(memory[length], *splits, inf))
    return row


def disk_revolve(
    longest: int,
    slots: int,
    write: float,
    read: float,
    *,
    u_f: float = 1,
    block: Callable[..., Row] = revolve_1d,
) -> Row:
    """Disk-Revolve: free memory, and a disk without end whose checkpoints are read `block` style.

    The variant with `block=read_once`, in which no disk checkpoint is read twice, is what
    checkpoint_schedules 1.0.4 calls DiskRevolve.
    """
    memory, later = revolve(longest, slots, u_f=u_f), block(longest, slots, read, u_f=u_f)
    row = [0.0]
    for length in range(1, longest + 1):
        splits = (write + j * u_f + row[length - j] + read + later[j - 1] for j in range(1, length))
        row.append(min(memory[length], *splits, inf))
    return row


def read_once(longest: int, slots: int, read: float, *, u_f: float = 1) -> Row:
    """A disk checkpoint that has been read is replaced by memory: Revolve."""
    del read
    return revolve(longest, slots, u_f=u_f)


def best_periods(block: Row, write: float, read: float, *, u_f: float = 1) -> set[int]:
    """The periods m of least (w + r + m u_f + block(m - 1)) / m, the seconds of a step on average.

    `block` is Time-Revolve for HP's (4), and 1D-Revolve for m_X. Costs must be such that the
    quotients' numerators are exact.
    """
    rate = {m: (write + read + m * u_f + block[m - 1]) / m for m in range(1, len(block) + 1)}
    least = min(rate.values())
    return {m for m, seconds in rate.items() if abs(seconds - least) < 1e-9}


def theorem_2(longest: int, levels: Sequence[Slots], *, u_f: float = 1, repaired: bool) -> Row:
    """HierTime_K of HP's Theorem 2; `repaired`, its inner minimum runs to j = l on every level."""
    below: Row = [0.0] + [inf] * longest
    for k, (slots, write, read) in enumerate(levels, 1):
        alone = [length * read + length * (length + 1) / 2 * u_f for length in range(longest + 1)]
        outer = below
        for c in range(1, slots + 1):
            fresh, stored = [0.0], [0.0]
            for length in range(1, longest + 1):
                first = alone[length] if k == 1 else below[length]
                most = length if repaired else length - 1
                if k == c == 1:
                    most = 0  # printed as a closed form
                splits = (
                    j * u_f + outer[length - j] + read + stored[j - 1] for j in range(1, most + 1)
                )
                stored.append(min(first, *splits, inf))
                fresh.append(min(below[length], write + stored[length]))
            outer = fresh
        below = outer
    return below


@cache
def mixed(n: int, s: int) -> float:
    """M (1): forward steps for n steps with s units for restart data or tapes."""
    if n <= s + 1:
        return n
    if s == 1:
        return n * (n + 1) // 2 - 1
    if s == 0:
        return inf
    restart = min(m + mixed(m, s) + mixed(n - m, s - 1) for m in range(2, n))
    return min(restart, 1 + mixed(n - 1, s - 1))


def mixed_loaded(n: int, s: int) -> float:
    """M (2): the same with a restart checkpoint at the first step already, and s more units."""
    if s == 0:
        return n * (n + 1) // 2 - 1
    return min(m + mixed(m, s + 1) + mixed(n - m, s) for m in range(1, n))


def cams(n: int, units: int, tape: int) -> int:
    """The steps that n steps take more than once, with tapes from which the forward restarts.

    A state takes one unit and a tape `tape` units; access costs nothing. Zhang and Constantinescu,
    J. Comput. Sci. 66, 2023, for methods whose last stage is the solution: a chain begins with a
    state that is stored, whose unit counts, and goes on to the next checkpoint; or the tape of its
    first step is stored, and the rest begins with the state in that tape.
    """
    if n == 1:
        return 0
    least = _cams(n, units, tape)
    return min(least, _cams(n - 1, units - tape + 1, tape)) if units >= tape else least


@cache
def _cams(n: int, units: int, tape: int) -> int:
    if n < 2 or units == 1:
        return n * (n - 1) // 2
    steps = range(1, n)
    least = min(k + _cams(k, units, tape) + _cams(n - k, units - 1, tape) for k in steps)
    if units > tape:
        for k in steps:  # the tape of step k - 1 contains x_k
            before = k - 1 + _cams(k - 1, units, tape)
            least = min(least, before + _cams(n - k, units - tape, tape))
    return least
