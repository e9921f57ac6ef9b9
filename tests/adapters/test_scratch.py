"""Levels of a platform opened for a while: what is put comes back, and nothing stays behind."""

import gc
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from ckio import Chain, Ram, run
from ckio.actions import Key, Kind
from ckio.adapters.scratch import Scratch
from ckio.errors import BadInput, LevelFull, MissingCheckpoint, StorageError
from ckio.planners import multistage
from ckio.platform import Level, Platform
from ckio.testing import CountingModel

CHAIN = Chain(steps=9, advance=1.0, record=1.0, reverse=1.0, restart=64, tape=64, adjoint=64)


def files(place: Path) -> list[Path]:
    return [path for path in place.rglob("*") if path.is_file()]


def room(place: Path, backend: str = "directory", **more: Any) -> Platform:
    name = {"directory": "d", "hdf5": "a.h5"}.get(backend)
    options = {"path": str(place / name)} if name else {}
    return Platform((Level(name="only", backend=backend, options=options, **more),))


BACKENDS = pytest.mark.parametrize("backend", ["ram", "directory", "hdf5"])

STRANGE = {
    "nothing": np.zeros((0, 3)),
    "a number": np.array(2.5),
    "fortran": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "every other": np.arange(24.0).reshape(4, 6)[::2, ::-3],
    "big-endian": np.arange(5, dtype=">f8"),
    "complex": np.arange(4) * (1 + 2j),
    "flags": np.array([True, False, True]),
    "halves": np.arange(3, dtype=np.float16),
    "read only": np.broadcast_to(np.float64(7), (3, 2)),
}


@BACKENDS
def test_arrays_come_back(backend: str, tmp_path: Path) -> None:
    with Scratch(room(tmp_path, backend)) as scratch:
        for name, array in STRANGE.items():
            before = array.copy()
            key = scratch.put(0, {"it": array, "other": np.ones(2)})
            got = scratch.get(0, key)
            assert got["it"].dtype == array.dtype, name
            assert got["it"].tobytes() == array.tobytes() or np.array_equal(got["it"].T, array)
            into = np.empty_like(before, order="C" if name != "fortran" else "F")
            scratch.get(0, key, {"it": into, "other": np.empty(2)})
            assert np.array_equal(into, before), name
    assert files(tmp_path) == []


@pytest.mark.parametrize("name", ["disk", "nvme", "level1", "rams"])
def test_a_level_that_has_no_backend_is_refused_whatever_its_name(name: str) -> None:
    """Otherwise a disk would be memory without a word."""
    near = Level(name="ram", capacity=10)
    with pytest.raises(BadInput, match=f"level '{name}' has no backend.*give it backend="):
        Scratch(Platform((near, Level(name=name, capacity=10**9))))


def test_the_backend_follows_from_the_path(tmp_path: Path) -> None:
    levels = [
        Level(name=name, options={"path": str(tmp_path / path)})
        for name, path in (("ram", "d"), ("b", "b.h5"), ("c", "c.hdf5"))
    ]
    assert [level.backend for level in levels] == ["directory", "hdf5", "hdf5"]
    with Scratch(Platform((*levels, Level(name="memory")))) as scratch:
        for number in range(4):
            scratch.put(number, {"u": np.ones(3)})
        folders = {path.relative_to(tmp_path).parts[0][:1] for path in files(tmp_path)}
        assert folders == {"d", "b", "c"}


RECORDS = np.array([(1, 2.5), (3, 4.5)], dtype=[("i", "<i4"), ("x", "<f8")])


@pytest.mark.parametrize(
    "array", [RECORDS, np.array([{}]), np.array(["text"]), np.array(["now"], "M8[s]")]
)
def test_what_is_no_plain_number_is_refused(array: Any) -> None:
    """Records too: they would come back as bytes without names."""
    with Scratch(Platform((Level(name="ram"),))) as scratch:
        key = scratch.put(0, {"a": np.zeros(24, np.uint8)})
        with pytest.raises(BadInput, match="plain"):
            scratch.put(0, {"a": array})
        with pytest.raises(BadInput, match="does not fit"):
            scratch.get(0, key, {"a": array})


@BACKENDS
def test_wrong_arrays_are_not_touched(backend: str, tmp_path: Path) -> None:
    with Scratch(room(tmp_path, backend)) as scratch:
        key = scratch.put(0, {"u": np.ones(4)})
        for wrong in ({"v": np.zeros(4)}, {"u": np.zeros(3)}, {"u": np.zeros(4, "f4")}, {}):
            with pytest.raises(BadInput, match="does not fit"):
                scratch.get(0, key, wrong)
            assert not any(array.any() for array in wrong.values())
        apart = np.zeros(8)
        with pytest.raises(BadInput):
            scratch.get(0, key, {"u": apart[::2]})
        assert not apart.any()


@BACKENDS
def test_what_is_not_there(backend: str, tmp_path: Path) -> None:
    with Scratch(room(tmp_path, backend)) as scratch:
        key = scratch.put(0, {"u": np.ones(4)})
        scratch.drop(0, key)
        for do in (scratch.get, scratch.drop):
            with pytest.raises(MissingCheckpoint):
                do(0, key)
            with pytest.raises(MissingCheckpoint):
                do(0, Key(Kind.RESTART, 99))


@BACKENDS
def test_after_close_it_says_so(backend: str, tmp_path: Path) -> None:
    scratch = Scratch(room(tmp_path, backend))
    key = scratch.put(0, {"u": np.ones(4)})
    scratch.close()
    scratch.close()
    assert files(tmp_path) == []
    with pytest.raises(StorageError, match="closed"):
        scratch.put(0, {"u": np.ones(4)})
    for do in (scratch.get, scratch.drop):
        with pytest.raises(StorageError, match="closed"):
            do(0, key)
    assert files(tmp_path) == []


