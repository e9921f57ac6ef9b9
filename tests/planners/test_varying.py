"""Chains whose steps differ: as good as exhaustive search, and never better than the bound."""

import logging
from dataclasses import replace
from itertools import pairwise
from math import inf
from random import Random
from typing import Any

import numpy as np
import pytest
from oracles.exhaustive import least_makespan

from ckio.actions import Advance, Discard, Kind, Read, Record, Reverse, Write
from ckio.errors import NoSchedule
from ckio.planners import varying as room_for_work
from ckio.planners.binomial import revolve
from ckio.planners.dp import hrevolve
from ckio.planners.varying import sorted_bound, varying
from ckio.planners.varying.intervals import SHORT, FreeSpace, Scale, in_units
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan

from .cases import completed

Case = tuple[Chain, Platform]


def differing(steps: int, **costs: Any) -> Chain:
    """A chain whose costs are 1 where none are given."""
    return Chain(steps=steps, **dict.fromkeys(("advance", "record", "reverse"), 1) | costs)  # type: ignore[arg-type]


def random_case(
    random: Random, *, most_steps: int, levels: int, sizes: int, tapes: bool, memory: int = 0
) -> Case:
    """Whole costs that differ from step to step, and checkpoints of 1 to `sizes` bytes.

    The working memory holds any step's tape, and up to `memory` bytes more.
    """
    steps = random.randint(1, most_steps)
    each = range(steps)
    advance = [random.randint(0, 9) for _ in each]
    restart, tape = (random.randint(1, 3) for _ in range(2))
    chain = Chain(
        steps=steps,
        advance=advance,
        record=[max(0, seconds + random.randint(-2 * tapes, 4)) for seconds in advance],
        reverse=[random.randint(0, 2) for _ in each],
        restart=[random.randint(1, sizes) for _ in each] if sizes else restart,
        tape=[random.randint(1, sizes) for _ in each] if sizes else tape,
        adjoint=1,
    )
    return chain, Platform(
        tuple(random_level(random, number) for number in range(levels)),
        working_memory=chain.largest("tape") + random.randint(0, memory),
    )


def random_level(random: Random, number: int) -> Level:
    return Level(
        name=f"level{number}",
        capacity=random.choice((None, *(random.randint(0, 6) for _ in range(4)))),
        write=Affine(random.randint(0, 3), random.randint(0, 2)),
        read=Affine(random.randint(0, 3), random.randint(0, 2)),
        discard=Affine(random.choice((0, 0, 1))),
    )


def planned(case: Case, *, tapes: bool) -> float:
    """Seconds of the plan, which is replayed; infinite where there is none."""
    chain, platform = case
    try:
        schedule = varying(chain, platform, tapes=tapes, planner="varying")
    except NoSchedule:
        return inf
    check(schedule, platform)
    return makespan(schedule, platform)


def check(schedule: Schedule, platform: Platform) -> None:
    """Every step is reversed, nothing is left, and what is written goes after its last Read."""
    completed(schedule, platform)
    last: dict[tuple[object, int], object] = {}
    for before, action in pairwise(schedule.actions):
        if isinstance(action, Discard):
            assert before == Read(action.key, action.level)
            last[action.key, action.level] = action
        elif isinstance(action, Read | Write):
            last[action.key, action.level] = action
    assert all(isinstance(action, Discard) for action in last.values())


KINDS = {
    "restart": {"sizes": 0, "tapes": False},
    "mixed": {"sizes": 0, "tapes": True},
    "mixed, more memory": {"sizes": 0, "tapes": True, "memory": 4},
    "restart, sizes differ": {"sizes": 3, "tapes": False},
    "mixed, sizes differ": {"sizes": 3, "tapes": True, "memory": 2},
}


def compared(kind: str, *, levels: int, seeds: range) -> list[tuple[int, float, float]]:
    """Seeds where the plan is not as good as the best that a search finds, with both."""
    found, arguments = [], KINDS[kind]
    tapes = bool(arguments["tapes"])
    for seed in seeds:
        most_steps = 8 - 2 * tapes - levels
        case = random_case(Random(seed), most_steps=most_steps, levels=levels, **arguments)  # type: ignore[arg-type]
        seconds, best = planned(case, tapes=tapes), least_makespan(*case, tapes=tapes)
        assert seconds >= best
        slots = sum(slots_of(level, case[0], tapes) for level in case[1].levels)
        assert sorted_bound(*case, slots=min(slots, 9), tapes=tapes) <= best
        if seconds > best:
            found.append((seed, seconds, best))
    return found


