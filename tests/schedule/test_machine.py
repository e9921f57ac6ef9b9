"""The rules of legality, one by one: what the Machine takes, and what it refuses in which words."""

from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import given

from ckio.actions import Action, Advance, Discard, Key, Read, Record, Reverse, Write
from ckio.errors import BadInput, IllegalAction
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule
from ckio.schedule.machine import Machine
from ckio.schedule.replay import validate
from ckio.testing import a, t, x
from ckio.testing.strategies import Case, any_schedules, is_allowed

N = 6
CHAIN = Chain(steps=N, advance=2, record=3, reverse=5, restart=7, tape=11, adjoint=13)
ROOMY = Platform((Level(name="ram"), Level(name="disk")))
Keys = tuple[set[Key], ...]


def machine(*actions: Action, stored: Keys = (), platform: Platform = ROOMY) -> Machine:
    """The machine after these actions."""
    made = Machine(CHAIN, platform, stored)
    for action in actions:
        made.apply(action)
    return made


def refusal(start: Machine, action: Action) -> str:
    """What the machine says to an illegal action, which must leave it as it was."""
    before = deepcopy(registers(start))
    with pytest.raises(IllegalAction) as caught:
        start.apply(action)
    assert registers(start) == before
    return str(caught.value)


def registers(start: Machine) -> dict[str, object]:
    return {name: value for name, value in vars(start).items() if name not in ("chain", "platform")}


def level(capacity: int, *, ratio: float = 1.0) -> Platform:
    return Platform((Level(name="ram", capacity=capacity, ratio=ratio),))


# --- the start


def test_it_starts_at_x0_with_no_tape_and_the_adjoint_at_the_end() -> None:
    start = machine()
    assert (start.state, start.tape, start.adjoint) == (0, None, N)
    assert start.stored == [set(), set()]
    assert (start.count, start.turned, start.reversed) == (0, False, False)


def test_it_starts_with_what_is_stored() -> None:
    start = machine(stored=({x(3)}, {t(1), a(4)}))
    assert start.stored == [{x(3)}, {t(1), a(4)}]
    assert start.used == [7, 24]


def test_a_start_on_more_levels_than_there_are_is_refused() -> None:
    with pytest.raises(BadInput, match="keys on 3 levels; the platform has 2"):
        machine(stored=(set(), set(), {x(0)}))


def test_a_start_that_overfills_a_level_is_refused() -> None:
    with pytest.raises(IllegalAction, match=r"level 0 \(ram\) holds 14 bytes; its capacity is 13"):
        machine(stored=({x(0), x(1)},), platform=level(13))
    assert machine(stored=({x(0), x(1)},), platform=level(14)).used == [14]


def test_a_start_with_a_checkpoint_from_beyond_the_chain_is_refused() -> None:
    last = {x(N), t(N - 1), a(N)}
    assert machine(stored=(last,)).stored[0] == last
    for key in (x(N + 1), t(N), a(N + 1), x(2**80)):
        with pytest.raises(BadInput, match=rf"{key} on level 1 \(disk\); its chain has 6 s"):
            machine(stored=(set(), {key}))


def test_a_chain_of_unknown_length_has_no_machine() -> None:
    chain = Chain(steps=None, advance=1, record=2, reverse=3, restart=1, tape=1, adjoint=1)
    with pytest.raises(BadInput, match="number of steps is not known"):
        Machine(chain, ROOMY)


# --- Advance and Record


def test_advance_moves_the_state_and_keeps_the_tape() -> None:
    after = machine(Record(0, 2), Advance(2, 5))
    assert (after.state, after.tape, after.count) == (5, (0, 2), 2)


@pytest.mark.parametrize("forward", [Advance, Record])
def test_the_forward_needs_the_state_at_its_begin(forward: type[Advance | Record]) -> None:
    message = refusal(machine(Advance(0, 2)), forward(1, 4))
    assert message == f"#1 {forward.__name__}[1, 4): needs the state x_1; the state is x_2"


