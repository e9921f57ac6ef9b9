"""`ckio inspect --remove`: what goes, what stays, and that it asks."""

import fcntl
import os
import pty
import sys
from pathlib import Path
from typing import Any

import pytest
from cli.commands import CKIO, answer, ckio, complaint
from jobs.begun import MANIFEST, begun

from ckio.backends.directory import Directory, slotfiles
from ckio.backends.hdf5 import Hdf5, file
from ckio.backends.runid import RunId
from ckio.errors import BadInput, LevelInUse, StorageError
from ckio.jobs import leftovers
from ckio.jobs.leftovers import Found
from ckio.testing import FLOW, put, raw, x

RUN = MANIFEST.run
OF_RUN = "run", "run/manifest.json", "run/schedule.txt"


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
    leave(Hdf5(tmp_path / "a-cafe.h5"))
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "b.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(99999))
    (tmp_path / "other").mkdir()
    found = answer("inspect", tmp_path, "--remove", "--yes", at=tmp_path)
    assert names(tmp_path) == {"notes.txt", "b.h5", "other"}
    assert [Path(it["path"]).name for it in found["removed"]] == ["a-cafe.h5", "beef", "cafe"]
    assert all(it["checkpoints"] == 2 for it in found["removed"])
    assert found["bytes"] == sum(it["bytes"] for it in found["removed"]) > 3 * 9000
    assert answer("inspect", tmp_path, "--remove", "--yes", at=tmp_path)["removed"] == []


@pytest.mark.parametrize("backend", ["directory", "hdf5"])
def test_what_is_in_use_stays_and_is_named(backend: str, tmp_path: Path) -> None:
    level = Directory(tmp_path / "cafe") if backend == "directory" else Hdf5(tmp_path / "c.h5")
    put(level, x(0), FLOW)
    leave(Directory(tmp_path / "beef"))
    found = answer("inspect", tmp_path, "--remove", "--yes", at=tmp_path)
    assert found["in_use"] == [str(level.path)]
    assert [Path(it["path"]).name for it in found["removed"]] == ["beef"]
    assert level.keys() == [x(0)]
    # Also if it was taken after we looked: the lock decides.
    with pytest.raises(LevelInUse):
        leftovers.remove(Found(level.path, backend))
    level.discard(x(0))
    put(level, x(0), FLOW)
    level.close()


@pytest.mark.parametrize(
    ("where", "name"), [(slotfiles, "_of_ranks"), (file, "opened"), (leftovers, "_is_held")]
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
    (level,) = leftovers.find(tmp_path)
    (left,) = leftovers.removable(tmp_path)
    assert level.path.name == left.path.name == "beef"


def test_one_run_is_removed_and_not_its_neighbours(tmp_path: Path) -> None:
    for place in ("cafe", "beef"):
        leave(Directory(tmp_path / place))
    for archive in ("a-cafe.h5", "ab-cafe.h5"):
        leave(Hdf5(tmp_path / archive))
    ckio("inspect", tmp_path / "cafe", "--remove", "--yes", at=tmp_path)
    ckio("inspect", "a.h5", "--remove", "--yes", at=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"beef", "ab-cafe.h5"}


def test_links_are_not_followed(tmp_path: Path) -> None:
    elsewhere = leave(Directory(tmp_path / "elsewhere" / "cafe")).path
    archive = leave(Hdf5(tmp_path / "elsewhere" / "a.h5")).path
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "cafe").symlink_to(elsewhere)
    (tmp_path / "place" / "a.h5").symlink_to(archive)
    before = names(tmp_path)
    assert answer("inspect", "place", "--remove", "--yes", at=tmp_path)["removed"] == []
    for level in (Found(tmp_path / "place" / "cafe", "directory"),
                    Found(tmp_path / "place" / "a.h5", "hdf5")):  # fmt: skip
        with pytest.raises(StorageError):
            leftovers.remove(level)
    assert "symbolic link" in complaint("inspect", "place/cafe", "--remove", "--yes", at=tmp_path)
    assert names(tmp_path) == before


# The directory of a run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The directory of a run that was killed, whose checkpoints are in ck/RUN."""
    leave(Directory(tmp_path / "ck" / RUN, run=RunId(RUN)))
    return begun(tmp_path, ['backend = "directory"', f'options.path = "{tmp_path}/ck"'])


