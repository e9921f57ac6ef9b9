"""The file of a shared archive; its ranks are in test_shared_hdf5_ranks."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import pytest
from models.threaded import on_ranks

from ckio.actions import Field, Layout, field_nbytes
from ckio.adapters.shared_hdf5 import SharedHdf5, joined
from ckio.backends.contents import Stored, sound
from ckio.backends.hdf5 import Hdf5
from ckio.backends.runid import RunId
from ckio.errors import BadInput, LevelInUse, StorageError
from ckio.jobs.leftovers import Found, remove
from ckio.model.comm import Comm
from ckio.parallel.group import RankGroup
from ckio.testing import get, put, x

UNEVEN: list[Layout] = [
    (Field("u", "<f8", (rows, 3), "m"), Field("J", "<f8", ())) for rows in (2, 0, 5)
]


@pytest.mark.parametrize("layouts", [UNEVEN, [(Field("u", "<f8", (2, 3)),), ()]])
def test_parts_of_a_slot_lie_one_behind_the_other(layouts: Sequence[Layout]) -> None:
    whole = joined(tuple(layouts))
    begins = [1000 * number for number in range(len(whole.layout))]
    spans = [whole.spans(rank, begins) for rank in range(len(layouts))]
    for number, field in enumerate(whole.layout):
        every = sorted(span for each in spans for span in each if span[0] // 1000 == number)
        assert every[0][0] == begins[number]
        assert sum(nbytes for _, nbytes in every) == field_nbytes(field)
        assert all(at + n == nxt for (at, n), (nxt, _) in pairwise(every))
    shapes = [field.shape for field in whole.layout[:-1]]
    assert shapes == ([(7, 3), (3,)] if layouts is UNEVEN else [(2, 3)])


def test_fields_are_joined_where_they_can_be() -> None:
    layout = joined(
        tuple(
            (Field("u", "<f8", (2, rank)), Field("keys", "|b1", (1,)), Field("a", "<U3", (2,)))
            for rank in (1, 2)
        )
    ).layout
    assert [(it.name, it.shape, it.dtype) for it in layout[:-1]] == [
        ("u", (6,), "<f8"),
        ("keys", (2,), "|b1"),
        ("a", (4,), "<U3"),
    ]
    apart = joined(((Field("u", "<f8", (2,)),), (Field("u", "<f4", (2,)),))).layout
    assert [(it.name, it.shape) for it in apart] == [
        ("rank-0-u", (2,)),
        ("rank-1-u", (2,)),
        ("ranks", (2, 16)),
    ]


def written(path: Path, layouts: Sequence[Layout], *, run: str = "") -> list[bytes]:
    """A shared archive with one checkpoint of ranks that are threads; what each of them wrote."""
    parts = list[Any]([b""] * len(layouts))

    def body(comm: Comm) -> None:
        level = SharedHdf5(path, RankGroup(comm), run=RunId(run))
        parts[comm.rank] = put(level, x(7), layouts[comm.rank], seed=comm.rank)
        assert get(level, x(7), layouts[comm.rank]) == parts[comm.rank]
        level.close()

    on_ranks(len(layouts), body)
    return parts


def test_what_was_written_is_found_by_hdf5_and_by_ckio(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    parts = written(path, UNEVEN, run="0a")
    with h5py.File(path) as found:
        assert found["restart-0/u"].shape == (1, 7, 3)
        assert found["restart-0/u"].attrs["unit"] == "m"
        assert found["restart-0/J"].shape == (1, 3)
        assert found["restart-0/u"][0].tobytes() == b"".join(part[:-8] for part in parts)
    listed = [it for it in SharedHdf5.contents(path) if isinstance(it, Stored)]
    assert [it.layout for it in listed] == UNEVEN
    assert [(it.key, it.run, sound(it)) for it in listed] == [(x(7), "0a", True)] * 3


def test_one_process_reads_it_as_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    parts = written(path, UNEVEN)
    archive = Hdf5(path, checksum=False)
    layout = archive.layout(x(7))
    fields = get(archive, x(7), layout)
    assert fields.startswith(b"".join(part[:-8] for part in parts))
    archive.close()


@pytest.mark.parametrize("content", [b"", b"text", None])
def test_another_file_is_no_shared_archive(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "a.h5"
    if content is None:
        archive = Hdf5(path)
        put(archive, x(0), UNEVEN[0])
        archive.close()
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    for call in (SharedHdf5, SharedHdf5.contents):
        with pytest.raises(BadInput, match=r"no shared archive|not an HDF5 file"):
            call(path)
    assert path.read_bytes() == before
    with pytest.raises(BadInput):
        SharedHdf5.contents(tmp_path / "none.h5")


def test_an_archive_of_many_ranks_is_removed_by_one_process_without_mpi(tmp_path: Path) -> None:
    path = tmp_path / "a-cafe.h5"
    written(path, UNEVEN, run="cafe")
    shared = Found(path, "hdf5-shared", "cafe")
    level = Hdf5(path)  # as the first rank of the job that works on it
    assert shared.read().in_use
    with pytest.raises((LevelInUse, BlockingIOError)):
        remove(shared)
    level.close()
    assert not shared.read().in_use
    remove(shared)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_shared_archive_is_not_removed(tmp_path: Path) -> None:
    written(tmp_path / "target.h5", UNEVEN)
    (tmp_path / "link.h5").symlink_to(tmp_path / "target.h5")
    (tmp_path / "text.h5").write_text("mine")
    (tmp_path / "folder.h5").mkdir()
    before = sorted(tmp_path.iterdir())
    for name in ("link.h5", "text.h5", "folder.h5"):
        with pytest.raises(StorageError, match=r"not removed|cannot be removed"):
            remove(Found(tmp_path / name, "hdf5-shared"))
    assert sorted(tmp_path.iterdir()) == before
