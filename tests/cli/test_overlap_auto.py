"""`--overlap auto`: the plan says what overlaps, and by default where that was measured."""

import os
import sys
import time
from pathlib import Path

import pytest
from cli.commands import answer, ckio, complaint
from cli.resumable import RESUME, killed, reference, words
from cli.resumable import place as run_place
from cli.test_overlap import NODE, PLAN, POLICY

from ckio.jobs.display import Display, share
from ckio.planners import compiled
from ckio.schedule.policy import Overlap
from ckio.schedule.text import loads

MEASURED = "profile = {write_beside = 2.5, read_beside = 2.0}\n"
NOT_CONSIDERED = "overlap was not considered: level nvme was not measured beside a computation"
SYNCHRONOUS = ("hrevolve", "mixed", "revolve", "periodic", "auto")
BY_DEFAULT = ("run", "ocean:growth", "--steps", 40, "--platform", "node.toml", "--into", "run")


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """Compiled code, once for all forks."""
    compiled.prepare("ckio.planners.overlap")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "node.toml").write_text(NODE)
    return tmp_path


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """A place whose far level was measured beside a computation."""
    (tmp_path / "node.toml").write_text(NODE + MEASURED)
    return tmp_path


def running(tmp_path: Path, *, measured: bool = True) -> Path:
    """A place to run in, whose far level was measured so, too, and whose memory is short."""
    at = run_place(tmp_path / "at", tapes=1)
    text = (at / "node.toml").read_text()
    if measured:
        beside = "profile = {write_beside = {latency = 0.01}, read_beside = {latency = 0.01}}\n"
        text = text.replace("[models", f"{beside}[models")
    (at / "node.toml").write_text(text)
    return at


# What it means


@pytest.mark.slow
@pytest.mark.parametrize("word", [("--overlap",), ("--overlap", "auto")])
def test_auto_is_never_slower_than_the_best_synchronous_schedule(
    place: Path, word: tuple[str, ...]
) -> None:
    found = answer("plan", *PLAN, *word, "-o", "plan.txt", at=place)
    plain = {
        name: answer("plan", *PLAN, "--planner", name, at=place)["makespan"] for name in SYNCHRONOUS
    }
    assert found["makespan"] < found["synchronous"] == min(plain.values()) == plain["auto"]
    assert found["bound"] <= found["makespan"]
    assert found["gap"] == pytest.approx(found["makespan"] / found["bound"] - 1)
    assert Overlap.parse(found["overlap"])
    again = answer("simulate", "plan.txt", at=place)
    assert again["makespan"] == pytest.approx(found["makespan"], rel=1e-12)
    assert answer("simulate", "plan.txt", "--overlap", "auto", at=place) == again


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hrevolve", "mixed", "revolve", "two-level"])
def test_a_named_planner_gets_its_best_policy(place: Path, name: str) -> None:
    line = ("--planner", name, *PLAN)
    found = answer("plan", *line, "--overlap", at=place)
    assert found["planner"] == name
    assert found["synchronous"] == answer("plan", *line, at=place)["makespan"]
    assert found["bound"] is found["gap"] is None
    for policy in (POLICY, "all", "none", "write_behind=all", "read_ahead=all"):
        other = answer("simulate", *line, "--overlap", policy, at=place)["makespan"]
        assert found["makespan"] <= other * (1 + 1e-12) or policy == POLICY
    same = answer("simulate", *line, "--overlap", "auto", at=place)
    assert same["makespan"] == pytest.approx(found["makespan"], rel=1e-12)
    assert same.get("overlap", str(Overlap())) == found["overlap"]


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["hrevolve", "mixed", "auto"])
def test_a_policy_is_kept_whatever_the_planner(place: Path, name: str) -> None:
    line = ("--planner", name, *PLAN)
    found = answer("plan", *line, "--overlap", POLICY, "-o", "plan.txt", at=place)
    plain = answer("plan", *line, at=place)
    assert (found["overlap"], found["synchronous"]) == (POLICY, plain["makespan"])
    assert found["levels"] == plain["levels"]
    assert loads((place / "plan.txt").read_text()).overlap == Overlap(1, 1)
    for said in (line, ("plan.txt",)):
        again = answer("simulate", *said, "--overlap", POLICY, at=place)
        assert again["makespan"] == found["makespan"] < plain["makespan"]
    none = answer("plan", *line, "--overlap", "none", at=place)
    assert none | {"plan_seconds": 0} == plain | {"plan_seconds": 0}
    assert "overlap" not in none


