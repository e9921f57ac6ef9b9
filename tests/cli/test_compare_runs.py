"""`ckio compare A B` lays two runs next to each other, and trusts neither directory."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from ckio.jobs.directory import sealed, unsealed

from .commands import answer, ckio, complaint

PLATFORM = 'format = 1\n[[level]]\nname = "ram"\ncapacity = "4 KiB"\n'
MODEL = ("vorticity", "--set", "grid=8", "--steps", 30, "--platform", "node.toml")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where "a" stores states, and "b" tapes, too."""
    at = tmp_path_factory.mktemp("runs")
    (at / "node.toml").write_text(PLATFORM)
    for name, planner in (("a", "revolve"), ("b", "mixed")):
        ckio("run", *MODEL, "--planner", planner, "--into", name, at=at)
    return at


@pytest.fixture
def copied(runs: Path, tmp_path: Path) -> Path:
    for name in "ab":
        shutil.copytree(runs / name, tmp_path / name)
    return tmp_path


def test_two_runs_are_laid_next_to_each_other(runs: Path) -> None:
    done = ckio("compare", "a", "b", "--html", "ab.html", at=runs)
    first, *lines = done.stdout.splitlines()
    assert " took " in first
    rows = {line.split("  ")[0]: line.split()[1:] for line in lines}
    assert rows["planner"] == ["revolve", "mixed", "differs"]
    assert rows["host"][0] == rows["host"][1] == os.uname().nodename
    assert len(rows["numpy"]) == 2
    assert done.stdout.endswith("written to ab.html\n")
    page = (runs / "ab.html").read_text()
    verdict = page.split('<p class="verdict">')[1].split("</p>")[0]
    assert "The gradients are equal bit for bit." in verdict
    assert page.count('class="picture"') == 8


def test_scripts_get_numbers(runs: Path) -> None:
    figures = answer("compare", "a", "b", at=runs)
    first, second = figures["runs"]
    assert [run["facts"]["planner"] for run in (first, second)] == ["revolve", "mixed"]
    assert figures["difference"] == pytest.approx(second["measured"] - first["measured"])
    steps = [
        sum(run["classes"].get(name, {"steps": 0})["steps"] for name in ("advance", "record"))
        for run in (first, second)
    ]
    assert steps[0] > steps[1]
    assert figures["same_gradient"] is True
    swapped = answer("compare", "b", "a", at=runs)
    assert swapped["difference"] == pytest.approx(-figures["difference"])


def test_runs_whose_directories_have_one_name_are_told_apart(runs: Path) -> None:
    (runs / "other").mkdir(exist_ok=True)
    shutil.copytree(runs / "b", runs / "other" / "a", dirs_exist_ok=True)
    first, second = answer("compare", "a", "other/a", at=runs)["runs"]
    assert [run["name"] for run in (first, second)] == ["a", "other/a"]


def test_what_is_no_run_is_refused_with_a_remedy(copied: Path) -> None:
    (copied / "empty").mkdir()
    for pair in (("a", "empty"), ("empty", "a")):
        line = complaint("compare", *pair, at=copied)
        assert "empty: not the directory of a run, because it has no manifest.json" in line
        assert "give the directory that `ckio run --into` wrote" in line
    line = complaint("compare", "a", "b/measured.txt", at=copied)
    assert "b/measured.txt: not the directory of a run" in line
    assert "not the directory of a run" in complaint("compare", "empty", at=copied)
    assert "--html is for two runs" in complaint("compare", "a", "--html", "x", at=copied)
    (copied / "b" / "result.json").unlink()
    line = complaint("compare", "a", "b", at=copied)
    assert "b: its run has not ended, because there is no result.json yet" in line
    (copied / "a" / "measured.txt").unlink()
    assert "measured.txt" in complaint("compare", "a", at=copied)


def change(path: Path, **entries: Any) -> None:
    """Write other entries, with a checksum that fits."""
    figures = json.loads(unsealed(path.read_text(), path))
    path.write_text(sealed(json.dumps(figures | entries)))


@pytest.mark.parametrize("name", ["manifest.json", "result.json", "measured.txt", "predicted.txt"])
def test_damaged_files_are_refused(name: str, copied: Path) -> None:
    file = copied / "b" / name
    file.write_text(file.read_text()[:-80])
    assert name in complaint("compare", "a", "b", at=copied)


def test_what_a_run_says_of_itself_is_escaped_in_the_page(copied: Path) -> None:
    nasty = '<script>alert("\x1b[2J&")</script>'
    file = copied / "b" / "result.json"
    origin = json.loads(unsealed(file.read_text(), file))["origin"] | {"host": nasty}
    change(file, planner=nasty, note=nasty, origin=origin)
    ckio("compare", "a", "b", "--html", "ab.html", at=copied)
    assert nasty not in (copied / "ab.html").read_text()
    change(file, planner="half a character: \ud800")
    ckio("compare", "a", "b", "--html", "ab.html", at=copied)
    assert "half a character: \\ud800" in (copied / "ab.html").read_text()


def test_the_help_says_what_tells_the_forms_apart() -> None:
    text = " ".join(ckio("compare", "--help", at=Path()).stdout.split())
    assert "Two directories A and B of `ckio run` are compared as runs" in text
    assert "One directory is compared by class of action" in text
