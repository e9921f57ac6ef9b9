"""`ckio run --guarded`: the same gradient, or one line that says what is declared wrongly."""

from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from cli.commands import answer, ckio, complaint
from cli.resumable import STEPS, killed, left
from cli.test_by_variable import COSTS, place

WRONG = '''

import shutil


def wrongly(use=(), record_use=(), model=Seasons):
    """A declaration that leaves out some names."""
    fresh = seasons()
    right = {"x", "slow", "work", "J", "map"}

    def told(i):
        written = {"x", "J", "work"} | ({"slow"} if i == 20 else set())
        forward = Flow(right - {"work"} - set(use), written, {"work"})
        return Step(forward, Flow({"x", "slow", "map"} - set(record_use), written, {"work"}))

    state = {name: x.copy() for name, x in fresh._state.items()}
    return model(
        state, control=dict(fresh.control), tape=["x", "slow", "map"],
        flow=[told(i) for i in range(40)], seed=["J"],
    )  # fmt: skip


def from_the_start():
    return ["slow"] if os.environ.get("WRONG") == "from the start" else []


def more(made=[]):
    """Whether it is another than the first few of this process."""
    made.append(1)
    return len(made) > 4


class Ends(Seasons):
    def finished(self, state, i):
        return i == 31


class Harmed(Seasons):
    """One level is lost on the way back."""

    def adjoint_step(self, adjoint, tape, i):
        if i == 30:
            shutil.rmtree("ck", ignore_errors=True)
        super().adjoint_step(adjoint, tape, i)


right = lambda: wrongly(use=from_the_start())
without_slow = lambda: wrongly(use=["slow"])
without_tape = lambda: wrongly(record_use=["slow"])
ends = lambda: wrongly(use=from_the_start(), model=Ends)
harmed = lambda: wrongly(
    model=Harmed, record_use=["slow"] if os.environ.get("WRONG") and more() else []
)


class Foreign:
    def __init__(self):
        model = right()
        self.variables = model.variables
        for name in ("layout", "advance", "record", "reverse", "dump", "load"):
            setattr(self, name, getattr(model, name))
'''

MODELS = ("right", "without_slow", "without_tape", "ends", "harmed")
RESUME = ("--resume", "--into", "guarded")
SAID_ONCE = "guarded: each step is computed several times"


def words(*more: object, model: str, into: str) -> tuple[object, ...]:
    begun = ("run", model, "--platform", "node.toml", "--into", into, "--every", "8s", *more)
    decided = "--planner" in more or "--steps" not in more
    return begun if decided else (*begun, "--planner", "hrevolve")


def guarded(*more: object, model: str = "ocean:right") -> tuple[object, ...]:
    return words("--guarded", *more, model=model, into="guarded")


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = place(tmp_path_factory.mktemp("guarded") / "at")
    (where / "ocean.py").write_text((where / "ocean.py").read_text() + WRONG)
    with (where / "node.toml").open("a") as file:
        for name in (*MODELS, "Foreign"):
            file.write(COSTS.replace("ocean:seasons", f"ocean:{name}"))
    return where


@pytest.fixture(autouse=True)
def nothing_there(at: Path) -> None:
    for name in ("guarded", "ck"):
        rmtree(at / name, ignore_errors=True)


@pytest.fixture(scope="module")
def plain(at: Path) -> dict[str, Any]:
    return answer(*words("--steps", STEPS, model="ocean:right", into="plain"), at=at)


@pytest.mark.campaign
@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--by-variable",),
        ("--by-variable", "--overlap", "write_behind=2,read_ahead=2"),
        ("--overlap", "write_behind=2,read_ahead=2"),
        ("--check-gradient", "--planner", "mixed"),
    ],
)
def test_a_right_declaration_passes_with_the_same_gradient(
    at: Path, plain: dict[str, Any], more: tuple[str, ...]
) -> None:
    found = answer(*guarded("--steps", STEPS, *more), at=at)
    for name in ("gradient_digest", "functional"):
        assert found[name] == plain[name]
    assert found["verified"] is (True if "--check-gradient" in more else None)
    assert left(at) == []


def test_a_run_that_does_not_know_its_end_is_guarded_too(at: Path) -> None:
    plain = answer(*words(model="ocean:ends", into="ends"), at=at)
    found = answer(*guarded("--check-gradient", model="ocean:ends"), at=at)
    assert (found["steps"], found["verified"]) == (31, True)
    assert found["gradient_digest"] == plain["gradient_digest"]
    endless = words("--guarded", model="ocean:right", into="again")
    assert "does not say itself when it is finished" in complaint(*endless, at=at)


def test_the_model_that_takes_over_after_a_failed_level_is_guarded_as_well(
    at: Path, plain: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = guarded("--steps", STEPS, "--json", model="ocean:harmed")
    done = ckio(*line, at=at)
    assert "is given up" in done.stderr
    assert plain["gradient_digest"] in done.stdout
    rmtree(at / "guarded")
    monkeypatch.setenv("WRONG", "the model that takes over")
    given_up, wrong = ckio(*line, at=at, status=1).stderr.splitlines()
    assert "is given up" in given_up
    assert "reads slow of its tape, which is not declared" in wrong


def test_a_wrong_declaration_is_one_line(at: Path) -> None:
    for model, more, said in (
        ("without_slow", ["--by-variable"], "step 0 uses slow, which is not declared"),
        ("without_tape", [], "step 39 reads slow of its tape, which is not declared"),
    ):
        line = words("--guarded", "--steps", STEPS, *more, model=f"ocean:{model}", into=model)
        done = ckio(*line, at=at, status=1)
        assert done.stderr.count("\n") == 1
        assert f"ckio: model 'ocean:{model}': " in done.stderr
        assert said in done.stderr


def test_what_declares_nothing_is_not_guarded(at: Path) -> None:
    for model, said in (
        ("ocean:growth", "`ckio analyze ocean:growth` observes them; declare them as `flow`"),
        ("ocean:Foreign", "is a Foreign and no ArrayModel, so that its steps cannot be observed"),
    ):
        assert said in complaint(*guarded("--steps", STEPS, model=model), at=at)


@pytest.mark.campaign
@pytest.mark.parametrize("more", [("--steps", STEPS), ("--steps", STEPS, "--by-variable"), ()])
def test_a_run_that_is_resumed_is_guarded_if_that_is_said_again(
    at: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[object, ...]
) -> None:
    model = "ocean:right" if more else "ocean:ends"
    plain = answer(*words(*more, model=model, into="plain-2"), at=at)
    rmtree(at / "plain-2")
    killed(monkeypatch, at, "step:19", *guarded(*more, model=model))
    resume = ("run", model, *RESUME, "--guarded")
    with monkeypatch.context() as wrong:
        wrong.setenv("WRONG", "from the start")
        if "--by-variable" in more:  # then what is stored goes by what is declared
            assert "declares different variables" in ckio(*resume, at=at, status=2).stderr
        else:
            assert "uses slow, which is not declared" in ckio(*resume, at=at, status=1).stderr
    killed(monkeypatch, at, "adjoint:9", "run", model, *RESUME)
    done = ckio(*resume, at=at)
    assert done.stdout.count(SAID_ONCE) == 1
    assert plain["gradient_digest"] in done.stdout
    assert SAID_ONCE not in ckio(*resume, at=at).stdout  # it has ended
