"""A step in JAX as a model: by every schedule, the gradient of the whole loop."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckio.actions import Key, Kind
from ckio.analysis.partitioned import partition
from ckio.backends.directory import Directory
from ckio.backends.ram import Ram
from ckio.errors import BadInput, RunFailed
from ckio.model import sizes_of
from ckio.planners.dp import hrevolve, mixed
from ckio.planners.trivial import recompute_all, store_all
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.runner import run

jax: Any = pytest.importorskip("jax")
jnp = jax.numpy
PartitionedModel: Any = pytest.importorskip("ckio.adapters.jax").PartitionedModel


pytestmark = pytest.mark.usefixtures("doubles_in_jax")


def waves(x: Any) -> Any:
    """Products of elements alone: with those of matrices JAX itself differs in the last bits."""
    u, right = x["u"], jnp.roll(x["u"], 1)
    return {"old": u, "u": x["old"] + 0.1 * jnp.sin(u) * right - x["k"] * u * u}


def height(x: Any) -> Any:
    return jnp.vdot(x["u"], x["old"])


def started() -> Any:
    u = jnp.linspace(0.1, 1, 12)
    return {"u": u, "old": u * 0.9, "k": jnp.full(12, 0.05)}


def chain_of(model: PartitionedModel, steps: int) -> Chain:
    return Chain(steps=steps, advance=1, record=3, reverse=1, **sizes_of(model))


def platform_of(chain: Chain, slots: int) -> Platform:
    far = Affine(0.5, 0.0)
    return Platform(
        (
            Level(name="ram", capacity=slots * int(chain.restart)),
            Level(name="disk", write=far, read=far),
        ),
        working_memory=int(chain.tape),  # that of one step, so that others are written
    )


def perform(planner: Any, chain: Chain, model: PartitionedModel, path: Path) -> Any:
    platform = platform_of(chain, slots=3)
    schedule = planner(chain, platform)
    far = Directory(path)
    try:
        run(schedule, platform, model, [Ram(capacity=platform.levels[0].capacity), far])
    finally:
        far.close()
    return schedule


def results(model: PartitionedModel) -> dict[str, bytes]:
    found = {name: array.tobytes() for name, array in model.gradient.items()}
    return {**found, "J": np.float64(model.functional).tobytes()}


@pytest.mark.campaign
@pytest.mark.parametrize("n", [9, 1, 100])
def test_every_schedule_gives_the_gradient_of_the_loop_to_the_last_bit(
    n: int, tmp_path: Path
) -> None:
    state = started()
    halves = partition(waves, state)
    straight = PartitionedModel(halves, state, height)
    straight.record(0, n)
    straight.reverse(0, n)

    @jax.jit
    def loop(x: Any) -> Any:
        return height(jax.lax.fori_loop(0, n, lambda _, x: {**x, **waves(x)}, x))

    j, expected = jax.value_and_grad(loop)(state)
    assert straight.functional == pytest.approx(float(j), rel=1e-12)
    for name, array in expected.items():
        scale = float(jnp.max(jnp.abs(array)))
        assert scale > 0
        np.testing.assert_allclose(straight.gradient[name], array, rtol=0, atol=1e-11 * scale)
    tapes = 0
    for planner in (store_all, recompute_all, hrevolve, mixed):
        made = PartitionedModel(halves, state, height)
        schedule = perform(planner, chain_of(made, n), made, tmp_path / planner.__name__)
        tapes += sum(
            getattr(it, "key", None) is not None and it.key.kind is Kind.TAPE
            for it in schedule.actions
        )
        assert results(made) == results(straight)
    assert tapes or n == 1


def noisy(x: Any) -> Any:
    key, now = jax.random.split(x["key"])
    kick = jax.random.normal(now, x["u"].shape).astype(x["u"].dtype)
    return {
        "u": jnp.where(x["wet"], jnp.sin(x["u"]) * kick, x["u"]),
        "key": key, "wet": ~x["wet"], "h": x["h"] * x["h"],
    }  # fmt: skip


@pytest.mark.slow
def test_checkpoints_hold_keys_masks_and_short_floats_and_an_adjoint_goes_on_elsewhere() -> None:
    x = {
        "u": jnp.linspace(0.1, 1, 5, dtype=jnp.float32), "key": jax.random.key(3),
        "wet": jnp.arange(5) % 2 == 0, "h": jnp.full(3, 0.9, jnp.bfloat16),
    }  # fmt: skip
    halves = partition(noisy, x)

    def fresh() -> PartitionedModel:
        return PartitionedModel(halves, x, lambda x: jnp.sum(x["u"]) + jnp.sum(x["h"]).astype("f4"))

    straight = fresh()
    straight.record(0, 6)
    straight.reverse(0, 6)

    def hand(key: Key, giver: PartitionedModel, taker: PartitionedModel) -> None:
        layout = giver.layout(key)
        with taker.load(key, layout) as into:
            for target, source in zip(into, giver.dump(key), strict=True):
                target[:] = source

    first, second = fresh(), fresh()
    first.advance(0, 4)
    hand(Key(Kind.RESTART, 4), first, second)
    second.record(4, 5)
    hand(Key(Kind.TAPE, 4), second, first)  # and the state of the first is x_4 still
    second.record(5, 6)
    second.reverse(5, 6)
    hand(Key(Kind.ADJOINT, 5), second, first)
    first.reverse(4, 5)
    last = fresh()
    hand(Key(Kind.ADJOINT, 4), first, last)
    last.record(0, 4)
    last.reverse(0, 4)
    assert results(last) == results(straight)


def test_what_cannot_be_is_refused() -> None:
    state = started()
    halves = partition(waves, state)
    with pytest.raises(BadInput, match=r"J is float64\[12\], not a real number"):
        PartitionedModel(halves, state, lambda x: x["u"])
    made = PartitionedModel(halves, state, height)
    behind = PartitionedModel(halves, state, height)
    for each in (made, behind):
        each.advance(0, 2)
    with pytest.raises(RunFailed, match="no tape of step 1"):
        made.reverse(1, 2)
    with pytest.raises(RunFailed, match="at step 3: the forward sweep has reached step 2"):
        behind.reverse(2, 3)
    with (
        pytest.raises(BadInput, match="x_1 does not fit this model"),
        made.load(Key(Kind.RESTART, 1), ()),
    ):
        pass
