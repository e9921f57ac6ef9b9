"""The pass that stores the adjoint from time to time, the room for it, and how often."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import exp, inf, isclose, sqrt
from random import Random

import pytest
from hypothesis import given, settings
from oracles.costs import seconds

from ckio.actions import Action, Advance, Discard, Kind, Read, Record, Reverse, Write
from ckio.errors import BadInput, NoSchedule
from ckio.jobs.adjoints import AdjointPolicy, cost_of_a_kill
from ckio.planners.dp import hrevolve
from ckio.planners.recovery import (
    adjoint_seconds,
    aside,
    every,
    expected_seconds,
    recover,
    with_adjoint_checkpoints,
)
from ckio.planners.resume import resume
from ckio.planners.trivial import store_all
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule
from ckio.schedule.machine import Machine
from ckio.schedule.replay import validate

from .cases import RANDOMS, RESTART_ONLY, WITH_TAPES, Case, a, adjoints, drawn_case, x

some = settings(max_examples=40)

CHAIN = Chain(steps=6, advance=1, record=1, reverse=2, restart=1, tape=1, adjoint=3)
DISK = Level(name="disk", capacity=50, write=Affine(5), read=Affine(5), discard=Affine(1))
PLATFORM = Platform((Level(name="ram", capacity=9), DISK))


def one_by_one(case: Case) -> Iterator[Action]:
    """What the pass is to make of a schedule that starts fresh, said an action at a time."""
    actions, now, due, last = case.planned.actions, 0.0, None, None
    for action in actions:
        if not isinstance(action, Reverse):
            now += seconds(action, case.chain, case.platform)
            yield action
            continue
        due = now + case.every if due is None else due
        end = action.end
        for step in range(action.end - 1, action.begin - 1, -1):
            done = now + seconds(Reverse(step, action.end), case.chain, case.platform)
            if step and done >= due:
                yield Reverse(step, end)
                yield Write(a(step), case.level)
                if last is not None:
                    yield Discard(a(last), case.level)
                due, last, end = done + case.every, step, step
        if action.begin < end:
            yield Reverse(action.begin, end)
        now += seconds(action, case.chain, case.platform)
    if last is not None:
        yield Discard(a(last), case.level)


@some
@given(RANDOMS)
def test_the_pass_does_in_columns_what_is_said_an_action_at_a_time(random: Random) -> None:
    case = drawn_case(random, RESTART_ONLY | WITH_TAPES, most_steps=20)
    assert list(case.schedule.actions) == list(one_by_one(case))
    end = validate(case.schedule, case.platform)
    assert end.adjoint == 0
    assert not any(end.stored)
    # Once there is an adjoint there is one until the end, and never more than two.
    machine = Machine(case.chain, case.platform)
    stored = list[int]()
    for action in case.schedule.actions:
        machine.apply(action)
        stored.append(len(adjoints(machine.stored[case.level])))
        assert not any(adjoints(keys) for k, keys in enumerate(machine.stored) if k != case.level)
    assert max(stored) <= 2
    first = next((k for k, count in enumerate(stored) if count), len(stored) - 1)
    assert all(stored[first:-1])
    assert stored[-1] == 0


@some
@given(RANDOMS)
def test_writes_are_so_long_apart_and_a_step_longer_at_most(random: Random) -> None:
    case = drawn_case(random, RESTART_ONLY | WITH_TAPES, most_steps=20)
    now, reached, writes = 0.0, list[float](), list[float]()
    for action in case.schedule.actions:
        if isinstance(action, Write | Discard) and action.key.kind is Kind.ADJOINT:
            writes += [now] if isinstance(action, Write) else []
            continue
        if isinstance(action, Reverse):
            reached = reached or [now]
            for step in range(action.end - 1, action.begin - 1, -1):
                part = seconds(Reverse(step, action.end), case.chain, case.platform)
                reached.append(now + part)
        now += seconds(action, case.chain, case.platform)
    longest = max((later - sooner for sooner, later in pairwise(reached)), default=0.0)
    for sooner, later in pairwise([reached[0], *writes]):
        assert case.every <= later - sooner <= case.every + longest
    if case.chain.length > 1:
        # Before the end nothing is left out: a_1 would have been stored, had it been due.
        assert reached[-2] - (writes or [reached[0]])[-1] < case.every or writes[-1] == reached[-2]


def test_a_reverse_of_many_steps_is_split() -> None:
    schedule = store_all(CHAIN, PLATFORM)
    assert list(schedule.actions) == [Record(0, 6), Reverse(0, 6)]
    made = with_adjoint_checkpoints(schedule, PLATFORM, 3, level=1)
    assert list(made.actions) == [
        Record(0, 6),
        Reverse(4, 6),
        Write(a(4), 1),
        Reverse(2, 4),
        Write(a(2), 1),
        Discard(a(4), 1),
        Reverse(0, 2),
        Discard(a(2), 1),
    ]


def test_the_adjoint_that_was_read_goes_after_the_next_is_stored() -> None:
    schedule = resume(CHAIN, PLATFORM, [{x(0)}, {a(3), a(5)}])
    assert schedule.actions[:3].count(Discard(a(3), 1)) == 1  # there is none for a while
    made = list(with_adjoint_checkpoints(schedule, PLATFORM, 0, level=1).actions)
    assert made[:2] == [Read(a(3), 1), Discard(a(5), 1)]
    there = made.index(Write(a(2), 1))
    assert made[there + 1] == Discard(a(3), 1)
    assert made[-1] == Discard(a(1), 1)
    never = list(with_adjoint_checkpoints(schedule, PLATFORM, inf, level=1).actions)
    assert never[-1] == Discard(a(3), 1)


def test_the_adjoint_may_move_to_another_level() -> None:
    schedule = resume(CHAIN, PLATFORM, [{a(3)}, {a(4)}])
    made = with_adjoint_checkpoints(schedule, PLATFORM, 0, level=1)
    assert not any(validate(made, PLATFORM).stored)
    actions = list(made.actions)
    assert actions[actions.index(Write(a(2), 1)) + 1] == Discard(a(3), 0)


@pytest.mark.parametrize("seconds_apart", [0, inf])
def test_an_adjoint_read_from_elsewhere_leaves_one_to_come_back_to(seconds_apart: float) -> None:
    schedule = resume(CHAIN, PLATFORM, [{a(3)}, {a(4), a(5), x(0)}])
    made = with_adjoint_checkpoints(schedule, PLATFORM, seconds_apart, level=1)
    assert list(made.actions[:2]) == [Read(a(3), 0), Discard(a(5), 1)]
    machine = Machine(CHAIN, PLATFORM, made.stored)
    there = list[int]()
    for action in made.actions:
        machine.apply(action)
        there.append(len(adjoints(machine.stored[1])))
    assert all(there[:-1])
    assert max(there[1:]) == (2 if seconds_apart == 0 else 1)
    assert not any(machine.stored)


def test_an_adjoint_that_has_come_to_the_end_is_read_and_discarded() -> None:
    made = with_adjoint_checkpoints(resume(CHAIN, PLATFORM, [[], {a(0)}]), PLATFORM, 1, level=1)
    assert list(made.actions) == [Read(a(0), 1), Discard(a(0), 1)]


def test_a_schedule_planned_for_the_room_that_is_left_fits() -> None:
    tight = replace(PLATFORM, levels=(replace(DISK, name="all", capacity=8),))
    schedule = hrevolve(CHAIN, aside(tight, CHAIN, 0))
    made = with_adjoint_checkpoints(schedule, tight, 0, level=0)
    machine = Machine(CHAIN, tight)
    used = list[int]()
    for action in made.actions:
        machine.apply(action)
        used.append(machine.used[0])
    assert max(used) == 8


def test_what_cannot_be_done_is_said() -> None:
    schedule = hrevolve(CHAIN, PLATFORM)
    assert with_adjoint_checkpoints(schedule, PLATFORM, inf, level=1) == schedule
    for wrong in (-1, float("nan"), "soon"):
        with pytest.raises(BadInput, match=r"every = .*number of seconds"):
            with_adjoint_checkpoints(schedule, PLATFORM, wrong, level=1)  # type: ignore[arg-type]
    made = with_adjoint_checkpoints(schedule, PLATFORM, 1, level=1)
    for of, level, said in (
        (schedule, 2, "level = 2"),
        (made, 1, "already writes adjoints"),
        (Schedule(CHAIN, [Advance(0, 3)]), 1, "ends with the adjoint at step 6"),
    ):
        with pytest.raises(BadInput, match=said):
            with_adjoint_checkpoints(of, PLATFORM, 1, level=level)


# The room that is set aside for two adjoints


def test_room_is_set_aside_for_two_of_the_largest_adjoints_as_they_are_stored() -> None:
    chain = Chain(steps=3, advance=1, record=1, reverse=1, restart=4, tape=4, adjoint=[1, 7, 2, 3])

    def platform(capacity: int | None) -> Platform:
        disk = Level(name="disk", capacity=capacity, ratio=1.5)
        return Platform((Level(name="ram", capacity=9), disk))

    for capacity, left in ((22, 0), (100, 78), (None, None)):
        assert aside(platform(capacity), chain, 1) == platform(left)
    with pytest.raises(NoSchedule, match=r"two adjoints need 22 bytes on level disk.* 21"):
        aside(platform(21), chain, 1)
    for level in (-1, 2):
        with pytest.raises(BadInput, match=f"level = {level}"):
            aside(platform(50), chain, level)


# How often: Daly's estimate, and what it is worth


@pytest.mark.parametrize(
    ("cost", "mean", "interval"),
    [
        (2, 100, 20 * (1 + 0.1 / 3 + 0.01 / 9) - 2),
        (0.5, 3600, 60 * (1 + sqrt(0.5 / 7200) / 3 + 0.5 / 7200 / 9) - 0.5),
        (200, 100, 100),
        (1000, 100, 100),
        (0, 100, 0),
        (0, inf, 0),
        (3, inf, inf),
    ],
)
def test_the_interval_is_dalys(cost: float, mean: float, interval: float) -> None:
    assert isclose(every(cost, mean), interval, rel_tol=1e-12)


def test_where_checkpoints_cost_little_it_is_youngs() -> None:
    assert isclose(every(1e-6, 1e6), sqrt(2.0), rel_tol=1e-5)
    assert every(1e-300, 1e300) > 0
    assert every(1e300, 1e308) < inf


def wasted(interval: float, cost: float, mean: float) -> float:
    """Seconds for each second of work that is done, where failures come at any time (Daly)."""
    return mean * (exp((interval + cost) / mean) - 1) / interval


def test_no_other_interval_wastes_much_less() -> None:
    mean = 100.0
    for cost in (0.01, 1, 10, 60):
        best = min(wasted(0.01 * mean * k, cost, mean) for k in range(1, 400))
        assert wasted(every(cost, mean), cost, mean) <= 1.001 * best, f"cost {cost}"


@pytest.mark.parametrize("mtbf", [300.0, 2000.0, 50_000.0])
def test_the_expected_seconds_are_the_mean_of_runs_that_are_killed(mtbf: float) -> None:
    parts, part, redone, random = 40, 50.0, 20.0, Random(1)

    def run() -> float:
        now, kill = 0.0, random.expovariate(1 / mtbf)
        for _ in range(parts):
            end, restored = now + part, 0.0
            while kill < end:  # the part and, before it, what restores its state
                now, kill, restored = kill, kill + random.expovariate(1 / mtbf), redone
                end = now + restored + part
            now = end
        return now

    runs = [run() for _ in range(2000)]
    mean = sum(runs) / len(runs)
    assert isclose(expected_seconds(parts * part, part, mtbf, redone), mean, rel_tol=0.03)


def test_without_kills_nothing_is_added_and_too_many_never_let_it_end() -> None:
    assert isclose(expected_seconds(1000, 10, 1e12, 5), 1000, rel_tol=1e-6)
    assert expected_seconds(1000, 1000, 1.0, 5) == inf
    assert expected_seconds(0, 10, 100, 5) == 0


def test_adjoints_are_not_planned_on_a_level_that_is_read_only() -> None:
    chain = Chain(steps=3, advance=1, record=1, reverse=1, restart=1, tape=1, adjoint=1)
    shelf = Level(name="shelf", read_only=True)
    platform = Platform((Level(name="ram"), shelf))
    plan = store_all(chain, platform)
    for refused in (
        lambda: recover(chain, platform, [], level=1, every=1),
        lambda: with_adjoint_checkpoints(plan, platform, 1, level=1),
        lambda: aside(platform, chain, 1),
    ):
        with pytest.raises(BadInput, match="level = 1: level shelf is read-only"):
            refused()
    stored = [(), (a(2),)]
    rest = recover(chain, platform, stored, level=None, every=1)  # it may be read there
    assert validate(rest, platform).adjoint == 0
    rest = recover(chain, platform, stored, level=0, every=1)
    assert validate(rest, platform).adjoint == 0


def test_what_is_no_time_is_refused() -> None:
    for wrong in ((-1, 5), (inf, 5), (float("nan"), 5), (1, 0), (1, -2)):
        with pytest.raises(BadInput, match="must be"):
            every(*wrong)


def test_a_checkpoint_costs_its_write_and_its_discard_on_its_level() -> None:
    chain = Chain(steps=2, advance=1, record=1, reverse=1, restart=1, tape=1, adjoint=[4, 6, 5])
    slow = Level(name="slow", write=Affine(1, 2), read=Affine(50), discard=Affine(0.5))
    assert adjoint_seconds(chain, Platform((Level(name="ram"), slow)), 1) == 1 + 2 * 6 + 0.5
    with pytest.raises(BadInput, match="numbered from 0"):
        adjoint_seconds(chain, Platform((slow,)), 1)


def test_the_interval_of_a_rest_is_in_steps_of_the_rest() -> None:
    """Ten seconds reverse the five steps that are left of ten: four seconds are two steps."""
    chain = Chain(steps=10, advance=1, record=1, reverse=1, restart=8, tape=8, adjoint=8)
    rest = Schedule(
        chain,
        [Read(a(5), 0), Read(x(0), 0), Record(0, 5), Reverse(3, 5), Write(a(3), 0), Reverse(0, 3)],
        stored=(frozenset({a(5), x(0)}),),
    )
    said = cost_of_a_kill(rest, Platform((Level(name="disk"),)), AdjointPolicy("disk", 4.0))
    assert said.startswith("an adjoint checkpoint on disk every 4 s of work, about 2 steps; ")
