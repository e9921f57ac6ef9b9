"""The file of a gradient: the order of its controls, their names, and the space for them."""

import errno
import os
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from ckio import ArrayModel, Chain, Job, Level, Platform, sizes_of
from ckio.errors import BadInput, RunFailed
from ckio.jobs import directory as directories
from ckio.jobs.directory import checksum_of
from ckio.jobs.gradients import packed_control, read_control
from ckio.jobs.models import name_of
from ckio.jobs.result import _summary
from ckio.platform import Affine
from tests.backends.common import mount_small, use_up, with_own_mounts


class Decay(ArrayModel):
    """An array that decays at a rate, with names that a test chooses."""

    def __init__(
        self,
        first: str = "x",
        second: str = "rate",
        *,
        more: tuple[str, ...] = (),
        cells: int = 6,
        hook: Any = None,
    ) -> None:
        x = np.linspace(0.1, 0.4, cells)
        control = {first: x, second: 0.9, **{name: np.ones(2) for name in more}}
        super().__init__({first: x, "J": 0.0}, control=control, tape=[first])
        self.names, self.hook = (first, second), hook

    def step(self, state: Any, i: int, /) -> None:
        a, k = self.names
        state["J"] += (state[a] ** 2).sum()
        state[a] *= self.control[k]

    def adjoint_step(self, adjoint: Any, tape: Any, i: int, /) -> None:
        a, k = self.names
        self.gradient[k] += (tape[a] * adjoint[a]).sum()
        adjoint[a] *= self.control[k]
        adjoint[a] += 2 * tape[a] * adjoint["J"]
        if i == 0 and self.hook is not None:
            self.hook()


def priced(make: Any, path: Path) -> Platform:
    """A level with known costs, for a model with known costs: nothing has to be measured."""
    level = Level(name="far", options={"path": str(path)}, write=Affine(0.1), read=Affine(0.1))
    chain = Chain(steps=None, advance=1.0, record=1.0, reverse=1.0, **sizes_of(make()))
    return Platform((level,), models={name_of(make): chain})


def named(first: str, second: str) -> Decay:
    return Decay(first, second)


def test_controls_have_the_order_of_the_model_everywhere(tmp_path: Path) -> None:
    order = ["x", "rate", "b/late", "a"]

    class Four(Decay):
        def __init__(self) -> None:
            super().__init__(more=("b/late", "a"))

    def job(name: str, **options: Any) -> Job:
        platform = priced(Four, tmp_path / "ck")
        return Job(tmp_path / name, model=Four, steps=9, platform=platform, **options)

    fresh = job("run").run()
    given = {name: fresh.control[name] for name in sorted(order)}
    results = [fresh, job("run").run(), Job(tmp_path / "run").result()]
    results.append(job("given", control=given).run())
    results.append(job("file", control=tmp_path / "run" / "gradient.h5").run())
    results.append(job("run").again(tmp_path / "again", given).run())
    for result in results:
        assert list(result.gradient) == list(result.control) == order
        assert list(result.figures["gradient"]) == order
        assert all(np.array_equal(result.gradient[k], fresh.gradient[k]) for k in order)
    with h5py.File(tmp_path / "run" / "gradient.h5") as file:
        assert list(file["gradient"]) == list(file["control"]) == ["x", "rate", "b", "a"]
    assert list(read_control(tmp_path / "run" / "gradient.h5")) == order
    (tmp_path / "control.h5").write_bytes(data := packed_control(fresh.control))
    assert list(read_control(tmp_path / "control.h5", checksum=checksum_of(data))) == order


@pytest.mark.parametrize(
    ("first", "second"),
    [("T", "T/flux"), ("T/flux", "T"), ("u/", "k"), ("/u", "k"), ("a//b", "k"), (".", "k"),
     ("u/./v", "k"), ("u", ""), ("u", "k\0"), ("u", "\ud800")],
)  # fmt: skip
@pytest.mark.parametrize("level", ["disk", "archive"])
def test_names_that_hdf5_cannot_hold_are_refused_before_the_run(
    tmp_path: Path, first: str, second: str, level: str
) -> None:
    def never() -> None:
        raise AssertionError

    options: dict[str, Any] = {"ram": "200", level: tmp_path / "ck.h5"}
    with pytest.raises(BadInput, match="cannot have all of the controls"):
        Job(
            tmp_path / "run", model=lambda: Decay(first, second, hook=never), steps=9, **options
        ).run()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("level", ["ck", "ck.h5"])
