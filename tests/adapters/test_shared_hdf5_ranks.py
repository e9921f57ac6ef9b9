"""Ranks that share an archive: one by one, and in real jobs."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import h5py
import numpy as np
import pytest
from adapters.outputs import shown
from cli import commands
from cli.jobs import MPIEXEC, needs_mpi, write_platform
from models.threaded import on_ranks

from ckio.actions import Field
from ckio.adapters.registry import open_level
from ckio.adapters.shared_hdf5 import SharedHdf5
from ckio.backends.contents import Stored, sound
from ckio.backends.runid import RunId
from ckio.errors import (
    BadInput,
    CkioError,
    CorruptCheckpoint,
    ForeignLevel,
    LevelFull,
    LevelInUse,
    MissingCheckpoint,
    RankFailed,
    StorageError,
)
from ckio.model.comm import Comm
from ckio.parallel.group import RankGroup
from ckio.platform import Level
from ckio.testing import BackendTests, buffers, get, put, raw, x

# One rank


class TestSharedHdf5(BackendTests):
    durable = True

    def make(self, tmp_path: Path, **limits: Any) -> SharedHdf5:
        return SharedHdf5(tmp_path / "a.h5", **limits)

    reopen = make


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.h5"


def test_it_is_of_one_run_and_of_one_job(path: Path) -> None:
    level = SharedHdf5(path, run=RunId("0a"), durability="fdatasync")
    original = put(level, x(1), raw(1000))
    with pytest.raises(LevelInUse):
        SharedHdf5(path)
    level.close()
    with pytest.raises(ForeignLevel):
        SharedHdf5(path, run=RunId("0b"))
    (stored,) = SharedHdf5.contents(path)
    assert isinstance(stored, Stored)
    assert (stored.key, stored.nbytes, stored.run, sound(stored)) == (x(1), 1000, "0a", True)
    level = SharedHdf5(path, run=RunId("0a"))
    assert get(level, x(1), raw(1000)) == original
    level.remove()
    assert list(path.parent.iterdir()) == []


def test_a_place_that_is_no_archive_is_left_as_it_is(path: Path) -> None:
    path.mkdir()
    with pytest.raises(BadInput, match="cannot be an archive"):
        SharedHdf5(path)
    path.rmdir()
    path.write_bytes(b"mine")
    with pytest.raises(BadInput, match="not an HDF5 file"):
        SharedHdf5(path)
    assert path.read_bytes() == b"mine"
    assert [entry.name for entry in path.parent.iterdir()] == ["a.h5"]


def test_what_is_prepared_is_made_before_and_not_again(path: Path) -> None:
    level = SharedHdf5(path)
    for _ in range(2):
        level.prepare(x(1), raw(1000), 4)
    for step in range(5):
        put(level, x(step), raw(1000), seed=step)
    with pytest.raises(LevelFull):
        level.reserve({1 << 60: 1})
    level.close()
    with h5py.File(path) as found:
        assert [len(found[name]["keys"]) for name in ("restart-0", "restart-1")] == [4, 4]


def test_a_disk_that_is_full_leaves_all_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    level = SharedHdf5(path)
    original = put(level, x(1), raw(1000))

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(LevelFull, match="No space"):
        put(level, x(2), raw(1000))
    monkeypatch.undo()
    assert list(level.keys()) == [x(1)]
    assert get(level, x(1), raw(1000)) == original
    put(level, x(2), raw(1000))
    level.close()


# Many ranks


Body = Callable[[SharedHdf5, Any], None]


def on_three(path: Path, body: Body, capacities: Sequence[int | None] = (None, None, None)) -> None:
    """Do this on three ranks that are threads, each with its level and its part of the data."""

    def work(comm: Comm) -> None:
        level = SharedHdf5(path, RankGroup(comm), capacity=capacities[comm.rank])
        body(level, Part(comm.rank))
        level.close()

    on_ranks(3, work)


class Part:
    """What one of the ranks stores: of other sizes and values than those of the others."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.layout = (Field("u", "<f8", (3 + 2 * rank, 4), "m"), Field("J", "<f8", ()))

    def data(self, step: int) -> list[Any]:
        return [np.full((3 + 2 * self.rank, 4), 10.0 * step + self.rank), np.array(float(step))]

    def put(self, level: SharedHdf5, step: int) -> int:
        return level.write(x(step), self.layout, buffers(self.data(step)))

    def same(self, level: SharedHdf5, step: int) -> bool:
        into = [np.empty_like(array) for array in self.data(step)]
        level.read(x(step), buffers(into))
        return all(map(np.array_equal, into, self.data(step)))


