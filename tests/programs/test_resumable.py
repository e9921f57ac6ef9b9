"""A reverse run that is killed goes on, and ends with the same bits."""

import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from logistic import At, Logistic

from ckio.actions import Read, Reverse
from ckio.backends.directory import Directory
from ckio.errors import BadInput, LevelInUse
from ckio.programs import Options
from ckio.programs.checkpointed import CHECKPOINTS, StoredRun, checkpoint_vjp, task_of
from ckio.programs.interface import vjp
from ckio.schedule.timeline import Event

X = (np.array([0.1, 0.2]), 3.1, 500)
BAR = np.array([1.0, -2.0])


class Mortal:
    """A program that kills its process after so many ticks, run forward or back."""

    def __init__(self, program: Any, ticks: int) -> None:
        self.program, self.left = program, ticks

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)

    def advance(self, state: Any, limit: float = np.inf, /) -> Any:
        found = self.program.advance(state, min(limit, self.left))
        self.pass_by(found[1])
        return found

    def pullback(self, state: Any, ticks: int, cotangent: Any, /) -> Any:
        if self.left < ticks:  # fewer ticks on a tape would be refused, as those of another run
            self.program.advance(state, self.left)
            self.pass_by(ticks)
        found = self.program.pullback(state, ticks, cotangent)
        self.pass_by(ticks)
        return found

    def pass_by(self, ticks: int) -> None:
        self.left -= ticks
        if self.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


def survives(place: Path, ticks: float, result: Path, **more: Any) -> bool:
    """Whether a process that may run so many ticks comes to the end."""
    child = os.fork()
    if child == 0:
        try:
            y, xbar = checkpoint_vjp(
                Mortal(Logistic(), ticks), X, BAR, Options(directory=place, **more)
            )
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


@pytest.mark.campaign
@pytest.mark.parametrize("more", [{}, {"schedule": "revolve", "slots": 5}], ids=str)
@pytest.mark.parametrize("ticks", [400, 150, 777])
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


def left(place: Path, ticks: int = 300) -> None:
    """What a process leaves that is killed on the way."""
    assert not survives(place, ticks, place / "none.npz", base=10, every=0)


def test_what_is_left_is_of_this_program_and_no_other(tmp_path: Path) -> None:
    class Changed(Logistic):
        fingerprint = "another"

    place = tmp_path / "run"
    left(place)
    before = sorted(path.name for path in place.rglob("*"))
    for program, x, what in (
        (Changed(), X, "the code of the program, or the version"),
        (Logistic(), (X[0], 3.2, 500), "the inputs have changed"),
        (Logistic(), (X[0], 3.1, 501), "the inputs have changed"),
    ):
        with pytest.raises(BadInput, match=what):
            checkpoint_vjp(program, x, BAR, Options(base=10, directory=place))
    assert sorted(path.name for path in place.rglob("*")) == before
    _, xbar = checkpoint_vjp(Logistic(), X, BAR, Options(base=10, directory=place))
    assert np.array_equal(xbar[0], vjp(Logistic(), X, BAR)[1][0])
    assert not place.exists()


def test_another_cotangent_of_the_result(tmp_path: Path) -> None:
    """States do not depend on it, so that what was mistaken costs no second way forward."""
    place = tmp_path / "run"
    with pytest.raises(BadInput, match="cotangent of y"):
        checkpoint_vjp(Logistic(), X, np.ones(3), Options(base=10, directory=place))
    again = Logistic()
    _, xbar = checkpoint_vjp(again, X, BAR, Options(base=10, directory=place))
    assert np.array_equal(xbar[0], vjp(Logistic(), X, BAR)[1][0])
    left(place, 900)  # on the way back
    with pytest.raises(BadInput, match="the cotangent of the result has changed"):
        checkpoint_vjp(Logistic(), X, 2 * BAR, Options(base=10, directory=place))


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError], ids=lambda each: each.__name__)
@pytest.mark.parametrize("at", [100, 450])
def test_interrupted_in_a_process_that_goes_on(tmp_path: Path, error: Any, at: int) -> None:
    """Its levels are closed, and the same call takes up what they hold."""

    class Interrupted(Logistic):
        def advance(self, state: At, limit: float = np.inf, /) -> tuple[At, int, bool]:
            if 0 < state.left <= 500 - at and not self.fail_at:
                raise error("as was asked")
            return super().advance(state, limit)

    place, stats = tmp_path / "run", dict[str, int]()
    with pytest.raises(error, match="as was asked"):
        checkpoint_vjp(Interrupted(fail_at=0), X, BAR, Options(base=10, directory=place))
    events: list[Event] = []
    _, xbar = checkpoint_vjp(
        Logistic(), X, BAR, Options(base=10, directory=place), stats=stats, watch=events.append
    )
    assert np.array_equal(xbar[0], vjp(Logistic(), X, BAR)[1][0])
    assert not place.exists()
    first = next(event.action for event in events if isinstance(event.action, Read))
    assert first.key.step > 0
    assert stats["ticks"] == 500
    assert 0 < stats["live_peak"] <= 7
    assert stats["forward_ticks"] > 500