def test_odd_names_that_hdf5_can_hold_are_those_of_the_result(tmp_path: Path, level: str) -> None:
    odd = "layer.0/weight €", "..."
    options: dict[str, Any] = {"model": lambda: Decay(*odd), "steps": 9, "planner": "hrevolve"}
    options["platform"] = priced(options["model"], tmp_path / level)
    job = Job(tmp_path / "run", **options)
    fresh = job.run()
    assert fresh.figures["levels"][0]["written"] > 0
    assert list(job.run().gradient) == list(fresh.gradient) == list(odd)
    again = job.again(tmp_path / "again", tmp_path / "run" / "gradient.h5").run()
    assert again.functional == fresh.functional


# Space, and errors at the end


def test_a_disk_that_becomes_full_costs_no_result(tmp_path: Path) -> None:
    def fills() -> None:
        if (tmp_path / "run" / "manifest.json").exists():
            use_up(tmp_path)

    def body() -> None:
        mount_small(tmp_path, "size=1m")
        job = Job(
            tmp_path / "run",
            model=lambda: Decay(cells=4096, hook=fills),
            steps=30,
            ram="1MiB",
        )
        result = job.run()
        back = job.run()
        assert np.array_equal(back.gradient["x"], result.gradient["x"])
        assert back.functional == result.functional

    with_own_mounts(body)


def test_a_disk_without_space_for_the_gradient_is_said_before_the_run(tmp_path: Path) -> None:
    def body() -> None:
        mount_small(tmp_path, "size=1m")
        with pytest.raises(BadInput, match=r"bytes of gradient\.h5 cannot be reserved: No space"):
            Job(tmp_path / "run", model=lambda: Decay(cells=1 << 16), steps=3, ram="9MiB").run()
        assert list(tmp_path.iterdir()) == []

    with_own_mounts(body)


@pytest.mark.parametrize("name", ["gradient", "result", "check"])
def test_an_error_while_the_result_is_written_costs_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    at = {
        "gradient": "ckio.jobs.run.write_gradient",
        "result": "ckio.jobs.run.json_line",
        "check": "ckio.jobs.run.check_gradient",
    }
    options: dict[str, Any] = {"steps": 30, "planner": "hrevolve", "check": True}
    options["platform"] = priced(Decay, tmp_path / "ck")
    whole = Job(tmp_path / "whole", model=Decay, **options).run()
    job = Job(tmp_path / "run", model=Decay, **options)

    def fails(*_: object, **__: object) -> None:
        raise TypeError("something unforeseen")

    with monkeypatch.context() as patch:
        patch.setattr(at[name], fails)
        with pytest.raises((TypeError, RunFailed)):
            job.run()
    result = job.run()
    assert np.array_equal(result.gradient["x"], whole.gradient["x"])
    assert result.functional == whole.functional
    assert result.verified is True
    assert result.figures["forward_steps"] == 0
    assert list((tmp_path / "ck").iterdir()) == []


def test_diagnostics_that_cannot_be_written_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write = directories.write_whole

    def full(path: Path, content: str | bytes) -> None:
        if path.name == "measured.txt":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, content)

    monkeypatch.setattr(directories, "write_whole", full)
    job = Job(tmp_path / "run", model=Decay, steps=9, ram="1MiB")
    result = job.run()
    assert "the measured timeline is not stored" in caplog.text
    back = job.run()
    assert back.functional == result.functional
    assert len(back.timeline) == 0
    assert back.report is None


def test_the_summary_of_a_complex_gradient_is_of_its_sizes() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = _summary(np.array([3 + 4j, -12j]))
    assert found == {"norm": 13.0, "min": 5.0, "max": 12.0}