def test_what_was_taken_is_said_before_the_details(place: Path) -> None:
    found = answer("plan", *PLAN, "--overlap", at=place)
    first, _, note, *_ = ckio("plan", *PLAN, "--overlap", at=place).stdout.splitlines()
    makespan = f"makespan {found['makespan']:.6g} s"
    assert first.startswith(f"auto, 24 steps: {makespan} with {found['overlap']}, ")
    assert note == found["note"] != ""
    simulated = answer("simulate", *PLAN, "--overlap", "auto", at=place)
    assert {name: simulated[name] for name in ("note", "bound", "gap")} == {
        name: found[name] for name in ("note", "bound", "gap")
    }
    said = ckio("simulate", *PLAN, "--overlap", "auto", at=place).stdout.splitlines()
    assert said[0].endswith(makespan)
    assert said[2] == note
    none = ("--planner", "revolve", "--on", "ram", *PLAN)
    said = ckio("plan", *none, "--overlap", "auto", at=place).stdout
    assert " s without overlap, " in said.splitlines()[0]


# By default


def test_where_overlap_was_measured_it_is_considered(measured: Path) -> None:
    asked = answer("plan", *PLAN, "--overlap", at=measured)
    for more in ((), ("--planner", "auto")):
        found = answer("plan", *PLAN, *more, at=measured)
        assert found | {"plan_seconds": 0} == asked | {"plan_seconds": 0}
        simulated = answer("simulate", *PLAN, *more, at=measured)
        assert (simulated["overlap"], simulated["note"]) == (asked["overlap"], asked["note"])
        assert "not considered" not in ckio("plan", *PLAN, *more, at=measured).stdout


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["", "profile.write_beside = 2.5\n", "profile.cached = 9\n"])
def test_where_it_was_not_one_line_says_so(place: Path, profile: str) -> None:
    (place / "node.toml").write_text(NODE + profile)
    for command in ("plan", "simulate"):
        for more in ((), ("--planner", "auto")):
            found = answer(command, *PLAN, *more, at=place)
            assert "overlap" not in found
            said = ckio(command, *PLAN, *more, at=place).stdout
            assert said.count(NOT_CONSIDERED) == 1
            assert "`ckio calibrate --model` does that, or say --overlap auto\n" in said
    assert answer("plan", *PLAN, at=place)["planner"] == "auto"


def test_all_levels_that_were_not_measured_are_named(place: Path) -> None:
    more = '[[level]]\nname = "archive"\nbackend = "hdf5"\n'
    (place / "node.toml").write_text(NODE + more)
    said = ckio("plan", *PLAN, at=place).stdout
    assert "overlap was not considered: levels nvme, archive were not measured beside" in said
    (place / "node.toml").write_text(NODE + MEASURED + more)
    said = ckio("plan", *PLAN, at=place).stdout
    assert "overlap was not considered: level archive was not measured beside" in said


@pytest.mark.campaign
@pytest.mark.parametrize(
    "more", [("--planner", "mixed"), ("--planner", "hrevolve", "--insist"), ("--insist",)]
)
def test_a_planner_that_is_named_stays_synchronous(measured: Path, more: tuple[str, ...]) -> None:
    for command in ("plan", "simulate"):
        assert "overlap" not in answer(command, *PLAN, *more, at=measured)
        assert "not considered" not in ckio(command, *PLAN, *more, at=measured).stdout


