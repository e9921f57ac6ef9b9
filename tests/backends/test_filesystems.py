"""Levels on other file systems, on disks of their own, and in places that are none of the usual.

The disks are in memory, and can be switched off: from then on not one write reaches them. What
takes root and programs is skipped where they are not, and says so.
"""

import errno
import fcntl
import os
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from cli.commands import ckio

from ckio.actions import Key
from ckio.backends.base import Backend
from ckio.backends.directory import Directory
from ckio.backends.ram import Ram
from ckio.errors import BadInput, CkioError, LevelFull, LevelInUse, StorageError
from ckio.testing import get, put, raw, t, x

from .common import in_child, make_read_only, mount_small, use_up, with_own_mounts
from .workload import ANY_DURABILITY, Kind, fill, held, kinds, plain

ALL = pytest.mark.parametrize("kind", kinds(*ANY_DURABILITY), ids=str)
PLAIN = pytest.mark.parametrize("kind", plain("process"), ids=str)
DURABLE = pytest.mark.parametrize("kind", plain(*ANY_DURABILITY), ids=str)
DIRECTORIES = pytest.mark.parametrize(
    "kind", [kind for kind in kinds(*ANY_DURABILITY) if kind.backend is Directory], ids=str
)


def command(*words: object) -> str:
    """Run a program of the system, and return what it prints; without it the test is skipped."""
    line = list(map(str, words))
    if os.geteuid() != 0 or shutil.which(line[0]) is None:
        pytest.skip(f"{line[0]} takes root, and has to be installed")
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{' '.join(line)}: {done.stderr}")
    return done.stdout


# Disks


@dataclass(frozen=True)
class System:
    """A file system: how it is made, on a disk of which size and sectors, and how it is mounted."""

    name: str
    make: str
    mebibytes: int
    options: str = "noatime"
    sector: int = 512

    def __str__(self) -> str:
        return self.name


SYSTEMS = (
    System("ext4 in 1 KiB", "mkfs.ext4 -q -F -b 1024", 64),
    System("ext4 through its journal", "mkfs.ext4 -q -F", 96, "data=journal"),
    System("ext2", "mkfs.ext2 -q -F", 64),  # without fallocate, and without a journal
    System("xfs on sectors of 4 KiB", "mkfs.xfs -q", 320, sector=4096),
    System("btrfs", "mkfs.btrfs -q", 128),
    System("btrfs, compressed", "mkfs.btrfs -q", 128, "compress-force=zstd"),
)

EVERYWHERE = pytest.mark.parametrize("system", SYSTEMS, ids=str)

_SEAL = 0x10  # F_SEAL_FUTURE_WRITE: what holds the file cannot write to it any more


class Disk:
    """A file system on a disk in memory, mounted under `root`."""

    def __init__(self, system: System, root: Path) -> None:
        self.system, self.place = system, root / "disk"
        self.place.mkdir()
        self._image = os.memfd_create("disk", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._image, system.mebibytes << 20)
        device = self._attach()
        command(*system.make.split(), device)
        self._mount(device)

    @property
    def device(self) -> str:
        """Its device."""
        return command("findmnt", "-n", "-o", "SOURCE", self.place).split("[")[0].strip()

    def die(self) -> None:
        """Let nothing more be written to it; what was not, is lost."""
        fcntl.fcntl(self._image, fcntl.F_ADD_SEALS, _SEAL)

    def revive(self) -> None:
        """Go on with what it had when it died."""
        command("umount", self.place)
        dead, self._image = self._image, os.memfd_create("disk", os.MFD_ALLOW_SEALING)
        os.ftruncate(self._image, self.system.mebibytes << 20)
        end = 0
        with suppress(OSError):  # behind the last data there is none
            while True:
                begin = os.lseek(dead, end, os.SEEK_DATA)
                end = os.lseek(dead, begin, os.SEEK_HOLE)
                for at in range(begin, end, 1 << 20):
                    os.pwrite(self._image, os.pread(dead, min(1 << 20, end - at), at), at)
        os.close(dead)
        device = self._attach()
        if "ext2" in self.system.make:  # which has no journal to go by
            subprocess.run(["e2fsck", "-fy", device], capture_output=True, check=False)
        self._mount(device)

    def cut(self, mebibytes: int) -> None:
        """Let only so much be left of it, at its beginning."""
        os.ftruncate(self._image, mebibytes << 20)
        command("losetup", "-c", self.device)

    def _attach(self) -> str:
        image = f"/proc/{os.getpid()}/fd/{self._image}"
        sectors = f"--sector-size={self.system.sector}"
        return command("losetup", sectors, "-f", "--show", image).strip()

    def _mount(self, device: str) -> None:
        try:
            command("mount", "-o", self.system.options, device, self.place)
        finally:
            command("losetup", "-d", device)  # once it is not mounted any more


