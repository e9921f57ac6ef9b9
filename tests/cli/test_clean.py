"""`ckio clean`: what goes, what stays, and that it asks."""

import fcntl
import os
import pty
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import click
import pytest
from cli.commands import CKIO, answer, ckio, complaint
from jobs.begun import MANIFEST, begun

from ckio.backends.directory import Directory, slotfiles
from ckio.backends.directory.slotfiles import TRIAL
from ckio.backends.hdf5 import Hdf5, file
from ckio.backends.runid import RunId
from ckio.errors import BadInput, LevelInUse, StorageError
from ckio.jobs import directory as rundir
from ckio.jobs import leftovers
from ckio.jobs.leftovers import Cleaned, Cleaning, Holding
from ckio.testing import FLOW, put, raw, x

RUN = MANIFEST.run


def leave(level: Any) -> Any:
    """What a run that was killed leaves."""
    put(level, x(0), FLOW)
    put(level, x(1), raw(9000))
    level.close()
    return level


def names(at: Path) -> set[str]:
    return {str(path.relative_to(at)) for path in at.rglob("*")}


def test_what_runs_left_is_removed_and_all_else_stays(tmp_path: Path) -> None:
    leave(Directory(tmp_path / "cafe"))
    leave(Directory(tmp_path / "beef"))
    (tmp_path / "beef" / TRIAL).touch()  # what is left of a trial of direct I/O
    leave(Hdf5(tmp_path / "a-cafe.h5"))
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "b.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(99999))
    (tmp_path / "other").mkdir()
    found = answer("clean", tmp_path, "--yes", at=tmp_path)
    assert names(tmp_path) == {"notes.txt", "b.h5", "other"}
    assert [Path(it["path"]).name for it in found["removed"]] == ["a-cafe.h5", "beef", "cafe"]
    assert all(it["checkpoints"] == 2 for it in found["removed"])
    assert found["bytes"] == sum(it["bytes"] for it in found["removed"]) > 3 * 9000
    assert all(0 <= it["age"] < 3600 for it in found["removed"])
    assert answer("clean", tmp_path, "--yes", at=tmp_path)["removed"] == []


@pytest.mark.parametrize("backend", ["directory", "hdf5"])
def test_what_is_in_use_stays_and_is_named(backend: str, tmp_path: Path) -> None:
    level = Directory(tmp_path / "cafe") if backend == "directory" else Hdf5(tmp_path / "c.h5")
    put(level, x(0), FLOW)
    leave(Directory(tmp_path / "beef"))
    found = answer("clean", tmp_path, "--yes", at=tmp_path)
    assert found["in_use"] == [str(level.path)]
    assert [Path(it["path"]).name for it in found["removed"]] == ["beef"]
    assert level.keys() == [x(0)]
    # Also if it was taken after we looked: the lock decides.
    with pytest.raises(LevelInUse):
        leftovers.remove(Holding(level.path, backend))
    level.discard(x(0))
    put(level, x(0), FLOW)
    level.close()


@pytest.mark.parametrize(
    ("where", "name"), [(slotfiles, "_of_ranks"), (file, "opened"), (Holding, "in_use")]
)
def test_a_run_may_end_while_its_neighbours_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, name: str
) -> None:
    levels = [Directory(tmp_path / "cafe"), Hdf5(tmp_path / "a-cafe.h5")]
    leave(Directory(tmp_path / "beef"))
    look = getattr(where, name)

    def ended(*given: Any) -> Any:
        for level in levels:
            level.remove()
        return look(*given)

    monkeypatch.setattr(where, name, ended)
    (level,) = leftovers.listing(tmp_path)
    (left,) = leftovers.survey(tmp_path).left
    assert level.holding.path.name == left.holding.path.name == "beef"


def test_one_run_is_removed_and_not_its_neighbours(tmp_path: Path) -> None:
    for place in ("cafe", "beef"):
        leave(Directory(tmp_path / place))
    for archive in ("a-cafe.h5", "ab-cafe.h5"):
        leave(Hdf5(tmp_path / archive))
    ckio("clean", tmp_path / "cafe", "--yes", at=tmp_path)
    ckio("clean", "a.h5", "--yes", at=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"beef", "ab-cafe.h5"}


def test_files_that_only_look_like_ours_stay(tmp_path: Path) -> None:
    leave(Directory(tmp_path / "cafe"))
    place = tmp_path / "cafe"
    (tmp_path / "target").write_text("far away")
    like = [place / f"slots-{size}-v3.ckio" for size in (4096000, 12345, 8388608)]
    like[0].write_bytes(os.urandom(9000))
    like[1].touch()
    like[2].symlink_to(tmp_path / "target")
    with pytest.raises(StorageError, match="is not removed"):
        leftovers.remove(Holding(place, "directory"))
    assert set(place.iterdir()) == set(like)
    assert (tmp_path / "target").read_text() == "far away"


