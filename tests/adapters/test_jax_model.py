"""A loop of JAX as a model: on any schedule, and in two models."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from models.fewslots import digest_by, digest_by_two  # noqa: E402
from small_models import digest, reverse_all  # noqa: E402

from ckio.actions import Advance, Key, Kind, Read, Write  # noqa: E402
from ckio.adapters.jax import JaxModel, PartitionedModel  # noqa: E402
from ckio.analysis import partition  # noqa: E402
from ckio.backends.ram import Ram  # noqa: E402
from ckio.errors import BadInput, UnsupportedKind  # noqa: E402
from ckio.jobs import gradients  # noqa: E402
from ckio.model.check import check_model  # noqa: E402
from ckio.model.gradient import check_gradient  # noqa: E402
from ckio.testing import HandingTests  # noqa: E402
from tests.single import perform_one  # noqa: E402

N = 23


def step(x: Any, k: Any, i: Any, row: Any) -> Any:
    return {"u": x["u"] + k * jnp.sin(x["u"]) + row, "count": x["count"] + 1}


def functional(x: Any) -> Any:
    return jnp.sum(x["u"] ** 2)


def model() -> JaxModel:
    x = {"u": jnp.linspace(0, 1, 6, dtype="float32"), "count": jnp.int32(0)}
    rows = jnp.linspace(0, 0.1, N, dtype="float32")
    return JaxModel(step, x, functional, N, params=jnp.float32(0.1), xs=rows, segment=4)


class TestModel(HandingTests):
    def make(self) -> JaxModel:
        return model()


def test_a_state_in_memory_is_the_array_that_was_computed() -> None:
    x = jnp.arange(100_000, dtype="float32")
    made = JaxModel(lambda x, k, i: 2 * x, x, jnp.sum, 3)
    memory, key = Ram(), Key(Kind.RESTART, 1)
    perform_one(Advance(0, 1), made, [memory])
    perform_one(Write(key, 0), made, [memory])
    pointer = made._now()[0].unsafe_buffer_pointer()
    (kept,) = memory.kept(key) or ()
    assert np.frombuffer(kept, np.uint8).ctypes.data == pointer
    perform_one(Advance(1, 3), made, [memory])
    perform_one(Read(key, 0), made, [memory])
    assert made._now()[0].unsafe_buffer_pointer() == pointer


def by_scan(u: Any, k: Any, rows: Any) -> Any:
    x, at = {"u": u, "count": jnp.int32(0)}, jnp.arange(N, dtype=jnp.int32)
    return functional(jax.lax.scan(lambda x, it: (step(x, k, *it), None), x, (at, rows))[0])


def test_its_gradient_is_that_of_a_scan_and_passes_the_taylor_test() -> None:
    made = reverse_all(model(), model().steps)
    args = (made.control["x.u"], made.control["params"], made.control["xs"])
    gradient = jax.grad(by_scan, (0, 1, 2))(*args)
    for name, expected in zip(("x.u", "params", "xs"), gradient, strict=True):
        assert np.allclose(made.gradient[name], expected, rtol=1e-5)
    assert made.functional == pytest.approx(float(by_scan(*args)), rel=1e-6)
    assert check_gradient(model, made.steps, made.gradient).verified


def test_few_slots_and_two_processes_give_the_bits_of_store_all(tmp_path: Path) -> None:
    steps = model().steps
    expected = digest(reverse_all(model(), steps))
    for plan in ("recompute-all", "periodic by 4", "hrevolve"):
        assert digest_by(plan, model, steps, tmp_path / plan) == expected, plan
    assert digest_by_two(model, steps) == expected


class Shot:
    """A step and a misfit that read attributes."""

    speed, observed = 2.0, jnp.float32(1.0)

    def step(self, x: Any, k: Any, i: Any) -> Any:
        return self.speed * x

    def misfit(self, x: Any) -> Any:
        return jnp.sum((x - self.observed) ** 2)

    def halves(self) -> Any:
        return partition(lambda x: {"u": self.speed * x["u"]}, {"u": jnp.ones(2)})


def test_a_new_model_reads_its_surroundings_and_an_old_one_does_not() -> None:
    shot, x, made = Shot(), jnp.ones(2), []
    for speed, observed in ((2.0, 1.0), (2.0, 3.0), (0.5, 1.0)):
        shot.speed, shot.observed = speed, jnp.float32(observed)
        by_parts = PartitionedModel(shot.halves(), {"u": x}, lambda x: shot.misfit(x["u"]))
        pair = JaxModel(shot.step, x, shot.misfit, 3), by_parts
        made.append((speed**3, observed, pair))
    for end, observed, pair in made:
        for model, name in zip(pair, ("x", "u"), strict=True):
            reverse_all(model, 3)
            assert model.functional == 2 * (end - observed) ** 2
            assert model.gradient[name].tolist() == [2 * end * (end - observed)] * 2


def test_a_complex_gradient_is_that_of_steepest_ascent() -> None:
    x = jnp.array([1 + 2j, 3 - 1j], "complex64")

    def step(x: Any, k: Any, i: Any) -> Any:
        return k * x + (0.1 + 0.2j) * x**2

    def j(x: Any) -> Any:
        return jnp.sum(jnp.abs(x - 1j) ** 2) + jnp.sum(x.imag**2 * x.real)

    halves = partition(lambda s: {"x": step(s["x"], s["k"], 0), "k": s["k"]}, {"x": x, "k": x})
    by_parts = PartitionedModel(halves, {"x": x, "k": x}, lambda s: j(s["x"]))
    for model in (JaxModel(step, x, j, 2, params=x), by_parts):
        reverse_all(model, 2)
        names = list(model.control)
        for name, bar in model.gradient.items():
            for entry in range(2):
                for unit in (1e-3, 1e-3j):  # dJ = Re(conj(g) dc)
                    values = []
                    for sign in (1, -1):
                        at = [np.array(model.control[it]) for it in names]
                        at[names.index(name)][entry] += sign * unit
                        end, k = (jnp.array(at[names.index(it)]) for it in ordered(names))
                        values.append(float(j(step(step(end, k, 0), k, 1))))
                    slope = (values[0] - values[1]) / 2
                    assert slope == pytest.approx((np.conj(bar[entry]) * unit).real, rel=3e-2)


def test_the_adjoint_checkpoint_of_a_complex_state_is_of_steepest_ascent_too() -> None:
    x = jnp.array([1 + 2j, 3 - 1j], "complex64") / 4
    first = {"k": x, "x": x}

    def step(s: Any) -> Any:
        return {"k": s["k"], "x": s["k"] * s["x"] + (0.1 + 0.2j) * s["x"] ** 2}

    def j(s: Any) -> Any:
        return jnp.sum(jnp.abs(s["x"] - 1j) ** 2)

    halves = partition(step, first)
    makers: list[Any] = [
        lambda: JaxModel(lambda s, k, i: step(s), first, j, 4),
        lambda: PartitionedModel(halves, first, j),
    ]
    for make in makers:
        found = check_model(make)
        assert not found.faults, found.summary()
        whole = make()
        reverse_all(whole, 4)
        in_parts = make()
        in_parts.advance(0, 4)
        for i in reversed(range(4)):
            saved = [bytes(data) for data in in_parts.dump(Key(Kind.ADJOINT, i + 1))]
            in_parts = make()
            in_parts.advance(0, i)
            in_parts.record(i, i + 1)
            key = Key(Kind.ADJOINT, i + 1)
            with in_parts.load(key, in_parts.layout(key)) as buffers:
                for buffer, data in zip(buffers, saved, strict=True):
                    buffer[:] = data
            in_parts.reverse(i, i + 1)
        for name, bar in whole.gradient.items():
            assert np.allclose(in_parts.gradient[name], bar, rtol=1e-5)


def ordered(names: list[str]) -> list[str]:
    """Return the name of the state, and that of the parameter."""
    return ["x", "params"] if "params" in names else ["x", "k"]


def test_names_that_coincide_are_refused() -> None:
    one = jnp.ones(2)
    for x in ({"a": {"b": one}, "a.b": one}, {"": one, ".": one}, {"a": [one], "a.0": one}):
        with pytest.raises(BadInput, match="several arrays have the name"):
            JaxModel(lambda x, p, i: x, x, lambda x: jnp.float32(0), 3)
    params = {"a": {"b": one}, "a.b": one}
    with pytest.raises(BadInput, match=r"params\.a\.b"):
        JaxModel(lambda x, p, i: x, one, lambda x: x.sum(), 3, params=params)


def test_a_control_that_no_file_can_store_is_refused_before_a_run() -> None:
    x = jnp.ones(3, jnp.bfloat16)
    model = JaxModel(lambda x, p, i: x * x, x, lambda x: x.sum().astype(jnp.float32), 2)
    with pytest.raises(BadInput, match=r"control .x. has dtype bfloat16.*float32"):
        gradients.digest(model.control)


def test_what_it_has_not_is_refused() -> None:
    with pytest.raises(UnsupportedKind, match="hrevolve"):
        model().layout(Key(Kind.TAPE, 1))
    with pytest.raises(BadInput, match="not a real number"):
        JaxModel(lambda x, p, i: x, jnp.ones(2), lambda x: x, 3)
