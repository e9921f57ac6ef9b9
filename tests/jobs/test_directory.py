"""A run's directory is new or that of the same run, whole, one process's, and never lost."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jobs.begun import CHAIN, MANIFEST

from ckio.errors import BadInput, LevelInUse
from ckio.jobs.directory import RunDirectory, manifest_in, sealed, unsealed
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule
from ckio.schedule.text import dumps


def test_a_new_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "a" / "b")
    directory.begin(replace(MANIFEST, run=directory.id))
    manifest = json.loads((tmp_path / "a" / "b" / "manifest.json").read_text())
    assert manifest["request"]["model"] == "m"
    assert manifest["run"] == directory.id != RunDirectory(tmp_path / "a" / "c").id


def test_a_directory_that_holds_anything_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("do not touch")
    with pytest.raises(BadInput, match=r"is not empty \(thesis.tex\)"):
        RunDirectory(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("file", "loop"):
        with pytest.raises(BadInput, match="cannot hold a run"):
            RunDirectory(tmp_path / name)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "run")
    directory.write("picture.png", b"\x89PNG\r\n")
    directory.write("notes.txt", "\u00b5")
    assert (tmp_path / "run" / "picture.png").read_bytes() == b"\x89PNG\r\n"
    assert (tmp_path / "run" / "notes.txt").read_bytes().startswith(b"\xc2\xb5\n## xxh3_128 ")
    assert directory.read("notes.txt") == "\u00b5\n"
    for name, content in (("other.png", b"\x89PNG"), ("result.json", "{}")):
        (tmp_path / "run" / name).mkdir()
        with pytest.raises(BadInput, match=f"{name}: cannot be written"):
            directory.write(name, content)
    assert not list((tmp_path / "run").glob(".*"))


def test_what_came_to_nothing_is_cleared_and_what_was_there_stays(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "a" / "b"):
        directory = RunDirectory(path)
        directory.begin(MANIFEST)
        directory.write_plan("first", "predicted")
        directory.write_plan("second", "predicted")
        directory.clear()
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_directory_may_be_cleared_by_halves(tmp_path: Path, monkeypatch: Any) -> None:
    """As where a run is interrupted after its gradient, and killed while it is seen to."""
    unlink, removed = Path.unlink, []
    for most in range(7):
        directory = RunDirectory(tmp_path, resume=True)
        directory.write("platform.toml", "")
        directory.write_plan("plan", "predicted")
        directory.write("control.h5", b"")
        directory.begin(MANIFEST)
        directory.write("measured.txt", "times")
        (tmp_path / "gradient.h5").write_bytes(b"")

        def at_most(path: Path, missing_ok: bool = False, most: int = most) -> None:
            if len(removed) < most:
                removed.append(path.name)
                unlink(path, missing_ok=missing_ok)

        removed.clear()
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", at_most)
            directory.clear()
        directory.release()
        again = RunDirectory(tmp_path, resume=True)
        assert (again.manifest is None) == ("manifest.json" in removed)
        again.release()
        for path in tmp_path.iterdir():
            path.unlink()


def test_what_a_run_did_not_write_stays_where_its_directory_is_cleared(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "run")
    directory.begin(MANIFEST)
    (tmp_path / "run" / "notes").mkdir()
    (tmp_path / "run" / "notes" / "mine.txt").write_text("mine")
    (tmp_path / "run" / "measured.txt").write_text("somebody else's")
    directory.clear()
    left = {str(path.relative_to(tmp_path / "run")) for path in (tmp_path / "run").rglob("*")}
    assert left == {"notes", "notes/mine.txt", "measured.txt"}


# Taken up again


@pytest.mark.parametrize(
    "chain", [CHAIN, replace(CHAIN, advance=[0.1, 0.2, 0.4], restart=[1, 2, 3, 4])]
)
def test_a_manifest_comes_back_to_the_last_bit(tmp_path: Path, chain: Chain) -> None:
    directory = RunDirectory(tmp_path)
    directory.begin(replace(MANIFEST, run=directory.id, chain=chain, control=None, adjoints=None))
    directory.release()
    again = RunDirectory(tmp_path, resume=True)
    assert again.manifest == directory.manifest
    assert again.id == directory.id


def test_a_manifest_of_another_version_is_refused(tmp_path: Path) -> None:
    whole = json.loads(MANIFEST.dumps())
    for change, said in (
        ({"format": 9}, "has format 9; this ckio reads format 4"),
        ({"format": 1}, "has format 1; this ckio reads format 4"),
        ({"chain": {"steps": 3}}, "is damaged: "),
        ({"request": {"model": "m", "x": 1}}, "is damaged: "),
    ):
        (tmp_path / "manifest.json").write_text(sealed(json.dumps(whole | change)))
        with pytest.raises(BadInput, match=said):
            RunDirectory(tmp_path, resume=True)


def test_a_bit_that_is_flipped_anywhere_in_a_manifest_is_found(tmp_path: Path) -> None:
    whole = bytearray(sealed(MANIFEST.dumps()).encode())
    for place in range(len(whole) - 1):  # the last is the end of its line
        flipped = bytearray(whole)
        flipped[place] ^= 1
        (tmp_path / "manifest.json").write_bytes(flipped)
        with pytest.raises(BadInput, match=r"is damaged|has format|cannot be read"):
            manifest_in(tmp_path)
    (tmp_path / "manifest.json").write_bytes(whole)
    assert manifest_in(tmp_path) == MANIFEST


@pytest.mark.parametrize("text", ['{"a": 1}', "", "# a schedule\n", "no end of a line"])
def test_a_text_comes_back_from_under_its_checksum(text: str) -> None:
    assert unsealed(sealed(text), "it").rstrip() == text.rstrip()
    for wrong in (text, sealed(text)[:-40], sealed(text) + "more"):
        with pytest.raises(BadInput, match="it is damaged"):
            unsealed(wrong, "it")


def test_what_a_process_left_that_was_killed_before_its_manifest_is_removed(tmp_path: Path) -> None:
    for name in (".predicted.txt.part", ".manifest.json.part", "control.h5"):
        (tmp_path / name).write_text("")
    for name in ("platform.toml", "schedule.txt"):
        (tmp_path / name).write_text(sealed(""))
    with pytest.raises(BadInput, match="is not empty"):
        RunDirectory(tmp_path)
    directory = RunDirectory(tmp_path, resume=True)
    assert directory.manifest is None
    assert list(tmp_path.iterdir()) == []
    directory.release()


@pytest.mark.parametrize(
    "name", ["schedule-of-flights.txt", "platform.toml", "control.h5", "gradient.h5"]
)
def test_what_a_user_put_into_a_new_directory_stays(tmp_path: Path, name: str) -> None:
    """Also what ckio has written there: nothing is removed where the run is refused."""
    (tmp_path / name).write_text("mine")
    (tmp_path / "predicted.txt").write_text(sealed(""))
    with pytest.raises(BadInput, match=rf"is not empty \({name}\)"):
        RunDirectory(tmp_path, resume=True)
    assert {path.name for path in tmp_path.iterdir()} == {name, "predicted.txt"}


def test_one_process_has_it_at_a_time(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.begin(MANIFEST)
    for resume in (True, False):
        with pytest.raises(LevelInUse, match="in use by an object of this process"):
            RunDirectory(tmp_path, resume=resume)
    directory.release()
    directory.release()
    with pytest.raises(BadInput, match="already holds a run"):  # and lets go of it
        RunDirectory(tmp_path)
    RunDirectory(tmp_path, resume=True).release()


def test_without_locks_it_opens_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    RunDirectory(tmp_path).begin(MANIFEST)
    assert f"{tmp_path} cannot be locked, because its file system has no locks" in caplog.text
    RunDirectory(tmp_path, resume=True).release()


def test_a_dead_process_holds_nothing(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        RunDirectory(tmp_path).begin(MANIFEST)
        os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    begun = replace(MANIFEST, here=os.path.relpath(Path.cwd(), tmp_path))
    assert RunDirectory(tmp_path, resume=True).manifest == begun


def test_every_schedule_is_kept_and_the_last_one_has_the_platform(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    platform = Platform((Level(name="nvme", capacity=7),))
    for text in ("first\n", "second\n", dumps(Schedule(CHAIN, []), platform)):
        directory.write_plan(text, "predicted")
    assert directory.read("schedule-1.txt") == "first\n"
    assert directory.read("schedule-2.txt") == "second\n"
    assert not (tmp_path / "schedule-3.txt").exists()
    assert directory.platform() == platform