def raised(kind: type[CkioError], do: Callable[[], object]) -> str:
    with pytest.raises(kind) as caught:
        do()
    return str(caught.value)


def test_parts_of_any_size_are_one_field_for_everybody(path: Path) -> None:
    def first(level: SharedHdf5, own: Part) -> None:
        assert own.put(level, 1) == (3 + 2 * own.rank) * 32 + 8
        own.put(level, 2)
        own.put(level, 3)
        assert all(own.same(level, step) for step in (3, 1, 2))
        level.discard(x(2))
        assert set(level.keys()) == {x(1), x(3)}
        assert level.layout(x(3)) == own.layout
        raised(MissingCheckpoint, lambda: level.discard(x(2)))

    def then(level: SharedHdf5, own: Part) -> None:
        assert set(level.keys()) == {x(1), x(3)}
        own.put(level, 4)
        assert all(own.same(level, step) for step in (1, 3, 4))

    on_three(path, first)
    on_three(path, then)
    with h5py.File(path) as found:
        groups = [found[name] for name in ("restart-0", "restart-1", "restart-2") if name in found]
        every = {
            int(group["keys"][slot]["step"]): group["u"][slot]
            for group in groups
            for slot in np.flatnonzero(group["keys"]["state"] == b"stored")
        }
    assert sorted(every) == [1, 3, 4]
    for step, u in every.items():
        rows = np.repeat([0, 1, 2], [3, 5, 7])
        assert np.array_equal(u, np.repeat(10.0 * step + rows, 4).reshape(15, 4))
    stored = SharedHdf5.contents(path)
    assert len(stored) == 9
    assert all(isinstance(it, Stored) and sound(it) for it in stored)


def test_what_fails_on_one_rank_fails_on_all_and_they_go_on(path: Path) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    def body(level: SharedHdf5, own: Part) -> None:
        rank, ours = own.rank, cast(Any, level)
        for step in range(6):
            own.put(level, step)
        assert "rank 1" in raised(LevelFull, lambda: own.put(level, 6))
        level.discard(x(0))
        own.put(level, 6)
        few = buffers(own.data(1))[: 1 + (rank != 2)]
        assert "rank 2" in raised(StorageError, lambda: level.read(x(1), few))
        level.discard(x(5))
        kept = ours._put
        ours._put = fail if rank == 2 else ours._put
        raised(RankFailed, lambda: own.put(level, 7))
        ours._put = kept
        if rank == 0:
            kept = ours._archive.commit
            ours._archive.commit = lambda *_: os.open("none", os.O_RDONLY)
        raised(StorageError, lambda: own.put(level, 7))
        if rank == 0:
            ours._archive.commit = kept
        own.put(level, 7)
        assert set(level.keys()) == {x(step) for step in (1, 2, 3, 4, 6, 7)}
        assert all(own.same(level, key.step) for key in list(level.keys()))

    on_three(path, body, (None, 6 * 168, None))


def test_a_part_that_is_not_what_was_written_is_named(path: Path) -> None:
    def first(level: SharedHdf5, own: Part) -> None:
        own.put(level, 1)
        own.put(level, 2)

    def then(level: SharedHdf5, own: Part) -> None:
        said = raised(CorruptCheckpoint, lambda: own.same(level, 1))
        assert "part of rank 1 of x_1" in said, said
        assert own.same(level, 2)
        level.discard(x(1))
        own.put(level, 1)
        assert own.same(level, 1)

    on_three(path, first)
    parts = [it for it in SharedHdf5.contents(path) if it.key == x(1)]
    at, _ = parts[1].spans[0]
    with path.open("r+b") as raw_file:
        raw_file.seek(at + 50)
        raw_file.write(b"\xff")
    assert [sound(it) for it in parts] == [True, False, True]
    on_three(path, then)


