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

SOLVES = """
import json

import by_petsc
import numpy as np
from reaction import GrayScott

from ckio import Chain, Key, Kind, Level, Platform, Ram, run, sizes_of
from ckio.model.check import check_model
from ckio.planners import revolve
from ckio.testing import restore, save

STEPS, MIDDLE = 40, 17


class Counted(GrayScott):
    calls = 0

    def __init__(self, **settings):
        super().__init__(**settings)
        self.ts.getSNES().setMonitor(self._iterated)

    def _iterated(self, snes, iteration, norm):
        self.calls += iteration == 1

    def _rhs(self, ts, *arguments):
        self.calls += ts.getType() == "rk" and 1 / 4
        super()._rhs(ts, *arguments)


found = {}
for method in ("rk", "beuler", "cn"):
    settings = {"grid": 24, "method": method}
    _, expected, _ = by_petsc.gradient(STEPS, **settings)
    model = Counted(**settings)
    chain = Chain(steps=STEPS, advance=1, record=1, reverse=1, **sizes_of(model))
    platform = Platform((Level(name="ram", capacity=5 * chain.restart),), chain.tape)
    run(revolve(chain, platform), platform, model, [Ram()])
    equal = [np.array_equal(model.gradient["u"], expected)]

    # A process that is killed in the adjoint sweep, and one that goes on.
    killed, another = Counted(**settings), Counted(**settings)
    start = save(killed, Key(Kind.RESTART, 0))
    killed.advance(0, MIDDLE)
    killed.record(MIDDLE, STEPS)
    killed.reverse(MIDDLE, STEPS)
    restore(another, Key(Kind.ADJOINT, MIDDLE), save(killed, Key(Kind.ADJOINT, MIDDLE)))
    restore(another, Key(Kind.RESTART, 0), start)
    another.record(0, MIDDLE)
    another.reverse(0, MIDDLE)
    equal.append(np.array_equal(another.gradient["u"], expected))
    faults = check_model(lambda: GrayScott(**settings)).faults
    found[method] = [model.calls, another.calls, *map(bool, equal), str(faults)]
print(json.dumps(found))
"""

OSCILLATOR = """
import json

import numpy as np
from mpi4py import MPI
from petsc4py import PETSc

from ckio.adapters.petsc import TSModel
from ckio.errors import CkioError
from ckio.model.gradient import check_gradient


class Oscillator(TSModel):
    def __init__(self, method, kind=None, dt=0.05):
        start, matrix = PETSc.Vec().createSeq(2), PETSc.Mat().createDense((2, 2))
        start.array[:], self.matrix = (1.0, 0.3), matrix
        matrix.setUp()
        ts = PETSc.TS().create(PETSc.COMM_SELF)
        ts.setType(method)
        if kind is not None:
            ts.setRKType(kind)
        ts.setRHSFunction(self.rhs)
        ts.setRHSJacobian(self.jacobian, matrix, matrix)
        super().__init__(ts, start, dt, self.cost)

    def rhs(self, ts, t, u, change):
        x, y = u.array_r
        change.array[:] = y, 2 * (1 - x**2) * y - x

    def jacobian(self, ts, t, u, matrix, _):
        x, y = u.array_r
        matrix.setValues([0, 1], [0, 1], [0, 1, -4 * x * y - 1, 2 * (1 - x**2)])
        matrix.assemble()

    def cost(self, u, gradient):
        gradient.array[:] = u.array_r
        return float(u.array_r @ u.array_r) / 2


found = {}
for kind in "3bs", "5dp", "4":
    model = Oscillator("rk", kind)
    model.record(0, 20)
    model.reverse(0, 20)
    found[kind] = check_gradient(lambda: Oscillator("rk", kind), 20, model.gradient).verified
model = Oscillator("theta")  # with a stage in the middle of the step
model.record(0, 20)
model.reverse(0, 20)
found["theta"] = check_gradient(lambda: Oscillator("theta"), 20, model.gradient).verified
for case in ("rk", "3bs", 0.5), ("arkimex",):
    try:
        Oscillator(*case).advance(0, 20)
    except CkioError as error:
        found[case[0]] = str(error)
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


def test_no_implicit_step_is_solved_again_for_its_adjoint(tmp_path: Path) -> None:
    """Revolve computes 132 steps of 40 with 5 slots, or 132 - 39 if none is that is reversed next.

    An adjoint step of `rk` computes the stages of its step, but for the last step.
    """
    (tmp_path / "solves.py").write_text(SOLVES)
    line = "import runpy, sys; sys.path.insert(0, sys.argv[1]); runpy.run_path('solves.py')"
    found = json.loads(done(sys.executable, "-c", line, AT, at=tmp_path))
    assert found == {
        "rk": [132, 33, True, True, "()"],
        "beuler": [93, 17, True, True, "()"],
        "cn": [93, 17, True, True, "()"],
    }


def test_a_step_depends_on_its_state_alone(tmp_path: Path) -> None:
    found = json.loads(done(sys.executable, "-c", OSCILLATOR, at=tmp_path))
    assert found["3bs"] is found["5dp"] is found["4"] is found["theta"] is True
    assert "step 0: PETSc's TS adapted its step" in found["rk"]
    assert "the TS is of type arkimex" in found["arkimex"]


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
