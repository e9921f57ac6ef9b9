"""The rules of transfers, each by an example that can be reckoned in the head.

All of them at once are compared in `tests/sim/test_eventloop.py`.
"""

from typing import Any

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
BEHIND, AHEAD = Overlap(write_behind=1), Overlap(read_ahead=1)


def far(name: str, channel: str = "") -> Level:
    """A level that takes four seconds to write, three to read and half of one to discard."""
    costs = {"write": Affine(4.0), "read": Affine(3.0), "discard": Affine(0.5)}
    return Level(name=name, backend="directory", channel=channel or name, **costs)  # type: ignore[arg-type]


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


EXAMPLES: dict[str, tuple[list[Action], Overlap, dict[str, Any], list[Any], list[Any]]] = {
    "a write is copied, and transferred while the program goes on": (
        *([Write(X[0], FAR), Advance(0, 3)], BEHIND, {"ram": memory(1, copy=0.25)}),
        *([(0, 0.25), (0.25, 3.25)], [(0.25, 4.25)]),
    ),
    "a write waits where as many are staged as may be": (
        *([Write(X[0], FAR), Advance(0, 1), Write(X[1], FAR), Advance(1, 2)], BEHIND, {}),
        *([(0, 0), (0, 1), (1, 4), (4, 5)], [(0, 4), (4, 8)]),
    ),
    "a write that finds no memory, and nothing staged, is direct": (
        [Write(X[0], RAM), Write(X[0], FAR), Advance(0, 1)],
        *(BEHIND, {"ram": memory(1, copy=0.25)}),
        *([(0, 0.25), (0.25, 4.25), (4.25, 5.25)], [(0.25, 4.25)]),
    ),
    "what is still staged is read from there": (
        [Write(X[0], FAR), Advance(0, 1), Read(X[0], FAR), Advance(0, 1)],
        *(BEHIND, {"ram": memory(1, copy=0.5)}),
        *([(0, 0.5), (0.5, 1.5), (1.5, 2), (2, 3)], [(0.5, 4.5)]),
    ),
    "a discard cancels a write that has not begun": (
        [*(Write(X[0], FAR), Advance(0, 1), Write(X[1], FAR)), Discard(X[1], FAR)],
        *(Overlap(2), {}, [(0, 0), (0, 1), (1, 1), (1, 1)], [(0, 4)]),
    ),
    "a read is made ahead, and copied": (
        [Advance(0, 4), Read(X[0], FAR)],
        *(AHEAD, {"ram": memory(1, copy=0.5), "stored": {FAR: [X[0]]}}),
        *([(0, 4), (4, 4.5)], [(0, 3)]),
    ),
    "a read that the program waits for goes before what is queued": (
        [Advance(0, 1), Write(X[1], FAR), Advance(1, 2), Write(X[2], FAR), Read(X[0], FAR)],
        *(Overlap(2), {"stored": {FAR: [X[0]]}}),
        *([(0, 1), (1, 1), (1, 2), (2, 2), (2, 8)], [(1, 5), (5, 8), (8, 12)]),
    ),
    "a read ahead leaves the memory level what it is going to need": (
        [Write(X[0], RAM), Advance(0, 2), Discard(X[0], RAM), Advance(2, 6), Read(X[0], FAR)],
        *(AHEAD, {"ram": memory(1, discard=0.5), "stored": {FAR: [X[0]]}}),
        *([(0, 0), (0, 2), (2, 2.5), (2.5, 6.5), (6.5, 6.5)], [(2.5, 5.5)]),
    ),
    "nothing is read ahead before the horizon": (
        [*(Advance(step, step + 1) for step in range(4)), Read(X[0], FAR)],
        *(Overlap(0, 1, horizon=2.0), {"stored": {FAR: [X[0]]}}),
        *([(0, 1), (1, 2), (2, 3), (3, 4), (4, 4)], [(1, 4)]),
    ),
    "levels with channels of their own are written at once": (
        [Write(X[0], FAR), Write(X[0], OTHER)],
        *(Overlap(2), {}, [(0, 0), (0, 0)], [(0, 4), (0, 4)]),
    ),
    "levels that share a channel take turns": (
        [Write(X[0], FAR), Write(X[0], OTHER)],
        *(Overlap(2), {"channel": "far"}, [(0, 0), (0, 0)], [(0, 4), (4, 8)]),
    ),
}


@pytest.mark.parametrize(
    ("actions", "overlap", "given", "program", "transfers"), EXAMPLES.values(), ids=EXAMPLES
)
def test_a_rule_by_example(
    actions: list[Action],
    overlap: Overlap,
    given: dict[str, Any],
    program: list[tuple[float, float]],
    transfers: list[tuple[float, float]],
) -> None:
    timeline = performed(actions, overlap, **given)
    assert [(event.start, event.stop) for event in timeline] == program
    assert [(event.start, event.stop) for event in timeline.transfers] == transfers


def test_a_copy_behind_which_nothing_is_left_to_do_makes_a_schedule_slower() -> None:
    actions: list[Action] = [Write(X[0], FAR)]
    assert performed(actions, Overlap(), ram=memory(1, copy=0.25)).makespan == 4
    assert performed(actions, BEHIND, ram=memory(1, copy=0.25)).makespan == 4.25


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
    assert (traffic.used, traffic.begin(0)) == (1, None)
    traffic.leave()
    assert (traffic.used, traffic.finished) == (0, True)


def test_only_plain_memory_in_front_is_the_pool() -> None:
    following = Level(name="next")
    assert memory_level(Platform((Level(name="ram"), following))) == 0
    compressed = Level(name="ram", options={"codec": "zstd"})
    for first in (compressed, Level(name="disk", backend="directory")):
        assert memory_level(Platform((first, following))) is None
    assert memory_level(Platform(())) is None


def test_without_a_memory_level_copies_cost_nothing_and_counts_are_the_only_limit() -> None:
    actions = [Write(X[0], RAM), Write(X[0], FAR), Write(X[0], OTHER), Advance(0, 1)]
    disk = Level(name="disk", backend="directory", capacity=1, write=Affine(2.0))
    timeline = performed(actions, Overlap(None), ram=disk)
    assert timeline.stop.tolist() == [0, 0, 0, 1]
    assert timeline.transfers.stop.tolist() == [2, 4, 4]