@pytest.mark.parametrize("forward", [Advance, Record])
def test_the_forward_stops_at_the_end(forward: type[Advance | Record]) -> None:
    assert machine(forward(0, N)).state == N
    assert "goes past the end: the chain has 6 steps" in refusal(machine(), forward(0, N + 1))


def test_record_replaces_the_tape_and_never_extends_it() -> None:
    assert machine(Record(0, 2), Record(2, 4)).tape == (2, 4)


def test_record_holds_as_much_tape_as_the_working_memory_and_no_more() -> None:
    platform = Platform((), working_memory=33)
    assert machine(Record(0, 3), platform=platform).tape == (0, 3)
    message = refusal(machine(platform=platform), Record(0, 4))
    assert message == "#0 Record[0, 4): needs 44 bytes of working memory for the tape; there are 33"


def test_the_tape_of_a_span_takes_the_bytes_of_its_steps() -> None:
    chain = replace(CHAIN, tape=[9, 1, 1, 9, 1, 1])
    start = Machine(chain, Platform((), working_memory=10))
    start.apply(Record(0, 2))
    message = refusal(start, Record(2, 5))
    assert message == "#1 Record[2, 5): needs 11 bytes of working memory for the tape; there are 10"
    start.apply(Record(2, 4))
    assert start.tape == (2, 4)


def test_a_level_holds_the_bytes_of_the_steps_that_lie_there() -> None:
    chain = replace(CHAIN, restart=[5, 1, 3, 1, 1, 1])
    start = Machine(chain, Platform((Level(name="ram", capacity=8),)))
    for action in (Write(x(0), 0), Advance(0, 1), Advance(1, 2), Write(x(2), 0)):
        start.apply(action)
    assert start.used == [8]
    start.apply(Advance(2, 3))
    assert "needs 1 bytes where 0 of 8 are free" in refusal(start, Write(x(3), 0))


def test_the_tape_that_record_replaces_takes_no_working_memory() -> None:
    platform = Platform((), working_memory=22)
    assert machine(Record(0, 2), Record(2, 4), platform=platform).tape == (2, 4)


def test_advance_needs_no_working_memory() -> None:
    assert machine(Advance(0, N), platform=Platform((), working_memory=0)).state == N


# --- Reverse


def test_reverse_moves_the_adjoint_and_spends_the_tape() -> None:
    after = machine(Record(0, N), Reverse(4, N))
    assert (after.adjoint, after.tape, after.state, after.reversed) == (4, (0, 4), N, True)


def test_a_tape_spent_to_its_begin_is_gone() -> None:
    assert machine(Record(0, N), Reverse(0, N)).tape is None


def test_reverse_needs_the_adjoint_at_its_end() -> None:
    message = refusal(machine(Record(0, N)), Reverse(2, 4))
    assert message == "#1 Reverse[2, 4): needs the adjoint at 4; it is at 6"


def test_reverse_needs_a_tape() -> None:
    message = refusal(machine(Advance(0, N)), Reverse(5, 6))
    assert message.endswith("needs the tape of [5, 6); no tape is held")


def test_reverse_needs_the_tape_from_its_begin() -> None:
    message = refusal(machine(Advance(0, 3), Record(3, N)), Reverse(2, N))
    assert message.endswith("needs the tape of [2, 6); the tape of [3, 6) is held")


def test_reverse_needs_the_tape_up_to_its_end() -> None:
    held = machine(Record(0, N), Reverse(4, N), Read(x(0), 0), Record(0, 3), stored=({x(0)},))
    assert refusal(held, Reverse(2, 4)).endswith("the tape of [0, 3) is held")


def test_a_reverse_at_the_end_needs_the_state_to_have_been_there() -> None:
    stored = ({t(5)}, set[Key]())
    message = refusal(machine(Read(t(5), 0), stored=stored), Reverse(5, 6))
    assert "starts the adjoint, but neither x_6 was reached nor the adjoint read" in message
    assert machine(Advance(0, N), Read(t(5), 0), Reverse(5, 6), stored=stored).adjoint == 5


