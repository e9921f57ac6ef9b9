"""Plans for overlap: the compiled engine, the dual and its bound, and what is promised."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.overlapped_states import Case, least_makespan

from ckio.errors import BadInput, NoSchedule
from ckio.planners.compared import Plan
from ckio.planners.dp import hrevolve, mixed
from ckio.planners.overlap import overlapped
from ckio.planners.overlap.dual import Problem
from ckio.planners.overlap.engine import Replayed
from ckio.planners.trivial import periodic, store_all
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.profile import Profile
from ckio.schedule import counts, makespan
from ckio.schedule.policy import Overlap
from ckio.schedule.replay import validate
from ckio.sim.engine import simulate

from .cases import RESTART, TAPE, chain, completed

POLICIES = [Overlap(None, None), Overlap(None, 0), Overlap(0, None), Overlap(1, 1), Overlap()]


Far = tuple[int, float, float]
"""Slots of a far level, and the seconds of writing and reading there."""


def machine(near: int, *far: Far, **costs: float) -> Platform:
    """Memory, whose accesses cost nothing if not given; far levels of (slots, write, read)."""
    memory = Level(
        name="ram",
        capacity=near * RESTART,
        **{access: Affine(latency=seconds) for access, seconds in costs.items()},
    )
    levels = (
        Level(
            name=f"far{number}",
            capacity=slots * RESTART,
            write=Affine(latency=write),
            read=Affine(latency=read),
            backend="directory",
        )
        for number, (slots, write, read) in enumerate(far)
    )
    return Platform((memory, *levels), working_memory=TAPE)


def checked(chain: Chain, platform: Platform, **options: object) -> Plan:
    """A plan that keeps what all of them promise."""
    made = overlapped(chain, platform, **options)  # type: ignore[arg-type]
    completed(made, platform)
    assert counts(made).reversed == chain.steps
    assert simulate(made, platform).makespan == made.makespan
    assert made.makespan <= made.synchronous
    assert made.bound <= made.makespan
    for planner in (
        hrevolve,
        *((mixed, store_all, periodic) if options.get("tapes", True) else ()),
    ):
        try:
            schedule = planner(chain, platform)
        except (NoSchedule, BadInput):
            continue
        assert made.synchronous <= makespan(schedule, platform)
        seconds = [simulate(schedule, platform, overlap=it).makespan for it in POLICIES]
        # Policies with counts are not tried: a plan may miss what they gain.
        assert made.makespan <= min(seconds[:3])
    return made


PROFILES = (
    Profile(write_beside=Affine(2.5), read_own=Affine(0.25), read_hinders=Affine(0.5)),
    Profile(write_hinders=Affine(0.5), discard_hinders=Affine(0.1), handoff=Affine(0.25)),
    Profile(first=Affine(4.0), dirty=2, drained=0.5, write_own=Affine(0.75)),
)

_seconds = st.sampled_from([0.0, 0.5, 1.0, 2.0])
_counts = st.sampled_from([None, 0, 1, 2])


@st.composite
def traffics(draw: st.DrawFn) -> tuple[Chain, Platform, Overlap]:
    """A chain on memory and up to three far levels, some of them on one channel; a policy."""
    levels = [
        Level(
            name=f"level{number}",
            capacity=draw(st.sampled_from([None, 1, 2, 3, 6, 12]) if number else st.integers(1, 6)),
            write=Affine(latency=draw(_seconds) * (3 if number else 1)),
            read=Affine(latency=draw(_seconds) * 3) if number else Affine(),
            discard=Affine(latency=draw(_seconds)),
            backend="directory" if number else draw(st.sampled_from(["ram", "directory"])),
            channel=draw(st.sampled_from(["", "shared"])),
            profile=draw(st.sampled_from([None, *PROFILES])),
        )
        for number in range(draw(st.integers(2, 4)))
    ]
    costs = {name: draw(_seconds) for name in ("advance", "record", "reverse")}
    sizes = {"restart": 1, "tape": 1, "adjoint": 1}
    return (
        Chain(steps=draw(st.integers(1, 40)), **costs, **sizes),
        Platform(tuple(levels), working_memory=draw(st.integers(1, 3))),
        Overlap(draw(_counts), draw(_counts), draw(st.sampled_from([1.5, 10.0, float("inf")]))),
    )


@settings(max_examples=40)
@given(traffics(), st.sampled_from([hrevolve, mixed]))
def test_the_compiled_engine_says_what_the_simulator_says(
    traffic: tuple[Chain, Platform, Overlap], planner: object
) -> None:
    chain, platform, overlap = traffic
    if overlap:
        schedule = planner(chain, platform)  # type: ignore[operator]
        expected = simulate(schedule, platform, overlap=overlap).makespan
        replayed = Replayed(schedule, platform)
        assert [replayed.seconds(overlap) for _ in range(2)] == [expected] * 2


def tiny(random: Random, *, most_length: int, most_slots: int) -> Case:
    return Case(
        length=random.randint(2, most_length),
        near=random.randint(1, most_slots),
        far=random.randint(1, most_slots),
        write=random.randint(1, 5),
        read=random.randint(1, 5),
    )


def check_against_search(case: Case) -> float:
    """How far the plan is above the least makespan, which is not below the bound."""
    least = least_makespan(case)
    platform = machine(case.near, (case.far, case.write, case.read))
    made = checked(chain(case.length + 1, reverse=1), platform, tapes=False)
    assert made.bound <= least + 1e-9 <= made.makespan + 2e-9, case
    return made.makespan / least


def test_the_bound_is_below_what_search_finds_and_the_plan_is_not_far_above() -> None:
    random = Random(1)
    ratios = [check_against_search(tiny(random, most_length=4, most_slots=2)) for _ in range(5)]
    assert sum(ratio == 1 for ratio in ratios) > len(ratios) / 2
    assert max(ratios) < 1.2


def test_search_finds_what_can_be_seen_at_once() -> None:
    assert least_makespan(Case(0, 1, 1, 1, 1)) == 1
    assert least_makespan(Case(3, 4, 1, 9, 9)) == 7  # memory holds all: 3 steps, 4 reversed
    assert least_makespan(Case(1, 1, 1, 5, 5)) == 3
    # x_0 is near and x_1 is written from the register at once, or else each step back starts at x_0
    assert least_makespan(Case(2, 1, 1, 9, 9)) == 6


@settings(max_examples=4)
@given(
    st.integers(1, 60),
    st.tuples(st.integers(1, 5), st.integers(1, 20)),
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
    st.tuples(_seconds, _seconds, _seconds),
    st.tuples(_seconds, _seconds, _seconds),
    st.booleans(),
)
def test_every_plan_keeps_what_is_promised(  # noqa: PLR0917
    steps: int,
    slots: tuple[int, int],
    far: tuple[int, int],
    near: tuple[float, float, float],
    costs: tuple[float, float, float],
    tapes: bool,
) -> None:
    memory = dict(zip(("write", "discard"), near[:2], strict=True))
    advance, record, reverse = costs
    work = chain(steps, advance=advance, record=record, reverse=reverse)
    checked(work, machine(slots[0], (slots[1], *far), **memory), tapes=tapes)


def test_where_all_tapes_fit_no_step_needs_a_checkpoint() -> None:
    near, far = machine(2, (4, 1.0, 1.0)).levels
    platform = Platform((near, far), working_memory=5 * TAPE)
    made = overlapped(chain(5), platform)
    assert counts(made).recorded == counts(made).forward == 5


GB = 10**9


def cluster(ram: int, *far: tuple[int | None, float, float], tape: int) -> tuple[dict, Platform]:
    """Memory and far levels of (capacity in GB, GB/s to write and to read); states of 8 GB."""
    copy = Affine(per_byte=1 / (20 * GB))
    levels = [Level(name="ram", capacity=ram * GB, write=copy, read=copy)]
    for number, (capacity, write, read) in enumerate(far):
        levels.append(
            Level(
                name=f"far{number}",
                capacity=None if capacity is None else capacity * GB,
                write=Affine(0.01, 1 / (write * GB)),
                read=Affine(0.01, 1 / (read * GB)),
                backend="directory",
            )
        )
    costs = {"advance": 1.0, "record": 1.1, "reverse": 2.0}
    sizes = {"restart": 8 * GB, "tape": tape * GB, "adjoint": 8 * GB}
    return costs | sizes, Platform(tuple(levels), tape * GB)


CLUSTERS = {
    "all fits": cluster(128, (2000, 4, 6), tape=4),
    "a slow file system": cluster(64, (None, 1, 1), tape=8),
    "three levels": cluster(128, (2000, 4, 6), (None, 1, 1), tape=8),
}


@pytest.mark.campaign
@pytest.mark.parametrize("name", CLUSTERS)
@pytest.mark.parametrize("steps", [200, 500])
def test_on_machines_as_clusters_have_them_the_gap_is_small(name: str, steps: int) -> None:
    costs, platform = CLUSTERS[name]
    made = checked(Chain(steps=steps, **costs), platform)
    assert 0 <= made.gap < 0.08
    assert made.makespan < made.synchronous


def test_steps_that_cost_nothing_are_planned() -> None:
    free = Chain(steps=12, advance=0, record=0, reverse=1, restart=1, tape=1, adjoint=1)
    far = Level(name="far", backend="directory", write=Affine(1.0), read=Affine(1.0), capacity=4)
    platform = Platform((Level(name="near", capacity=2), far), working_memory=1)
    made = overlapped(free, platform, tapes=False)
    assert made.makespan == 12.0  # to compute all again costs nothing
    validate(made, platform)


def test_what_overlap_makes_steps_lose_may_leave_nothing_to_overlap() -> None:
    costs, platform = CLUSTERS["a slow file system"]
    ram, far = platform.levels
    loss = Affine(100.0)
    far = replace(far, profile=Profile(write_hinders=loss, read_hinders=loss, discard_hinders=loss))
    made = checked(Chain(steps=100, **costs), replace(platform, levels=(ram, far)))
    assert made.overlap == Overlap()


def test_a_plan_of_the_dual_costs_what_its_multipliers_say() -> None:
    costs, platform = CLUSTERS["three levels"]
    problem = Problem(Chain(steps=300, **costs), platform, tapes=True)
    multipliers = np.array([[0.9, 0.02, 0.08], [0.9, 0.02, 0.08]])
    made = problem.plan(multipliers)
    assert made is not None
    validate(made.schedule, platform)
    assert (multipliers * made.load).sum() == pytest.approx(made.value, rel=1e-3)


@pytest.mark.slow
def test_levels_that_share_a_channel_and_chains_whose_steps_differ_are_planned() -> None:
    costs, platform = CLUSTERS["three levels"]
    levels = tuple(replace(level, channel="bus") for level in platform.levels[1:])
    shared = replace(platform, levels=(platform.levels[0], *levels))
    checked(Chain(steps=150, **costs), shared)
    varying = Chain(steps=150, **(costs | {"advance": [1.0, 2.0, 0.5] * 50}))
    made = checked(varying, platform)
    assert made.makespan < made.synchronous


@pytest.mark.slow
def test_long_chains_have_a_plan_in_the_place_of_mixed_that_is_hardly_worse() -> None:
    costs, platform = cluster(128, (None, 0.5, 0.5), tape=4)
    work = Chain(steps=20_500, **costs)
    made = overlapped(work, platform)
    least = mixed(work, platform)
    assert made.synchronous <= 1.002 * makespan(least, platform)
    assert made.makespan <= min(map(Replayed(least, platform).seconds, POLICIES))


def test_progress_goes_from_little_to_all() -> None:
    costs, platform = CLUSTERS["a slow file system"]
    told: list[float] = []
    overlapped(Chain(steps=200, **costs), platform, watch=told.append)
    assert told == sorted(told)
    assert 0 < told[0] <= told[-1] <= 1


@pytest.mark.campaign
@pytest.mark.parametrize("tapes", [True, False])
def test_memory_may_have_no_end(tapes: bool) -> None:
    slow = Affine(latency=2.0)
    memory = Level(name="ram", write=Affine(0.25), read=Affine(0.25))
    for far in (None, 30):
        disk = Level(name="far", capacity=far, write=slow, read=slow, backend="directory")
        made = checked(chain(60, record=1, reverse=1), Platform((memory, disk), TAPE), tapes=tapes)
        assert made.gap < 0.08


def test_without_memory_there_is_no_end_of_room_for_what_is_staged() -> None:
    platform = machine(3, (9, 2.0, 2.0))
    disks = Platform(tuple(replace(level, backend="directory") for level in platform.levels), TAPE)
    made = checked(chain(60, record=1, reverse=1), disks)
    assert made.overlap
    assert made.makespan < made.synchronous


def test_one_level_leaves_nothing_to_overlap() -> None:
    made = checked(chain(60, reverse=1), machine(4))
    assert made.makespan == made.synchronous


def test_the_note_says_what_was_taken_what_it_gains_and_the_gap() -> None:
    work, platform = chain(60, record=1, reverse=1), machine(6, (40, 2.0, 2.0))
    made = overlapped(work, platform)
    taken, gap = made.note.split(". The gap to the ")
    assert f", with {made.overlap}: {made.makespan:.6g} s, " in taken
    assert "less than the best without overlap" in taken
    assert f"{made.gap:.1%}" in gap


@pytest.mark.parametrize("unit", [2.0**-40, 2.0**60])
def test_any_unit_of_time_gives_the_same_plan_and_bound(unit: float) -> None:
    work = chain(60, advance=1, reverse=1)
    made = overlapped(work, machine(5, (20, 3.0, 1.5), (60, 8.0, 6.5)))
    other = replace(work, advance=unit, record=unit * work.record, reverse=unit)
    far = (20, 3 * unit, 1.5 * unit), (60, 8 * unit, 6.5 * unit)
    scaled = overlapped(other, machine(5, *far))
    assert scaled.actions == made.actions
    assert (scaled.makespan, scaled.overlap) == (unit * made.makespan, made.overlap)
    assert scaled.bound == pytest.approx(unit * made.bound)


def test_a_platform_without_levels_is_planned_or_refused() -> None:
    none = Platform((), working_memory=2 * TAPE)
    assert makespan(overlapped(chain(2, reverse=1), none), none) == 2 * (chain(2).record + 1)
    with pytest.raises(NoSchedule, match="the platform has no level"):
        overlapped(chain(7), none)


def test_no_room_for_a_checkpoint_leaves_no_schedule() -> None:
    with pytest.raises(NoSchedule, match="needs a level that can store"):
        overlapped(chain(7), machine(0, (0, 1.0, 1.0)))


def test_memory_without_room_leaves_it_to_the_far_level() -> None:
    checked(chain(40, reverse=1), machine(0, (9, 1.0, 1.0)))


@pytest.mark.parametrize(
    ("steps", "near", "far", "with_tapes", "states_only"),
    [
        (120, 3, [(20, 0.7, 0.5)], 391.0, 515.0),
        (200, 6, [(30, 2.0, 1.0)], 672.0, 862.0),
        (150, 2, [(12, 1.5, 1.5), (60, 6.0, 4.0)], 552.0, 691.0),
        (90, 1, [(90, 0.4, 0.4)], 225.0, 314.0),
        (300, 10, [(25, 5.0, 5.0)], 1022.0, 1292.0),
        (80, 4, [(80, 3.0, 0.5)], 272.0, 339.0),
    ],
)
def test_plans_are_as_good_as_they_were(
    steps: int, near: int, far: list[Far], with_tapes: float, states_only: float
) -> None:
    """The makespans that all parts of the planner found together on 29 November 2026."""
    for tape, found in (TAPE, with_tapes), (20, states_only):  # 20: seven states each
        platform = replace(machine(near, *far), working_memory=tape)
        made = overlapped(chain(steps, record=1.0, reverse=1.5, tape=tape), platform)
        assert made.makespan <= 1.001 * found
