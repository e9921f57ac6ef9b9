"""Hessian products are those of differences and of the frameworks, whatever is stored."""

import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckio
from ckio import Level, Platform
from ckio.actions import Discard, Write
from ckio.errors import BadInput, RunFailed
from ckio.model.check import check_model

N, X0, P = 40, {"u": np.linspace(0.1, 0.4, 12)}, {"rate": 0.3, "k": 0.2}


def spread(u: Any) -> Any:
    return np.roll(u, 1) - 2 * u + np.roll(u, -1)


def step(x: Any, p: Any, i: int) -> Any:
    u = x["u"]
    return {"u": u + p["rate"] * u * (1 - u) + p["k"] * spread(u)}, (u**3).sum()


def adjoint(bar: Any, x: Any, p: Any, i: int) -> Any:
    u, b = x["u"], bar["u"]
    bars = {"u": b * (1 + p["rate"] * (1 - 2 * u)) + p["k"] * spread(b) + 3 * u**2}
    return bars, {"rate": (u * (1 - u) * b).sum(), "k": (spread(u) * b).sum()}


def tangent(x: Any, p: Any, i: int, dx: Any, dp: Any) -> Any:
    u, du = x["u"], dx["u"]
    grown = p["rate"] * (1 - 2 * u) * du + dp["rate"] * u * (1 - u)
    return {"u": du + grown + p["k"] * spread(du) + dp["k"] * spread(u)}, (3 * u**2 * du).sum()


def second(bar: Any, x: Any, p: Any, i: int, *directions: Any) -> Any:
    dbar, dx, dp = directions
    u, b, du, db = x["u"], bar["u"], dx["u"], dbar["u"]
    bars = db * (1 + p["rate"] * (1 - 2 * u)) + p["k"] * spread(db)
    bars = bars + b * (dp["rate"] * (1 - 2 * u) - 2 * p["rate"] * du) + dp["k"] * spread(b)
    return {"u": bars + 6 * u * du}, {
        "rate": ((1 - 2 * u) * du * b + u * (1 - u) * db).sum(),
        "k": (spread(du) * b + spread(u) * db).sum(),
    }


def make(**changed: Any) -> Any:
    given = {"tangent": tangent, "second": second} | changed
    return ckio.functions(step, adjoint, X0, P, **given)


def direction(seed: int = 1) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    return {"u": draw.normal(size=12), "rate": draw.normal(), "k": draw.normal()}


def moved(t: float, along: dict[str, Any]) -> dict[str, Any]:
    return {name: value + t * along[name] for name, value in (X0 | P).items()}


def dot(one: Any, other: Any) -> float:
    return float(sum(np.sum(one[name] * other[name]) for name in other))


@pytest.mark.parametrize("ram", ["1MiB", "800B"])
def test_the_product_is_the_difference_of_gradients(ram: str) -> None:
    v, h = direction(), 1e-4
    found = ckio.hessian_product(make(), v, steps=N, ram=ram)
    ends = [ckio.gradient(make(), steps=N, control=moved(t, v), ram=ram) for t in (h, -h)]
    for name, array in found.product.items():
        difference = (ends[0].gradient[name] - ends[1].gradient[name]) / (2 * h)
        assert np.allclose(array, difference, rtol=1e-6, atol=1e-6), name
    here = ckio.gradient(make(), steps=N, ram=ram)
    assert all(np.allclose(found.gradient[it], here.gradient[it], rtol=1e-13) for it in v)
    assert found.slope == pytest.approx(dot(here.gradient, v), rel=1e-12)


def test_few_checkpoints_give_the_same_bits_and_take_the_memory_they_may() -> None:
    many, few = (
        ckio.hessian_product(make(), direction(), steps=N, ram=it) for it in ("1MiB", "800B")
    )
    assert all(np.array_equal(many.product[it], few.product[it]) for it in X0 | P)
    assert few.run.schedule.chain.restart == 2 * 12 * 8 + 8  # u, du and dJ
    stored = most = 0
    for action in few.run.schedule.actions:
        stored += isinstance(action, Write) - isinstance(action, Discard)
        most = max(most, stored)
    assert most == 4  # in 800 bytes


