"""Resuming from stored keys: against exhaustive search, and against simpler ways."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from math import inf
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from oracles.exhaustive import least_makespan

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.columns import DISCARD
from ckio.errors import BadInput, NoSchedule
from ckio.planners.base import Planner
from ckio.planners.binomial import revolve
from ckio.planners.dp import hrevolve, mixed
from ckio.planners.resume import recurrence, resume, with_discards
from ckio.planners.trivial import periodic, recompute_all, store_all
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan
from ckio.testing import a, t, x

from .cases import RESTART, TAPE, chain, chains, completed, level, platform, platforms

Stored = list[set[Key]]
Case = tuple[Chain, Platform, Stored, int | None]


def checked_seconds(schedule: Schedule, platform: Platform, state: int | None) -> float:
    """The makespan of a schedule that is seen to be legal from this state, and leaves nothing."""
    lead = [Advance(0, state)] if state else []
    completed(Schedule(schedule.chain, [*lead, *schedule.actions], schedule.stored), platform)
    check_discards(schedule)
    return makespan(schedule, platform)


def check_discards(schedule: Schedule) -> None:
    """Discards follow the last read of their key, or come first of all for what is not read."""
    actions = list(schedule.actions)
    begun = False
    for before, action in pairwise([None, *actions]):
        if not isinstance(action, Discard):
            begun = True
        elif begun:
            assert before == Read(action.key, action.level)
    for number, keys in enumerate(schedule.stored):
        for key in keys:
            assert Discard(key, number) in actions


def resumed(
    chain: Chain, platform: Platform, stored: Stored, state: int | None = 0, *, tapes: bool = False
) -> float:
    """The makespan from what is stored; infinite if there is no schedule."""
    try:
        schedule = resume(chain, platform, stored, state=state, tapes=tapes)
    except NoSchedule:
        return inf
    return checked_seconds(schedule, platform, state)


def exhaustive(
    chain: Chain, platform: Platform, stored: Stored, state: int | None, *, tapes: bool
) -> float:
    """The same by exhaustive search."""
    keys = [frozenset(key for key in here if key.kind is not Kind.ADJOINT) for here in stored]
    adjoint, seconds = (chain.length if state == chain.length else None), 0.0
    adjoints = list[tuple[int, float]]()
    for k, here in enumerate(stored):
        for key in here - keys[k]:
            size = chain.nbytes(key)
            seconds += platform.levels[k].discard(size)
            adjoints.append((key.step, platform.levels[k].read(size)))
    if adjoints:
        adjoint, read = min(adjoints)
        seconds += read
    return seconds + least_makespan(
        chain, platform, tapes=tapes, stored=keys, state=state, adjoint=adjoint
    )


def small_case(
    random: Random, *, levels: int, most_steps: int, tape_keys: bool = True, differing: bool = True
) -> Case:
    """Whole costs in any order, steps that differ or not, and up to five keys, some of them twice.

    The register holds one tape or several.
    """
    steps, costs = random.randint(1, most_steps), random.choice([2, 4, 7])
    seconds_differ, sizes_differ = (differing and random.random() < 0.4 for _ in range(2))

    def each(low: int, high: int, differ: bool) -> Any:
        return (
            [random.randint(low, high) for _ in range(steps)]
            if differ
            else random.randint(low, high)
        )

    case = Chain(
        steps=steps,
        advance=each(1, 4, seconds_differ),
        record=each(0, 7, seconds_differ),
        reverse=each(0, 2, seconds_differ),
        restart=each(1, 3, sizes_differ),
        tape=each(1, 3, sizes_differ),
        adjoint=1,
    )
    restart, tape = case.largest("restart"), case.largest("tape")
    machine = Platform(
        tuple(
            Level(
                name=f"level{number}",
                capacity=random.choice([None, *[random.randint(0, 3) * restart + 1] * 4]),
                write=Affine(random.randint(0, costs), random.choice([0, 0, 1])),
                read=Affine(random.randint(0, costs), random.choice([0, 0, 1])),
                discard=Affine(random.choice([0, 0, 1])),
            )
            for number in range(levels)
        ),
        working_memory=random.choice([tape, tape, 2 * tape, None]) if tape_keys else tape,
    )
    stored: Stored = [set() for _ in range(levels)]
    kinds = [x, x, t] if tape_keys else [x]
    for _ in range(random.randint(0, 5)):
        put(random, case, machine, stored, random.choice(kinds)(random.randrange(steps)))
    for _ in range(random.choice([0, 0, 0, 1, 2])):
        put(random, case, machine, stored, a(random.randint(1, steps)))
    return case, machine, stored, random.choice([0, 0, None, random.randint(0, steps)])


def put(random: Random, chain: Chain, platform: Platform, stored: Stored, key: Key) -> None:
    """Store a key on some level if it fits there."""
    number = random.randrange(len(stored))
    capacity = platform.levels[number].capacity
    used = sum(map(chain.nbytes, stored[number] | {key}))
    if capacity is None or used <= capacity:
        stored[number].add(key)


def losses(*, levels: int, most_steps: int, cases: int, seed: int) -> list[float]:
    """What is lost to the best schedule in so many cases, each as a part of its makespan."""
    random, lost = Random(seed), list[float]()
    for number in range(cases):
        case = small_case(random, levels=levels, most_steps=most_steps)
        tapes = number % 2 == 1
        best = exhaustive(*case, tapes=tapes)
        chain, machine, stored, state = case
        try:
            schedule = resume(chain, machine, stored, state=state, tapes=tapes)
        except NoSchedule:
            assert best == inf, (case, tapes)
            continue
        seconds = checked_seconds(schedule, machine, state)
        assert seconds >= best, (case, tapes)
        if not case[0].varies and not any(
            key.kind is Kind.TAPE for here in case[2] for key in here
        ):
            assert seconds == best, (case, tapes)
        lost.append(seconds / best - 1 if seconds > best else 0.0)
    return lost


@pytest.mark.parametrize(("levels", "most_steps", "cases"), [(1, 6, 30), (2, 4, 10)])
def test_a_plan_of_equal_steps_from_restart_keys_is_the_best(
    levels: int, most_steps: int, cases: int
) -> None:
    lost = losses(levels=levels, most_steps=most_steps, cases=cases, seed=1)
    assert sum(lost) < 0.05 * len(lost)


def in_blocks(
    chain: Chain,
    platform: Platform,
    stored: Stored,
    state: int | None,
    *,
    tapes: bool = False,
    most: int,
) -> float:
    """The makespan with at most so many blocks; infinite if there is no schedule."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recurrence, "_MOST_BLOCKS", most)
        return resumed(chain, platform, stored, state, tapes=tapes)