def slots_of(level: Level, chain: Chain, tapes: bool) -> int:
    sizes = [*chain.each("restart"), *(chain.each("tape") if tapes else ())]
    return level.slots(int(min(sizes)), chain.length)


@pytest.mark.campaign
@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_no_search_finds_a_better_schedule(kind: str, levels: int) -> None:
    seeds = range(8 if KINDS[kind]["tapes"] and levels == 2 else 40)
    assert compared(kind, levels=levels, seeds=seeds) == []


def test_where_sizes_differ_a_checkpoint_may_be_worth_dropping_before_its_range_is_done() -> None:
    chain = Chain(
        steps=6,
        advance=[6, 9, 6, 7, 0, 1],
        record=[6, 9, 6, 7, 0, 1],
        reverse=0,
        restart=[2, 2, 3, 3, 2, 2],
        tape=1,
        adjoint=1,
    )
    case = chain, Platform((Level(name="ram", capacity=6),), working_memory=1)
    assert (planned(case, tapes=False), least_makespan(*case)) == (79, 78)


def test_steps_that_hardly_differ_are_planned_as_hrevolve_plans_those_that_do_not() -> None:
    for seed in range(6):
        random = Random(seed)
        alike = differing(random.randint(2, 30), restart=3, tape=1, adjoint=1)
        levels = tuple(random_level(random, number) for number in range(2))
        platform = Platform((replace(levels[0], capacity=9), replace(levels[1], capacity=None)))
        seconds = makespan(hrevolve(alike, platform), platform)
        # The tape of the first step has other bytes, which restart checkpoints do not care for.
        other = replace(alike, tape=[2] + [1] * (alike.length - 1))
        assert planned((other, platform), tapes=False) == seconds, f"seed {seed}"


# --- long chains


def ragged(steps: int, seed: int = 0) -> Chain:
    """Costs in units of an eighth, with bursts."""
    rng = np.random.default_rng(seed)
    seconds = np.ceil(8 * rng.lognormal(0, 1, steps)) / 8
    return differing(steps, advance=seconds, record=seconds, restart=1, tape=1, adjoint=1)


def ram(slots: int | None, **costs: Any) -> Platform:
    return Platform((Level(name="ram", capacity=slots, **costs),), working_memory=1)


