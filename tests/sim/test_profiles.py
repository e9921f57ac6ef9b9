"""What a level's profile says: transfers beside the computation, and bytes that wait.

All rules at once are compared in `test_eventloop`; these examples can be reckoned by hand.
"""

from dataclasses import replace

from ckio.actions import Advance, Discard, Key, Kind, Read, Write
from ckio.overlap.costs import Backlog
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.profile import Profile
from ckio.schedule import Schedule, makespan
from ckio.schedule.policy import Overlap
from ckio.schedule.timeline import Timeline
from ckio.sim.engine import simulate

X0, X2 = Key(Kind.RESTART, 0), Key(Kind.RESTART, 2)
CHAIN = Chain(steps=4, advance=1.0, record=1.5, reverse=2.5, restart=10, tape=7, adjoint=3)
RAM = Level(name="ram", capacity=100, write=Affine(0.5), read=Affine(0.25))
DISK = Level(name="disk", backend="directory", write=Affine(4.0), read=Affine(1.0))
TAPE = Level(name="tape", backend="directory", write=Affine(9.0), read=Affine(10.0))
DIRTY = replace(DISK, profile=Profile(dirty=15, drained=2.0), discard=Affine(1.0))


def of(timeline: Timeline) -> list[tuple[float, float]]:
    return list(zip(timeline.start.tolist(), timeline.stop.tolist(), strict=True))


def test_a_write_behind_takes_its_own_price_and_puts_off_what_it_begins_beside() -> None:
    measured = Profile(write_beside=Affine(2.0, 0.5), write_hinders=Affine(0.25, 0.0125))
    platform = Platform((RAM, replace(DISK, profile=measured)))
    schedule = Schedule(CHAIN, [Write(X0, 1), Advance(0, 2), Advance(2, 3)])
    timeline = simulate(schedule, platform, overlap=Overlap(1))
    assert of(timeline.transfers) == [(0.5, 7.5)]  # 2 s, and half a second for each of 10 bytes
    assert of(timeline) == [(0.0, 0.5), (0.5, 2.875), (2.875, 3.875)]  # 0.375 are lost, once
    direct = simulate(schedule, platform, overlap=Overlap(0, 1))
    assert (of(direct)[0], of(direct.transfers)) == ((0.0, 4.0), [(0.0, 4.0)])


def test_what_begins_while_the_end_is_put_off_puts_it_off_again() -> None:
    hinders = Profile(read_hinders=Affine(0.0, 0.2))
    disk = replace(DISK, profile=hinders, discard=Affine(2.25))
    tape = replace(TAPE, profile=Profile(read_hinders=Affine(0.5)))
    x3 = Key(Kind.RESTART, 3)
    actions = [Discard(X0, 1), Advance(0, 2), Read(x3, 2), Read(X2, 1)]
    schedule = Schedule(CHAIN, actions, [set(), {X0, X2}, {x3}])
    timeline = simulate(schedule, Platform((RAM, disk, tape)), overlap=Overlap(0, 2))
    # The read from the disk begins at 2.25, when the advance would have ended but for the other.
    assert of(timeline)[1] == (0.0, 2.0 + 0.5 + 2.0)


def test_a_backlog_takes_what_it_may_and_then_makes_wait() -> None:
    backlog = Backlog(100, 10.0)
    assert backlog.longer(0.0, 100) == 0.0
    assert backlog.longer(0.0, 150) == 5.0
    backlog.add(2.0, 80)
    assert backlog.longer(2.0, 20) == 0.0
    assert backlog.longer(3.0, 50) == (70 + 50 - 100) / 10
    backlog.add(4.0, 50)  # 60 and 50 wait
    assert backlog.longer(5.0, 10) == 1.0
    assert backlog.longer(90.0, 110) == 1.0  # all is on the device


def test_a_write_waits_where_too_many_bytes_do() -> None:
    schedule = Schedule(
        CHAIN, [Write(X0, 0), Advance(0, 2), Write(X2, 0), Read(X0, 0), Discard(X2, 0)]
    )
    # At 4 ten bytes wait, at 6 six: then one too many does, for half a second.
    alone = Platform((DIRTY,))
    assert simulate(schedule, alone).stop.tolist() == [4.0, 6.0, 10.5, 11.5, 12.5]
    assert makespan(schedule, alone) == 12.0
    behind = Schedule(CHAIN, [Write(X0, 1), Advance(0, 2), Write(X2, 1), Advance(2, 3)])
    timeline = simulate(behind, Platform((RAM, DIRTY)), overlap=Overlap(2))
    assert of(timeline.transfers) == [(0.5, 4.5), (4.5, 4.5 + 4.0 + (10 + 10 - 15) / 2)]
