"""The rules of legality, one by one: what the Machine takes, and what it refuses in which words."""

import re
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from drawing import Case, any_schedules, is_allowed
from hypothesis import given

from ckio.actions import Action, Advance, Discard, Key, Read, Record, Reverse, Write
from ckio.errors import BadInput, IllegalAction
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule
from ckio.schedule.machine import Machine
from ckio.schedule.replay import validate
from ckio.testing import a, t, x

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


def test_it_starts_at_x0_with_no_tape_the_adjoint_at_the_end_and_what_is_stored() -> None:
    start = machine()
    assert (start.state, start.tape, start.adjoint) == (0, None, N)
    assert start.stored == [set(), set()]
    assert (start.count, start.turned, start.reversed) == (0, False, False)
    start = machine(stored=({x(3)}, {t(1), a(4)}))
    assert start.stored == [{x(3)}, {t(1), a(4)}]
    assert start.used == [7, 24]
    assert machine(stored=({x(0), x(1)},), platform=level(14)).used == [14]
    last = {x(N), t(N - 1), a(N)}
    assert machine(stored=(last,)).stored[0] == last


def test_a_start_that_cannot_be_is_refused() -> None:
    with pytest.raises(BadInput, match="keys on 3 levels; the platform has 2"):
        machine(stored=(set(), set(), {x(0)}))
    with pytest.raises(IllegalAction, match=r"level 0 \(ram\) stores 14 bytes; its capacity is 13"):
        machine(stored=({x(0), x(1)},), platform=level(13))
    for key in (x(N + 1), t(N), a(N + 1), x(2**80)):
        with pytest.raises(BadInput, match=rf"{key} on level 1 \(disk\); its chain has 6 s"):
            machine(stored=(set(), {key}))
    chain = Chain(steps=None, advance=1, record=2, reverse=3, restart=1, tape=1, adjoint=1)
    with pytest.raises(BadInput, match="steps is not known"):
        Machine(chain, ROOMY)


TURNED = {"stored": ({t(5), x(2)},)}

REGISTERS: dict[str, tuple[list[Action], dict[str, Any], tuple[object, ...]]] = {
    "Advance moves the state and keeps the tape": (
        [Record(0, 2), Advance(2, 5)],
        {},
        (5, (0, 2), N),
    ),
    "Advance goes to the end, with no working memory": (
        [Advance(0, N)],
        {"platform": Platform((), working_memory=0)},
        (N, None, N),
    ),
    "Record replaces the tape, whose room is free then": (
        [Record(0, 2), Record(2, 4)],
        {"platform": Platform((), working_memory=22)},
        (4, (2, 4), N),
    ),
    "Reverse moves the adjoint and spends the tape": (
        [Record(0, N), Reverse(4, N)],
        {},
        (N, (0, 4), 4),
    ),
    "a tape spent to its begin is gone": ([Record(0, N), Reverse(0, N)], {}, (N, None, 0)),
    "the end was reached": ([Advance(0, N), Read(t(5), 0), Reverse(5, N)], TURNED, (N, None, 5)),
    "the state may have left the end again": (
        [Advance(0, N), Read(x(2), 0), Read(t(5), 0), Reverse(5, N)],
        TURNED,
        (2, None, 5),
    ),
    "the adjoint read at the end lets a Reverse start there": (
        [Read(a(N), 0), Read(t(5), 0), Reverse(5, 6)],
        {"stored": ({a(N), t(5)},)},
        (0, None, 5),
    ),
    "an adjoint read further on needs no x_n": (
        [Read(a(3), 0), Record(0, 3), Reverse(0, 3)],
        {"stored": ({a(3)},)},
        (3, None, 0),
    ),
    "Read sets the register of its kind": (
        [Read(x(3), 0), Read(t(1), 0), Read(a(4), 1)],
        {"stored": ({x(3), t(1)}, {a(4)})},
        (3, (1, 2), 4),
    ),
}