def test_the_remainder_of_second_order_falls_with_the_third_power() -> None:
    v = direction()
    found = ckio.hessian_product(make(), v, steps=N, ram="1kB")
    curvature = dot(found.product, v)

    def j(t: float) -> float:
        model = make()()
        for name, value in moved(t, v).items():
            model.control[name][...] = value
        model.advance(0, N)
        return float(model.functional)

    remainders = [
        abs(j(t) - j(0.0) - t * found.slope - t**2 / 2 * curvature)
        for t in (0.008, 0.004, 0.002, 0.001)
    ]
    rates = [math.log2(a / b) for a, b in pairwise(remainders)]
    assert all(abs(rate - 3) < 0.1 for rate in rates), rates


def test_the_hessian_is_symmetric() -> None:
    v, w = direction(1), direction(2)
    one, other = (ckio.hessian_product(make(), it, steps=N, ram="1kB") for it in (v, w))
    assert dot(one.product, w) == pytest.approx(dot(other.product, v), rel=1e-12)


def test_the_pair_is_an_ordinary_model_that_can_be_checked() -> None:
    assert check_model(lambda: make()().tangent_model()).verified
    found = ckio.hessian_product(make(), direction(), steps=N, ram="1kB", check=True)
    assert found.run.verified


def test_a_wrong_second_function_is_found() -> None:
    def wrong(*given: Any) -> Any:
        bars, more = second(*given)
        return {"u": 1.01 * bars["u"]}, more

    with pytest.raises(ckio.errors.NotVerified):
        ckio.hessian_product(make(second=wrong), direction(), steps=N, ram="1kB", check=True)


def test_single_arrays_and_other_controls() -> None:
    """J = x_0^2 + p x_0^2 + ...: three steps x <- p x with j = x^2."""
    model = ckio.functions(
        lambda x, p, i: (p * x, x**2),
        lambda bar, x, p, i: (p * bar + 2 * x, x * bar),
        1.0,
        2.0,
        tangent=lambda x, p, i, dx, dp: (p * dx + dp * x, 2 * x * dx),
        second=lambda bar, x, p, i, dbar, dx, dp: (
            p * dbar + dp * bar + 2 * dx,
            x * dbar + dx * bar,
        ),
    )
    x, p = 1.5, 3.0
    found = ckio.hessian_product(model, {"p": 1.0}, steps=3, ram="1kB", control={"x": x, "p": p})
    assert found.gradient["p"] == pytest.approx(x**2 * (2 * p + 4 * p**3))
    assert found.product["p"] == pytest.approx(x**2 * (2 + 12 * p**2))
    assert found.product["x"] == pytest.approx(2 * x * (2 * p + 4 * p**3))


def test_newton_by_conjugate_gradients_finds_the_start() -> None:
    """The start of a misfit at the end, by scipy's trust-ncg, in few iterations."""
    from scipy.optimize import minimize

    target, n = np.sin(np.linspace(0, 3, 6)), 10
    last = lambda i: float(i == n - 1)  # noqa: E731

    def forth(u: Any, p: Any, i: int) -> Any:
        return u + 0.1 * u * (1 - u), last(i) * ((u - target) ** 2).sum() + 1e-3 * (u**2).sum()

    def back(b: Any, u: Any, p: Any, i: int) -> Any:
        return b * (1.1 - 0.2 * u) + last(i) * 2 * (u - target) + 2e-3 * u, None

    model = ckio.functions(
        forth,
        back,
        np.full(6, 0.5),
        tangent=lambda u, p, i, du, dp: (
            du * (1.1 - 0.2 * u),
            (du * (last(i) * 2 * (u - target) + 2e-3 * u)).sum(),
        ),
        second=lambda b, u, p, i, db, du, dp: (
            db * (1.1 - 0.2 * u) - 0.2 * b * du + (last(i) * 2 + 2e-3) * du,
            None,
        ),
    )
    memory = Level(name="memory", backend="ram", capacity=1000)
    options: dict[str, Any] = {"steps": n, "platform": Platform((memory,))}

    def misfit(u: Any) -> Any:
        found = ckio.gradient(model, control={"x": u}, **options)
        return found.functional, found.gradient["x"]

    def hessp(u: Any, v: Any) -> Any:
        return ckio.hessian_product(model, {"x": v}, control={"x": u}, **options).product["x"]

    found = minimize(misfit, np.full(6, 0.5), jac=True, hessp=hessp, method="trust-ncg")
    assert found.success
    assert np.abs(found.jac).max() < 1e-4
    assert found.nit < 10


