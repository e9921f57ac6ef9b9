"""Each rule of the traffic, on schedules whose times can be reckoned in the head."""

from math import inf

import pytest

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Write
from ckio.overlap.rules import ActionMode, Traffic, memory_level
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap
from ckio.schedule.timeline import Timeline
from ckio.sim.engine import simulate

RAM, FAR, OTHER = range(3)
X = [Key(Kind.RESTART, step) for step in range(10)]
CHAIN = Chain(steps=9, advance=1.0, record=1.0, reverse=1.0, restart=1, tape=1, adjoint=1)


def far(name: str, channel: str = "") -> Level:
    """A level that takes four seconds to write, three to read and half of one to discard."""
    return Level(
        name=name,
        backend="directory",
        channel=channel or name,
        write=Affine(4.0),
        read=Affine(3.0),
        discard=Affine(0.5),
    )


def memory(slots: int | None, copy: float = 0.0, discard: float = 0.0) -> Level:
    copying = Affine(copy)
    return Level(
        name="ram", capacity=slots, write=copying, read=copying, discard=Affine(discard)
    )  # fmt: skip


def performed(
    actions: list[Action],
    overlap: Overlap,
    *,
    ram: Level | None = None,
    stored: dict[int, list[Key]] | None = None,
    channel: str = "other",
) -> Timeline:
    """A schedule on memory and two far levels, of which `stored` says what lies there."""
    levels = (ram or memory(None), far("far"), far("other", channel))
    there = [(stored or {}).get(number, []) for number in range(3)]
    return simulate(Schedule(CHAIN, actions, there), Platform(levels, 1), overlap=overlap)


def times(timeline: Timeline) -> list[tuple[float, float]]:
    return [(event.start, event.stop) for event in timeline]


def moved(timeline: Timeline) -> list[tuple[str, float, float]]:
    return [(str(event.action), event.start, event.stop) for event in timeline.transfers]


BEHIND, AHEAD = Overlap(write_behind=1), Overlap(read_ahead=1)


def test_a_write_is_copied_and_transferred_behind_the_program() -> None:
    timeline = performed([Write(X[0], FAR), Advance(0, 3)], BEHIND, ram=memory(1, copy=0.25))
    assert times(timeline) == [(0, 0.25), (0.25, 3.25)]
    assert moved(timeline) == [("Write(x_0, level 1)", 0.25, 4.25)]
    assert timeline.makespan == 4.25


def test_a_copy_behind_which_nothing_is_left_to_do_makes_a_schedule_slower() -> None:
    actions: list[Action] = [Write(X[0], FAR)]
    assert performed(actions, Overlap(), ram=memory(1, copy=0.25)).makespan == 4
    assert performed(actions, BEHIND, ram=memory(1, copy=0.25)).makespan == 4.25


def test_too_many_that_are_staged_make_the_next_write_wait() -> None:
    actions = [Write(X[0], FAR), Advance(0, 1), Write(X[1], FAR), Advance(1, 2)]
    timeline = performed(actions, BEHIND)
    assert times(timeline) == [(0, 0), (0, 1), (1, 4), (4, 5)]
    assert [start for _, start, _ in moved(timeline)] == [0, 4]
    assert times(performed(actions, Overlap(2)))[2:] == [(1, 1), (1, 2)]


def test_a_write_that_finds_no_room_and_nothing_staged_is_direct() -> None:
    actions = [Write(X[0], RAM), Write(X[0], FAR), Advance(0, 1)]
    timeline = performed(actions, BEHIND, ram=memory(1, copy=0.25))
    assert times(timeline) == [(0, 0.25), (0.25, 4.25), (4.25, 5.25)]
    assert moved(timeline) == [("Write(x_0, level 1)", 0.25, 4.25)]


def test_a_write_that_finds_no_room_waits_for_one_that_is_staged_anywhere() -> None:
    actions = [Write(X[0], FAR), Write(X[0], OTHER), Advance(0, 1)]
    timeline = performed(actions, Overlap(2), ram=memory(1))
    assert times(timeline) == [(0, 0), (0, 4), (4, 5)]
    assert moved(timeline)[1] == ("Write(x_0, level 2)", 4, 8)


def test_a_write_to_memory_waits_until_the_pool_has_room() -> None:
    timeline = performed([Write(X[0], FAR), Write(X[0], RAM)], BEHIND, ram=memory(1, copy=0.5))
    assert times(timeline) == [(0, 0.5), (0.5, 5)]


def test_what_is_still_staged_is_read_from_there() -> None:
    actions = [Write(X[0], FAR), Advance(0, 1), Read(X[0], FAR), Advance(0, 1)]
    timeline = performed(actions, BEHIND, ram=memory(1, copy=0.5))
    assert times(timeline) == [(0, 0.5), (0.5, 1.5), (1.5, 2), (2, 3)]
    assert moved(timeline) == [("Write(x_0, level 1)", 0.5, 4.5)]


