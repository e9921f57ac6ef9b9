"""Overlapped plans: what the compiled engine says, what search finds, and what is promised."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from ckio.planners.overlapped import Overlapped, anneal, overlapped, plan, search
from ckio.planners.overlapped.engine import simulated
from hypothesis import given, settings
from hypothesis import strategies as st

from ckio.actions import Discard, Read, Write
from ckio.chain import Chain
from ckio.errors import NoSchedule
from ckio.overlap import Overlap
from ckio.planners.hrevolve import hrevolve
from ckio.planners.mixed import mixed
from ckio.platforms import Affine, Level, Platform
from ckio.replay import validate
from ckio.schedule import counts, makespan
from ckio.sim.engine import simulate

from .cases import RESTART, TAPE, chain
from .overlapsearch import Case, least_makespan

some = settings(max_examples=15, deadline=None)


@pytest.fixture(autouse=True, scope="module")
def little_annealing() -> Iterator[None]:
    """So that plans take no time; `test_overlapped_anneal` looks at what it gains."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anneal, "_TRIALS", 3)
        yield


def machine(near: int, *far: tuple[int, float, float], **costs: float) -> Platform:
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


def checked(chain: Chain, platform: Platform) -> Overlapped:
    """A plan that keeps what all of them promise."""
    made = plan(chain, platform)
    assert validate(made.schedule, platform).adjoint == 0
    assert counts(made.schedule).reversed == counts(made.schedule).recorded == chain.steps
    assert simulate(made.schedule, platform, overlap=made.overlap).makespan == made.makespan
    assert made.synchronous == makespan(hrevolve(chain, platform), platform)
    assert made.makespan <= made.synchronous
    assert made.bound <= made.makespan * (1 + 1e-12)
    return made


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


@settings(max_examples=150, deadline=None)
@given(traffics(), st.sampled_from([hrevolve, mixed]))
def test_the_compiled_engine_says_what_the_simulator_says(
    traffic: tuple[Chain, Platform, Overlap], planner: object
) -> None:
    chain, platform, overlap = traffic
    if overlap:
        schedule = planner(chain, platform)  # type: ignore[operator]
        expected = simulate(schedule, platform, overlap=overlap).makespan
        assert simulated(schedule, platform, [overlap, overlap]) == [expected] * 2


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
    made = checked(
        chain(case.length + 1, reverse=1), machine(case.near, (case.far, case.write, case.read))
    )
    assert made.bound <= least + 1e-9 <= made.makespan + 2e-9, case
    return made.makespan / least


def test_the_bound_is_below_what_search_finds_and_the_plan_is_not_far_above() -> None:
    random = Random(1)
    ratios = [check_against_search(tiny(random, most_length=5, most_slots=2)) for _ in range(12)]
    assert sum(ratio == 1 for ratio in ratios) > len(ratios) / 2
    assert max(ratios) < 1.2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_against_search_in_a_long_campaign(seed: int) -> None:
    random = Random(seed)
    ratios = [check_against_search(tiny(random, most_length=7, most_slots=3)) for _ in range(20)]
    assert sum(ratio == 1 for ratio in ratios) > len(ratios) / 2
    assert max(ratios) < 1.2


def test_search_finds_what_can_be_seen_at_once() -> None:
    assert least_makespan(Case(0, 1, 1, 1, 1)) == 1
    assert least_makespan(Case(3, 4, 1, 9, 9)) == 7  # memory holds all: 3 steps, 4 reversed
    assert least_makespan(Case(1, 1, 1, 5, 5)) == 3
    # x_0 is near and x_1 is written from the register at once, or else each step back starts at x_0
    assert least_makespan(Case(2, 1, 1, 9, 9)) == 6


@pytest.mark.parametrize(
    ("length", "seconds", "most"), [(300, 0.5, 0.001), (300, 2.0, 0.02), (600, 20.0, 0.02)]
)
def test_twenty_near_slots_suffice_for_plans_close_to_the_bound(
    length: int, seconds: float, most: float
) -> None:
    made = checked(chain(length + 1, reverse=1), machine(20, (200, seconds, seconds)))
    assert made.gap <= most
    assert made.makespan < made.synchronous


def test_weaving_segments_into_one_another_pays_where_near_slots_are_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = chain(601, reverse=1), machine(5, (40, 1.5, 0.75))
    woven = checked(*case)
    monkeypatch.setattr(search, "improved", lambda machine, segments: segments)
    assert woven.makespan < plan(*case).makespan


