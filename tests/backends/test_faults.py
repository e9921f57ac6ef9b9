"""Faults that are real: full disks, dead devices, lost permissions, deleted files, dead holders.

What takes a mount is done in a child with mounts of its own, which go away with it; where the
machine does not allow that, the test is skipped and says so.
"""

import os
import resource
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from ckio.actions import Key
from ckio.backends.base import Backend
from ckio.backends.compressed import Compressed
from ckio.backends.directory import Directory
from ckio.backends.files import is_locked
from ckio.backends.ram import Ram
from ckio.compression import Zstd
from ckio.errors import BadInput, LevelFull, LevelInUse, StorageError
from ckio.planners.binomial import revolve
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.runner import run
from ckio.testing import CountingModel, put, raw, t, x

from .common import in_child, make_read_only, mount_small, use_up, with_own_mounts
from .workload import ANY_DURABILITY, Kind, fill, held, kinds, plain

ALL = pytest.mark.parametrize("kind", kinds(*ANY_DURABILITY), ids=str)
PLAIN = pytest.mark.parametrize("kind", plain("process"), ids=str)
DURABLE = pytest.mark.parametrize("kind", plain(*ANY_DURABILITY), ids=str)


def written(level: Backend, key: Key, nbytes: int, place: Path, cause: str) -> dict[Key, bytes]:
    """Write a checkpoint; what was refused must say where, what and why."""
    try:
        return {key: put(level, key, raw(nbytes), seed=key.step)}
    except StorageError as error:
        refusal = str(error)
    assert str(place) in refusal
    assert str(key) in refusal
    assert cause in refusal
    return {}


# No room


@pytest.mark.campaign
@ALL
def test_a_full_disk_costs_nothing_that_is_stored(kind: Kind, tmp_path: Path) -> None:
    def body() -> None:
        mount_small(tmp_path, "size=2m")
        level = kind.open(tmp_path)
        stored, _ = fill(level, 200_000)
        assert len(stored) >= 4
        key = x(len(stored))
        with pytest.raises(LevelFull, match=f"{key}.*No space left on device.*needed") as error:
            put(level, key, raw(300_000))
        assert str(kind.place(tmp_path)) in str(error.value)
        for _ in range(2):
            assert held(level) == stored
            level.close()
            level = kind.open(tmp_path)
        level.discard(x(0))
        stored[x(0)] = put(level, x(0), raw(200_000), seed=99)
        assert held(level) == stored
        level.remove()  # type: ignore[attr-defined]
        assert list(tmp_path.iterdir()) == []

    with_own_mounts(body)


@PLAIN
def test_a_reservation_that_does_not_fit_leaves_nothing_behind(kind: Kind, tmp_path: Path) -> None:
    def body() -> None:
        mount_small(tmp_path, "size=1m")
        level = kind.open(tmp_path)
        before = _total(tmp_path)
        with pytest.raises(LevelFull, match=r"reserving failed.* are free"):
            level.reserve({1000: 3, 400_000: 4})
        assert _total(tmp_path) == before
        level.reserve({1000: 3, 400_000: 2})
        level.remove()  # type: ignore[attr-defined]
        assert list(tmp_path.iterdir()) == []

    with_own_mounts(body)


@pytest.mark.campaign
@ALL
def test_what_was_reserved_can_be_written_on_a_disk_that_got_full(
    kind: Kind, tmp_path: Path
) -> None:
    def body() -> None:
        mount_small(tmp_path, "size=2m")
        level = kind.open(tmp_path)
        level.reserve({100_000: 5})
        use_up(tmp_path)
        stored = {x(step): put(level, x(step), raw(100_000), seed=step) for step in range(5)}
        assert held(level) == stored
        level.close()

    with_own_mounts(body)


@pytest.mark.campaign
@ALL
def test_a_disk_without_room_for_another_file_is_full(kind: Kind, tmp_path: Path) -> None:
    def body() -> None:
        mount_small(tmp_path, "size=4m,nr_inodes=16")
        level = kind.open(tmp_path)
        stored = {x(0): put(level, x(0), raw(100))}
        with suppress(OSError):
            for number in range(20):
                (tmp_path / f"other-{number}").touch()
        assert not (tmp_path / "other-19").exists()
        for key, size in ((x(1), 100_000), (x(2), 100)):
            stored |= written(level, key, size, kind.place(tmp_path), "No space left on device")
            assert held(level) == stored
        with pytest.raises((BadInput, StorageError), match="No space left"):
            kind.open(tmp_path / "other")
        level.close()
        level = kind.open(tmp_path)
        assert held(level) == stored
        level.close()

    with_own_mounts(body)


