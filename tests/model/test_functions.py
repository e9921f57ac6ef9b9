"""Two pure functions as a model, and one gradient in a line."""

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckio
from ckio import ArrayModel, Level, Platform
from ckio.errors import BadInput, NotVerified, RunFailed
from ckio.model.check import check_model

X0, P = {"u": np.linspace(0.1, 0.4, 12)}, {"rate": 0.3}


def step(x: Any, p: Any, i: int) -> Any:
    u = x["u"]
    return {"u": u + p["rate"] * u * (1 - u)}, (u**2).sum()


def adjoint(xbar: Any, x: Any, p: Any, i: int) -> Any:
    u, bar = x["u"], xbar["u"]
    bars = {"u": bar * (1 + p["rate"] * (1 - 2 * u)) + 2 * u}
    return bars, {"rate": (u * (1 - u) * bar).sum()}


class InPlace(ArrayModel):
    """The same model as a class."""

    records_late = True

    def __init__(self) -> None:
        super().__init__(X0 | {"J": 0.0}, control=X0 | P, tape=["u"])

    def step(self, state, i):
        after, j = step(state, self.control, i)
        state["u"][...] = after["u"]
        state["J"] += j

    def adjoint_step(self, adjoint_, tape, i):
        before, more = adjoint(adjoint_, tape, self.control, i)
        adjoint_["u"][...] = before["u"]
        self.gradient["rate"] += more["rate"]


def test_pure_functions_are_the_model_of_a_class() -> None:
    """J and dJ/drate are those of the same model in the README."""
    make = ckio.functions(step, adjoint, X0, P)
    assert check_model(make).verified
    found = ckio.gradient(make, steps=50, ram="1kB", check=True)
    right = ckio.gradient(InPlace, steps=50, ram="1kB")
    assert found.verified
    assert f"{found.functional:.3f} {found.gradient['rate']:.3f}" == "506.827 295.426"
    assert found.functional == right.functional
    assert all(np.array_equal(found.gradient[it], right.gradient[it]) for it in ("u", "rate"))
    assert found.control["rate"] == 0.3
    assert found.report is not None


def test_single_arrays_and_numbers_need_no_names() -> None:
    def alone(x: Any, p: Any, i: int) -> Any:
        return p * x, (x**2).sum()

    def back(xbar: Any, x: Any, p: Any, i: int) -> Any:
        return p * xbar + 2 * x, (x * xbar).sum()

    found = ckio.gradient(ckio.functions(alone, back, np.ones(2), 2.0), steps=3)
    assert (found.functional, found.gradient["x"].tolist()) == (42.0, [42.0, 42.0])
    assert found.gradient["p"] == 72.0


def test_no_parameters_are_needed() -> None:
    def alone(x: Any, p: None, i: int) -> Any:
        assert p is None
        return 0.5 * x, x

    found = ckio.gradient(ckio.functions(alone, lambda b, x, p, i: (b / 2 + 1, None), 4.0), steps=2)
    assert (found.functional, found.gradient["x"]) == (6.0, 1.5)


def test_arrays_that_are_given_may_be_returned() -> None:
    """The two last values of a recurrence, u_{i+1} = u_i + u_{i-1} / 2, change places."""

    def forward(x: Any, p: None, i: int) -> Any:
        return {"old": x["u"], "u": x["u"] + x["old"] / 2}, x["u"]

    def back(b: Any, x: Any, p: None, i: int) -> Any:
        return {"u": b["u"] + b["old"] + 1, "old": b["u"] / 2}, None

    found = ckio.gradient(
        ckio.functions(forward, back, {"u": 1.0, "old": 2.0}), steps=4, check=True, ram="64B"
    )
    assert found.verified
    assert found.functional == 1 + 2 + 2.5 + 3.5


def test_tensors_that_share_the_memory_of_the_state_may_be_returned() -> None:
    """a and b change places, as tensors; J is the sum of 15 times 1 and 15 times 3."""
    torch = pytest.importorskip("torch")

    def swap(x: Any, p: None, i: int) -> Any:
        return {it: torch.from_numpy(x[other]) for it, other in ("ab", "ba")}, torch.tensor(x["a"])

    def back(b: Any, x: Any, p: None, i: int) -> Any:
        return {"a": torch.from_numpy(b["b"]) + 1, "b": torch.from_numpy(b["a"])}, None

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch knows no read-only memory
        found = ckio.gradient(ckio.functions(swap, back, {"a": 1.0, "b": 3.0}), steps=30, ram="4kB")
    assert (found.functional, found.gradient["a"], found.gradient["b"]) == (60.0, 15.0, 15.0)