def test_a_register_of_several_tapes_and_few_blocks_never_beat_the_best() -> None:
    for most, tapes in product((512, 2), (False, True)):
        random = Random(7)
        for _ in range(6):
            case, machine, stored, state = small_case(random, levels=2, most_steps=4)
            kept = [{key for key in here if key.kind is not Kind.ADJOINT} for here in stored]
            seconds = in_blocks(case, machine, kept, state, tapes=tapes, most=most)
            assert seconds >= exhaustive(case, machine, kept, state, tapes=tapes)


def test_a_state_below_all_keys_is_stored_if_the_first_steps_need_it() -> None:
    # No level can store x_0, x_1 is in the register, and the tape of step 0 is stored.
    sizes, costs = [3, 1, 2, 2, 2, 2], [3, 1, 1, 3, 3]
    case = Chain(steps=5, advance=4, record=4, reverse=1, restart=sizes[:-1], tape=costs, adjoint=1)
    near = Level(name="near", capacity=4, read=Affine(2, 1))
    far = Level(name="far", capacity=7, write=Affine(4), read=Affine(3))
    assert resumed(case, Platform((near, far), working_memory=3), [{t(0)}, {x(4)}], 1) < inf


COUNTEREXAMPLE = (
    chain(5, advance=1, record=1),
    Platform((level("near", 1, 0, 0), level("far", 1, 100, 0)), working_memory=TAPE),
)


