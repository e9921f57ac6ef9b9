"""Halves of a chain: their count of checkpoints and advances, with the end known and without."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from math import ceil, log2
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.columns import Actions
from ckio.errors import BadInput, NoSchedule
from ckio.planners.binomial import revolve
from ckio.planners.blocks import at_level
from ckio.planners.midpoint import Bisection, bisection
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, counts, makespan
from ckio.schedule.machine import Machine
from ckio.testing import x

from .cases import RESTART, TAPE, chain, completed, platform

ENDLESS = platform((None, 1, 1))
LONGEST = 300

MACHINES = {
    "one slot": platform((1, 0, 0)),
    "two slots": platform((2, 0, 0)),
    "one level": platform((4, 0, 0)),
    "a level without end": ENDLESS,
    "one slot on each level": platform((1, 0, 0), (1, 1, 0)),
    "three levels, the far ones small": platform((2, 0, 1), (3, 2, 1), (5, 3, 4)),
    "the near level is listed last": platform((None, 9, 9), (2, 0, 0)),
    "a level of no use": platform((0, 0, 0), (3, 0, 0), (None, 1, 1)),
}
every_machine = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)


def ones_below(steps: int) -> int:
    return sum(step.bit_count() for step in range(steps))


def finished(schedule: Schedule, machine: Platform) -> Schedule:
    """The schedule, if it is complete and takes no step back twice."""
    completed(schedule, machine)
    assert counts(schedule).reversed == counts(schedule).recorded == schedule.chain.length
    return schedule


def peak(schedule: Schedule) -> int:
    """The most checkpoints on all levels together, at any moment."""
    held = most = sum(map(len, schedule.stored))
    for action in schedule.actions:
        held += isinstance(action, Write) - isinstance(action, Discard)
        most = max(most, held)
    return most


# --- the end is known


def by_halves(begin: int, end: int, *, stored: bool, leaf: bool = False) -> Iterator[Action]:
    """The recursion as it is printed, but that a last step in the register is not stored."""
    if stored and not leaf:
        yield Write(x(begin), 0)
    if end - begin == 1:
        if leaf:
            yield Discard(x(begin), 0)
        yield from (Record(begin, end), Reverse(begin, end))
        return
    middle = begin + (end - begin) // 2
    yield Advance(begin, middle)
    yield from by_halves(middle, end, stored=end - middle > 1)
    yield Read(x(begin), 0)
    yield from by_halves(begin, middle, stored=True, leaf=True)


def test_it_is_the_recursion_with_the_fewest_slots() -> None:
    for steps in (*range(2, 40), 64, 65, LONGEST):
        needed = ceil(log2(steps))
        enough, too_few = platform((needed, 1, 1)), platform((needed - 1, 1, 1))
        schedule = finished(bisection(chain(steps), enough), enough)
        assert list(schedule.actions) == list(by_halves(0, steps, stored=True))
        assert counts(schedule).levels[0].peak == needed
        with pytest.raises(NoSchedule, match=r"needs .* 3 bytes.*; level0 offers"):
            bisection(chain(steps), too_few)


def test_the_advances_are_the_ones_of_the_numbers_below() -> None:
    for steps in (*range(1, 70), 128, 129, LONGEST):
        advanced = counts(bisection(chain(steps), ENDLESS)).advanced
        assert advanced == ones_below(steps) <= steps / 2 * log2(steps)
        if steps > 1:
            fewest = revolve(chain(steps), platform((ceil(log2(steps)), 1, 1)))
            assert advanced >= counts(fewest).advanced


@given(
    st.integers(2, LONGEST),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 9)), max_size=5),
)
def test_levels_are_used_together_down_to_their_last_slot(
    steps: int, levels: list[tuple[int, int, int]]
) -> None:
    machine = platform(*levels)
    if sum(slots for slots, _, _ in levels) < ceil(log2(steps)):
        with pytest.raises(NoSchedule, match="give a level more capacity"):
            bisection(chain(steps), machine)
    else:
        schedule = finished(bisection(chain(steps), machine), machine)
        whole = finished(bisection(chain(steps), ENDLESS), ENDLESS)
        assert at_level(schedule.actions, np.zeros(len(schedule), np.int64)) == whole.actions


@pytest.mark.parametrize("steps", [13, 32, 61])
@pytest.mark.parametrize("levels", [((2, 1, 1), (4, 5, 5)), ((1, 2, 2), (2, 1, 1), (3, 7, 7))])
def test_what_is_used_most_is_on_the_cheapest_level(
    steps: int, levels: Sequence[tuple[int, int, int]]
) -> None:
    machine, whole = platform(*levels), bisection(chain(steps), ENDLESS).actions
    depth, open_keys = [], list[int]()
    for action in whole:
        if isinstance(action, Write):
            open_keys.append(action.key.step)
        match action:
            case Write(key, _) | Read(key, _) | Discard(key, _):
                depth.append(open_keys.index(key.step))
            case _:
                depth.append(0)
        if isinstance(action, Discard):
            open_keys.remove(action.key.step)
    slots = [number for number, (held, _, _) in enumerate(levels) for _ in range(held)]
    ways = {
        makespan(Schedule(chain(steps), on_levels(whole, depth, way)), machine)
        for way in set(permutations(slots, max(depth) + 1))
    }
    assert makespan(bisection(chain(steps), machine), machine) == min(ways) < max(ways)


def on_levels(actions: Actions, depth: Sequence[int], levels: Sequence[int]) -> Actions:
    return at_level(actions, np.array(levels)[depth])


def test_one_level_may_be_named() -> None:
    machine = platform((9, 1, 1), (4, 50, 70), (1, 2, 2))
    schedule = finished(bisection(chain(16), machine, on="level1"), machine)
    assert {a.level for a in schedule.actions if isinstance(a, Write)} == {1}
    with pytest.raises(NoSchedule, match=r"checkpoints of 3 bytes, 5 at a time; level1 offers 12:"):
        bisection(chain(17), machine, on="level1")
    with pytest.raises(BadInput, match="no level is named 'nvme'"):
        bisection(chain(17), machine, on="nvme")


def test_a_long_chain_is_no_deep_recursion() -> None:
    steps = 1 << 13
    schedule = finished(bisection(chain(steps), ENDLESS), ENDLESS)
    assert counts(schedule).advanced == steps // 2 * 13
    assert counts(schedule).levels[0].peak == 13


# --- steps that differ


def varying(seconds: Sequence[float], restart: Sequence[int] | int = RESTART) -> Chain:
    return Chain(
        steps=len(seconds),
        advance=seconds,
        record=0,
        reverse=0,
        restart=restart,
        tape=TAPE,
        adjoint=5,
    )


def test_steps_that_differ_are_divided_like_equal_ones() -> None:
    seconds, sizes = [50.0, 0.0, 1.0, 4096.0] * 8, [1, 9, 4, 2] * 8
    machine = Platform((Level(name="only", capacity=5 * max(sizes)),), working_memory=TAPE)
    schedule = finished(bisection(varying(seconds, sizes), machine), machine)
    assert peak(schedule) <= 5
    assert schedule.actions == bisection(chain(32), ENDLESS).actions


# --- the end is not known


def prefixes(step: int) -> list[int]:
    """x_j that lead to x_step: j in binary is step, cut off behind a one."""
    digits = f"{step:b}"
    return [0] + [
        int(digits[: n + 1].ljust(len(digits), "0"), 2) for n, d in enumerate(digits) if d == "1"
    ]


Reached = tuple[list[Action], tuple[frozenset[Key], ...]]
"""All that was done up to a state, and what is stored then."""


def walk(rule: Bisection, steps: int) -> Iterator[Reached]:
    """For every step from 0 on: all that was done before x_step is left, and what is stored."""
    machine, actions = Machine(rule.chain.with_steps(steps + 1), rule.platform), list[Action]()
    follower, quiet = rule.follow(0, machine.stored), 0
    for step in range(steps + 1):
        said = follower.at(step)
        assert step >= quiet or not said
        quiet = max(quiet, follower.until(step))
        for action in said:
            machine.apply(action)
            actions.append(action)
        yield list(actions), tuple(map(frozenset, machine.stored))
        action = Advance(step, step + 1)
        machine.apply(action)
        actions.append(action)


RULE = Bisection(replace(chain(1), steps=None), ENDLESS)


def test_what_leads_to_a_state_is_stored() -> None:
    for step, (_, stored) in enumerate(walk(RULE, LONGEST)):
        kept = sorted(key.step for key in stored[0])
        grid = 2 ** max(0, step.bit_length() - 5)
        assert kept == prefixes(step // grid * grid)
        assert len(kept) <= min(6, step.bit_length() + 1)
        assert step - kept[-1] <= step / 16


def test_there_are_sixteen_writes_while_the_chain_doubles() -> None:
    *_, (actions, _) = walk(RULE, 511)
    writes = [action.key.step for action in actions if isinstance(action, Write)]
    for low in (32, 64, 128, 256):
        assert [step for step in writes if low <= step < 2 * low] == list(
            range(low, 2 * low, low // 16)
        )


@pytest.mark.campaign
@every_machine
def test_wherever_the_end_is_there_is_a_way_back(machine: Platform) -> None:
    """Also where the rule has been asked at the last state, which it then has stored in vain."""
    rule = Bisection(RULE.chain, machine)
    unasked: Reached | None = None
    every, first = (5, 66) if machine is ENDLESS else (37, 12)
    for steps, asked in enumerate(walk(rule, LONGEST)):
        if steps and (steps < first or steps % every == 0):
            assert unasked is not None
            for actions, stored in (unasked, asked):
                whole = taken_back(rule, steps, actions, stored)
                if machine is ENDLESS:
                    assert counts(whole).levels[0].peak <= max(2, ceil(log2(steps)) + 1)
                    assert counts(whole).advanced <= steps + ones_below(steps) + steps / 16
        unasked = ([*asked[0], Advance(steps, steps + 1)], asked[1])


def taken_back(
    rule: Bisection, steps: int, actions: list[Action], stored: Sequence[frozenset[Key]]
) -> Schedule:
    """The whole of a run that has just found its end, and what was stored by then."""
    back = rule.finish(steps, stored)
    assert list(back.stored) == [*stored][: len(back.stored)]
    assert not any(stored[len(back.stored) :])
    return finished(Schedule(back.chain, [*actions, *back.actions]), rule.platform)


def test_the_bound_is_met() -> None:
    *_, (actions, stored) = walk(RULE, 31)
    whole = Schedule(chain(32), [*actions, Advance(31, 32), *RULE.finish(32, stored).actions])
    assert peak(finished(whole, ENDLESS)) == 6


@every_machine
@settings(max_examples=5, deadline=None)
@given(st.integers(1, LONGEST), st.integers(0, 40), st.randoms(use_true_random=False))
def test_a_run_goes_on_with_whatever_survived(
    machine: Platform, crash: int, more: int, random: Random
) -> None:
    rule = Bisection(RULE.chain, machine)
    *_, (_, stored) = walk(rule, crash)
    kept = [frozenset(k for k in keys if random.random() < 0.6 or k == x(0)) for keys in stored]
    start, place = random.choice([(key.step, at) for at, keys in enumerate(kept) for key in keys])
    end = crash + more
    state, actions = Machine(chain(end), machine, kept), list[Action]()

    def do(action: Action) -> None:
        state.apply(action)
        actions.append(action)

    do(Read(x(start), place))
    follower = rule.follow(start, state.stored)
    for step in range(start, end):
        for action in follower.at(step):
            do(action)
        do(Advance(step, step + 1))
    back = rule.finish(end, state.stored)
    finished(Schedule(chain(end), [*actions, *back.actions], kept), machine)
    with pytest.raises(NoSchedule, match="x_0 is not stored"):
        rule.finish(end, [keys - {x(0)} for keys in map(frozenset, state.stored)])


def test_with_few_slots_it_ends_all_the_same() -> None:
    for slots in range(1, 8):
        machine = platform((slots, 0, 0))
        back = Bisection(chain(1), machine).finish(100, [{x(0)}])
        assert peak(finished(back, machine)) == min(7, slots)
    assert counts(Bisection(chain(1), platform((1, 0, 0))).finish(9, [{x(0)}])).advanced == 36


def test_with_one_slot_there_is_nothing_to_ask_after_the_start() -> None:
    assert Bisection(chain(1), platform((1, 0, 0))).follow().until(0) >= 2**62


def test_what_is_free_again_is_used_again() -> None:
    back = Bisection(chain(1), platform((2, 0, 0))).finish(100, [{x(0), x(50)}])
    with_one_slot = 50 * 49 // 2
    assert with_one_slot < counts(back).advanced < 2 * with_one_slot


def test_what_is_ahead_of_a_run_or_there_twice_is_given_up() -> None:
    machine = platform((6, 0, 0), (6, 1, 1))
    follower = Bisection(chain(1), machine).follow(4, [{x(0), x(4), x(7)}, {x(0)}])
    assert list(follower.at(4)) == [Discard(x(0), 1), Discard(x(7), 0)]
    assert list(follower.at(5)) == [Write(x(5), 0)]
    with pytest.raises(BadInput, match="step 4 comes before step 5"):
        follower.at(4)


def test_where_something_has_taken_a_place_another_is_found() -> None:
    machine = platform((1, 0, 0), (5, 1, 1))
    first = next(a for a in Bisection(chain(1), machine).follow().at(0) if isinstance(a, Write))
    assert first.level == 1  # written once; what is written often is near
    rule, used = Bisection(chain(1), machine), set[int]()
    state = Machine(chain(99), machine, [{x(0)}])
    follower = rule.follow(0, state.stored)
    for step in range(64):
        for action in follower.at(step):
            state.apply(action)
            used |= {action.level} if isinstance(action, Write) else set()
        state.apply(Advance(step, step + 1))
    assert used == {1}


def test_what_a_rule_cannot_go_on_from_is_refused() -> None:
    with pytest.raises(BadInput, match="steps that are all alike"):
        Bisection(varying([1.0, 2.0]), ENDLESS)
    with pytest.raises(BadInput, match="bisection resumes from restart data only"):
        RULE.finish(9, [{x(0), Key(Kind.TAPE, 3)}])
    with pytest.raises(BadInput, match="after the end of the chain"):
        RULE.finish(9, [{x(0), x(10)}])
    with pytest.raises(NoSchedule, match="a level that can store one checkpoint"):
        Bisection(chain(1), platform((0, 1, 1))).follow(0, ())
    with pytest.raises(NoSchedule, match="the working memory has 0"):
        Bisection(chain(1), platform((4, 1, 1), tapes=0)).follow(0, ())
