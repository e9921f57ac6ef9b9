"""A TS of PETSc as a model: its gradient is that of PETSc's own adjoint, on one rank and on two."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

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

from ckio import Chain, Level, Platform, Ram, run, sizes_of
from ckio.adapters.petsc import TSModel
from ckio.errors import CkioError
from ckio.model.check import check_model
from ckio.model.gradient import check_gradient
from ckio.planners import revolve


def matrix(rows, columns):
    made = PETSc.Mat().createDense((rows, columns))
    made.setUp()
    made.assemble()
    return made


class Oscillator(TSModel):
    def __init__(self, method="rk", kind=None, dt=0.05, *, until=None, integral=None):
        self.begin, self.mu = PETSc.Vec().createSeq(2), PETSc.Vec().createSeq(1)
        self.begin.array[:], self.mu.array[:] = (1.0, 0.3), 2.0
        ts = PETSc.TS().create(PETSc.COMM_SELF)
        ts.setType(method)
        if kind is not None:
            (ts.setRKType if method == "rk" else ts.setARKIMEXType)(kind)
        ts.setTolerances(rtol=1e-5, atol=1e-5)
        ts.setRHSFunction(self.rhs)
        ts.setRHSJacobian(self.jacobian, *[matrix(2, 2)] * 2)
        ts.setRHSJacobianP(self.of_mu, matrix(2, 1))
        if method == "arkimex":
            ts.setIFunction(self.implicit)
            ts.setIJacobian(self.implicit_jacobian, *[matrix(2, 2)] * 2)
            ts.setIJacobianP(lambda *_: None, matrix(2, 1))
        if integral is not None:
            quadrature = ts.createQuadratureTS(integral)
            quadrature.setRHSFunction(self.integrand, PETSc.Vec().createSeq(1))
            quadrature.setRHSJacobian(self.integrand_jacobian, *[matrix(2, 1)] * 2)
            quadrature.setRHSJacobianP(self.integrand_of_mu, matrix(1, 1))
        options = PETSc.Options()
        options["ksp_rtol"] = options["snes_rtol"] = 1e-13
        ts.setFromOptions()
        super().__init__(ts, self.begin, dt, self.cost, until=until, parameters=self.mu)

    def rhs(self, ts, t, u, change):
        (x, y), (mu,) = u.array_r, self.mu.array_r
        change.array[:] = y, mu * (1 - x**2) * y - x + np.cos(t) / 2

    def jacobian(self, ts, t, u, matrix, _):
        (x, y), (mu,) = u.array_r, self.mu.array_r
        matrix.setValues([0, 1], [0, 1], [0, 1, -2 * mu * x * y - 1, mu * (1 - x**2)])
        matrix.assemble()

    def of_mu(self, ts, t, u, matrix):
        x, y = u.array_r
        matrix.setValues([0, 1], [0], [0, (1 - x**2) * y])
        matrix.assemble()

    def implicit(self, ts, t, u, rate, residual):
        residual.array[:] = rate.array_r + u.array_r / 2

    def implicit_jacobian(self, ts, t, u, rate, shift, _, matrix):
        matrix.setValues([0, 1], [0, 1], [shift + 0.5, 0, 0, shift + 0.5])
        matrix.assemble()

    def integrand(self, ts, t, u, value):
        (x, y), (mu,) = u.array_r, self.mu.array_r
        value.array[:] = x**2 * y * (1 + t) + mu**2 * y

    def integrand_jacobian(self, ts, t, u, matrix, _):
        (x, y), (mu,) = u.array_r, self.mu.array_r
        matrix.setValues([0, 1], [0], [2 * x * y * (1 + t), x**2 * (1 + t) + mu**2])
        matrix.assemble()

    def integrand_of_mu(self, ts, t, u, matrix):
        matrix.setValue(0, 0, 2 * self.mu.array_r[0] * u.array_r[1])
        matrix.assemble()

    def cost(self, u, gradient):
        gradient.array[:] = u.array_r
        return float(u.array_r @ u.array_r) / 2


def by_petsc(*case, dt=0.05, until=None, integral=None):
    PETSc.Options()["ts_trajectory_type"] = "memory"
    model = Oscillator(*case, dt=dt, until=until, integral=integral)
    ts, of_u, of_mu = model.ts, model.begin.duplicate(), model.mu.duplicate()
    of_mu.set(0)
    ts.setCostGradients(of_u, of_mu)
    ts.setSaveTrajectory()
    ts.setFromOptions()
    ts.setTime(0.0)
    ts.setTimeStep(dt)
    ts.setMaxSteps(40 if until is None else 2000)
    state = model.begin.copy()
    ts.solve(state)
    value = model.cost(state, of_u) + (ts.getCostIntegral().array_r[0] if integral else 0)
    steps = ts.getStepNumber()
    ts.adjointSolve()
    return steps, value, [*of_u.array_r, *of_mu.array_r]


def compared(*case, **settings):
    model = Oscillator(*case, **settings)
    steps = model.record(0, 2000 if "until" in settings else 40)
    model.reverse(0, steps)
    gradient = [*model.gradient["u"], *model.gradient["p"]]
    stored = Oscillator(*case, **settings)
    chain = Chain(steps=steps, advance=1, record=1, reverse=1, **sizes_of(stored))
    platform = Platform((Level(name="ram", capacity=4 * chain.restart),), chain.tape)
    run(revolve(chain, platform), platform, stored, [Ram()])
    again = [*stored.gradient["u"], *stored.gradient["p"]]
    of_petsc, value, expected = by_petsc(*case, **settings)
    return {
        "steps": [steps, of_petsc],
        "error": float(abs(np.array(gradient) / expected - 1).max()),
        "values": [model.functional, value],
        "repeated": again == gradient and stored.functional == model.functional,
    }


def refusal(*case, **settings):
    try:
        Oscillator(*case, **settings).advance(0, 20)
    except CkioError as error:
        return str(error)


"""

