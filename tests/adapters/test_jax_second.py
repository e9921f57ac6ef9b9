"""Outputs, tangents, Hessian products, lanes and shards of a loop of JAX are those of a scan."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.experimental import io_callback  # noqa: E402

from ckio import Level, Platform  # noqa: E402
from ckio.adapters.jax import checkpointed_scan  # noqa: E402
from ckio.adapters.jax.store import STORE  # noqa: E402
from ckio.errors import BadInput  # noqa: E402

N = 11
EVERY = 0, 1, 2
WRAPS = pytest.mark.parametrize(
    "wrap", [jax.jit, pytest.param(lambda f: f, marks=pytest.mark.slow)]
)
CONFIG = "jax_enable_x64", "jax_disable_most_optimizations"


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    before = {name: jax.config.values[name] for name in CONFIG}
    for name in CONFIG:
        jax.config.update(name, True)
    yield
    for name in CONFIG:
        jax.config.update(name, before[name])
    gc.collect()
    assert len(STORE) == 0


def step(x: Any, k: Any, i: Any, row: Any) -> Any:
    u = x["u"] + 0.1 * jnp.sin(k * x["u"] + 0.01 * i + x["count"] % 3) + row
    return {"u": u, "count": x["count"] + 1}, {"seen": u[:2] * k, "count": x["count"]}


def start(u: Any) -> Any:
    return {"u": u, "count": jnp.int32(0)}


def by_scan(u: Any, k: Any, rows: Any) -> Any:
    at = jnp.arange(N, dtype=jnp.int32), rows
    return jax.lax.scan(lambda x, it: step(x, k, *it), start(u), at)


def by_ckio(u: Any, k: Any, rows: Any, **options: Any) -> Any:
    options = {"segment": 3} | options
    return checkpointed_scan(step, start(u), N, params=k, xs=rows, outputs=True, **options)


def misfit(loop: Callable[..., Any]) -> Callable[..., Any]:
    def value(*controls: Any) -> Any:
        x, ys = loop(*controls)
        weights = jnp.arange(1.0, N + 1)[:, None]
        return jnp.sum(x["u"] ** 2) + jnp.sum(weights * ys["seen"] ** 3)

    return value


def arguments() -> tuple[Any, ...]:
    return jnp.linspace(0.0, 1.0, 4), jnp.float64(1.3), jnp.linspace(0, 0.1, N)


def lanes(count: int = 3) -> tuple[Any, ...]:
    u, k, rows = arguments()
    return jnp.stack([u * (1 + i) for i in range(count)]), k, rows


def close(found: Any, wanted: Any) -> bool:
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    return all(np.allclose(a, b, rtol=1e-11, atol=1e-12) for a, b in pairs)


def product(value: Callable[..., Any]) -> Any:
    def of(*controls: Any) -> Any:
        slope = lambda *c: jax.jvp(value, c, arguments())[1]  # noqa: E731
        return jax.grad(slope, EVERY)(*controls)

    return of


@WRAPS
def test_outputs_and_their_cotangents(wrap: Any, tmp_path: Path) -> None:
    disk = {"disk": tmp_path / "states"}
    assert close(by_ckio(*arguments()), by_scan(*arguments()))
    value = misfit(lambda *it: by_ckio(*it, **disk))
    found = wrap(jax.value_and_grad(value, EVERY))(*arguments())
    assert close(found, jax.value_and_grad(misfit(by_scan), EVERY)(*arguments()))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_outputs_of_no_steps_and_wrong_ones() -> None:
    x, y = checkpointed_scan(lambda x, _, i: (x, 2 * x), jnp.ones(3), 0, outputs=True)
    assert x.shape == (3,)
    assert y.shape == (0, 3)
    with pytest.raises(BadInput, match="must return two values"):
        checkpointed_scan(lambda x, _, i: x, jnp.ones(3), 2, outputs=True)


@WRAPS
def test_forward_mode_stores_nothing(wrap: Any, tmp_path: Path) -> None:
    value = misfit(lambda *it: by_ckio(*it, disk=tmp_path / "states"))
    found = wrap(lambda *it: jax.jvp(value, it, arguments()))(*arguments())
    assert close(found, jax.jvp(misfit(by_scan), arguments(), arguments()))
    assert not (tmp_path / "states").exists()


def test_forward_mode_in_all_directions() -> None:
    u, *rest = arguments()
    one, other = (lambda u, f=f: f(u, *rest)[0]["u"] for f in (by_ckio, by_scan))
    assert close(jax.jacfwd(one)(u), jax.jacfwd(other)(u))


@WRAPS
def test_hessian_products_are_those_of_jax(wrap: Any) -> None:
    platform = Platform((Level(name="memory", capacity=200),))  # of two states with tangents
    value = misfit(lambda *it: by_ckio(*it, platform=platform))
    assert close(wrap(product(value))(*arguments()), product(misfit(by_scan))(*arguments()))


@WRAPS
def test_a_gradient_of_each_lane(wrap: Any) -> None:
    found = wrap(jax.vmap(jax.grad(misfit(by_ckio), EVERY), (0, None, None)))(*lanes())
    wanted = jax.vmap(jax.grad(misfit(by_scan), EVERY), (0, None, None))(*lanes())
    assert close(found, wanted)


def test_one_gradient_of_all_lanes() -> None:
    def total(loop: Any) -> Any:
        return lambda *it: jax.vmap(misfit(loop), (0, None, None))(*it).sum()

    found = jax.grad(total(by_ckio), EVERY)(*lanes())
    assert close(found, jax.grad(total(by_scan), EVERY)(*lanes()))


def test_lanes_are_one_loop_and_one_by_one_where_a_step_calls_python() -> None:
    calls = []

    def loud(x: Any, k: Any, i: Any) -> Any:
        io_callback(lambda _: calls.append(1), None, i)
        return jnp.sin(k * x)

    def end(step: Any) -> Any:
        return lambda x: checkpointed_scan(step, x, 5, params=0.9, segment=2)

    x = jnp.arange(3.0)
    quiet = lambda x, k, i: jnp.sin(k * x)  # noqa: E731
    (line,) = jax.make_jaxpr(jax.vmap(end(quiet)))(x).eqns
    assert [it.aval.shape for it in line.outvars] == [(3,)]  # one loop of all lanes
    assert close(jax.vmap(end(loud))(x), jax.vmap(end(quiet))(x))
    assert len(calls) == 3 * 5
    each = jax.vmap(jax.grad(end(loud)))(x)
    assert close(each, jax.vmap(jax.grad(end(quiet)))(x))


@WRAPS
def test_shards_on_one_process(wrap: Any) -> None:
    mesh = jax.make_mesh((1,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec
    wanted = jax.grad(misfit(by_scan), EVERY)(*arguments())
    u, *rest = arguments()
    on_mesh = jax.device_put(u, jax.sharding.NamedSharding(mesh, spec("d")))
    assert close(wrap(jax.grad(misfit(by_ckio), EVERY))(on_mesh, *rest), wanted)
    whole = jax.shard_map(
        lambda *it: jax.lax.psum(misfit(by_ckio)(*it), "d"),
        mesh=mesh,
        in_specs=(spec("d"), spec(), spec()),
        out_specs=spec(),
        check_vma=False,
    )
    assert close(wrap(jax.grad(whole, EVERY))(*arguments()), wanted)