def test_dropping_a_key_before_its_segment_is_finished_can_pay() -> None:
    # x_1 is read, dropped to make room for x_2, and step 1 is reached from x_0 in the end; 11 s
    # where each key finishes the steps up to the next one.
    case, machine = COUNTEREXAMPLE
    assert resumed(case, machine, [{x(1)}, {x(0)}], None) == 10


def comb(random: Random, steps: int, near: int, far: int) -> Stored:
    """Keys here and there, with x_0 on the far level."""
    return [
        {x(random.randrange(1, steps)) for _ in range(near)},
        {x(0), *(x(random.randrange(1, steps)) for _ in range(far))},
    ]


def test_a_fresh_model_with_nothing_stored_is_planned_like_hrevolve() -> None:
    for steps in (1, 2, 9, 40, 200):
        for machine in (platform((3, 2, 1)), platform((2, 1, 0), (None, 3, 4))):
            best = makespan(hrevolve(chain(steps), machine), machine)
            assert resumed(chain(steps), machine, []) == best


@pytest.mark.parametrize("keys", [0, 6])
def test_tapes_make_nothing_slower(keys: int) -> None:
    case, machine = chain(60, advance=1, record=1), platform((4, 0, 0), (None, 3, 3))
    stored: Stored = [set(), {x(9 * step) for step in range(keys)}]
    with_tapes = resumed(case, machine, stored, tapes=True)
    assert with_tapes < resumed(case, machine, stored)
    writes = resume(case, machine, stored, tapes=True).actions
    assert any(isinstance(act, Write) and act.key.kind is Kind.TAPE for act in writes)
    restarts = resume(case, machine, stored).actions
    assert all(act.key.kind is Kind.RESTART for act in restarts if isinstance(act, Write))


def test_the_adjoint_that_has_come_furthest_is_read_first_and_all_are_discarded() -> None:
    machine = platform((2, 1, 1), (None, 3, 3))
    schedule = resume(chain(9), machine, [set(), {a(7), a(3), x(5), x(0), a(9)}])
    unread = [Discard(key, 1) for key in (a(7), a(9), x(0), x(5))]
    assert list(schedule.actions[:6]) == [*unread, Read(a(3), 1), Discard(a(3), 1)]
    assert [act.begin for act in schedule.actions if isinstance(act, Reverse)] == [2, 1, 0]
    assert checked_seconds(schedule, machine, 0) > 0


def test_an_adjoint_at_0_leaves_nothing_to_do() -> None:
    schedule = resume(chain(9), platform((2, 1, 1)), [{a(0)}], state=None)
    assert list(schedule.actions) == [Read(a(0), 0), Discard(a(0), 0)]


def test_a_tape_of_the_last_step_is_of_use_once_the_end_was_reached() -> None:
    case, machine = chain(2, record=9), platform((4, 0, 0))
    there = list(resume(case, machine, [{t(1), t(0)}], state=2).actions)
    expected: list[Action] = []
    for step in (1, 0):
        expected += [Read(t(step), 0), Discard(t(step), 0), Reverse(step, step + 1)]
    assert there == expected
    # Recording is dearer than to advance and to read the tape: the end is reached for that.
    fresh = list(resume(case, machine, [{t(1), t(0)}]).actions)
    assert fresh == [Advance(0, 2), *expected]
    cheap = chain(2, record=0.5)
    assert Discard(t(1), 0) == resume(cheap, machine, [{t(1), t(0)}]).actions[0]


def test_of_an_adjoint_on_two_levels_the_quicker_one_is_read() -> None:
    machine = platform((9, 0, 100), (None, 0, 1))
    schedule = resume(chain(9), machine, [{a(3)}, {a(3), x(0)}])
    assert Read(a(3), 1) in schedule.actions
    assert Read(a(3), 0) not in schedule.actions


def test_nothing_in_the_register_and_nothing_that_covers_step_0_leaves_no_schedule() -> None:
    with pytest.raises(NoSchedule, match=r"before 3 cannot .* because x_0 is neither stored"):
        resume(chain(9), platform((4, 1, 1)), [{x(3), x(5)}], state=None)
    with pytest.raises(NoSchedule, match=r"before 200 cannot .* start with a fresh model"):
        resume(chain(900), platform((4, 1, 1)), [{x(300), x(500)}], state=200)
    with pytest.raises(NoSchedule, match="level0 offers 0"):
        resume(chain(900), platform((0, 1, 1)), [])