def test_the_state_may_have_left_the_end_again() -> None:
    stored = ({t(5), x(2)},)
    after = machine(Advance(0, N), Read(x(2), 0), Read(t(5), 0), Reverse(5, 6), stored=stored)
    assert (after.adjoint, after.state) == (5, 2)


def test_the_adjoint_read_at_the_end_lets_a_reverse_start_there() -> None:
    stored = ({a(N), t(5)},)
    assert machine(Read(a(N), 0), Read(t(5), 0), Reverse(5, 6), stored=stored).adjoint == 5


def test_an_adjoint_read_further_on_needs_no_x_n() -> None:
    after = machine(Read(a(3), 0), Record(0, 3), Reverse(0, 3), stored=({a(3)},))
    assert (after.adjoint, after.turned) == (0, False)


# --- Write


def test_write_stores_what_the_registers_hold() -> None:
    after = machine(Record(0, 1), Write(x(1), 0), Write(t(0), 1), Write(a(N), 1))
    assert after.stored == [{x(1)}, {t(0), a(N)}]
    assert after.used == [7, 24]


def test_the_same_key_may_lie_on_two_levels() -> None:
    assert machine(Write(x(0), 0), Write(x(0), 1)).stored == [{x(0)}, {x(0)}]


@pytest.mark.parametrize(
    ("key", "rule"),
    [
        (x(2), "needs the state x_2; the state is x_3"),
        (t(0), "needs the tape of step 0 alone; [1, 3) is held"),
        (t(1), "needs the tape of step 1 alone; [1, 3) is held"),
        (t(2), "needs the tape of step 2 alone; [1, 3) is held"),
        (a(5), "needs the adjoint at 5; it is at 6"),
    ],
    ids=str,
)
def test_write_needs_the_register_to_hold_it(key: Key, rule: str) -> None:
    start = machine(Advance(0, 1), Record(1, 3))
    assert refusal(start, Write(key, 1)) == f"#2 Write({key}, level 1): {rule}"


def test_no_tape_cannot_be_written() -> None:
    assert refusal(machine(), Write(t(0), 0)).endswith(
        "needs the tape of step 0 alone; none is held"
    )


def test_what_is_left_of_a_longer_tape_can_be_written() -> None:
    assert machine(Record(0, N), Reverse(1, N), Write(t(0), 0)).stored[0] == {t(0)}


def test_a_key_that_is_there_must_be_discarded_before_it_is_written_again() -> None:
    start = machine(Write(x(0), 0))
    assert refusal(start, Write(x(0), 0)).endswith("x_0 is there already; discard it first")
    start.apply(Discard(x(0), 0))
    start.apply(Write(x(0), 0))
    assert start.stored[0] == {x(0)}


def test_a_full_level_refuses_a_write() -> None:
    start = machine(Write(x(0), 0), Advance(0, 1), platform=level(13))
    assert refusal(start, Write(x(1), 0)) == (
        "#2 Write(x_1, level 0): needs 7 bytes where 6 of 13 are free; level 0 (ram) holds x_0"
    )


def test_a_level_may_be_filled_to_the_last_byte() -> None:
    after = machine(Write(x(0), 0), Advance(0, 1), Write(x(1), 0), platform=level(14))
    assert after.used == [14]


def test_a_discard_makes_room() -> None:
    actions = (Write(x(0), 0), Advance(0, 1), Discard(x(0), 0), Write(x(1), 0))
    assert machine(*actions, platform=level(7)).stored == [{x(1)}]


def test_a_level_of_no_capacity_refuses_every_write() -> None:
    message = refusal(machine(platform=level(0)), Write(x(0), 0))
    assert message.endswith("needs 7 bytes where 0 of 0 are free; level 0 (ram) holds nothing")


