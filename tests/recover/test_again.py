"""What was killed is taken up again, from any instant, and costs no more than is said of it."""

from dataclasses import replace
from functools import cache
from math import inf
from random import Random

import pytest

from ckio.actions import Action, Advance, Discard, Key, Read, Record, Reverse, Write
from ckio.errors import NoSchedule
from ckio.planners.recover import (
    Killed,
    furthest,
    recover,
    redone_at_most,
    with_adjoint_checkpoints,
)
from ckio.planners.recover.killed import taken_up
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan, seconds
from ckio.schedule.replay import validate

from .cases import ALL, Case, Stored, a, drawn_case, x


def drawn(seed: int, *, most_steps: int) -> Case:
    """A case of any planner; in one of three the steps differ."""
    return drawn_case(Random(seed), ALL, most_steps=most_steps)


def bound_of(case: Case, schedule: Schedule) -> float:
    return redone_at_most(schedule, case.platform, case.durable, level=case.level, every=case.every)


def taking_up(case: Case, schedule: Schedule) -> list[Schedule]:
    """The rest of a schedule for a kill at each instant; it holds to the bound, and is legal."""
    bound, total, done = bound_of(case, schedule), makespan(schedule, case.platform), 0.0
    killed = Killed(schedule, case.durable)

    @cache
    def again(stored: Stored) -> Schedule | None:
        rest = taken_up(killed, case.platform, stored, furthest(stored, case.level))
        if rest is None:
            return None
        rest = with_adjoint_checkpoints(rest, case.platform, case.every, level=case.level)
        end = validate(rest, case.platform)
        assert end.adjoint == 0
        assert not any(end.stored)
        return rest

    rests = list[Schedule]()
    for stored, action in zip(case.kills(schedule), schedule.actions, strict=True):
        rest = again(stored)
        assert rest is not None or bound == inf
        if rest is not None:
            assert rest.stored == Schedule(case.chain, [], stored).stored
            assert done + makespan(rest, case.platform) - total <= bound
            rests.append(rest)
        done += seconds(action, case.chain, case.platform)
    return rests


def killed_twice(seed: int, *, most_steps: int) -> str:
    """What was taken up again is killed, and taken up again, too. Returns the planner."""
    case = drawn(seed, most_steps=most_steps)
    schedule = case.schedule
    assert bound_of(case, schedule) < inf
    rests = taking_up(case, schedule)
    taking_up(case, Random(seed).choice(rests))
    return case.planner


def test_a_kill_at_any_instant_of_any_planner_s_schedule() -> None:
    planners = {killed_twice(seed, most_steps=5) for seed in range(30)}
    assert len(planners) > len(ALL) / 2


@pytest.mark.slow
def test_a_kill_at_any_instant_of_any_planner_s_schedule_in_a_long_campaign() -> None:
    planners = {killed_twice(seed, most_steps=14) for seed in range(30, 700)}
    assert planners == set(ALL)


CHAIN = Chain(steps=6, advance=4, record=5, reverse=2, restart=2, tape=1, adjoint=1)
PLATFORM = Platform(
    (
        Level(name="ram", capacity=6, write=Affine(1), read=Affine(1)),
        Level(name="disk", capacity=8, write=Affine(3), read=Affine(2), discard=Affine(1)),
    ),
    working_memory=3,
)
BACK: list[Action] = [Record(3, 6), Reverse(3, 6), Write(a(3), 1)]
BACK += [Read(x(2), 1), Record(2, 3), Reverse(2, 3), Discard(x(2), 1)]
BACK += [Read(x(0), 0), Record(0, 2), Reverse(0, 2), Discard(x(0), 0), Discard(a(3), 1)]
PLAN = Schedule(CHAIN, [Write(x(0), 0), Advance(0, 2), Write(x(2), 1), Advance(2, 3), *BACK])
KILLED = Killed(PLAN, {1})


def rest(
    *there: Key, killed: Killed = KILLED, platform: Platform = PLATFORM
) -> list[Action] | None:
    """What is taken up with these keys on the disk."""
    stored = frozenset[Key](), frozenset(there)
    found = taken_up(killed, platform, stored, furthest(stored, 1))
    return None if found is None else list(found.actions)


def test_what_memory_held_is_written_again_on_the_way() -> None:
    body = [action for action in BACK if getattr(action, "key", None) != a(3)]
    assert rest(x(2)) == [Write(x(0), 0), Advance(0, 3), *body]
    # To x_2 it comes on its way, so that it is not read.
    begin: list[Action] = [Read(a(3), 1), Write(x(0), 0), Advance(0, 2)]
    assert rest(x(2), a(3)) == [*begin, *body[3:]]
    # Since the step is reversed that is redone, x_2 has been discarded: it is written again.
    assert rest(a(3)) == [*begin, Write(x(2), 1), *body[3:]]


def test_what_is_not_as_the_schedule_has_it_is_not_taken_up() -> None:
    assert rest(x(1)) is None
    assert rest(x(2), a(4)) is None
    assert rest(x(2), killed=Killed(PLAN, {0, 1})) is None  # x_0 is on a level that is durable
    small = replace(PLATFORM.levels[0], capacity=1)
    assert rest(x(2)) is not None
    assert rest(x(2), platform=replace(PLATFORM, levels=(small, PLATFORM.levels[1]))) is None
    assert rest(killed=Killed(Schedule(CHAIN, []), {1})) is None


def test_it_is_done_where_nothing_better_is_known() -> None:
    """The search from stored keys knows no Record of several steps; and this takes no time."""
    stored: Stored = (frozenset(), frozenset({x(2)}))
    alone = recover(CHAIN, PLATFORM, stored, level=1, every=inf)
    known = recover(CHAIN, PLATFORM, stored, level=1, every=inf, killed=KILLED)
    assert makespan(known, PLATFORM) < makespan(alone, PLATFORM)
    assert known.note == "the killed schedule, resumed"


def test_it_is_no_way_round_the_room_for_adjoints() -> None:
    """What was killed stored none: it is taken up only where none is wished."""
    small = replace(PLATFORM.levels[1], capacity=1)
    platform = replace(PLATFORM, levels=(PLATFORM.levels[0], small))
    back = [Record(3, 6), Reverse(3, 6), Read(x(2), 0), Record(2, 3), Reverse(2, 3)]
    back += [Read(x(0), 0), Record(0, 2), Reverse(0, 2), Discard(x(0), 0), Discard(x(2), 0)]
    plan = Schedule(CHAIN, [Write(x(0), 0), Advance(0, 2), Write(x(2), 0), Advance(2, 3), *back])
    killed, nothing = Killed(plan, {1}), (frozenset[Key](), frozenset[Key]())
    assert taken_up(killed, platform, nothing, None) is not None
    for told in (None, killed):
        with pytest.raises(NoSchedule, match="two adjoints need"):
            recover(CHAIN, platform, nothing, level=1, every=1.0, killed=told)
    rest = recover(CHAIN, platform, nothing, level=None, every=inf, killed=killed)
    assert validate(rest, platform).adjoint == 0
