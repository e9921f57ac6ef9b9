"""`ckio run --overlap` and `ckio plan --overlap`."""

import json
from pathlib import Path

import pytest
from cli.commands import answer, ckio, complaint
from cli.resumable import killed, left, place, reference, words

POLICY = ("--overlap", "write_behind=2,read_ahead=2")


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


@pytest.mark.parametrize("moment", ["step:30", "adjoint:17", "dump:12:9:0.0002"])
def test_a_killed_run_with_overlap_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    at = place(tmp_path / "at")
    killed(monkeypatch, at, moment, *words(*POLICY))
    found = answer(*words("--resume", *POLICY), at=at)
    assert found["gradient_digest"] == reference(tmp_path)["gradient_digest"]
    assert left(at) == []


def test_a_plan_for_overlap_says_what_it_is_worth(tmp_path: Path) -> None:
    at = place(tmp_path / "at")
    line = ("plan", "--steps", 40, "--platform", "node.toml", "--model", "ocean:growth")
    synchronous = answer(*line, at=at)
    found = answer(*line, "--overlap", "-o", "plan.txt", at=at)
    assert found["planner"] == "overlapped"
    assert found["bound"] <= found["makespan"] <= found["synchronous"] == synchronous["makespan"]
    assert found["gap"] == pytest.approx(found["makespan"] / found["bound"] - 1)
    policy = ("--overlap", found["overlap"])
    again = answer("simulate", "plan.txt", *policy, at=at)
    assert again["makespan"] == pytest.approx(found["makespan"], rel=1e-12)
    assert "leave out --planner revolve" in complaint(
        *line, "--overlap", "--planner", "revolve", at=at
    )


def test_a_journal_has_a_line_for_each_action(tmp_path: Path) -> None:
    at = place(tmp_path / "at")
    answer(*words("--log", "log.jsonl", *POLICY), at=at)
    first, *lines = map(json.loads, (at / "log.jsonl").read_text().splitlines())
    assert first["planner"] == "hrevolve"
    planned = (at / "run" / "schedule.txt").read_text().splitlines()
    assert len(lines) == sum(not line.startswith("#") for line in planned)


def test_what_is_no_policy_is_refused(tmp_path: Path) -> None:
    at = place(tmp_path / "at")
    assert "write_behind=N" in complaint(*words("--overlap", "both"), at=at)