def test_the_reverse_run_has_the_slots_of_bisection(tmp_path: Path) -> None:
    """And two more for adjoints, whatever number of states a killed run has left."""
    with closing(Directory(tmp_path / CHECKPOINTS)) as backend:
        run = StoredRun(tmp_path, task_of(Logistic(), X, BAR, Options(base=10)), backend)
        run.end(8)
        assert run.level(None).levels[0].capacity == 4 + 2
        assert run.level(9).levels[0].capacity == 9 + 2


def test_what_watches_may_stop_it(tmp_path: Path) -> None:
    def stop(event: Event) -> None:
        if isinstance(event.action, Reverse):
            raise TimeoutError("for today")

    with pytest.raises(TimeoutError, match="for today"):
        checkpoint_vjp(Logistic(), X, BAR, Options(base=10, directory=tmp_path / "run"), watch=stop)
    checkpoint_vjp(Logistic(), X, BAR, Options(base=10, directory=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_base_for_which_the_program_is_short_takes_up_what_is_there(tmp_path: Path) -> None:
    place, short = tmp_path / "run", (X[0], 3.1, 40)

    def stop(event: Event) -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        checkpoint_vjp(Logistic(), short, BAR, Options(base=10, directory=place), watch=stop)
    stats: dict[str, int] = {}
    checkpoint_vjp(Logistic(), short, BAR, Options(base=50, directory=place), stats=stats)
    assert stats["base"] == 10
    assert not place.exists()


def test_a_place_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for name in ("file", "file/below", "nu\0l"):
        with pytest.raises(BadInput, match="cannot be used"):
            checkpoint_vjp(Logistic(), X, BAR, Options(base=10, directory=tmp_path / name))


@pytest.mark.slow
def test_what_is_damaged_is_left_out(tmp_path: Path) -> None:
    for ticks in (300, 900, 1500):
        place = tmp_path / f"run{ticks}"
        left(place, ticks)
        for path in (place / "checkpoints").glob("slots-*"):
            data = bytearray(path.read_bytes())
            for at in range(len(data) // 3, len(data), 997):
                data[at] ^= 0x10
            path.write_bytes(data)
        _, xbar = checkpoint_vjp(Logistic(), X, BAR, Options(base=10, directory=place))
        assert np.array_equal(xbar[0], vjp(Logistic(), X, BAR)[1][0])


def test_a_manifest_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "program.json").write_text("[1, 2")
    with pytest.raises(BadInput, match="does not describe a run"):
        checkpoint_vjp(Logistic(), X, BAR, Options(base=10, directory=tmp_path))


def test_one_process_at_a_time(tmp_path: Path) -> None:
    class Nested(Logistic):
        def advance(self, state: At, limit: float = np.inf, /) -> tuple[At, int, bool]:
            if state.left < 400:
                with pytest.raises(LevelInUse):
                    checkpoint_vjp(Logistic(), X, BAR, Options(base=10, directory=tmp_path / "run"))
            return super().advance(state, limit)

    checkpoint_vjp(Nested(), X, BAR, Options(base=100, directory=tmp_path / "run"))


def test_other_files_stay(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    checkpoint_vjp(Logistic(), X, BAR, Options(base=10, directory=tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]
