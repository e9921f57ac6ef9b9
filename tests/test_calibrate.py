"""What calibration finds on levels and models whose prices are known."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_models import Decay

from ckio.actions import Advance, Buffers, Key, Kind, Layout, Record
from ckio.actions.columns import ADVANCE, Actions
from ckio.backends.compressed import Compressed
from ckio.backends.directory import Directory
from ckio.backends.files import Files
from ckio.backends.ram import Ram
from ckio.calibrate import MARGIN, Sample, calibrate, fit, measure_model
from ckio.calibrate.samples import seconds_of, typical
from ckio.compression import Zstd
from ckio.errors import BadInput, UnsupportedKind
from ckio.model.arrays import Arrays
from ckio.platform import Affine, Level
from ckio.platform.chain import Chain
from ckio.platform.clock import VirtualClock
from ckio.schedule.timeline import Timeline
from ckio.testing import CountingModel, Throttled

CHAIN = Chain(
    steps=24, advance=0.0625, record=0.125, reverse=0.25, restart=5000, tape=3000, adjoint=7000
)
RAM = Level(name="ram", write=Affine(0.5, 1e-4), read=Affine(0.25, 2e-4), discard=Affine(0.125))
FAR = Level(name="far", write=Affine(2.0, 1e-3), read=Affine(3.0, 5e-4), discard=Affine(0.5))


def test_it_finds_the_prices_of_levels_and_models() -> None:
    clock = VirtualClock()
    backends = {level.name: Throttled(Ram(), level, clock) for level in (RAM, FAR)}
    models = {"counting": lambda: CountingModel(CHAIN, clock)}
    found = calibrate(backends, models=models, repeats=2, clock=clock)
    for level, known in zip(found.levels, (RAM, FAR), strict=True):
        for access in ("write", "read", "discard"):
            cost, real = getattr(level, access), getattr(known, access)
            assert cost.latency == pytest.approx(real.latency, rel=1e-6)
            assert cost.per_byte == pytest.approx(real.per_byte, rel=1e-6, abs=1e-12)
    costs = found.models["counting"].with_steps(24)
    assert (costs.restart, costs.tape, costs.adjoint) == (5000, 3000, 7000)
    assert costs.advance == pytest.approx(0.0625)
    assert costs.record == pytest.approx(0.125)
    assert costs.reverse == pytest.approx(0.25)
    assert found.working_memory == 3000


def test_a_level_is_tried_only_with_what_it_can_hold() -> None:
    tried: list[str] = []
    calibrate(
        {"ram": Ram()},
        [100, 1000],
        repeats=1,
        capacities={"ram": 500},
        progress=lambda what, total: tried.append(f"{what} of {total}"),
    )
    assert tried == ["ram, 100 bytes of 1"]
    with pytest.raises(BadInput, match="level 'ram': its capacity of 50 B is less than the"):
        calibrate({"ram": Ram()}, [100, 1000], repeats=1, capacities={"ram": 50})


def test_files_are_read_hot_and_cold_and_none_is_left(tmp_path: Path) -> None:
    level = Directory(tmp_path / "level")
    found = calibrate({"nvme": level}, [1000, 9000], repeats=1)
    assert found.levels[0].read_cold is not None
    assert list(level.keys()) == []


class Syncs(Files):
    """Counts the waits for the device."""

    count = 0

    def sync(self, fd: int, /) -> None:
        self.count += 1
        super().sync(fd)


def test_what_is_measured_is_the_durability_that_was_opened(tmp_path: Path) -> None:
    syncs = {}
    for durability in ("process", "fdatasync"):
        files = Syncs()
        level = Directory(tmp_path / durability, durability=durability, files=files)
        calibrate({"nvme": level}, [1000], repeats=1)
        level.close()
        syncs[durability] = files.count
    assert syncs["process"] == 0
    # Two passes and a cold one, of 23 slots each; writing takes two, discarding one.
    assert syncs["fdatasync"] >= 3 * 23 * 3


def test_a_level_that_compresses_counts_what_it_stores() -> None:
    models = {"counting": lambda: CountingModel(CHAIN)}
    found = calibrate({"ram": Compressed(Ram(), Zstd())}, models=models, repeats=1)
    assert found.levels[0].ratio < 0.5
    noise = calibrate({"ram": Compressed(Ram(), Zstd())}, [5000], repeats=1)
    assert 1.0 <= noise.levels[0].ratio <= 1.1 * MARGIN


class DecayOfStatesOnly(Decay):
    """One that stores nothing but its state."""

    def layout(self, key: Key, /) -> Layout:
        if key.kind is not Kind.RESTART:
            raise UnsupportedKind(f"{key}: only states can be stored")
        return super().layout(key)


@pytest.mark.campaign
@pytest.mark.parametrize("steps", [1, 2, 3, 10, 23, 24, 25])
def test_a_program_that_is_shorter_than_the_probe_is_measured_too(steps: int) -> None:
    costs = measure_model(lambda: Decay(steps=steps), repeats=2)
    assert min(costs.advance, costs.record, costs.reverse) > 0
    found = calibrate({"ram": Ram()}, models={"decay": lambda: Decay(steps=steps)}, repeats=1)
    assert set(found.models) == {"decay"}


def test_a_program_without_a_step_cannot_be_measured() -> None:
    with pytest.raises(BadInput, match="finishes at step 0"):
        measure_model(lambda: Decay(steps=0))


def test_a_slow_model_is_measured_on_fewer_steps() -> None:
    clock = VirtualClock()
    chain = replace(CHAIN, steps=3, advance=2.0, record=7.0, reverse=11.0)
    costs = measure_model(lambda: CountingModel(chain, clock), clock=clock)
    assert (costs.advance, costs.record, costs.reverse) == (2.0, 7.0, 11.0)
    assert clock.now() < 100


def test_a_machine_that_becomes_slower_is_seen_fast_and_slow() -> None:
    clock, made = VirtualClock(), list[bool]()

    def make() -> CountingModel:
        made.append(clock.now() > 500)
        advance = 3e-3 if made[-1] else 1e-3
        return CountingModel(replace(CHAIN, advance=advance, record=0, reverse=0), clock)

    levels = {level.name: Throttled(Ram(), level, clock) for level in (RAM, FAR)}
    found = calibrate(levels, models={"counting": make}, repeats=2, clock=clock)
    assert set(made) == {True, False}
    assert 1.2e-3 < found.models["counting"].advance < 2.8e-3


@pytest.mark.slow
def test_the_working_memory_holds_a_step_of_every_model() -> None:
    models = {"small": lambda: Decay(3), "large": lambda: Decay(30), "none": DecayOfStatesOnly}
    found = calibrate({"ram": Ram()}, models=models, repeats=1)
    assert found.working_memory == found.models["large"].tape == 248
    assert (found.models["none"].tape, found.models["none"].adjoint) == (0, 0)


@pytest.mark.parametrize("nbytes", [1, 7])
def test_the_smallest_checkpoints_have_a_price_too(nbytes: int) -> None:
    (level,) = calibrate({"ram": Ram()}, [nbytes], repeats=1).levels
    assert min(cost(nbytes) for cost in (level.write, level.read, level.discard)) > 0


def test_a_level_with_room_for_one_checkpoint_is_measured() -> None:
    found = calibrate(
        {"ram": Ram(capacity=88)}, models={"decay": Decay}, capacities={"ram": 88}, repeats=1
    )
    assert found.levels[0].write(88) > 0


@pytest.mark.campaign
@pytest.mark.parametrize("capacities", [{}, {"ram": 1 << 40}])
def test_large_checkpoints_are_tried_in_few_slots(capacities: dict[str, int]) -> None:
    class Told(Exception):
        """What the level was asked to make room for."""

    class Asked(Ram):
        def reserve(self, sizes: Mapping[int, int], /) -> None:
            raise Told(dict(sizes))

    with pytest.raises(Told, match=r"^\{209715200: 1\}$"):
        calibrate({"ram": Asked()}, [200 << 20], capacities=capacities)


def test_what_happens_between_two_actions_is_part_of_the_second() -> None:
    actions = Actions.of([Advance(0, 1), Record(1, 2), Advance(2, 3)])
    start, stop = np.array([0.5, 2.0, 8.0]), np.array([1.0, 4.0, 9.0])
    timeline = Timeline(actions, start, stop, np.zeros(3, np.int64))
    assert seconds_of(timeline, ADVANCE).tolist() == [1.0, 5.0]


def test_between_two_reads_the_model_takes_a_step_as_in_a_run() -> None:
    done: list[str] = []

    class Stepping(Decay):
        def step(self, state: Arrays, i: int, /) -> None:
            done.append("step")
            super().step(state, i)

    class Noting(Ram):
        def read(self, key: Key, into: Buffers, /) -> int:
            done.append("read")
            return super().read(key, into)

    # Noise is read as well, in a second part; there is no step of ours in it.
    calibrate({"ram": Noting()}, [1000], models={"stepping": Stepping}, repeats=1)
    all_of_it = " ".join(done)
    own, noise = all_of_it.split("read read", 1)
    assert "read step read step read step" in own
    assert "read step" not in noise[: noise.rindex("read")]


def test_one_stall_is_not_the_rule_and_slow_moments_count() -> None:
    assert typical(np.array([1.0] * 99 + [1e6])) == pytest.approx(1.15)
    assert typical(np.array([1.0, 1.0, 4.0])) == 2.0
    assert typical(np.array([1.0, 3.0]), np.array([3.0, 1.0])) == 1.5
    assert typical(np.zeros(3)) > 0


def samples(*pairs: tuple[int, float], model: bool = False) -> list[Sample]:
    return [Sample("l", "read", n, s, 1.0, model) for n, s in pairs]


def test_costs_are_never_negative() -> None:
    assert fit(samples((10, 1.0), (1000, 0.1))).per_byte == 0.0
    assert fit(samples((1000, 0.001), (10_000, 0.02))).latency == 0.0


def test_a_models_own_size_comes_out_right() -> None:
    # A law that is not affine: the fit has to be wrong somewhere, and not at the model's size.
    found = fit(samples((10, 1.0), (100, 1.1), (10_000, 9.0)) + samples((1000, 5.0), model=True))
    assert found(1000) == pytest.approx(5.0, rel=0.02)


class Slowing(VirtualClock):
    """The clock of a machine that becomes a tenth slower every ten seconds."""

    def sleep(self, seconds: float, /) -> None:
        super().sleep(seconds * (1 + self.now() / 100))


def test_bursts_over_a_longer_time_see_a_slower_machine() -> None:
    chain = replace(CHAIN, advance=1e-3, record=2e-3, reverse=4e-3)

    def advance(seconds: float) -> float:
        clock = Slowing()
        models = {"counting": lambda: CountingModel(chain, clock)}
        found = calibrate({"ram": Ram()}, models=models, seconds=seconds, clock=clock)
        return found.models["counting"].advance

    assert advance(100.0) > 1.3 * advance(0.0)
