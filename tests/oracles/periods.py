"""The best distance between far checkpoints, by search."""

import numpy as np

from ckio.planners.spacing import read_once, reread


def searched_period(
    slots: int, /, *, write: float, read: float, advance: float, most: int, once: bool
) -> int:
    """Return m_X or, with `once`, m_X^rr by search, but at most `most`.

    The search uses a lower bound. Per step, no period needs fewer seconds than Revolve with one
    additional slot for the first state (or without this slot, if the first state is read `once`).
    This bound grows with the period, so that the search ends where the bound exceeds the best
    result.
    """
    if advance == 0:
        return most
    longest = 64
    while True:
        lengths = np.arange(1, longest + 1)
        taken = (
            read_once(lengths, slots) * advance
            if once
            else reread(lengths, slots, advance=advance, read=read)[0]
        )
        per_step = (write + read + taken) / lengths
        bound = read_once(lengths[-1:], slots + (not once))[0] * advance / longest
        if bound > per_step.min():
            return min(most, longest - int(per_step[::-1].argmin()))
        longest *= 2
