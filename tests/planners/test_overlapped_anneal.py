"""Schedules as orders of items: what is written down is legal, and annealing gains on trees."""

import numpy as np
import pytest

from ckio.planners.overlapped import anneal, chains, search
from ckio.planners.overlapped.anneal import annealed
from ckio.planners.overlapped.chains import Found
from ckio.planners.overlapped.orders import BACK, Order, order_of, routed, routes, whole, written
from ckio.planners.overlapped.segments import ROWS, Machine, room
from ckio.planners.overlapped.stretches import replaced, stretch

from .test_overlapped_climb import drawn, machine, schedule, solved

_HORIZON = 20.0


def plain(case: Machine) -> Found | None:
    """The best chain of segments."""
    found, cuts = solved(case)
    plans = [chains.simulated(case, *chains.written(case, found, cut), [_HORIZON]) for cut in cuts]
    return min(plans, key=lambda plan: plan.seconds, default=None)


def write_down(case: Machine, order: Order) -> Found:
    """An order as a plan, whose seconds are not known."""
    place = room(ROWS * (case.length + 2), case.near + case.far, case.length)
    items = len(order.step)
    count = written(
        order, items, whole((case.near, case.far)), routes(items, case.length + 1), place.rows
    )
    return Found(place.rows, count, 0.0, 0.0)


@pytest.mark.parametrize("seed", range(20, 28))
def test_a_schedule_is_the_same_when_its_order_is_written_down(seed: int) -> None:
    case = drawn(seed)
    plan = plain(case)
    if plan is not None:
        again = write_down(case, order_of(plan.rows, plan.count))
        assert schedule(case, again) == schedule(case, plan)


@pytest.mark.parametrize("seed", range(28, 36))
def test_whatever_is_in_an_order_what_is_written_down_is_legal(seed: int) -> None:
    case, draw = drawn(seed), np.random.default_rng(seed)
    backward = np.arange(case.length, -1, -1)
    many = 0
    for _ in range(200):
        items = int(draw.integers(0, case.length + 3))
        step = np.concatenate(([0], draw.integers(0, case.length + 1, items), backward))
        does = np.concatenate(([1], draw.integers(0, 2, items), np.full(len(backward), BACK)))
        place = np.concatenate(([0.0], draw.random(items), (1 + np.arange(case.length + 1)) / 9))
        by = np.argsort(place, kind="stable")
        found = write_down(case, Order(step[by], does[by]))
        if found.count:
            many += 1
            schedule(case, found)
    assert many


@pytest.mark.parametrize("seed", range(12))
def test_an_annealed_chain_is_legal_does_not_take_longer_and_is_the_same_again(seed: int) -> None:
    case = drawn(seed)
    plan = plain(case)
    if plan is None:
        return
    changed, again = annealed(case, plan), annealed(case, plan)
    assert changed.seconds <= plan.seconds
    assert schedule(case, changed) == schedule(case, again)


def test_exhaustive_search_finds_nothing_below_a_schedule_that_is_no_tree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It found 36 seconds for this machine."""
    case = machine(12, 2, 13, 8.0, 1.0)
    horizons = [16.0, 40.0, 80.0, 160.0]
    found = search.search(case, horizons)
    assert found is not None
    assert found.seconds == 36
    monkeypatch.setattr(search, "annealed", lambda machine, found: found)
    without = search.search(case, horizons)
    assert without is not None
    assert without.seconds > 36


@pytest.mark.parametrize("seed", range(36, 48))
def test_stretches_are_written_down_as_in_the_whole_chain(seed: int) -> None:
    case = drawn(seed)
    plan = plain(case)
    if plan is None:
        return
    order, slots = order_of(plan.rows, plan.count), (case.near, case.far)
    items = len(order.step)
    there = routes(items, case.length + 1)
    assert routed(order, items, whole(slots), there) == 0
    cuts = [0, *(np.flatnonzero(order.does == BACK) + 1).tolist()]
    for begin in cuts[:-1]:
        for end in cuts[cuts.index(begin) + 1 :]:
            part = stretch(order, there, begin, end, slots)
            own = routes(end - begin, part.steps)
            place = room(6 * items, sum(slots), part.steps)
            assert written(part.order, end - begin, part.ends, own, place.rows)
            read = own.level[: end - begin] != -1
            np.testing.assert_array_equal(own.level[: end - begin], there.level[begin:end])
            np.testing.assert_array_equal(
                own.source[: end - begin][read] + part.base, there.source[begin:end][read]
            )
            again = replaced(order, begin, end, part)
            np.testing.assert_array_equal(again.step, order.step)
            np.testing.assert_array_equal(again.does, order.does)


def test_a_chain_of_many_stretches_is_annealed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anneal, "_TIMES", 1)
    case = machine(2100, 3, 15, 1.0, 8.0)
    found, cuts = solved(case)
    plan = chains.simulated(case, *chains.written(case, found, cuts[0]), [_HORIZON])
    changed = annealed(case, plan)
    schedule(case, changed)
    assert changed.seconds < 0.99 * plan.seconds
