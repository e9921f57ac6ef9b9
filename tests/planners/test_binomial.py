"""Revolve: the fewest forward steps, and among those schedules the fewest writes."""

from itertools import product

from oracles.exhaustive import least_makespan
from oracles.recurrences import revolve_forward_steps

from ckio.planners.binomial import revolve
from ckio.planners.dp import hrevolve
from ckio.schedule import counts, makespan

from .cases import chain, platform


def test_a_thousand_steps_with_twenty_slots_take_3747_forward_steps() -> None:
    assert revolve_forward_steps(1000, 20) == 3747
    assert counts(revolve(chain(1000), platform((20, 2, 3)))).forward == 3747


def test_the_formula_counts_the_schedule() -> None:
    for slots, steps in product([1, 2, 3, 5, 9, 30], (*range(1, 40), 64, 85, 119)):
        schedule = revolve(chain(steps), platform((slots, 2, 3)))
        assert counts(schedule).forward == revolve_forward_steps(steps, slots)


def test_no_schedule_takes_fewer_forward_steps() -> None:
    for slots, steps in product([1, 2, 3], range(1, 9)):
        least = least_makespan(chain(steps, record=1), platform((slots, 0, 0)))
        assert least == revolve_forward_steps(steps, slots)


def test_it_writes_as_seldom_as_any_schedule_with_so_few_forward_steps() -> None:
    for slots, steps in product([1, 2, 3, 4, 7], (*range(1, 40, 2), 97)):
        # A write so cheap that no number of them outweighs a step.
        almost_free = platform((slots, 2.0**-20, 0))
        schedule, cheapest = (plan(chain(steps), almost_free) for plan in (revolve, hrevolve))
        assert makespan(schedule, almost_free) == makespan(cheapest, almost_free)
