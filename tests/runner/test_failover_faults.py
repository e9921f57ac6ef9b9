"""Levels that really fail in mid-run: full disks, deleted files, flipped bytes, lost permissions.

Some runs know their length, and some do not. What takes a mount is done in a child with mounts of
its own, which go away with it; where the machine does not allow that, the test is skipped.
"""

import ctypes
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from small_models import digest

from ckio.backends.base import Backend
from ckio.backends.compressed import Compressed
from ckio.backends.contents import Stored
from ckio.backends.directory import Directory
from ckio.backends.hdf5 import Hdf5
from ckio.backends.ram import Ram
from ckio.compression import Zstd
from ckio.errors import BadInput, StorageError
from ckio.planners.dp import hrevolve
from ckio.schedule.timeline import Event
from tests.backends.common import mount_small, with_own_mounts

from .failing import Logistic, Told, Unknown, chain_of, platform_of, truth

SIZE, STEPS = 20_000, 9
CHAIN = chain_of(STEPS, SIZE)
PLATFORM = platform_of(CHAIN, 1, 1, 2)
PLAN = hrevolve(CHAIN, PLATFORM)
TRUTH = truth(STEPS, SIZE)
MOMENTS = range(2, len(PLAN), len(PLAN) // 3)

Watch = Callable[[Event], None]


def known(levels: Sequence[Backend], watch: Watch) -> list[str]:
    """Return what a planned run said."""
    told = Told(fresh=lambda: Logistic(SIZE))
    _, model = told.run(PLAN, PLATFORM, levels, watch=watch)
    assert digest(model) == TRUTH
    return told.said


def unknown(levels: Sequence[Backend], watch: Watch) -> list[str]:
    """Return what a run said that found its end on the way."""
    run = Unknown(PLATFORM, levels, size=SIZE, steps=STEPS, watch=watch)
    assert run.back(run.forward()) == TRUTH
    return run.said


KINDS = pytest.mark.parametrize("kind", [Directory, Hdf5])
RUNS = pytest.mark.parametrize("run", [known, unknown])
Run = Callable[[Sequence[Backend], Watch], list[str]]
Fault = Callable[[Path], None]


def place_of(root: Path, kind: type[Backend]) -> Path:
    return root / ("level" if kind is Directory else "level.h5")


def struck(
    root: Path,
    kind: type[Backend],
    fault: Fault,
    *,
    run: Run = known,
    role: int = 1,
    promised: float = 1.0,
    moments: Sequence[int] = MOMENTS,
) -> list[str]:
    """What runs say whose level in this role is struck, each at another moment.

    The level's directory or archive is in `root`; the other two levels are in memory. It is
    compressed if less than all of its bytes is promised to be stored.
    """
    said, place = list[str](), place_of(root, kind)
    for moment in moments:
        seen = list[Event]()
        level: Backend = kind(place)  # type: ignore[call-arg]
        if promised < 1:
            level = Compressed(level, Zstd(1), ratio=promised)

        def watch(event: Event, seen: list[Event] = seen, moment: int = moment) -> None:
            seen.append(event)
            if len(seen) == moment:
                fault(place)

        try:
            said += run([level if number == role else Ram() for number in range(3)], watch)
        finally:
            with suppress(StorageError):
                level.remove()  # type: ignore[attr-defined]
            with suppress(OSError):
                (root / "other").unlink(missing_ok=True)
    return said


def deleted(place: Path) -> None:
    shutil.rmtree(place) if place.is_dir() else place.unlink()


def payloads(place: Path) -> list[Stored]:
    kind = Directory if place.is_dir() else Hdf5
    with suppress(BadInput):  # nothing is stored yet
        return [item for item in kind.contents(place) if isinstance(item, Stored)]
    return []


def flipped(place: Path) -> None:
    """A byte of every payload that is stored."""
    for item in payloads(place):
        with item.path.open("r+b") as file:
            file.seek(item.spans[0][0] + 100)
            byte = file.read(1)[0] ^ 0x10
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte]))


def cut_off(place: Path) -> None:
    """Every file in the middle of the first payload in it."""
    for item in payloads(place):
        if item.path.stat().st_size > item.spans[0][0] + 100:
            os.truncate(item.path, item.spans[0][0] + 100)


@pytest.mark.campaign
@KINDS
@RUNS
@pytest.mark.parametrize("fault", [deleted, flipped, cut_off])
def test_a_level_is_damaged_under_the_run(
    fault: Fault, run: Run, kind: type[Backend], tmp_path: Path
) -> None:
    for role in range(3):
        said = struck(tmp_path, kind, fault, run=run, role=role)
        assert list(tmp_path.iterdir()) == []
        # On the way to an unknown end, a far level may hold nothing that could be damaged.
        assert said or (run is unknown and fault is not deleted)
        assert all(f"level{role}" in text for text in said)


# What takes mounts, limits or another user


def used_up(place: Path) -> None:
    """No room is left on the file system."""
    with (place.parent / "other").open("wb", buffering=0) as other, suppress(OSError):
        while other.write(bytes(4096)):
            pass


@pytest.mark.campaign
@KINDS
@RUNS
def test_the_disk_becomes_full(run: Run, kind: type[Backend], tmp_path: Path) -> None:
    """Reserved was what a codec promised; the states take more."""

    def body() -> None:
        mount_small(tmp_path, "size=8m")
        said = list[str]()
        for role in range(3):
            said += struck(tmp_path, kind, used_up, run=run, role=role, promised=0.05)
            assert list(tmp_path.iterdir()) == []
        assert any(" is full" in text and "No space left on device" in text for text in said)

    with_own_mounts(body)


_DETACH = 2


def unmounted(place: Path) -> None:
    """Lazily: what is open stays open, nothing is found there any more."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(str(place.parent).encode(), _DETACH):
        pytest.skip(f"umount: {os.strerror(ctypes.get_errno())}")
