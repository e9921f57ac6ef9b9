"""The best of all planners: it is, and it says why."""

import logging
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.exhaustive import least_makespan

from ckio.errors import NoSchedule
from ckio.planners.base import Planner
from ckio.planners.binomial import revolve
from ckio.planners.dp import hrevolve
from ckio.planners.fastest import auto, far_levels, plan, unmeasured
from ckio.planners.literature import multistage, two_level
from ckio.planners.overlap import best_policy
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.profile import Profile
from ckio.schedule import makespan
from ckio.schedule.policy import AUTO, SYNCHRONOUS, Overlap, exactly
from ckio.schedule.replay import validate
from ckio.sim.engine import simulate

from .cases import RESTART, chain, chains, platform, platforms


def test_tapes_beside_restart_data_are_found() -> None:
    """RAM 20 and NVMe 200 of Maddison's setting: a third less than restart data alone."""
    machine = Platform.loads("2\n 20 0 0\n 200 1 1")
    costs = Chain(steps=1001, advance=1, record=1, reverse=0, restart=1, tape=1, adjoint=1)
    schedule = auto(costs, machine)
    assert makespan(schedule, machine) == 2070
    assert re.match(
        r"mixed: 2070 s, 31\.4% less than hrevolve, the next of the \d+ planners that apply",
        schedule.note,
    )


def test_of_equally_good_planners_it_takes_the_plainest() -> None:
    schedule = auto(chain(5, record=2), platform((3, 2, 3), tapes=5))
    assert schedule.note.startswith("store-all: 10 s, and none of the ")


@pytest.mark.slow
def test_a_planner_that_does_not_apply_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    machine = platform((2, 1, 1))
    with caplog.at_level(logging.INFO, logger="ckio"):
        schedule = auto(chain(9, record=1), machine)
    assert "auto: store-all does not apply" in caplog.text
    assert validate(schedule, machine).adjoint == 0
    assert makespan(schedule, machine) == least_makespan(chain(9, record=1), machine, tapes=True)


def test_where_none_applies_it_says_what_is_needed() -> None:
    with pytest.raises(NoSchedule, match=r"needs .*: give a level more capacity"):
        auto(chain(7), platform((0, 2, 3)))


@settings(max_examples=30)
@given(chains(), platforms(), st.data())
def test_more_capacity_or_a_level_more_make_no_plan_slower(
    costs: Chain, machine: Platform, data: st.DataObject
) -> None:
    levels = list(machine.levels)
    number = data.draw(st.integers(0, len(levels) - 1))
    if levels[number].capacity is not None and data.draw(st.booleans()):
        capacity = levels[number].capacity + data.draw(st.integers(1, 5 * RESTART))
        levels[number] = replace(levels[number], capacity=capacity)
    else:
        slots = data.draw(st.integers(1, 9))
        more = Level(name="more", capacity=slots * RESTART, write=Affine(1), read=Affine(2.5))
        levels.insert(number, more)
    larger = replace(machine, levels=tuple(levels))
    try:
        before = makespan(auto(costs, machine), machine)
    except NoSchedule:
        return
    assert makespan(auto(costs, larger), larger) <= before


@pytest.mark.parametrize(("slots", "far"), [(2, 5), (None, 10**16)])
def test_no_other_planner_is_better_for_a_long_chain(slots: int | None, far: float) -> None:
    costs, machine = chain(8_000, record=1), platform((5, 1, 1), (slots, far, far))
    best = makespan(auto(costs, machine), machine)
    for planner in (revolve, multistage, two_level):
        assert best <= makespan(planner(costs, machine), machine)


NODE = Platform(
    (
        Level(name="ram", capacity=3),
        Level(name="nvme", backend="directory", write=Affine(2.5), read=Affine(2.0)),
        Level(name="files", capacity=9, backend="hdf5", write=Affine(4.0), read=Affine(4.0)),
    ),
    working_memory=1,
)
COSTS = Chain(steps=24, advance=1, record=1, reverse=2, restart=1, tape=1, adjoint=1)


@pytest.mark.slow
def test_a_plan_with_overlap_is_not_slower_than_any_schedule_without() -> None:
    done = list[float]()
    best = plan(COSTS, NODE, watch=done.append)
    assert done == sorted(done)
    assert all(0 <= part <= 1 for part in done)
    assert validate(best, NODE).adjoint == 0
    assert best.makespan is not None
    assert best.bound is not None
    assert best.bound <= best.makespan < best.synchronous == makespan(auto(COSTS, NODE), NODE)
    assert best.gap == best.makespan / best.bound - 1
    assert best.makespan == pytest.approx(simulate(best, NODE).makespan, rel=1e-12)
    assert best.makespan < makespan(replace(best, overlap=SYNCHRONOUS), NODE)
    without = plan(COSTS, NODE, tapes=False)
    assert not (without.actions.kind[without.actions.op >= 3] == 1).any()


@pytest.mark.parametrize("planner", [hrevolve, two_level, multistage])
def test_the_schedule_of_a_planner_gets_its_best_policy(planner: Planner) -> None:
    found = plan(COSTS, NODE, planner=planner)
    alone = planner(COSTS, NODE)
    assert (found.actions, found.note) == (alone.actions, alone.note)
    assert (found.overlap, found.makespan) == best_policy(alone, NODE)
    synchronous = makespan(alone, NODE)
    assert (found.synchronous, found.bound, found.gap) == (synchronous, None, None)
    for policy in (Overlap(None, None), Overlap(None, 0), Overlap(0, None), SYNCHRONOUS):
        other = simulate(found, NODE, overlap=policy).makespan
        assert found.makespan is not None
        assert found.makespan <= other * (1 + 1e-12)


@pytest.mark.parametrize("planner", [auto, hrevolve])
def test_a_policy_is_kept_and_takes_no_search(planner: Planner) -> None:
    for policy in (SYNCHRONOUS, Overlap(1, 1)):
        found = plan(COSTS, NODE, planner=planner, overlap=policy)
        assert (found.actions, found.overlap) == (planner(COSTS, NODE).actions, policy)
        assert found.makespan == (None if policy else found.synchronous)
        assert found.gap is None


def test_overlap_is_measured_where_both_transfers_are() -> None:
    ram, nvme, files = NODE.levels
    assert far_levels(NODE) == [nvme, files]
    assert unmeasured(NODE) == ["nvme", "files"]
    beside = Profile(write_beside=Affine(1.0), read_beside=Affine(1.0))
    measured = replace(nvme, profile=beside)
    half = replace(files, profile=replace(beside, read_beside=None))
    assert unmeasured(Platform((ram, measured, half))) == ["files"]
    assert unmeasured(Platform((ram, measured))) == []
    assert unmeasured(Platform((measured,))) == far_levels(Platform((ram,))) == []


def test_a_policy_is_exact_or_decided_by_the_plan() -> None:
    assert exactly(None) is exactly(AUTO) is None
    assert exactly(SYNCHRONOUS) == SYNCHRONOUS
