"""1D-Revolve in closed form against its recurrence."""

from itertools import product
from math import inf
from random import Random

import numpy as np
from oracles.recurrences import revolve_1d, revolve_forward_steps

from ckio.planners.spacing import (
    period_read_once,
    period_reread,
    read_once,
    reread,
    segments,
)


def revolve(steps: int, slots: int) -> int:
    """Time-Revolve(steps - 1, slots) with u_f = 1 and u_b = 0."""
    return revolve_forward_steps(steps, slots) - steps


def test_1d_revolve_in_closed_form_is_its_recurrence() -> None:
    lengths = np.arange(1, 121)
    for slots, u_f, r in product([1, 2, 3, 5], [1, 2.5], [0, 1, 2, 7.5, 40]):
        seconds, rereads = reread(lengths, slots, advance=u_f, read=r)
        assert seconds.tolist() == revolve_1d(119, slots, r, u_f=u_f)
        for n in lengths.tolist():
            cut = segments(n, slots, int(rereads[n - 1]))
            again = sum(d * steps for d, steps in enumerate(cut))
            within = sum(revolve(steps, slots) for steps in cut)
            assert sum(cut) == n
            assert min(cut) >= 1
            assert (again + within) * u_f + (len(cut) - 1) * r == seconds[n - 1]


def test_1d_revolve_15_2_is_as_listing_4_shows() -> None:
    seconds, rereads = reread(np.array([16]), 2, advance=1, read=2)
    assert seconds[0] == 36 == 6 + revolve(10, 2) + 2 + revolve(6, 2)
    assert segments(16, 2, int(rereads[0])) == [10, 6]


def test_reads_that_cost_nothing_make_the_far_checkpoint_one_more_slot() -> None:
    lengths = np.arange(1, 400)
    assert (reread(lengths, 3, advance=1, read=0)[0] == read_once(lengths, 4)).all()


def argmins(taken: np.ndarray, trip: float) -> list[int]:
    per_step = (trip + taken) / np.arange(1, len(taken) + 1)
    return (1 + np.flatnonzero(per_step == per_step.min())).tolist()


def test_the_best_periods_of_listing_4_are_9_to_16_and_the_longest_is_taken() -> None:
    assert argmins(np.array(revolve_1d(59, 2, 2)), 12) == list(range(9, 17))
    assert period_reread(2, write=10, read=2, advance=1, most=101) == 16


def test_the_best_period_of_listings_6_and_7_is_3() -> None:
    for closed_form in (period_read_once, period_reread):
        assert closed_form(2, write=2, read=1, advance=1, most=11) == 3


def test_the_best_periods_agree_with_the_recurrence() -> None:
    for seed in range(60):
        random = Random(seed)
        slots, u_f = random.randint(1, 3), random.choice([1, 2, 0.5])
        w, r = random.randint(0, 16) * u_f / 2, random.randint(0, 8) * u_f / 2
        costs = {"write": w, "read": r, "advance": u_f, "most": 10**6}
        once = np.array([revolve(n, slots) * u_f for n in range(1, 161)])
        again = np.array(revolve_1d(159, slots, r, u_f=u_f))
        expected = [argmins(taken, w + r)[-1] for taken in (once, again)]
        assert [period_read_once(slots, **costs), period_reread(slots, **costs)] == expected


def test_theorem_4_counts_far_accesses_in_steps() -> None:
    for u_f in (1, 2, 4.5):
        assert period_read_once(2, write=6 * u_f, read=6 * u_f, advance=u_f, most=999) == 10


def test_a_period_is_never_longer_than_the_chain() -> None:
    for closed_form in (period_read_once, period_reread):
        for u_f in (0, 1):
            costs = {"write": 10, "read": 2, "advance": u_f, "most": 7}
            assert closed_form(2, **costs) == 7


def test_costs_far_apart_are_no_trouble_for_the_closed_forms() -> None:
    costs = {"write": 1e308, "read": 1e-308, "advance": 5e-324, "most": 10**9}
    assert period_read_once(1, **costs) == period_reread(1, **costs) == 10**9
    for access in ("write", "read"):
        forever = costs | {access: inf}
        assert period_read_once(1, **forever) == period_reread(1, **forever) == 10**9
