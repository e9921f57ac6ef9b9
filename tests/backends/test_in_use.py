"""A level that this process uses itself is said to be its own, and garbage holds no lock."""

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckio import Directory, Field, Hdf5, Job, Key, Kind
from ckio.backends.files import Files
from ckio.errors import LevelInUse

LAYOUT = (Field("u", "<f8", (3,)),)
KEY = Key(Kind.RESTART, 1)

KINDS = pytest.mark.parametrize("kind", [Directory, Hdf5])


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@KINDS
def test_the_message_names_this_process(tmp_path: Path, kind: Any) -> None:
    level = kind(tmp_path / "ck.h5")
    with pytest.raises(LevelInUse, match=r"an object of this process; call its method close\(\)"):
        kind(tmp_path / "ck.h5")
    level.close()
    kind(tmp_path / "ck.h5").close()


class Removed(Files):
    """Files that another process removes at the moment when they are to be opened."""

    def open(self, path: Path, /, *, create: bool = True) -> int:
        if path.name == "ck.h5":
            path.unlink()
        return super().open(path, create=create)


def test_an_archive_that_is_removed_while_it_is_opened_leaves_no_empty_file(tmp_path: Path) -> None:
    Hdf5(tmp_path / "ck.h5").close()
    with pytest.raises(LevelInUse, match="in use by another process"):
        Hdf5(tmp_path / "ck.h5", files=Removed())
    assert list(tmp_path.iterdir()) == []
    Hdf5(tmp_path / "ck.h5").close()


@KINDS
@pytest.mark.parametrize("in_a_circle", [False, True])
def test_an_object_that_is_garbage_has_no_lock_and_keeps_its_checkpoints(
    tmp_path: Path, kind: Any, in_a_circle: bool
) -> None:
    gc.collect()
    before = descriptors()

    def written() -> None:
        level = kind(tmp_path / "ck.h5")
        level.write(KEY, LAYOUT, [memoryview(np.arange(3.0)).cast("B")])
        if in_a_circle:
            level.itself = level

    written()
    level, data = kind(tmp_path / "ck.h5"), np.zeros(3)
    level.read(KEY, [memoryview(data).cast("B")])
    assert data.tolist() == [0, 1, 2]
    level.close()
    del level
    gc.collect()
    assert descriptors() == before


def test_a_run_that_is_left_by_an_error_holds_nothing(tmp_path: Path) -> None:
    from jobs.test_gradients import Decay, priced

    def job(hook: Any = None) -> Any:
        made = lambda: Decay(hook=hook)  # noqa: E731
        made.__qualname__ = "Decay"
        platform = priced(made, tmp_path / "ck.h5")
        run = tmp_path / "run"
        return Job(run, model=made, steps=9, platform=platform, planner="hrevolve").run()

    def fails() -> None:
        if (tmp_path / "run" / "manifest.json").exists():
            raise ValueError

    with pytest.raises(Exception, match="ValueError") as kept:
        job(fails)
    assert job().functional > 0
    assert kept.value.__traceback__ is not None  # the frames of the failed run still exist
