"""A plan is a schedule: what takes the schedule of a planner takes it, and uses its policy."""

from dataclasses import replace
from pathlib import Path

import pytest

import ckio
from ckio.models.vorticity import Vorticity
from ckio.planners.compared import Plan
from ckio.planners.fastest import plan
from ckio.planners.table import PLANNERS
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, seconds_of
from ckio.schedule.policy import SYNCHRONOUS, Overlap

NODE = Platform(
    (
        Level(name="ram", capacity=1, read=Affine(0.25)),
        Level(name="disk", backend="directory", write=Affine(2.5), read=Affine(2.0)),
    ),
    working_memory=1,
)
COSTS = Chain(steps=12, advance=1, record=1, reverse=2, restart=1, tape=1, adjoint=1)
POLICY = Overlap(None, None)


@pytest.mark.parametrize("policy", [SYNCHRONOUS, POLICY], ids=["synchronous", "overlap"])
def test_it_has_the_makespan_timeline_and_picture_of_a_schedule(policy: Overlap) -> None:
    made = plan(COSTS, NODE, overlap=policy)
    alone = ckio.planners.auto(COSTS, NODE)
    seconds = ckio.simulate(alone, NODE, overlap=policy).makespan
    assert ckio.makespan(made, NODE) == ckio.simulate(made, NODE).makespan == seconds
    assert ckio.makespan(alone, NODE) == float(seconds_of(alone, NODE).sum())
    assert (seconds < ckio.makespan(alone, NODE)) == bool(policy)
    assert ckio.render(made) == ckio.render(alone) == ckio.render(alone.actions)
    assert ckio.schedule.counts(made) == ckio.schedule.counts(alone)
    assert str(made) == str(alone)
    assert (made == alone) == (alone == made) == (not policy)
    assert hash(replace(made, overlap=SYNCHRONOUS)) == hash(alone)


def test_another_policy_may_replace_its_own() -> None:
    made = plan(COSTS, NODE, overlap=POLICY)
    without = ckio.simulate(made, NODE, overlap=SYNCHRONOUS).makespan
    assert without == ckio.makespan(replace(made, overlap=SYNCHRONOUS), NODE) == made.synchronous


@pytest.mark.parametrize("name", [each.name for each in PLANNERS if each.name != "overlapped"])
def test_each_planner_returns_what_plan_returns(name: str) -> None:
    (listed,) = (each for each in PLANNERS if each.name == name)
    chain, machine = COSTS.with_steps(4), Platform((Level(name="ram", capacity=9),), 9)
    alone: Schedule = listed.load()(chain, machine)
    made = plan(chain, machine, planner=listed.load(), overlap=SYNCHRONOUS)
    assert isinstance(made, Plan)
    assert isinstance(alone, Schedule)
    assert made.makespan == ckio.makespan(made, machine) == ckio.makespan(alone, machine)


def test_it_runs_with_its_policy(tmp_path: Path) -> None:
    model = Vorticity(grid=16)
    chain = replace(COSTS, **ckio.sizes_of(Vorticity(grid=16)))
    node = Platform(
        (
            Level(name="ram", capacity=chain.restart),
            Level(name="disk", backend="directory", write=Affine(2.5), read=Affine(2.0)),
        ),
        chain.tape,
    )
    made = plan(chain, node, overlap=POLICY)
    disk = ckio.Directory(tmp_path / "disk")
    timeline = ckio.run(made, node, model, [ckio.Ram(), disk])
    assert set(timeline.transfers.actions.level.tolist()) == {1}  # the disk alone
    reference = Vorticity(grid=16)
    disk = ckio.Directory(tmp_path / "other")
    other = ckio.run(made, node, reference, [ckio.Ram(), disk], overlap=SYNCHRONOUS)
    assert not len(other.transfers)
    assert model.gradient.keys() == reference.gradient.keys()
    for name, values in model.gradient.items():
        assert values.tobytes() == reference.gradient[name].tobytes()


def test_a_plan_with_overlap_knows_of_steps_that_differ_and_are_recorded_only() -> None:
    chain = Chain(
        steps=30, advance=1, record=[1.0] * 15 + [1.25] * 15, record_only=[0.5] * 15 + [0.25] * 15,
        reverse=1, restart=2, tape=4, adjoint=2,
    )  # fmt: skip
    near = Level(name="ram", capacity=6)
    far = Level(name="far", backend="directory", write=Affine(2), read=Affine(2))
    platform = Platform((near, far), 4)
    early = replace(chain, record_only=None)
    late, before = (plan(each, platform, overlap="auto") for each in (chain, early))
    assert late.makespan < before.makespan
    assert late.bound <= late.makespan == ckio.simulate(late, platform).makespan
