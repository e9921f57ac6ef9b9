"""Kolmogorov flow of jax-cfd: gradients with ckio are those of a plain scan."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from example_models import EXAMPLES

pytest.importorskip("jax_cfd", reason="jax-cfd is not installed")
pytestmark = pytest.mark.slow

AT = EXAMPLES / "jax_cfd"

COMPARED = """
import json

import jax
import numpy as np
from kolmogorov import Flow, misfit, sum_of, taylor_test

flow = Flow(32)
true, other = flow.start(0), flow.start(1)
guess = sum_of(0.9, true, 0.1, other)
observed = flow.end(true, 240, "none")
found = {}
for checkpoints in ("none", "nested", "ckio"):
    compute = misfit(flow, observed, 240, checkpoints=checkpoints, slots=1)
    value, gradient = compute(guess)
    found[checkpoints] = [float(value), np.ravel(jax.tree.leaves(gradient)).tolist()]
print(json.dumps([found, taylor_test(compute, guess, other)]))
"""


def done(*words: object, at: Path) -> str:
    line = [sys.executable, *map(str, words)]
    own = os.environ | {"JAX_PLATFORMS": "cpu"}
    process = subprocess.run(line, cwd=at, env=own, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_the_gradient_is_that_of_a_scan_and_passes_the_taylor_test(tmp_path: Path) -> None:
    (tmp_path / "compared.py").write_text(COMPARED)
    line = "import runpy, sys; sys.path.insert(0, sys.argv[1]); runpy.run_path('compared.py')"
    found, order = json.loads(done("-c", line, AT, at=tmp_path))
    value, gradient = found["none"]
    for checkpoints in ("nested", "ckio"):
        assert found[checkpoints][0] == pytest.approx(value, rel=1e-13)
        most = 1e-12 * max(map(abs, gradient))
        assert found[checkpoints][1] == pytest.approx(gradient, rel=1e-11, abs=most)
    assert order == pytest.approx(2, abs=0.02)


def test_the_commands_of_its_page(tmp_path: Path) -> None:
    words = "--cells", 32, "--steps", 60, "--slots", 1, "--into", "result.npz"
    said = done(AT / "kolmogorov.py", *words, at=tmp_path)
    (order,) = re.findall(r"Taylor test of order ([\d.]+)", said)
    assert float(order) == pytest.approx(2, abs=0.02)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["result.npz"]
    pytest.importorskip("matplotlib")
    done(AT / "picture.py", "result.npz", "kolmogorov.png", at=tmp_path)
    assert (tmp_path / "kolmogorov.png").read_bytes()[:4] == b"\x89PNG"
