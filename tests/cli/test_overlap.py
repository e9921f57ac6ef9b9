"""Overlap on the command line: simulated, planned, told in words, written, shown and compared."""

import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cli.commands import answer, ckio

from ckio.jobs import display
from ckio.jobs.display import Display, share
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
MEASURED = "profile = {write_beside = 2.5, read_beside = 2.0}\n"
PLAN = (
    *("--steps", 24, "--platform", "node.toml", "--advance", 1, "--record", 1, "--reverse", 2),
    *("--restart", "1MiB", "--tape", "1MiB", "--adjoint", "1MiB"),
)
POLICY = "write_behind=1,read_ahead=1"
SYNCHRONOUS = ("hrevolve", "mixed", "revolve", "periodic", "auto")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "node.toml").write_text(NODE)
    return tmp_path


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """A place whose far level was measured beside a computation."""
    compiled.prepare("ckio.planners.overlap")  # once, for all forks
    (tmp_path / "node.toml").write_text(NODE + MEASURED)
    return tmp_path


def simulated(*options: object, at: Path) -> dict[str, Any]:
    """Plan with these options, and simulate the plan."""
    ckio("plan", *options, "-o", "planned.txt", at=at)
    return answer("simulate", "planned.txt", at=at)


def test_simulate_says_what_overlap_hides(place: Path) -> None:
    plain = simulated(*PLAN, at=place)
    found = simulated(*PLAN, "--overlap", POLICY, at=place)
    assert "hidden" not in plain
    assert found["synchronous"] == plain["makespan"]
    assert found["busy"] == plain["busy"]
    assert found["makespan"] == found["busy"]["compute"] + found["waiting"] + found["after"]
    saved = found["synchronous"] - found["makespan"]
    assert found["hidden"] == saved / plain["busy"]["nvme"] > 0.9
    said = ckio("simulate", "planned.txt", at=place).stdout
    assert f"{saved:.6g} s less than the {plain['makespan']:.6g} s" in said
    assert f"{found['hidden']:.1%} of the transfer time of far levels" in said
    for nothing in ("", "write_behind=0", "horizon=3"):
        assert answer("simulate", "planned.txt", "--overlap", nothing, at=place) == plain


def test_nothing_may_be_hidden(place: Path) -> None:
    near = ("--planner", "revolve:on=ram", *PLAN)
    found = simulated(*near, "--overlap", POLICY, at=place)
    assert (found["hidden"], found["waiting"], found["after"]) == (0.0, 0.0, 0.0)
    assert found["makespan"] == found["synchronous"]
    (place / "node.toml").write_text(f"{NODE}profile.write_hinders = 90.0\n")
    assert simulated(*PLAN, "--overlap", POLICY, at=place)["hidden"] < 0
    said = ckio("simulate", "planned.txt", at=place).stdout
    assert "nothing of the transfer time of far levels is hidden" in said


def test_a_timeline_is_written_with_its_policy_shown_and_simulated_again(place: Path) -> None:
    ckio("plan", *PLAN, "-o", "plan.txt", at=place)
    ckio("simulate", "plan.txt", "--overlap", POLICY, "-o", "over.txt", at=place)
    document = loads((place / "over.txt").read_text())
    assert document.schedule.overlap == Overlap(1, 1)
    assert document.timeline is not None
    assert len(document.timeline.transfers) > 0
    files = ("--html", "over.html", "--svg", "over.svg", "--perfetto", "over.json")
    assert ckio("show", "over.txt", *files, at=place).stdout
    page = (place / "over.html").read_text()
    assert '<div class="measured">' not in page  # it is what its policy predicts
    assert "<dd>write_behind=1,read_ahead=1</dd>" in page
    for name, text in (
        ("over.html", ">on its way<"),
        ("over.svg", ">on its way<"),
        ("over.svg", ">waiting</text>"),
        ("over.json", '"bytes on their way"'),
    ):
        assert text in (place / name).read_text()
    trace = json.loads((place / "over.json").read_text())
    assert "channel nvme" in {event.get("args", {}).get("name") for event in trace["traceEvents"]}

    found = answer("simulate", "over.txt", at=place)
    assert found["overlap"] == POLICY
    plain = answer("simulate", "over.txt", "--overlap", "none", at=place)
    assert found["makespan"] < found["synchronous"] == plain["makespan"]
    assert "overlap" not in plain
    said = ckio("simulate", "over.txt", "--overlap", "none", at=place).stdout
    assert f"overlap none as asked for, instead of {POLICY} of over.txt" in said


# auto: the plan says what overlaps


