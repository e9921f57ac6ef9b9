"""The file of a shared archive, which needs no MPI; its ranks are in test_shared_hdf5_ranks."""

import os
import shutil
import signal
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import pytest

from ckio.actions import Field, Kind
from ckio.adapters.shared_hdf5 import SharedHdf5, sharedfile
from ckio.adapters.shared_hdf5.parts import SharedGroup
from ckio.adapters.shared_hdf5.sharedfile import SharedRow, lock, unlock
from ckio.backends.contents import Stored
from ckio.backends.hdf5 import Hdf5
from ckio.backends.runid import NOBODY, RunId
from ckio.errors import BadInput, LevelInUse, StorageError
from ckio.jobs.leftovers import Found, remove
from ckio.testing import x

HAS_MPI = bool(h5py.get_config().mpi)

UNEVEN = [(Field("u", "<f8", (rows, 3), "m"), Field("J", "<f8", ())) for rows in (2, 0, 5)]


def group_of(layouts: Sequence[Any], *, slots: int = 2, name: str = "restart-0") -> SharedGroup:
    return SharedGroup(name, Kind.RESTART, tuple(layouts), slots)


@pytest.mark.parametrize("layouts", [UNEVEN, [(Field("u", "<f8", (2, 3)),), ()]])
def test_parts_of_a_slot_lie_one_behind_the_other(layouts: Sequence[Any]) -> None:
    spans = []
    for column in group_of(layouts).columns:
        every = [column.span(rank, 1) for rank in range(len(layouts))]
        assert every[0][0] == column.nbytes  # the second slot
        assert sum(nbytes for _, nbytes in every) == column.nbytes
        assert all(at + n == nxt for (at, n), (nxt, _) in pairwise(every))
        spans.append(column.shape)
    assert spans == ([(7, 3), (3,)] if layouts is UNEVEN else [(2, 3)])


def test_fields_are_joined_where_they_can_be_and_named_where_hdf5_can() -> None:
    columns = group_of(
        [
            (Field("u", "<f8", (2, rank)), Field("keys", "|b1", (1,)), Field("a/b", "<U3", (2,)))
            for rank in (1, 2)
        ]
    ).columns
    assert [(it.name, it.shape, str(it.dtype)) for it in columns] == [
        ("u", (6,), "float64"),
        ("field-1", (2,), "bool"),
        ("field-2", (4, 12), "uint8"),
    ]
    apart = group_of([(Field("u", "<f8", (2,)),), (Field("u", "<f4", (2,)),)]).columns
    assert [(it.name, it.rows) for it in apart] == [
        ("rank-0-u", (0, 2, 2)),
        ("rank-1-u", (0, 0, 2)),
    ]


