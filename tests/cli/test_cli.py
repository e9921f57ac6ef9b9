"""The commands as a person meets them: answers, one line for an error, and exit statuses."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from cli.commands import CKIO, answer, ckio, complaint

LISTING_1 = "# paper 004, Listing 1\n3\n1 0 0\n2 2 2\n10 3 3\n"
TOML = """\
format = 1
working_memory = 4096

[[level]]
name = "ram"
capacity = "64 KiB"

[[level]]
name = "nvme"
capacity = "1 MiB"
write = { latency = 0.5 }
read = { latency = 0.25 }
"""
COSTS = (
    *("--advance", 1, "--record", 1.5, "--reverse", 2.5),
    *("--restart", "8KiB", "--tape", "4KiB", "--adjoint", "8KiB"),
)
NODE = ("--platform", "node.toml")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "listing_1.txt").write_text(LISTING_1)
    (tmp_path / "node.toml").write_text(TOML)
    return tmp_path


# Help


def test_it_says_what_it_can_do_whichever_way_it_is_started(tmp_path: Path) -> None:
    out = ckio("--help", at=tmp_path).stdout
    for command in ("demo", "calibrate", "plan", "simulate", "run", "compare", "show"):
        assert f"  {command} " in out
    assert ckio(at=tmp_path).stdout == out
    version = ckio("--version", at=tmp_path).stdout
    assert version.startswith("ckio 0.")
    for command, said in (([CKIO, "--help"], out), ([sys.executable, "-m", "ckio"], out)):
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
        assert done.stdout == said


def test_what_is_not_given_or_not_there_is_told_with_where_to_look(tmp_path: Path) -> None:
    for words, said in (
        (["plann"], "No such command 'plann'. Did you mean 'plan'?"),
        (["calibrate"], "Missing option '--level'. See ckio calibrate --help"),
        (["plan", "--stps", 5], "Did you mean one of: '--costs', '--set', '--steps'?"),
        (["simulate"], "nothing to simulate: give FILE, which `ckio plan -o` wrote, or --steps"),
    ):
        assert said in complaint(*words, at=tmp_path)
    assert "  vorticity " in ckio("calibrate", "--help", at=tmp_path).stdout


# Plan


def test_plan_answers_in_json(place: Path) -> None:
    words = ("plan", "--steps", 21, "--platform", "listing_1.txt")
    paid = (*words, "--record", 1)
    found = answer(*paid, "--planner", "hrevolve", at=place)
    assert (found["planner"], found["steps"], found["makespan"]) == ("hrevolve", 21, 89.0)
    assert [level["name"] for level in found["levels"]] == ["level0", "level1", "level2"]
    assert set(found["levels"][0]) == {"name", "writes", "reads", "discards", "peak"}
    assert "least makespan" in found.pop("note")
    assert found.pop("lossy") == {}
    assert found.pop("needs") == {"memory": 3, "files": 3}
    assert set(found) == {"planner", "steps", "makespan", "forward_steps", "actions", "levels"}
    best = answer(*paid, at=place)
    assert best["planner"] == "auto"
    assert best["makespan"] <= found["makespan"]
    # Without costs, a platform in text has them as 1, 0, 0.
    assert answer(*words, "--planner", "hrevolve", at=place)["makespan"] == 68.0


@pytest.mark.campaign
@pytest.mark.parametrize("planner", [point.name for point in entry_points(group="ckio.planners")])
def test_every_planner_plans_simulates_and_is_drawn(place: Path, planner: str) -> None:
    options = ("--planner", planner, "--steps", 12, *NODE, *COSTS)
    plan = answer("plan", *options, "-o", "plan.txt", at=place)
    assert plan["planner"] == planner
    predicted = answer("simulate", "plan.txt", "-o", "timeline.txt", at=place)
    assert predicted["makespan"] == plan["makespan"]
    busy = predicted["busy"].values()
    if "overlap" in predicted:
        assert max(busy) <= plan["makespan"] <= sum(busy)
    else:
        assert sum(busy) == pytest.approx(plan["makespan"])
    assert ckio("show", "plan.txt", at=place).stdout
    assert ckio("show", "timeline.txt", at=place).stdout


def test_a_schedule_can_be_simulated_on_another_platform(place: Path) -> None:
    plan = ("--planner", "revolve:on=nvme", "-o", "plan.txt")
    ckio("plan", "--steps", 12, *NODE, *COSTS, *plan, at=place)
    (place / "fast.toml").write_text(TOML.replace("0.5", "0.0").replace("0.25", "0.0"))
    own = answer("simulate", "plan.txt", at=place)
    fast = answer("simulate", "plan.txt", "--platform", "fast.toml", at=place)
    assert fast["makespan"] < own["makespan"]
    assert fast["busy"]["nvme"] == 0.0


# Bad input

OPTIONS = {
    "": "--steps is missing",
    "--steps 0": "steps = 0",
    "--steps ten": "'ten' is not a valid integer",
    "--steps 5 --advance nan": "advance = nan",
    "--steps 5 --advance -1": "advance = -1",
    "--steps 5 --reverse inf": "reverse = inf",
    "--steps 5 --restart many": "'many' is not a size",
    "--steps 5 --planner hrevolv": "did you mean hrevolve",
    "--steps 5 --planner hrevolve:on=nvme": "it has no options",
    "--steps 5 --planner revolve:on=tape": "no level is named 'tape'",
    "--steps 5 --planner periodic:period=0": "'periodic:period=0': period must be at least 1",
    "--steps 5 --planner periodic:period=9": "period = 9; it must be between 1 and the chain's 5",
    "--steps 50 --planner store-all": "store-all",
    "--steps 5 --platform node.toml --model vorticty": "did you mean vorticity",
    "--steps 5 --platform node.toml --model vorticity --set gird=3": "'gird'",
    "--steps 5 --platform node.toml --model vorticity --set grid=-3": "grid",
    "--steps 5 --overlap much": "write_behind=N",
    "--steps 5 --overlap read_ahead=-1": "at least 0",
    "--steps 5 --colour": "No such option",
}


def test_bad_options_of_plan_get_one_line(place: Path) -> None:
    for words, said in OPTIONS.items():
        command = ("plan", "--platform", "listing_1.txt", *words.split(), "-o", "no.txt")
        assert said in complaint(*command, at=place)


def test_bad_platforms_get_one_line(place: Path) -> None:
    for text, said in (
        ("", "bad.txt"),
        ("3\n1 0 0\n", "line 2: 3 levels announced, 1 lines"),
        ("format = 1\n[[level]\n", "not TOML"),
        ("format = 1\n[[level]]\nname = 'ram'\ncapacty = 3\n", "level 'ram': 'capacty'"),
    ):
        (place / "bad.txt").write_text(text)
        line = complaint("plan", "--steps", 5, "--platform", "bad.txt", at=place)
        assert "bad.txt" in line
        assert said in line
    (place / "none.txt").write_text("2\n0 1 1\n0 2 2\n")
    for planner in ("hrevolve", "revolve", "recompute-all", "store-all", "periodic"):
        complaint("plan", "--planner", planner, "--steps", 5, "--platform", "none.txt", at=place)


def test_files_that_cannot_be_read_or_written_get_one_line(place: Path) -> None:
    (place / "noise.bin").write_bytes(bytes(range(128, 256)))
    (place / "taken").mkdir()
    (place / "taken" / "mine").touch()
    (place / "r").mkdir()
    (place / "r" / "manifest.json").touch()
    plan = ("plan", "--steps", 3, "--platform")
    run = ("run", "nowhere:model", *NODE, "--steps", 3, "--into")
    for words, said in (
        (["simulate", "gone.txt"], "No such file"),
        (["simulate", "noise.bin"], "not text"),
        (["simulate", "node.toml"], "node.toml"),
        ([*plan, "noise.bin"], "not text"),
        ([*plan, "gone"], "No such file"),
        ([*plan, "node.toml", "-o", "x" * 300], "File name too long; give another path"),
        ([*plan, "node.toml", "-o", "nowhere/p"], "nowhere/p cannot be written: there is no dir"),
        ([*run, "taken"], "taken: it is not empty (mine)"),
        (["simulate", "r"], "r: is a directory; name a file in it, e.g. r/schedule.txt"),
        (["inspect", "x" * 300], "File name too long; give another path"),
        (["compare", "x" * 300, "r"], "File name too long; give another path"),
        (["run", "m:m", "--archive", "x" * 300], "File name too long; give another path"),
        (["run", "x" * 300 + ".py", "--steps", 3], "File name too long"),
        (["calibrate", "--level", "a=hdf5:" + "x" * 300], "File name too long"),
    ):
        assert said in complaint(*words, at=place)
    for words in (["inspect"], ["show"], [*plan], [*run]):
        assert "it is empty; give it a name" in complaint(*words, "", at=place)


# Calibrate, run, compare

SMALL = ("--set", "grid=16")
MACHINE = """\
working_memory = 150_000
[models."vorticity grid=16"]
advance = 1e-4
record = 1e-4
reverse = 2e-4
restart = 9256
tape = 4624
adjoint = 13888
[[level]]
name = "ram"
capacity = "40 KiB"
[[level]]
name = "nvme"
capacity = "80 KiB"
backend = "directory"
options = {path = "ck"}
write = {latency = 1e-4}
[[level]]
name = "archive"
backend = "hdf5"
options = {path = "ck/a.h5", codec = "zstd"}
write = {latency = 1e-3}
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("machine")
    (place / "node.toml").write_text(MACHINE)
    return place


