"""The bound for overlapped plans: below what search finds, and close where near slots are few."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckio.planners.hrevolve.runs import solve_runs, values
from ckio.planners.overlapped import windows
from ckio.planners.overlapped.bound import bound
from ckio.planners.overlapped.segments import Costs, Machine
from ckio.planners.overlapped.windows import Prices, segments

from .overlapsearch import Case, least_makespan


def machine(case: Case, **costs: float) -> Machine:
    """Steps take a second forward and one to record and reverse, near access nothing."""
    nothing = dict.fromkeys(Costs._fields, 0.0)
    given = {"advance": 1.0, "reverse": 1.0, "far_write": case.write, "far_read": case.read}
    return Machine(case.length, case.near, case.far, Costs(**(nothing | given | costs)))


def tiny(random: Random, length: int, slots: int, seconds: int) -> Case:
    return Case(
        length=random.randint(1, length),
        near=random.randint(1, slots),
        far=random.randint(1, slots),
        write=random.randint(0, seconds),
        read=random.randint(0, seconds),
    )


def is_tight(case: Case) -> bool:
    """Whether the bound, which must not be above it, leaves only the least makespan."""
    least, found = least_makespan(case), bound(machine(case))
    assert found <= least + 1e-9, case
    return found > least - 1


def test_the_bound_is_below_what_search_finds_and_mostly_by_less_than_a_second() -> None:
    random = Random(7)
    tight = [is_tight(tiny(random, 5, 2, 6)) for _ in range(24)]
    assert sum(tight) > len(tight) / 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_against_search_in_a_long_campaign(seed: int) -> None:
    random = Random(seed)
    tight = [is_tight(tiny(random, 7, 3, 7)) for _ in range(40)]
    assert sum(tight) > len(tight) / 2


@pytest.mark.parametrize(
    ("case", "write", "read", "least", "most"),
    [
        (Case(572, 4, 13, 0, 0), 2.0, 23.0, 2340, 2422),
        (Case(1418, 13, 159, 0, 0), 18.1, 16.0, 4290, 4426),
        (Case(565, 3, 662, 0, 0), 28.3, 1.1, 2130, 2328),
    ],
)
def test_few_near_slots_leave_little_between_the_bound_and_plans_that_are_known(
    case: Case, write: float, read: float, least: float, most: float
) -> None:
    assert least <= bound(machine(case, far_write=write, far_read=read)) <= most


def prices(**given: int) -> Prices:
    usual = Prices(10, 10, 1, 1, 5, 8, full_advance=10, full_back=10, window=0)
    return usual._replace(**given)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 60),
    st.tuples(st.integers(1, 5), st.integers(1, 6)),
    st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 40), st.integers(9, 40)),
)
def test_without_windows_and_weight_it_is_h_revolve(
    length: int, slots: tuple[int, int], access: tuple[int, int, int, int]
) -> None:
    near_write, near_read, far_write, far_read = access
    near_write = min(near_write, far_write)
    solved = segments(
        length,
        *slots,
        prices(near_write=near_write, near_read=near_read, far_write=far_write, far_read=far_read),
    )
    expected = solve_runs(length, slots, (near_write, far_write), (near_read, far_read), 10)
    for level, layers in zip(expected.levels, (solved.near, solved.far), strict=True):
        for free in range(1, level.slots + 1):
            found = values(layers[min(free, len(layers)) - 1])
            assert np.array_equal(found, level.stored(free, 0, length + 1))
    assert np.array_equal(values(solved.last), values(solved.far[-1]))
    assert np.array_equal(values(solved.before_read), values(solved.near[-1]))


@pytest.mark.parametrize("near", [1, 2, 4])
@pytest.mark.parametrize("far", [1, 3, 40])
def test_windows_and_full_slots_cost_more_and_never_less(near: int, far: int) -> None:
    plain = prices()
    without = segments(150, near, far, plain)
    for dearer in (plain._replace(window=40), plain._replace(full_advance=13, full_back=13)):
        more = segments(150, near, far, dearer)
        for m in range(far):
            ours, theirs = (values(one.far[min(m, len(one.far) - 1)]) for one in (more, without))
            assert (ours >= theirs).all()
            assert (ours > theirs).any()
        assert (values(more.last) <= values(more.far[-1])).all()


def test_a_window_is_stood_still_for_where_all_slots_are_taken() -> None:
    """x_0 is in the only one until one step is left, so there are 10 parts to read in."""
    solved = segments(3, 1, 1, prices(near_read=0, near_write=0, window=64))
    still = 64 - 10
    assert values(solved.before_read).tolist() == [0, 10 + still, 30 + still, 60 + still]


def test_longer_segments_than_are_looked_at_cost_no_less_than_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = machine(Case(300, 3, 9, 3, 12))
    known = bound(case)
    monkeypatch.setattr(windows, "_LONGEST", 10)
    fewer = bound(case)
    monkeypatch.setattr(windows, "MOST_SLOTS", 2)
    assert bound(case) < fewer < known
