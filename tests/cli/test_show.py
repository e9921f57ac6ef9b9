"""`ckio show` writes each kind of picture, whole or not at all."""

import gzip
import json
import os
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli.commands import ckio, complaint
from click.testing import CliRunner

from ckio.cli.show import command as show
from ckio.errors import BadInput

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
    pytest.importorskip("cairosvg")
    files = {"--svg": "s.svg", "--png": "p.png", "--html": "h.html", "--perfetto": "t.json"}
    words = [word for pair in files.items() for word in pair]
    done = ckio("show", "plan.txt", *words, at=place)
    *lines, last = done.stdout.splitlines()
    assert lines == [f"written to {name}" for name in files.values()][:-1]
    assert last == "written to t.json; to look at it, choose 'Open trace file' at ui.perfetto.dev"
    root = ElementTree.parse(place / "s.svg").getroot()
    labels = [picture.get("aria-label") for picture in root.findall("{*}svg")]
    assert labels[0] == "The schedule: steps across, sweeps down"
    assert len(labels) == 4
    assert (place / "p.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert "The schedule" in (place / "h.html").read_text()
    assert json.loads((place / "t.json").read_text())["traceEvents"]
    ckio("show", "plan.txt", "--perfetto", "t.json.gz", at=place)
    packed = (place / "t.json.gz").read_bytes()
    assert gzip.decompress(packed) == (place / "t.json").read_bytes()
    assert not list(place.glob(".*"))


@pytest.mark.slow
def test_a_long_trace_is_merged_unless_all_events_are_asked_for(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ckio.report.trace.MOST_EVENTS", 500)
    many = ("--steps", 300, *PLAN[2:])
    ckio("plan", *many, "-o", "long.txt", at=place)
    ckio("show", "long.txt", "--perfetto", "few.json", at=place)
    ckio("show", "long.txt", "--perfetto", "all.json", "--all-events", at=place)
    few, whole = (
        json.loads((place / name).read_text())["traceEvents"] for name in ("few.json", "all.json")
    )
    assert len(few) < 520 < len(whole)
    assert (place / "few.json").stat().st_size < (place / "all.json").stat().st_size
    seconds = [
        sum(round(event["dur"] * 1000) for event in events if event["ph"] == "X")
        for events in (few, whole)
    ]
    assert seconds[0] == seconds[1]
    assert "--perfetto OUT" in complaint("show", "plan.txt", "--all-events", at=place)


def test_what_cannot_be_written_is_said_before_anything_is(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "folder").mkdir()
    assert "is a directory" in complaint("show", "plan.txt", "--png", "folder", at=place)
    assert "there is no directory" in complaint("show", "plan.txt", "--png", "no/p.png", at=place)
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    monkeypatch.chdir(place)
    with pytest.raises(BadInput, match=r"pip install 'ckio\[png\]'"):
        CliRunner().invoke(show, ["plan.txt", "--png", "p.png"], catch_exceptions=False)
    assert not (place / "p.png").exists()


@pytest.mark.slow
def test_an_old_picture_is_replaced_and_a_link_is_followed(place: Path) -> None:
    pytest.importorskip("cairosvg")
    (place / "real.png").write_text("old")
    (place / "link.png").symlink_to("real.png")
    ckio("show", "plan.txt", "--png", "link.png", at=place)
    assert (place / "link.png").is_symlink()
    assert (place / "real.png").read_bytes().startswith(b"\x89PNG")
    ckio("show", "plan.txt", "--png", os.devnull, at=place)
