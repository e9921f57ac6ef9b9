"""`ckio run` without --steps: the model says when it is finished, also after a kill."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from cli.commands import answer, ckio, complaint
from cli.resumable import COSTS, RESUME, STEPS, killed, left, place

MODEL = f"""\
import numpy as np
import ocean


class Ending(ocean.Growth):
    def finished(self, state, i):
        return i >= {STEPS}


def ending(rate=0.3):
    x = np.linspace(0.1, 0.4, 512)
    return Ending({{"x": x, "J": 0.0}}, control={{"x": x, "rate": rate}}, tape=["x"])
"""

LINE = ("run", "ends:ending", "--platform", "node.toml", "--into", "run", "--every", "8s")


@pytest.fixture
def at(tmp_path: Path) -> Path:
    where = place(tmp_path / "at")
    (where / "ends.py").write_text(MODEL)
    with (where / "node.toml").open("a") as file:
        file.write(COSTS.replace("ocean:growth", "ends:ending"))
    return where


@pytest.fixture
def known(at: Path) -> dict[str, Any]:
    """What a run says whose steps are known."""
    return answer(*LINE[:-4], "--into", "known", "--steps", STEPS, at=at)


def test_a_run_finds_its_own_end(at: Path, known: dict[str, Any]) -> None:
    found = answer(*LINE, "--check-gradient", at=at)
    assert found["steps"] == STEPS
    assert found["planner"] == "online"
    assert found["gradient_digest"] == known["gradient_digest"]
    assert found["functional"] == known["functional"]
    assert found["verified"]
    assert found["forward_steps"] >= known["forward_steps"]
    assert left(at) == []
    assert answer(*RESUME, at=at) == found
    assert json.loads((at / "run" / "manifest.json").read_text())["chain"]["steps"] == STEPS


@pytest.mark.parametrize("moment", ["step:1", "step:33", "step:60", "adjoint:17", "dump:3"])
def test_a_killed_run_goes_on_wherever_it_was(
    at: Path, known: dict[str, Any], monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    killed(monkeypatch, at, moment, *LINE)
    found = answer(*LINE, "--resume", at=at)
    assert found["gradient_digest"] == known["gradient_digest"]
    assert left(at) == []


def test_a_run_that_is_stopped_on_its_way_forward_stores_where_it_stands(
    at: Path, known: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(monkeypatch, at, f"step:20:{int(signal.SIGTERM)}", *LINE, status=75)
    resumed = ckio(*RESUME, at=at).stdout
    assert "on the way forward" in resumed
    assert "resumed at step 0," not in resumed
    assert known["gradient_digest"] in resumed


def test_events_of_both_ways_go_to_the_journal(at: Path) -> None:
    answer(*LINE, "--log", "log.jsonl", at=at)
    lines = [json.loads(line) for line in (at / "log.jsonl").read_text().splitlines()]
    assert [line["steps"] for line in lines if "ckio_journal" in line] == [None, STEPS]
    assert sum(line.get("action", "").startswith("reverse") for line in lines) >= 1


def test_what_has_no_end_is_refused(at: Path) -> None:
    line = ("run", "ocean:growth", "--platform", "node.toml", "--into", "endless")
    assert "does not say itself when it is finished" in complaint(*line, at=at)
    assert "planner 'hrevolve' has to know" in complaint(*LINE, "--planner", "hrevolve", at=at)
    assert not (at / "endless").exists()


def test_steps_may_not_be_given_later(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(monkeypatch, at, "step:20", *LINE)
    line = complaint(*RESUME, "--steps", 30, at=at)
    assert "--steps is 30, the run was begun without" in line
