"""Revolve: the fewest forward steps, and among those schedules the fewest writes."""

import pytest

from ckio.errors import BadInput
from ckio.planners.binomial import revolve, revolve_forward_steps
from ckio.planners.dp import hrevolve
from ckio.schedule import counts, makespan

from .cases import chain, platform
from .oracle import least_makespan


def test_a_thousand_steps_with_twenty_slots_take_3747_forward_steps() -> None:
    assert revolve_forward_steps(1000, 20) == 3747
    assert counts(revolve(chain(1000), platform((20, 2, 3)))).forward == 3747


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 9, 30])
def test_the_formula_counts_the_schedule(slots: int) -> None:
    for steps in range(1, 120):
        schedule = revolve(chain(steps), platform((slots, 2, 3)))
        assert counts(schedule).forward == revolve_forward_steps(steps, slots)


@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize("steps", range(1, 9))
def test_no_schedule_takes_fewer_forward_steps(steps: int, slots: int) -> None:
    free = platform((slots, 0, 0))
    assert least_makespan(chain(steps, record=1), free) == revolve_forward_steps(steps, slots)


@pytest.mark.parametrize("slots", [1, 2, 3, 4, 7])
def test_it_writes_as_seldom_as_any_schedule_with_so_few_forward_steps(slots: int) -> None:
    for steps in (*range(1, 40), 97):
        # A write so cheap that no number of them outweighs a step.
        almost_free = platform((slots, 2.0**-20, 0))
        schedule, cheapest = (plan(chain(steps), almost_free) for plan in (revolve, hrevolve))
        assert makespan(schedule, almost_free) == makespan(cheapest, almost_free)


def test_one_more_slot_never_takes_more_forward_steps() -> None:
    for steps in (2, 7, 50, 333):
        taken = [revolve_forward_steps(steps, slots) for slots in range(1, steps + 5)]
        assert taken == sorted(taken, reverse=True)
        assert taken[0] == steps * (steps + 1) // 2
        assert taken[-1] == 2 * steps - 1


@pytest.mark.slow
def test_a_long_chain_is_planned_without_a_table() -> None:
    steps = 100_000
    for slots in (1, 2, 20, steps):
        schedule = revolve(chain(steps), platform((slots, 2, 3)))
        assert counts(schedule).forward == revolve_forward_steps(steps, slots)


@pytest.mark.parametrize(("steps", "slots"), [(0, 3), (-1, 3), (2, 0), (5, -1)])
def test_the_formula_refuses_what_has_no_schedule(steps: int, slots: int) -> None:
    with pytest.raises(BadInput, match=f"{steps} steps with {slots} slots"):
        revolve_forward_steps(steps, slots)