def test_errors_say_what_to_give() -> None:
    along = {"u": np.ones(12)}
    with pytest.raises(BadInput, match="needs tangent and second"):
        ckio.hessian_product(ckio.functions(step, adjoint, X0, P), along, steps=3, ram="1kB")
    with pytest.raises(BadInput, match="second is None; give a function"):
        make(second=None)
    with pytest.raises(BadInput, match=r"no control 'v'"):
        ckio.hessian_product(make(), {"v": 1.0}, steps=3, ram="1kB")
    with pytest.raises(BadInput, match="no method tangent_model"):
        ckio.hessian_product("wave", {}, steps=3, ram="1MiB")
    bad = make(tangent=lambda *_: ({"u": np.ones(3)}, 0.0))
    with pytest.raises(RunFailed, match=r"'tangent_u' with shape \(3,\)"):
        ckio.hessian_product(bad, along, steps=3, ram="1kB")
    bad = make(second=lambda *_: None)
    with pytest.raises(RunFailed, match="second returned None; it must return two values"):
        ckio.hessian_product(bad, along, steps=3, ram="1kB")


def test_the_page_prints_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(__file__).parents[2]
    readme, page = ((root / it).read_text("utf-8") for it in ("README.md", "docs/own_model.md"))
    own = readme.split("## Your own model")[1].split(">>> model =")[0]
    defined = "\n".join(re.findall(r"^(?:>>>|\.\.\.) (.*)$", own, re.MULTILINE))
    ((code, shown),) = re.findall(
        r"```python\n# newton\.py\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL
    )
    exec(f"{defined}\n{code}", {"__name__": "newton"})
    assert capsys.readouterr().out == shown


def test_jax_computes_the_tangents_of_its_own_steps() -> None:
    jax = pytest.importorskip("jax")
    jnp = pytest.importorskip("jax.numpy")

    def forth(u: Any, p: Any, i: int) -> Any:
        return u + p * jnp.sin(u), (u**3).sum()

    def back(bar: Any, u: Any, p: Any, i: int) -> Any:
        return jax.vjp(lambda u, p: forth(u, p, i), u, p)[1]((bar, jnp.ones(())))

    model = ckio.functions(
        forth,
        back,
        np.linspace(0.1, 0.4, 4),
        0.3,
        tangent=lambda u, p, i, du, dp: jax.jvp(lambda *at: forth(*at, i), (u, p), (du, dp))[1],
        second=lambda b, u, p, i, db, du, dp: jax.jvp(
            lambda *at: back(*at, i), (b, u, p), (db, du, dp)
        )[1],
    )
    before = jax.config.values["jax_enable_x64"]
    jax.config.update("jax_enable_x64", True)
    try:
        along = {"x": np.ones(4), "p": 0.5}
        found = ckio.hessian_product(model, along, steps=6, ram="1kB", check=True)

        def value(u: Any, p: Any) -> Any:
            total = 0.0
            for i in range(6):
                u, j = forth(u, p, i)
                total += j
            return total

        at, v = (np.linspace(0.1, 0.4, 4), 0.3), (np.ones(4), 0.5)
        _, wanted = jax.jvp(jax.grad(value, (0, 1)), at, v)
    finally:
        jax.config.update("jax_enable_x64", before)
    assert np.allclose(found.product["x"], wanted[0], rtol=1e-12)
    assert np.allclose(found.product["p"], wanted[1], rtol=1e-12)