def test_what_was_made_is_found_by_hdf5_and_by_ckio(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    sharedfile.create(path, RunId("0a"), 3)
    sharedfile.grow(path, group_of(UNEVEN))
    sharedfile.grow(path, group_of(UNEVEN, slots=3, name="restart-1"))
    with h5py.File(path) as found:
        assert found["restart-0/u"].shape == (2, 7, 3)
        assert found["restart-0/u"].attrs["unit"] == "m"
        assert found["restart-1/J"].shape == (3, 3)
        assert found["restart-0/begins"][()].tolist() == [[0, 2, 2, 7], [0, 1, 2, 3]]
    start = sharedfile.survey(path)
    assert (start.run, start.ranks, start.damaged) == (RunId("0a"), 3, [])
    assert [(group.name, group.slots, rows) for group, rows in start.groups] == [
        ("restart-0", 2, []),
        ("restart-1", 3, []),
    ]
    assert start.groups[0][0].layouts == tuple(UNEVEN)


def commit(path: Path, row: SharedRow) -> None:
    keys, digests = row.pack()
    with h5py.File(path, "r+") as found:
        found["restart-0/keys"][row.slot : row.slot + 1] = keys
        found["restart-0/xxh3_128"][row.slot : row.slot + 1] = digests
        found["restart-0/stored"][row.slot] = row.commit


def test_a_row_that_is_damaged_is_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    sharedfile.create(path, NOBODY, 3)
    sharedfile.grow(path, group_of(UNEVEN))
    rows = [SharedRow(n + 1, n, x(7 + n), 5.0, (bytes(16),) * 3) for n in range(2)]
    for row in rows:
        commit(path, row)
    assert sharedfile.survey(path).groups[0][1] == rows
    assert len([it for it in SharedHdf5.contents(path) if isinstance(it, Stored)]) == 6
    with h5py.File(path, "r+") as found:
        found["restart-0/stored"][1] = 9
    start = sharedfile.survey(path)
    assert start.groups[0][1] == rows[:1]
    assert "slot 1" in start.damaged[0].what


@pytest.mark.parametrize("when", ["while HDF5 writes", "when all is there"])
def test_growing_that_was_cut_short_is_undone(tmp_path: Path, when: str) -> None:
    path = tmp_path / "a.h5"
    sharedfile.create(path, NOBODY, 3)
    sharedfile.grow(path, group_of(UNEVEN))
    commit(path, SharedRow(1, 0, x(7), 5.0, (bytes(16),) * 3))
    before = path.read_bytes()
    pid = os.fork()  # a real end, with all that HDF5 had not written yet
    if pid == 0:
        if when == "while HDF5 writes":
            make = sharedfile._create
            sharedfile._create = lambda *given: (make(*given), given[0].file.flush(), end())
        else:
            os.posix_fallocate = lambda *_: end()
        sharedfile.grow(path, group_of(UNEVEN, name="restart-1"))
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert path.read_bytes() != before
    sharedfile.undo(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.h5"]
    sharedfile.grow(path, group_of(UNEVEN, name="restart-1"))
    assert len(sharedfile.survey(path).groups) == 2


def end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_growing_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.h5"
    sharedfile.create(path, NOBODY, 3)
    before = path.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        sharedfile.grow(path, group_of(UNEVEN))
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.h5"]


def test_an_undo_that_was_not_written_to_the_end_undoes_nothing(tmp_path: Path) -> None:
    path, beside = tmp_path / "a", tmp_path / ".a.undo"
    path.write_bytes(b"before")

    def change() -> None:
        with sharedfile.undoable(path, [(0, 6)]):
            shutil.copy(beside, tmp_path / "kept")
            path.write_bytes(b"after it")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        change()
    assert path.read_bytes() == b"before"
    path.write_bytes(b"after it")
    beside.write_bytes((tmp_path / "kept").read_bytes()[:-1])
    sharedfile.undo(path)
    assert path.read_bytes() == b"after it"
    assert not beside.exists()


@pytest.mark.parametrize("content", [b"", b"text", None])
def test_another_file_is_no_shared_archive(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "a.h5"
    if content is None:
        Hdf5(path).close()
    else:
        path.write_bytes(content)
    with pytest.raises(BadInput, match="no shared archive"):
        sharedfile.survey(path)
    with pytest.raises(BadInput):
        SharedHdf5.contents(tmp_path / "none.h5")


def test_an_archive_of_many_ranks_is_removed_by_one_process_without_mpi(tmp_path: Path) -> None:
    path = tmp_path / "a-cafe.h5"
    sharedfile.create(path, RunId("cafe"), 3)
    for left in (
        ".a-cafe.h5.part",
        "..a-cafe.h5.undo.part",
        ".a-cafe.h5.undo",
    ):  # of processes that were killed
        (tmp_path / left).write_bytes(b"half")
    shared = Found(path, "hdf5-shared", "cafe")
    held = lock(path)  # as the job that works on it has it
    assert shared.read().in_use
    with pytest.raises(LevelInUse):
        remove(shared)
    unlock(path, held)
    assert not shared.read().in_use
    remove(shared)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_shared_archive_is_not_removed(tmp_path: Path) -> None:
    sharedfile.create(tmp_path / "target.h5", NOBODY, 3)
    (tmp_path / "link.h5").symlink_to(tmp_path / "target.h5")
    Hdf5(tmp_path / "hdf5.h5").close()
    (tmp_path / "text.h5").write_text("mine")
    (tmp_path / "folder.h5").mkdir()
    before = sorted(tmp_path.iterdir())
    for name in ("link.h5", "hdf5.h5", "text.h5", "folder.h5"):
        with pytest.raises(StorageError, match=r"is left|cannot be removed"):
            remove(Found(tmp_path / name, "hdf5-shared"))
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.skipif(HAS_MPI, reason="h5py here has MPI")
def test_without_mpi_in_h5py_it_says_what_to_take(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"h5py here has no MPI: .*; use hdf5, a file per rank"):
        SharedHdf5(tmp_path / "a.h5")
    assert list(tmp_path.iterdir()) == []