@pytest.mark.slow
def test_where_there_is_nothing_to_overlap_nothing_changes(place: Path) -> None:
    (place / "node.toml").write_text(
        NODE.split('[[level]]\nname = "nvme"')[0] + "profile.first = 2"
    )
    (place / "paper.txt").write_text("2\n2 0 0\n100 10 2\n")
    for line in (PLAN, ("--steps", 101, "--platform", "paper.txt")):
        found = answer("plan", *line, at=place)
        assert (found["planner"], "overlap" in found) == ("auto", False)
        assert "overlap" not in ckio("plan", *line, at=place).stdout


@pytest.mark.slow
def test_many_ranks_are_not_decided_for_by_default(measured: Path) -> None:
    ranks = ("--ranks", 3, "--shared", "nvme=1MB/s", "--barrier", "step")
    found = answer("simulate", *PLAN, *ranks, at=measured)
    assert "overlap" not in found
    assert "no barriers where transfers overlap" in complaint(
        "simulate", *PLAN, *ranks, "--overlap", "auto", at=measured
    )
    found = answer("simulate", *PLAN, *ranks[:4], "--overlap", "auto", at=measured)
    assert found["overlap"] == answer("plan", *PLAN, at=measured)["overlap"]


# Runs


@pytest.mark.slow
def test_a_run_on_a_measured_machine_overlaps(tmp_path: Path) -> None:
    at = running(tmp_path)
    found = answer(*BY_DEFAULT, "--every", "1h", at=at)  # no room is set aside for adjoints
    assert (found["planner"], found["verified"]) == ("auto", None)
    assert Overlap.parse(found["overlap"])
    assert found["gradient_digest"] == reference(tmp_path)["gradient_digest"]
    model = ("--model", "ocean:growth", "--steps", 40, "--platform", "node.toml")
    planned = answer("plan", *model, at=at)
    for name in ("overlap", "synchronous", "bound", "gap", "note"):
        assert found[name] == planned[name]
    assert found["predicted"] == pytest.approx(planned["makespan"])
    again = (*BY_DEFAULT[:-1], "again", "--overlap", "none")
    plain = answer(*again, at=at)
    assert (plain["planner"], plain["overlap"], "bound" in plain) == ("auto", None, False)
    said = ckio(*BY_DEFAULT[:-1], "said", "--every", "1h", at=at).stdout
    assert said.index(planned["note"]) < said.index("predicted and measured")


def test_a_run_on_another_machine_says_that_it_was_not_considered(tmp_path: Path) -> None:
    at = running(tmp_path, measured=False)
    said = ckio(*BY_DEFAULT, at=at).stdout
    assert said.count("overlap was not considered: level far was not measured") == 1
    assert (at / "run" / "result.json").read_text().count('"overlap": null') == 1
    assert "not considered" not in ckio(*BY_DEFAULT[:-1], "b", "--planner", "mixed", at=at).stdout


@pytest.mark.slow
def test_the_line_that_begins_a_run_goes_on_with_its_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = running(tmp_path, measured=False)
    line = words("--resume", "--overlap", "auto", "--effort", 1)
    killed(monkeypatch, at, "adjoint:17", *line)
    begun = loads((at / "run" / "schedule.txt").read_text()).overlap
    assert begun
    assert "as asked for" not in killed(monkeypatch, at, "adjoint:3", *line)
    found = answer(*RESUME, at=at)
    assert (found["planner"], found["overlap"]) == ("auto", str(begun))
    assert found["gradient_digest"] == reference(tmp_path)["gradient_digest"]


def test_what_cannot_be_decided_with_a_plan_is_refused(tmp_path: Path) -> None:
    at = running(tmp_path)
    line = words("--overlap", "auto", steps=None)
    assert "--overlap auto is not for a run without --steps" in complaint(*line, at=at)
    line = words("--by-variable", "--overlap", "auto")
    assert "--overlap auto is not for --by-variable: it plans with whole" in complaint(*line, at=at)