@pytest.mark.slow
@pytest.mark.parametrize("word", [("--overlap",), ("--overlap", "auto"), ("overlapped",)])
def test_auto_is_never_slower_than_the_best_synchronous_schedule(
    place: Path, word: tuple[str, ...]
) -> None:
    line = (*PLAN, *(("--planner", *word) if word == ("overlapped",) else word))
    found = answer("plan", *line, "-o", "plan.txt", at=place)
    plain = {
        name: answer("plan", *PLAN, "--planner", name, at=place)["makespan"] for name in SYNCHRONOUS
    }
    assert found["makespan"] < found["synchronous"] == min(plain.values()) == plain["auto"]
    assert found["bound"] <= found["makespan"]
    assert found["gap"] == pytest.approx(found["makespan"] / found["bound"] - 1)
    assert Overlap.parse(found["overlap"])
    again = answer("simulate", "plan.txt", at=place)
    assert again["makespan"] == pytest.approx(found["makespan"], rel=1e-12)
    assert again["overlap"] == found["overlap"]
    assert answer("simulate", "plan.txt", "--overlap", "auto", at=place) == again
    said = ckio("simulate", "plan.txt", "--overlap", "none", at=place).stdout
    assert f"makespan {again['synchronous']:.6g} s" in said
    said = ckio("plan", *line, "--overlap", "none", at=place).stdout
    asked = f"overlap none as asked for, instead of {found['overlap']} of the plan\n" in said
    assert asked == (word == ("overlapped",))


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["hrevolve", "mixed", "auto"])
def test_a_policy_is_kept_whatever_the_planner(place: Path, name: str) -> None:
    line = ("--planner", name, *PLAN)
    found = answer("plan", *line, "--overlap", POLICY, "-o", "plan.txt", at=place)
    plain = answer("plan", *line, at=place)
    assert (found["overlap"], found["synchronous"]) == (POLICY, plain["makespan"])
    assert found["levels"] == plain["levels"]
    assert loads((place / "plan.txt").read_text()).schedule.overlap == Overlap(1, 1)
    for said in (line, ("plan.txt",)):
        again = answer("simulate", *said, "--overlap", POLICY, at=place)
        assert again["makespan"] == found["makespan"] < plain["makespan"]
    none = answer("plan", *line, "--overlap", "none", at=place)
    assert none == plain


# By default: where it was measured


def test_where_overlap_was_measured_it_is_considered(measured: Path) -> None:
    asked = answer("plan", *PLAN, "--overlap", at=measured)
    for more in ((), ("--planner", "auto")):
        found = answer("plan", *PLAN, *more, at=measured)
        assert found == asked
    assert simulated(*PLAN, at=measured)["overlap"] == asked["overlap"]
    first, _, note, *rest = ckio("plan", *PLAN, at=measured).stdout.splitlines()
    makespan = f"makespan {asked['makespan']:.6g} s"
    assert first.startswith(f"auto, 24 steps: {makespan} with {asked['overlap']}, ")
    assert note == asked["note"] != ""
    assert "not considered" not in "".join(rest)


@pytest.mark.campaign
@pytest.mark.parametrize("profile", ["", "profile.write_beside = 2.5\n", "profile.cached = 9\n"])
def test_where_it_was_not_one_line_says_so(place: Path, profile: str) -> None:
    (place / "node.toml").write_text(NODE + profile)
    assert "overlap" not in answer("plan", *PLAN, at=place)
    said = ckio("plan", *PLAN, at=place).stdout
    assert said.count("overlap was not considered: level nvme was not measured") == 1
    assert re.search("`ckio calibrate --model`.*--overlap auto\n", said)


def test_all_levels_that_were_not_measured_are_named(place: Path) -> None:
    more = '[[level]]\nname = "archive"\nbackend = "hdf5"\n'
    for text, levels in ((NODE, "levels nvme, archive"), (NODE + MEASURED, "level archive")):
        (place / "node.toml").write_text(text + more)
        said = ckio("plan", *PLAN, at=place).stdout
        assert f"overlap was not considered: {levels} w" in said


@pytest.mark.campaign
@pytest.mark.parametrize("planner", ["mixed", "hrevolve"])
def test_a_planner_that_is_named_stays_synchronous(measured: Path, planner: str) -> None:
    named = ("plan", *PLAN, "--planner", planner)
    assert "overlap" not in answer(*named, at=measured)
    assert "not considered" not in ckio(*named, at=measured).stdout


@pytest.mark.slow
def test_progress_is_shown_to_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    os.set_blocking(ours, False)

    def shown() -> bytes:
        try:
            return os.read(ours, 1 << 16)
        except BlockingIOError:
            return b""

    with open(theirs, "w") as terminal:  # noqa: PTH123
        monkeypatch.setattr(sys, "stderr", terminal)
        with Display().progress("planning", unit="%"):
            time.sleep(0.6)
        assert shown() == b"", "a bar for less than two seconds only flickers"
        monkeypatch.setattr(display, "AFTER", 0.1)
        with Display().progress("planning", unit="%") as tick:
            watch = share(tick)
            time.sleep(0.6)
            watch(0.25)
            time.sleep(0.3)
            watch(0.5)
        slow = shown()
    os.close(ours)
    assert b"planning" in slow
    assert b"25/100" in slow
