"""`ckio plan --capacity`: the makespan over a capacity, in a table, a sentence and a picture."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli.commands import answer, ckio, complaint

from ckio import Chain, Level, Platform, makespan
from ckio.errors import BadInput
from ckio.jobs.planning import Planning, plan_of
from ckio.jobs.sweeping import sweep
from ckio.planners import auto, store_all
from ckio.planners.trivial import recompute_all
from ckio.platform import Affine
from ckio.schedule import counts

CHAIN = Chain(steps=60, advance=1.0, record=1.2, reverse=2.5, restart=1000, tape=1000, adjoint=1000)
COSTS = (
    *("--steps", 60, "--advance", 1, "--record", 1.2, "--reverse", 2.5),
    *("--restart", "1000B", "--tape", "1000B", "--adjoint", "1000B"),
)
SLOW = Affine(latency=0.5)
NODE = Platform(
    (Level(name="ram", capacity=8000), Level(name="nvme", capacity=20_000, write=SLOW, read=SLOW)),
    working_memory=1000,
)


@pytest.fixture
def platform(tmp_path: Path) -> Path:
    path = tmp_path / "node.toml"
    path.write_text(NODE.dumps())
    return path


def planned(capacity: int, number: int = 0) -> float:
    """Return the makespan of `auto` with this capacity of a level."""
    levels = list(NODE.levels)
    levels[number] = replace(levels[number], capacity=capacity)
    machine = replace(NODE, levels=tuple(levels))
    return makespan(auto(CHAIN, machine), machine)


def test_capacities_are_powers_of_two_of_the_present_one(platform: Path) -> None:
    found = answer("plan", *COSTS, "--platform", platform, "--capacity", at=platform.parent)
    assert (found["level"], found["present"]) == ("ram", 8000)
    capacities = [point["capacity"] for point in found["points"]]
    assert capacities == [1000, 2000, 4000, 8000, 16_000, 32_000, 64_000]
    seconds = [point["makespan"] for point in found["points"]]
    assert seconds == [planned(capacity) for capacity in capacities]
    save, cost = 1 - seconds[4] / seconds[3], seconds[2] / seconds[3] - 1
    assert found["answer"] == f"Twice the memory would save {save:.0%}; half would cost {cost:.0%}."


def test_capacities_are_left_out_between_two_with_equal_makespans() -> None:
    """A fast second level for 20 checkpoints, so that more memory is of use only at the end."""
    fast = Affine(latency=1e-6)
    second = Level(name="nvme", capacity=20_000, write=fast, read=fast)
    ram = Level(name="ram", capacity=4000)
    plan = Planning("auto", CHAIN, Platform((ram, second), 1000), auto)
    every = [1000 << power for power in range(7)]
    whole = {row.capacity: row.makespan for row in sweep(plan, capacities=every).rows}
    some = {row.capacity: row.makespan for row in sweep(plan).rows}
    assert some.items() <= whole.items()
    assert {1000, 2000, 4000, 8000, 64_000} <= some.keys()
    for capacity in whole.keys() - some.keys():
        less = min(some[it] for it in some if it < capacity)
        more = max(some[it] for it in some if it > capacity)
        assert more <= whole[capacity] <= less <= 1.001 * more
    # With the fast level for all tapes, every capacity takes as long.
    endless = replace(second, capacity=60_000)
    flat = replace(plan, platform=Platform((replace(ram, capacity=64_000), endless), 1000))
    capacities = [row.capacity for row in sweep(flat).rows]
    assert capacities == [1000, 32_000, 64_000]


def test_a_row_has_the_steps_and_the_bytes_of_its_plan(platform: Path) -> None:
    words = ("--capacity", "3000B", "--platform", platform)
    (row,) = answer("plan", *COSTS, *words, at=platform.parent)["points"]
    machine = replace(NODE, levels=(replace(NODE.levels[0], capacity=3000), NODE.levels[1]))
    total = counts(auto(CHAIN, machine))
    assert row["forward_steps"] == total.forward
    assert row["written"] == 1000 * sum(level.writes for level in total.levels)


def test_another_level_may_vary_and_without_it_the_plan_is_that_of_the_others(
    platform: Path,
) -> None:
    words = ("--capacity", "nvme=20000B,0,5000B", "--platform", platform)
    found = answer("plan", *COSTS, *words, at=platform.parent)
    seconds = {point["capacity"]: point["makespan"] for point in found["points"]}
    alone = Platform(NODE.levels[:1], NODE.working_memory)
    without = makespan(auto(CHAIN, alone), alone)
    assert seconds == {0: without, 5000: planned(5000, 1), 20_000: planned(20_000, 1)}
    assert list(seconds) == [0, 5000, 20_000]


def test_the_least_capacity_that_is_enough_is_named(platform: Path) -> None:
    words = ("--capacity", "8000B,64000B,70000B", "--platform", platform)
    *lines, text = ckio("plan", *COSTS, *words, at=platform.parent).stdout.splitlines()
    (row,) = (line.split() for line in lines if line.startswith("62.5 KiB"))
    assert row[2] == f"{planned(64_000):.6g}"
    assert planned(70_000) == planned(64_000) < 0.99 * planned(8000)
    assert text == "62.5 KiB of ram are enough: more saves less than 1%."


def test_the_sentence_names_a_level_that_saves_nothing_and_the_best_if_it_is_the_last() -> None:
    plan = Planning("auto", CHAIN, NODE, auto)
    large = replace(NODE, levels=(replace(NODE.levels[0], capacity=64_000), NODE.levels[1]))
    swept = sweep(replace(plan, platform=large), level="nvme", capacities=[0, 20_000])
    assert swept.text() == "Level nvme saves less than 1%."
    seconds = planned(0, 1), planned(20_000, 1)
    assert sweep(plan, level="nvme", capacities=[0, 20_000]).text() == (
        f"With 19.5 KiB of nvme the makespan is {seconds[1]:.4g} s,"
        f" {1 - seconds[1] / seconds[0]:.0%} less than with 0 B."
    )


def test_the_picture_has_both_limits_and_the_present_memory(platform: Path, tmp_path: Path) -> None:
    words = ("--platform", platform, "--capacity", "-o", tmp_path / "memory.svg")
    answer("plan", *COSTS, *words, at=tmp_path)
    texts = {it.text for it in ElementTree.parse(tmp_path / "memory.svg").iter() if it.text}
    everything = makespan(store_all(CHAIN, Platform((), None)), Platform((), None))
    assert f"store everything: 58.6 KiB, {everything:.4g} s" in texts
    assert "this platform: 7.81 KiB" in texts
    assert {"1 KiB", "2 KiB", "5 KiB", "50 KiB"} <= texts


def test_limits_are_those_of_the_planners(platform: Path) -> None:
    costs = {"advance": 1.0, "record": 1.2, "reverse": 2.5}
    sizes = {"restart": 1000, "tape": 1000, "adjoint": 1000}
    curve = sweep(plan_of(platform=platform, steps=60, **costs, **sizes)).curve()
    assert curve.nothing == makespan(recompute_all(CHAIN, NODE), NODE)
    assert curve.everything == (60_000, 60 * (1.2 + 2.5))
    assert curve.points[0][1] <= curve.nothing


def test_a_capacity_without_a_plan_has_its_reason() -> None:
    alone = Platform((Level(name="ram", capacity=8000),), 1000)
    plan = Planning("auto", CHAIN, alone, auto)
    swept = sweep(plan, capacities=[0, 8000])
    assert "checkpoint" in swept.rows[0].reason
    assert [row.capacity for row in swept.planned] == [8000]
    with pytest.raises(BadInput, match="nothing to draw: no capacity has a schedule"):
        sweep(plan, capacities=[0]).curve()


def test_the_platform_without_a_level_alone_has_a_sentence_and_no_picture() -> None:
    swept = sweep(Planning("auto", CHAIN, NODE, auto), level="nvme", capacities=[0])
    assert swept.text() == f"With 0 B of nvme the makespan is {planned(0, 1):.4g} s."
    with pytest.raises(BadInput, match="nothing to draw"):
        swept.curve()


def test_what_cannot_be_varied_is_refused(platform: Path, tmp_path: Path) -> None:
    endless = tmp_path / "endless.toml"
    endless.write_text(Platform((Level(name="ram"),), 1000).dumps())
    words = ("plan", *COSTS, "--platform", endless, "--capacity")
    assert "has no capacity that could be doubled" in complaint(*words, at=tmp_path)
    words = ("plan", *COSTS, "--platform", platform, "--capacity")
    assert "no level is named" in complaint(*words, "disk=", at=tmp_path)
    assert "'much' is not a size" in complaint(*words, "4GB,much", at=tmp_path)
    assert "leave out --mtbf" in complaint(*words, "--mtbf", "1h", at=tmp_path)