FIXED = """
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
found["adapted"] = refusal("rk", "3bs", 0.5)
found["ssp"] = refusal("ssp")
found["cn"] = refusal("cn", until=3.0)
found["end"] = refusal("rk", until=0.0)
found["arkimex"] = refusal("arkimex", integral=True)
found["adjoint"] = refusal("rk", integral=False)
print(json.dumps(found))
"""

ADAPTED = """
found = {}
for case in ("rk", "3bs"), ("rk", "5dp"), ("arkimex", "3"), ("arkimex", "4"):
    found[" ".join(case)] = compared(*case, dt=0.5, until=3.0)
print(json.dumps(found))
"""

INTEGRALS = """
found = {"verified": []}
for case in ("rk", "4"), ("beuler",), ("cn",), ("theta",):
    found[case[0]] = compared(*case, integral=True)
    make = lambda: Oscillator(*case, integral=True)
    found["verified"].append(check_model(make).verified)
found["adapted"] = compared("rk", "3bs", dt=0.5, until=3.0, integral=True)
fine = Oscillator("rk", "4", 0.001, integral=True)
fine.advance(0, 3000)
found["fine"] = fine.functional
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


def oscillators(script: str, at: Path) -> dict[str, Any]:
    return json.loads(done(sys.executable, "-c", OSCILLATOR + script, at=at))


def test_a_step_depends_on_its_state_alone(tmp_path: Path) -> None:
    found = oscillators(FIXED, tmp_path)
    assert found["3bs"] is found["5dp"] is found["4"] is found["theta"] is True
    assert "step 0: PETSc's TS adapted its step" in found["adapted"]
    assert "the TS is of type ssp" in found["ssp"]
    assert "estimates its error from the two states before" in found["cn"]
    assert "until = 0.0 must be after time 0" in found["end"]
    assert "PETSc has no cost integral" in found["arkimex"]
    assert "createQuadratureTS(True)" in found["adjoint"]


def test_an_adaptive_run_has_the_gradient_of_petsc(tmp_path: Path) -> None:
    """With all tapes, and with 4 slots: steps that are computed again have the same length."""
    found = oscillators(ADAPTED, tmp_path)
    for case, it in found.items():
        assert it["steps"][0] == it["steps"][1] > 10, case
        assert it["error"] < 1e-12, case
        assert it["values"][0] == pytest.approx(it["values"][1], rel=1e-14), case
        assert it["repeated"], case


def test_an_integral_of_petsc_is_a_part_of_the_functional(tmp_path: Path) -> None:
    """If steps are rejected, PETSc's own integral is wrong, but not its gradient."""
    found = oscillators(INTEGRALS, tmp_path)
    assert found["verified"] == [True] * 4
    for case in "rk", "beuler", "cn", "theta":
        assert found[case]["error"] < 1e-12, case
        assert found[case]["values"][0] == pytest.approx(found[case]["values"][1], rel=1e-13)
        assert found[case]["repeated"], case
    adapted = found["adapted"]
    assert adapted["error"] < 1e-12
    assert adapted["repeated"]
    assert adapted["values"][0] == pytest.approx(found["fine"], rel=1e-5)


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
