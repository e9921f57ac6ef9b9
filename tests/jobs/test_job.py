"""A run as an object: begun, killed, resumed, with its gradient as a file and as arrays."""

import errno
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from cli.commands import answer, ckio, complaint
from jobs import test_same_run as same_run
from jobs.inversion import LINE, STEPS, arrays, equal, place
from jobs.test_same_run import Misfit

from ckio import Directory, Hdf5, Job, Platform, calibrate
from ckio.errors import BadInput, NotVerified, RunFailed
from ckio.jobs import gradients
from ckio.platform.clock import WallClock


@pytest.fixture
def heat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The model's class, in a directory that holds its file, which is the current one."""
    place(tmp_path)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    exec((tmp_path / "heat.py").read_text(), namespace)
    model = namespace["Heat"]
    model.__module__ = "heat"
    return model


def test_a_job_gives_what_the_command_stores(heat: Any, tmp_path: Path) -> None:
    job = Job("run", model=heat, steps=STEPS, platform="node.toml", planner="hrevolve", check=True)
    assert not job.has_ended
    result = job.run()
    assert job.has_ended
    assert result.verified is True
    stored = arrays(tmp_path / "run" / "gradient.h5")
    assert np.array_equal(result.gradient["x"], stored["gradient/x"])
    assert result.functional == stored["functional"]
    with h5py.File(tmp_path / "run" / "gradient.h5") as file:
        assert file["gradient/source"].attrs["units"] == "K2 / (K s-1)"
        assert file["control/x"].attrs["units"] == "K"
        assert (file.attrs["model"], file.attrs["steps"]) == ("heat:Heat", STEPS)
    assert result.timeline.makespan > 0
    assert result.prediction.makespan > 0
    with pytest.raises(BadInput, match="already holds a run"):
        job.run(resume=False)
    again = Job("run", model=heat).run()
    assert equal(dict(again.gradient), dict(result.gradient))
    assert equal(dict(again.control), dict(result.control))
    assert Job("run").result().figures["gradient_digest"] == result.figures["gradient_digest"]
    assert "functional" in str(again)


class Drawn(Misfit):
    """Its J goes back with the state in the reverse sweep, and its gradient is right."""

    @property
    def functional(self) -> float:
        return float(self._state["J"])


class Lacking(Misfit):
    def adjoint_step(self, adjoint: Any, tape: Any, i: int) -> None: ...

    @property
    def gradient(self) -> Any:
        return {}


def test_a_check_refuses_a_functional_that_goes_back_with_the_state(tmp_path: Path) -> None:
    right = same_run.job(tmp_path / "right", check=True).run().functional
    wrong = same_run.job(tmp_path / "wrong", Drawn).run().functional
    assert wrong != right
    with pytest.raises(RunFailed, match=f"J is {wrong:.6g} after the run, but {right:.6g} after"):
        same_run.job(tmp_path / "checked", Drawn, check=True).run()
    assert not (tmp_path / "checked" / "run" / "result.json").exists()


def test_a_control_without_a_gradient_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    same_run.job(tmp_path, Lacking).run()
    assert "no gradient of the control 'rate' in its shape ()" in caplog.text


def test_a_gradient_that_is_not_verified_is_an_error_with_the_result(heat: Any) -> None:
    class Wrong(heat):  # type: ignore[misc]
        def adjoint_step(self, adjoint: Any, tape: Any, i: int) -> None:
            super().adjoint_step(adjoint, tape, i)
            adjoint["x"] *= 1.01

    heat.__qualname__ = Wrong.__qualname__ = "Heat"
    Wrong.__module__ = "heat"
    options: dict[str, Any] = {"steps": STEPS, "platform": "node.toml", "planner": "hrevolve"}
    job = Job("run", model=Wrong, check=True, **options)
    with pytest.raises(
        NotVerified, match=r"the gradient is NOT verified \(remainder rates"
    ) as error:
        job.run()
    result = error.value.result
    assert (job.has_ended, result.verified, result.check.verdict) == (True, False, "wrong")
    with h5py.File("run/gradient.h5") as file:
        assert np.array_equal(file["gradient/x"], result.gradient["x"])
    again = pickle.loads(pickle.dumps(NotVerified("no", result=3)))
    assert (str(again), again.result) == ("no", 3)
    with pytest.raises(
        NotVerified, match="the gradient is NOT verified; the run has ended"
    ) as error:
        job.run()
    assert error.value.result.functional == result.functional
    assert job.result().verified is False
    assert Job("plain", model=Wrong, **options).run().verified is None


