"""Many runs of one schedule: what varies, and how much."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.random import default_rng

from ckio.actions.columns import ADVANCE, READ, WRITE
from ckio.errors import BadInput
from ckio.planners.dp import hrevolve
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.profile import Lognormal, Profile, Quantiles
from ckio.schedule import makespan, seconds_of
from ckio.schedule.policy import Overlap
from ckio.sim.engine import factors, repeated, simulate, spreads_of

CHAIN = Chain(steps=40, advance=1.0, record=1.5, reverse=2.0, restart=10, tape=5, adjoint=10)
VARIES = Quantiles((0.5, 1.5))
"""Evenly between the two: the mean is 1, the variance 1/12."""


def platform(**known: object) -> Platform:
    """Memory and a disk, a model of the chain's costs, and what is known of how times vary."""
    spread = known.pop("spread", {})
    disk = Level(
        name="disk",
        backend="directory",
        write=Affine(3.0),
        read=Affine(2.0),
        profile=Profile(spread=spread),  # type: ignore[arg-type]
    )
    near = Level(name="ram", capacity=30, write=Affine(0.1), read=Affine(0.1))
    models = {"other": replace(CHAIN, steps=None, advance=2.0), "ours": replace(CHAIN, steps=None)}
    return Platform((near, disk), models=models, **known)  # type: ignore[arg-type]


def test_without_any_distribution_nothing_is_drawn() -> None:
    plain = platform()
    with pytest.raises(BadInput, match="has no distributions of times"):
        repeated(hrevolve(CHAIN, plain), plain, 3)


def test_runs_are_the_same_for_one_seed_however_many() -> None:
    varying = platform(drift=Lognormal(0.1))
    schedule = hrevolve(CHAIN, varying)
    many, few = (repeated(schedule, varying, count, seed=5).makespans for count in (9, 4))
    assert many[:4].tolist() == few.tolist()
    assert len(set(many.tolist())) == 9
    assert repeated(schedule, varying, 4, seed=6).makespans.tolist() != few.tolist()


def test_a_drift_is_of_a_whole_run() -> None:
    varying = platform(drift=VARIES)
    schedule = hrevolve(CHAIN, varying)
    found = repeated(schedule, varying, 50)
    drifts = [VARIES.draw(default_rng((0, run)), 1)[0] for run in range(50)]
    assert found.makespans == pytest.approx(makespan(schedule, varying) * np.array(drifts))
    assert found.mean == pytest.approx(np.mean(found.makespans))
    assert found.quantile(0.0) == found.makespans.min()
    assert found.quantile(1.0) == found.makespans.max()


def test_each_access_has_a_factor_of_its_own() -> None:
    varying = platform(spread={"write": VARIES})
    schedule = hrevolve(CHAIN, varying)
    drawn = factors(schedule, varying, default_rng(1))
    actions = schedule.actions
    there = (actions.op == WRITE) & (actions.level == 1)
    assert set(drawn[~there].tolist()) == {1.0}
    assert len(set(drawn[there].tolist())) == int(there.sum())
    assert (drawn[actions.op == READ] == 1.0).all()


def test_cold_reads_vary_as_cold_reads_do() -> None:
    varying = platform(spread={"read_cold": VARIES})
    near, disk = varying.levels
    assert disk.profile is not None
    small = replace(disk, read_cold=Affine(9.0), profile=replace(disk.profile, cached=0))
    varying = replace(varying, levels=(near, small))
    schedule = hrevolve(CHAIN, varying)
    cold = (schedule.actions.op == READ) & (schedule.actions.level == 1)
    drawn = factors(schedule, varying, default_rng(1))
    assert cold.any()
    assert set(drawn[~cold].tolist()) == {1.0}
    assert len(set(drawn[cold].tolist())) == int(cold.sum())


def test_an_advance_of_many_steps_varies_less_than_one() -> None:
    """The factor of k steps is the mean of k: its variance is a k-th."""
    varying = platform(spreads={"ours": {"advance": VARIES}})
    schedule = hrevolve(CHAIN, varying)
    actions = schedule.actions
    length = actions.end - actions.begin
    rows = np.flatnonzero(actions.op == ADVANCE)
    drawn = np.array([factors(schedule, varying, default_rng(seed)) for seed in range(800)])
    assert (drawn[:, actions.op != ADVANCE] == 1.0).all()
    scaled = (drawn[:, rows] - 1.0) * np.sqrt(12 * length[rows])
    assert scaled.mean() == pytest.approx(0.0, abs=0.02)
    assert scaled.std(axis=0) == pytest.approx(np.ones(len(rows)), rel=0.15)


def test_the_steps_are_those_of_the_model_with_the_same_costs() -> None:
    varying = platform(spreads={"other": {"record": VARIES}, "ours": {"advance": VARIES}})
    assert spreads_of(CHAIN, varying) == {"advance": VARIES}
    assert spreads_of(replace(CHAIN, steps=None, advance=2.0), varying) == {"record": VARIES}
    assert spreads_of(replace(CHAIN, reverse=9.0), varying) == {}


@pytest.mark.parametrize("overlap", [Overlap(), Overlap(2, 1)])
def test_a_run_is_simulated_with_its_factors(overlap: Overlap) -> None:
    varying = platform(drift=Lognormal(0.2), spread={"read": VARIES, "write": VARIES})
    schedule = hrevolve(CHAIN, varying)
    drawn = factors(schedule, varying, default_rng((7, 0)))
    found = repeated(schedule, varying, 1, overlap=overlap, seed=7)
    timeline = simulate(schedule, varying, overlap=overlap, factors=drawn)
    assert found.makespans.tolist() == [timeline.makespan]
    if not overlap:
        total = float(np.cumsum(seconds_of(schedule, varying) * drawn)[-1])
        assert timeline.makespan == total


def test_who_watches_hears_of_every_action_of_every_run() -> None:
    varying, heard = platform(drift=Lognormal(0.1)), list[int]()
    schedule = hrevolve(CHAIN, varying)
    repeated(schedule, varying, 3, watch=heard.append)
    assert sum(heard) == 3 * len(schedule)
