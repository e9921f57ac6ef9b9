"""The commands as a person meets them: answers, one line for an error, and exit statuses."""

import json
import subprocess
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
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


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "listing_1.txt").write_text(LISTING_1)
    (tmp_path / "node.toml").write_text(TOML)
    return tmp_path


# Help


def test_it_says_what_it_can_do(tmp_path: Path) -> None:
    out = ckio("--help", at=tmp_path).stdout
    for command in ("demo", "calibrate", "plan", "simulate", "run", "compare", "show"):
        assert f"  {command} " in out
    assert ckio(at=tmp_path).stdout == out
    assert ckio("--version", at=tmp_path).stdout.startswith("ckio 0.")
    assert "did you mean plan" in complaint("plann", at=tmp_path)


def test_what_is_not_given_or_not_there_is_told_with_where_to_look(tmp_path: Path) -> None:
    line = complaint("calibrate", at=tmp_path)
    assert line == "ckio: calibrate: missing option '--level'; see ckio calibrate --help\n"
    line = complaint("plan", "--stps", 5, at=tmp_path)
    assert line == (
        "ckio: plan: no such option '--stps'; did you mean one of: '--costs', '--set', '--steps'?\n"
    )
    assert "there is nothing to simulate: give FILE" in complaint("simulate", at=tmp_path)
    assert "  vorticity " in ckio("calibrate", "--help", at=tmp_path).stdout


def test_the_installed_command_is_the_same(tmp_path: Path) -> None:
    done = subprocess.run([CKIO, "--help"], capture_output=True, text=True, check=True)
    assert done.stdout == ckio("--help", at=tmp_path).stdout