REFUSED: list[tuple[Stored, int, str]] = [
    ([{x(10)}], 0, "x_10 on level level0 is after the end of the chain, which has 9 steps"),
    ([{t(9)}], 0, "t_9 on level level0 is after the end"),
    ([set(), set()], 0, "keys for 2 levels; the platform has only 1"),
    ([{Key(Kind.RESTART, 3, "u")}], 0, "x_3.u on level level0 is a single variable"),
    ([{x(1), x(2), x(3)}], 0, "occupy 9 bytes; its capacity is 6"),
    ([], 10, "state = 10; it must be from 0 to 9"),
    ([], -1, "state = -1"),
]


def test_what_cannot_be_stored_or_held_is_refused() -> None:
    for stored, state, said in REFUSED:
        with pytest.raises(BadInput, match=said):
            resume(chain(9), platform((2, 1, 1)), stored, state=state)


def test_a_state_at_the_end_of_the_chain_is_stored_for_nothing() -> None:
    schedule = resume(chain(9), platform((2, 1, 1)), [{x(9)}])
    assert schedule.actions[0] == Discard(x(9), 0)


def varied(steps: int, seed: int) -> Chain:
    random = Random(seed)
    costs = {name: [random.randint(1, 9) for _ in range(steps)] for name in ("advance", "reverse")}
    return Chain(
        steps=steps,
        **costs,
        record=[cost + 1 for cost in costs["advance"]],
        restart=RESTART,
        tape=TAPE,
        adjoint=5,
    )


@pytest.mark.slow
def test_keys_of_a_long_chain_whose_steps_differ_are_of_use() -> None:
    machine, steps = platform((9, 1, 1), (None, 4, 4)), 300
    for state in (0, None, steps):
        case = varied(steps, 1)
        stored: Stored = [{x(290)}, {x(step) for step in range(0, steps, 37)}]
        schedule = resume(case, machine, stored, state=state)
        alone = resume(case, machine, [set(), {x(0)}], state=state)
        assert checked_seconds(schedule, machine, state) < 0.95 * makespan(alone, machine)
    taped = resume(case, machine, [{t(299), t(298), t(297)}, {x(0)}], state=steps)
    assert list(taped.actions[:2]) == [Read(t(299), 0), Discard(t(299), 0)]
    assert checked_seconds(taped, machine, steps) > 0


def test_of_steps_that_differ_all_tapes_are_kept_where_there_is_room() -> None:
    case, machine = varied(90, 2), platform((None, 0, 0))
    best = makespan(store_all(case, machine), machine)
    assert resumed(case, machine, [{x(30)}], tapes=True) <= best


@pytest.mark.campaign
@pytest.mark.parametrize(("steps", "seed"), [(500, 0), (900, 0), (900, 1), (900, 2)])
def test_blocks_of_several_steps_lose_little(steps: int, seed: int) -> None:
    case, machine = chain(steps, advance=1), platform((5, 0, 0), (None, 3, 3))
    stored = comb(Random(seed), steps, 2, 12)
    best = resumed(case, machine, stored)
    assert in_blocks(case, machine, stored, 0, most=128) < 1.05 * best


FAR = [
    platform((5, 0.02, 0.02)),
    platform((10, 0.02, 0.02), (50, 0.5, 0.4)),
    platform((50, 0.02, 0.02), (300, 0.5, 0.4)),
    platform((20, 0.02, 0.02), (60, 0.5, 0.4), (None, 3, 2)),
]


@pytest.mark.campaign
@pytest.mark.parametrize("machine", FAR)
def test_segments_alone_are_as_good_as_planners_that_know_nothing_else(machine: Platform) -> None:
    case = chain(900, advance=1, record=1.2)
    # Where tapes lie among many restart keys, they count as more units than they take.
    for planner, tapes, worst in ((hrevolve, False, 1.001), (mixed, True, 1.04)):
        best = makespan(planner(case, machine), machine)
        found = in_blocks(case, machine, [], 0, tapes=tapes, most=256)
        assert 1 - 1e-12 < found / best < worst


