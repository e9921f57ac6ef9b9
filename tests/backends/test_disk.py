"""The simulated disk: what it may lose, and what it may not."""

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath
from threading import Thread

import pytest

from ckio.backends.files import Files
from ckio.errors import BadInput

from .disk import Recorder, State, contents, crashes, kills

FILE = PurePath("file")


def of_file(states: Iterable[State]) -> set[bytes | None]:
    """What the states say of one file; None: it is not there."""
    return {state.files.get(FILE) for state in states}


def last(states: Iterable[State]) -> State:
    *_, state = states
    return state


def noted(files: Recorder) -> set[bytes | None]:
    """What may be in the file once something was noted."""
    return of_file(state for state in crashes(files.trace) if state.notes)


@pytest.fixture
def files(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path)


@pytest.fixture
def fd(files: Recorder, tmp_path: Path) -> Iterator[int]:
    """A file, of which it is not sure that it has a name."""
    fd = files.open(tmp_path / "file")
    yield fd
    files.close(fd)


def test_what_was_not_synced_may_be_there_or_not(files: Recorder, fd: int, tmp_path: Path) -> None:
    files.sync_directory(tmp_path)
    files.write(fd, [memoryview(b"a" * 512)], 0)
    files.write(fd, [memoryview(b"b" * 512)], 512)
    a, b, nothing = b"a" * 512, b"b" * 512, bytes(512)
    assert of_file(crashes(files.trace)) == {
        *(None, b"", a, a + b),
        *(nothing + b, nothing, nothing + nothing, a + nothing),
    }


def test_what_was_synced_is_there(files: Recorder, fd: int, tmp_path: Path) -> None:
    files.write(fd, [memoryview(b"old" * 1000)], 0)
    files.sync(fd)
    files.sync_directory(tmp_path)
    files.note("now")
    files.write(fd, [memoryview(b"new")], 3)
    assert noted(files) == {b"old" * 1000, b"oldnew" + b"old" * 998}


def test_a_name_is_there_once_its_directory_is_synced(files: Recorder, tmp_path: Path) -> None:
    files.make_directory(tmp_path / "place")
    fd = files.open(tmp_path / "place" / "file")
    files.write(fd, [memoryview(b"data")], 0)
    files.sync(fd)
    files.close(fd)
    files.sync_directory(tmp_path / "place")
    files.note("inside")
    files.sync_directory(tmp_path)
    files.note("outside")
    place, inside = PurePath("place"), PurePath("place/file")
    states: dict[tuple[object, ...], list[dict[PurePath, bytes | None]]] = {}
    for state in crashes(files.trace):
        states.setdefault(state.notes, []).append(dict(state.files))
    whole = {place: None, inside: b"data"}
    assert states["inside", "outside"] == [whole]
    assert {} in states["inside",]
    assert whole in states["inside",]
    assert {place: None} not in states["inside",]
    assert {place: None, inside: b""} in states[()]


def test_a_file_may_have_both_names_while_it_is_renamed(files: Recorder, tmp_path: Path) -> None:
    files.close(files.open(tmp_path / "draft"))
    files.sync_directory(tmp_path)
    files.note("made")
    files.rename(tmp_path / "draft", tmp_path / "file")
    draft = PurePath("draft")
    names = {frozenset(state.files) for state in crashes(files.trace) if state.notes}
    assert names >= {frozenset({draft}), frozenset({draft, FILE}), frozenset({FILE})}


def test_a_write_is_cut_at_sectors_and_never_within_one(
    files: Recorder, fd: int, tmp_path: Path
) -> None:
    files.write(fd, [memoryview(b"a" * 2048)], 0)
    files.sync(fd)
    files.sync_directory(tmp_path)
    files.note("old")
    files.write(fd, [memoryview(b"b" * 1000)], 500)
    found = noted(files)
    old, new = b"a" * 2048, b"a" * 500 + b"b" * 1000 + b"a" * 548
    cuts = {new[:at] + old[at:] for at in (512, 1024)} | {old[:at] + new[at:] for at in (512, 1024)}
    assert found >= cuts | {old, new}
    sectors = [{old[at : at + 512], new[at : at + 512]} for at in range(0, 2048, 512)]
    assert all(
        state is not None and state[at : at + 512] in sectors[at // 512]
        for state in found
        for at in range(0, 2048, 512)
    )


def test_room_that_was_added_may_be_missing(files: Recorder, fd: int, tmp_path: Path) -> None:
    files.sync_directory(tmp_path)
    files.note("made")
    files.extend(fd, 0, 1024, prewrite=True)
    found = noted(files)
    assert found == {bytes(size) for size in (0, 512, 1024)}


def test_a_kill_keeps_all_but_the_rest_of_the_last_write(files: Recorder, fd: int) -> None:
    files.write(fd, [memoryview(b"a" * 10_000)], 0)
    files.cut(fd, 9000)
    assert of_file(kills(files.trace)) == {
        *(None, b""),
        *(b"a" * size for size in (4096, 8192, 10_000, 9000)),
    }


class Late(Files):
    """A system whose sync takes long enough for another thread to write."""

    def sync(self, fd: int, /) -> None:
        other = Thread(target=self.write, args=(fd, [memoryview(b"late")], 0))
        other.start()
        other.join()
        super().sync(fd)


class LateRecorder(Recorder, Late):
    pass


def test_a_sync_does_not_cover_what_another_thread_writes_meanwhile(tmp_path: Path) -> None:
    files = LateRecorder(tmp_path)
    fd = files.open(tmp_path / "file")
    files.sync_directory(tmp_path)
    files.sync(fd)
    files.note("synced")
    files.close(fd)
    assert noted(files) == {b"", b"late", bytes(4)}


def test_what_was_there_before_stays(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "old").write_bytes(b"old")
    files = Recorder(tmp_path)
    before = contents(tmp_path)
    fd = files.open(tmp_path / "place" / "old")
    files.write(fd, [memoryview(b"new")], 0)
    files.unlink(tmp_path / "place" / "old")
    files.close(fd)
    states = [dict(state.files) for state in crashes(files.trace)]
    assert states[0] == before
    assert states[-1] != before
    assert all(PurePath("place") in state for state in states)
    assert last(kills(files.trace)).files == contents(tmp_path)


def test_a_file_that_somebody_else_made_is_refused(files: Recorder, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="made by something else"):
        files.open(tmp_path / "file")


def test_every_system_call_that_changes_something_is_recorded() -> None:
    """A new one has to be taken into the model, or to be known to change nothing."""
    changes_nothing = {
        "bytes_at",
        "open_to_read",
        "preadv",
        "read",
        "size",
        "is_named",
        "occupied",
        "free",
        "has_direct",
        "set_direct",
    }
    made_of_others = {"write", "evict"}
    calls = {name for name in vars(Files) if not name.startswith("_")}
    recorded = {name for name in vars(Recorder) if not name.startswith("_")} - {"note", "trace"}
    assert recorded == calls - changes_nothing - made_of_others