def test_python_runs_it_too(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ckio", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == ckio("--version", at=tmp_path).stdout


@pytest.mark.parametrize(
    "command", ["demo", "calibrate", "plan", "simulate", "run", "compare", "show"]
)
def test_every_command_explains_itself(tmp_path: Path, command: str) -> None:
    assert f"Usage: ckio {command}" in ckio(command, "--help", at=tmp_path).stdout


# Plan


def test_plan_answers_in_json(place: Path) -> None:
    words = ("plan", "--steps", 21, "--platform", "listing_1.txt", "--record", 1)
    found = answer(*words, "--planner", "hrevolve", at=place)
    assert found.pop("plan_seconds") > 0
    assert found["planner"] == "hrevolve"
    assert (found["steps"], found["makespan"]) == (21, 89.0)
    assert [level["name"] for level in found["levels"]] == ["level0", "level1", "level2"]
    assert set(found["levels"][0]) == {"name", "writes", "reads", "discards", "peak"}
    assert found.pop("note").startswith("the least makespan")
    assert found.pop("lossy") == {}
    assert set(found) == {"planner", "steps", "makespan", "forward_steps", "actions", "levels"}
    best = answer(*words, at=place)
    assert best["planner"] == "auto"
    assert best["makespan"] <= found["makespan"]
    assert "planners that apply" in best["note"]


def test_costs_on_a_text_platform_are_1_0_0(place: Path) -> None:
    found = answer(
        "plan", "--planner", "hrevolve", "--steps", 21, "--platform", "listing_1.txt", at=place
    )
    assert found["makespan"] == 68.0


@pytest.mark.campaign
@pytest.mark.parametrize("planner", [point.name for point in entry_points(group="ckio.planners")])
def test_every_planner_plans_simulates_and_is_drawn(place: Path, planner: str) -> None:
    options = ("--planner", planner, "--steps", 12, "--platform", "node.toml", *COSTS)
    plan = answer("plan", *options, "-o", "plan.txt", at=place)
    assert plan["planner"] == planner
    predicted = answer("simulate", "plan.txt", "-o", "timeline.txt", at=place)
    assert predicted["makespan"] == plan["makespan"]
    again = answer("simulate", *options, at=place)  # which says more, where the plan overlaps
    assert predicted.items() <= again.items()
    busy = predicted["busy"].values()
    if "overlap" in predicted:
        assert max(busy) <= plan["makespan"] <= sum(busy)
    else:
        assert sum(busy) == pytest.approx(plan["makespan"])
    assert ckio("show", "plan.txt", at=place).stdout
    assert ckio("show", "timeline.txt", at=place).stdout


def test_one_level_planners_can_be_told_the_level(place: Path) -> None:
    options = ("--planner", "revolve", "--steps", 30, "--platform", "node.toml", *COSTS)
    near, far = (answer("plan", *options, *on, at=place) for on in ((), ("--on", "nvme")))
    assert [level["writes"] > 0 for level in near["levels"]] == [True, False]
    assert [level["writes"] > 0 for level in far["levels"]] == [False, True]


def test_periodic_takes_a_period(place: Path) -> None:
    options = ("--planner", "periodic", "--period", 5, "--steps", 20, "--platform", "node.toml")
    found = answer("plan", *options, *COSTS, "--on", "nvme", at=place)
    assert found["levels"][1]["peak"] >= 3


def test_a_plan_can_be_written_in_the_papers_notation(place: Path) -> None:
    ckio(
        *("plan", "--planner", "hrevolve", "--steps", 21, "--platform", "listing_1.txt"),
        *("--record", 1),
        *("-o", "paper.txt", "--format", "paper"),
        at=place,
    )
    assert "W^2_0" in (place / "paper.txt").read_text()


def test_a_schedule_can_be_simulated_on_another_platform(place: Path) -> None:
    ckio(
        *("plan", "--steps", 12, "--platform", "node.toml", *COSTS, "--on", "nvme"),
        *("--planner", "revolve", "-o", "plan.txt"),
        at=place,
    )
    (place / "fast.toml").write_text(TOML.replace("0.5", "0.0").replace("0.25", "0.0"))
    own = answer("simulate", "plan.txt", at=place)
    fast = answer("simulate", "plan.txt", "--platform", "fast.toml", at=place)
    assert fast["makespan"] < own["makespan"]
    assert fast["busy"]["nvme"] == 0.0


# Bad input


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--steps", "0"], "steps = 0"),
        (["--steps", "-3"], "steps = -3"),
        (["--steps", "ten"], "'ten' is not a valid integer"),
        (["--steps", "5", "--advance", "nan"], "advance = nan"),
        (["--steps", "5", "--advance", "-1"], "advance = -1"),
        (["--steps", "5", "--reverse", "inf"], "reverse = inf"),
        (["--steps", "5", "--restart", "many"], "'many' is not a size"),
        (["--steps", "5", "--planner", "hrevolv"], "did you mean hrevolve"),
        (["--steps", "5", "--planner", "hrevolve", "--on", "nvme"], "has no option --on"),
        (["--steps", "5", "--planner", "revolve", "--on", "tape"], "no level is named 'tape'"),
        (["--steps", "5", "--planner", "periodic", "--period", "0"], "period = 0"),
        (["--steps", "50", "--planner", "store-all"], "store-all"),
        (["--steps", "5", "--model", "vortex"], "did you mean vorticity"),
        ([], "--steps is missing"),
        (["--steps", "5", "--colour"], "no such option"),
    ],
)
def test_bad_options_of_plan_get_one_line(place: Path, words: list[str], said: str) -> None:
    platform = "node.toml" if "--model" in words else "listing_1.txt"
    assert said in complaint("plan", "--platform", platform, *words, "-o", "no.txt", at=place)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no levels|empty|no model costs"),
        ("3\n1 0 0\n", "line 2: 3 levels announced, 1 lines"),
        ("1\n1 0\n", "line 2: '1 0' is not `slots write read`"),
        ("1\n1 nan 0\n", "line 2"),
        ("format = 1\n[[level]\n", "not TOML"),
        ("format = 9\n", "format = 9"),
        ("format = 1\n[[level]]\nname = 'ram'\ncapacty = 3\n", "level 'ram': 'capacty'"),
        ("format = 1\n[[level]]\nname = 'ram'\nwrite = -1.0\n", "level 'ram', write"),
    ],
)
def test_bad_platforms_get_one_line(place: Path, text: str, said: str) -> None:
    (place / "bad.txt").write_text(text)
    line = complaint("plan", "--steps", 5, "--platform", "bad.txt", at=place)
    assert "bad.txt" in line
    assert any(word in line for word in said.split("|"))


