"""`ckio analyze`: what checkpoints have to hold, where that is known from, and what it saves."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from cli.commands import answer, ckio, complaint
from example_models import EXAMPLES

from ckio.actions.variables import Flow, Step, Variables
from ckio.cli import analyze
from ckio.platform import Level, Platform

MODELS = '''
import numpy as np
from ckio import ArrayModel
from ckio.actions.variables import Flow, Step
from ckio.actions.variables import Variables


class Decay(ArrayModel):
    """x decays at a rate that differs from place to place; `work` is of no use between steps."""

    def step(self, state, i):
        x, rate, work = state["x"], state["rate"], state["work"]
        np.multiply(x, rate, out=work)
        state["J"] += (x**2).sum()
        x -= work

    def adjoint_step(self, adjoint, tape, i):
        x, rate = tape["x"], tape["rate"]
        adjoint["rate"] -= x * adjoint["x"]
        adjoint["x"] *= 1 - rate
        adjoint["x"] += 2 * x * adjoint["J"]


def decay(model=Decay, **known):
    x = np.linspace(0.1, 0.4, 16)
    state = {"x": x, "rate": x, "work": np.zeros(16), "J": 0.0}
    return model(state, control={"x": x, "rate": x}, **known)


def declared(use=("x", "rate", "J"), out=("x", "work", "J")):
    record = Flow({"x", "rate"}, out, {"work"})
    return decay(flow=Step(Flow(use, out, {"work"}), record=record), tape=["x", "rate"])


def without_rate():
    return declared(use=("x", "J"))


def with_work():
    return declared(use=("x", "rate", "work", "J"))


class Strict(Decay):
    """Knows the time, and what is due then."""

    def step(self, state, i):
        if state["work"][0] != i:
            raise ValueError(f"it is not {i} o'clock")
        super().step(state, i)
        state["work"][...] = i + 1


def strict():
    out = {"x", "work", "J"}
    record = Flow({"x", "rate"}, out, {"work"})
    return decay(Strict, flow=Step(Flow({"x", "rate", "J"}, out, {"work"}), record=record))


class Breaks(Decay):
    def step(self, state, i):
        raise ValueError("the paper is torn")


def breaks():
    return decay(Breaks)


class Foreign:
    """The same, and no ArrayModel."""

    def __init__(self):
        model = declared()
        for name in ("layout", "advance", "record", "reverse", "dump", "load"):
            setattr(self, name, getattr(model, name))


class Speaking(Foreign):
    variables = declared().variables
'''
VECTOR, NUMBER = 16 * 8, 8

OCEAN = ("analyze", "ocean.py", "--set", "grid=8")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "paper.py").write_text(MODELS)
    for name in ("ocean", "permafrost"):
        shutil.copy(EXAMPLES / name / f"{name}.py", tmp_path)
    return tmp_path


def kept(found: dict[str, Any]) -> dict[str, str]:
    return {row["name"]: row["why"] for row in found["arrays"]}


def test_a_declaration_that_is_right(place: Path) -> None:
    words = ("analyze", "paper:declared")
    found = answer(*words, at=place)
    assert (found["source"], found["watched"]) == ("declared", 3)
    assert (found["contradictions"], found["notes"], found["declaration"]) == ([], [], None)
    assert kept(found) == {"x": "always", "rate": "in place", "work": "dead", "J": "always"}
    assert found["checkpoints"] == {
        "whole": {"restart": 3 * VECTOR + NUMBER, "tape": 2 * VECTOR},
        "needed": {"restart": VECTOR + NUMBER, "tape": VECTOR},
    }
    rows = {row["name"]: row for row in found["arrays"]}
    reads = {name: (it["forward"], it["adjoint"], it["functional"]) for name, it in rows.items()}
    assert reads == {
        "x": (True, "tape", False),
        "rate": (True, "in place", False),
        "work": (False, None, False),
        "J": (True, None, True),
    }
    assert [rows[name]["in_whole"] for name in ("x", "work")] == [False, True]
    assert [rows[name]["overwritten"] for name in ("x", "rate")] == [None, []]
    text = ckio(*words, at=place).stdout
    assert (
        "the first 3 steps were observed, and use and overwrite exactly these arrays"
        in " ".join(text.split())
    )
    assert "never: dead" in text
    assert "never: stays in place" in text
    assert "392 B with all arrays, 136 B needed (-65 %)" in text


def test_what_nobody_declared_is_observed_and_the_answer_declares_it(place: Path) -> None:
    found = answer("analyze", "paper:decay", at=place)
    assert (found["source"], found["contradictions"], found["notes"]) == ("observed", [], [])
    assert found["checkpoints"]["needed"] == {"restart": VECTOR + NUMBER, "tape": VECTOR}
    text = ckio("analyze", "paper:decay", at=place).stdout
    assert "declares nothing" in text
    assert all(line in text for line in found["declaration"].splitlines())


def test_a_long_declaration_is_code_all_the_same(place: Path) -> None:
    found = answer(*OCEAN, at=place)
    assert {name for name, why in kept(found).items() if why == "dead"} == {"zeta_prev", "F_0"}
    assert max(map(len, found["declaration"].splitlines())) <= 92
    known = eval(f"dict({found['declaration']})", {"Flow": Flow, "Step": Step})
    field = 81 * 8
    made = Variables({row["name"]: row["nbytes"] for row in found["arrays"]}, known["flow"],
                     seed=known["seed"], tape=known["tape"])  # fmt: skip
    assert made.restart == found["checkpoints"]["needed"]["restart"] == 4 * field + 8
    assert made.taped == {"zeta", "psi"}


def test_too_little_declared_is_named_and_fails(place: Path) -> None:
    words = ("analyze", "paper:without_rate")
    named = "step uses rate, which is not declared"
    done = ckio(*words, at=place, status=1)
    assert f"warning: {named}" in done.stdout
    assert named in done.stderr
    assert done.stderr.count("\n") == 1
    found = json.loads(ckio(*words, "--json", at=place, status=1).stdout)
    assert found["contradictions"] == [named]


def test_too_little_declared_is_found_before_it_does_harm(place: Path) -> None:
    (place / "node.toml").write_text(Platform((Level(name="ram"),)).dumps())
    done = ckio("analyze", "paper:strict", at=place, status=1)
    assert "step uses work, which is not declared" in done.stderr
    words = ("--model", "paper:strict", "--platform", "node.toml", "--steps", 9)
    assert "o'clock" in ckio("plan", *words, at=place, status=1).stderr


def test_too_much_declared_is_a_note(place: Path) -> None:
    found = answer("analyze", "paper:with_work", at=place)
    assert (found["contradictions"], kept(found)["work"]) == ([], "always")
    (note,) = found["notes"]
    assert "declared to use work; nothing depends on it" in note
    assert note in ckio("analyze", "paper:with_work", at=place).stdout


@pytest.mark.slow
def test_an_array_that_checkpoints_share(place: Path) -> None:
    words = ("analyze", "permafrost.py:Permafrost", "--set", "grid=8", "--set", "steps=32")
    found = answer(*words, at=place)
    (row,) = (row for row in found["arrays"] if row["name"] == "K")
    assert row["overwritten"] == [[24, 28]]
    assert row["versions"] == 2  # that of the survey, and that at the end of the thaw
    assert kept(found) == {"T": "always", "K": "versions", "J": "always"}
    assert answer(*words, at=place)["notes"] == []  # the steps watched are declared to leave K
    text = ckio(*words, at=place).stdout
    assert "steps 24-27" in text
    assert "when it changed, 2 versions" in text
    assert kept(answer(*words, "--steps", 20, at=place))["K"] == "in place"
    assert "--steps 33 is too many" in complaint(*words, "--steps", 33, at=place)


def test_a_model_of_another_kind_can_speak_for_itself(place: Path) -> None:
    said = complaint("analyze", "paper:Foreign", at=place)
    assert "its steps cannot be observed" in said
    assert "declare" in said
    found = answer("analyze", "paper:Speaking", at=place)
    assert (found["source"], found["watched"]) == ("declared", 0)
    assert found["checkpoints"]["needed"] == {"restart": VECTOR + NUMBER, "tape": VECTOR}
    assert "they could not be" in ckio("analyze", "paper:Speaking", at=place).stdout
    done = ckio("analyze", "paper:breaks", at=place, status=1)  # whose step fails
    assert "model 'paper:breaks', watched: ValueError: the paper is torn" in done.stderr


def test_options_that_do_not_fit(place: Path) -> None:
    for words, said in (
        (("vortcity",), "did you mean vorticity?"),
        (("burgers", "--set", "recompute=u"), "has no option 'recompute'"),
        (("burgers", "--steps", 0), "--steps 0"),
    ):
        assert said in complaint("analyze", *words, at=place)


def test_changes_and_steps_in_words() -> None:
    changes = [(0, 0), (3, 3), (4, 5), (4, 1)]
    words = ["nothing", "no change", "+25 %", "-75 %"]
    assert [analyze._change(*each) for each in changes] == words
    spans = [(begin, begin + 3) for begin in range(0, 70, 7)]
    assert analyze._overwritten({"overwritten": spans, "in_whole": True}) == "30 steps"
