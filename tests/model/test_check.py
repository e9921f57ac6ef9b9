"""`check_model`: the verdicts on right models, and on models with one mistake each."""

import importlib.util
import json
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from cli.commands import ckio

from ckio.errors import BadInput
from ckio.model import ArrayModel
from ckio.model.check import check_model
from ckio.models.burgers import Burgers
from ckio.models.vorticity import Vorticity
from ckio.models.wave import Wave
from ckio.testing import ModelTests

ROOT = Path(__file__).parents[2]


def module(path: Path) -> ModuleType:
    """Import a file that is in no package."""
    spec = importlib.util.spec_from_file_location(f"checked_{path.stem}", path)
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


wrong_models = module(Path(__file__).with_name("wrong_models.py"))
H = wrong_models.H
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler (cc)")


class TestBurgers(ModelTests):
    def make(self):
        return Burgers(grid=40)


class TestWave(ModelTests):
    def make(self):
        return Wave(grid=24)


class TestWaveThatReachesItsHalo(ModelTests):
    def make(self):
        return Wave(grid=16)


class TestVorticity(ModelTests):
    steps = 3

    def make(self):
        return Vorticity(grid=16)


class TestPermafrost(ModelTests):
    def make(self):
        return module(ROOT / "examples/permafrost/permafrost.py").Permafrost(grid=5, steps=4)


class TestShallowWater(ModelTests):
    steps = 3

    def make(self):
        return module(ROOT / "examples/shallow_water/shallow_water.py").ShallowWater(grid=5)


class TestOcean(ModelTests):
    steps = 3

    def make(self):
        return module(ROOT / "examples/ocean/ocean.py").Ocean(grid=16)


@pytest.mark.parametrize("name", ["Right", "Single", "Complex"])
def test_a_right_model_is_verified(name):
    check = check_model(getattr(wrong_models, name))
    assert not check.faults, str(check)
    assert check.verified, str(check)
    whole = {it.by for it in check.derivatives if it.steps == (0, 5)}
    assert whole == {"control u", "control k", "control force"}


def test_what_has_no_name_in_the_adjoint_is_said_to_be_untested():
    check = check_model(wrong_models.Own)
    assert not check.faults
    assert not check.verified
    assert "['sum']" in check.untested[0]
    assert "not tested" in str(check)


@pytest.mark.parametrize(
    ("kind", "check", "array", "reason"),
    wrong_models.WRONG,
    ids=[kind.__name__ for kind, *_ in wrong_models.WRONG],
)
def test_a_wrong_model_is_found_with_array_and_step(kind, check, array, reason):
    result = check_model(kind)
    assert not result.verified
    assert result.faults[0].check == check
    assert not array or array in {fault.array for fault in result.faults}
    assert any(re.search(reason, fault.reason) for fault in result.faults), str(result)


@needs_cc
def test_a_library_in_c_is_verified(tmp_path):
    assert check_model(wrong_models.in_c(tmp_path)).verified


@needs_cc
@pytest.mark.parametrize(
    ("mistake", "check", "array"),
    [
        ("swaps pointers", "steps", "u"),
        ("a static variable", "steps", "J"),
        ("a wrong sign", "derivative", "u"),
    ],
)
def test_a_mistake_in_c_is_found(tmp_path, mistake, check, array):
    result = check_model(wrong_models.in_c(tmp_path, *wrong_models.IN_C[mistake]))
    assert (result.faults[0].check, result.faults[0].array) == (check, array), str(result)


def test_a_sum_whose_order_changes_is_equal_up_to_rounding():
    class Threads(wrong_models.Right):
        def step(self, state, i):
            super().step(state, i)
            order = np.random.permutation(wrong_models.N)
            state["u"] += (state["u"] * np.sqrt(np.arange(wrong_models.N)))[order].sum()

    fault = check_model(Threads).faults[0]
    assert "equal up to rounding" in fault.reason


def test_a_model_without_tapes_or_adjoint_checkpoints_is_tested_by_its_gradient():
    from ckio.actions import Kind
    from ckio.errors import UnsupportedKind

    class NoAdjoint(wrong_models.Own):
        wrong = 1.0

        def layout(self, key):
            if key.kind is not Kind.RESTART:
                raise UnsupportedKind(str(key))
            return super().layout(key)

        def reverse(self, begin, end):
            for i in reversed(range(begin, end)):
                super().reverse(i, i + 1)
                if i == 2:
                    self.of_rate *= self.wrong

    check = check_model(NoAdjoint)
    assert not check.faults
    assert not check.verified
    assert {it.by for it in check.derivatives} == {"control x", "control rate"}
    fault = check_model(type("Wrong", (NoAdjoint,), {"wrong": 1.01})).faults[0]
    assert (fault.check, fault.step, fault.array) == ("gradient", 5, "control rate")