def test_no_level_that_can_serve_gets_one_line(place: Path) -> None:
    (place / "none.txt").write_text("2\n0 1 1\n0 2 2\n")
    for planner in ("hrevolve", "revolve", "recompute-all", "store-all", "periodic"):
        complaint("plan", "--planner", planner, "--steps", 5, "--platform", "none.txt", at=place)


def test_files_that_are_not_there_or_not_text_get_one_line(place: Path) -> None:
    (place / "noise.bin").write_bytes(bytes(range(128, 256)))
    assert "No such file" in complaint("simulate", "gone.txt", at=place)
    assert "not text" in complaint("simulate", "noise.bin", at=place)
    assert "not text" in complaint("plan", "--steps", 3, "--platform", "noise.bin", at=place)
    assert "node.toml" in complaint("simulate", "node.toml", at=place)
    assert "No such file" in complaint("plan", "--steps", 3, "--platform", "gone", at=place)


def test_an_empty_name_is_not_the_current_directory(place: Path) -> None:
    for words in (["inspect"], ["clean", "--yes"], ["show"], ["plan", "--steps", 3, "--platform"],
                  ["run", "vorticity", "--into"]):  # fmt: skip
        assert "it is empty; give it a name" in complaint(*words, "", at=place)


def test_a_directory_that_is_taken_is_refused_before_anything_is_measured(place: Path) -> None:
    (place / "taken").mkdir()
    (place / "taken" / "mine").touch()
    words = "run", "nowhere:model", "--platform", "node.toml", "--steps", 3, "--into", "taken"
    assert "taken: it is not empty (mine); choose another" in complaint(*words, at=place)


def test_a_run_in_place_of_its_schedule_is_told_apart(place: Path) -> None:
    (place / "r").mkdir()
    (place / "r" / "manifest.json").touch()
    assert "r: is a directory; name a file in it, e.g. r/schedule.txt" in complaint(
        "show", "r", at=place
    )


def test_a_name_that_no_file_can_have_gets_one_line(place: Path) -> None:
    line = complaint("plan", "--steps", 3, "--platform", "p.toml", "-o", "x" * 300, at=place)
    assert "cannot be written: File name too long" in line


def test_a_result_that_cannot_be_written_gets_one_line(place: Path) -> None:
    line = complaint(
        *("plan", "--steps", 5, "--platform", "listing_1.txt", "-o", "nowhere/plan.txt"), at=place
    )
    assert "nowhere/plan.txt cannot be written: there is no directory" in line


# Calibrate, run, compare

LEVELS = (
    *("--level", "ram=ram,capacity=40KiB"),
    *("--level", "nvme=directory:ck,capacity=80KiB"),
    *("--level", "archive=hdf5:ck/a.h5,codec=zstd"),
)
SMALL = ("--set", "grid=16")


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("calibrated")
    ckio(
        *("calibrate", *LEVELS, "--model", "vorticity", *SMALL, "--repeats", 2),
        *("-o", "node.toml"),
        at=place,
    )
    assert sorted(path.name for path in place.iterdir()) == ["node.toml"]
    return place


def run_options(planner: str, into: str) -> tuple[object, ...]:
    machine = ("--planner", planner, "--platform", "node.toml")
    return ("run", "vorticity", *SMALL, "--steps", 30, *machine, "--into", into)


def test_calibrate_measures_what_a_plan_needs(calibrated: Path) -> None:
    found = answer("plan", "--steps", 30, "--platform", "node.toml", at=calibrated)
    assert found["makespan"] > 0
    text = (calibrated / "node.toml").read_text()
    for word in ("read_cold", "vorticity grid=16", "latency", "per_byte", "working_memory"):
        assert word in text


@pytest.mark.campaign
@pytest.mark.parametrize("planner", ["store-all", "periodic", "revolve", "hrevolve"])
def test_every_planner_runs_to_the_same_gradient(calibrated: Path, planner: str) -> None:
    found = answer(*run_options(planner, f"run-{planner}"), "--check-gradient", at=calibrated)
    reference = answer(*run_options("recompute-all", f"ref-{planner}"), at=calibrated)
    assert found["gradient_digest"] == reference["gradient_digest"]
    assert found["functional"] == reference["functional"]
    assert found["verified"] is True
    assert reference["verified"] is None
    assert found["forward_steps"] >= found["forward_steps_minimum"] >= 30
    assert set(found["gradient"]["zeta"]) == {"norm", "min", "max"}
    assert [level["name"] for level in found["levels"]] == ["ram", "nvme", "archive"]