@pytest.mark.slow
def test_a_model_without_tapes_is_planned_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = running(tmp_path)
    model = (at / "ocean.py").read_text()
    bare = """
    def layout(self, key):
        if key.kind.name == "TAPE":
            from ckio.errors import UnsupportedKind
            raise UnsupportedKind("no tapes")
        return super().layout(key)

    def work("""
    (at / "ocean.py").write_text(model.replace("    def work(", bare[1:]))
    toml = (at / "node.toml").read_text()
    (at / "node.toml").write_text(toml.replace("tape = 4096", "tape = 0"))
    killed(monkeypatch, at, "adjoint:17", *BY_DEFAULT, "--resume")
    assert "write tape" not in (at / "run" / "schedule.txt").read_text()
    found = answer(*RESUME, at=at)
    assert Overlap.parse(found["overlap"])
    assert found["gradient_digest"] == reference(tmp_path)["gradient_digest"]


# The rest


@pytest.mark.slow
def test_effort_is_of_the_search(measured: Path) -> None:
    found = answer("plan", *PLAN, "--overlap", "--effort", 1, at=measured)
    assert found["makespan"] <= found["synchronous"]
    assert answer("plan", *PLAN, "--effort", 3, at=measured)["makespan"] <= found["makespan"]
    assert answer("simulate", *PLAN, "--effort", 2, at=measured)["bound"] == found["bound"]
    for more in (("--planner", "mixed", "--overlap"), ("--overlap", "none"), ("--overlap", POLICY)):
        said = complaint("plan", *PLAN, *more, "--effort", 1, at=measured)
        assert "--effort is of the search for plans that overlap" in said
    assert "--effort" in complaint("plan", *PLAN, "--effort", 4, at=measured)
    ckio("plan", *PLAN, "-o", "plan.txt", at=measured)
    said = complaint("simulate", "plan.txt", "--effort", 1, at=measured)
    assert "plan.txt is planned already; leave out --effort" in said


@pytest.mark.slow
def test_a_sweep_asks_plans_what_overlaps(place: Path) -> None:
    axes = ("--vary", "overlap=none,auto,all", "--vary", "planner=mixed,auto,overlapped")
    rows = answer("sweep", *PLAN, *axes, "--processes", 1, at=place)["points"]
    seconds = {tuple(row["values"].values()): row["makespan"] for row in rows}
    for (policy, name), found in seconds.items():
        line = ("--planner", name, *PLAN, "--overlap", policy)
        simulated = answer("simulate", *line, at=place)["makespan"]
        assert found == pytest.approx(simulated, rel=1e-12)
    best = seconds["auto", "auto"]
    assert best == seconds["auto", "overlapped"] <= min(seconds.values())
    for more in (("--overlap", "auto"), ("--planner", "overlapped")):
        (row,) = answer("sweep", *PLAN, *more, "--vary", "nvme=on", at=place)["points"]
        assert row["makespan"] == best
    (row,) = answer("sweep", *PLAN, "--vary", "nvme=on", at=place)["points"]
    assert row["makespan"] == answer("plan", *PLAN, "--planner", "auto", at=place)["makespan"]
    failing = ("--vary", "nvme=on", "--mtbf", "1h", "--overlap", "auto")
    assert "alone, and without overlap" in complaint("sweep", *PLAN, *failing, at=place)


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.0, 0.2])
def test_progress_is_shown_to_who_waits(monkeypatch: pytest.MonkeyPatch, after: float) -> None:
    ours, theirs = os.openpty()
    os.set_blocking(ours, False)

    def shown() -> bytes:
        try:
            return os.read(ours, 1 << 16)
        except BlockingIOError:
            return b""

    with open(theirs, "w") as terminal:  # noqa: PTH123
        monkeypatch.setattr(sys, "stderr", terminal)
        with Display().progress("planning", after=after):
            quick = shown()
        assert (b"planning" in quick) == (not after)
        with Display().progress("planning", after=after, unit="%") as tick:
            watch = share(tick)
            time.sleep(0.6)
            watch(0.25)
            time.sleep(0.3)
            watch(0.5)
        slow = shown()
    os.close(ours)
    assert b"planning" in slow
    assert b"25/100" in slow