def test_a_model_that_ends_by_itself_is_checked_up_to_there():
    class Short(wrong_models.Right):
        def finished(self, state, i):
            return i == 2

    check = check_model(Short)
    assert check.verified
    assert check.steps == 2


def test_a_term_that_is_not_added_in_place_and_a_step_that_writes_nothing_are_told_apart():
    class Lost(wrong_models.Right):
        def adjoint_step(self, adjoint, tape, i):
            super().adjoint_step({**adjoint, "v": adjoint["v"].copy()}, tape, i)
            adjoint["v"][...] = 0

    class NotMoved(wrong_models.Right):
        def step(self, state, i):
            super().step({**state, "u": state["u"].copy()}, i)

    faults = check_model(Lost).faults
    assert any("the adjoint step adds nothing for v, or not in place" in it.reason for it in faults)
    assert any("no step changes 'u'" in it.reason for it in check_model(NotMoved).faults)


@pytest.mark.parametrize(("name", "off"), [("Right", 1e-7), ("Single", 3e-3), ("Complex", 1e-7)])
def test_a_small_error_in_one_step_is_found(name, off):
    class Off(getattr(wrong_models, name)):
        def adjoint_step(self, adjoint, tape, i):
            super().adjoint_step(adjoint, tape, i)
            adjoint["v"] *= 1 + off * (i == 2)

    fault = check_model(Off).faults[0]
    assert (fault.check, fault.step, fault.array) == ("derivative", 2, "v")
    assert "of it)" in fault.reason or "1.003 times" in fault.reason


def test_the_factor_and_the_line_are_named():
    fault = next(
        it for it in check_model(wrong_models.Factor).faults if "by control k" in it.reason
    )
    assert "(20 times)" in fault.reason  # 1 / H
    reason = check_model(wrong_models.NotOnTape).faults[0].reason
    assert re.search(r", at wrong_models\.py:\d+ \(adjoint of step 0\)$", reason)


def test_land_without_values_is_no_fault():
    class Land(wrong_models.Right):
        def start(self, state):
            super().start(state)
            for array in (state["u"], state["v"]):
                array[:2] = np.nan

        def adjoint_start(self, adjoint):
            for array in (adjoint["u"], adjoint["v"]):
                array[:2] = 0
            super().adjoint_start(adjoint)

        def step(self, state, i):
            u, v = state["u"], state["v"]
            state["J"] += 0.5 * np.nansum(u**2)
            change = H * u * v
            v += 0.1 * (u - v) + self.control["force"]
            u += change

        def adjoint_step(self, adjoint, tape, i):
            u, v, of_u, of_v = tape["u"], tape["v"], adjoint["u"], adjoint["v"]
            self.gradient["force"][2:] += of_v[2:]
            through = H * u * of_u
            of_u += H * v * of_u + 0.1 * of_v + u * adjoint["J"]
            of_v *= 0.9
            of_v += through

        def adjoint_seed(self, state, adjoint, n):
            return 0.0

    check = check_model(Land)
    assert check.verified, str(check)


class Ring(ArrayModel):
    """Heat on a ring, whose first and last elements repeat those of the other end."""

    factor = 1.0  # that of the adjoint

    def __init__(self):
        inside = np.sin(np.arange(9.0))
        super().__init__({"u": np.zeros(11), "J": 0.0}, control={"inside": inside}, tape=["u"])

    def start(self, state):
        state["u"][1:-1] = self.control["inside"]
        self.fill(state)

    def adjoint_start(self, adjoint):
        self.gradient["inside"] += adjoint["u"][1:-1]

    def fill(self, arrays):
        arrays["u"][0], arrays["u"][-1] = arrays["u"][-2], arrays["u"][1]

    def step(self, state, i):
        u = state["u"]
        state["J"] += (u[1:-1] ** 2).sum()
        u[1:-1] += 0.2 * (u[2:] - 2 * u[1:-1] + u[:-2])
        self.fill(state)

    def adjoint_step(self, adjoint, tape, i):
        bar, u = adjoint["u"][1:-1], tape["u"][1:-1]
        bar += 0.2 * (np.roll(bar, 1) - 2 * bar + np.roll(bar, -1)) + 2 * u * adjoint["J"]
        bar *= self.factor


