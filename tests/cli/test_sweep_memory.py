"""`ckio sweep` without an axis: what more memory would save, and what less would cost."""

from xml.etree import ElementTree

import pytest
from cli.commands import answer, complaint

from ckio import Chain, Level, Platform, makespan, store_all
from ckio.jobs.sweeping import what_if
from ckio.planners.trivial import recompute_all

CHAIN = Chain(steps=60, advance=1.0, record=1.2, reverse=2.5, restart=1000, tape=1000, adjoint=1000)
COSTS = (
    *("--steps", 60, "--advance", 1, "--record", 1.2, "--reverse", 2.5),
    *("--restart", "1000B", "--tape", "1000B", "--adjoint", "1000B"),
)


@pytest.fixture
def platform(tmp_path):
    path = tmp_path / "p.toml"
    path.write_text(Platform((Level(name="ram", capacity=8000),), 1000).dumps())
    return path


def test_capacities_are_powers_of_two_of_the_present_one(platform):
    found = answer("sweep", *COSTS, "--platform", platform, at=platform.parent)
    assert found["axes"] == {"ram.capacity": [1000, 2000, 4000, 8000, 16000, 32000, 64000]}
    seconds = [point["makespan"] for point in found["points"]]
    assert seconds == sorted(seconds, reverse=True)
    save, cost = 1 - seconds[4] / seconds[3], seconds[2] / seconds[3] - 1
    assert found["answer"] == f"Twice the memory would save {save:.0%}; half would cost {cost:.0%}."


def test_the_picture_has_both_limits_and_the_present_memory(platform, tmp_path):
    words = ("--platform", platform, "--picture", tmp_path / "memory.svg")
    answer("sweep", *COSTS, *words, at=tmp_path)
    texts = {it.text for it in ElementTree.parse(tmp_path / "memory.svg").iter() if it.text}
    everything = makespan(store_all(CHAIN, Platform((), None)), Platform((), None))
    assert f"store everything: 58.6 KiB, {everything:.4g} s" in texts
    assert any(said.startswith("this plan: ") for said in texts)
    assert {"1 KiB", "2 KiB", "5 KiB", "50 KiB"} <= texts


def test_limits_are_those_of_the_planners(platform):
    machine = Platform.loads(platform.read_text())
    nothing = makespan(recompute_all(CHAIN, machine), machine)
    options = {"platform": platform, "steps": 60, "advance": 1.0, "record": 1.2, "reverse": 2.5}
    sizes = {"restart": 1000, "tape": 1000, "adjoint": 1000}
    curve = what_if([], **options, **sizes).answered(processes=1).over_memory()
    assert curve.nothing == nothing
    assert curve.everything == (60_000, 60 * (1.2 + 2.5))
    assert curve.points[0][1] <= nothing


def test_without_limited_memory_there_is_nothing_to_vary(tmp_path):
    path = tmp_path / "p.toml"
    path.write_text(Platform((Level(name="ram"),), 1000).dumps())
    assert "--vary" in complaint("sweep", *COSTS, "--platform", path, at=tmp_path)
