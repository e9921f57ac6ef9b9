"""The simulated disk: what it may lose, and what it may not."""

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath

import pytest

from .disk import Recorder, State, crashes, kills

FILE = PurePath("file")


def of_file(states: Iterable[State]) -> set[bytes | None]:
    """What the states say of one file; None: it is not there."""
    return {state.files.get(FILE) for state in states}


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
    assert of_file(crashes(files.trace, most=200)) == {
        *(None, b"", a, a + b),
        *(nothing + b, nothing, nothing + nothing, a + nothing),
    }


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
    for state in crashes(files.trace, most=200):
        states.setdefault(state.notes, []).append(dict(state.files))
    whole = {place: None, inside: b"data"}
    assert states["inside", "outside"] == [whole]
    assert {} in states["inside",]
    assert whole in states["inside",]
    assert {place: None} not in states["inside",]
    assert {place: None, inside: b""} in states[()]


def test_a_write_is_cut_at_sectors_and_never_within_one(
    files: Recorder, fd: int, tmp_path: Path
) -> None:
    files.write(fd, [memoryview(b"a" * 2048)], 0)
    files.sync(fd)
    files.sync_directory(tmp_path)
    files.note("old")
    files.write(fd, [memoryview(b"b" * 1000)], 500)
    found = of_file(state for state in crashes(files.trace, most=200) if "old" in state.notes)
    old, new = b"a" * 2048, b"a" * 500 + b"b" * 1000 + b"a" * 548
    cuts = {new[:at] + old[at:] for at in (512, 1024)} | {old[:at] + new[at:] for at in (512, 1024)}
    assert found >= cuts | {old, new}
    sectors = [{old[at : at + 512], new[at : at + 512]} for at in range(0, 2048, 512)]
    assert all(
        state is not None and state[at : at + 512] in sectors[at // 512]
        for state in found
        for at in range(0, 2048, 512)
    )


def test_a_kill_keeps_all_but_the_rest_of_the_last_write(files: Recorder, fd: int) -> None:
    files.write(fd, [memoryview(b"a" * 10_000)], 0)
    files.cut(fd, 9000)
    assert of_file(kills(files.trace)) == {
        *(None, b""),
        *(b"a" * size for size in (4096, 8192, 10_000, 9000)),
    }
