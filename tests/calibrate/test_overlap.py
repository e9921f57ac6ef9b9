"""What a level and the computation cost each other."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_models import Decay

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.columns import DISCARD, READ, WRITE, Actions
from ckio.backends.base import Backend
from ckio.backends.compressed import Compressed
from ckio.backends.directory import Directory
from ckio.backends.ram import Ram
from ckio.calibrate import calibrate
from ckio.calibrate.overlap import OverlapProbe, lost, own
from ckio.calibrate.probe import Workload
from ckio.compression import Zstd
from ckio.platform import Affine
from ckio.platform.chain import Chain
from ckio.platform.clock import VirtualClock
from ckio.schedule.timeline import Timeline
from ckio.testing import CountingModel

CHAIN = Chain(
    steps=24, advance=1e-4, record=1e-4, reverse=1e-4, restart=5000, tape=3000, adjoint=7000
)
SIZES = {Kind.RESTART: 100, Kind.TAPE: 50}
X, T = Key(Kind.RESTART, 0), Key(Kind.TAPE, 0)


def timeline(
    actions: Sequence[Action], took: Sequence[float], transfers: Timeline | None = None
) -> Timeline:
    stop = np.cumsum(took)
    found = Actions.of(list(actions))
    return Timeline(found, stop - took, stop, np.zeros(len(found), np.int64), transfers)


def transfers(*moved: tuple[Action, float, float]) -> Timeline:
    actions, start, stop = zip(*moved, strict=True)
    nothing = np.zeros(len(moved), np.int64)
    return Timeline(Actions.of(list(actions)), np.array(start), np.array(stop), nothing)


ACTIONS = [
    *(Write(X, 1), Advance(0, 1), Record(1, 2), Write(T, 1), Advance(0, 1), Reverse(1, 2)),
    *(Read(X, 1), Advance(0, 1), Discard(X, 1), Advance(0, 1), Advance(1, 2)),
]
"""All that computes takes 10 seconds alone, and all else 1."""
ALONE = [1.0, 10.0, 10.0, 1.0, 10.0, 10.0, 1.0, 10.0, 1.0, 10.0, 10.0]
LATENCY, PER_BYTE, DISCARDED, OVERHEAD = 0.5, 0.02, 0.25, 0.125


def longer() -> Timeline:
    """As it would be, were each loss as long as its law says."""
    of_x, of_t = LATENCY + PER_BYTE * 100, LATENCY + PER_BYTE * 50
    more = [0.0, of_x, 0.0, 0.0, 0.75 * of_t, 0.25 * of_t, 0.0, of_x, 0.0, DISCARDED, 0.0]
    took = [
        alone + lost + (OVERHEAD if action_computes else 0.0)
        for alone, lost, action_computes in zip(
            ALONE, more, [isinstance(it, Advance | Record | Reverse) for it in ACTIONS], strict=True
        )
    ]
    begin = [0.0, *np.cumsum(took).tolist()]
    moved = transfers(
        (Write(X, 1), begin[1], begin[2]),
        (Write(T, 1), begin[5] - 3, begin[5] + 1),  # a quarter of it beside the next action
        (Read(X, 1), begin[7] + 1, begin[7] + 2),
        (Discard(X, 1), begin[9] + 1, begin[9] + 1.5),
    )
    return timeline(ACTIONS, took, moved)


def test_losses_are_told_apart_by_what_goes_on_beside_each_action() -> None:
    overhead, losses = lost([(longer(), timeline(ACTIONS, ALONE))] * 2, SIZES)
    assert overhead == pytest.approx(OVERHEAD)
    assert losses[WRITE].latency == pytest.approx(LATENCY)
    assert losses[WRITE].per_byte == pytest.approx(PER_BYTE)
    assert losses[READ](100) == pytest.approx(LATENCY + PER_BYTE * 100)
    assert losses[DISCARD].latency == pytest.approx(DISCARDED)


def test_nothing_is_won() -> None:
    faster = timeline(ACTIONS, [0.5 * seconds for seconds in ALONE], longer().transfers)
    overhead, losses = lost([(faster, timeline(ACTIONS, ALONE))], SIZES)
    assert (overhead, *losses.values()) == (0.0, Affine(), Affine(), Affine())


def test_what_the_program_does_itself_is_told_from_what_it_waits_for() -> None:
    actions = [Read(X, 1), Advance(0, 1), Read(X, 1), Write(X, 1)]
    moved = transfers((Read(X, 1), 0.0, 1.0), (Read(X, 1), 2.0, 5.0))
    taken = timeline(actions, [1.5, 4.0, 0.75, 2.5], moved)
    assert own([taken], READ).tolist() == [0.75]  # the first ended while the program was at it
    again = timeline([Write(X, 1)] * 3, [9.0, 1.0, 2.0])
    assert own([again], WRITE).tolist() == [1.0, 2.0]  # the first of a pass is unlike the others
    assert own([taken], WRITE, Kind.RESTART).tolist() == [2.5]
    assert own([taken], WRITE, Kind.TAPE).tolist() == []
    written = transfers((Write(X, 1), 0.5, 4.0), (Write(X, 1), 4.0, 7.5))
    full = timeline([Write(X, 1)] * 3, [0.5, 4.0, 0.75], written)
    assert own([full], WRITE).tolist() == [0.75]  # the second waited until the first had ended
    always = timeline([Write(X, 1)] * 2, [4.0, 4.0], written)
    assert own([always], WRITE).tolist() == [4.0]


class Unhurried(CountingModel):
    """Its steps take long enough for transfers to end beside them, on a busy machine too."""

    def advance(self, begin: int, end: int, /) -> int:
        time.sleep(0.001 * (end - begin))
        return super().advance(begin, end)

    def record(self, begin: int, end: int, /) -> int:
        time.sleep(0.001 * (end - begin))
        return super().record(begin, end)

    def reverse(self, begin: int, end: int, /) -> None:
        time.sleep(0.001 * (end - begin))
        super().reverse(begin, end)


def probe(backend: Backend, slots: int = 20, chain: Chain = CHAIN) -> Mapping[str, set[int]]:
    """The bytes for which each price was found."""
    beside = OverlapProbe(
        level="far",
        backend=backend,
        workload=Workload(lambda: Unhurried(chain), chain.restart, chain.length, own=True),
        slots=slots,
    )
    found: dict[str, set[int]] = {}
    for sample in beside.samples():
        assert sample.seconds >= 0
        found.setdefault(sample.access, set()).add(sample.nbytes)
    return found


MEASURED = {
    *("overhead", "handoff", "write_beside", "read_beside", "write_own", "read_own"),
    *("write_hinders", "read_hinders", "discard_hinders"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ram", "directory", "compressed"])
def test_transfers_beside_the_computation_are_measured_and_nothing_stays(
    kind: str, tmp_path: Path
) -> None:
    level: Backend = Ram() if kind != "directory" else Directory(tmp_path / "far")
    level = Compressed(level, Zstd()) if kind == "compressed" else level
    found = probe(level)
    assert found.keys() >= MEASURED - {"read_own"}  # perhaps it had to wait for all of them
    assert found["write_beside"] == found["read_beside"] == {5000, 3000}
    assert list(level.keys()) == []


@pytest.mark.slow
@pytest.mark.parametrize("tape", [0, 10_000])
def test_tapes_that_are_nothing_or_too_large_are_not_held_for_it(tape: int) -> None:
    found = probe(Ram(), chain=replace(CHAIN, tape=tape))
    assert found["write_beside"] == {5000}


@pytest.mark.slow
def test_no_more_is_stored_than_the_level_holds() -> None:
    assert probe(Ram(capacity=2 * CHAIN.restart), slots=2)["write_beside"] == {5000}


@pytest.mark.slow
def test_a_profile_is_part_of_what_calibration_finds(tmp_path: Path) -> None:
    backends: dict[str, Backend] = {"ram": Ram(), "nvme": Directory(tmp_path / "nvme")}
    found = calibrate(backends, models={"counting": lambda: Unhurried(CHAIN)}, repeats=2)
    ram, nvme = (level.profile for level in found.levels)
    assert ram is not None
    assert nvme is not None
    assert (ram.write_beside, ram.cached, ram.dirty) == (None, None, None)
    prices = (nvme.first, nvme.write_beside, nvme.read_beside, nvme.write_own, nvme.discard_hinders)
    assert all(price is not None and price(5000) > 0 for price in prices)
    assert nvme.cached


@pytest.mark.campaign
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5])
def test_short_programs_are_measured_with_what_they_have(steps: int, tmp_path: Path) -> None:
    backends: dict[str, Backend] = {"ram": Ram(), "nvme": Directory(tmp_path / "nvme")}
    found = calibrate(backends, models={"short": lambda: Decay(steps=steps)}, repeats=1)
    assert found.levels[1].profile is not None


@pytest.mark.parametrize(
    ("run_steps", "overlaps"), [(1000, False), (10_000_000, True), (None, True)]
)
def test_overlap_is_measured_only_for_a_run_that_takes_long(
    run_steps: int | None, overlaps: bool, tmp_path: Path
) -> None:
    """A run of 1000 steps of microseconds is measured for a second at most."""
    chain = replace(CHAIN, steps=24)
    platform = calibrate(
        {"ram": Ram(), "disk": Directory(tmp_path / "level")},
        repeats=1,
        models={"counting": lambda: CountingModel(chain)},
        run_steps=run_steps,
    )
    disk = platform.levels[1]
    assert (disk.profile is not None and disk.profile.write_beside is not None) == overlaps
    assert disk.write(5000) > 0
    assert platform.models["counting"].advance > 0


def test_a_clock_that_stands_still_is_no_error() -> None:
    """As of a model in virtual time whose steps take none."""
    chain = replace(CHAIN, steps=24)
    platform = calibrate(
        {"ram": Ram()},
        models={"counting": lambda: CountingModel(chain)},
        run_steps=100,
        clock=VirtualClock(),
    )
    assert platform.models["counting"].restart == chain.restart