def run_options(planner: str, into: str) -> tuple[object, ...]:
    return ("run", "vorticity", *SMALL, "--steps", 30, "--planner", planner, *NODE, "--into", into)


def test_calibrate_measures_what_a_plan_needs(tmp_path: Path) -> None:
    level = ("--level", "archive=hdf5:ck/a.h5,codec=zstd,capacity=80KiB")
    measured = ("--model", "vorticity", *SMALL, "--repeats", 1, "-o", "node.toml")
    ckio("calibrate", *level, *measured, at=tmp_path)
    assert {path.name for path in tmp_path.rglob("*")} == {"ck", "node.toml"}
    text = (tmp_path / "node.toml").read_text()
    for word in ("read_cold", "vorticity grid=16", "latency", "record_only", "working_memory"):
        assert word in text
    plan = ("plan", "--steps", 30, "--planner", "hrevolve")
    assert answer(*plan, *NODE, at=tmp_path)["makespan"] > 0


def test_a_run_tells_its_gradient_whether_it_is_verified_and_what_it_took(machine: Path) -> None:
    found = answer(*run_options("hrevolve", "checked"), "--check-gradient", at=machine)
    reference = answer(*run_options("recompute-all", "reference"), at=machine)
    for name in ("gradient_digest", "functional"):
        assert found[name] == reference[name]
    assert (found["verified"], reference["verified"]) == (True, None)
    assert found["forward_steps"] >= 30
    assert set(found["gradient"]["zeta"]) == {"norm", "min", "max"}
    assert [level["name"] for level in found["levels"]] == ["ram", "nvme", "archive"]