@pytest.mark.parametrize("backend", ["directory", "hdf5"])
def test_where_nothing_is_found_it_is_told_where_that_was_looked_for(
    backend: str, tmp_path: Path
) -> None:
    begun(tmp_path, [f'backend = "{backend}"', f'options.path = "{tmp_path}/ck.h5"'])
    make, path = {"directory": (Directory, f"ck.h5/{RUN}"), "hdf5": (Hdf5, f"ck-{RUN}.h5")}[backend]
    leave(make(tmp_path / path, run=RunId(RUN)))
    (removed,) = answer("inspect", "run", "--remove", "--yes", at=tmp_path)["removed"]
    assert removed["checkpoints"] == 2
    for command in (["inspect"], ["inspect", "--remove", "--yes"]):
        assert f"{tmp_path}/ck" in ckio(*command, "run", at=tmp_path).stdout


def test_of_a_run_in_use_nothing_goes(run: Path) -> None:
    level, before = Directory(run.parent / "ck" / RUN), names(run.parent)
    ckio("inspect", run, "--remove", "--yes", at=run.parent)
    assert names(run.parent) == before
    level.close()
    working = os.open(run, os.O_RDONLY)
    fcntl.flock(working, fcntl.LOCK_EX)  # as a process that has no level open
    done = ckio("inspect", run, "--remove", "--yes", at=run.parent)
    assert f"{run} is in use, and is not removed" in done.stdout
    assert names(run.parent) == before
    os.close(working)
    ckio("inspect", run, "--remove", "--yes", at=run.parent)
    assert names(run.parent) == {"ck", *OF_RUN}


@pytest.mark.parametrize("other", ["beef", ""])
def test_what_another_run_stored_in_its_place_stays(run: Path, other: str) -> None:
    place = run.parent / "ck" / RUN
    ckio("inspect", run, "--remove", "--yes", at=run.parent)
    leave(Directory(place, run=RunId(other)))
    done = ckio("inspect", run, "--remove", "--yes", at=run.parent, status=1)
    said = f"{place} is left: it holds checkpoints of {RunId(other)}, not of run {RUN}"
    assert said in done.stderr
    assert other in done.stdout
    level = Directory(place, run=RunId(other))
    assert set(level.keys()) == {x(0), x(1)}
    level.close()
    (removed,) = answer("inspect", place, "--remove", "--yes", at=run.parent)[
        "removed"
    ]  # named by its place
    assert removed["runs"] == [other] * bool(other)
    assert not place.exists()


# The question


def asked(place: Path, reply: bytes) -> tuple[str, int]:
    """What the command says at a terminal where `reply` is typed, and its exit status."""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(CKIO, [str(CKIO), "inspect", str(place), "--remove"])
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
    assert "Remove 2 checkpoints?" in said
    assert "cannot be resumed without them" in " ".join(said.split())
    assert status != 0
    assert names(run.parent) == before
    assert asked(run, b"y\n")[1] == 0
    assert not (run.parent / "ck" / RUN).exists()


def test_where_nobody_can_be_asked_it_wants_yes(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = names(run.parent)
    with Path(os.devnull).open() as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)
        for more in ((), ("--json",)):
            assert "give --yes" in complaint("inspect", run, "--remove", *more, at=run.parent)
        assert "there is no nowhere" in complaint("inspect", "nowhere", "--remove", at=run.parent)
        assert (
            "there is nothing to remove"
            in ckio("inspect", run.parent, "--remove", at=run.parent).stdout
        )
    assert names(run.parent) == before


def test_what_cannot_be_removed_is_told_and_the_rest_goes(tmp_path: Path) -> None:
    leave(Directory(tmp_path / "cafe"))
    leave(Directory(tmp_path / "beef"))
    (tmp_path / "beef" / "slots-8192-v9.ckio").write_bytes(b"of a later version")
    levels = [Found(tmp_path / name, "directory") for name in ("beef", "cafe")]
    with pytest.raises(StorageError, match=r"beef.*is not removed"):
        leftovers.remove_all(levels)
    assert not (tmp_path / "cafe").exists()


def test_python_lists_and_cleans_with_one_call(run: Path) -> None:
    (level,) = leftovers.find(run, verify=True)
    assert [it.stored.key for it in level.checkpoints] == [x(0), x(1)]
    assert all(it.sound for it in level.checkpoints)
    assert (level.in_use, level.others, level.damaged) == (False, [], [])
    open_level = Directory(run.parent / "ck" / RUN, run=RunId(RUN))
    assert leftovers.clean(run) == []
    open_level.close()
    assert [len(left.checkpoints) for left in leftovers.clean(str(run))] == [2]
    assert names(run.parent) == {"ck", *OF_RUN}


def test_a_path_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    too_long = tmp_path / ("x" * 300)
    with pytest.raises(BadInput, match=r"x{300} cannot be read: File name too long"):
        leftovers.find(too_long)
