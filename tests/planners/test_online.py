"""Chains whose end is not known: legal wherever it comes, and not much dearer than knowing it."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from random import Random
from statistics import mean

import pytest
from oracles.recurrences import revolve_forward_steps
from oracles.wang_moin import wang_moin

from ckio.actions import Action, Advance, Discard, Key, Read, Write
from ckio.errors import BadInput, NoSchedule
from ckio.planners.base import Planner
from ckio.planners.dp import hrevolve
from ckio.planners.unknown import Online, online
from ckio.planners.unknown.levels import levels
from ckio.platform import Platform
from ckio.schedule import Schedule, counts, makespan
from ckio.schedule.machine import Machine
from ckio.testing import x

from .cases import chain, completed, level, platform

MACHINES = {
    "one slot": platform((1, 0, 0)),
    "one level": platform((4, 0, 0)),
    "one costly level": platform((6, 3, 2)),
    "a level without end": platform((None, 2, 1)),
    "more slots than a comb chooses from": platform((70, 0, 0)),
    "a far level without end": platform((3, 0, 0), (None, 1, 2)),
    "one near slot": platform((1, 0, 0), (None, 2, 1)),
    "one slot on each level": platform((1, 0, 0), (1, 1, 0)),
    "a far level of two slots": platform((2, 0, 0), (2, 1, 1)),
    "a far level that fills": platform((2, 0, 0), (4, 1, 1)),
    "three levels, the far ones small": platform((2, 0, 1), (3, 2, 1), (5, 3, 4)),
    "the near level is listed last": platform((None, 9, 9), (2, 0, 0)),
}
every_machine = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)


def forward(schedule: Schedule) -> Iterator[tuple[int, Action]]:
    """What is done with the levels before the end is reached, and how far the chain was then."""
    reached = 0
    for action in schedule.actions:
        if reached == schedule.chain.length:
            return
        match action:
            case Advance(_, end):
                reached = end
            case _:
                yield reached, action


def seconds(schedule: Schedule, platform: Platform) -> float:
    chain = schedule.chain
    assert counts(schedule).reversed == counts(schedule).recorded == chain.length
    return completed(schedule, platform)


@pytest.mark.campaign
@pytest.mark.parametrize("longest", [20, 150])
def test_wherever_the_end_is_there_is_a_way_back_and_the_way_forward_is_the_same(
    longest: int,
) -> None:
    planners = (online,) if longest < 50 else (online, wang_moin)
    for planner, (name, machine) in product(planners, MACHINES.items()):
        way = list(forward(planner(chain(longest), machine)))
        lengths = (1, 2, 3, 5, 17) if longest < 50 else (4, 6, 12, 39, 64, 149)
        for steps in lengths:
            schedule = planner(chain(steps), machine)
            cost = seconds(schedule, machine)
            assert cost >= makespan(hrevolve(chain(steps), machine), machine)
            expected = [(step, action) for step, action in way if step < steps]
            found = list(forward(schedule))
            assert steps == 1 or found == expected, (name, steps)


def walk(rule: Online, steps: int) -> tuple[list[Action], tuple[frozenset[Key], ...]]:
    """A run that asks the rule at every step, as one that knows nothing but what is stored does."""
    machine = Machine(rule.chain.with_steps(steps), rule.platform)
    actions: list[Action] = []
    for step in range(steps):
        for action in (*rule.follow(step, machine.stored).at(step), Advance(step, step + 1)):
            machine.apply(action)
            actions.append(action)
    return actions, tuple(map(frozenset, machine.stored))


@every_machine
def test_a_run_that_knows_only_what_is_stored_does_the_same(machine: Platform) -> None:
    endless = replace(chain(1), steps=None)
    actions, stored = walk(Online(endless, machine), 90)
    back = Online(endless, machine).finish(90, stored)
    assert back.stored == stored or not any(stored[len(back.stored) :])
    whole = Schedule(chain(90), [*actions, *back.actions])
    assert completed(whole, machine) == makespan(online(chain(90), machine), machine)
    assert list(forward(whole)) == list(forward(online(chain(90), machine)))


def followed(rule: Online, state: Machine, end: int) -> list[Action]:
    """Go on to the end as a follower says, with what the rule says each time beside it."""
    begin = state.state
    assert begin is not None
    follower, actions = rule.follow(begin, state.stored), list[Action]()
    for step in range(begin, end):
        said = follower.at(step)
        assert list(said) == list(rule.follow(step, state.stored).at(step))
        for action in said:
            state.apply(action)
            actions.append(action)
        assert follower.until(step) == rule.follow(step, state.stored).until(step)
        state.apply(Advance(step, step + 1))
    return actions


@every_machine
def test_who_follows_a_run_says_the_same_as_who_sees_what_is_stored(machine: Platform) -> None:
    rule = Online(replace(chain(1), steps=None), machine)
    assert followed(rule, Machine(chain(150), machine), 150)


def test_a_run_is_not_followed_backward() -> None:
    follower = Online(chain(1), MACHINE).follow(7, [{x(0)}])
    with pytest.raises(BadInput, match="step 6 comes before step 7"):
        follower.at(6)


@every_machine
def test_there_is_nothing_to_do_before_the_step_that_until_names(machine: Platform) -> None:
    rule = Online(chain(1), machine)
    state, quiet = Machine(chain(300), machine), 0
    for step in range(300):
        asked = rule.follow(step, state.stored).at(step)
        assert step >= quiet or not asked
        for action in asked:
            state.apply(action)
        if step >= quiet:
            quiet = rule.follow(step, state.stored).until(step)
            assert quiet > step
        assert any(x(0) in keys for keys in state.stored)
        state.apply(Advance(step, step + 1))


@pytest.mark.campaign
@pytest.mark.parametrize("turns", [1, 4])
def test_a_run_goes_on_with_whatever_survived(turns: int) -> None:
    random = Random(3)
    for machine in MACHINES.values():
        rule = Online(chain(1), machine)
        for _ in range(turns):
            crash, end = random.randint(1, 60), random.randint(61, 90)
            survivors = [
                {key for key in keys if key == x(0) or random.random() < 0.6}
                for keys in walk(rule, crash)[1]
            ]
            found = [(key.step, here) for here, keys in enumerate(survivors) for key in keys]
            start, place = random.choice(found)  # not always the last: others are ahead of it then
            state = Machine(chain(end), machine, [*map(frozenset, survivors)])
            actions: list[Action] = [Read(x(start), place)]
            state.apply(actions[0])
            for step in range(start, end):
                for action in (*rule.follow(step, state.stored).at(step), Advance(step, step + 1)):
                    state.apply(action)
                    actions.append(action)
            back = rule.finish(end, [*map(frozenset, state.stored)])
            completed(Schedule(chain(end), [*actions, *back.actions], survivors), machine)


def test_when_the_far_level_pays_the_near_checkpoints_move_there() -> None:
    machine = platform((2, 0, 0), (None, 1, 1))
    (far,) = levels(chain(1), machine).far
    assert (far.level.number, far.first_step, far.period) == (1, 9, 3)
    done = [(step, action) for step, action in forward(online(chain(15), machine)) if step >= 6]
    assert done == [
        (6, Discard(x(3), 0)),
        (6, Write(x(6), 0)),
        (9, Write(x(9), 1)),  # x_0 and x_6 both move: there is no near slot for the state reached
        (9, Read(x(0), 0)),
        (9, Write(x(0), 1)),
        (9, Discard(x(0), 0)),
        (9, Read(x(6), 0)),
        (9, Write(x(6), 1)),
        (9, Discard(x(6), 0)),
        (9, Read(x(9), 1)),
        (10, Write(x(10), 0)),
        (11, Write(x(11), 0)),
        (12, Write(x(12), 1)),
        (13, Discard(x(10), 0)),  # from before the last far checkpoint
        (13, Write(x(13), 0)),
        (14, Discard(x(11), 0)),
        (14, Write(x(14), 0)),
    ]


def test_the_farther_of_two_far_levels_is_planned_with_all_slots_that_are_nearer() -> None:
    three = levels(chain(1), platform((2, 0, 0), (3, 1, 1), (None, 5, 5))).far
    assert three[0] == levels(chain(1), platform((2, 0, 0), (3, 1, 1))).far[0]
    (merged,) = levels(chain(1), platform((5, 0, 0), (None, 5, 5))).far
    assert (three[1].first_step, three[1].period) == (merged.first_step, merged.period)


def test_a_far_level_is_used_from_the_length_on_at_which_it_pays() -> None:
    for slots, cost in ((1, 2), (2, 1), (3, 0.5), (3, 10), (5, 4), (10, 2)):
        (far,) = levels(chain(1), platform((slots, 0, 0), (None, cost, cost))).far
        assert far.first_step == next(it for it in range(2, 1000) if pays(it, slots, cost))


def pays(steps: int, slots: int, cost: float) -> bool:
    def advances(count: int) -> int:
        return revolve_forward_steps(count, slots) - count

    split = min(m + advances(steps - m) + advances(m) for m in range(1, steps))
    return 1.5 * (cost + cost) + split < advances(steps)


def test_a_far_level_that_cannot_pay_or_be_reached_is_left_to_the_way_back() -> None:
    near = (5, 0, 0), (None, 0, 0), (1, 0, 0)
    far = (None, 1e9, 0), (None, 1, 1), (1, 1, 1)
    for pair in zip(near, far, strict=True):
        assert levels(chain(1), platform(*pair)).far == ()
    assert levels(chain(1, advance=0), platform((5, 0, 0), (None, 1, 0))).far == ()


def test_the_cheapest_level_is_the_near_one_and_those_beyond_are_filled_in_turn() -> None:
    machine = platform((6, 3, 3), (2, 0, 0), (4, 1, 1))
    used = levels(chain(1), machine)
    assert [used.near.number, *(far.level.number for far in used.far)] == [1, 2, 0]
    peaks = [counts(online(chain(steps), machine)).levels[0].peak for steps in (8, 200)]
    assert peaks[0] < peaks[1] == 6


def test_writes_grow_with_the_logarithm_of_the_chain() -> None:
    writes = [
        sum(isinstance(action, Write) for _, action in forward(online(chain(steps), MACHINE)))
        for steps in (50, 100, 200, 400, 800)
    ]
    assert all(0 < twice - once <= 2 * 5 for once, twice in pairwise(writes))


MACHINE = platform((5, 0, 0))

LENGTHS = (15, 25, 50, 100, 200)


def mean_ratio(planner: Planner, machine: Platform) -> float:
    """The makespan over that of hrevolve, which knows the end, in the mean of some lengths."""
    return mean(
        seconds(planner(chain(steps, record=1), machine), machine)
        / makespan(hrevolve(chain(steps, record=1), machine), machine)
        for steps in LENGTHS
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "most"),
    [
        (platform((3, 0, 0)), 1.08),
        (platform((5, 0, 0)), 1.06),
        (platform((20, 0, 0)), 1.05),
        (platform((20, 5, 5)), 1.1),
        (platform((None, 5, 5)), 1.1),
        (platform((3, 0, 0), (None, 0.5, 0.5)), 1.08),
        (platform((3, 0, 0), (None, 10, 10)), 1.08),
        (platform((10, 0, 0), (None, 2, 2)), 1.08),
        (platform((20, 0, 0), (None, 2, 2)), 1.06),
        (platform((3, 0, 0), (10, 2, 2)), 1.13),
        (platform((2, 0, 0), (5, 2, 2), (None, 10, 10)), 1.16),
    ],
)
def test_not_to_know_the_end_costs_a_few_percent(machine: Platform, most: float) -> None:
    ratio = mean_ratio(online, machine)
    assert 1 < ratio < most
    assert ratio < mean_ratio(wang_moin, machine) + 0.005


def algorithm_1(steps: int, slots: int) -> list[int]:
    """Wang, Moin and Iaccarino's Algorithm 1, as it is printed, with the last dispensable one."""
    heights: dict[int, float] = {}
    for step in range(steps):
        last = max(heights, default=0)
        dispensable = [
            i for i in heights if any(j > i and heights[j] > heights[i] for j in heights)
        ]
        if len(heights) < slots:
            heights[step] = 0 if heights else float("inf")
        elif dispensable:
            del heights[max(dispensable)]
            heights[step] = 0
        elif last:
            heights[step] = heights.pop(last) + 1
    return sorted(heights)