def test_a_run_leaves_its_timelines_and_no_checkpoints(calibrated: Path) -> None:
    ckio(*run_options("hrevolve", "tidy"), at=calibrated)
    kept = {path.name for path in (calibrated / "tidy").iterdir()}
    assert kept == {
        *("manifest.json", "schedule.txt", "predicted.txt", "measured.txt"),
        *("result.json", "gradient.h5"),
    }
    assert not [path for path in (calibrated / "ck").rglob("*") if path.is_file()]
    timelines = ("tidy/predicted.txt", "tidy/measured.txt")
    found = answer("compare", *timelines, at=calibrated)
    assert {"predicted", "measured", "error", "culprit", "rows"} <= set(found)
    assert "total" in ckio("compare", *timelines, at=calibrated).stdout


def test_kept_checkpoints_stay(calibrated: Path) -> None:
    ckio(*run_options("hrevolve", "kept"), "--keep", at=calibrated)
    run_id = json.loads((calibrated / "kept" / "manifest.json").read_text())["run"]
    kept = list((calibrated / "ck").rglob(f"*{run_id}*"))
    assert kept


def test_a_directory_that_holds_a_run_is_refused(calibrated: Path) -> None:
    ckio(*run_options("hrevolve", "taken"), at=calibrated)
    assert "go on with that by --resume, or choose another" in complaint(
        *run_options("hrevolve", "taken"), at=calibrated
    )


def test_bad_models_and_options_of_run_get_one_line(calibrated: Path) -> None:
    rest = ("--steps", 5, "--platform", "node.toml", "--into", "no")
    assert "did you mean vorticity" in complaint("run", "vortex", *rest, at=calibrated)
    line = complaint("run", "vorticity", "--set", "gird=3", *rest, at=calibrated)
    assert "'gird'" in line
    line = complaint("run", "vorticity", "--set", "grid=-3", *rest, at=calibrated)
    assert "grid" in line


@pytest.mark.slow
def test_timelines_that_do_not_belong_together_are_refused(calibrated: Path) -> None:
    for steps in (5, 6):
        plan = ("--steps", steps, "--platform", "node.toml", "-o", f"t{steps}.txt")
        ckio("simulate", *plan, at=calibrated)
    line = complaint("compare", "t5.txt", "t6.txt", at=calibrated)
    assert "different chains" in line


# Demo


@pytest.mark.slow
def test_the_demo_goes_the_whole_way(tmp_path: Path) -> None:
    small = ("demo", "--steps", 40, "--grid", 16)
    found = answer(*small, at=tmp_path)
    assert found["verified"] is True
    assert found["equals_store_all"] is True
    kept = {path.name for path in (tmp_path / "ckio-demo").iterdir()}
    drawn = {"timeline.png"} if find_spec("cairosvg") else set()
    assert kept == {"platform.toml", "report.html", "run"} | drawn
    assert found["picture"] == ("ckio-demo/timeline.png" if drawn else None)
    out = ckio(*small, at=tmp_path).stdout
    assert ("ckio-demo-2/timeline.png: " in out) == bool(drawn)
    for name in drawn:
        assert (tmp_path / "ckio-demo" / name).read_bytes().startswith(b"\x89PNG\r\n")
    assert (tmp_path / "ckio-demo-2" / "report.html").exists()
    for word in ("advance", "level nvme", "total", "forward steps", "gradient check", "store-all"):
        assert word in out


def test_the_demo_does_without_cairosvg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    found = answer("demo", "--steps", 9, "--grid", 16, at=tmp_path)
    assert found["verified"] is True
    assert found["picture"] is None
    kept = {path.name for path in (tmp_path / "ckio-demo").iterdir()}
    assert kept == {"platform.toml", "report.html", "run"}
