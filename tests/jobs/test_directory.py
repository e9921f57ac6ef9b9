"""A run's directory is new or that of the same run, whole, one process's, and never lost."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from ckio.chain import Chain
from ckio.errors import BadInput, LevelInUse
from ckio.jobs.directory import Manifest, RunDirectory
from ckio.platforms import Level, Platform
from ckio.schedule import Schedule
from ckio.texts import dumps

CHAIN = Chain(steps=3, advance=0.1, record=0.3, reverse=1 / 3, restart=8, tape=16, adjoint=24)
MANIFEST = Manifest(
    run="cafe",
    ckio="1",
    model="m",
    settings={"grid": 4, "wind": 0.1, "name": "a b", "on": True},
    control="dead",
    planner="periodic",
    options={"period": 2},
    chain=CHAIN,
    platform="beef",
    adjoints="nvme",
    every=1 / 3,
    keep=False,
)


def test_a_new_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "a" / "b")
    directory.begin(replace(MANIFEST, run=directory.id))
    manifest = json.loads((tmp_path / "a" / "b" / "manifest.json").read_text())
    assert manifest["model"] == "m"
    assert manifest["run"] == directory.id


def test_two_runs_have_different_ids(tmp_path: Path) -> None:
    assert RunDirectory(tmp_path / "a").id != RunDirectory(tmp_path / "b").id


def test_a_directory_that_holds_a_run_is_refused(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.begin(MANIFEST)
    directory.release()
    with pytest.raises(BadInput, match="already holds a run"):
        RunDirectory(tmp_path)


def test_a_directory_that_holds_anything_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("do not touch")
    with pytest.raises(BadInput, match=r"is not empty \(thesis.tex\)"):
        RunDirectory(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot hold a run"):
        RunDirectory(tmp_path / "file")


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "run")
    (tmp_path / "run" / "result.json").mkdir()
    with pytest.raises(BadInput, match="cannot be written"):
        directory.write("result.json", "{}")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["result.json"]


def test_a_file_can_be_bytes(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "run")
    directory.write("picture.png", b"\x89PNG\r\n")
    directory.write("result.json", "{}\n\u00b5")
    assert (tmp_path / "run" / "picture.png").read_bytes() == b"\x89PNG\r\n"
    assert (tmp_path / "run" / "result.json").read_bytes() == b"{}\n\xc2\xb5"
    (tmp_path / "run" / "other.png").mkdir()
    with pytest.raises(BadInput, match=r"other.png: cannot be written"):
        directory.write("other.png", b"\x89PNG")
    assert not list((tmp_path / "run").glob(".*"))


def test_what_came_to_nothing_is_cleared_and_what_was_there_stays(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "a" / "b"):
        directory = RunDirectory(path)
        directory.begin(MANIFEST)
        (path / "levels").mkdir()
        directory.clear()
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_loop_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(BadInput, match="cannot hold a run"):
        RunDirectory(tmp_path / "loop")


# Taken up again


@pytest.mark.parametrize(
    "chain", [CHAIN, Chain(**{**vars(CHAIN), "advance": [0.1, 0.2, 0.4], "restart": [1, 2, 3, 4]})]
)
def test_a_manifest_comes_back_to_the_last_bit(tmp_path: Path, chain: Chain) -> None:
    directory = RunDirectory(tmp_path)
    directory.begin(replace(MANIFEST, run=directory.id, chain=chain, control=None, adjoints=None))
    directory.release()
    again = RunDirectory(tmp_path, resume=True)
    assert again.manifest == directory.manifest
    assert again.id == directory.id


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"format": 1', '"format": 9', "has format 9; this ckio reads format 1"),
        ('"chain": {', '"chains": {', "is damaged: "),
        ('"steps": 3', '"steps": -3', "is damaged: "),
        ('"steps": 3', '"stapes": 3', "is damaged: "),
        ("{", "[", "is damaged: it does not say which run this is"),
    ],
)
def test_what_is_no_manifest_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    (tmp_path / "manifest.json").write_text(MANIFEST.dumps().replace(old, new, 1))
    with pytest.raises(BadInput, match=said):
        RunDirectory(tmp_path, resume=True)


def test_what_a_process_left_that_was_killed_before_its_manifest_is_removed(tmp_path: Path) -> None:
    for name in ("schedule.txt", ".predicted.txt.part", ".manifest.json.part"):
        (tmp_path / name).write_text("")
    with pytest.raises(BadInput, match="is not empty"):
        RunDirectory(tmp_path)
    directory = RunDirectory(tmp_path, resume=True)
    assert directory.manifest is None
    assert list(tmp_path.iterdir()) == []


def test_nothing_that_is_not_a_runs_is_removed(tmp_path: Path) -> None:
    (tmp_path / "schedule-of-flights.txt").write_text("")
    with pytest.raises(BadInput, match="is not empty"):
        RunDirectory(tmp_path, resume=True)
    assert (tmp_path / "schedule-of-flights.txt").exists()


def test_one_process_has_it_at_a_time(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.begin(MANIFEST)
    for resume in (True, False):
        with pytest.raises(LevelInUse, match="another process works on this run"):
            RunDirectory(tmp_path, resume=resume)
    directory.release()
    directory.release()
    with pytest.raises(BadInput, match="already holds a run"):  # and lets go of it
        RunDirectory(tmp_path)
    RunDirectory(tmp_path, resume=True).release()


def test_a_dead_process_holds_nothing(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        RunDirectory(tmp_path).begin(MANIFEST)
        os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    begun = replace(MANIFEST, here=str(Path.cwd()))
    assert RunDirectory(tmp_path, resume=True).manifest == begun


def test_every_schedule_is_kept_and_the_last_one_has_the_platform(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    platform = Platform((Level(name="nvme", capacity=7),))
    for text in ("first", "second", dumps(Schedule(CHAIN, []), platform)):
        directory.write_plan(text, "predicted")
    assert (tmp_path / "schedule-1.txt").read_text() == "first"
    assert (tmp_path / "schedule-2.txt").read_text() == "second"
    assert not (tmp_path / "schedule-3.txt").exists()
    assert directory.platform() == platform