def test_links_are_not_followed(tmp_path: Path) -> None:
    elsewhere = leave(Directory(tmp_path / "elsewhere" / "cafe")).path
    archive = leave(Hdf5(tmp_path / "elsewhere" / "a.h5")).path
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "cafe").symlink_to(elsewhere)
    (tmp_path / "place" / "a.h5").symlink_to(archive)
    before = names(tmp_path)
    assert answer("clean", "place", "--yes", at=tmp_path)["removed"] == []
    for holding in (Holding(tmp_path / "place" / "cafe", "directory"),
                    Holding(tmp_path / "place" / "a.h5", "hdf5")):  # fmt: skip
        with pytest.raises(StorageError):
            leftovers.remove(holding)
    assert "symbolic link" in complaint("clean", "place/cafe", "--yes", at=tmp_path)
    assert names(tmp_path) == before


# The directory of a run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The directory of a run that was killed, whose checkpoints are in ck/RUN."""
    leave(Directory(tmp_path / "ck" / RUN, run=RunId(RUN)))
    run = begun(tmp_path, ['backend = "directory"', f'options.path = "{tmp_path}/ck"'])
    part = run / f".{rundir.RESULT}.part"
    part.write_text("{")
    os.utime(part, (1e9, 1e9))
    return run


def test_a_run_directory_stays_but_for_what_is_half_written(run: Path) -> None:
    ckio("clean", run, "--yes", at=run.parent)
    assert names(run.parent) == {"ck", "run", "run/manifest.json", "run/schedule.txt"}


@pytest.mark.parametrize("backend", ["directory", "hdf5"])
def test_relative_places_are_found_from_where_the_run_was_begun(
    backend: str, tmp_path: Path
) -> None:
    begun(tmp_path, [f'backend = "{backend}"', 'options.path = "ck.h5"'], here=str(tmp_path))
    make, path = {"directory": (Directory, f"ck.h5/{RUN}"), "hdf5": (Hdf5, f"ck-{RUN}.h5")}[backend]
    leave(make(tmp_path / path, run=RunId(RUN)))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert len(answer("inspect", "../run", at=elsewhere)["checkpoints"]) == 2
    (removed,) = answer("clean", "../run", "--yes", at=elsewhere)["removed"]
    assert removed["checkpoints"] == 2
    # Where nothing is found it is told where that was looked for.
    for command in (["inspect"], ["clean", "--yes"]):
        assert f"{elsewhere}/ck" in ckio(*command, "../run", at=elsewhere).stdout


def test_with_results_it_goes_too_and_what_else_is_in_it_stays(run: Path) -> None:
    (run / "notes.txt").write_text("mine")
    said = ckio("clean", run, "--yes", "--results", at=run.parent).stdout
    assert said.endswith(f"\nremoved: the results in {run}\n")
    assert names(run.parent) == {"ck", "run", "run/notes.txt"}
    line = complaint("clean", "ck", "--yes", "--results", at=run.parent)
    assert "not the directory of a run" in line


def test_no_tree_goes_with_a_run_and_no_link_is_followed(run: Path) -> None:
    """What has the name of a result and is none: a directory stays, of a link the link goes."""
    (run.parent / "target").write_text("far away")
    (run / "measured-1.txt").symlink_to(run.parent / "target")
    (run / "schedule-1.txt").mkdir()
    (run / "schedule-1.txt" / "notes.txt").write_text("mine")
    done = ckio("clean", run, "--yes", "--results", at=run.parent, status=1)
    assert f"{run} cannot be removed: Is a directory" in done.stderr
    assert (run / "schedule-1.txt" / "notes.txt").read_text() == "mine"
    assert (run / rundir.MANIFEST).exists()  # it goes last
    assert (run.parent / "target").read_text() == "far away"


def test_of_a_run_in_use_nothing_goes(run: Path) -> None:
    level, before = Directory(run.parent / "ck" / RUN), names(run.parent)
    ckio("clean", run, "--yes", "--results", at=run.parent)
    assert names(run.parent) == before
    level.close()
    working = os.open(run, os.O_RDONLY)
    fcntl.flock(working, fcntl.LOCK_EX)  # as a process that has no level open
    done = ckio("clean", run, "--yes", "--results", at=run.parent)
    assert f"{run} is in use, and is not removed" in done.stdout
    assert names(run.parent) == before
    with pytest.raises(LevelInUse):  # also if it was taken after we looked
        leftovers.remove_results(run)
    os.close(working)
    ckio("clean", run, "--yes", "--results", at=run.parent)
    assert names(run.parent) == {"ck"}