def test_another_number_of_ranks_and_another_file_are_refused(path: Path) -> None:
    def of_three(level: SharedHdf5, own: Part) -> None:
        own.put(level, 1)
        level.close()
        ranks, place = level._ranks, path.parent / f"own-{own.rank}"
        place.mkdir()
        said = raised(BadInput, lambda: SharedHdf5(place / "a.h5", ranks))
        assert "file system that all ranks share" in said, said
        again = SharedHdf5(path, ranks)
        assert "in use" in raised(LevelInUse, lambda: SharedHdf5(path, ranks))
        again.close()

    def of_two(comm: Comm) -> str:
        return raised(BadInput, lambda: SharedHdf5(path, RankGroup(comm)))

    on_three(path, of_three)
    for said in on_ranks(2, of_two):
        assert "belongs to a job of 3 ranks, but this job has 2" in said


# In jobs of real processes


BEGIN = """
import sys
import numpy as np
from ckio.actions import Field
from ckio.adapters.mpi import world
from ckio.adapters.shared_hdf5 import SharedHdf5
from ckio.parallel.group import RankGroup
from ckio.testing import buffers, x

ranks = RankGroup(world())
rank = ranks.rank
path = sys.argv[1]
LAYOUT = (Field("u", "<f8", (3 + 2 * rank, 4), "m"), Field("J", "<f8", ()))

def data(step):
    return [np.full((3 + 2 * rank, 4), 10.0 * step + rank), np.array(float(step))]

def put(level, step):
    return level.write(x(step), LAYOUT, buffers(data(step)))

def same(level, step):
    into = [np.empty_like(array) for array in data(step)]
    level.read(x(step), buffers(into))
    return all(np.array_equal(a, b) for a, b in zip(into, data(step)))
"""


def command(ranks: int) -> list[str]:
    return [str(MPIEXEC), "-n", str(ranks)]


RANKS = b"PMI_RANK=", b"OMPI_COMM_WORLD_RANK="
"""What MPICH and Open MPI tell a process of its rank."""


def clean() -> dict[str, str]:
    """The environment without what makes a process a rank of this one's job."""
    own = ("OMPI_", "PMIX_", "PMI_", "PRTE_")
    return {name: text for name, text in os.environ.items() if not name.startswith(own)}


def job(program: str, at: Path, *, ranks: int = 3, status: int | None = 0) -> str:
    (at / "program.py").write_text(BEGIN + program)
    return ended(["program.py", "a.h5"], at, ranks=ranks, status=status)


