"""A run is resumed, and its result read back, only by the computation with which it was begun."""

import os
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ckio import ArrayModel, Chain, Halted, Job, Level, Platform, sizes_of
from ckio.errors import BadInput, RunFailed
from ckio.jobs.directory import STATES
from ckio.jobs.models import identity, name_of
from ckio.jobs.request import Request

STEPS = 40


class Misfit(ArrayModel):
    """Data may enter in a step, from a certain step on, or in J at the end only."""

    def __init__(self, *, forcing=lambda i: 0.0, observed=None, rate=0.3, scale=1.0, stop=False):
        x = np.linspace(0.1, 0.4, 12)
        super().__init__({"x": x, "J": 0.0}, control={"rate": rate}, tape=["x"])
        self.forcing, self.observed, self.scale = forcing, observed, scale
        self.stop_at = 7 if stop else -1

    def step(self, state, i):
        x = state["x"]
        state["J"] += self.scale * ((x - self.forcing(i)) ** 2).sum()
        x *= 1 + self.control["rate"] * (1 - x)

    def adjoint_step(self, adjoint, tape, i):
        if i == self.stop_at:
            os.kill(os.getpid(), signal.SIGTERM)
        x, rate = tape["x"], self.control["rate"]
        self.gradient["rate"] += (x * (1 - x) * adjoint["x"]).sum()
        adjoint["x"] *= 1 + rate * (1 - 2 * x)
        adjoint["x"] += 2 * self.scale * (x - self.forcing(i)) * adjoint["J"]

    def adjoint_seed(self, state, adjoint, n):
        if self.observed is None:
            return 0.0
        adjoint["x"][...] = 2 * (state["x"] - self.observed)
        return float(((state["x"] - self.observed) ** 2).sum())


def job(at: Path, model=Misfit, *, settings=None, **options) -> Job:
    """Return a job with given costs, so that nothing is measured."""
    chain = Chain(steps=None, advance=1e-5, record=1e-5, reverse=2e-5, **sizes_of(Misfit()))
    disk = Level(name="disk", backend="directory", options={"path": str(at / "disk")})
    levels = Level(name="ram", capacity=6 * chain.restart), disk
    models = {identity(name_of(model or Misfit), settings or {}): chain}
    platform = Platform(levels, working_memory=chain.tape, models=models)
    return Job(
        at / "run",
        model=model,
        platform=platform,
        settings=settings,
        **{"planner": "hrevolve", "steps": STEPS, **options},
    )


def constant(value: float, i: int) -> float:
    return value


def changes(kind: str):
    """Return the model before and after a change of data that no option names."""
    if kind == "partial":
        return [partial(Misfit, forcing=partial(constant, it)) for it in (1.0, 1.1)]

    def closure(it):
        return lambda **options: Misfit(observed=np.full(12, it), **options)

    return [closure(it) for it in (1.0, 1.1)]


KINDS = pytest.mark.parametrize("kind", ["partial", "closure"])


@KINDS
def test_a_result_is_not_read_back_after_its_data_have_changed(tmp_path: Path, kind: str) -> None:
    before, after = changes(kind)
    fresh = job(tmp_path, before).run()
    same = job(tmp_path, before).run()
    assert same.functional == fresh.functional
    with pytest.raises(BadInput, match=r"x_1 of the model is different: .*has changed"):
        job(tmp_path, after).run()
    assert job(tmp_path, None).result().functional == fresh.functional


def test_a_result_says_that_it_was_read_and_when_it_was_computed(tmp_path: Path) -> None:
    fresh = job(tmp_path).run()
    again = job(tmp_path).run()
    assert fresh.source == ""
    assert "read from" not in repr(fresh)
    for read in (again, job(tmp_path).result()):
        when = fresh.figures["origin"]["when"]
        assert f"read from      {tmp_path / 'run'}, computed at {when}" in repr(read)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": STEPS + 1}, "steps is 41, the run has 40"),
        ({"settings": {"scale": 2.0}}, "settings scale is 2.0, in the run it is 1.0"),
        ({"control": {"rate": np.array(0.4)}}, "the controls of the model are different"),
        ({"model": partial(Misfit, rate=0.4)}, "the controls of the model are different"),
    ],
)
def test_a_result_is_not_read_back_with_other_options(tmp_path: Path, options, message) -> None:
    made = partial(Misfit) if "model" in options else Misfit
    job(tmp_path, made, settings={"scale": 1.0}).run()
    with pytest.raises(BadInput, match=message):
        job(tmp_path, **{"model": made, **options}).run()