@pytest.mark.parametrize("other", ["beef", ""])
def test_what_another_run_stored_in_its_place_stays(run: Path, other: str) -> None:
    place = run.parent / "ck" / RUN
    ckio("clean", run, "--yes", at=run.parent)
    leave(Directory(place, run=RunId(other)))
    done = ckio("clean", run, "--yes", at=run.parent, status=1)
    said = f"{place} is left: it holds checkpoints of {RunId(other)}, not of run {RUN}"
    assert said in done.stderr
    assert other in done.stdout
    level = Directory(place, run=RunId(other))
    assert set(level.keys()) == {x(0), x(1)}
    level.close()
    (removed,) = answer("clean", place, "--yes", at=run.parent)["removed"]  # named by its place
    assert removed["runs"] == [other] * bool(other)
    assert not place.exists()


# The question


def asked(place: Path, reply: bytes) -> tuple[str, int]:
    """What the command says at a terminal where `reply` is typed, and its exit status."""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(CKIO, [str(CKIO), "clean", str(place)])
    said = b""
    try:
        while part := os.read(terminal, 4096):
            said += part
            if b"[y/N]" in said and reply:
                os.write(terminal, reply)
                reply = b""
    except OSError:  # how a terminal ends
        pass
    os.close(terminal)
    return said.decode(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.slow
def test_it_asks_and_the_default_is_no(run: Path) -> None:
    before = names(run.parent)
    said, status = asked(run, b"\n")
    assert "Remove 2 checkpoints and 1 unfinished file?" in said
    assert "cannot be resumed without its checkpoints" in " ".join(said.split())
    assert status != 0
    assert names(run.parent) == before
    assert asked(run, b"y\n")[1] == 0
    assert not (run.parent / "ck" / RUN).exists()


def test_a_question_steers_no_terminal(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    questions = []
    monkeypatch.setattr(click, "confirm", lambda text, **_: questions.append(text))
    monkeypatch.setattr(sys, "stdin", Mock(isatty=lambda: True))
    ckio("clean", run.rename(run.with_name("\x1b[2J")), "--results", at=run.parent)
    assert "/\\x1b[2J with its results? The run of /" in questions[0]
    assert "\x1b" not in questions[0]


def test_where_nobody_can_be_asked_it_wants_yes(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = names(run.parent)
    with Path(os.devnull).open() as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)
        for more in ((), ("--json",)):
            assert "give --yes" in complaint("clean", run, *more, at=run.parent)
        assert "there is no nowhere" in complaint("clean", "nowhere", at=run.parent)
        assert "there is nothing to remove" in ckio("clean", run.parent, at=run.parent).stdout
    assert names(run.parent) == before


def test_what_cannot_be_removed_is_told_and_the_rest_goes(tmp_path: Path) -> None:
    scrap, other = tmp_path / "scrap", tmp_path / "other"
    scrap.mkdir()  # cannot be unlinked, not even by root
    other.touch()
    cleaned = Cleaning((), (scrap, other), None).perform()
    assert not cleaned.removed
    assert list(cleaned.refused) == [scrap]
    assert "cannot be removed" in str(cleaned.refused[scrap])
    assert not other.exists()


def test_python_lists_and_cleans_with_one_call(run: Path) -> None:
    (level,) = leftovers.listing(run, verify=True)
    assert [it.stored.key for it in level.checkpoints] == [x(0), x(1)]
    assert all(it.sound for it in level.checkpoints)
    assert (level.in_use, level.others, level.damaged) == (False, [], [])
    open_level = Directory(run.parent / "ck" / RUN, run=RunId(RUN))
    assert leftovers.clean(run, results=True) == Cleaned([], [open_level.path], {})
    open_level.close()
    cleaned = leftovers.clean(str(run), results=True)
    assert [left.checkpoints for left in cleaned.removed] == [2]
    assert (cleaned.in_use, cleaned.refused) == ([], {})
    assert names(run.parent) == {"ck"}


def test_a_path_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    too_long = tmp_path / ("x" * 300)
    with pytest.raises(BadInput, match=r"x{300} cannot be read: File name too long"):
        leftovers.half_made(too_long)


def test_a_level_that_cannot_be_looked_at_is_not_in_use(tmp_path: Path) -> None:
    assert not Holding(tmp_path / ("x" * 300), "directory").in_use()