def ended(
    words: list[Any],
    at: Path,
    *,
    ranks: int = 3,
    status: int | None = 0,
    environ: Mapping[str, str] | None = None,
) -> str:
    """What a job printed; None: with any exit status."""
    done = subprocess.run(
        [*command(ranks), sys.executable, *map(str, words)],
        cwd=at,
        env={**clean(), **(environ or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert status is None or done.returncode == status, done.stderr
    return done.stdout if status is not None else done.stdout + done.stderr


PAGE = Path(__file__).parents[2] / "docs" / "adapters" / "shared_archive.md"


@needs_mpi
def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "page.py").write_text("\n".join(blocks))
    assert ended(["page.py"], tmp_path, ranks=2) == shown(PAGE)


KILLED = """
level = SharedHdf5(path, ranks)
put(level, 1)
put(level, 2)
if rank == 0:
    open("now", "w").close()
step = 3
while True:
    put(level, step)
    level.discard(x(step - 1 if step > 3 else 2))
    step += 1
"""

LOOKED = """
level = SharedHdf5(path, ranks)
keys = {key.step for key in level.keys()}
assert 1 in keys and len(keys) in (2, 3), keys
assert all(same(level, step) for step in keys)
put(level, 10**6)
assert same(level, 10**6)
level.close()
"""


@needs_mpi
@pytest.mark.campaign
@pytest.mark.parametrize("turn", range(2))
def test_a_job_that_is_killed_leaves_whole_checkpoints(tmp_path: Path, turn: int) -> None:
    (tmp_path / "program.py").write_text(BEGIN + KILLED)
    mark = str(tmp_path)
    started = subprocess.Popen(
        [*command(3), sys.executable, "program.py", "a.h5"],
        cwd=tmp_path,
        env={**clean(), "CKIO_TEST_SHARED": mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(tmp_path / "now", started)
    time.sleep(0.05 + 0.1 * turn)
    with h5py.File(tmp_path / "a.h5") as found:  # while it is being written to
        assert found["restart-0/u"].shape[1:] == (15, 4)
    kill_all(mark)
    started.wait(60)
    with h5py.File(tmp_path / "a.h5") as found:
        assert (found["restart-0/keys"]["state"] == b"stored").any()
    job(LOOKED, tmp_path)


def wait_for(place: Path, process: subprocess.Popen[bytes]) -> None:
    while not place.exists():
        assert process.poll() is None
        time.sleep(0.02)


def kill_all(mark: str) -> None:
    """Kill the ranks of one job, the launcher's own processes excepted."""
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        ours = f"CKIO_TEST_SHARED={mark}".encode() in words
        if ours and any(word.startswith(RANKS) for word in words):
            os.kill(int(entry.parent.name), signal.SIGKILL)


# The command line


FAILING = """
import os
import signal
from ckio.models.wave import Wave

class Gone(Wave):
    def step(self, state, i):
        rank = os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK"))
        if i == 30 and rank == os.environ.get("GONE"):
            os.kill(os.getpid(), signal.SIGKILL)
        super().step(state, i)
"""


def platform(at: Path, backend: str) -> Path:
    """Memory for a few checkpoints, and the archive for all others."""
    at.mkdir()
    (at / "failing.py").write_text(FAILING)
    path = write_platform(at, "failing:Gone")
    head, ram, _nvme, rest = path.read_text().split("[[level]]\n")
    rest = rest.replace('"hdf5"', f'"{backend}"')
    path.write_text("[[level]]\n".join([head, ram.replace("40000", "10000"), rest]))
    return path


def ckio(at: Path, *words: Any, **more: Any) -> str:
    return ended([Path(sys.executable).with_name("ckio"), "run", *words], at, **more)


def test_a_codec_is_refused(path: Path) -> None:
    level = Level(name="a", backend="hdf5-shared", options={"path": str(path), "codec": "zstd"})
    with pytest.raises(BadInput, match="takes no codec"):
        open_level(level)
    open_level(replace(level, options={"path": str(path)})).close()


MACHINE = ("--planner", "hrevolve", "--set", "grid=32", "--steps", 60)
WAVE = ("failing:Gone", *MACHINE, "--json", "--into", "run")


def resumed(at: Path, ranks: int) -> str:
    """The digest of the gradient of a run that lost a rank and was resumed."""
    line = (*WAVE, "--platform", platform(at, "hdf5-shared"))
    ckio(at, *line, ranks=ranks, status=None, environ={"GONE": str(ranks // 2)})
    (left,) = at.glob("archive*.h5")
    assert {it.key for it in SharedHdf5.contents(left) if isinstance(it, Stored)}
    said = ckio(at, "failing:Gone", "--resume", "--into", "run", "--json", ranks=ranks)
    assert list(at.glob("*archive*")) == []
    digest: str = json.loads(said.splitlines()[-1])["gradient_digest"]
    return digest


@needs_mpi
def test_a_resumed_run_of_two_ranks_gives_the_answer_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = tmp_path / "alone"
    monkeypatch.setenv("GONE", "")
    alone = commands.answer("run", *WAVE[:-3], "--platform", platform(at, "hdf5"), at=at)
    assert resumed(tmp_path / "killed", 2) == alone["gradient_digest"]
