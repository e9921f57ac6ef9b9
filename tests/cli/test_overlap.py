"""Overlap on the command line: simulated, told in words, written, shown and compared."""

import json
import re
from pathlib import Path

import pytest
from cli.commands import answer, ckio, complaint

from ckio.planners import compiled
from ckio.schedule.policy import Overlap
from ckio.schedule.text import loads

NODE = """
format = 1
working_memory = "1MiB"
[[level]]
name = "ram"
capacity = "3MiB"
backend = "ram"
[[level]]
name = "nvme"
backend = "directory"
write = {latency = 2.5}
read = {latency = 2.0}
discard = {latency = 0.5}
"""
PLAN = (
    *("--steps", 24, "--platform", "node.toml", "--advance", 1, "--record", 1, "--reverse", 2),
    *("--restart", "1MiB", "--tape", "1MiB", "--adjoint", "1MiB"),
)
POLICY = "write_behind=1,read_ahead=1"


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """Compiled code, once for all forks."""
    compiled.prepare("ckio.planners.overlap")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "node.toml").write_text(NODE)
    return tmp_path


def test_simulate_says_what_overlap_hides(place: Path) -> None:
    plain = answer("simulate", *PLAN, at=place)
    found = answer("simulate", *PLAN, "--overlap", POLICY, at=place)
    assert "hidden" not in plain
    assert found["synchronous"] == plain["makespan"]
    assert found["busy"] == plain["busy"]
    assert found["makespan"] == found["busy"]["compute"] + found["waiting"] + found["after"]
    saved = found["synchronous"] - found["makespan"]
    assert found["hidden"] == saved / plain["busy"]["nvme"] > 0.9
    said = ckio("simulate", *PLAN, "--overlap", POLICY, at=place).stdout
    assert f"{saved:.6g} s less than the {plain['makespan']:.6g} s without overlap" in said
    assert f"{found['hidden']:.1%} of the time for far levels is hidden" in said


def test_copies_that_cost_more_than_they_save_hide_nothing(place: Path) -> None:
    (place / "node.toml").write_text(f"{NODE}profile.write_hinders = 90.0\n")
    assert answer("simulate", *PLAN, "--overlap", POLICY, at=place)["hidden"] < 0
    said = ckio("simulate", *PLAN, "--overlap", POLICY, at=place).stdout
    assert "s without overlap; nothing of the time for far levels is hidden" in said


def test_nothing_is_hidden_without_far_levels(place: Path) -> None:
    options = ("--planner", "revolve", "--on", "ram", *PLAN)
    found = answer("simulate", *options, "--overlap", POLICY, at=place)
    assert (found["hidden"], found["waiting"], found["after"]) == (0.0, 0.0, 0.0)
    assert found["makespan"] == found["synchronous"]


def test_a_policy_that_changes_nothing_is_none(place: Path) -> None:
    plain = answer("simulate", *PLAN, at=place)
    for nothing in ("", "write_behind=0", "horizon=3"):
        assert answer("simulate", *PLAN, "--overlap", nothing, at=place) == plain


def test_a_near_horizon_leaves_more_to_wait_for(place: Path) -> None:
    (place / "node.toml").write_text(NODE.replace("2.0", "9.0"))
    options = ("--planner", "revolve", "--on", "nvme", *PLAN)
    far, near = (
        answer("simulate", *options, "--overlap", f"{POLICY}{horizon}", at=place)["waiting"]
        for horizon in ("", ",horizon=0")
    )
    assert far < near


def test_a_timeline_is_written_with_its_policy_and_shown_alone(place: Path) -> None:
    ckio("simulate", *PLAN, "--overlap", POLICY, "-o", "over.txt", at=place)
    document = loads((place / "over.txt").read_text())
    assert document.overlap == Overlap(1, 1)
    assert document.timeline is not None
    assert len(document.timeline.transfers) > 0
    files = ("--html", "over.html", "--svg", "over.svg", "--perfetto", "over.json")
    ckio("show", "over.txt", *files, at=place)
    page = (place / "over.html").read_text()
    assert '<div class="measured">' not in page  # it is what its policy predicts
    assert "<dd>write_behind=1,read_ahead=1</dd>" in page
    assert ">waiting</text>" in (place / "over.svg").read_text()
    trace = json.loads((place / "over.json").read_text())
    assert "channel nvme" in {event.get("args", {}).get("name") for event in trace["traceEvents"]}
    assert ckio("show", "over.txt", at=place).stdout


def test_a_timeline_is_as_long_as_itself(place: Path) -> None:
    ckio("simulate", *PLAN, "-o", "plain.txt", at=place)
    said = ckio("compare", "plain.txt", "plain.txt", at=place).stdout
    assert said.endswith("\nthe prediction is as long as the measured makespan\n")


def test_a_comparison_has_the_transfers_and_what_the_program_waits(place: Path) -> None:
    ckio("simulate", *PLAN, "-o", "plain.txt", at=place)
    ckio("simulate", *PLAN, "--overlap", POLICY, "-o", "over.txt", at=place)
    found = answer("compare", "plain.txt", "over.txt", at=place)
    behind = {row["name"]: row for row in found["transfers"]}
    assert set(behind) == {"write nvme", "read nvme", "discard nvme"}
    alone = {row["name"]: row for row in found["rows"]}
    for name, row in behind.items():
        assert row["measured"] == pytest.approx(alone[name]["predicted"])
    assert found["waiting"]["measured"] < found["waiting"]["predicted"]
    said = ckio("compare", "plain.txt", "over.txt", at=place).stdout
    assert "transfers behind it" in said
    assert re.search(r"the program is at storage for .* predicted, .* measured", said)


@pytest.mark.slow
def test_a_plan_for_overlap_is_simulated_with_its_policy(place: Path) -> None:
    made = answer("plan", "--overlap", *PLAN, at=place)
    line = ("simulate", "--planner", "overlapped", *PLAN)
    found = answer(*line, at=place)
    assert found["overlap"] == made["overlap"]
    assert found["makespan"] == made["makespan"] < found["synchronous"]
    said = ckio(*line, "--overlap", "none", at=place).stdout
    assert f"overlap none as asked for, instead of {made['overlap']} of the plan\n" in said
    assert f"makespan {found['synchronous']:.6g} s" in said


def test_a_timeline_is_simulated_again_with_its_policy(place: Path) -> None:
    ckio("simulate", *PLAN, "--overlap", POLICY, "-o", "over.txt", at=place)
    found = answer("simulate", "over.txt", at=place)
    assert found["overlap"] == POLICY
    plain = answer("simulate", "over.txt", "--overlap", "none", at=place)
    assert found["makespan"] < found["synchronous"] == plain["makespan"]
    assert "overlap" not in plain
    said = ckio("simulate", "over.txt", "--overlap", "none", at=place).stdout
    assert f"overlap none as asked for, instead of {POLICY} of over.txt" in said


def test_a_policy_that_is_none_gets_one_line(place: Path) -> None:
    assert "write_behind=N" in complaint("simulate", *PLAN, "--overlap", "much", at=place)
    assert "at least 0" in complaint("simulate", *PLAN, "--overlap", "read_ahead=-1", at=place)