@pytest.mark.parametrize("tapes", [False, True])
def test_two_scales_lose_little(tapes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    chain, platform = ragged(300), ram(6, write=Affine(0.25), read=Affine(0.5))
    best = planned((chain, platform), tapes=tapes)
    monkeypatch.setattr(room_for_work, "_POINTS", 60)
    schedule = varying(chain, platform, tapes=tapes, planner="varying")
    check(schedule, platform)
    assert best <= makespan(schedule, platform) <= 1.01 * best


def test_a_long_chain_is_planned_on_three_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    coarser, made = Scale.coarser, []
    monkeypatch.setattr(
        Scale, "coarser", lambda self, count: made.append(count) or coarser(self, count)
    )
    monkeypatch.setattr(room_for_work, "_POINTS", 20)
    schedule = varying(ragged(1500), ram(5), tapes=False, planner="varying")
    check(schedule, ram(5))
    assert len(made) >= 2  # two coarser scales, if the level is bounded
    assert makespan(schedule, ram(5)) < 1.2 * sorted_bound(
        ragged(1500), ram(5), slots=5, tapes=False
    )


def test_points_are_put_behind_dear_steps_and_never_far_apart() -> None:
    advance = np.ones(2000)
    advance[[300, 900, 1500]] = 1000
    chain = replace(ragged(2000), advance=advance)
    room = FreeSpace.of_all_levels(np.array([3]))
    order = list(ram(3).levels)
    counted = room_for_work._counted(chain, order, {"ram"}, False)
    costs = room_for_work._costs(chain, ram(3), order, counted.units, False)
    scale = Scale.finest(costs, room).coarser(20)
    assert {0, 301, 901, 1501, 2000} <= set(scale.at.tolist())
    assert np.diff(scale.at).max() <= SHORT
    assert (np.diff(scale.at) > 0).all()
    assert len(scale.at) < 80


# --- how room is counted


def test_room_is_counted_in_the_largest_unit_that_all_sizes_are_whole_numbers_of() -> None:
    total, units, exact = in_units(100, np.array([12, 18, 102, 0]), 256)
    assert (total, units.tolist(), exact) == (16, [2, 3, 17, 0], True)


def test_too_many_units_are_parts_to_which_sizes_are_rounded_up() -> None:
    for capacity, sizes in (
        (10_007, [999, 1501, 10_007, 10_008]),
        (2**61 - 1, [2**57 + 1, 2**60 + 1, 2**61 - 1, 2**61]),
    ):
        total, units, exact = in_units(capacity, np.array(sizes), 256)
        assert not exact
        assert 64 <= total <= 256
        assert units.tolist()[2:] == [total, total + 1]
        assert all(
            unit * capacity >= size * total
            for unit, size in zip(units.tolist()[:2], sizes[:2], strict=True)
        )
        assert (units[:2] < np.array(sizes[:2]) / capacity * total + 2).all()


def test_slots_of_equal_checkpoints_are_not_lost_to_rounding() -> None:
    chain = replace(ragged(200), restart=1009, tape=[7, *[8] * 199])
    platform = Platform((Level(name="ram", capacity=20 * 1009 + 1008),), working_memory=8)
    schedule = varying(chain, platform, tapes=False, planner="varying")
    whole = Platform((Level(name="ram", capacity=20),), working_memory=1)
    assert makespan(schedule, platform) == planned((ragged(200), whole), tapes=False)


def test_free_rooms_lead_to_one_another() -> None:
    units = np.array([[1, 3], [2, 1]])
    for room in (
        FreeSpace.of_all_levels(np.array([3, 2])),
        FreeSpace.of_one_level_at_a_time(np.array([3, 2])),
    ):
        for way in range(len(room.level)):
            after, back = room.without(way, units), room.back(way, units)
            for p in range(2):
                possible = np.flatnonzero(after[p] < room.count)
                assert possible.size
                assert (back[p][after[p][possible]] == possible).all()
                taken = units[room.level[way], p]
                assert (room.free[way][after[p][possible]] >= 0).all()
                left = room.free[way][possible] - taken[possible]
                assert (room.free[way][after[p][possible]] == left).all()


# --- what is said, and what is refused


def test_a_level_with_much_room_is_planned_as_one_that_never_fills_where_that_fits() -> None:
    chain = ragged(120)
    far = Level(name="far", capacity=200, write=Affine(3), read=Affine(3))
    endless = replace(far, capacity=None)
    near = Level(name="near", capacity=3)
    fits, never_fills = (
        varying(chain, Platform((near, level)), tapes=False, planner="varying")
        for level in (far, endless)
    )
    assert fits.actions == never_fills.actions


def test_a_note_says_how_good_the_schedule_is() -> None:
    note = varying(ragged(50), ram(5), tapes=False, planner="varying").note
    assert note.startswith("steps differ: ")
    assert "% above a lower bound of" in note


def test_levels_may_be_used_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room_for_work, "_MOST_NUMBERS", 1 << 16)
    chain = ragged(40)
    levels = [Level(name=f"l{i}", capacity=3, write=Affine(i), read=Affine(i)) for i in range(3)]
    platform = Platform(tuple(levels), working_memory=1)
    schedule = varying(chain, platform, tapes=True, planner="varying")
    check(schedule, platform)


def test_restart_only_records_each_step_directly_before_it_is_reversed() -> None:
    schedule = varying(ragged(60), ram(4), tapes=False, planner="varying")
    for before, action in pairwise(schedule.actions):
        if isinstance(action, Reverse):
            assert before == Record(action.begin, action.end)
        if isinstance(action, Write):
            assert action.key.kind is Kind.RESTART
    assert sum(isinstance(action, Record) for action in schedule.actions) == 60