def test_wang_moin_keeps_what_the_published_algorithm_keeps() -> None:
    for slots in (1, 2, 3, 5, 8):
        kept: list[int] = []
        done = list(forward(wang_moin(chain(60), platform((slots, 0, 0)))))
        for steps in range(1, 60):
            for _, action in (pair for pair in done if pair[0] == steps - 1):
                match action:
                    case Write(key, _):
                        kept.append(key.step)
                    case Discard(key, _):
                        kept.remove(key.step)
            assert kept == algorithm_1(steps, slots)


def test_steps_that_differ_are_refused() -> None:
    for planner in (online, wang_moin):
        with pytest.raises(BadInput, match="all alike"):
            planner(replace(chain(3), advance=[1, 2, 3]), MACHINE)


def test_a_rule_needs_a_level_and_room_for_a_tape() -> None:
    endless = replace(chain(1), steps=None)
    with pytest.raises(NoSchedule, match="online needs a level"):
        Online(endless, platform((0, 1, 1))).follow()
    with pytest.raises(NoSchedule, match="the working memory has 0"):
        Online(endless, platform((1, 1, 1), tapes=0)).follow()


def test_bytes_beyond_counting_are_no_hindrance() -> None:
    large = replace(chain(20), restart=2**50, tape=2**40, adjoint=2**50)
    machine = Platform((replace(level("near", 3, 0, 0), capacity=3 * 2**50),))
    small = platform((3, 0, 0))
    assert seconds(online(large, machine), machine) == seconds(online(chain(20), small), small)
