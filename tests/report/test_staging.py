"""What is on its way is what the rules of the traffic say, at every time."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import numpy as np
from drawing import Case, legal_schedules, random_legal
from hypothesis import given
from hypothesis import strategies as st

from ckio.actions import Advance, Discard, Key, Kind, Read, Write
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.report.pictures import PlotAxis, storage
from ckio.report.staging import staged
from ckio.schedule import Schedule
from ckio.schedule.occupancy import occupancies
from ckio.schedule.policy import Overlap
from ckio.sim.engine import simulate
from ckio.sim.overlapped import RankAlone

X0, X2 = Key(Kind.RESTART, 0), Key(Kind.RESTART, 2)
CHAIN = Chain(steps=4, advance=1.0, record=1.5, reverse=2.5, restart=10, tape=7, adjoint=3)
RAM = Level(name="ram", capacity=100, write=Affine(0.5), read=Affine(0.25))
DISK = Level(name="disk", backend="directory", write=Affine(4.0), read=Affine(1.0))
PLATFORM = Platform((RAM, DISK))


def staircase(
    actions: list[object], overlap: Overlap, chain: Chain = CHAIN
) -> list[tuple[float, int]]:
    timeline = simulate(Schedule(chain, actions), PLATFORM, overlap=overlap)  # type: ignore[arg-type]
    found = staged(timeline, chain, PLATFORM)
    return list(zip(found.times.tolist(), found.nbytes.tolist(), strict=True))


def test_a_write_is_staged_from_its_copy_to_the_end_of_its_transfer() -> None:
    # The copy takes half a second, the transfer four.
    assert staircase([Advance(0, 2), Write(X2, 1)], Overlap(1)) == [(0, 0), (2, 10), (6.5, 0)]


def test_a_cancelled_write_is_staged_until_it_is_cancelled() -> None:
    actions = [Write(X0, 1), Advance(0, 2), Write(X2, 1), Discard(X2, 1), Advance(2, 3)]
    assert staircase(actions, Overlap(2)) == [(0, 0), (0, 10), (2.5, 20), (3, 10), (4.5, 0)]


def test_what_the_program_waits_for_is_not_staged() -> None:
    assert staircase([Write(X0, 1), Advance(0, 2)], Overlap(0, 1)) == [(0, 0)]
    actions = [Write(X0, 1), Advance(0, 2), Advance(2, 4), Read(X0, 1)]
    assert staircase(actions, Overlap(1, 0)) == [(0, 0), (0, 10), (4.5, 0)]


def test_a_read_ahead_is_staged_up_to_its_use() -> None:
    actions = [Write(X0, 1), Advance(0, 2), Advance(2, 4), Read(X0, 1)]
    # Written directly up to 4; read from then to 5; used from 8 to 8.25.
    assert staircase(actions, Overlap(0, 1)) == [(0, 0), (4, 10), (8.25, 0)]


def test_it_has_a_floor_of_its_own_in_the_picture_where_something_overlaps() -> None:
    schedule = Schedule(CHAIN, [Advance(0, 2), Write(X2, 1)])
    for overlap, seen in ((Overlap(1), True), (Overlap(), False)):
        timeline = simulate(schedule, PLATFORM, overlap=overlap)
        text = storage(timeline, CHAIN, PLATFORM, PlotAxis(timeline.makespan)).element()
        assert (">on its way<" in text) == seen


class Watched(RankAlone):
    """Notes what is staged, by the rules themselves, after whatever happens."""

    def note(self) -> None:
        traffic = self.traffic
        rows = traffic._behind | set(traffic._ahead)
        if traffic._copied is not None:
            rows |= {traffic._copied.row}
        self.seen[self.now] = sum(traffic.columns.nbytes[row] for row in rows)

    def watched(self) -> dict[float, int]:
        self.seen: dict[float, int] = {}
        self.run()
        return self.seen

    def begin_all(self) -> None:
        super().begin_all()
        self.note()

    def end(self, number: int) -> None:
        super().end(number)
        self.note()

    def perform(self) -> Iterator[float]:
        for goes_on in super().perform():
            self.note()
            yield goes_on
        self.note()


def dearer(platform: Platform) -> Platform:
    """No access is free: what takes no time cannot be told apart by its times."""
    levels = [
        replace(
            level, **{name: Affine(getattr(level, name).latency + 1) for name in ("write", "read")}
        )
        for level in platform.levels
    ]
    return replace(platform, levels=tuple(levels))


def test_it_is_what_the_traffic_holds() -> None:
    told = 0
    for seed in range(60):
        random = Random(seed)
        schedule, platform = random_legal(random)
        platform, overlap = dearer(platform), Overlap(random.randint(0, 3), random.randint(0, 3))
        timeline = simulate(schedule, platform, overlap=overlap)
        if not len(timeline.transfers):
            continue
        found = staged(timeline, schedule.chain, platform)
        for time, nbytes in Watched(schedule, platform, overlap, None).watched().items():
            last = np.searchsorted(found.times, time, side="right") - 1
            assert found.nbytes[last] == nbytes, (seed, time)
            told += nbytes > 0
        assert found.nbytes[-1] == 0
    assert told > 100


@given(legal_schedules(), st.integers(0, 3), st.integers(0, 3))
def test_with_what_lies_in_memory_it_fits_there(case: Case, behind: int, ahead: int) -> None:
    schedule, platform = case
    timeline = simulate(schedule, platform, overlap=Overlap(behind, ahead))
    capacity = platform.levels[0].capacity if platform.levels else None
    if capacity is None or not len(timeline.transfers) or platform.levels[0].backend != "ram":
        return
    way = staged(timeline, schedule.chain, platform)
    assert way.peak_bytes <= capacity
    assert occupancies(timeline, schedule.chain, platform)[0].peak_bytes <= capacity
