"""`ckio show` writes each kind of picture, whole or not at all."""

import gzip
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli.commands import ckio, complaint

NODE = """
format = 1
working_memory = 7
[[level]]
name = "ram"
capacity = 20
[[level]]
name = "disk"
backend = "directory"
write = {latency = 2.5}
read = {latency = 2.0}
"""
PLAN = (
    *("--steps", 12, "--platform", "node.toml", "--advance", 1, "--record", 1, "--reverse", 2),
    *("--restart", 10, "--tape", 7, "--adjoint", 3, "--planner", "hrevolve"),
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "node.toml").write_text(NODE)
    ckio("plan", *PLAN, "-o", "plan.txt", at=tmp_path)
    return tmp_path


def test_all_kinds_at_once(place: Path) -> None:
    files = {"--svg": "s.svg", "--html": "h.html", "--perfetto": "t.json"}
    words = [word for pair in files.items() for word in pair]
    done = ckio("show", "plan.txt", *words, at=place)
    *lines, last = done.stdout.splitlines()
    assert lines == [f"written to {name}" for name in files.values()][:-1]
    assert last == "written to t.json; to look at it, choose 'Open trace file' at ui.perfetto.dev"
    root = ElementTree.parse(place / "s.svg").getroot()
    labels = [picture.get("aria-label") for picture in root.findall("{*}svg")]
    assert labels[0] == "The schedule: steps across, sweeps down"
    assert len(labels) == 4
    assert "The schedule" in (place / "h.html").read_text()
    assert json.loads((place / "t.json").read_text())["traceEvents"]
    ckio("show", "plan.txt", "--perfetto", "t.json.gz", at=place)
    packed = (place / "t.json.gz").read_bytes()
    assert gzip.decompress(packed) == (place / "t.json").read_bytes()
    assert not list(place.glob(".*"))


def test_what_cannot_be_written_is_said_before_anything_is(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "folder").mkdir()
    assert "is a directory" in complaint("show", "plan.txt", "--svg", "folder", at=place)
    assert "there is no directory" in complaint("show", "plan.txt", "--svg", "no/p.svg", at=place)


def test_the_directory_of_a_run_is_shown_by_its_timeline(tmp_path: Path) -> None:
    run = ckio("run", "burgers", "--steps", 20, "--ram", "4KiB", "--into", "run", at=tmp_path)
    assert "`ckio show run --html run.html` draws them" in run.stdout
    by_name = ckio("show", "run/measured.txt", at=tmp_path).stdout
    assert ckio("show", "run", at=tmp_path).stdout == by_name
    ckio("show", "run", "--html", "run.html", at=tmp_path)
    assert "not checked" in (tmp_path / "run.html").read_text()
    (tmp_path / "run" / "measured.txt").unlink()
    assert "20 steps" in ckio("show", "run", at=tmp_path).stdout