def test_tapes_move_by_recording_where_that_is_quicker() -> None:
    chain = differing(4, advance=[9, 1, 9, 1], record=2, restart=1, tape=1, adjoint=1)
    platform = Platform((Level(name="ram", capacity=1),), working_memory=1)
    actions = list(varying(chain, platform, tapes=True, planner="varying").actions)
    assert Record(0, 1) in actions
    assert Advance(0, 1) not in actions


def test_what_no_level_holds_leaves_no_schedule(caplog: pytest.LogCaptureFixture) -> None:
    chain = replace(ragged(5), restart=[4, 1, 1, 1, 1])
    message = r"hrevolve needs a level with space for x_0 \(4 bytes\); ram offers 3"
    with pytest.raises(NoSchedule, match=message):
        varying(chain, ram(3), tapes=False, planner="hrevolve")
    with caplog.at_level(logging.WARNING, logger="ckio"):
        levels = (Level(name="tiny", capacity=0), Level(name="ram", capacity=4))
        varying(chain, Platform(levels), tapes=False, planner="hrevolve")
    assert caplog.messages == ["hrevolve ignores level tiny: its 0 bytes are too few"]
    with pytest.raises(NoSchedule, match="the working memory has 0"):
        varying(chain, replace(ram(9), working_memory=0), tapes=False, planner="hrevolve")


def test_no_level_is_needed_where_the_register_holds_every_tape() -> None:
    schedule = varying(ragged(5), Platform(()), tapes=True, planner="mixed")
    assert list(schedule.actions) == [Record(0, 5), Reverse(0, 5)]
    one = differing(1, restart=[1, 2], tape=1, adjoint=1)
    assert list(varying(one, Platform(()), tapes=False, planner="hrevolve").actions) == [
        Record(0, 1),
        Reverse(0, 1),
    ]


# --- what gives way to length is compared with what does not


@pytest.mark.parametrize("tapes", [False, True])
@pytest.mark.parametrize("slots", [1, 2])
def test_a_long_chain_with_a_slot_or_two_is_no_slower_than_revolve(
    slots: int, tapes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room_for_work, "_POINTS", 20)
    chain, platform = ragged(1500), ram(slots)
    schedule = varying(chain, platform, tapes=tapes, planner="varying")
    alike = revolve(replace(chain, advance=1, record=1), platform)
    assert makespan(schedule, platform) <= makespan(Schedule(chain, alike.actions), platform)
    assert f"{makespan(schedule, platform):.6g} s, " in schedule.note


@pytest.mark.campaign
@pytest.mark.parametrize("steps", [1000, 3000])
@pytest.mark.parametrize("tapes", [False, True])
def test_a_long_chain_on_a_free_level_that_never_fills_repeats_no_step_twice(
    steps: int, tapes: bool
) -> None:
    chain = ragged(steps)
    schedule = varying(chain, ram(None), tapes=tapes, planner="varying")
    check(schedule, ram(None))
    once = float(chain.each("advance").sum())
    assert makespan(schedule, ram(None)) <= (1 if tapes else 2) * once + steps


def test_a_sweep_is_close_to_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = (Level(name="ram", capacity=3), Level(name="far", write=Affine(2), read=Affine(1)))
    chain, platform = ragged(300), Platform(levels, working_memory=1)
    best = planned((chain, platform), tapes=False)
    monkeypatch.setattr(room_for_work, "_POINTS", 20)
    schedule = varying(chain, platform, tapes=False, planner="varying")
    check(schedule, platform)
    assert best <= makespan(schedule, platform) <= 1.02 * best


def test_tapes_never_make_a_plan_that_gives_way_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room_for_work, "_POINTS", 12)
    for seed in range(4):
        case = random_case(Random(seed), most_steps=200, levels=2, sizes=3, tapes=False)
        assert planned(case, tapes=True) <= planned(case, tapes=False), f"seed {seed}"


def test_checkpoints_of_which_as_many_as_steps_cannot_be_counted_are_planned_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(room_for_work, "_POINTS", 12)
    chain = replace(ragged(300), restart=[2**55, *[1] * 299], tape=[1, *[2] * 299])
    platform = replace(ram(2**55 + 2), working_memory=2)
    check(varying(chain, platform, tapes=True, planner="varying"), platform)