def test_arguments_of_a_job_are_checked_where_they_enter(heat: Any) -> None:
    for wrong, said in (
        ({"steps": 0}, "a chain has at least 1"),
        ({"steps": "many"}, "steps = 'many'"),
        ({"every": -1.0}, "at least 0"),
        ({"overlap": "some"}, "overlap 'some'"),
        ({"platform": "node.toml", "ram": "1MB"}, "archive cannot be given with a platform"),
        ({"platform": "no.toml", "ram": None}, "no.toml: No such file or directory"),
        ({"settings": {"cell": 3}, "steps": 3}, "did you mean cells"),
        ({"steps": 3, "planner": "auto:period=3"}, "is no OPTION=VALUE of auto"),
        *(
            ({"settings": {"cells": value}, "steps": 3}, "setting 'cells' = .* cannot be stored")
            for value in (np.zeros(3), Path("obs.nc"), {1}, 2j, (1, 2), object(), b"x")
        ),
        ({"steps": 3, "model": heat()}, "is an object; give its class, or a function"),
        ({"steps": 3, "platform": 3, "ram": None}, "platform = 3; it must be a Platform, or"),
        ({"control": {"x": np.ma.masked_less(np.zeros(64), 1)}}, "control 'x' is a masked array"),
    ):
        with pytest.raises(BadInput, match=said):
            Job("run", **{"model": heat, "ram": "2kB"} | wrong).run()  # type: ignore[arg-type]
    assert not Path("run").exists()


def test_numbers_of_numpy_and_paths_as_text_are_arguments_like_others(heat: Any) -> None:
    numbers: dict[str, Any] = {"steps": np.int64(4), "settings": {"cells": np.int32(8)}}
    job = Job("run", model=heat, planner="periodic:period=2", every=np.float32(9),
              platform="node.toml", journal="log", **numbers)  # fmt: skip
    assert job.run().figures["steps"] == 4
    assert Path("log").read_text().startswith('{"ckio_journal": 1')
    assert Job("run", model=heat, **numbers).run().figures["steps"] == 4


# Controls


def test_controls_come_from_a_file_or_a_mapping_and_are_checked(tmp_path: Path, heat: Any) -> None:
    x, source = np.linspace(0, 1, 64), np.linspace(1, 0, 64)
    np.savez(tmp_path / "control.npz", x=x, source=source)
    line = [*LINE[:-3], "--into", "npz", "--control", "control.npz"]
    found = answer(*line, at=tmp_path)
    result = Job(
        "mapping",
        model=heat,
        steps=STEPS,
        platform="node.toml",
        control={"x": x, "source": source},
    ).run()
    assert result.functional == found["functional"]
    assert np.array_equal(result.control["source"], source)
    # the file of a gradient holds controls, too
    line = [*LINE[:-3], "--into", "h5", "--control", "npz/gradient.h5"]
    assert answer(*line, at=tmp_path)["gradient_digest"] == found["gradient_digest"]


