"""Full-waveform inversion with Devito: gradients with ckio are those with all wavefields."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_models import EXAMPLES

pytest.importorskip("devito", reason="devito is not installed")
pytestmark = pytest.mark.slow

AT = EXAMPLES / "devito"

COMPARED = """
import json

import numpy as np
from fwi import Misfit, Survey, true_model

survey = Survey(41, 160)
true, guess = true_model(survey)
found = {}
for checkpoints in ("none", "pyrevolve", "storages", "ckio"):
    misfit = Misfit(survey, 0.0, checkpoints, slots=6)
    misfit(true)
    misfit.observed = survey.traces.data.copy()
    value, gradient = misfit(guess)
    found[checkpoints] = [value, gradient.tolist()]
side = np.linspace(-500, 500, 41)
direction = 1e-3 * np.exp(-((np.hypot(*np.meshgrid(side, side)) / 100) ** 2)).ravel()
remainders = []
for part in (1.0, 0.5, 0.25):
    there, _ = misfit(guess.ravel() + part * direction)
    remainders.append(abs(there - value - part * float(gradient @ direction)))
print(json.dumps([found, remainders]))
"""


RESUMED = """
import json

import numpy as np
from fwi import Misfit, Survey, true_model

from ckio import Key, Kind
from ckio.testing import restore, save

LAST, MIDDLE, SOONER = 159, 70, 110
observed = 0.0


def shot():
    survey = Survey(41, 160)
    true, guess = true_model(survey)
    misfit = Misfit(survey, observed, "ckio", slots=6)
    survey.begin(guess)
    return misfit.model(), misfit, true


_, misfit, true = shot()
misfit(true)
observed = misfit.survey.traces.data.copy()
whole, *_ = shot()
x0, start = Key(Kind.RESTART, 0), save(whole, Key(Kind.RESTART, 0))
whole.record(0, LAST)
whole.reverse(0, LAST)

# A process that is killed in the forward sweep, and one that is killed in the adjoint sweep.
first, *_ = shot()
first.advance(0, SOONER)
x, state = Key(Kind.RESTART, SOONER), save(first, Key(Kind.RESTART, SOONER))
second, *_ = shot()
restore(second, x, state)
second.record(SOONER, LAST)
second.reverse(SOONER, LAST)
restore(second, x0, start)
second.advance(0, MIDDLE)
second.record(MIDDLE, SOONER)
second.reverse(MIDDLE, SOONER)
a, adjoint = Key(Kind.ADJOINT, MIDDLE), save(second, Key(Kind.ADJOINT, MIDDLE))
third, *_ = shot()
restore(third, a, adjoint)
restore(third, x0, start)
third.record(0, MIDDLE)
third.reverse(0, MIDDLE)
equal = np.array_equal(third.gradient["m"], whole.gradient["m"])
print(json.dumps([third.functional == whole.functional, bool(equal), whole.functional]))
"""


def done(*words: object, at: Path) -> str:
    line = [sys.executable, *map(str, words)]
    process = subprocess.run(line, cwd=at, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout


def compared(program: str, at: Path) -> Any:
    """Run a program that imports the example, and return what it prints."""
    (at / "compared.py").write_text(program)
    line = "import runpy, sys; sys.path.insert(0, sys.argv[1]); runpy.run_path('compared.py')"
    return json.loads(done("-c", line, AT, at=at))


def test_a_process_that_resumes_a_run_finds_the_same_gradient(tmp_path: Path) -> None:
    same_value, same_gradient, value = compared(RESUMED, tmp_path)
    assert (same_value, same_gradient) == (True, True)
    assert value > 0


def test_the_gradient_is_that_of_stored_wavefields_and_passes_the_taylor_test(
    tmp_path: Path,
) -> None:
    found, remainders = compared(COMPARED, tmp_path)
    for checkpoints in ("ckio", "storages", "pyrevolve"):
        assert found[checkpoints] == found["none"], checkpoints
    assert np.log2(np.divide(remainders[:-1], remainders[1:])) == pytest.approx(2, abs=0.05)


def test_an_inversion_takes_the_same_path_with_any_checkpoints(tmp_path: Path) -> None:
    words = "--points", 41, "--steps", 160, "--iterations", 4
    ours, stored = (
        done(AT / "fwi.py", *words, "--checkpoints", name, "--into", f"{name}.npz", at=tmp_path)
        for name in ("ckio", "none")
    )
    assert ours.splitlines()[-1] == stored.splitlines()[-1]
    (fell,) = re.findall(r"fell to ([\d.]+) of the first", ours)
    assert float(fell) < 0.5
    assert [path.name for path in tmp_path.rglob("*") if path.suffix != ".npz"] == []
    pytest.importorskip("matplotlib")
    done(AT / "picture.py", "ckio.npz", "fwi.png", at=tmp_path)
    assert (tmp_path / "fwi.png").read_bytes()[:4] == b"\x89PNG"
