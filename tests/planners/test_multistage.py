"""Multistage: Revolve's steps, and the most used places of the stack on the nearest levels."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from oracles.recurrences import revolve_forward_steps

from ckio.actions import Discard, Read, Write
from ckio.planners.binomial import revolve
from ckio.planners.dp import hrevolve
from ckio.planners.literature import multistage
from ckio.schedule import Schedule, counts, makespan

from .cases import chain, platform


def uses(schedule: Schedule) -> list[tuple[int, int]]:
    """For each place in the stack of checkpoints its level, and its writes and reads."""
    stack: list[int] = []
    used: Counter[int] = Counter()
    levels: dict[int, int] = {}
    for action in schedule.actions:
        match action:
            case Write(key, level):
                assert levels.setdefault(len(stack), level) == level
                used[len(stack)] += 1
                stack.append(key.step)
            case Read(key, level):
                assert stack[-1] == key.step
                used[len(stack) - 1] += 1
            case Discard():
                stack.pop()
    return [(levels[place], used[place]) for place in range(len(levels))]


@given(st.integers(2, 120), st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_it_is_revolve_with_all_slots_and_nearer_levels_are_full_of_what_is_used_more(
    steps: int, slots: list[int]
) -> None:
    schedule = multistage(chain(steps), platform(*((count, 1, 1) for count in slots)))
    assert counts(schedule).forward == revolve_forward_steps(steps, sum(slots))
    found = uses(schedule)
    for level, count in enumerate(slots):
        here = [used for number, used in found if number == level]
        beyond = [used for number, used in found if number > level]
        assert len(here) == min(count, len(here) + len(beyond))
        assert not beyond or min(here) >= max(beyond)


def test_the_place_used_least_goes_to_the_far_level() -> None:
    # Write x_0, write x_1, reverse step 3; read x_1 twice, for steps 2 and 1; read x_0 once.
    assert uses(multistage(chain(4), platform((1, 0, 0), (1, 5, 5)))) == [(1, 2), (0, 3)]


def test_with_one_level_it_is_revolve() -> None:
    machine = platform((0, 1, 1), (4, 2, 2))
    assert multistage(chain(50), machine) == revolve(chain(50), machine)


def test_a_schedule_that_looks_at_no_costs_pays_for_it() -> None:
    for far, optimum in ((10, 3931), (2, 3491)):
        machine = platform((5, 0, 0), (10, far, far))
        assert makespan(hrevolve(chain(1000), machine), machine) == optimum
        assert makespan(multistage(chain(1000), machine), machine) > 1.1 * optimum


def test_only_as_many_slots_are_used_as_the_chain_has_use_for() -> None:
    machine = platform((3, 0, 0), (None, 1, 1))
    found = counts(multistage(chain(6), machine))
    assert [level.peak for level in found.levels] == [3, 2]
    assert found.forward == 2 * 6 - 1