def on_disk(system: System, root: Path, body: Callable[[Disk], None]) -> None:
    """Run `body` with a disk of its own."""

    def with_disk() -> None:
        disk = Disk(system, root)
        try:
            body(disk)
        finally:
            os.chdir("/")
            subprocess.run(["umount", "-l", str(disk.place)], check=False, capture_output=True)

    with_own_mounts(with_disk)


# Conformance


DIRECT = "test_direct.py::TestDirectDirectory"
TESTS = (
    "test_directory.py::TestSyncedDirectory",
    "test_hdf5.py::TestSyncedArchive",
    "test_kills.py::test_a_killed_writer_loses_nothing_and_leaves_nothing_torn",
)


def conform(place: Path, *tests: str) -> None:
    """Run what is shipped for levels, and their kills, with all files in a place."""
    here = Path(__file__).parent
    line = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    line += [f"--basetemp={place / 'tests'}", "-o", "tmp_path_retention_policy=none"]
    line += [str(here / test) for test in tests]
    environment = {**os.environ, "TMPDIR": str(place)}
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr


@pytest.mark.slow
@EVERYWHERE
def test_a_level_conforms_on_any_file_system(system: System, tmp_path: Path) -> None:
    on_disk(system, tmp_path, lambda disk: conform(disk.place, DIRECT, *TESTS))


# Room


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS[:4], ids=str)
def test_what_was_reserved_can_be_written_again_and_again(system: System, tmp_path: Path) -> None:
    """Where a write takes no new room; on btrfs it does."""

    def body(disk: Disk) -> None:
        durable = plain(*ANY_DURABILITY)
        levels = [kind.open(disk.place / str(kind)) for kind in durable]
        for level in levels:
            level.reserve({100_000: 4})
            level.prepare(x(0), raw(100_000), 4)
        os.sync()
        use_up(disk.place)
        for turn in range(3):
            for level in levels:
                stored = {x(s): put(level, x(s), raw(100_000), seed=9 * turn + s) for s in range(4)}
                assert held(level) == stored
                for key in stored:
                    level.discard(key)
            os.sync()
        for level in levels:
            level.close()

    on_disk(system, tmp_path, body)


@pytest.mark.slow
@ALL
def test_a_quota_is_a_full_level(kind: Kind, tmp_path: Path) -> None:
    def body(disk: Disk) -> None:
        part = disk.place / "part"
        command("btrfs", "quota", "enable", disk.place)
        command("btrfs", "subvolume", "create", part)
        command("btrfs", "qgroup", "limit", "4M", part)
        level = kind.open(part)
        stored, reason = fill(level, 200_000)
        assert "Disk quota exceeded" in reason
        with pytest.raises(LevelFull, match="Disk quota exceeded"):
            level.reserve({200_000: 40})
        for _ in range(2):
            assert len(stored) > 4
            assert held(level) == stored
            level.close()
            level = kind.open(part)
        level.discard(x(0))
        put(level, x(0), raw(200_000))
        level.remove()  # type: ignore[attr-defined]
        assert list(part.iterdir()) == []

    on_disk(System("btrfs", "mkfs.btrfs -q", 128), tmp_path, body)


