"""`ckio run --by-variable`: less is stored, the gradient is the same, even after kills."""

import signal
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from cli import resumable
from cli.commands import answer, ckio, complaint
from cli.resumable import STEPS, left

SEASONS = '''

from ckio import Flow, Step

NAMES = {"x", "slow", "J"}


def step(*more):
    """The array `map` is never overwritten, `work` is dead, and `slow` changes in step 20 alone."""
    out = {"x", "J", "work", *more}
    return Step(Flow({*NAMES, "map"}, out, out), Flow({"x", "slow", "map"}, out, out))


class Seasons(Growth):
    def step(self, state, i):
        self.work("step")
        x, slow, work = state["x"], state["slow"], state["work"]
        work[...] = x**2
        state["J"] += work.sum()
        work[...] = slow * state["map"]
        if i == 20:
            slow *= 0.5
            slow += 0.1 * x
        x *= 1 + self.control["rate"] * work * (1 - x)

    def adjoint_step(self, adjoint, tape, i):
        self.work("adjoint")
        x, s, rate = tape["x"], tape["slow"] * tape["map"], self.control["rate"]
        of_x, of_slow = adjoint["x"].copy(), adjoint["slow"].copy()
        self.gradient["rate"] += (s * x * (1 - x) * of_x).sum()
        adjoint["x"] *= 1 + rate * s * (1 - 2 * x)
        adjoint["x"] += 2 * x * adjoint["J"]
        adjoint["slow"] += rate * x * (1 - x) * tape["map"] * of_x
        if i == 20:
            adjoint["slow"] -= 0.5 * of_slow
            adjoint["x"] += 0.1 * of_slow


def seasons(steps=40):
    moment("born")
    x = np.linspace(0.1, 0.4, 512)
    state = {"x": x, "slow": 1 + x, "map": 1 - x, "work": x, "J": 0.0}
    flow = [step("slow") if i == 20 else step() for i in range(steps)]
    return Seasons(
        state, control={"x": x, "rate": 0.3}, tape=["x", "slow", "map"], flow=flow, seed=["J"]
    )
'''

COSTS = """
[models."ocean:seasons"]
advance = 1.0
record = 1.0
reverse = 1.0
restart = 8200
tape = 8192
adjoint = 20504
"""
RAM = 20_000


def place(at: Path, far: str = "directory") -> Path:
    """A place to run in, with a model of which some arrays change seldom or never."""
    resumable.place(at, far, capacity=90_000)
    (at / "ocean.py").write_text(resumable.MODEL + SEASONS)
    text = (at / "node.toml").read_text().replace("9000\n", f"{RAM}\n", 1)
    (at / "node.toml").write_text(text + COSTS)
    return at


def words(*more: object, model: str = "ocean:seasons") -> tuple[object, ...]:
    first, _, *rest = resumable.words(*more)
    return (first, model, *rest)