@pytest.mark.parametrize(("actions", "start", "end"), REGISTERS.values(), ids=REGISTERS)
def test_actions_set_the_registers(
    actions: list[Action], start: dict[str, Any], end: tuple[object, ...]
) -> None:
    after = machine(*actions, **start)
    assert (after.state, after.tape, after.adjoint) == end
    assert after.count == len(actions)
    assert after.reversed == any(isinstance(action, Reverse) for action in actions)


HALF = level(8, ratio=0.5)

STORED: dict[str, tuple[list[Action], dict[str, Any], list[set[Key]], list[int]]] = {
    "Write stores what the registers hold": (
        [Record(0, 1), Write(x(1), 0), Write(t(0), 1), Advance(1, N), Write(a(N), 1)],
        {},
        [{x(1)}, {t(0), a(N)}],
        [7, 24],
    ),
    "the same key on two levels": (
        [Write(x(0), 0), Write(x(0), 1)],
        {},
        [{x(0)}, {x(0)}],
        [7, 7],
    ),
    "what is left of a longer tape": (
        [Record(0, N), Reverse(1, N), Write(t(0), 0)],
        {},
        [{t(0)}, set()],
        [11, 0],
    ),
    "a key is written again once it was discarded": (
        [Write(x(0), 0), Discard(x(0), 0), Write(x(0), 0)],
        {},
        [{x(0)}, set()],
        [7, 0],
    ),
    "a level filled to the last byte": (
        [Write(x(0), 0), Advance(0, 1), Write(x(1), 0)],
        {"platform": level(14)},
        [{x(0), x(1)}],
        [14],
    ),
    "a discard makes room": (
        [Write(x(0), 0), Advance(0, 1), Discard(x(0), 0), Write(x(1), 0)],
        {"platform": level(7)},
        [{x(1)}],
        [7],
    ),
    "compressed bytes are rounded up": (
        [Write(x(0), 0), Advance(0, 1), Write(x(1), 0)],
        {"platform": HALF},
        [{x(0), x(1)}],
        [8],
    ),
    "Read leaves the key stored": ([Read(x(3), 0)], {"stored": ({x(3)},)}, [{x(3)}, set()], [7, 0]),
    "Discard takes it from its level only": (
        [Discard(x(2), 0)],
        {"stored": ({x(2)}, {x(2)})},
        [set(), {x(2)}],
        [0, 7],
    ),
}


@pytest.mark.parametrize(("actions", "start", "stored", "used"), STORED.values(), ids=STORED)
def test_levels_hold_what_is_written_until_it_is_discarded(
    actions: list[Action], start: dict[str, Any], stored: list[set[Key]], used: list[int]
) -> None:
    after = machine(*actions, **start)
    assert (after.stored, after.used) == (stored, used)


TWO_STEPS = [Advance(0, 1), Record(1, 3)]
FIRST_TWO: list[Action] = [Write(x(0), 0), Advance(0, 1)]
TEN = Platform((Level(name="ram"),), working_memory=10)

