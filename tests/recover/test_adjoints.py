"""The pass that stores the adjoint from time to time."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import inf
from random import Random

import pytest
from hypothesis import given, settings

from ckio.actions import Action, Advance, Discard, Kind, Read, Record, Reverse, Write
from ckio.errors import BadInput
from ckio.planners.dp import hrevolve
from ckio.planners.recover import aside, with_adjoint_checkpoints
from ckio.planners.resume import resume
from ckio.planners.trivial import store_all
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, seconds
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


@some
@given(RANDOMS)
def test_once_there_is_an_adjoint_there_is_one_until_the_end_and_never_more_than_two(
    random: Random,
) -> None:
    case = drawn_case(random, RESTART_ONLY | WITH_TAPES, most_steps=20)
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
    now, reached, longest = 0.0, list[float](), 0.0
    writes = list[float]()
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


def test_without_an_end_of_the_interval_nothing_is_stored() -> None:
    schedule = hrevolve(CHAIN, PLATFORM)
    assert with_adjoint_checkpoints(schedule, PLATFORM, inf, level=1) == schedule


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


@pytest.mark.parametrize("every", [0, inf])
def test_an_adjoint_read_from_elsewhere_leaves_one_to_come_back_to(every: float) -> None:
    schedule = resume(CHAIN, PLATFORM, [{a(3)}, {a(4), a(5), x(0)}])
    made = with_adjoint_checkpoints(schedule, PLATFORM, every, level=1)
    assert list(made.actions[:2]) == [Read(a(3), 0), Discard(a(5), 1)]
    machine = Machine(CHAIN, PLATFORM, made.stored)
    there = list[int]()
    for action in made.actions:
        machine.apply(action)
        there.append(len(adjoints(machine.stored[1])))
    assert all(there[:-1])
    assert max(there[1:]) == (2 if every == 0 else 1)
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


@pytest.mark.parametrize("every", [-1, float("nan"), "soon"])
def test_what_is_no_interval_is_refused(every: float) -> None:
    with pytest.raises(BadInput, match=r"every = .*number of seconds"):
        with_adjoint_checkpoints(hrevolve(CHAIN, PLATFORM), PLATFORM, every, level=1)


def test_what_cannot_be_done_is_said() -> None:
    schedule = hrevolve(CHAIN, PLATFORM)
    with pytest.raises(BadInput, match="level = 2"):
        with_adjoint_checkpoints(schedule, PLATFORM, 1, level=2)
    with pytest.raises(BadInput, match="stores adjoints already"):
        with_adjoint_checkpoints(
            with_adjoint_checkpoints(schedule, PLATFORM, 1, level=1), PLATFORM, 1, level=1
        )
    with pytest.raises(BadInput, match="leaves the adjoint at 6"):
        with_adjoint_checkpoints(Schedule(CHAIN, [Advance(0, 3)]), PLATFORM, 1, level=1)