def test_what_is_copied_while_its_transfer_ends_is_not_read_ahead_as_well() -> None:
    actions = [Write(X[0], FAR), Advance(0, 1), Read(X[0], FAR), Advance(0, 8), Write(X[8], RAM)]
    timeline = performed(actions, Overlap(1, 1), ram=memory(1, copy=2.0))
    assert moved(timeline) == [("Write(x_0, level 1)", 2, 6)]
    assert times(timeline)[2:] == [(3, 5), (5, 13), (13, 15)]
    late = [Write(X[0], FAR), Advance(0, 3), Read(X[0], FAR), Advance(0, 8), Write(X[8], RAM)]
    timeline = performed(late, Overlap(1, 1), ram=memory(1, copy=2.0))
    assert moved(timeline) == [("Write(x_0, level 1)", 2, 6)]
    assert times(timeline)[2:] == [(5, 7), (7, 15), (15, 17)]


def test_the_pool_holds_a_copied_write_until_the_copy_has_ended() -> None:
    platform = Platform((memory(1, copy=2.0), far("far")), 1)
    actions = [Write(X[0], FAR), Advance(0, 3), Read(X[0], FAR)]
    traffic = Traffic(Schedule(CHAIN, actions), platform, BEHIND)
    assert (step := traffic.enter()) is not None
    assert step.way is ActionMode.STAGE
    traffic.leave()
    assert traffic.begin(0) is step.transfer
    traffic.enter()
    traffic.leave()
    assert (step := traffic.enter()) is not None
    assert step.way is ActionMode.STAGED
    traffic.end(0)
    assert traffic.used == 1
    assert traffic.begin(0) is None
    traffic.leave()
    assert traffic.used == 0
    assert traffic.finished


def test_a_read_that_the_program_waits_for_goes_before_what_is_queued() -> None:
    actions = [
        *(Advance(0, 1), Write(X[1], FAR), Advance(1, 2), Write(X[2], FAR), Read(X[0], FAR)),
    ]  # fmt: skip
    timeline = performed(actions, Overlap(2), stored={FAR: [X[0]]})
    assert times(timeline)[-1] == (2, 8)
    assert [start for _, start, _ in moved(timeline)] == [1, 5, 8]


def test_a_read_is_made_ahead_and_copied() -> None:
    timeline = performed(
        [Advance(0, 4), Read(X[0], FAR)], AHEAD, ram=memory(1, copy=0.5), stored={FAR: [X[0]]}
    )
    assert times(timeline) == [(0, 4), (4, 4.5)]
    assert moved(timeline) == [("Read(x_0, level 1)", 0, 3)]


def test_what_is_being_read_ahead_is_waited_for() -> None:
    timeline = performed([Advance(0, 1), Read(X[0], FAR)], AHEAD, stored={FAR: [X[0]]})
    assert times(timeline) == [(0, 1), (1, 3)]


def test_the_first_action_is_begun_before_anything_is_read_ahead() -> None:
    timeline = performed([Read(X[0], FAR)], AHEAD, ram=memory(1, copy=1.0), stored={FAR: [X[0]]})
    assert times(timeline) == [(0, 3)]


def test_no_more_is_read_ahead_than_the_policy_says() -> None:
    actions = [Advance(0, 9), Read(X[0], FAR), Read(X[1], FAR)]
    lying = {FAR: [X[0], X[1]]}
    one = performed(actions, AHEAD, stored=lying)
    assert [start for _, start, _ in moved(one)] == [0, 9]
    two = performed(actions, Overlap(0, 2), stored=lying)
    assert [start for _, start, _ in moved(two)] == [0, 3]
    assert (one.makespan, two.makespan) == (12, 9)


def test_nothing_is_read_before_the_horizon() -> None:
    actions = [*(Advance(step, step + 1) for step in range(4)), Read(X[0], FAR)]
    starts = {
        horizon: moved(performed(actions, Overlap(0, 1, horizon), stored={FAR: [X[0]]}))[0][1]
        for horizon in (inf, 2.0, 1.0, 0.0)
    }
    assert starts == {inf: 0, 2.0: 1, 1.0: 2, 0.0: 3}


def test_what_is_not_yet_written_is_not_read_ahead() -> None:
    timeline = performed([Write(X[0], FAR), Advance(0, 6), Read(X[0], FAR)], Overlap(1, 1))
    assert moved(timeline) == [("Write(x_0, level 1)", 0, 4), ("Read(x_0, level 1)", 4, 7)]
    assert times(timeline)[-1] == (6, 7)


def test_a_read_ahead_never_takes_what_the_memory_level_is_going_to_need() -> None:
    fill = [Advance(0, 1), Write(X[1], RAM), Advance(1, 2), Discard(X[1], RAM)]
    actions = [*fill, Advance(2, 6), Read(X[0], FAR)]
    timeline = performed(actions, AHEAD, ram=memory(1, discard=0.5), stored={FAR: [X[0]]})
    assert moved(timeline) == [("Read(x_0, level 1)", 2.5, 5.5)]
    roomy = performed(actions, AHEAD, ram=memory(2, discard=0.5), stored={FAR: [X[0]]})
    assert moved(roomy) == [("Read(x_0, level 1)", 0, 3)]


