"""`ckio sweep`: each row is what `ckio plan` and `simulate` say; CSV, JSON, picture, errors."""

import csv
import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import pytest
from click.testing import CliRunner

from ckio.cli.failures import command as failures
from ckio.cli.plan import command as plan
from ckio.cli.simulate import command as simulate
from ckio.cli.sweep import command as sweep
from ckio.errors import BadInput
from ckio.jobs.sweeping import value_text
from ckio.sim.sweep import Axis

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
SVG = "{http://www.w3.org/2000/svg}"
COSTS = (
    *("--advance", "1", "--record", "1.25", "--reverse", "2.5"),
    *("--restart", "40", "--tape", "60", "--adjoint", "40"),
)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    path = tmp_path / "node.toml"
    path.write_text(NODE)
    return path


def said(command: click.Command, node: Path, *words: object) -> str:
    given = ["--platform", str(node), *COSTS, *map(str, words)]
    done = CliRunner().invoke(command, given, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def answer(command: click.Command, node: Path, *words: object) -> dict[str, Any]:
    text = said(command, node, *words, "--json")
    assert text.count("\n") == 1
    found: dict[str, Any] = json.loads(text)
    return found


def table(node: Path, *words: object) -> list[dict[str, str]]:
    path = node.with_name("out.csv")
    said(sweep, node, *words, "-o", path)
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_each_row_is_what_plan_and_simulate_say(node: Path) -> None:
    axes = ("--vary", "planner=hrevolve,mixed,disk-revolve,auto", "--vary", "steps=5,40")
    rows = table(node, *axes)
    assert len(rows) == 8
    for row in rows:
        options = ("--planner", row["planner"], "--steps", row["steps"])
        found = answer(plan, node, *options)
        assert float(row["makespan"]) == found["makespan"]
        assert float(row["makespan"]) == answer(simulate, node, *options)["makespan"]
        assert int(row["forward_steps"]) == found["forward_steps"]
        assert int(row["actions"]) == found["actions"]
        if row["planner"] == "hrevolve":
            peaks = {level["name"]: 40 * level["peak"] for level in found["levels"]}
            assert peaks == {name: int(row[f"{name}.peak"]) for name in ("ram", "nvme")}
            assert row["memory"] == row["ram.peak"]


def test_a_changed_level_is_the_level_of_a_changed_file(node: Path) -> None:
    rows = table(node, "--steps", 40, "--vary", "ram.capacity=80,160", "--vary", "nvme=on,off")
    for row in rows:
        other = NODE.replace("capacity = 200", f"capacity = {row['ram.capacity']}")
        if row["nvme"] == "off":
            other = other[: other.rindex("[[level]]")]
        path = node.with_name("other.toml")
        path.write_text(other)
        assert float(row["makespan"]) == answer(plan, path, "--steps", 40)["makespan"]


def test_overlap_and_ranks_are_those_of_simulate(node: Path) -> None:
    for row in table(node, "--steps", 40, "--vary", "overlap=none,all"):
        found = answer(simulate, node, "--steps", 40, "--overlap", row["overlap"])
        assert float(row["makespan"]) == found["makespan"]
    shared = ("--steps", 40, "--shared", "nvme=300", "--jitter", "lognormal:0.1")
    for row in table(node, *shared, "--vary", "ranks=1,4"):
        found = answer(simulate, node, *shared, "--ranks", row["ranks"])
        assert float(row["makespan"]) == found["makespan"]


@pytest.mark.slow
def test_runs_that_fail_take_what_failures_says(node: Path) -> None:
    given = ("--steps", 20, "--planner", "hrevolve", "--restart-time", 3, "--trajectories", 3)
    axes = ("--vary", "mtbf=1m,200,never", "--vary", "nvme.capacity=400,640")
    rows = table(node, *given, *axes)
    for row in rows:
        path = node.with_name("other.toml")
        path.write_text(NODE.replace("capacity = 400", f"capacity = {row['nvme.capacity']}"))
        if row["mtbf"] == "never":
            assert float(row["makespan"]) == answer(plan, path, *given[:4])["makespan"]
            assert float(row["error"]) == 0
            continue
        found = answer(failures, path, *given, "--mtbf", row["mtbf"])
        ours = min(found["intervals"], key=lambda one: abs(one["every"] - max(1, found["daly"])))
        assert float(row["makespan"]) == ours["expected"]
        assert float(row["error"]) == ours["error"]
    expected = [float(row["makespan"]) for row in rows]
    assert expected[0] > expected[2] > expected[4]
    assert [row["mtbf"] for row in rows[::2]] == ["60.0", "200.0", "never"]


@pytest.mark.slow
def test_where_others_vary_all_runs_fail_alike_in_any_process(node: Path) -> None:
    asked = ("--steps", 30, "--mtbf", "30", "--trajectories", 4, "--vary", "nvme=on,off")
    found = answer(sweep, node, *asked)
    assert "with nvme:" in found["answer"]
    on, off = found["points"]
    assert on["makespan"] < off["makespan"]
    assert on["error"] > 0
    assert answer(sweep, node, *asked, "--processes", 2) == found
    single = answer(sweep, node, *asked, "--trajectories", 1)
    assert [point["error"] for point in single["points"]] == [None, None]
    assert "expected s" in said(sweep, node, *asked)
    pytest.importorskip("matplotlib")
    path = node.with_name("out.svg")
    said(sweep, node, *asked, "--picture", path)
    assert "expected makespan" in path.read_text()
    said(sweep, node, *asked[:2], *asked[-2:], "--picture", path)
    assert "expected" not in path.read_text()


def test_what_cannot_fail_or_never_ends_is_a_row_with_the_reason(node: Path) -> None:
    asked = ("--steps", 40, "--trajectories", 1, "--vary", "mtbf=0.01,never")
    never, done = table(node, *asked, "--vary", "nvme=off")
    assert "is not done" in never["reason"]
    assert done["makespan"]
    refused, _ = table(node, "--steps", 12, "--mtbf", 30, "--vary", "planner=overlapped,hrevolve")
    assert "runs with failures are simulated without it" in refused["reason"]


def test_without_matplotlib_a_picture_is_refused_before_anything_is_planned(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("ckio.jobs.sweeping.sweep", None)  # nothing is planned
    for suffix in ("svg", "png"):
        with pytest.raises(BadInput, match=r"pip install 'ckio\[plot\]'"):
            said(sweep, node, "--steps", 9, "--vary", "nvme=on", "--picture", f"out.{suffix}")


def test_a_picture_over_memory_needs_no_matplotlib_and_the_help_says_so(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    path = node.with_name("picture.svg")
    assert f"written to {path}" in said(sweep, node, "--steps", 9, "--picture", path)
    (text,) = (it.help for it in sweep.params if it.name == "picture")
    assert "[with --vary: needs ckio[plot]" in text


def test_what_has_no_schedule_is_a_row_with_the_reason(node: Path) -> None:
    axes = ("--steps", 9, "--vary", "ram.capacity=0,80", "--vary", "nvme=off,on")
    refused, *planned = table(node, *axes)
    assert "needs a level that can store one checkpoint" in refused["reason"]
    assert (refused["makespan"], refused["pareto"], refused["ram.peak"]) == ("", "", "")
    assert all(row["makespan"] and not row["reason"] for row in planned)
    found = answer(sweep, node, *axes)
    assert found["points"][0]["reason"] == refused["reason"]
    shown = said(sweep, node, *axes)
    assert "none" in shown
    assert f"no schedule: {refused['reason']}" in shown


def test_table_and_json_and_csv_say_the_same(node: Path) -> None:
    plan = ("--planner", "hrevolve", "--steps", 40)
    axes = (*plan, "--vary", "ram.slots=1:16:5", "--vary", "nvme=on,off")
    rows, found, shown = table(node, *axes), answer(sweep, node, *axes), said(sweep, node, *axes)
    lines = shown.splitlines()[2:12]
    for row, point, line in zip(rows, found["points"], lines, strict=True):
        assert int(row["ram.slots"]) == point["values"]["ram.slots"]
        assert float(row["makespan"]) == point["makespan"]
        assert bool(int(row["pareto"])) == point["pareto"] == line.endswith("*")
        assert f"{point['makespan']:.6g}" in line
    assert 0 < sum(point["pareto"] for point in found["points"]) < len(rows)
    assert found["answer"] in shown
    alone = said(sweep, node, *plan, "--vary", "ram.slots=1,2,39,60")
    assert "from <" not in alone
    assert "of ram.slots: " in alone
    assert "nothing is gained" in alone


def test_the_picture_has_a_line_for_each_value_and_marks_the_front(node: Path) -> None:
    pytest.importorskip("matplotlib")
    path = node.with_name("picture.svg")
    axes = ("--steps", 40, "--vary", "ram.slots=1:16:5", "--vary", "nvme=on,off")
    assert f"written to {path}" in said(sweep, node, *axes, "--picture", path)
    found = answer(sweep, node, *axes)
    groups = {str(group.get("id")): group for group in ElementTree.parse(path).iter(f"{SVG}g")}
    lines = [groups[f"makespan-{number}"] for number in (0, 1)]
    assert "makespan-2" not in groups
    assert all(str(line[0].get("d")).count("L") == 4 for line in lines)
    shown = [*lines, groups["others"], groups["front"]]
    marks = [sum(1 for _ in group.iter(f"{SVG}use")) for group in shown]
    best = {(point["memory"], point["makespan"]) for point in found["points"] if point["pareto"]}
    every = {(point["memory"], point["makespan"]) for point in found["points"]}
    assert marks == [5, 5, len(every - best), len(best)]
    again = path.read_bytes()
    said(sweep, node, *axes, "--picture", path)
    assert path.read_bytes() == again
    said(sweep, node, *axes, "--picture", path.with_suffix(".png"))
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG\r\n")
    names = sorted(each.name for each in node.parent.iterdir())
    assert names == ["node.toml", "picture.png", "picture.svg"]


@pytest.mark.campaign
@pytest.mark.parametrize(
    "axes",
    [
        ("steps=20", "ram.capacity=80,unlimited"),
        ("steps=20", "planner=hrevolve,mixed", "nvme.bandwidth=10:1000:3"),
        ("steps=3", "ram=off,on"),
        ("steps=20", "overlap=all,none"),
        ("steps=20", "ram.slots=0,4", "nvme.ratio=0.5,1"),
    ],
)
def test_whatever_varies_can_be_drawn(axes: tuple[str, ...], node: Path) -> None:
    pytest.importorskip("matplotlib")
    path = node.with_name("picture.svg")
    said(sweep, node, *(word for axis in axes for word in ("--vary", axis)), "--picture", path)
    text = path.read_text()
    ElementTree.fromstring(text)
    assert "nan" not in text
    assert "inf" not in text


def test_what_is_wrong_is_told(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(node.parent)
    many = ("--vary", "ram.slots=1:400:14", "--picture", "x.svg")
    nvme = ("--vary", "nvme=on")
    for words, told in (
        (("--vary", "ram.size=3"), "axis ram.size: there is no such thing to vary"),
        (("--vary", "steps=3"), "--steps is also varied by --vary steps=..."),
        (("--vary", "restart=3"), "--restart is also varied by --vary restart=..."),
        (("--vary", "planner=hrevolv"), "no planner is named 'hrevolv'"),
        (("--vary", "planner=hrevolve,mixed", "--period", 3), "has no option --period"),
        (("--vary", "ram.slots=1", "--picture", "x.pdf"), "written as .svg and .png"),
        (("--vary", "ram.slots=3", "--vary", "ram.slots=4"), "axis ram.slots: ram.slots sets"),
        (("--vary", "mtbf=0"), "axis mtbf: the mean time between failures must be above 0"),
        (("--vary", "mtbf=soon"), "axis mtbf: 'soon' is not a time"),
        (("--vary", "mtbf=1h", "--mtbf", "2h"), "--mtbf is also varied by --vary mtbf=..."),
        (("--vary", "mtbf=1h", "--ranks", 2), "simulated on one rank and without overlap"),
        ((*nvme, "--mtbf", 9, "--overlap", "all"), "on one rank and without overlap"),
        ((*nvme, "--trajectories", 9), "failures by --mtbf TIME or"),
        ((*nvme, "--restart-time", 9), "failures by --mtbf TIME or"),
        ((*nvme, "--shared", "nvme=300"), "give their number with --ranks"),
        ((*nvme, *many), "a picture has 10 lines at the most"),
    ):
        with pytest.raises(BadInput) as error:
            said(sweep, node, "--steps", 20, *words)
        assert told in str(error.value)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("ram.capacity", 3 << 20, "3 MiB"),
        ("nvme.bandwidth", 2_500_000_000, "2.5 GB/s"),
        ("nvme.bandwidth", 999, "999 B/s"),
        ("nvme.latency", 2e-4, "200 µs"),
        ("mtbf", 5400.0, "1.5 h"),
        ("mtbf", 90.0, "1.5 min"),
        ("mtbf", 3.0, "3 s"),
        ("ranks", 16, "16"),
        ("ram.drift", 0.12345, "0.1235"),
    ],
)
def test_values_have_their_units(name: str, value: float, text: str) -> None:
    assert value_text(Axis(name, (value,), name.rpartition(".")[2]), value) == text
