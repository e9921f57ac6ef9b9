"""What a Python program gives that is no argument of a job is answered in its own words."""

from pathlib import Path
from typing import Any

import pytest
from cli.commands import complaint

from ckio import Job, functions, gradient
from ckio.errors import BadInput
from ckio.models.burgers import Burgers
from ckio.platform.memory import of_machine


def step(x: Any, p: Any, i: int) -> tuple[Any, float]:
    return p * x, 0.0


def adjoint(xbar: Any, x: Any, p: Any, i: int) -> tuple[Any, Any]:
    return p * xbar, x * xbar


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({"display": print}, r"display = <built-in .*>; give .* Display\(say=print\)"),
        ({"comm": 3}, r"comm = 3; give what ckio\.adapters\.mpi\.of returns"),
        ({"settings": ["grid"]}, r"settings = \['grid'\]; give a dict"),
        ({"journal": 3}, "journal = 3; give a path, or a file open for text"),
        ({"steps": None, "planner": "revolve"}, "steps is missing.*give steps, or use planner"),
        ({"by_variable": True, "overlap": "auto"}, "overlap='auto' is not possible with by_var"),
        ({"by_variable": True, "steps": None}, "by_variable=True needs steps, because"),
        ({"every": 1.0}, "every: no durable level keeps .* or leave out every"),
        ({"ram": "1000TB"}, r"ram: 909 TiB are more than the .* that this machine has; give less"),
        ({"disk": "d:1000000TB"}, "disk: .* are more than the .* that the disk at .*d has; give"),
    ],
)
def test_an_argument_that_cannot_be_is_answered_with_what_to_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], answer: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=answer) as caught:
        Job("run", **{"model": Burgers, "steps": 5, "ram": "1MiB", **given}).run()
    assert "--" not in str(caught.value)


@pytest.mark.parametrize("directory", [None, 3, ""])
def test_a_directory_is_a_path(directory: Any) -> None:
    with pytest.raises(BadInput, match=r"directory = .*; give a path, such as 'run1'"):
        Job(directory, model=Burgers)


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({"walltime": [3]}, r"walltime = \[3\]; it must be seconds"),
        ({"resume": "no"}, "True or False"),
    ],
)
def test_what_a_run_is_called_with_is_checked(
    tmp_path: Path, given: dict[str, Any], answer: str
) -> None:
    with pytest.raises(BadInput, match=answer):
        Job(tmp_path / "run", model=Burgers, steps=5).run(**given)
    assert not (tmp_path / "run").exists()


def test_a_function_of_one_step_is_no_model() -> None:
    remedy = r"needs the option 'x'; .* give ckio\.functions\(step, adjoint, x0, params\)"
    with pytest.raises(BadInput, match=remedy):
        gradient(step, steps=5, ram="1MiB")
    assert gradient(functions(step, adjoint, 1.0, 0.5), steps=5, ram="1MiB").functional == 0.0


def test_the_same_error_has_the_words_of_its_reader(tmp_path: Path) -> None:
    """Of Python a keyword, of the command line an option."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "other").touch()
    line = complaint("run", "burgers", "--steps", 5, "--into", "run", at=tmp_path)
    assert "is not empty (other); choose another directory for a run: --into DIR" in line
    with pytest.raises(BadInput, match="choose another directory for a run: directory='DIR'"):
        Job(tmp_path / "run", model=Burgers, steps=5).run()


def test_a_directory_without_a_run_is_not_shown(tmp_path: Path) -> None:
    assert "not the directory of a run, because it has no manifest.json; give" in complaint(
        "show", tmp_path, at=tmp_path
    )


def test_the_memory_of_the_machine(tmp_path: Path) -> None:
    assert of_machine(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text("MemTotal:  2048 kB\nMemAvailable: 1024 kB\n")
    assert of_machine(tmp_path) == 2 << 20
