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


def wrongly(use=(), record_use=(), kill=(), model=Seasons):
    """A declaration that leaves out some names, or has some too many in `kill`."""
    fresh = seasons()
    right = {"x", "slow", "work", "J", "map"}
    out = {"x", "J", "work"}

    def told(i):
        written = out | ({"slow"} if i == 20 else set())
        forward = Flow(right - {"work"} - set(use), written, ({"work"} | set(kill)) & written)
        return Step(forward, Flow({"x", "slow", "map"} - set(record_use), written, {"work"}))

    state = {name: x.copy() for name, x in fresh._state.items()}
    return model(
        state, control=dict(fresh.control), tape=["x", "slow", "map"],
        flow=[told(i) for i in range(40)], seed=["J"],
    )  # fmt: skip


def right():
    return wrongly(use=["slow"] if os.environ.get("WRONG") == "from the start" else [])


def without_x():
    return wrongly(use=["x"])


def without_slow():
    return wrongly(use=["slow"])


def without_tape():
    return wrongly(record_use=["slow"])


class Notes(Seasons):
    """Keeps what is not in its state."""

    last = 0.0

    def step(self, state, i):
        super().step(state, i)
        state["x"] += 1e-3 * self.last
        self.last = float(state["x"][0])


def notes():
    return wrongly(model=Notes)


class Writes(Seasons):
    def step(self, state, i):
        super().step(state, i)
        if i == 33:
            state["map"][7] += 1e-9


def writes():
    return wrongly(model=Writes)


class Ends(Seasons):
    def finished(self, state, i):
        return i == 31


def ends():
    use = ["slow"] if os.environ.get("WRONG") == "from the start" else []
    return wrongly(use=use, model=Ends)


class Harmed(Seasons):
    """One level is lost on the way back."""

    def adjoint_step(self, adjoint, tape, i):
        if i == 30:
            shutil.rmtree("ck", ignore_errors=True)
        super().adjoint_step(adjoint, tape, i)


def harmed():
    return wrongly(model=Harmed, record_use=["slow"] if os.environ.get("WRONG") and more() else [])


def more(made=[]):
    """Whether it is another than the first few of this process."""
    made.append(1)
    return len(made) > 2


class Foreign:
    def __init__(self):
        model = right()
        self.variables = model.variables
        for name in ("layout", "advance", "record", "reverse", "dump", "load"):
            setattr(self, name, getattr(model, name))
'''

MODELS = (
    "right", "without_x", "without_slow", "without_tape", "notes", "writes", "ends", "harmed",
)  # fmt: skip


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
    assert found["gradient_digest"] == plain["gradient_digest"]
    assert found["functional"] == plain["functional"]
    assert found["verified"] is (True if "--check-gradient" in more else None)
    assert left(at) == []


def test_it_is_said_once_that_it_is_guarded_and_slower(at: Path) -> None:
    done = ckio(*guarded("--steps", 5), at=at)
    assert done.stdout.count("guarded: steps are done more than once") == 1
    assert "takes a few times as long" in done.stdout
    assert done.stderr == ""


@pytest.mark.slow
def test_a_run_that_does_not_know_its_end_is_guarded_too(at: Path) -> None:
    plain = answer(*words(model="ocean:ends", into="ends"), at=at)
    found = answer(*guarded("--check-gradient", model="ocean:ends"), at=at)
    assert (found["steps"], found["verified"]) == (31, True)
    assert found["gradient_digest"] == plain["gradient_digest"]
    endless = words("--guarded", model="ocean:right", into="again")
    assert "does not say itself when it is finished" in complaint(*endless, at=at)


def test_the_model_that_takes_over_after_a_failed_level_passes_too(
    at: Path, plain: dict[str, Any]
) -> None:
    done = ckio(*guarded("--steps", STEPS, "--json", model="ocean:harmed"), at=at)
    assert "is given up" in done.stderr
    assert plain["gradient_digest"] in done.stdout


def test_and_it_is_guarded(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WRONG", "the model that takes over")
    done = ckio(*guarded("--steps", STEPS, model="ocean:harmed"), at=at, status=1)
    given_up, wrong = done.stderr.splitlines()
    assert "is given up" in given_up
    assert "reads slow of its tape, which is not declared" in wrong


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("without_x",), "step 0 uses x, which is not declared (use): with other content in it, "),
        (
            ("without_slow", "--by-variable"),
            "step 0 uses slow, which is not declared (use): with other content in ",
        ),
        (
            ("without_tape",),
            "of step 39 reads slow of its tape, which is not declared (use, where ",
        ),
        (("notes",), "step 0, done again on copies of the same arrays: x comes out different; "),
        (("writes", "--by-variable"), "step 33 overwrites map, which is not declared (out)"),
    ],
)
def test_a_wrong_declaration_is_one_line(at: Path, words: tuple[str, ...], said: str) -> None:
    model, *more = words
    done = ckio(*guarded("--steps", STEPS, *more, model=f"ocean:{model}"), at=at, status=1)
    assert done.stderr.count("\n") == 1
    assert f"ckio: model 'ocean:{model}': " in done.stderr
    assert said in done.stderr


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("ocean:growth", "see what `ckio analyze ocean:growth` observes, and declare it as `flow`"),
        ("ocean:Foreign", "is a Foreign and no ArrayModel: its steps cannot be watched"),
    ],
)
def test_what_declares_nothing_is_not_guarded(at: Path, model: str, said: str) -> None:
    assert said in complaint(*guarded("--steps", STEPS, model=model), at=at)


@pytest.mark.slow
@pytest.mark.parametrize("more", [("--steps", STEPS), ("--steps", STEPS, "--by-variable"), ()])
def test_a_run_that_is_resumed_is_guarded_if_that_is_said_again(
    at: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[object, ...]
) -> None:
    model = "ocean:right" if more else "ocean:ends"
    plain = answer(*words(*more, model=model, into="plain-2"), at=at)
    rmtree(at / "plain-2")
    killed(monkeypatch, at, "step:19", *guarded(*more, model=model))
    with monkeypatch.context() as wrong:
        wrong.setenv("WRONG", "from the start")
        by_variable = "--by-variable" in more  # then what is stored goes by what is declared
        done = ckio(
            *("run", model, "--resume", "--into", "guarded", "--guarded"),
            at=at,
            status=2 if by_variable else 1,
        )
        refused = "the model declares other variables"
        assert (refused if by_variable else "uses slow, which is not declared") in done.stderr
    killed(monkeypatch, at, "adjoint:9", "run", model, "--resume", "--into", "guarded")
    done = ckio("run", model, "--resume", "--into", "guarded", "--guarded", at=at)
    assert done.stdout.count("guarded: steps are done more than once") == 1
    assert plain["gradient_digest"] in done.stdout
    again = ckio("run", model, "--resume", "--into", "guarded", "--guarded", at=at)
    assert "guarded: steps" not in again.stdout