def test_segments_use_a_far_level_below_keys_on_a_nearer_one() -> None:
    # Too few slots are near for 1500 steps between keys, and enough are far.
    machine = platform((6, 0, 0), (8, 0.5, 0.5), (None, 3, 3))
    case, stored = chain(3000, advance=1), [set[Key](), {x(0), x(1500)}, set[Key]()]
    schedule = resume(case, machine, stored, state=3000)
    assert any(isinstance(act, Write) and act.level == 2 for act in schedule.actions)
    halves = [makespan(hrevolve(chain(1500, advance=1), machine), machine)] * 2
    assert checked_seconds(schedule, machine, 3000) < 1.02 * sum(halves)


def test_where_the_register_holds_several_tapes_they_are_recorded_at_once() -> None:
    case = chain(9, advance=1, record=1.5)
    machine = platform((2, 1, 1), tapes=3)
    one = Platform(machine.levels, working_memory=TAPE)
    plain = resumed(case, one, [{x(0)}], None, tapes=True)
    assert resumed(case, machine, [{x(0)}], None, tapes=True) < plain
    for seed in range(10):
        random = Random(seed)
        steps, held = random.randint(2, 20), random.randint(2, 6)
        case = chain(steps, advance=1, record=random.choice([0.5, 1, 1.5]))
        machine = platform((random.randint(1, 4), 1, 0.5), tapes=held)
        best = makespan(mixed(case, machine), machine)
        assert resumed(case, machine, [], tapes=True) <= best * (1 + 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    "machine",
    [
        platform((20, 0, 0), (None, 1, 1)),
        platform((40, 0, 0), (300, 1, 1)),  # so many that those on the far level count as kept
        platform((1500, 1, 1)),  # so many that only some are planned with
    ],
)
def test_hundreds_of_keys_are_used_in_segments_and_are_of_use(machine: Platform) -> None:
    case, far = chain(4000, advance=1, record=1), len(machine.levels) - 1
    keys = {x(step) for step in range(0, 4000, 14)}
    stored: Stored = [*[{x(3991 + step) for step in range(3)}] * far, keys]
    schedule = resume(case, machine, stored, state=4000)
    alone = resume(case, machine, [*stored[:far], {x(0)}], state=4000)
    assert checked_seconds(schedule, machine, 4000) < makespan(alone, machine)


def test_a_level_that_is_slow_to_read_is_not_left_out_beside_several_small_ones() -> None:
    machine = platform((8, 4, 4), (12, 2, 3), (8, 2, 1), (None, 1, 50))
    schedule = resume(chain(18), machine, [set(), set(), set(), {x(0)}])
    assert checked_seconds(schedule, machine, 0) <= makespan(hrevolve(chain(18), machine), machine)


def test_levels_that_hold_nothing_and_can_hold_nothing_change_nothing() -> None:
    useless = Level(name="useless", capacity=RESTART - 1)
    for machine in (platform((2, 0, 0), (2, 0, 0)), platform((2, 1, 2), (None, 0, 0))):
        stored: Stored = [{x(1), x(4)}, {x(0)}]
        expected = resume(chain(7, advance=0), machine, stored)
        for place in range(3):
            levels, keys = list(machine.levels), list(stored)
            levels.insert(place, useless)
            keys.insert(place, set())
            more = replace(machine, levels=tuple(levels))
            schedule = resume(chain(7, advance=0), more, keys)
            assert makespan(schedule, more) == makespan(expected, machine)
            names = [[*act_levels(schedule, more)], [*act_levels(expected, machine)]]
            assert names[0] == names[1]


def act_levels(schedule: Schedule, platform: Platform) -> Iterator[tuple[Action, str]]:
    """Every action as if on the first level, with the name of the level that it is on."""
    for action in schedule.actions:
        match action:
            case Write() | Read() | Discard():
                yield replace(action, level=0), platform.levels[action.level].name
            case _:
                yield action, ""


