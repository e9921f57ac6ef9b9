"""Full-waveform inversion with Devito: gradients with ckio are those with all wavefields."""

import json
import re
import subprocess
import sys
from pathlib import Path

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


def done(*words: object, at: Path) -> str:
    line = [sys.executable, *map(str, words)]
    process = subprocess.run(line, cwd=at, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_the_gradient_is_that_of_stored_wavefields_and_passes_the_taylor_test(
    tmp_path: Path,
) -> None:
    (tmp_path / "compared.py").write_text(COMPARED)
    line = "import runpy, sys; sys.path.insert(0, sys.argv[1]); runpy.run_path('compared.py')"
    found, remainders = json.loads(done("-c", line, AT, at=tmp_path))
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