@BACKENDS
def test_a_full_level_stays_usable(backend: str, tmp_path: Path) -> None:
    with Scratch(room(tmp_path, backend, capacity=64)) as scratch:
        keys = [scratch.put(0, {"u": np.full(4, i)}) for i in range(2)]
        with pytest.raises(LevelFull):
            scratch.put(0, {"u": np.zeros(4)})
        scratch.drop(0, keys[0])
        again = scratch.put(0, {"u": np.full(4, 9)})
        assert scratch.get(0, keys[1])["u"].tolist() == [1] * 4
        assert scratch.get(0, again)["u"].tolist() == [9] * 4


@BACKENDS
def test_many_threads(backend: str, tmp_path: Path) -> None:
    """Each puts, gets and drops its own; keys are nobody else's, and arrays are whole."""
    wrong: list[Any] = []

    def work(number: int) -> None:
        try:
            for i in range(25):
                array = np.full(50 + number, 100.0 * number + i)
                key = scratch.put(0, {"u": array})
                if not np.array_equal(scratch.get(0, key)["u"], array):
                    wrong.append(key)
                if i % 3:
                    scratch.drop(0, key)
        except Exception as error:
            wrong.append(error)

    with Scratch(room(tmp_path, backend)) as scratch:
        threads = [Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert len(list(scratch.backends[0].keys())) == 6 * 9
    assert files(tmp_path) == []


def test_a_level_that_cannot_be_opened_closes_the_others(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    bad = Level(name="bad", backend="directory", options={"path": str(tmp_path / "file")})
    good = room(tmp_path).levels[0]
    with pytest.raises(BadInput, match="level 'bad'"):
        Scratch(Platform((good, bad)))
    assert files(tmp_path) == [tmp_path / "file"]
    assert list((tmp_path / "d").iterdir() if (tmp_path / "d").exists() else ()) == []


@pytest.mark.slow
def test_what_is_forgotten_goes(tmp_path: Path) -> None:
    scratch = Scratch(room(tmp_path))
    scratch.put(0, {"u": np.ones(4)})
    assert files(tmp_path)
    del scratch
    gc.collect()
    assert files(tmp_path) == []


SCRIPT = """
import os, sys
import numpy as np
from ckio.adapters.scratch import Scratch
from ckio.platform import Level, Platform
level = Level(name="d", backend="directory", options={"path": "d"})
scratch = Scratch(Platform((level,)))
key = scratch.put(0, {"u": np.ones(4)})
"""


@pytest.mark.campaign
@pytest.mark.parametrize("end", ["", "sys.exit(3)", "1 / 0"])
def test_a_process_that_ends_leaves_nothing(end: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", SCRIPT + end], cwd=tmp_path, check=False, timeout=60)
    assert files(tmp_path) == []


def test_a_fork_takes_nothing_away(tmp_path: Path) -> None:
    """A child that ends, by whatever way, leaves its parent's files alone."""
    child = """
import multiprocessing as mp
def nothing(): pass
for way in (lambda: mp.get_context("fork").Process(target=nothing), None):
    if way is None:
        pid = os.fork()
        if pid == 0:
            sys.exit(0)
        os.waitpid(pid, 0)
    else:
        it = way()
        it.start()
        it.join()
assert scratch.get(0, key)["u"].tolist() == [1] * 4
assert any(os.scandir("d"))
"""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + child],
        cwd=tmp_path, check=False, timeout=60, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert files(tmp_path) == []


def test_an_error_inside_is_the_one_that_is_raised(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Scratch(room(tmp_path)) as scratch:
        assert scratch.put(0, {"u": np.ones(4)}).step / 0
    assert files(tmp_path) == []


@BACKENDS
def test_a_run_without_backends_opens_its_levels_and_leaves_nothing(
    backend: str, tmp_path: Path
) -> None:
    platform, seen = room(tmp_path, backend), set[Path]()
    schedule = multistage(CHAIN, platform)
    watch = lambda _: seen.update(files(tmp_path))  # noqa: E731
    timeline = run(schedule, platform, model := CountingModel(CHAIN), watch=watch)
    assert timeline.actions == schedule.actions
    assert model.adjoint == 0
    assert bool(seen) == (backend != "ram")
    assert files(tmp_path) == []


def test_a_run_that_fails_leaves_nothing(tmp_path: Path) -> None:
    platform = room(tmp_path)

    def fail(_: object) -> None:
        raise OverflowError

    with pytest.raises(OverflowError):
        run(multistage(CHAIN, platform), platform, CountingModel(CHAIN), watch=fail)
    assert files(tmp_path) == []


def test_a_run_with_backends_leaves_them_open(tmp_path: Path) -> None:
    platform, memory = room(tmp_path), Ram()
    run(multistage(CHAIN, platform), platform, CountingModel(CHAIN), [memory])
    assert list(memory.keys()) == []
    assert not (tmp_path / "d").exists()


def test_a_level_without_a_backend_is_refused_before_the_first_step() -> None:
    platform = Platform((Level(name="nvme"),))
    with pytest.raises(BadInput, match="level 'nvme' has no backend"):
        run(multistage(CHAIN, platform), platform, CountingModel(CHAIN))


def test_files_that_cannot_be_removed_cost_a_warning_and_no_result(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    def refuse(_: object) -> None:
        raise StorageError("d: Input/output error")

    monkeypatch.setattr(Ram, "remove", refuse)
    platform = room(tmp_path, "ram")
    run(multistage(CHAIN, platform), platform, model := CountingModel(CHAIN))
    assert model.adjoint == 0
    assert caplog.messages == ["the files of a temporary level remain: d: Input/output error"]
