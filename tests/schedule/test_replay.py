"""`validate` says of columns what the `Machine` says of actions: the same verdict, the same end."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from drawing import (
    Case,
    complete_schedules,
    mutated,
    random_any,
    random_legal,
)
from hypothesis import given

from ckio.actions import Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.columns import ADVANCE, DISCARD, READ, RECORD, REVERSE, WRITE, Actions
from ckio.errors import BadInput, IllegalAction
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, counts, makespan
from ckio.schedule.machine import Machine
from ckio.schedule.replay import validate
from ckio.testing import a, t, x

CHAIN = Chain(steps=4, advance=2, record=3, reverse=5, restart=7, tape=11, adjoint=13)
RAM = Platform((Level(name="ram", capacity=21),), working_memory=11)


ROOMY = Platform((Level(name="ram"),))


def applied(schedule: Schedule, platform: Platform, /) -> Machine:
    """What `validate` means: the actions one after the other."""
    machine = Machine(schedule.chain, platform, schedule.stored)
    for action in schedule.actions:
        machine.apply(action)
    return machine


def outcome(
    interpreter: Callable[[Schedule, Platform], Machine], case: Case
) -> str | dict[str, object]:
    """The end of the machine, or the words in which it refused."""
    try:
        machine = interpreter(*case)
    except IllegalAction as error:
        return str(error)
    return vars(machine)


@given(complete_schedules())
def test_a_complete_schedule_leaves_the_adjoint_at_0(case: Case) -> None:
    assert validate(*case).adjoint == 0


def disagreements(seeds: range) -> list[tuple[int, int]]:
    """Seeds where `validate` and the Machine differ."""
    found = []
    makers = (random_legal, random_any, lambda random: mutated(random, random_legal(random)))
    for seed in seeds:
        for number, make in enumerate(makers):
            case = make(Random(seed))
            if outcome(validate, case) != outcome(applied, case):
                found.append((seed, number))
    return found


def test_validate_and_the_machine_agree_on_many_schedules_of_each_sort() -> None:
    assert disagreements(range(40)) == []


def test_the_adjoint_read_after_a_reverse_is_refused_and_no_earlier() -> None:
    actions = [Read(a(4), 0), Record(0, 4), Read(a(4), 0), Reverse(3, 4), Read(a(4), 0)]
    with pytest.raises(IllegalAction, match=r"#4 Read\(a_4, level 0\): comes after a Reverse"):
        validate(Schedule(CHAIN, actions, [{a(4)}]), ROOMY)


def test_a_reverse_at_the_end_is_refused_until_the_end_was_reached() -> None:
    start = [Read(t(3), 0), Reverse(3, 4)]
    with pytest.raises(
        IllegalAction, match=r"#1 Reverse\[3, 4\): there is no adjoint yet: neither"
    ):
        validate(Schedule(CHAIN, start, [{t(3)}]), ROOMY)
    with pytest.raises(
        IllegalAction, match=r"#1 Reverse\[3, 4\): there is no adjoint yet: neither"
    ):
        validate(Schedule(CHAIN, [*start, Advance(0, 4)], [{t(3)}]), ROOMY)
    assert validate(Schedule(CHAIN, [Advance(0, 4), *start], [{t(3)}]), ROOMY).adjoint == 3


def test_the_adjoint_at_the_end_cannot_be_written_until_the_end_was_reached() -> None:
    early = [Advance(0, 3), Write(a(4), 0)]
    two = Platform((Level(name="ram"), Level(name="disk")))
    for check in validate, applied:
        with pytest.raises(
            IllegalAction, match=r"#1 Write\(a_4, level 0\): there is no adjoint yet"
        ):
            check(Schedule(CHAIN, early), two)
        assert a(4) in check(Schedule(CHAIN, [Advance(0, 4), Write(a(4), 0)]), two).stored[0]
        read = Schedule(CHAIN, [Read(a(4), 1), Write(a(4), 0)], [set(), {a(4)}])
        assert a(4) in check(read, two).stored[0]
        earlier = Schedule(CHAIN, [Read(a(2), 1), Write(a(2), 0)], [set(), {a(2)}])
        assert a(2) in check(earlier, two).stored[0]


def test_no_actions_leave_the_machine_at_its_start() -> None:
    machine = validate(Schedule(CHAIN, [], [{x(2)}]), RAM)
    assert vars(machine) == vars(Machine(CHAIN, RAM, [{x(2)}]))


def test_only_the_first_of_two_broken_rules_is_reported() -> None:
    schedule = Schedule(CHAIN, [Advance(0, 2), Reverse(3, 4), Advance(0, 1)])
    with pytest.raises(IllegalAction, match="#1 Reverse"):
        validate(schedule, RAM)


def test_a_step_far_beyond_the_chain_is_refused_like_any_other() -> None:
    far = 2**63 - 1
    for action in (Read(x(far), 0), Write(x(far), 0), Advance(0, far), Record(0, far)):
        with pytest.raises(IllegalAction, match="#0"):
            validate(Schedule(CHAIN, [action]), RAM)


@pytest.mark.parametrize("capacity", [2**60, 2**60 - 1])
def test_sums_of_huge_checkpoints_do_not_overflow(capacity: int) -> None:
    chain = replace(CHAIN, restart=2**59, tape=2**59)
    actions = [Write(x(0), 0), Advance(0, 1), Write(x(1), 0), Record(1, 4)]
    case = Schedule(chain, actions), Platform((Level(name="ram", capacity=capacity),), 2**60)
    said = outcome(validate, case)
    assert said == outcome(applied, case)
    assert ("working memory" if capacity == 2**60 else "are free") in str(said)


def test_what_lies_beyond_the_end_of_steps_that_differ_is_refused() -> None:
    chain = replace(CHAIN, restart=[7, 1, 2, 3], tape=[1, 2, 3, 4], adjoint=range(5))
    spans = Advance(3, 5), Record(0, 5), Reverse(4, 5)
    for action in (*spans, Write(x(5), 0), Read(t(4), 0), Discard(a(5), 0)):
        for first in ([], [Write(x(0), 0), Advance(0, 2)]):
            case = Schedule(chain, [*first, action]), RAM
            said = outcome(validate, case)
            assert said == outcome(applied, case)
            assert str(said).startswith(f"#{len(first)} {action}: ")


def test_room_beyond_any_machine_integer_is_room() -> None:
    platform = Platform((Level(name="ram", capacity=2**80),), working_memory=2**80)
    schedule = Schedule(CHAIN, [Write(x(0), 0), Record(0, 4), Reverse(0, 4)])
    assert validate(schedule, platform).adjoint == 0


def test_single_variables_are_refused_while_a_chain_knows_no_sizes_for_them() -> None:
    key = Key(Kind.RESTART, 0, "u")
    with pytest.raises(BadInput, match=r"one variable|single variables"):
        validate(Schedule(CHAIN, [Write(key, 0)]), RAM)


def store_every_state(steps: int) -> Actions:
    """Write x_i and advance, for all i; then read, record, reverse and discard, backwards."""
    there, back = np.arange(steps), np.arange(steps)[::-1]
    op = np.concatenate(
        (np.tile([WRITE, ADVANCE], steps), np.tile([READ, RECORD, REVERSE, DISCARD], steps))
    )
    begin = np.concatenate((np.repeat(there, 2), np.repeat(back, 4)))
    end = np.where(op <= REVERSE, begin + 1, 0)
    return Actions(op=op.astype(np.uint8), begin=begin, end=end)


def test_a_schedule_of_a_hundred_thousand_actions_counts_what_it_does() -> None:
    steps = 20_000
    chain = CHAIN.with_steps(steps)
    platform = Platform((Level(name="ram", write=Affine(latency=0.5), capacity=7 * steps),))
    schedule = Schedule(chain, store_every_state(steps))
    assert validate(schedule, platform).stored == [set()]
    assert makespan(schedule, platform) == (2 + 3 + 5 + 0.5) * steps
    total = counts(schedule)
    assert (total.forward, total.levels[0].peak) == (2 * steps, steps)