def test_a_read_ahead_fits_beside_those_that_still_lie_there_at_its_use() -> None:
    actions = [Advance(0, 4), Read(X[0], FAR), Advance(0, 1), Write(X[1], RAM), Read(X[0], OTHER)]
    lying = {FAR: [X[0]], OTHER: [X[0]]}
    timeline = performed(actions, Overlap(0, 2), ram=memory(2), stored=lying)
    assert moved(timeline) == [("Read(x_0, level 1)", 0, 3), ("Read(x_0, level 2)", 0, 3)]
    tight = performed(actions, Overlap(0, 2), ram=memory(1), stored=lying)
    assert moved(tight) == [("Read(x_0, level 1)", 0, 3), ("Read(x_0, level 2)", 5, 8)]


def test_while_the_program_waits_for_a_write_its_channel_reads_nothing_ahead() -> None:
    fill = [Write(X[0], RAM), Advance(0, 1), Discard(X[0], RAM)]
    actions = [*fill, Write(X[1], FAR), Read(X[0], FAR)]
    timeline = performed(actions, AHEAD, ram=memory(1), stored={FAR: [X[0]]})
    assert moved(timeline) == [("Write(x_1, level 1)", 1, 5), ("Read(x_0, level 1)", 5, 8)]


def test_a_discard_cancels_a_write_that_has_not_begun() -> None:
    actions = [
        *(Write(X[0], FAR), Advance(0, 1), Write(X[1], FAR), Discard(X[1], FAR)),
        *(Write(X[1], FAR), Discard(X[0], FAR)),
    ]
    timeline = performed(actions, Overlap(2))
    assert moved(timeline) == [
        ("Write(x_0, level 1)", 0, 4),
        ("Write(x_1, level 1)", 4, 8),
        ("Discard(x_0, level 1)", 8, 8.5),
    ]
    assert times(timeline)[2:] == [(1, 1)] * 4


def test_a_write_cancelled_gives_its_room_back() -> None:
    actions = [
        *(Write(X[0], FAR), Write(X[0], OTHER), Advance(0, 1)),
        *(Write(X[1], FAR), Discard(X[1], FAR), Write(X[1], RAM)),
    ]
    timeline = performed(actions, Overlap(3), ram=memory(3))
    assert times(timeline)[3:] == [(1, 1)] * 3


@pytest.mark.parametrize(("channel", "start"), [("far", 4), ("other", 0)])
def test_levels_that_share_a_channel_take_turns(channel: str, start: float) -> None:
    actions = [Write(X[0], FAR), Write(X[0], OTHER)]
    timeline = performed(actions, Overlap(2), channel=channel)
    assert [begin for _, begin, _ in moved(timeline)] == [0, start]


def test_room_that_one_channel_gives_back_another_takes_at_once() -> None:
    actions = [Write(X[0], FAR), Advance(0, 8), Read(X[0], OTHER)]
    timeline = performed(actions, Overlap(1, 1), ram=memory(1), stored={OTHER: [X[0]]})
    assert moved(timeline) == [("Write(x_0, level 1)", 0, 4), ("Read(x_0, level 2)", 4, 7)]
    assert times(timeline)[-1] == (8, 8)


def test_channels_begin_in_the_order_of_the_platform() -> None:
    actions = [Advance(0, 4), Read(X[0], OTHER), Read(X[0], FAR)]
    lying = {FAR: [X[0]], OTHER: [X[0]]}
    timeline = performed(actions, Overlap(0, 2), ram=memory(1), stored=lying)
    assert moved(timeline) == [("Read(x_0, level 1)", 0, 3), ("Read(x_0, level 2)", 4, 7)]


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (Level(name="ram"), 0),
        (Level(name="ram", options={"codec": "zstd"}), None),
        (Level(name="disk", backend="directory"), None),
    ],
)
def test_only_plain_memory_in_front_is_the_pool(first: Level, expected: int | None) -> None:
    assert memory_level(Platform((first, Level(name="next")))) == expected
    assert memory_level(Platform(())) is None


def test_without_a_memory_level_copies_cost_nothing_and_counts_are_the_only_limit() -> None:
    actions = [Write(X[0], RAM), Write(X[0], FAR), Write(X[0], OTHER), Advance(0, 1)]
    disk = Level(name="disk", backend="directory", capacity=1, write=Affine(2.0))
    timeline = performed(actions, Overlap(None), ram=disk)
    assert times(timeline) == [(0, 0)] * 3 + [(0, 1)]
    assert [stop for _, _, stop in moved(timeline)] == [2, 4, 4]