def test_a_run_leaves_its_timelines_and_no_checkpoints(machine: Path) -> None:
    ckio(*run_options("hrevolve", "tidy"), at=machine)
    kept = {path.name for path in (machine / "tidy").iterdir()}
    assert kept == {
        *("manifest.json", "schedule.txt", "predicted.txt", "measured.txt"),
        *("result.json", "gradient.h5", "states.txt"),
    }
    assert not [path for path in (machine / "ck").rglob("*") if path.is_file()]
    taken = complaint(*run_options("hrevolve", "tidy"), at=machine)
    assert "--resume, or choose another" in taken
    found = answer("compare", "tidy", at=machine)
    assert {"predicted", "measured", "error", "culprit", "rows"} <= set(found)
    assert "total" in ckio("compare", "tidy", at=machine).stdout


# Demo


@pytest.mark.slow
def test_the_demo_goes_the_whole_way(tmp_path: Path) -> None:
    small = ("demo", "--steps", 40, "--grid", 16)
    found = answer(*small, at=tmp_path)
    assert found["verified"] is True
    assert found["equals_store_all"] is True
    kept = {path.name for path in (tmp_path / "ckio-demo").iterdir()}
    assert kept == {"platform.toml", "report.html", "run"}
    out = ckio(*small, at=tmp_path).stdout
    assert (tmp_path / "ckio-demo-2" / "report.html").exists()
    for word in ("advance", "level ram", "total", "forward steps", "gradient check", "store-all"):
        assert word in out