REFUSED: list[tuple[list[Action], dict[str, Any], Action, str]] = [
    ([Advance(0, 2)], {}, Advance(1, 4), "needs the state x_1; the state is x_2"),
    ([Advance(0, 2)], {}, Record(1, 4), "needs the state x_1; the state is x_2"),
    ([], {}, Advance(0, N + 1), "past the end: the chain has 6 steps"),
    ([], {}, Record(0, N + 1), "past the end: the chain has 6 steps"),
    ([], {"platform": Platform((), 33)}, Record(0, 4), "44 bytes of working memory .*has 33"),
    ([], {"platform": TEN, "stored": ({t(0)},)}, Read(t(0), 0), "11 bytes of working .*has 10"),
    ([Record(0, N)], {}, Reverse(2, 4), "needs the adjoint at 4; it is at 6"),
    ([Advance(0, N)], {}, Reverse(5, 6), r"the tape of \[5, 6\); there is no tape"),
    ([Advance(0, 3), Record(3, N)], {}, Reverse(2, N), r"the tape is that of \[3, 6\)"),
    (
        [Record(0, N), Reverse(4, N), Read(x(0), 0), Record(0, 3)],
        {"stored": ({x(0)},)},
        Reverse(2, 4),
        r"the tape is that of \[0, 3\)",
    ),
    ([Read(t(5), 0)], TURNED, Reverse(5, 6), "neither x_6 was reached, nor was an adjoint read"),
    (TWO_STEPS, {}, Write(x(2), 1), "needs the state x_2; the state is x_3"),
    (TWO_STEPS, {}, Write(t(0), 1), r"the tape of step 0 alone; it is of \[1, 3\)"),
    (TWO_STEPS, {}, Write(t(1), 1), r"the tape of step 1 alone; it is of \[1, 3\)"),
    (TWO_STEPS, {}, Write(t(2), 1), r"the tape of step 2 alone; it is of \[1, 3\)"),
    (TWO_STEPS, {}, Write(a(5), 1), "the adjoint at 5; it is at 6"),
    (TWO_STEPS, {}, Write(a(N), 1), "there is no adjoint yet: neither x_6 was reached"),
    ([], {}, Write(t(0), 0), "the tape of step 0 alone; there is none"),
    ([Write(x(0), 0)], {}, Write(x(0), 0), "x_0 is already stored there; discard it"),
    (
        FIRST_TWO,
        {"platform": level(13)},
        Write(x(1), 0),
        r"7 bytes, .* 6 of 13 .*ram\) stores x_0",
    ),
    ([], {"platform": level(0)}, Write(x(0), 0), "7 bytes, .* 0 of 0 are free; .* stores nothing"),
    (FIRST_TWO, {"platform": level(7, ratio=0.5)}, Write(x(1), 0), "4 bytes, .* 3 of 7 are free"),
    ([], {"stored": ({x(0)}, {x(5)})}, Read(x(5), 0), r"not stored there; .*\(ram\) stores x_0$"),
    ([], {"stored": ({x(0)}, {x(5)})}, Discard(x(5), 0), r"not stored there; .* stores x_0$"),
    ([], {"stored": (set(map(x, range(7))),)}, Read(t(0), 0), "x_0, x_1, x_2, x_3, x_4, x_5, ...$"),
    (
        [Record(0, N), Read(a(6), 0), Reverse(5, 6)],
        {"stored": ({a(6)},)},
        Read(a(6), 0),
        "comes after a Reverse in this process",
    ),
    *(([], {}, it(x(0), 2), "no such level; .* has 2") for it in (Write, Read, Discard)),
]


@pytest.mark.parametrize(("actions", "start", "action", "rule"), REFUSED, ids=range(len(REFUSED)))
def test_what_breaks_a_rule_is_refused_with_its_number_and_changes_nothing(
    actions: list[Action], start: dict[str, Any], action: Action, rule: str
) -> None:
    words = refusal(machine(*actions, **start), action)
    assert words.startswith(f"#{len(actions)} {action}: ")
    assert re.search(rule, words)


def test_stored_keys_are_named_in_their_order() -> None:
    start = Machine(CHAIN.with_steps(12), ROOMY, [{x(0), x(12), t(3)}])
    assert refusal(start, Read(x(5), 0)).endswith("stores t_3, x_0, x_12")


def test_the_tape_of_a_span_and_a_level_take_the_bytes_of_the_steps_that_are_there() -> None:
    chain = replace(CHAIN, tape=[9, 1, 1, 9, 1, 1], restart=[5, 1, 3, 1, 1, 1])
    start = Machine(chain, Platform((Level(name="ram", capacity=8),), working_memory=10))
    for action in (Write(x(0), 0), Record(0, 2), Write(x(2), 0)):
        start.apply(action)
    assert start.used == [8]
    assert "11 bytes of working memory for the tape; the platform has 10" in refusal(
        start, Record(2, 5)
    )
    start.apply(Record(2, 4))
    assert start.tape == (2, 4)
    assert "1 bytes, but 0 of 8 are free" in refusal(start, Write(x(4), 0))


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
