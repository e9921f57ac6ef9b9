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


LATE = """
import json

import numpy as np
from devito import CheckpointOperator, Eq, Inc, Operator, TimeFunction, solve
from fwi import Survey, true_model

from ckio import Chain, Key, Kind, Level, Platform, Ram, run, sizes_of
from ckio.adapters.devito import OperatorModel
from ckio.planners import mixed, revolve
from ckio.testing import restore, save

LAST, MIDDLE, SLOTS = 100, 40, 10


class Centred(Survey):
    # The gradient by the wavefield of each step alone.
    def backward(self, u):
        self.v = v = TimeFunction(name="v", grid=self.grid, time_order=2, space_order=4)
        step = self.grid.stepping_dim.spacing
        update = solve(self.m * v.dt2 - v.laplace + self.damp * v.dt.T, v.backward)
        fire = self.residual.inject(field=v.backward, expr=self.residual * step**2 / self.m)
        return Operator([Eq(v.backward, update), fire, Inc(self.gradient, -u * v.dt2)])


class Forward(CheckpointOperator):
    steps = 0

    def apply(self, begin, end):
        type(self).steps += end - begin
        super().apply(begin, end)


survey = Centred(31, LAST + 1)
true, guess = true_model(survey)


def fields(**options):
    return TimeFunction(name="u", grid=survey.grid, time_order=2, space_order=4, **options)


def misfit():
    survey.residual.data[:] = survey.traces.data
    return float((survey.residual.data**2).sum() / 2)


u = fields()
forward, backward = survey.forward(u), survey.backward(u)


def shot(**late):
    survey.begin(guess)
    u.data_with_halo[:] = survey.v.data_with_halo[:] = 0
    times = {"u": u, "dt": survey.dt, "time_m": 1}
    operators = Forward(forward, **times), CheckpointOperator(backward, v=survey.v, **times)
    adjoint, gradient = [survey.v, survey.residual], {"m": survey.gradient}
    Forward.steps = 0
    return OperatorModel(
        *operators, [u], adjoint, {"m": survey.m}, gradient, misfit, records=[survey.traces], **late
    )


def found(model):
    return model.functional, np.array(model.gradient["m"]).tolist()


def by(planner, slots=SLOTS, **late):
    model = shot(**late)
    chain = Chain(steps=LAST, advance=1, record=1, record_only=0, reverse=1, **sizes_of(model))
    platform = Platform((Level(name="ram", capacity=slots * chain.restart),), chain.tape)
    run(planner(chain, platform), platform, model, [Ram()])
    return found(model), Forward.steps


every = fields(save=LAST + 2)
survey.begin(guess)
forward_all, backward_all = survey.forward(every), survey.backward(every)
times = {"time_m": 1, "time_M": LAST, "dt": survey.dt}
survey.v.data_with_halo[:] = 0
forward_all(**times)
value = misfit()
backward_all(**times)
expected = value, np.array(survey.gradient.data).tolist()

late = {"records_late": True}
early_found, early_steps = by(revolve)
late_found, late_steps = by(revolve, **late)
mixed_found, _ = by(mixed, 30, **late)

# A process that is killed in the adjoint sweep, and one that goes on.
first = shot(**late)
x0, start = Key(Kind.RESTART, 0), save(first, Key(Kind.RESTART, 0))
first.advance(0, MIDDLE)
first.record(MIDDLE, LAST)
first.reverse(MIDDLE, LAST)
a, adjoint = Key(Kind.ADJOINT, MIDDLE), save(first, Key(Kind.ADJOINT, MIDDLE))
second = shot(**late)
restore(second, a, adjoint)
restore(second, x0, start)
second.record(0, MIDDLE)
second.reverse(0, MIDDLE)
all_found = early_found, late_found, mixed_found, found(second)
tapes = sizes_of(first)["tape"], sizes_of(shot())["tape"]
equal = [it == expected for it in all_found]
print(json.dumps({"equal": equal, "steps": [early_steps, late_steps], "tapes": tapes}))
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


def test_the_gradient_is_that_of_stored_wavefields_and_passes_the_taylor_test(
    tmp_path: Path,
) -> None:
    found, remainders = compared(COMPARED, tmp_path)
    for checkpoints in ("ckio", "storages", "pyrevolve"):
        assert found[checkpoints] == found["none"], checkpoints
    assert np.log2(np.divide(remainders[:-1], remainders[1:])) == pytest.approx(2, abs=0.05)


def test_a_step_is_not_computed_if_its_adjoint_reads_the_wavefield_before_it(
    tmp_path: Path,
) -> None:
    """Of 100 steps with 10 slots revolve computes 322, or 99 fewer; all wavefields are the test."""
    found = compared(LATE, tmp_path)
    assert found["equal"] == [True] * 4
    assert found["steps"] == [322, 322 - 99]
    assert found["tapes"][0] * 3 == found["tapes"][1] * 2


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