def test_no_level_is_needed_where_nothing_is_left_to_store() -> None:
    assert checked_seconds(resume(chain(1), platform(), []), platform(), 0) >= 0
    with pytest.raises(NoSchedule, match="the platform has no level"):
        resume(chain(900), platform(), [])


@pytest.mark.parametrize("planner", [hrevolve, revolve, periodic, recompute_all, store_all])
@settings(max_examples=10)
@given(chains(), platforms())
def test_discards_come_where_planners_put_them(
    planner: Planner, chain: Chain, platform: Platform
) -> None:
    schedule = planner(chain, platform)
    actions = schedule.actions
    without = replace(schedule, actions=actions.take(actions.op != DISCARD))
    assert with_discards(without) == schedule


def test_what_is_stored_and_not_read_goes_first() -> None:
    actions = [
        Advance(0, 1),
        Write(x(1), 0),
        Record(1, 2),
        Reverse(1, 2),
        Read(x(1), 0),
        Read(t(0), 1),
        Reverse(0, 1),
    ]
    schedule = with_discards(Schedule(chain(2), actions, [[x(1), x(2)], [t(0)]]))
    assert list(schedule.actions) == [
        Discard(x(1), 0),
        Discard(x(2), 0),
        *actions[:5],
        Discard(x(1), 0),
        actions[5],
        Discard(t(0), 1),
        actions[6],
    ]


def test_checkpoints_of_which_each_takes_one_byte_are_counted_one_by_one() -> None:
    """A level with a codec rounds each of them up, so that the sum is not that of their bytes."""
    chain = Chain(steps=50, advance=1, record=0, reverse=1, restart=86, tape=0, adjoint=0)
    level = Level(name="slots", capacity=7, write=Affine(2), read=Affine(2), ratio=1e-18)
    stored = [[Key(Kind.RESTART, step) for step in (0, 32, 48)]]
    platform = Platform((level,))
    completed(resume(chain, platform, stored), platform)


# Levels from which something is only read


READ_ONLY = Level(name="memory", read_only=True)


def some_steps(steps: int, *, varies: bool) -> Chain:
    costs: Any = [1.0 + step % 3 for step in range(steps)] if varies else 1.0
    return Chain(steps=steps, advance=costs, record=costs, reverse=1, restart=7, tape=7, adjoint=7)


def test_all_steps_are_reached_from_a_read_only_level_where_there_is_no_other() -> None:
    only, writable = (
        Platform((replace(READ_ONLY, read_only=read_only, capacity=7),), 7)
        for read_only in (True, False)
    )
    for steps, varies in product((1, 2, 6, 90), (False, True)):
        chain = some_steps(steps, varies=varies)
        schedule = resume(chain, only, [frozenset({x(0)})], state=None)
        reads = [action.key for action in schedule.actions if isinstance(action, Read)]
        assert reads == steps * [x(0)]
        least = makespan(recompute_all(chain, writable), writable)
        assert checked_seconds(schedule, only, None) == least


@pytest.mark.campaign
@pytest.mark.parametrize("steps", [6, 20, 90])
def test_what_a_read_only_level_holds_is_of_use_and_nothing_is_written_there(steps: int) -> None:
    middle = steps // 2
    for slots, varies, tapes in product((0, 1, 3), (False, True), (False, True)):
        chain = some_steps(steps, varies=varies)
        far = Level(name="far", capacity=7 * slots, write=Affine(0.25), read=Affine(0.25))
        near = Platform((far, READ_ONLY), 7)
        with_it = [frozenset[Key](), frozenset({x(middle), a(middle + 2)})]
        if not slots:  # x_0 is only in the register
            with pytest.raises(NoSchedule):
                resume(chain, near, with_it, tapes=tapes)
            continue
        schedule = resume(chain, near, with_it, tapes=tapes)
        seconds = checked_seconds(schedule, near, 0)  # a write there would be illegal
        assert Read(x(middle), 1) in list(schedule.actions)
        without = [frozenset[Key](), frozenset({a(middle + 2)})]
        assert seconds < checked_seconds(resume(chain, near, without, tapes=tapes), near, 0)