@PLAIN
def test_a_limit_on_the_size_of_files_is_a_full_level(kind: Kind, tmp_path: Path) -> None:
    level, limits = kind.open(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        stored, reason = fill(level, 200_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(kind.place(tmp_path)) in reason
    assert len(stored) >= 2
    assert held(level) == stored
    level.close()


def test_a_run_goes_on_with_another_level_when_one_is_full(tmp_path: Path) -> None:
    chain = Chain(steps=12, advance=1, record=1, reverse=1, restart=300_000, tape=10, adjoint=10)
    disk, ram = Level(name="disk", capacity=900_000, ratio=0.1), Level(name="ram", capacity=900_000)
    platform = Platform((disk, ram))

    def body() -> None:
        mount_small(tmp_path, "size=512k")
        levels = [Compressed(Directory(tmp_path / "level"), Zstd(1), ratio=0.1), Ram()]
        kept = put(levels[1], t(3), raw(10))
        plan = revolve(chain, platform, on="disk")
        with pytest.raises(LevelFull, match=r"#\d+ Write\(x_\d+, level 0\) on 'disk'.* are needed"):
            run(plan, platform, Noisy(chain), levels)
        assert held(levels[1]) == {t(3): kept}
        model = Noisy(chain)
        run(revolve(chain, platform, on="ram"), platform, model, levels)
        assert model.adjoint == 0
        assert set(levels[0].keys()) | set(levels[1].keys()) <= {t(3), *map(x, range(12))}
        levels[0].remove()
        assert list(tmp_path.iterdir()) == []

    with_own_mounts(body)


class Noisy(CountingModel):
    """A model whose state does not get smaller."""

    def _bytes(self, key: Key):  # type: ignore[no-untyped-def]
        import numpy as np

        return np.random.default_rng(key.step).integers(0, 256, self.chain.nbytes(key), np.uint8)


# What is taken away from under an open level


@PLAIN
def test_a_file_system_may_become_read_only(kind: Kind, tmp_path: Path) -> None:
    def body() -> None:
        level = kind.open(tmp_path)
        stored = {x(0): put(level, x(0), raw(1000))}
        make_read_only(tmp_path)
        for key, size in ((x(1), 1000), (x(2), 500_000)):
            stored |= written(level, key, size, kind.place(tmp_path), "Read-only file system")
            assert held(level) == stored
        level.close()
        with pytest.raises((BadInput, StorageError), match=r"not writable|Read-only"):
            kind.open(tmp_path)

    with_own_mounts(body)


@PLAIN
def test_a_level_may_lose_the_permission_to_write(kind: Kind, memory: Path) -> None:
    if os.geteuid() == 0:
        os.chown(memory, 65534, 65534)

    def body() -> None:
        if os.geteuid() == 0:  # whom nothing is forbidden
            os.setgid(65534)
            os.setuid(65534)
        level = kind.open(memory)
        stored = {x(0): put(level, x(0), raw(1000))}
        place = kind.place(memory)
        place.chmod(0o555 if place.is_dir() else 0o444)
        memory.chmod(0o555)
        for key, size in ((x(1), 1000), (x(2), 500_000)):
            stored |= written(level, key, size, place, "Permission denied")
            assert held(level) == stored
        level.close()
        with pytest.raises(BadInput, match=r"not writable|Permission denied"):
            kind.open(memory)
        with pytest.raises(BadInput, match=r"cannot be made|Permission denied"):
            kind.open(memory / "below")
        memory.chmod(0o755)

    in_child(body)


@DURABLE
def test_a_level_may_be_deleted_while_it_is_open(kind: Kind, tmp_path: Path) -> None:
    """What is held can be read as long as it is open; nothing more is acknowledged."""
    for end in ("close", "remove"):
        level = kind.open(tmp_path)
        stored = {x(step): put(level, x(step), raw(1000), seed=step) for step in range(3)}
        level.discard(x(2))
        del stored[x(2)]
        place = kind.place(tmp_path)
        shutil.rmtree(place) if place.is_dir() else place.unlink()
        for key, size in ((x(3), 1000), (x(4), 500_000)):
            assert written(level, key, size, place, "") == {}
            assert held(level) == stored
        getattr(level, end)()
        assert list(tmp_path.iterdir()) == []
    level = kind.open(tmp_path)
    assert held(level) == {}
    level.close()


def _total(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


# Several processes


def holder(kind: Kind, root: Path) -> tuple[int, int]:
    """A process that holds a level, once this returns, and the pipe whose end lets it go."""
    (ready, tell), (wait, end) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(end)
            level = kind.open(root)
            put(level, x(0), raw(1000))
            os.write(tell, b".")
            os.read(wait, 1)
            level.close()
        finally:
            os._exit(0)
    for fd in (tell, wait):
        os.close(fd)
    assert os.read(ready, 1) == b"."
    os.close(ready)
    return child, end


@PLAIN
@pytest.mark.parametrize("end", ["lets go", "is killed", "is stopped"])
def test_a_level_in_use_is_refused_at_once_until_its_holder_has_gone(
    kind: Kind, end: str, tmp_path: Path
) -> None:
    child, pipe = holder(kind, tmp_path)
    if end == "is stopped":
        os.kill(child, signal.SIGSTOP)
        os.waitpid(child, os.WUNTRACED)
    assert is_locked(kind.place(tmp_path))
    for _ in range(2):
        with pytest.raises(LevelInUse, match="in use by another process; wait for it") as error:
            kind.open(tmp_path)
        assert str(kind.place(tmp_path)) in str(error.value)
    if end == "lets go":
        os.close(pipe)
    else:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    level = kind.open(tmp_path)
    assert set(level.keys()) == {x(0)}
    level.close()
    assert not is_locked(kind.place(tmp_path))
