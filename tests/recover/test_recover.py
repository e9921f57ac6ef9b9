"""Recovery: from whatever a kill leaves behind to the end, with an adjoint to come back to."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from random import Random

import pytest
from hypothesis import given
from oracles.costs import seconds

from ckio.actions import Action, Discard, Key, Kind, Read, Write
from ckio.errors import BadInput, NoSchedule
from ckio.jobs.adjoints import kill_seconds
from ckio.planners.recovery import fitting, recover, with_adjoint_checkpoints
from ckio.planners.resume import resume
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan
from ckio.schedule.machine import Machine
from ckio.schedule.replay import validate

from .cases import (
    ALL,
    RANDOMS,
    RESTART_ONLY,
    WITH_TAPES,
    Case,
    a,
    adjoints,
    drawn_case,
    t,
    x,
)

CHAIN = Chain(steps=9, advance=4, record=1, reverse=2, restart=2, tape=1, adjoint=3)
RAM = Level(name="ram", capacity=4)
DISK = Level(name="disk", capacity=12, write=Affine(5), read=Affine(5), discard=Affine(1))
PLATFORM = Platform((RAM, DISK))


def check(schedule: Schedule, platform: Platform, level: int) -> None:
    """It is legal, ends with nothing stored, and never lets go of the last adjoint that it has."""
    machine = Machine(schedule.chain, platform, schedule.stored)
    had = any(map(adjoints, machine.stored))
    for action in schedule.actions[:-1]:
        machine.apply(action)
        held = [adjoints(keys) for keys in machine.stored]
        assert any(held) or not had
        had = any(held)
        if machine.reversed:
            # On each other level there may be one to come back to, until the next is written here.
            assert all(len(keys) <= 1 + (number == level) for number, keys in enumerate(held))
    end = validate(schedule, platform)
    assert end.adjoint == 0
    assert not any(end.stored)


def killed_again_and_again(case: Case, random: Random) -> None:
    """Kill at any instant, recover, kill the recovery, until one is left alone."""
    rest, schedule = case.recovering(), case.schedule
    check(schedule, case.platform, case.level)
    for _ in range(4):
        survivors = random.choice([*case.kills(schedule), (frozenset(),) * len(schedule.stored)])
        schedule = rest(survivors)
        assert schedule.stored == Schedule(case.chain, [], survivors).stored
        check(schedule, case.platform, case.level)


def test_a_state_that_a_stored_tape_makes_useless_is_not_stored() -> None:
    """A leg begins with x_0 in the register, but its first step is reversed from its tape."""
    record = [1.0] + 10 * [0.0] + [1.0]
    chain = Chain(steps=12, advance=1, record=record, reverse=0, restart=1, tape=1, adjoint=1)
    near = Level(name="near", discard=Affine(1))
    machine = Platform((near, Level(name="far", read=Affine(1))), working_memory=1)
    made = recover(chain, machine, [{x(1), t(0)}], level=0, every=0)
    check(made, machine, 0)
    assert not any(action == Write(x(0), 0) for action in made.actions)


@given(RANDOMS)
def test_however_often_it_is_killed_it_comes_to_the_end(random: Random) -> None:
    case = drawn_case(random, RESTART_ONLY | WITH_TAPES, most_steps=8)
    killed_again_and_again(case, random)


def actions(
    survivors: Sequence[set[Key]], *, platform: Platform = PLATFORM, every: float = inf
) -> list[Action]:
    made = recover(CHAIN, platform, survivors, level=1, every=every)
    check(made, platform, 1)
    return list(made.actions)


def test_the_furthest_adjoint_is_read_first_of_all_and_the_others_go() -> None:
    made = actions([set(), {a(5), a(7), x(0)}])
    assert made[:2] == [Read(a(5), 1), Discard(a(7), 1)]
    assert made[-1] == Discard(a(5), 1)


def test_of_two_copies_the_one_on_the_level_is_kept() -> None:
    made = actions([{a(5)}, {a(5), x(0)}])
    assert made[:2] == [Read(a(5), 1), Discard(a(5), 0)]


def test_an_adjoint_on_another_level_keeps_its_room_there() -> None:
    made = actions([{a(5)}, {x(0)}], every=0)
    next_written = made.index(Write(a(4), 1))
    assert made[next_written + 1] == Discard(a(5), 0)
    assert not any(
        isinstance(action, Write) and action.level == 0 for action in made[:next_written]
    )


def test_an_adjoint_on_a_third_level_stays_until_the_next_one_is_written() -> None:
    third = replace(DISK, name="third", capacity=6)
    platform = Platform((replace(RAM, capacity=8), DISK, third))
    survivors = [{a(5)}, {x(0)}, {a(6), a(7)}]
    for every in (0, inf):
        made = recover(CHAIN, platform, survivors, level=1, every=every)
        check_of(made, platform, (1, 2))
        assert list(made.actions)[:2] == [Read(a(5), 0), Discard(a(7), 2)]
    assert list(made.actions)[-2:] == [Discard(a(5), 0), Discard(a(6), 2)]


def test_where_none_can_be_written_the_adjoint_stays_to_the_end() -> None:
    tight = replace(PLATFORM, levels=(RAM, replace(DISK, capacity=5)))
    made = recover(CHAIN, tight, [[], {a(5), x(2)}], level=None, every=1)
    check_of(made, tight, (1,))
    assert list(made.actions)[-1] == Discard(a(5), 1)
    assert not any(isinstance(it, Write) and it.key.kind is Kind.ADJOINT for it in made.actions)


def check_of(schedule: Schedule, platform: Platform, durable: Sequence[int]) -> None:
    """On these levels there is always an adjoint, until all is reversed; nothing is left then."""
    machine = Machine(schedule.chain, platform, schedule.stored)
    for action in schedule.actions:
        assert machine.adjoint == 0 or any(adjoints(machine.stored[level]) for level in durable)
        machine.apply(action)
    assert not any(machine.stored)


def dropped(survivors: Sequence[set[Key]], adjoint: Key | None, *, room: int) -> list[Key]:
    """What goes where the disk has room for so many bytes, in its order."""
    smaller = replace(PLATFORM, levels=(RAM, replace(DISK, capacity=room)))
    place = None if adjoint is None else (adjoint, 1)
    kept, gone = fitting(CHAIN, smaller, tuple(map(frozenset, survivors)), place)
    assert kept[1] | {discard.key for discard in gone} == survivors[1]
    return [discard.key for discard in gone]


def test_of_survivors_that_do_not_fit_those_go_that_save_the_least() -> None:
    keys = [set[Key](), {x(0), x(1), x(4), x(5), x(8)}]
    assert dropped(keys, None, room=10) == []
    assert dropped(keys, None, room=9) == [x(5)]
    assert dropped(keys, None, room=7) == [x(5), x(1)]
    # From x_8 the next step is reversed: a run that is stopped there again and again is to go on.
    assert dropped(keys, None, room=1) == [x(5), x(1), x(4), x(8), x(0)]


def test_what_is_above_the_adjoint_or_lies_elsewhere_too_goes_first() -> None:
    keys = [{x(4)}, {x(0), x(2), x(3), x(4), x(6), a(6)}]
    assert dropped(keys, a(6), room=4) == [x(6), x(4), x(3)]


def test_a_tape_is_worth_its_step_and_the_way_there() -> None:
    keys = [set[Key](), {x(0), x(4), t(4), t(7)}]  # t is of one byte, x of two
    assert dropped(keys, None, room=5) == [t(4)]
    assert dropped(keys, None, room=4) == [t(4), t(7)]
    keys[1].add(a(8))
    assert dropped(keys, a(8), room=4) == [t(4), x(4)]  # the next step is reversed from t_7
    assert dropped(keys, a(8), room=2) == [t(4), x(4), t(7)]
    keys = [set[Key](), {x(0), x(5), t(5), t(6)}]  # from x_5, t_5 is one step away and t_6 two
    assert dropped(keys, None, room=5) == [t(5)]


def test_survivors_that_lie_in_the_room_of_the_adjoints_make_way() -> None:
    made = actions([set(), {x(0), x(1), x(4), x(5), x(8)}], every=0)
    assert made[:2] == [Discard(x(5), 1), Discard(x(1), 1)]
    assert set(made).issuperset(Read(key, 1) for key in (x(0), x(4), x(8)))


def test_of_what_has_come_to_the_end_nothing_is_left_to_do() -> None:
    made = actions([{x(3)}, {x(0), a(0), a(1)}])
    gone = [Discard(a(1), 1), Discard(x(3), 0), Discard(x(0), 1), Discard(a(0), 1)]
    assert made == [Read(a(0), 1), *gone]


def test_without_survivors_it_is_the_plan_of_a_fresh_run() -> None:
    made = recover(CHAIN, PLATFORM, [], level=1, every=4)
    planned = resume(CHAIN, replace(PLATFORM, levels=(RAM, replace(DISK, capacity=6))), [])
    assert made == with_adjoint_checkpoints(planned, PLATFORM, 4, level=1)


def test_tapes_are_stored_only_where_that_is_said() -> None:
    cheap = replace(CHAIN, advance=9, restart=4)
    roomy = Platform((replace(RAM, capacity=50), DISK), working_memory=cheap.tape)
    for tapes in (False, True):
        made = recover(cheap, roomy, [[], [a(7)]], level=1, every=inf, tapes=tapes)
        kinds = {action.key.kind for action in made.actions if isinstance(action, Write)}
        assert (Kind.TAPE in kinds) == tapes


def test_what_cannot_be_recovered_is_said() -> None:
    with pytest.raises(NoSchedule, match="two adjoints need 6 bytes on level ram"):
        recover(CHAIN, PLATFORM, [], level=0, every=1)
    with pytest.raises(NoSchedule, match="needs a level with space for one checkpoint"):
        recover(CHAIN, Platform((replace(DISK, capacity=6),)), [], level=0, every=1)
    for survivors, said in (
        ([{x(10)}], "after the end of the chain"),
        ([[], map(x, range(10))], "occupy 20 bytes"),
        ([[], [], []], "keys for 3 levels"),
        ([[Key(Kind.RESTART, 0, "u")]], "a single variable"),
    ):
        with pytest.raises(BadInput, match=said):
            recover(CHAIN, PLATFORM, survivors, level=1, every=1)


@pytest.mark.campaign
@pytest.mark.parametrize("seeds", [range(1, 9), range(80)], ids=len)
def test_most_kills_cost_no_more_than_is_estimated(seeds: range) -> None:
    """With a few checkpoints written once more, some cost more: the estimate is no bound."""
    kills, more = 0, 0
    for seed in seeds:
        case = drawn_case(Random(seed), ALL, most_steps=9)
        if case.every == inf:
            continue
        rest, schedule, done = case.recovering(), case.schedule, 0.0
        told = kill_seconds(case.chain, case.platform, case.level, case.every)
        total = makespan(schedule, case.platform)
        for stored, action in zip(case.kills(schedule), schedule.actions, strict=True):
            costs = done + makespan(rest(stored), case.platform) - total
            kills, more = kills + 1, more + (costs > told)
            done += seconds(action, case.chain, case.platform)
    assert 0 < more < 0.1 * kills