BY_VARIABLE = words("--by-variable")
RESUME = ("run", "ocean:seasons", "--resume", "--into", "run")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What an uninterrupted run of whole checkpoints says."""
    return answer(*words(), at=place(tmp_path_factory.mktemp("whole") / "at"))


@pytest.mark.campaign
@pytest.mark.parametrize("far", resumable.FAR)
def test_less_is_stored_and_the_gradient_is_the_same_to_the_last_bit(
    tmp_path: Path, whole: dict[str, Any], far: str
) -> None:
    at = place(tmp_path / "at", far)
    ended = answer(*BY_VARIABLE, "--check-gradient", at=at)
    assert ended["gradient_digest"] == whole["gradient_digest"]
    assert ended["verified"]
    assert ended["forward_steps"] < whole["forward_steps"]
    written, before = (sum(level["written"] for level in it["levels"]) for it in (ended, whole))
    assert written < 0.7 * before
    assert left(at) == []


def test_what_goes_on_behind_the_steps_is_the_same_too(
    tmp_path: Path, whole: dict[str, Any]
) -> None:
    overlap = "write_behind=2,read_ahead=2"
    ended = answer(*BY_VARIABLE, "--overlap", overlap, at=place(tmp_path / "at"))
    assert ended["gradient_digest"] == whole["gradient_digest"]


@pytest.mark.campaign
@pytest.mark.parametrize(
    "kill", ["step:9", "step:38", "adjoint:3", "adjoint:21", "adjoint:37", "dump:5", "dump:13"]
)
def test_a_run_that_is_killed_goes_on_from_the_variables_that_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: dict[str, Any], kill: str
) -> None:
    at = place(tmp_path / "at")
    monkeypatch.setenv("WORK", str(at / "work"))
    resumable.killed(monkeypatch, at, kill, *BY_VARIABLE)
    before = resumable.work(at)
    resumed = answer(*RESUME, at=at)
    assert resumed["gradient_digest"] == whole["gradient_digest"]
    if kill.startswith("adjoint") and kill != "adjoint:3":  # an adjoint checkpoint was there
        assert resumable.work(at) < before + whole["forward_steps"] + STEPS
    assert left(at) == []


@pytest.mark.campaign
@pytest.mark.parametrize("moment", ["step:17", "adjoint:9", "adjoint:30"])
def test_a_run_that_is_stopped_stores_where_it_stands_variable_by_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: dict[str, Any], moment: str
) -> None:
    at = place(tmp_path / "at")
    monkeypatch.setenv("WORK", str(at / "work"))
    with monkeypatch.context() as here:
        here.setenv("KILL", f"{moment}:{int(signal.SIGTERM)}")
        said = ckio(*BY_VARIABLE, at=at, status=75).stderr
    assert " stored on far" in said
    before = resumable.work(at)
    resumed = answer(*RESUME, at=at)
    assert resumed["gradient_digest"] == whole["gradient_digest"]
    if moment == "step:17":  # nothing on the way to x_17 is done again
        assert resumable.work(at) == before + resumed["forward_steps"] + STEPS
        assert before + resumed["forward_steps"] <= whole["forward_steps"] + STEPS
    assert left(at) == []


def test_a_run_that_is_killed_again_and_again_ends_with_the_same_gradient(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: dict[str, Any]
) -> None:
    at = place(tmp_path / "at")
    for kill in ("adjoint:14", "dump:3", "adjoint:12", "step:4"):
        with monkeypatch.context() as here:
            here.setenv("KILL", kill)
            ckio(*BY_VARIABLE, "--resume", at=at, status=ANY)
    assert answer(*RESUME, at=at)["gradient_digest"] == whole["gradient_digest"]


def test_a_model_of_which_nothing_is_known_is_refused(tmp_path: Path) -> None:
    at = place(tmp_path / "at")
    said = complaint(*words("--by-variable", model="ocean:growth"), at=at)
    assert "ocean:growth' does not say what its steps use and overwrite" in said
    assert "ckio analyze ocean:growth" in said


def test_the_number_of_steps_has_to_be_known(tmp_path: Path) -> None:
    at = place(tmp_path / "at")
    line = ("run", "ocean:seasons", "--platform", "node.toml", "--into", "run", "--by-variable")
    assert "--by-variable needs --steps" in complaint(*line, at=at)


def test_fewer_steps_may_be_run_than_the_model_tells_of(tmp_path: Path) -> None:
    at = place(tmp_path / "at")
    line = ("run", "ocean:seasons", "--steps", 30, "--platform", "node.toml")
    by_variable = answer(*line, "--into", "a", "--by-variable", at=at)
    assert by_variable["gradient_digest"] == answer(*line, "--into", "b", at=at)["gradient_digest"]
    line = ("run", "ocean:seasons", "--steps", 41, "--platform", "node.toml", "--into", "c")
    assert "40 steps say what they use; the chain has 41" in complaint(
        *line, "--by-variable", at=at
    )


def test_what_a_kill_costs_is_not_promised_where_nobody_knows_it(tmp_path: Path) -> None:
    at = place(tmp_path / "at")
    said = ckio(*BY_VARIABLE, at=at).stdout
    assert "an adjoint checkpoint on far every 8 s of work" in said
    assert "a kill costs" not in said
    assert "a kill costs" in ckio(*words("--into", "whole"), at=at).stdout


def test_a_run_of_whole_checkpoints_is_not_resumed_by_variable_but_as_it_was_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: dict[str, Any]
) -> None:
    at = place(tmp_path / "at")
    resumable.killed(monkeypatch, at, "adjoint:21", *words())
    said = complaint(*RESUME, "--by-variable", at=at)
    assert "--by-variable is given, the run stores whole checkpoints" in said
    assert answer(*RESUME, at=at)["gradient_digest"] == whole["gradient_digest"]


def test_what_is_left_of_a_killed_run_is_arrays_and_all_of_it_is_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = place(tmp_path / "at")
    resumable.killed(monkeypatch, at, "adjoint:21", *BY_VARIABLE)
    assert {item.key.name for item in resumable.stored_in(at)} >= {"", "x"}
    count = len(resumable.stored_in(at))
    assert f"resumed from {count} arrays on far" in ckio(*RESUME, "--by-variable", at=at).stdout
    ckio("clean", "ck", "--yes", at=at)
    assert left(at) == []


@pytest.mark.parametrize("steps", [1, 2])
def test_a_run_of_hardly_any_steps_stores_hardly_anything(tmp_path: Path, steps: int) -> None:
    at = place(tmp_path / "at")
    line = ("run", "ocean:seasons", "--steps", steps, "--platform", "node.toml", "--into", "run")
    assert answer(*line, "--by-variable", "--check-gradient", at=at)["verified"]
