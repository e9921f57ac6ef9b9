"""Whatever a command can do, a Python caller can do with one call: figures of both are equal."""

import importlib.util
import json
from pathlib import Path
from pkgutil import resolve_name

import pytest
from cli.commands import answer

from ckio.cli.entry import COMMANDS
from ckio.errors import BadInput
from ckio.jobs.analyzing import model_figures
from ckio.jobs.planning import plan_of
from ckio.schedule import makespan
from ckio.schedule.occupancy import busy_seconds, overlap_savings
from ckio.schedule.policy import Overlap
from ckio.sim.engine import simulate

NODE = """
format = 1
working_memory = 60
[[level]]
name = "ram"
capacity = 200
[[level]]
name = "nvme"
backend = "directory"
capacity = 400
write = {latency = 0.1, per_byte = 0.0125}
read = {latency = 0.1, per_byte = 0.01}
"""
COSTS = {"advance": 1.0, "record": 1.25, "reverse": 2.5, "restart": 40, "tape": 60, "adjoint": 40}
WORDS = [word for name, value in COSTS.items() for word in (f"--{name}", value)]


@pytest.fixture
def node(tmp_path: Path) -> Path:
    path = tmp_path / "node.toml"
    path.write_text(NODE, encoding="utf-8")
    return path


def test_a_plan(node: Path) -> None:
    figures = answer("plan", "--steps", 30, "--platform", node, *WORDS, at=node.parent)
    plan = plan_of(steps=30, platform=node, **COSTS)
    schedule = plan.planned()
    assert makespan(schedule, plan.platform) == figures["makespan"]
    assert schedule.note == figures["note"]
    for name, words in (
        ("hrevolve:period=3", "'period=3' is no OPTION=VALUE of hrevolve; it has no options"),
        ("revolve:on=ram,on=nvme", "its options are on, each once"),
        ("periodic:7", "'7' is no OPTION=VALUE of periodic; its options are period, on"),
        ("revolv:on=ram", "did you mean revolve"),
    ):
        with pytest.raises(BadInput, match=words):
            plan_of(steps=30, platform=node, planner=name, **COSTS)


def test_what_overlap_saves(node: Path) -> None:
    words = ("--steps", 30, "--platform", node, *WORDS, "--planner", "hrevolve", "-o", "plan.txt")
    answer("plan", *words, at=node.parent)
    overlap = ("--overlap", "write_behind=1,read_ahead=1")
    figures = answer("simulate", "plan.txt", *overlap, at=node.parent)
    plan = plan_of(steps=30, platform=node, planner="hrevolve", **COSTS)
    schedule = plan.planned()
    timeline = simulate(schedule, plan.platform, overlap=Overlap(1, 1))
    assert busy_seconds(timeline, plan.platform) == figures["busy"]
    savings = overlap_savings(schedule, plan.platform, timeline)
    assert savings == {name: figures[name] for name in savings}
    assert savings["synchronous"] == makespan(schedule, plan.platform)


def test_an_analysis(node: Path) -> None:
    figures = answer("analyze", "burgers", "--set", "grid=16", at=node.parent)
    ours = json.loads(json.dumps(model_figures("burgers", settings={"grid": 16})))
    assert ours == figures


def test_every_command_names_functions_that_exist() -> None:
    path = Path(__file__).parents[2] / "docs" / "_site" / "commands.py"
    spec = importlib.util.spec_from_file_location("site_commands_of_calls", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert list(module.IN_PYTHON) == list(COMMANDS)
    for names in module.IN_PYTHON.values():
        for name in names:
            module_name, _, function = f"ckio.{name}".rpartition(".")
            assert callable(resolve_name(f"{module_name}:{function}"))
