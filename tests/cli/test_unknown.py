"""`ckio run` without --steps: the model says when it is finished, also after a kill."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from cli.commands import answer, ckio, complaint
from cli.resumable import COSTS, STEPS, killed, left, place

MODEL = f"""\
import os
import shutil
import numpy as np
import ocean


class Ending(ocean.Growth):
    def step(self, state, i):
        if os.environ.get("HARM") == str(i):
            shutil.rmtree("ck", ignore_errors=True)
        super().step(state, i)

    def finished(self, state, i):
        return i >= {STEPS}


def ending(rate=0.3):
    x = np.linspace(0.1, 0.4, 512)
    return Ending({{"x": x, "J": 0.0}}, control={{"x": x, "rate": rate}}, tape=["x"])
"""

LINE = ("run", "ends:ending", "--platform", "node.toml", "--into", "run", "--every", "8s")
RESUME = ("run", "ends:ending", "--resume", "--into", "run")


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
    return answer(*LINE[:-4], "--into", "known", "--steps", STEPS, "--planner", "hrevolve", at=at)


def test_a_run_finds_its_own_end(at: Path, known: dict[str, Any]) -> None:
    found = answer(*LINE, "--check-gradient", "--log", "log.jsonl", at=at)
    assert found["steps"] == STEPS
    assert found["planner"] == "online"
    assert found["gradient_digest"] == known["gradient_digest"]
    assert found["functional"] == known["functional"]
    assert found["verified"]
    assert found["forward_steps"] >= known["forward_steps"]
    assert left(at) == []
    lines = [json.loads(line) for line in (at / "log.jsonl").read_text().splitlines()]
    assert [line["steps"] for line in lines if "ckio_journal" in line] == [None, STEPS]
    assert any(line.get("action", "").startswith("reverse") for line in lines)
    assert answer(*RESUME, at=at) == found
    told = ckio(*RESUME, at=at).stdout
    assert f"Each step is computed {found['forward_steps'] / STEPS:.2f} times" in told
    assert json.loads((at / "run" / "manifest.json").read_text())["chain"]["steps"] == STEPS


@pytest.mark.campaign
@pytest.mark.parametrize("moment", ["step:1", "step:33", "step:60", "adjoint:17", "dump:3"])
def test_a_killed_run_goes_on_wherever_it_was(
    at: Path, known: dict[str, Any], monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    killed(monkeypatch, at, moment, *LINE)
    found = answer(*LINE, "--resume", at=at)
    assert found["gradient_digest"] == known["gradient_digest"]
    assert left(at) == []


def test_levels_stay_where_the_run_began_when_it_is_resumed_from_elsewhere(
    at: Path, known: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also if the process that was elsewhere has found out how many steps there are."""
    killed(monkeypatch, at, "step:33", *LINE)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for source in at.glob("*.py"):
        shutil.copy(source, elsewhere)
    resume = ("run", "ends:ending", "--resume", "--into", at / "run")
    killed(monkeypatch, elsewhere, "adjoint:17", *resume)
    assert left(at)
    assert not list(elsewhere.glob("ck*"))
    done = ckio(*RESUME, "--json", at=at)
    assert json.loads(done.stdout)["gradient_digest"] == known["gradient_digest"]
    assert "missing" not in done.stderr
    assert left(at) == []


def test_what_has_no_end_is_refused(at: Path) -> None:
    line = ("run", "ocean:growth", "--platform", "node.toml", "--into", "endless")
    assert "--steps is missing: model" in complaint(*line, at=at)
    missing = complaint(*line, "--resume", at=at)  # for example after a run that had no time
    assert f"--steps is missing ({at / 'endless'} has no run to take it from)" in missing
    assert "does not say itself when it is finished" in missing
    assert "'hrevolve' needs the number" in complaint(*LINE, "--planner", "hrevolve", at=at)
    assert not (at / "endless").exists()


def test_steps_may_not_be_given_later(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(monkeypatch, at, "step:20", *LINE)
    line = complaint(*RESUME, "--steps", 30, at=at)
    assert "--steps is 30, the run was begun without" in line


# Levels that fail on the way forward


def test_a_level_that_is_gone_when_the_way_back_begins_is_given_up(
    at: Path, known: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its room is set aside for adjoint checkpoints: forward, nothing is stored on it."""
    text = (at / "node.toml").read_text()
    (at / "node.toml").write_text(text.replace("48000", "20000"))
    monkeypatch.setenv("HARM", "34")
    done = ckio(*LINE, at=at)
    assert "level 'far' fails, and is given up: " in done.stderr
    assert "reserving failed" in done.stderr
    assert known["gradient_digest"] in done.stdout
