"""What a schedule costs and counts, against a naive walk over its actions."""

from collections.abc import Callable
from functools import reduce
from operator import add

import pytest
from drawing import Case, legal_schedules, untidy_schedules
from hypothesis import given
from oracles.costs import all_seconds, seconds

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.errors import BadInput
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Counts, LevelCounts, Schedule, counts, makespan, seconds_of

CHAIN = Chain(steps=4, advance=2, record=3, reverse=5, restart=7, tape=11, adjoint=13)
X0, X2, T3 = Key(Kind.RESTART, 0), Key(Kind.RESTART, 2), Key(Kind.TAPE, 3)
PLATFORM = Platform(
    (
        Level(name="ram", write=Affine(latency=0.5), read=Affine(latency=0.25)),
        Level(
            name="disk",
            write=Affine(latency=4, per_byte=0.125),
            read=Affine(latency=3, per_byte=0.5),
            discard=Affine(latency=1, per_byte=1),
        ),
    )
)
ACTIONS: list[Action] = [
    Write(X0, 0),
    Advance(0, 2),
    Write(X2, 1),
    Advance(2, 3),
    Record(3, 4),
    Write(T3, 1),
    Reverse(3, 4),
    Read(X2, 1),
    Discard(X2, 1),
]


def test_each_action_costs_what_its_level_or_its_chain_says() -> None:
    prices = [seconds(action, CHAIN, PLATFORM) for action in ACTIONS]
    assert prices == [0.5, 4, 4.875, 2, 3, 5.375, 5, 6.5, 8]
    assert makespan(Schedule(CHAIN, ACTIONS), PLATFORM) == sum(prices)


def test_a_level_that_the_platform_does_not_have_has_no_price() -> None:
    message = "uses level 2; the platform has 2 levels, numbered from 0"
    for access in (Write, Read, Discard):
        with pytest.raises(BadInput, match=message):
            makespan(Schedule(CHAIN, [Write(X0, 0), access(X0, 2)]), PLATFORM)
    assert makespan(Schedule(CHAIN, [Advance(0, 4)]), Platform(())) == 8


def test_counts_say_what_is_done_where() -> None:
    total = counts(Schedule(CHAIN, ACTIONS))
    assert (total.advanced, total.recorded, total.reversed, total.forward) == (3, 1, 1, 4)
    assert total.levels == (
        LevelCounts(writes=1, peak=1, peak_bytes=7),
        LevelCounts(writes=2, reads=1, discards=1, peak=2, peak_bytes=18),
    )


def test_what_is_stored_at_the_start_counts_towards_the_peak() -> None:
    total = counts(Schedule(CHAIN, [Discard(X0, 1), Advance(0, 2)], [{T3}, {X0, T3}]))
    assert [(level.peak, level.peak_bytes) for level in total.levels] == [(1, 11), (2, 18)]


def test_a_schedule_of_nothing_costs_and_counts_nothing() -> None:
    empty = Schedule(CHAIN, [])
    assert makespan(empty, PLATFORM) == 0
    assert counts(empty) == Counts(advanced=0, recorded=0, reversed=0, levels=())
    assert len(empty) == 0


def test_schedules_are_values() -> None:
    schedule = Schedule(CHAIN, iter(ACTIONS), [{X0}, set()])
    assert schedule == Schedule(CHAIN, tuple(ACTIONS), [frozenset({X0})])
    assert hash(schedule) == hash(Schedule(CHAIN, ACTIONS, [{X0}]))
    assert schedule != Schedule(CHAIN, ACTIONS)
    assert schedule != Schedule(CHAIN.with_steps(5), ACTIONS, [{X0}])
    assert list(schedule.actions) == list(schedule.actions) == ACTIONS
    assert schedule.stored == (frozenset({X0}),)


@given(untidy_schedules())
def test_the_makespan_is_the_sum_from_left_to_right_to_the_last_bit(case: Case) -> None:
    schedule, platform = case
    prices = all_seconds(schedule, platform)
    assert seconds_of(schedule, platform).tolist() == prices
    assert makespan(schedule, platform) == reduce(add, prices, 0.0)


def peak_of(schedule: Schedule, level: int, weight: Callable[[Key], int]) -> int:
    """The most that lies on a level, found by walking."""
    keys = set(schedule.stored[level]) if level < len(schedule.stored) else set()
    most = sum(map(weight, keys))
    for action in schedule.actions:
        match action:
            case Write(key, number) if number == level:
                keys.add(key)
            case Discard(key, number) if number == level:
                keys.discard(key)
        most = max(most, sum(map(weight, keys)))
    return most


def walked(schedule: Schedule) -> Counts:
    """`counts`, one action after the other."""
    accesses = [action for action in schedule.actions if isinstance(action, Write | Read | Discard)]
    last = max([len(schedule.stored) - 1, *(access.level for access in accesses)])

    def steps(span: type[Advance | Record | Reverse]) -> int:
        return sum(a.end - a.begin for a in schedule.actions if isinstance(a, span))

    def times(access: type[Write | Read | Discard], level: int) -> int:
        return sum(isinstance(a, access) and a.level == level for a in accesses)

    def level(number: int) -> LevelCounts:
        return LevelCounts(
            writes=times(Write, number),
            reads=times(Read, number),
            discards=times(Discard, number),
            peak=peak_of(schedule, number, lambda _: 1),
            peak_bytes=peak_of(schedule, number, schedule.chain.nbytes),
        )

    return Counts(
        advanced=steps(Advance),
        recorded=steps(Record),
        reversed=steps(Reverse),
        levels=tuple(map(level, range(last + 1))),
    )


@given(legal_schedules())
def test_counts_are_those_of_a_walk(case: Case) -> None:
    schedule, _ = case
    assert counts(schedule) == walked(schedule)


@pytest.mark.parametrize("access", [Write, Read, Discard])
def test_the_bytes_of_a_checkpoint_are_priced_by_its_kind(
    access: type[Write | Read | Discard],
) -> None:
    price = getattr(PLATFORM.levels[1], access.__name__.lower())
    for key, nbytes in ((X0, 7), (T3, 11), (Key(Kind.ADJOINT, 1), 13)):
        assert seconds(access(key, 1), CHAIN, PLATFORM) == price(nbytes)


def test_a_schedule_as_text_ends_with_its_note_if_it_has_one() -> None:
    plain = Schedule(CHAIN, [Record(0, CHAIN.length), Reverse(0, CHAIN.length)])
    noted = Schedule(plain.chain, plain.actions, note="the only one")
    assert str(noted).splitlines() == [*str(plain).splitlines(), "the only one"]