def test_compressed_bytes_are_rounded_up_and_count_against_the_capacity() -> None:
    twice = (Write(x(0), 0), Advance(0, 1), Write(x(1), 0))
    assert machine(*twice, platform=level(8, ratio=0.5)).used == [8]
    start = machine(*twice[:2], platform=level(7, ratio=0.5))
    assert "needs 4 bytes where 3 of 7 are free" in refusal(start, twice[2])


# --- Read and Discard


def test_read_sets_the_register_of_its_kind_and_leaves_the_key_stored() -> None:
    after = machine(Read(x(3), 0), Read(t(1), 0), Read(a(4), 1), stored=({x(3), t(1)}, {a(4)}))
    assert (after.state, after.tape, after.adjoint) == (3, (1, 2), 4)
    assert after.stored == [{x(3), t(1)}, {a(4)}]


@pytest.mark.parametrize("access", [Read, Discard])
def test_what_is_not_stored_cannot_be_read_or_discarded(access: type[Read | Discard]) -> None:
    start = Machine(CHAIN.with_steps(12), ROOMY, [{x(0), x(12), t(3)}, {x(5)}])
    assert refusal(start, access(x(5), 0)) == (
        f"#0 {access.__name__}(x_5, level 0): it is not stored there;"
        " level 0 (ram) holds t_3, x_0, x_12"
    )


def test_a_discarded_key_is_gone_from_its_level_only() -> None:
    after = machine(Discard(x(2), 0), stored=({x(2)}, {x(2)}))
    assert after.stored == [set(), {x(2)}]
    assert after.used == [0, 7]
    assert "it is not stored there" in refusal(after, Read(x(2), 0))


def test_many_stored_keys_are_named_in_part() -> None:
    start = machine(stored=({x(step) for step in range(N + 1)},))
    message = refusal(start, Read(t(0), 0))
    assert message.endswith("holds x_0, x_1, x_2, x_3, x_4, x_5, ...")


def test_the_adjoint_may_be_read_only_before_a_reverse() -> None:
    start = machine(Record(0, N), Read(a(6), 0), Reverse(5, 6), stored=({a(6)},))
    assert "comes after a Reverse in this process" in refusal(start, Read(a(6), 0))


def test_a_tape_that_does_not_fit_in_working_memory_cannot_be_read() -> None:
    platform = Platform((Level(name="ram"),), working_memory=10)
    message = refusal(machine(stored=({t(0)},), platform=platform), Read(t(0), 0))
    assert message.endswith("needs 11 bytes of working memory for the tape; there are 10")


@pytest.mark.parametrize("access", [Write, Read, Discard])
def test_a_level_that_is_not_there_is_refused(access: type[Write | Read | Discard]) -> None:
    message = refusal(machine(), access(x(0), 2))
    assert message.endswith("there is no such level; the platform has 2")


@given(any_schedules())
def test_a_refused_action_leaves_the_machine_as_it_was(case: Case) -> None:
    schedule, platform = case
    start = Machine(schedule.chain, platform, schedule.stored)
    for action in schedule.actions:
        if is_allowed(start, action):
            start.apply(action)
        else:
            assert refusal(start, action).startswith(f"#{start.count} {action}: ")


def test_nothing_is_written_to_a_read_only_level_and_what_it_holds_is_read_and_discarded() -> None:
    only_read = Platform((Level(name="ram", read_only=True), Level(name="disk")))
    start = machine(stored=({x(3)},), platform=only_read)
    assert "nothing can be stored there: the level is read-only" in refusal(start, Write(x(0), 0))
    with pytest.raises(IllegalAction, match="the level is read-only"):
        validate(Schedule(CHAIN, [Write(x(0), 1), Write(x(0), 0)]), only_read)
    start.apply(Read(x(3), 0))
    start.apply(Discard(x(3), 0))
    assert (start.state, start.stored[0]) == (3, set())