@pytest.mark.parametrize("steps", [1, 2, 3, 10])
def test_no_step_after_the_last_is_computed(steps: int) -> None:
    """A forcing of as many values as steps, as it is read from a file."""
    forcing, asked = np.ones(steps), list[int]()

    def forced(x: Any, p: None, i: int) -> Any:
        asked.append(i)
        return np.sin(x) * forcing[i], (x**2).sum()

    def back(b: Any, x: Any, p: None, i: int) -> Any:
        return b * np.cos(x) * forcing[i] + 2 * x, None

    make = ckio.functions(forced, back, np.ones(3))
    platform = Platform((Level(name="ram", capacity=300),))
    for level in ({"ram": "3kB"}, {"platform": platform}):
        assert ckio.gradient(make, steps=steps, check=True, **level).verified
    assert max(asked) == steps - 1


def test_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    make = ckio.functions(step, adjoint, X0, P)
    options: dict[str, Any] = {"steps": 20, "ram": "300B", "disk": tmp_path / "far"}
    options["archive"] = f"{tmp_path}/deep/er/archive.h5:100kB"
    ckio.gradient(make, **options)
    wrongly = ckio.functions(step, lambda b, x, p, i: (b, {"rate": 0.0}), X0, P)
    with pytest.raises(NotVerified, match="it is `result` of this error") as wrong:
        ckio.gradient(wrongly, check=True, **options)
    assert wrong.value.result.functional > 0
    with pytest.raises(RunFailed):
        ckio.gradient(ckio.functions(lambda x, p, i: None, adjoint, X0, P), **options)
    assert list(tmp_path.iterdir()) == []


SLEEPING = """
import ckio, numpy as np, time

def step(x, p, i):
    time.sleep(0.01)
    print(i, flush=True)
    return np.sin(x), (x**2).sum()

def adjoint(b, x, p, i):
    return b * np.cos(x) + 2 * x, None

ckio.gradient(ckio.functions(step, adjoint, np.ones(3)), steps=5000, ram="400B", disk="far")
"""


@pytest.mark.parametrize(("number", "steps"), [(signal.SIGTERM, 1), (signal.SIGINT, 200)])
def test_a_signal_leaves_nothing(tmp_path: Path, number: signal.Signals, steps: int) -> None:
    """During the calibration, and during the run."""
    given: dict[str, Any] = {"cwd": tmp_path, "env": os.environ | {"TMPDIR": str(tmp_path)}}
    words = [sys.executable, "-c", SLEEPING]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, text=True, **quiet, **given) as process:
        assert process.stdout is not None
        while int(process.stdout.readline()) < steps:
            pass
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert said.rstrip().splitlines()[-1].startswith("KeyboardInterrupt")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_ranks_find_their_gradient_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(
        "import numpy as np, ckio\n"
        "f = ckio.functions(lambda x, p, i: (p * x, (x**2).sum()),"
        " lambda b, x, p, i: (p * b + 2 * x, (x * b).sum()), np.ones(2), 2.0, shared=['p'])\n"
        "r = ckio.gradient(f, steps=3); print(r.gradient['x'], r.gradient['p'])\n"
    )
    words = ["mpiexec", "-n", "2", sys.executable, "two.py"]
    more = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    given: dict[str, Any] = {"cwd": tmp_path, "env": os.environ | more, "capture_output": True}
    done = subprocess.run(words, text=True, check=False, **given)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[42. 42.]") == done.stdout.count("144.0") == 2
    assert [it.name for it in tmp_path.iterdir()] == ["two.py"]


def changing(x: Any, p: Any, i: int) -> Any:
    x["u"] += 1
    return x, 0.0


Function = Callable[..., Any]

WRONG_STEPS: dict[str, Function] = {
    "step changes an array that it was given": changing,
    "step returned a dict; it must return two values": lambda x, p, i: step(x, p, i)[0],
    "step returned None; it must return two values": lambda x, p, i: None,
    "step returned a list; it must return two values": lambda x, p, i: [x, 0.0],
    r"array of shape \(12,\) as j; it must return a real": lambda x, p, i: (x, x["u"]),
    "returned None as j; it must return a real": lambda x, p, i: (x, None),
    "returned a str as j; it must return a real": lambda x, p, i: (x, "1"),
    r"'u' with shape \(3,\).* must have shape \(12,\)": lambda x, p, i: ({"u": x["u"][:3]}, 0.0),
    r"'u' with shape \(\).* must have shape \(12,\)": lambda x, p, i: ({"u": x["u"].sum()}, 0.0),
    "type complex128; it must have": lambda x, p, i: ({"u": 1j * x["u"]}, 0.0),
    r"array of shape \(12,\); it must return a dict with the names u": lambda x, p, i: (x["u"], 0),
    "the names u, v; it must return a dict with the names u": lambda x, p, i: ({**x, "v": 1}, 0.0),
}


