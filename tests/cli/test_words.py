"""Words that people type are understood, and what is not understood is answered with a hint."""

import pickle
import sys
from pathlib import Path

import pytest
from cli.commands import answer, ckio, complaint

from ckio.adapters.registry import find_model
from ckio.errors import BadInput
from ckio.platform import Platform
from ckio.platform.readable import duration

GROWTH = """\
import numpy as np

from ckio import ArrayModel
from beside import RATE


class Growth(ArrayModel):
    def __init__(self, cells: int = 4):
        x = np.linspace(0.1, 0.5, cells)
        super().__init__({"x": x, "J": 0.0}, control={"x": x, "rate": RATE}, tape=["x"])

    def step(self, state, i):
        x, rate = state["x"], self.control["rate"]
        state["J"] += (x**2).sum()
        x *= 1 + rate * (1 - x)

    def adjoint_step(self, adjoint, tape, i):
        x, rate = tape["x"], self.control["rate"]
        self.gradient["rate"] += (x * (1 - x) * adjoint["x"]).sum()
        adjoint["x"] *= 1 + rate * (1 - 2 * x)
        adjoint["x"] += 2 * x * adjoint["J"]
"""
BESIDE = "RATE = 0.3\n"
PLATFORM = 'format = 1\n[[level]]\nname = "ram"\ncapacity = "1 MiB"\n'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A user's directory, with a model in a directory below."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "growth.py").write_text(GROWTH)
    (tmp_path / "models" / "beside.py").write_text(BESIDE)
    (tmp_path / "node.toml").write_text(PLATFORM)
    return tmp_path


# Models


def test_a_file_is_a_model_and_so_is_a_class_in_it(place: Path) -> None:
    words = "--steps", 9, "--platform", "node.toml", "--check-gradient"
    by_file, *others = (
        answer("run", model, *words, "--into", f"run-{number}", at=place)
        for number, model in enumerate(
            ("models/growth.py", "models/growth.py:Growth", place / "models/growth.py")
        )
    )
    assert by_file["verified"]
    assert all(other["functional"] == by_file["functional"] for other in others)


def test_the_identity_of_a_model_is_the_text_as_typed(place: Path) -> None:
    level = "--level", "ram=ram,capacity=1MiB", "-o", "made.toml"
    ckio("calibrate", *level, "--model", "models/growth.py", "--set", "cells=8", at=place)
    assert '[models."models/growth.py cells=8"]' in (place / "made.toml").read_text()
    asked = "--model", "models/growth.py", "--set", "cells=8", "--steps", 9
    done = ckio("plan", *asked, "--platform", "made.toml", at=place)
    assert "measured now" not in done.stderr


def test_a_misspelt_model_is_answered_with_the_nearest(place: Path) -> None:
    (place / "growth.py").write_text(GROWTH)
    for model, said in (
        ("models/growth.py:Grwth", "has no attribute 'Grwth'; did you mean Growth?"),
        ("models/grwth.py", "there is no file 'models/grwth.py'; did you mean models/growth.py?"),
        ("models/grwth.py:Growth", "did you mean models/growth.py?"),
        ("ckio.models.wave:Wav", "has no attribute 'Wav'; did you mean Wave?"),
        ("ckio.models.wav:Wave", "No module named 'ckio.models.wav'"),
        ("growht:Growth", "No module named 'growht'"),
        ("wav", "no model is named 'wav'; did you mean wave?"),
        ("models/growth.py:", "FILE.py with one model in it"),
    ):
        line = complaint("analyze", model, at=place)
        assert said in line
        assert "_ckio_file" not in line


TWO = GROWTH + "\n\nclass Other(Growth):\n    pass\n"
NEEDY = GROWTH.replace("cells: int = 4", "cells: np.ndarray")
FACTORY = "\n\ndef growth():\n    return Growth(4)\n"


def test_a_file_with_another_number_of_models_says_which(place: Path) -> None:
    for text, said in (
        (TWO, "Growth, Other; name one of them, for example models/some.py:Growth"),
        ("from ckio.models.wave import Wave\n", "the file has no model: no class in it has"),
        ("def f():\n    pass\n", "name a function that returns the model after a colon"),
        (NEEDY, "needs the option 'cells'"),
        (GROWTH.replace("def adjoint_step(", "def adjont_step("), "the file has no model"),
        ("class A:\n    dump = load = 1\n", "the file has no model"),
        ("import nowhere_at_all\n", "No module named 'nowhere_at_all'"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
    ):
        (place / "models" / "some.py").write_text(text)
        line = complaint("analyze", "models/some.py", at=place)
        assert said in line
        assert "did you mean" not in line


def test_a_class_without_its_adjoint_says_so_where_it_is_named(place: Path) -> None:
    text = GROWTH.replace("def adjoint_step(", "def adjont_step(")
    (place / "models" / "some.py").write_text(text)
    line = complaint("analyze", "models/some.py:Growth", at=place)
    assert "model 'models/some.py:Growth' has no adjoint_step; define it" in line


def test_a_function_that_makes_the_model_is_named(place: Path) -> None:
    (place / "models" / "some.py").write_text(NEEDY + FACTORY)
    said = ckio("analyze", "models/some.py:growth", at=place).stdout
    assert "models/some.py:growth declares nothing" in said


def test_two_files_of_one_name_are_two_modules(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])  # what is added to it goes
    (place / "growth.py").write_text("class Growth:\n    pass\n")
    here, there = find_model(f"{place}/growth.py:Growth"), find_model(f"{place}/models/growth.py")
    assert here is not there
    assert find_model(f"{place}/models/../models/growth.py:Growth") is there
    assert pickle.loads(pickle.dumps(there)) is there