# Disks that fail

DEAD = r"Input/output error|Read-only file system"


@pytest.mark.campaign
@EVERYWHERE
def test_a_disk_that_dies_keeps_what_was_acknowledged(system: System, tmp_path: Path) -> None:
    """And acknowledges nothing more: neither a write nor a discard."""

    def body(disk: Disk) -> None:
        durable = plain("fdatasync", "direct")
        stored: dict[Kind, dict[Key, bytes]] = {kind: {} for kind in durable}
        for turn in range(3):
            levels = {kind: kind.open(disk.place / str(kind)) for kind in durable}
            for kind, level in levels.items():
                assert held(level) == stored[kind]
                for step in range(turn, turn + 5):
                    if x(step) in stored[kind]:
                        level.discard(x(step))
                        del stored[kind][x(step)]
                    else:
                        data = put(level, x(step), raw(90_000 * turn + 500), seed=step)
                        stored[kind][x(step)] = data
            disk.die()
            for kind, level in levels.items():
                oldest = min(stored[kind], key=str)
                for key, call in (
                    (t(1), partial(put, level, t(1), raw(500))),
                    (t(2), partial(put, level, t(2), raw(99_999))),
                    (oldest, partial(level.discard, oldest)),
                ):
                    with pytest.raises(StorageError, match=DEAD) as error:
                        call()
                    assert str(kind.place(disk.place / str(kind))) in str(error.value)
                    assert str(key) in str(error.value)
                del stored[kind][oldest]
                with suppress(StorageError):
                    level.close()
            disk.revive()
            for kind in durable:  # what was in flight is absent or complete
                level = kind.open(disk.place / str(kind))
                for key in {t(1), t(2), *level.keys()} & set(level.keys()) - set(stored[kind]):
                    get(level, key, level.layout(key))
                    level.discard(key)
                level.close()

    on_disk(system, tmp_path, body)


@pytest.mark.slow
@pytest.mark.parametrize("system", [SYSTEMS[0], SYSTEMS[4]], ids=str)
def test_a_disk_of_which_a_part_is_gone_gives_no_wrong_bytes(
    system: System, tmp_path: Path
) -> None:
    def body(disk: Disk) -> None:
        for kind in kinds("process", "fdatasync", "direct"):
            level = kind.open(disk.place / str(kind))
            for step in range(4):
                put(level, x(step), raw(1_000_000), seed=step)
            level.close()
        os.sync()
        levels = [kind.open(disk.place / str(kind)) for kind in kinds("process", "direct")]
        for level in levels:
            level.evict()
        disk.cut(16)
        gone = [read(level, step) for level in levels for step in range(4)].count(False)
        assert gone
        for level in levels:
            with suppress(StorageError):
                level.close()

    def read(level: Backend, step: int) -> bool:
        """Whether a checkpoint can be read; then it is what was written."""
        try:
            found = get(level, x(step), raw(1_000_000))
        except StorageError as error:
            cause = error
        else:
            assert found == put(Ram(), x(step), raw(1_000_000), seed=step)
            return True
        assert f"x_{step}" in str(cause)
        return False

    on_disk(system, tmp_path, body)


# Places that change under an open level


def refuse_what_is_new(level: Backend, stored: dict[Key, bytes]) -> None:
    """It takes no file of slots that would be another directory's, and holds what it held."""
    with pytest.raises(StorageError, match=r"x_5 .*: it was moved, deleted, or unmounted"):
        put(level, x(5), raw(300_000))
    assert held(level) == stored