def test_what_is_no_file_of_controls_is_said(tmp_path: Path, heat: Any) -> None:
    x, pickled = np.linspace(0, 1, 64), np.full(64, Exception("pickled"), object)
    wrong: tuple[tuple[dict[str, Any] | bytes, str], ...] = (
        ({"x": x}, "control 'source' is missing"),
        ({"x": x, "source": x, "y": x}, "no control 'y'"),
        ({"x": x[1:], "source": x}, r"shape \(63,\), and the model's \(64,\)"),
        ({"x": x.astype("f4"), "source": x}, "float32, and the model's float64"),
        ({"x": np.array(["a"] * 64), "source": x}, "and the model's float64"),
        ({"x": pickled, "source": pickled}, "Object arrays cannot be loaded"),
        (b"PK\x03\x04 and no more", "is no npz file"),
        (b"x,y\n1,2\n", r"wrong\.npz"),
    )
    path = tmp_path / "wrong.npz"
    for content, said in wrong:
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            np.savez(path, **content)
        with pytest.raises(BadInput, match=said):
            Job("wrong", model=heat, steps=STEPS, platform="node.toml", control=path).run()
    line = [*LINE[:-3], "--into", "wrong", "--control", "wrong.npz"]
    assert "wrong.npz" in complaint(*line, at=tmp_path)


