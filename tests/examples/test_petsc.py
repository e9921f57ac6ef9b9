"""A TS of PETSc as a model: its gradient is that of PETSc's own adjoint, on one rank and on two."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from example_models import EXAMPLES

pytest.importorskip("petsc4py", reason="petsc4py is not installed")
pytestmark = pytest.mark.slow

AT = EXAMPLES / "petsc"
BIN = Path(sys.executable).parent

COMPARED = """
import json

import by_petsc
import numpy as np
from reaction import GrayScott

found = {}
for method in ("rk", "beuler", "cn"):
    settings = {"grid": 24, "method": method}
    value, of_start, of_rates = by_petsc.gradient(40, **settings)
    model = GrayScott(**settings)
    model.record(0, 40)
    assert model.functional == value
    model.reverse(0, 40)
    loose = GrayScott(**settings, tolerance=1e-5)
    loose.record(0, 40)
    loose.reverse(0, 40)
    away = np.linalg.norm(loose.gradient["u"] - of_start) / np.linalg.norm(of_start)
    assert away < (1e-14 if method == "rk" else 1e-4), away
    assert method != "cn" or away > 1e-7, away
    found[method] = [
        bool(np.array_equal(model.gradient["u"], of_start)),
        float(abs(model.gradient["p"] / of_rates - 1).max()),
    ]
print(json.dumps(found))
"""


def done(*words: object, at: Path) -> str:
    line = [*map(str, words)]
    process = subprocess.run(line, cwd=at, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout


def run(*words: object, at: Path, ranks: int = 1) -> dict[str, object]:
    """What a run prints as JSON."""
    launched = () if ranks == 1 else (BIN / "mpiexec", "-n", ranks)
    model = f"{AT / 'reaction.py'}:GrayScott"
    sizes = "--set", "grid=24", "--steps", 40
    return json.loads(done(*launched, BIN / "ckio", "run", model, *sizes, *words, "--json", at=at))


def test_gradients_are_those_of_petsc(tmp_path: Path) -> None:
    (tmp_path / "compared.py").write_text(COMPARED)
    line = "import runpy, sys; sys.path.insert(0, sys.argv[1]); runpy.run_path('compared.py')"
    found = json.loads(done(sys.executable, "-c", line, AT, at=tmp_path))
    for method, (equal, error) in found.items():
        assert equal, method
        assert error < 1e-14, method


@pytest.mark.parametrize("method", ["rk", "beuler", "cn"])
def test_what_is_stored_changes_no_bit_of_a_gradient(method: str, tmp_path: Path) -> None:
    digests = set()
    for ram in ("60KiB", "3MiB"):
        words = "--set", f"method={method}", "--ram", ram, "--into", ram, "--check-gradient"
        found = run(*words, at=tmp_path)
        assert found["verified"] is True
        digests.add(found["gradient_digest"])
    assert len(digests) == 1


def test_two_ranks_find_the_same(tmp_path: Path) -> None:
    words = "--ram", "100KiB", "--check-gradient", "--into"
    alone = run(*words, "one", at=tmp_path)
    together = run(*words, "two", at=tmp_path, ranks=2)
    assert together["verified"] is True
    assert together["functional"] == pytest.approx(alone["functional"], rel=1e-13)
