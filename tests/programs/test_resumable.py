"""A reverse run that is killed goes on, and ends with the same bits."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from logistic import At, Logistic

from ckio.errors import BadInput, LevelInUse
from ckio.programs.checkpointed import checkpoint_vjp
from ckio.programs.interface import vjp
from ckio.testing.programs import adaptive_burgers as burgers

X = (np.array([0.1, 0.2]), 3.1, 500)
BAR = np.array([1.0, -2.0])


class Mortal(Logistic):
    """Kills its process after so many ticks, with or without a tape."""

    def __init__(self, ticks: float) -> None:
        super().__init__()
        self.left = ticks

    def _spend(self, ticks: float) -> None:
        self.left -= ticks
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def advance(self, state: At, limit: float = np.inf, /) -> tuple[At, int, bool]:
        self._spend(min(limit, state.left))
        return super().advance(state, limit)

    def pullback(self, state: At, ticks: int, ct: Any, /) -> dict[str, Any]:
        self._spend(ticks)
        return super().pullback(state, ticks, ct)


BURGERS = (1.5 + np.sin(np.linspace(0, 2 * np.pi, 60, endpoint=False)), 0.3, 1e-6)
BURGERS_BAR = np.linspace(1, 2, 60)


def survives(place: Path, ticks: float, result: Path, **more: Any) -> bool:
    """Whether a process that may run so many ticks comes to the end."""
    child = os.fork()
    if child == 0:
        try:
            y, xbar = checkpoint_vjp(Mortal(ticks), X, BAR, directory=place, **more)
            np.savez(result, y=y, x=xbar[0], rate=xbar[1])
            os._exit(0)
        except BaseException:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0
    return not os.WIFSIGNALED(status)


def check(result: Path) -> None:
    y, xbar = vjp(Logistic(), X, BAR)
    with np.load(result) as found:
        assert np.array_equal(found["y"], y)
        assert np.array_equal(found["x"], xbar[0])
        assert np.array_equal(found["rate"], xbar[1])


@pytest.mark.parametrize("more", [{}, {"schedule": "revolve", "slots": 5}], ids=str)
@pytest.mark.parametrize("ticks", [150, 230, 400, 777])
def test_killed_again_and_again(tmp_path: Path, ticks: int, more: dict[str, Any]) -> None:
    """However few ticks each process has, if they are some steps, it ends at last."""
    place, result = tmp_path / "run", tmp_path / "result.npz"
    lives = 1
    while not survives(place, ticks, result, base=10, every=0, **more):
        lives += 1
        assert lives < 60, "it comes no further"
    assert lives > 1
    check(result)
    assert not place.exists()


@pytest.mark.slow
@pytest.mark.parametrize("base", [3, 64])
def test_killed_at_any_tick(tmp_path: Path, base: int) -> None:
    for ticks in range(70, 3000, 31):
        place, result = tmp_path / f"run{ticks}", tmp_path / "result.npz"
        survives(place, ticks, result, base=base, every=0)
        assert survives(place, np.inf, result, base=base, every=0)
        check(result)
        assert not place.exists()


def killed_from_outside(place: Path, result: Path, seconds: float) -> bool:
    """Whether a process that solves a real problem has come to the end by then."""
    child = os.fork()
    if child == 0:
        y, xbar = checkpoint_vjp(burgers, BURGERS, BURGERS_BAR, base=8, directory=place, every=0.0)
        np.savez(result, y=y, u=xbar[0], viscosity=xbar[1])
        os._exit(0)
    time.sleep(seconds)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0
    return not os.WIFSIGNALED(status)


@pytest.mark.parametrize("kills", [6, *(pytest.param(n, marks=pytest.mark.slow) for n in (20, 40))])
def test_an_adaptive_solver_killed_at_any_moment(tmp_path: Path, kills: int) -> None:
    start = time.perf_counter()
    y, xbar = checkpoint_vjp(burgers, BURGERS, BURGERS_BAR, base=8)
    whole = time.perf_counter() - start
    for seed in range(kills // 2):
        place, result = tmp_path / f"run{seed}", tmp_path / f"{seed}.npz"
        random, lives = np.random.default_rng(seed), 1
        while not killed_from_outside(place, result, whole * random.uniform(0.1, lives / 2)):
            lives += 1
        with np.load(result) as found:
            assert np.array_equal(found["y"], y)
            assert np.array_equal(found["u"], xbar[0])
            assert np.array_equal(found["viscosity"], xbar[1])
        assert not place.exists()


def left(place: Path, ticks: int = 300) -> None:
    """What a process leaves that is killed on the way."""
    assert not survives(place, ticks, place / "none.npz", base=10, every=0)


def test_what_is_left_is_of_this_program_and_no_other(tmp_path: Path) -> None:
    class Changed(Logistic):
        fingerprint = "another"

    place = tmp_path / "run"
    left(place)
    before = sorted(path.name for path in place.rglob("*"))
    for program, x, bar, what in (
        (Changed(), X, BAR, "the code of the program has changed"),
        (Logistic(), (X[0], 3.2, 500), BAR, "the inputs have changed"),
        (Logistic(), (X[0], 3.1, 501), BAR, "the inputs have changed"),
        (Logistic(), X, 2 * BAR, "the cotangent of the result has changed"),
    ):
        with pytest.raises(BadInput, match=what):
            checkpoint_vjp(program, x, bar, base=10, directory=place)
    assert sorted(path.name for path in place.rglob("*")) == before
    _, xbar = checkpoint_vjp(Logistic(), X, BAR, base=10, directory=place)
    assert np.array_equal(xbar[0], vjp(Logistic(), X, BAR)[1][0])
    assert not place.exists()


def test_what_is_damaged_is_left_out(tmp_path: Path) -> None:
    for ticks in (300, 900, 1500):
        place = tmp_path / f"run{ticks}"
        left(place, ticks)
        for path in (place / "checkpoints").glob("slots-*"):
            data = bytearray(path.read_bytes())
            for at in range(len(data) // 3, len(data), 997):
                data[at] ^= 0x10
            path.write_bytes(data)
        _, xbar = checkpoint_vjp(Logistic(), X, BAR, base=10, directory=place)
        assert np.array_equal(xbar[0], vjp(Logistic(), X, BAR)[1][0])


def test_a_manifest_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "program.json").write_text("[1, 2")
    with pytest.raises(BadInput, match="does not say what was run"):
        checkpoint_vjp(Logistic(), X, BAR, base=10, directory=tmp_path)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    class Nested(Logistic):
        def advance(self, state: At, limit: float = np.inf, /) -> tuple[At, int, bool]:
            if state.left < 400:
                with pytest.raises(LevelInUse):
                    checkpoint_vjp(Logistic(), X, BAR, base=10, directory=tmp_path / "run")
            return super().advance(state, limit)

    checkpoint_vjp(Nested(), X, BAR, base=100, directory=tmp_path / "run")


def test_other_files_stay(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    checkpoint_vjp(Logistic(), X, BAR, base=10, directory=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]
