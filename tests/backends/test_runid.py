"""A level knows whose it is: what another run stored is refused, and nothing of it is changed."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import pytest

from ckio.backends.contents import Stored
from ckio.backends.directory import Directory
from ckio.backends.hdf5 import Hdf5
from ckio.backends.runid import NOBODY, RunId
from ckio.errors import BadInput, CorruptCheckpoint, ForeignLevel, LevelInUse
from ckio.testing import FLOW, a, get, put, raw, t, x

from .common import OCEAN
from .workload import held

CAFE, BEEF = RunId("cafe"), RunId("beef")
KEYS = {x(0): FLOW, x(3): FLOW, t(1): raw(300), a(9): OCEAN, x(7): raw(20_000)}

Open = Callable[..., Any]


@pytest.fixture(params=["directory", "hdf5"])
def opened(request: pytest.FixtureRequest) -> Open:
    """Opens a level in a folder, for a run."""

    def opens(folder: Path, run: RunId = NOBODY, **options: Any) -> Any:
        if request.param == "directory":
            return Directory(folder, run=run, **options)
        return Hdf5(folder / "a.h5", run=run, **options)

    return opens


def fill(level: Any, *, seed: int) -> dict[Any, bytes]:
    """Store some checkpoints, and leave a slot that was used."""
    stored = {key: put(level, key, layout, seed=seed) for key, layout in KEYS.items()}
    put(level, x(5), FLOW, seed=seed)
    level.discard(x(5))
    level.close()
    return stored


def files(folder: Path) -> dict[Path, tuple[bytes, int]]:
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_what_another_run_stored_is_refused_and_nothing_is_changed(
    tmp_path: Path, opened: Open
) -> None:
    assert issubclass(ForeignLevel, (BadInput, LevelInUse))
    for owner in (CAFE, BEEF, NOBODY):
        folder = tmp_path / f"of {owner.text}"
        stored = fill(opened(folder, owner), seed=1)
        before = files(folder)
        if owner is not CAFE:
            with pytest.raises(ForeignLevel, match=rf"{folder}.* of {owner}, not of run cafe"):
                opened(folder, CAFE)
        assert files(folder) == before
        for run in (owner, NOBODY):  # nobody holds it
            level = opened(folder, run)
            assert held(level) == stored
            assert {item.run for item in level.contents(level.path)} == {owner.text}
            level.close()


def test_one_file_of_another_runs_directory_is_found_out(tmp_path: Path) -> None:
    for run, seed in ((CAFE, 1), (BEEF, 2)):
        fill(Directory(tmp_path / run.text, run=run), seed=seed)
    theirs = sorted((tmp_path / "beef").iterdir())
    ours = {path: path.read_bytes() for path in (tmp_path / "cafe").iterdir()}
    assert len(theirs) >= 2
    for file in theirs:
        moved = tmp_path / "cafe" / file.name
        moved.write_bytes(file.read_bytes())
        before = files(tmp_path)
        with pytest.raises(ForeignLevel, match=rf"{file.name} holds checkpoints of run beef"):
            Directory(tmp_path / "cafe", run=CAFE)
        assert files(tmp_path) == before
        moved.unlink()
        level = Directory(tmp_path / "cafe", run=CAFE)
        assert set(level.keys()) < set(KEYS)
        level.close()
        moved.write_bytes(ours[moved])


@pytest.mark.parametrize("head", [bytes(40), b"damaged"], ids=["none", "damaged"])
def test_files_of_another_run_are_found_out_without_their_heads_and_not_mended(
    tmp_path: Path, head: bytes
) -> None:
    fill(Directory(tmp_path, run=BEEF), seed=2)
    for path in tmp_path.iterdir():
        path.write_bytes(head + path.read_bytes()[len(head) :])
    before = files(tmp_path)
    with pytest.raises(ForeignLevel):
        Directory(tmp_path, run=CAFE)
    assert files(tmp_path) == before
    Directory(tmp_path, run=BEEF).close()
    assert (files(tmp_path) == before) is any(head)  # a damaged head stays as it is


@pytest.mark.parametrize(
    "step", [pytest.param(512, marks=pytest.mark.slow), 4096 * 3, 4096 * 7 + 512]
)
def test_files_of_two_runs_mixed_anywhere_give_no_wrong_bytes(
    tmp_path: Path, opened: Open, step: int
) -> None:
    """As where a copy was interrupted: one part of a file is of one run, the rest of another."""
    ours = fill(opened(tmp_path, CAFE), seed=1)
    mine = {path: data for path, (data, _) in files(tmp_path).items()}
    for path in mine:
        path.unlink()  # the other run has files of the same names
    theirs = fill(opened(tmp_path, BEEF), seed=2)
    assert all(ours[key] != theirs[key] for key in KEYS)
    other = {path: data for path, (data, _) in files(tmp_path).items()}
    assert list(mine) == list(other)
    outcomes = set()
    for path, data in mine.items():
        for cut in range(0, max(len(data), len(other[path])), step):
            for first, then in ((data, other[path]), (other[path], data)):
                for each, whole in mine.items():
                    each.write_bytes(whole)
                path.write_bytes(first[:cut] + then[cut:])
                outcomes.add(_gives_only(ours, opened, tmp_path))
    assert outcomes >= {"refused", "some"}


def _gives_only(ours: dict[Any, bytes], opened: Open, folder: Path) -> str:
    """Whether a level is refused, or gives what this run stored and nothing else."""
    try:
        level = opened(folder, CAFE)
    except ForeignLevel:
        return "refused"
    found = set()
    for key in list(level.keys()):
        with suppress(CorruptCheckpoint):
            assert get(level, key, KEYS[key]) == ours[key]
            found.add(key)
    level.close()
    return "all" if found == set(ours) else "some"


def test_people_see_whose_an_archive_is_also_of_what_was_written_without_a_run(
    tmp_path: Path,
) -> None:
    fill(Hdf5(tmp_path / "a.h5", run=CAFE), seed=1)
    archive = Hdf5(tmp_path / "a.h5")
    original = put(archive, x(8), raw(70_000))
    archive.close()
    assert get(Hdf5(tmp_path / "a.h5", run=CAFE), x(8), raw(70_000)) == original
    with h5py.File(tmp_path / "a.h5") as file:
        assert file.attrs["run"] == "cafe"


def test_an_id_is_read_as_it_was_written_and_refused_where_files_have_no_place_for_it(
    tmp_path: Path, opened: Open
) -> None:
    for text in ("é" * 33, "x" * 65, "a\0", "\0", "\ud800"):
        with pytest.raises(BadInput, match="is no id of a run"):
            RunId(text)
    for text in ("", "cafe", "é" * 32, "x" * 64):
        run = RunId(text)
        assert RunId.unpack(run.pack()) == run
        for _ in range(2):
            level = opened(tmp_path / f"of {text}", run)
            if not level.keys():
                put(level, x(0), FLOW)
            level.close()
        (found,) = level.contents(level.path)
        assert isinstance(found, Stored)
        assert (found.key, found.run) == (x(0), text)