def test_home_is_the_directory_of_the_user_in_every_path(
    heat: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    text = (tmp_path / "node.toml").read_text().replace('"ck"', '"~/ck"')
    (home / "node.toml").write_text(text)
    np.savez(home / "c.npz", x=np.zeros(64), source=np.ones(64))
    options: dict[str, Any] = {"steps": 9, "platform": "~/node.toml", "control": "~/c.npz"}
    job = Job("~/run", model=heat, journal="~/log", **options)
    result = job.run()
    again = job.again("~/again", "~/run/gradient.h5").run()
    assert again.functional == result.functional
    line = ("run", "~/../heat.py:Heat", "--steps", 9, "--into", "~/cli", "--platform")
    ckio(*line, "~/node.toml", "--control", "~/c.npz", at=tmp_path)

    def briefly(levels: Any, sizes: Any, **how: Any) -> Platform:
        return calibrate(levels, (512,), **how | {"repeats": 1, "clock": WallClock()})

    monkeypatch.setattr(sys.modules["ckio.calibrate"], "calibrate", briefly)
    Job("~/levels", model=heat, steps=9, disk="~/disk", archive="~/a.h5").run()
    Directory("~/own").close()
    Hdf5("~/own.h5").close()
    names = {"again", "c.npz", "cli", "levels", "log", "node.toml", "own", "own.h5", "run"}
    assert {path.name for path in home.iterdir()} >= names
    assert not Path("~").exists()


def test_a_resumed_run_has_the_controls_that_it_was_begun_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = place(tmp_path)
    np.savez(at / "control.npz", x=np.linspace(0, 1, 64), source=np.zeros(64))
    whole = answer(*LINE[:-3], "--into", "whole", "--control", "control.npz", at=at)
    with monkeypatch.context() as patch:
        patch.setenv("KILL", "adjoint:20")
        ckio(*LINE, "--control", "control.npz", at=at, status=-9)
    assert answer(*LINE, at=at)["gradient_digest"] == whole["gradient_digest"]
    np.savez(at / "control.npz", x=np.linspace(0, 2, 64), source=np.zeros(64))
    line = complaint(*LINE, "--control", "control.npz", at=at)
    assert "the controls of the model are different" in line


def test_a_result_without_its_measured_timeline_is_shown(tmp_path: Path) -> None:
    at = place(tmp_path)
    ckio(*LINE, at=at)
    (at / "run" / "measured.txt").unlink()
    said = ckio(*LINE, at=at).stdout
    assert said.startswith("the measured timeline was not stored, because the disk was full\n")
    assert "functional" in said
    assert "planned again" not in said


def test_a_gradient_that_was_removed_is_told(tmp_path: Path) -> None:
    at = place(tmp_path)
    found = answer(*LINE, at=at)
    assert arrays(at / "run" / "gradient.h5")["functional"] == found["functional"]
    (at / "run" / "gradient.h5").unlink()
    done = ckio(*LINE, at=at)
    assert "the gradient of the run is not at" in done.stderr


def test_a_gradient_that_cannot_be_written_costs_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    at = place(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(gradients, "write_whole", full)
        done = ckio(*LINE, at=at, status=1)
    assert "the run ended without an error, but" in done.stderr
    assert "No space left on device; free space, and resume the run" in done.stderr
    assert "resumed from" in ckio(*LINE, at=at).stdout
    assert (at / "run" / "gradient.h5").exists()


# An optimisation


PACKED = """
import os
import signal
import sys
import numpy as np
from scipy.optimize import minimize
import ckio

class Growth(ckio.ArrayModel):
    def __init__(self):
        x = np.linspace(0.1, 0.4, 12)
        control = {"x": x, "rate": 0.3, "a": np.full(2, 0.01)}
        control = {name: control[name] for name in sys.argv[1].split(",")}
        self.target = np.linspace(0.5, 0.9, 12)
        super().__init__({"x": x, "J": 0.0}, control=control, tape=["x"])

    def step(self, state, i):
        x, c = state["x"], self.control
        state["J"] += ((x - self.target) ** 2).sum()
        x *= 1 + c["rate"] * (1 - x)
        x += c["a"].sum() if "a" in c else 0.0

    def adjoint_step(self, adjoint, tape, i):
        if int(os.environ.get("KILL", -1)) == len(misfits) and i == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        x, bar, rate = tape["x"], adjoint["x"], self.control["rate"]
        if "a" in self.gradient:
            self.gradient["a"] += bar.sum()
        self.gradient["rate"] += (x * (1 - x) * bar).sum()
        bar *= 1 + rate * (1 - 2 * x)
        bar += 2 * (x - self.target) * adjoint["J"]

first = ckio.Job("eval-00", model=Growth, steps=20, platform="node.toml", planner="hrevolve")
misfits = []

def packed(arrays):
    return np.concatenate([np.ravel(array) for array in arrays.values()])

def misfit(c):
    control, begin = {}, 0
    for name, like in Growth().control.items():
        control[name] = c[begin : begin + like.size].reshape(like.shape)
        begin += like.size
    result = first.again(f"eval-{len(misfits):02d}", control).run()
    misfits.append(result.functional)
    print(result.functional.hex(), *map(float.hex, packed(result.gradient)), flush=True)
    return result.functional, packed(result.gradient)

start = packed(Growth().control)
bounds = [(0.0, 1.0)] * len(start)
minimize(misfit, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 5})
"""


@pytest.mark.slow
@pytest.mark.parametrize("controls", ["x,rate", "rate,x", "x,rate,a"])
def test_an_inversion_that_is_killed_at_each_evaluation_takes_the_same_path(
    tmp_path: Path, controls: str
) -> None:
    def run(at: Path, kill: int) -> tuple[int, list[str]]:
        done = subprocess.run(
            [sys.executable, "-c", PACKED, controls],
            cwd=at,
            env={**os.environ, "KILL": str(kill)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout.splitlines()

    status, path = run(place(tmp_path / "whole"), -1)
    assert status == 0
    assert len(path) >= 6
    at = place(tmp_path / "killed")
    for kill in range(len(path)):
        status, until = run(at, kill)
        assert status == -signal.SIGKILL
        assert until == path[:kill]
    assert run(at, -1) == (0, path)


@pytest.mark.slow
def test_another_job_reuses_calibration_and_plan(
    heat: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Job("first", model=heat, steps=STEPS, ram="2kB", disk="scratch")
    result = first.run()
    monkeypatch.setattr("ckio.jobs.job.measured", None)
    monkeypatch.setattr("ckio.jobs.planning.plan", None)
    control = {name: array + 0.1 for name, array in result.control.items()}
    second = first.again("second", control).run()
    assert second.schedule.actions == result.schedule.actions
    assert second.functional != result.functional


def test_a_wrong_planner_is_refused_before_the_calibration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["ckio.calibrate"], "calibrate", None)
    for planner, message in (("periodic:period=0", "period must be"), ("hrevolv", "did you mean")):
        job = Job(tmp_path / "run", model="vorticity", steps=5, planner=planner, ram="1MiB")
        with pytest.raises(BadInput, match=message):
            job.run()