@DURABLE
def test_a_level_that_was_moved_makes_and_deletes_nothing_where_it_was(
    kind: Kind, tmp_path: Path
) -> None:
    level = kind.open(tmp_path)
    stored = {x(0): put(level, x(0), raw(1000))}
    moved = kind.place(tmp_path).rename(tmp_path / "moved")
    other = kind.open(tmp_path)
    of_other = {x(1): put(other, x(1), raw(1000), seed=7)}
    if kind.backend is Directory:  # an archive needs no new file
        refuse_what_is_new(level, stored)
    with pytest.raises(StorageError, match="removing it failed: it was moved"):
        level.remove()  # type: ignore[attr-defined]
    other.close()
    other = kind.open(tmp_path)
    assert held(other) == of_other
    other.remove()  # type: ignore[attr-defined]
    moved.rename(kind.place(tmp_path))
    level = kind.open(tmp_path)
    assert held(level) == stored
    level.close()


@DIRECTORIES
def test_a_directory_that_was_unmounted_makes_nothing_in_the_mount_point(
    kind: Kind, tmp_path: Path
) -> None:
    def body() -> None:
        mount_small(tmp_path, "size=4m")
        level = kind.backend(tmp_path, durability=kind.durability)
        stored = {x(0): put(level, x(0), raw(1000))}
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)
        refuse_what_is_new(level, stored)
        assert list(tmp_path.iterdir()) == []
        level.close()

    if shutil.which("umount") is None:
        pytest.skip("umount has to be installed")
    with_own_mounts(body)


# Names, links, modes, limits, clocks


@DURABLE
def test_a_name_may_be_of_any_bytes_and_nearly_as_long_as_a_path_can_be(
    kind: Kind, tmp_path: Path
) -> None:
    root = tmp_path / os.fsdecode(b"caf\xe9: a\nb") / ("n" * 255)
    while len(os.fsencode(root)) < 3700:
        root /= "n" * 255
    level = kind.open(root)
    stored = {x(step): put(level, x(step), raw(9 ** (step + 2)), seed=step) for step in range(4)}
    level.close()
    level = kind.open(root)
    assert held(level) == stored
    assert len(kind.contents(root)) == 4
    level.remove()  # type: ignore[attr-defined]


@DURABLE
def test_a_name_that_is_too_long_leaves_no_directories(kind: Kind, tmp_path: Path) -> None:
    root = tmp_path / ("n" * 200)
    while len(os.fsencode(root)) < 3800:
        root /= "n" * 200
    root /= "n" * (4086 - len(os.fsencode(kind.place(root))))
    with pytest.raises(CkioError, match="File name too long"):
        kind.open(root)
    assert list(tmp_path.iterdir()) == []


@DURABLE
def test_a_place_may_be_behind_a_link(kind: Kind, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    level = kind.open(tmp_path / "link")
    stored = {x(0): put(level, x(0), raw(1000)), x(1): put(level, x(1), raw(100_000))}
    with pytest.raises(LevelInUse):
        kind.open(tmp_path / "there")
    level.close()
    level = kind.open(tmp_path / "there")
    assert held(level) == stored
    level.remove()  # type: ignore[attr-defined]
    assert list((tmp_path / "there").iterdir()) == []


@PLAIN
@pytest.mark.parametrize(("umask", "group"), [(0o077, 0), (0o002, stat.S_IRGRP | stat.S_IWGRP)])
def test_files_are_for_whom_the_umask_says(
    kind: Kind, umask: int, group: int, tmp_path: Path
) -> None:
    def body() -> None:
        os.umask(umask)
        level = kind.open(tmp_path)
        put(level, x(0), raw(1000))
        level.close()
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert files
        for path in files:
            mode = stat.S_IMODE(path.stat().st_mode)
            assert mode & stat.S_IRWXG == group
            assert not mode & stat.S_IXUSR

    in_child(body)


@pytest.mark.campaign
@ALL
def test_a_process_without_file_descriptors_is_refused_and_loses_nothing(
    kind: Kind, tmp_path: Path
) -> None:
    def body() -> None:
        level = kind.open(tmp_path)
        stored = {x(0): put(level, x(0), raw(1000))}
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        taken = [os.open("/dev/null", os.O_RDONLY)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 1, soft))
        with pytest.raises((BadInput, StorageError), match="Too many open files"):
            kind.open(tmp_path / "other")
        if kind.backend is Directory:  # which needs another file
            with pytest.raises(StorageError, match=r"x_1 .*Too many open files"):
                put(level, x(1), raw(100_000))
        assert held(level) == stored
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, soft))
        stored[x(1)] = put(level, x(1), raw(100_000))
        assert held(level) == stored
        level.close()

    in_child(body)