@some
@given(
    st.integers(1, 60),
    st.tuples(st.integers(1, 5), st.integers(1, 20)),
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
    st.tuples(_seconds, _seconds, _seconds),
    st.tuples(_seconds, _seconds, _seconds),
)
def test_every_plan_keeps_what_is_promised(
    steps: int,
    slots: tuple[int, int],
    far: tuple[int, int],
    near: tuple[float, float, float],
    costs: tuple[float, float, float],
) -> None:
    memory = dict(zip(("write", "discard"), near[:2], strict=True))
    advance, record, reverse = costs
    checked(
        chain(steps, advance=advance, record=record, reverse=reverse),
        machine(slots[0], (slots[1], *far), **memory),
    )


def test_two_far_levels_are_no_worse_than_the_better_one() -> None:
    work, fast, slow = chain(200, reverse=1), (9, 2.0, 2.0), (60, 12.0, 9.0)
    both = checked(work, machine(4, fast, slow))
    assert both.makespan <= min(plan(work, machine(4, far)).makespan for far in (fast, slow))


def test_steps_that_differ_are_planned_by_hrevolve_and_simulated() -> None:
    work = replace(chain(60, reverse=1), advance=[1.0, 2.0] * 30)
    made = checked(work, machine(3, (9, 2.0, 2.0)))
    assert made.schedule.actions == hrevolve(work, machine(3, (9, 2.0, 2.0))).actions
    assert made.makespan < made.synchronous


def test_without_memory_nothing_overlaps() -> None:
    platform = machine(3, (9, 2.0, 2.0))
    disks = Platform(tuple(replace(level, backend="directory") for level in platform.levels), TAPE)
    made = checked(chain(60), disks)
    assert made.overlap == Overlap()
    assert made.makespan == made.synchronous
    assert "no room for what is on its way" in made.schedule.note


def test_one_level_is_left_to_hrevolve() -> None:
    made = checked(chain(60, reverse=1), machine(4))
    assert (made.gap, made.makespan) == (0, made.synchronous)


def test_the_note_says_how_to_run_it_and_how_good_it_is() -> None:
    made = plan(chain(301, reverse=1), machine(20, (200, 2.0, 2.0)))
    assert made.schedule.note.startswith(f"with overlap {made.overlap}: {made.makespan:.6g} s, ")
    assert f"{made.gap:.1%} above a bound" in made.schedule.note
    assert overlapped(chain(301, reverse=1), machine(20, (200, 2.0, 2.0))) == made.schedule


def test_far_checkpoints_are_discarded_as_soon_as_they_are_read_for_the_last_time() -> None:
    actions = list(plan(chain(301, reverse=1), machine(20, (200, 2.0, 2.0))).schedule.actions)
    for before, action in pairwise(actions):
        if isinstance(action, Discard):
            assert isinstance(before, Read | Write)
            assert (before.key, before.level) == (action.key, action.level)


def test_scaling_all_costs_does_not_change_the_plan() -> None:
    work = chain(200, advance=1, reverse=1)
    slower = replace(work, advance=1024, reverse=1024)
    assert (
        overlapped(work, machine(5, (20, 3.0, 5.0))).actions
        == overlapped(slower, machine(5, (20, 3072.0, 5120.0))).actions
    )


def test_no_room_for_a_checkpoint_leaves_no_schedule() -> None:
    with pytest.raises(NoSchedule, match="needs a level with room"):
        overlapped(chain(7), machine(0, (0, 1.0, 1.0)))


def test_memory_without_room_leaves_it_to_the_far_level() -> None:
    checked(chain(40, reverse=1), machine(0, (9, 1.0, 1.0)))


def test_without_numba_hrevolves_schedule_is_simulated_all_the_same() -> None:
    platform = machine(3, (9, 2.0, 2.0))
    script = "\n".join(
        (
            "import sys",
            "sys.modules['numba'] = None",
            "from ckio.chain import Chain",
            "from ckio.planners.overlapped import plan",
            "from ckio.platforms import Platform",
            "chain = Chain(steps=60, advance=1, record=0, reverse=1, restart=3, tape=2, adjoint=5)",
            f"made = plan(chain, Platform.loads('''{platform.dumps()}'''))",
            "print(made.makespan, made.synchronous, made.overlap)",
            "print(made.schedule.note)",
        )
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    numbers, note = done.stdout.splitlines()
    work = chain(60, reverse=1)
    seconds, synchronous, policy = numbers.split()
    least = hrevolve(work, platform)
    assert float(synchronous) == makespan(least, platform)
    expected = simulate(least, platform, overlap=Overlap.parse(policy)).makespan
    assert float(seconds) == expected < float(synchronous)
    assert "numba is missing" in note
