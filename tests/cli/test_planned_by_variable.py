"""`--by-variable` before a run: what `ckio plan` and `ckio simulate` say is what is then run."""

import json
import re
import shutil
from pathlib import Path

import pytest
from cli.commands import answer, ckio, complaint
from cli.resumable import COSTS
from cli.resumable import MODEL as MODEL_WITHOUT_FLOW
from example_models import EXAMPLES

from ckio.actions.columns import WRITE
from ckio.schedule.text import loads

PLATFORM = """
[[level]]
name = "ram"
capacity = 60000
write = {per_byte = 1e-6}
read = {per_byte = 1e-6}

[[level]]
name = "disk"
backend = "directory"
options = {path = "ck"}
capacity = 200000
write = {per_byte = 1e-5}
read = {per_byte = 1e-5}

[models."permafrost.py grid=32 steps=40"]
advance = 1.0
record = 1.0
reverse = 1.0
restart = 24584
tape = 24576
adjoint = 49176
"""
MODEL = ("--set", "grid=32", "--set", "steps=40")
MACHINE = ("--steps", 40, "--platform", "node.toml", "--planner", "hrevolve")
WHOLE = ("--model", "permafrost.py", *MODEL, *MACHINE)
PARTS = (*WHOLE, "--by-variable")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "node.toml").write_text(PLATFORM)
    shutil.copy(EXAMPLES / "permafrost" / "permafrost.py", tmp_path)
    return tmp_path


def test_a_plan_by_variable_is_faster_and_counts_arrays(place: Path) -> None:
    whole = answer("plan", *WHOLE, at=place)
    parts = answer("plan", *PARTS, "-o", "parts.sched", at=place)
    assert parts["makespan"] < whole["makespan"]
    assert parts["by_variable"] is True
    assert "by_variable" not in whole
    assert (
        parts["note"]
        == f"planned with whole checkpoints: {whole['note']}; then converted to single variables"
    )
    schedule = loads((place / "parts.sched").read_text()).schedule
    restart = schedule.actions.take(schedule.actions.kind == 0)
    stored = {restart.names[code] for code in restart.name[restart.op == WRITE]}
    assert stored == {"T", "K", "J"}
    for level, capacity in zip(parts["levels"], (60_000, 200_000), strict=True):
        assert level["peak_bytes"] <= capacity
        assert level["peak"] > 0
    told = ckio("plan", *PARTS, at=place).stdout
    assert re.search(r"discards +peak arrays +peak bytes", told)
    assert "slots" not in told


@pytest.mark.slow
def test_what_is_run_is_shown_and_compared(place: Path) -> None:
    run = ("run", "permafrost.py", *MODEL, *MACHINE)
    done = ckio(*run, "--by-variable", "--into", "run", "--log", "run.log", at=place)
    planned = answer("plan", *PARTS, at=place)
    ran = loads((place / "run" / "predicted.txt").read_text())
    assert ran.timeline is not None
    assert ran.timeline.makespan == pytest.approx(planned["makespan"])
    steps = json.loads((place / "run" / "result.json").read_text())["forward_steps"]
    assert re.search(rf"^forward steps +{steps}$", done.stdout, re.M)

    compared = answer("compare", "run", at=place)
    writes = [row["actions"] for row in compared["rows"] if row["name"].startswith("write")]
    assert writes == [level["writes"] for level in planned["levels"]]
    lines = [json.loads(line) for line in (place / "run.log").read_text().splitlines()[1:]]
    assert sum(line["action"].startswith("write x 0 ") for line in lines) >= 2

    ckio("show", "run/measured.txt", "--html", "run.html", "--perfetto", "run.json", at=place)
    page = (place / "run.html").read_text()
    assert "peak arrays" in page
    assert "write x_0.T, 8 KiB" in page
    traced = json.loads((place / "run.json").read_text())["traceEvents"]
    assert {"checkpoint": "x_0.T", "bytes": 8192} in [event.get("args") for event in traced]


def test_what_has_no_variables_is_refused(place: Path) -> None:
    (place / "ocean.py").write_text(MODEL_WITHOUT_FLOW)
    (place / "costs.toml").write_text(PLATFORM + COSTS)
    unsaid = ("plan", "--model", "ocean:growth", "--steps", 5, "--platform", "costs.toml")
    no_model = ("plan", "--steps", 5, "--platform", "node.toml", "--by-variable")
    for line, message in (
        (("plan", *PARTS[:-1], "--overlap", "--by-variable"), "--overlap auto plans with whole"),
        (("plan", *PARTS, "--planner", "overlapped"), "--planner overlapped plans with whole"),
        (no_model, "--by-variable needs the arrays of a model; give --model, too"),
        ((*unsaid, "--by-variable"), "model 'ocean:growth' does not declare which arrays"),
    ):
        assert message in complaint(*line, at=place)