@pytest.mark.parametrize("message", WRONG_STEPS)
def test_what_a_step_must_return_is_said(message: str) -> None:
    model = ckio.functions(WRONG_STEPS[message], adjoint, X0, P)()
    with pytest.raises(RunFailed, match=message):
        model.advance(0, 1)


WRONG_ADJOINTS: dict[str, Function] = {
    "adjoint returned a dict; it must return two values": lambda b, x, p, i: b,
    "adjoint returned .*; it must return a dict with the names rate": lambda b, x, p, i: (b, {}),
    "adjoint changes an array": lambda b, x, p, i: (b, {"rate": b["u"].fill(0)}),
    "'rate' with shape": lambda b, x, p, i: (b, {"rate": x["u"]}),
}


@pytest.mark.parametrize("message", WRONG_ADJOINTS)
def test_what_an_adjoint_must_return_is_said(message: str) -> None:
    model = ckio.functions(step, WRONG_ADJOINTS[message], X0, P)()
    model.record(0, 1)
    with pytest.raises(RunFailed, match=message):
        model.reverse(0, 1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((step, None, X0, P), "adjoint is None; give a function"),
        ((step, adjoint, {}, P), "x0 has no array"),
        ((step, adjoint, {"u": np.arange(3)}, P), "floating-point"),
        ((step, adjoint, {"u": "text"}, P), "'u' is a str"),
        ((step, adjoint, {"u": np.ones(3, "longdouble")}, P), "of at most 64 bits"),
        ((step, adjoint, {"u": [[1.0], [1.0, 2.0]]}, P), "'u' is a list"),
        ((step, adjoint, {"J": np.ones(3)}, P), "names other than 'J'"),
        ((step, adjoint, X0, {"u": 1.0}), "'u' is in x0 and in params"),
    ],
)
def test_wrong_arguments_are_refused(given: tuple[Any, ...], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        ckio.functions(*given)


def test_masked_arrays_are_refused() -> None:
    with pytest.raises(BadInput, match=r"x0: 'u' is a masked array.*array.filled"):
        ckio.functions(step, adjoint, {"u": np.ma.masked_array(X0["u"], X0["u"] > 0.3)}, P)


def test_an_option_that_is_not_known_is_named() -> None:
    make = ckio.functions(step, adjoint, X0, P)
    with pytest.raises(BadInput, match=r"gradient: there is no option 'ramm'; did you mean ram\?"):
        ckio.gradient(make, steps=3, ramm="1MiB")
    with pytest.raises(BadInput, match=r"check = 'no'; it must be true or false"):
        ckio.gradient(make, steps=3, ram="1MiB", check="no")


def test_a_function_that_returns_the_model_of_two_functions_makes_models(tmp_path: Path) -> None:
    """A function, a name in a file, and the only model of a file."""
    wanted = ckio.gradient(ckio.functions(step, adjoint, X0, P), steps=9, ram="1MiB")
    found = ckio.gradient(lambda: ckio.functions(step, adjoint, X0, P), steps=9, ram="1MiB")
    assert found.functional == wanted.functional
    file = tmp_path / "pop.py"
    file.write_text(
        "import ckio\n\ndef step(x, p, i):\n    return p * x, x\n\n"
        "def adjoint(xbar, x, p, i):\n    return p * xbar + 1, x * xbar\n\n"
        "model = ckio.functions(step, adjoint, 1.0, 0.5)\n"
    )
    for name in (str(file), f"{file}:model"):
        assert ckio.gradient(name, steps=3, ram="1MiB").functional == 1.75


def test_a_run_whose_model_has_changed_since_says_so(tmp_path: Path) -> None:
    """The states are the same, so that nothing else tells."""
    file, wrong = tmp_path / "pop.py", "p * xbar + 2, x * xbar"
    text = (
        "import ckio\n\ndef step(x, p, i):\n    return p * x, x\n\n"
        f"def adjoint(xbar, x, p, i):\n    return {wrong}\n\n"
        "model = ckio.functions(step, adjoint, 1.0, 0.5)\n"
    )
    file.write_text(text)
    job = [sys.executable, "-m", "ckio", "run", str(file), "--steps", "3", "--ram", "1MiB"]
    words = [*job, "--resume", "--into", str(tmp_path / "run")]
    first = subprocess.run(words, capture_output=True, text=True, check=True)
    again = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "has changed since" not in first.stderr + again.stderr
    file.write_text(text.replace(wrong, "p * xbar + 1, x * xbar"))
    later = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "the file of the model has changed since this run was begun" in later.stderr
