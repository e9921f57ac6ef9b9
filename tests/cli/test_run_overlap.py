"""`ckio run --overlap` and `ckio plan --overlap`."""

import json
from pathlib import Path

import pytest
from cli.commands import answer, ckio, complaint
from cli.resumable import killed, left, place, reference, words

from ckio.planners import compiled
from ckio.schedule.policy import Overlap
from ckio.schedule.text import loads

POLICY = ("--overlap", "write_behind=2,read_ahead=2")
PLANNED = ("--planner", "overlapped")
HREVOLVE = ("--planner", "hrevolve", "--overlap")


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """Compiled code, once for all forks."""
    compiled.prepare("ckio.planners.overlap")


def policies(at: Path) -> list[Overlap]:
    """With what a run was predicted, and with what it was run."""
    texts = (at / "run" / name for name in ("predicted.txt", "measured.txt"))
    return [loads(text.read_text()).overlap for text in texts]


@pytest.mark.campaign
@pytest.mark.parametrize("far", ["directory", "hdf5", "zstd"])
def test_a_run_with_overlap_computes_the_same(tmp_path: Path, far: str) -> None:
    at = place(tmp_path / "at", far)
    plain = answer(*words(into="plain"), at=at)
    found = answer(*words(*POLICY), at=at)
    assert found["gradient_digest"] == plain["gradient_digest"]
    assert found["forward_steps"] == plain["forward_steps"]
    moved = [{key: level[key] for key in ("name", "written")} for level in found["levels"]]
    assert moved == [{key: level[key] for key in ("name", "written")} for level in plain["levels"]]
    assert "overlap write_behind=2,read_ahead=2" in (at / "run" / "measured.txt").read_text()
    told = ckio("compare", "run/predicted.txt", "run/measured.txt", at=at).stdout
    assert "transfers behind it" in told


@pytest.mark.campaign
@pytest.mark.parametrize("moment", ["step:30", "adjoint:17", "dump:12:9:0.0002"])
def test_a_killed_run_with_overlap_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    at = place(tmp_path / "at")
    killed(monkeypatch, at, moment, *words(*POLICY))
    found = answer(*words("--resume", *POLICY), at=at)
    assert found["gradient_digest"] == reference(tmp_path)["gradient_digest"]
    assert left(at) == []


@pytest.mark.slow
def test_a_plan_for_overlap_says_what_it_is_worth(tmp_path: Path) -> None:
    at = place(tmp_path / "at", tapes=1)
    line = ("plan", "--steps", 40, "--platform", "node.toml", "--model", "ocean:growth")
    synchronous = answer(*line, "--planner", "auto", at=at)
    found = answer(*line, "--overlap", "-o", "plan.txt", at=at)
    assert found["planner"] == "auto"
    assert found["bound"] <= found["makespan"] <= found["synchronous"]
    assert found["synchronous"] <= synchronous["makespan"] * (1 + 1e-12)
    assert found["gap"] == pytest.approx(found["makespan"] / found["bound"] - 1)
    policy = ("--overlap", found["overlap"])
    again = answer("simulate", "plan.txt", *policy, at=at)
    assert again["makespan"] == pytest.approx(found["makespan"], rel=1e-12)
    for same in (("--overlap", "auto"), ("--planner", "auto", "--overlap"), PLANNED):
        figures = answer(*line, *same, at=at)
        assert figures.pop("plan_seconds") > 0
        assert figures | {"planner": "auto", "plan_seconds": found["plan_seconds"]} == found
    ckio(*line, "--planner", "hrevolve", "--format", "paper", "-o", "paper.txt", at=at)
    told = ckio(*line, *HREVOLVE, "--format", "paper", "-o", "over.txt", at=at).stdout
    assert "written to over.txt, which cannot say the policy" in told
    line = ("plan", "--sequence", "paper.txt", "--platform", "node.toml", "--overlap")
    assert "paper.txt is planned already; leave out --overlap" in complaint(*line, at=at)


def test_a_journal_has_a_line_for_each_action(tmp_path: Path) -> None:
    at = place(tmp_path / "at")
    answer(*words("--log", "log.jsonl", *POLICY), at=at)
    first, *lines = map(json.loads, (at / "log.jsonl").read_text().splitlines())
    assert first["planner"] == "hrevolve"
    planned = (at / "run" / "schedule.txt").read_text().splitlines()
    assert len(lines) == sum(not line.startswith("#") for line in planned)


def test_what_is_no_policy_is_refused(tmp_path: Path) -> None:
    at = place(tmp_path / "at")
    said = complaint(*words("--overlap", "both"), at=at)
    assert "'both' is not write_behind=N" in said
    assert "nor is it auto, all, or none" in said


@pytest.mark.slow
def test_a_run_overlaps_as_its_plan_was_made_for(tmp_path: Path) -> None:
    at = place(tmp_path / "at", tapes=1)
    found = answer(*words(*PLANNED), at=at)
    assert found["gradient_digest"] == reference(tmp_path)["gradient_digest"]
    policy = Overlap.parse(found["overlap"])
    assert policy
    assert policies(at) == [policy, policy]
    again = answer("simulate", "run/schedule.txt", "--overlap", found["overlap"], at=at)
    assert again["makespan"] == found["predicted"]


@pytest.mark.parametrize(
    ("word", "policy"), [("none", Overlap()), ("write_behind=1,read_ahead=1", Overlap(1, 1))]
)
def test_a_policy_that_is_asked_for_replaces_that_of_the_plan(
    tmp_path: Path, word: str, policy: Overlap
) -> None:
    at = place(tmp_path / "at", tapes=1)
    line = words(*PLANNED, "--overlap", word)
    said = [line for line in ckio(*line, at=at).stdout.splitlines() if "as asked for" in line]
    assert len(said) == 1
    assert said[0].startswith(f"overlap {policy if policy else 'none'} as asked for, instead of ")
    assert said[0].endswith(" of the plan")
    assert policies(at) == [policy, policy]


def test_a_policy_in_place_of_none_needs_no_word(tmp_path: Path) -> None:
    at = place(tmp_path / "at")
    said = ckio(*words("--overlap", "all"), at=at).stdout
    assert "as asked for" not in said
    assert "overlap        write_behind=all,read_ahead=all" in said
    assert answer(*words("--overlap", "none", into="plain"), at=at)["overlap"] is None
