"""A run's directory is new, whole, and never written over."""

import json
from pathlib import Path

import pytest

from ckio.errors import BadInput
from ckio.rundir import RunDirectory


def test_a_new_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "a" / "b")
    directory.write_manifest({"model": "m"})
    manifest = json.loads((tmp_path / "a" / "b" / "manifest.json").read_text())
    assert manifest["model"] == "m"
    assert manifest["run"] == directory.id


def test_two_runs_have_different_ids(tmp_path: Path) -> None:
    assert RunDirectory(tmp_path / "a").id != RunDirectory(tmp_path / "b").id


def test_a_directory_that_holds_a_run_is_refused(tmp_path: Path) -> None:
    RunDirectory(tmp_path).write_manifest({})
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


def test_what_came_to_nothing_is_cleared_and_what_was_there_stays(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "a" / "b"):
        directory = RunDirectory(path)
        directory.write_manifest({})
        (path / "levels").mkdir()
        directory.clear()
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_loop_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(BadInput, match="cannot hold a run"):
        RunDirectory(tmp_path / "loop")