@pytest.fixture(autouse=True)
def all_states_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is: normally a comparison waits until there is time for it."""
    monkeypatch.setattr("ckio.runner.reproducible.FREE", 60.0)


def _halted(at: Path, model) -> None:
    with pytest.raises(Halted):
        job(at, partial(model, stop=True)).run()


@KINDS
def test_a_run_is_not_resumed_with_other_data(tmp_path: Path, kind: str) -> None:
    models = changes(kind)
    _halted(tmp_path, models[0])
    with pytest.raises(BadInput, match=r"x_1 of the model is different"):
        job(tmp_path, partial(models[1])).run()
    resumed = job(tmp_path, partial(models[0])).run()
    whole = job(tmp_path / "whole", models[0]).run()
    assert resumed.gradient["rate"] == whole.gradient["rate"]


def test_data_of_later_steps_are_compared_when_these_are_computed_again(tmp_path: Path) -> None:
    _halted(tmp_path, partial(Misfit, forcing=partial(_since, 2, 1.0)))
    match = r"x_\d+ is not the same when .*'J' by .* An earlier process .* begin a new run"
    with pytest.raises(RunFailed, match=match):
        job(tmp_path, partial(Misfit, forcing=partial(_since, 2, 2.0))).run()


def _since(step: int, value: float, i: int) -> float:
    return value if i >= step else 0.0


def test_rounding_between_processes_can_be_allowed(tmp_path: Path) -> None:
    small = partial(Misfit, scale=1.0 + 2**-52)
    job(tmp_path, partial(Misfit)).run()
    with pytest.raises(BadInput, match=r"by rounding only, which allow_rounding=True allows"):
        job(tmp_path, small).run()
    job(tmp_path, small, allow_rounding=True).run()
    with pytest.raises(BadInput, match="x_1 of the model is different"):
        job(tmp_path, partial(Misfit, scale=1.001), allow_rounding=True).run()


def test_a_line_that_a_kill_has_cut_is_ignored(tmp_path: Path) -> None:
    job(tmp_path).run()
    file = tmp_path / "run" / STATES
    lines = file.read_text().splitlines(keepends=True)
    assert len(lines) > 3
    file.write_text("".join(lines)[:-20])
    job(tmp_path).run()


def test_a_run_of_an_earlier_version_has_no_states(tmp_path: Path) -> None:
    fresh = job(tmp_path).run()
    (tmp_path / "run" / STATES).unlink()
    assert job(tmp_path).run().functional == fresh.functional


def test_with_check_gradient_steps_are_compared_that_no_plan_computes_twice(tmp_path: Path) -> None:
    """A run and a forward run with the same controls make the same steps."""
    job(tmp_path / "a", planner="store-all", check=True).run()
    calls: list[int] = []

    def forcing(i: int) -> float:  # another one after the first step and the whole run
        calls.append(i)
        return 1.0 if len(calls) <= 2 + STEPS * 2 else 1.1

    model = partial(Misfit, forcing=forcing)
    with pytest.raises(RunFailed, match=r"x_\d+ is not the same when steps? .* computed"):
        job(tmp_path / "b", model, planner="store-all", check=True).run()
    assert not (tmp_path / "b" / "run" / "result.json").exists()


def test_a_model_in_a_file_is_the_same_whatever_the_path_to_it() -> None:
    """From another directory its path is another one; its states tell whether it is the same."""
    begun = Request(model="ocean.py:growth")
    assert list(Request(model="/home/ocean.py:growth").differences(begun)) == []
    assert list(Request(model="/home/ocean.py:other").differences(begun))
    assert list(Request(model="/home/sea.py:growth").differences(begun))
