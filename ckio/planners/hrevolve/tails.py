"""Why no segment longer than a few lengths can be part of a cheaper plan.

phi_k,m(d) is what a segment of d steps costs that begins on level k while m slots are free, with
the recurrence of `ckio.planners.hrevolve` behind it; F = Hbar_k,m. At a price of kappa / g for a
step, a segment can be replaced by one that is g steps shorter, and is not worth its length, if

    phi_k,m(d) - phi_k,m(d - g) >= kappa,   that is   F(l) - F(l - g) >= kappa - g u_f,  l = d - 1.

Tables up to a length prove this for all d > X, however long, and for all levels and slots:

    if phi(d) - phi(d - g) >= kappa - g u_f  in all tables for  Y < d <= 2 Y,  then for all d > Y;
    if phi(d) - phi(d - g) >= kappa          in all tables for  X < d <= X + Y,  then for all d > X.

Proof, by induction on level, slots and length: F(l) is H_{k-1}(l), which is 0 or w_j + F(l) for a
nearer level j, so that it inherits what F has; or i = j - 1 splits it,

    F(l) = (i + 1) u_f + r_k + F(i) + A(a),   i + a = l - 1,   A = H_k,m-1.

Second claim: d > X + Y means i + 1 > Y or a >= X. If i + 1 > Y, the first claim holds for F(i), so
F(i) - F(i - g) >= kappa - 2 g u_f; take the split i - g for F(l - g), which also saves g u_f. If
a >= X, then A(a) - A(a - g) >= kappa - g u_f by induction, A being w_k + F or nearer; take the same
i and a - g. Both prove F(l) - F(l - g) >= kappa - g u_f. First claim: the same with kappa - g u_f
in place of kappa, and d > 2 Y. Nothing is assumed of the shape of the functions.
"""

import numpy as np

from ckio.planners.hrevolve.group import Price, Slots

_BLOCK = 1 << 12
"""Lengths looked at together, from the longest on: the last one is often near the end."""


def longest_worthwhile(slots: Slots, price: Price, advance: int, /) -> tuple[int, int]:
    """X, and the length of segments up to which tables are needed to prove it.

    It is proved if `slots` tell of segments of that length. `advance` is u_f.
    """
    turns = _last_cheap(slots, price.g, price.kappa - price.g * advance)
    worthwhile = _last_cheap(slots, price.g, price.kappa)
    return worthwhile, max(2 * turns, worthwhile + turns)


def _last_cheap(slots: Slots, g: int, kappa: int) -> int:
    """The last d, of all tables, where the last g of its steps cost less than kappa; at least g."""
    for end in range(slots.longest + 1, g + 1, -_BLOCK):
        begin = max(g + 1, end - _BLOCK)
        differences = slots.costs[:, begin:end] - slots.costs[:, begin - g : end - g]
        cheap = np.flatnonzero((differences < kappa).any(axis=0))
        if len(cheap):
            return begin + int(cheap[-1])
    return g
