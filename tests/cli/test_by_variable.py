"""`ckio run --by-variable`: less is stored, the gradient is the same, even after kills."""

from pathlib import Path
from typing import Any

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
FEW = ("run", "ocean:seasons", "--platform", "node.toml")
RESUME = ("run", "ocean:seasons", "--resume", "--into", "run")


@pytest.fixture
def at(tmp_path: Path) -> Path:
    return place(tmp_path / "at")


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


def test_what_goes_on_behind_the_steps_is_the_same_too(at: Path, whole: dict[str, Any]) -> None:
    ended = answer(*BY_VARIABLE, "--overlap", "write_behind=2,read_ahead=2", at=at)
    assert ended["gradient_digest"] == whole["gradient_digest"]


def test_what_has_to_be_known_of_the_model_and_its_steps(at: Path) -> None:
    said = complaint(*words("--by-variable", model="ocean:growth"), at=at)
    assert "does not declare which arrays its steps use and overwrite" in said
    assert "ckio analyze ocean:growth" in said
    assert "--by-variable needs --steps" in complaint(*FEW, "--into", "c", "--by-variable", at=at)
    line = (*FEW, "--steps", 41, "--into", "c", "--by-variable")
    assert "40 steps say what they use; the chain has 41" in complaint(*line, at=at)


def test_fewer_steps_may_be_run_than_the_model_tells_of(at: Path) -> None:
    by_variable = answer(*FEW, "--steps", 30, "--into", "a", "--by-variable", at=at)
    whole = answer(*FEW, "--steps", 30, "--into", "b", at=at)
    assert by_variable["gradient_digest"] == whole["gradient_digest"]
    for steps in (1, 2):
        line = (*FEW, "--steps", steps, "--into", f"{steps}", "--by-variable", "--check-gradient")
        assert answer(*line, at=at)["verified"]


def test_what_a_kill_costs_is_estimated(at: Path) -> None:
    for line in (BY_VARIABLE, words("--into", "whole")):
        said = ckio(*line, at=at).stdout
        assert "an adjoint checkpoint on far every 8 s of work, about " in said
        assert " steps; a kill costs about 4" in said


def test_a_run_of_whole_checkpoints_is_not_resumed_by_variable_but_as_it_was_begun(
    at: Path, monkeypatch: pytest.MonkeyPatch, whole: dict[str, Any]
) -> None:
    resumable.killed(monkeypatch, at, "adjoint:21", *words())
    said = complaint(*RESUME, "--by-variable", at=at)
    assert "--by-variable is given, the run stores whole checkpoints" in said
    assert answer(*RESUME, at=at)["gradient_digest"] == whole["gradient_digest"]


def test_what_is_left_of_a_killed_run_is_arrays_and_all_of_it_is_sound(
    at: Path, monkeypatch: pytest.MonkeyPatch, whole: dict[str, Any]
) -> None:
    monkeypatch.setenv("WORK", str(at / "work"))
    resumable.killed(monkeypatch, at, "adjoint:21", *BY_VARIABLE)
    stored, before = resumable.stored_in(at), resumable.work(at)
    assert {item.key.name for item in stored} >= {"", "x"}
    said = ckio(*RESUME, "--by-variable", at=at).stdout
    assert f"resumed from {len(stored)} arrays on far" in said
    assert whole["gradient_digest"] in said
    assert resumable.work(at) < before + whole["forward_steps"] + STEPS  # an adjoint was there
    assert list((at / "ck").iterdir()) == []
    assert left(at) == []