def test_elements_that_repeat_others_are_changed_with_them():
    class Complete(Ring):
        complete = Ring.fill

    check = check_model(Complete)
    assert check.verified, str(check)
    found = check_model(type("Twice", (Complete,), {"factor": 2.0}))
    assert {it.array for it in found.faults} == {"u", "control inside"}
    assert all("(2 times)" in it.reason for it in found.faults)  # by differences it is right


def test_the_method_that_a_model_with_a_halo_lacks_is_named():
    fault = check_model(Ring).faults[0]
    assert (fault.check, fault.array) == ("derivative", "u")
    assert "the gradient of all steps is right nevertheless" in fault.reason
    assert "`complete`" in fault.reason


def test_a_model_in_place_of_its_class_is_refused():
    with pytest.raises(BadInput, match="a Right does not make models; give a class"):
        check_model(wrong_models.Right())


def test_half_precision_is_no_fault():
    """Near its fixed point, x_n and J do not change at all if a control does by an eighth."""

    torch = pytest.importorskip("torch")

    from ckio.adapters.torch import TorchModel

    def make():
        rate = torch.tensor(2.1, dtype=torch.float16, requires_grad=True)
        x = torch.tensor([0.1, 0.3], dtype=torch.float16)
        return TorchModel(lambda x, i: x * rate * (1 - x), x, torch.sum, params={"rate": rate})

    check = check_model(make)
    assert not check.faults
    assert any("differences cannot resolve" in it for it in check.untested)


@pytest.mark.parametrize("wrong", [False, True])
def test_a_kink_of_a_right_model_is_no_fault(wrong):
    """At its kinks 0 and 1, torch.clamp has a one-sided derivative, which differences do not."""
    torch = pytest.importorskip("torch")

    from ckio.adapters.torch import TorchModel

    def make():
        x = torch.linspace(-1, 1, 7, dtype=torch.float64)
        rate = torch.tensor(0.9, dtype=torch.float64, requires_grad=True)

        def step(x, i):
            kept = x.detach() if wrong else x
            return torch.relu(rate * x - 0.2) + 0.1 * torch.clamp(x, 0, 1) + 0.3 * torch.sin(kept)

        return TorchModel(step, x, lambda x: x.square().sum(), params={"rate": rate})

    check = check_model(make)
    assert bool(check.faults) == wrong
    assert wrong or any("has a kink" in it for it in check.untested)


def test_a_program_is_refused_because_its_checkpoints_differ_in_size():
    from ckio.programs import as_chain, program

    @program
    def twice(x):
        i = 0
        while i < 4:
            x, i = 2 * x, i + 1
        return x

    with pytest.raises(BadInput, match="check its gradient with check_gradient"):
        check_model(lambda: as_chain(twice, 1.0, 1))


def test_steps_must_be_positive():
    with pytest.raises(BadInput, match="steps = 0"):
        check_model(wrong_models.Right, steps=0)


@pytest.mark.parametrize(("name", "status"), [("Right", 0), ("Own", 0), ("Sign", 1), ("Random", 1)])
def test_the_command_prints_the_verdict(tmp_path, name, status):
    model = f"{Path(__file__).with_name('wrong_models.py')}:{name}"
    text = ckio("check", model, at=tmp_path, status=status)
    found = json.loads(ckio("check", model, "--json", at=tmp_path, status=status).stdout)
    assert found["verified"] is (name == "Right")
    assert [bool(found["faults"]), "WRONG" in text.stdout] == [bool(status)] * 2
    assert ("is wrong: " in text.stderr) == bool(status)


def test_the_page_shows_what_the_command_prints(tmp_path):
    page = (ROOT / "docs/wrong_gradient.md").read_text()
    for text in (page, (ROOT / "docs/own_model.md").read_text()):
        for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, re.DOTALL):
            (tmp_path / name).write_text(code)
    ((words, shown),) = re.findall(r"```console\n\$ ckio (.*?)\n(.*?)```", page, re.DOTALL)
    done = ckio(*words.split(), at=tmp_path, status=1)
    number = re.compile(r"-?\d+\.\d+(e[-+]\d+)?")  # the last digits depend on the processor
    assert number.sub("#", done.stdout) == number.sub("#", shown)
    right = ckio("check", "heat.py", "--set", "grid=50", "--steps", "10", at=tmp_path)
    assert right.stdout.startswith("verified in 10 steps")