def test_a_file_that_fails_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "some.py").write_text("1 / 0\n")
    with pytest.raises(BadInput, match="ZeroDivisionError"):
        find_model(f"{tmp_path}/some.py:f")
    (tmp_path / "some.py").write_text("def f(): pass\n")
    assert find_model(f"{tmp_path}/some.py:f")() is None


# Times


def test_a_time_may_be_written_as_for_slurm() -> None:
    for text, seconds in {
        "90": 90,
        "3h55m": 14100,
        "00:10:00": 600,
        "10:00": 600,
        "100:30": 6030,
        "1-12:00:00": 129600,
        "1-12": 129600,
        "0-1:30": 5400,
        " 26:00:00 ": 93600,
    }.items():
        assert duration(text) == seconds, text


def test_what_is_no_time_is_answered_with_the_forms(place: Path) -> None:
    wrong = ("", "0", "-3", "1x", "h", "3m2h", "1 2", "inf", "00:00:00", "10:60", "1-24", "1-")
    for text in (*wrong, ":30", "1:2:3:4"):
        with pytest.raises(BadInput, match=r"is not a time; write seconds, or .* 1d, 00:30:00"):
            duration(text)
    words = "run", "models/growth.py", "--steps", 9, "--platform", "node.toml", "--into", "a"
    line = complaint(*words, "--walltime", "00:00:61", at=place)
    assert "'00:00:61' is not a time" in line
    ckio(*words, "--walltime", "1-12:00:00", at=place)


# Sizes and codecs


def test_a_size_may_be_written_in_any_way(place: Path) -> None:
    for text, nbytes in {
        "8mb": 8 * 10**6,
        "8 MB": 8 * 10**6,
        "8e6": 8 * 10**6,
        "8M": 8 << 20,
        "8MiB": 8 << 20,
        "8 mib": 8 << 20,
    }.items():
        platform = Platform.loads(PLATFORM.replace("1 MiB", text))
        assert platform.levels[0].capacity == nbytes, text
    level = "--level", "ram=ram,capacity=8 mib", "-o", "made.toml"
    assert answer("calibrate", *level, at=place)["levels"][0]["capacity"] == 8 << 20


def test_the_help_says_what_a_size_is(place: Path) -> None:
    assert "64MiB (or 64M)" in " ".join(ckio("plan", "--help-all", at=place).stdout.split())


# Gradients

WRONG = GROWTH.replace(
    'self.gradient["rate"] += (x * (1 - x)', 'self.gradient["rate"] += 1.01 * (x * (1 - x)'
)
STILL = GROWTH.replace('state["J"] += (x**2)', 'j = state["J"] + (x**2)').replace(
    "x *= 1 + rate * (1 - x)", "x = x * (1 + rate * (1 - x))"
)


def test_a_wrong_gradient_is_told_by_control_with_what_to_try_next(place: Path) -> None:
    (place / "wrong.py").write_text(WRONG.replace("from beside import RATE", "RATE = 0.3"))
    words = "--steps", 9, "--platform", "node.toml", "--into", "a", "--check-gradient"
    done = ckio("run", "wrong.py", *words, at=place, status=1)
    assert "NOT verified" in done.stderr
    assert done.stderr.count("\n") == 1
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("gradient check")]
    assert "NOT verified: remainder rates 0.99, 0.99, 1.00" in line
    assert "wrong in 'rate': remainder rates 1.0" in line
    assert "right in 'x'; `ckio check MODEL`" in line


@pytest.mark.slow
def test_a_step_that_changes_no_array_is_told(place: Path) -> None:
    (place / "still.py").write_text(STILL.replace("from beside import RATE", "RATE = 0.3"))
    told = ckio("analyze", "still.py", at=place).stdout
    assert "no step changes an array of the state: `step` has to write into" in told
    assert "`step` has to write into" in ckio("check", "still.py", at=place, status=1).stdout
    assert answer("analyze", "still.py", at=place)["unchanged"] is True
    assert answer("analyze", "models/growth.py", at=place)["unchanged"] is False