@DURABLE
def test_of_two_with_one_key_the_younger_is_valid_whatever_the_clock_says(
    kind: Kind, tmp_path: Path
) -> None:
    for day in (9, 5, 7, 1):
        level = kind.open(tmp_path, now=lambda day=day: 86400.0 * day)
        if day != 9:
            level.discard(x(0))
        stored = {x(0): put(level, x(0), raw(1000), seed=day)}
        level.close()
        level = kind.open(tmp_path)
        assert held(level) == stored
        level.close()


def test_what_was_stored_by_a_clock_ahead_of_ours_is_not_of_a_negative_age(tmp_path: Path) -> None:
    level = Directory(tmp_path / "level", now=lambda: 4e9)
    put(level, x(0), raw(1000))
    level.close()
    assert " 0 s " in ckio("inspect", "level", at=tmp_path).stdout
    ckio("inspect", "level", "--remove", "--yes", at=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.campaign
@ALL
def test_what_lies_on_a_medium_that_cannot_be_written_is_inspected(
    kind: Kind, tmp_path: Path
) -> None:
    def body() -> None:
        level = kind.open(tmp_path)
        put(level, x(0), raw(1000))
        put(level, x(1), raw(100_000))
        level.close()
        make_read_only(tmp_path)
        where = kind.place(tmp_path)
        assert "2 checkpoints" in ckio("inspect", where, "--verify", at=tmp_path).stdout
        said = ckio("inspect", where, "--remove", "--yes", at=tmp_path, status=1).stderr
        assert "Read-only file system" in said

    with_own_mounts(body)


# File systems without locks


@pytest.fixture
def lock_error(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Every lock fails as on such a file system: Lustre without `flock`, NFS without lockd, DVS."""
    number: int = request.param

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    def only_others(fd: int, command: int, argument: object = 0) -> object:
        return refuse() if command == fcntl.F_OFD_SETLK else others(fd, command, argument)

    others = fcntl.fcntl
    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(fcntl, "fcntl", only_others)
    return number


WITHOUT_LOCKS = errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, 524


@pytest.mark.parametrize("lock_error", WITHOUT_LOCKS, indirect=True)
@PLAIN
def test_a_level_opens_with_a_warning_where_there_are_no_locks(
    kind: Kind, tmp_path: Path, lock_error: int, caplog: pytest.LogCaptureFixture
) -> None:
    level = kind.open(tmp_path)
    assert "has no locks" in caplog.text
    assert "make sure that no other process uses it" in caplog.text
    stored = put(level, x(0), raw(900))
    level.close()
    level = kind.open(tmp_path)
    assert get(level, x(0), raw(900)) == stored
    level.remove()  # type: ignore[attr-defined]
    level = kind.open(tmp_path)
    put(level, x(1), raw(900))
    level.close()
    kind.backend.remove_files(kind.place(tmp_path))  # type: ignore[attr-defined]
    assert not kind.place(tmp_path).exists()


@pytest.mark.parametrize("lock_error", [errno.EIO, errno.EACCES], indirect=True)
@PLAIN
def test_a_lock_that_fails_for_another_reason_is_an_error(
    kind: Kind, tmp_path: Path, lock_error: int
) -> None:
    with pytest.raises((BadInput, StorageError)):
        kind.open(tmp_path)
