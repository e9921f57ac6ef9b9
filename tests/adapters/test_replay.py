"""Steps that are not reproducible are refused by every adapter, and reproducible ones are not."""

import itertools
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckio.errors import RunFailed
from ckio.platform import Level, Platform

AGAIN = r"x_\d+ is not the same when steps? .* computed again: .* by \d"


def memory(nbytes: int) -> Platform:
    return Platform((Level(name="ram", capacity=nbytes),))


# PyTorch


def torch_steps() -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    numbers, count = np.random.default_rng(0), itertools.count()

    return {
        "numpy": lambda x, i: x * 0.9 + 1e-3 * numbers.random(),
        "counter": lambda x, i: x * 0.9 + 1e-3 * next(count),
        "dropout": lambda x, i: torch.nn.functional.dropout(x, 0.1),
        "plain": lambda x, i: torch.sin(x),
    }


@pytest.mark.parametrize("kind", ["numpy", "counter", "dropout", "plain"])
@pytest.mark.parametrize("length", ["n", "done"])
def test_pytorch(kind: str, length: str) -> None:
    torch = pytest.importorskip("torch")
    from ckio.adapters.torch import checkpointed_loop

    x = torch.linspace(0.1, 1.0, 8).requires_grad_()
    levels = memory(5 * (x.nbytes + torch.get_rng_state().nbytes))
    if length == "n":
        end = checkpointed_loop(torch_steps()[kind], x, 40, platform=levels)
    else:
        end = checkpointed_loop(torch_steps()[kind], x, done=lambda _, i: i == 40, platform=levels)
    if kind in ("dropout", "plain"):  # torch's own random numbers belong to the state
        end.sum().backward()
        assert torch.isfinite(x.grad).all()
        return
    with pytest.raises(RunFailed, match=AGAIN):
        end.sum().backward()


# JAX


def test_jax_outside_of_jit() -> None:
    jax = pytest.importorskip("jax")
    from ckio.adapters.jax import checkpointed_scan

    count = itertools.count()

    def noisy(x, r, i):
        like = jax.ShapeDtypeStruct((), np.float32)
        noise = jax.pure_callback(
            lambda _: np.float32(1e-3 * next(count)), like, jax.lax.stop_gradient(x.sum())
        )
        return jax.numpy.tanh(r * x) + noise

    def slope(step):
        def end(r):
            x = jax.numpy.ones(5)
            return checkpointed_scan(step, x, 40, params=r, segment=1, platform=memory(100)).sum()

        return jax.grad(end)(0.9)

    assert np.isfinite(slope(lambda x, r, i: jax.numpy.tanh(r * x)))
    with pytest.raises(RunFailed, match=AGAIN):
        slope(noisy)


# pyadjoint


def test_pyadjoint(tmp_path: Path) -> None:
    pytest.importorskip("pyadjoint")
    from adapters.adjoint_programs import BEFORE, SQUARE, STEP, STEPS, platform, record
    from adjoint_fields import apply

    from ckio.adapters.pyadjoint import enable

    numbers = np.random.default_rng(0)

    def program(step):
        def steps(times, u):
            for _ in times:
                u = apply(step, STEP[1], u)
            return apply(*SQUARE, u)

        def use(tape):
            return enable(tape, platform(tmp_path), steps=STEPS)

        return record(steps, BEFORE, use)[0]

    program(STEP[0]).derivative()
    with pytest.raises(RunFailed, match=AGAIN):
        program(lambda u: STEP[0](u) + 1e-3 * numbers.random(u.shape)).derivative()


# Programs


def test_programs() -> None:
    from logistic import At, Logistic

    from ckio.programs import Options
    from ckio.programs.checkpointed import checkpoint_vjp

    class Noisy(Logistic):
        def advance(self, state: At, limit: float = inf, /):
            after, ticks, ended = super().advance(state, limit)
            return after._replace(x=after.x * (1 - 1e-9 * self.advanced)), ticks, ended

    x, bar, options = (np.array([0.1, 0.2]), 3.1, 300), np.ones(2), Options(base=10)
    checkpoint_vjp(Logistic(), x, bar, options)
    with pytest.raises(RunFailed, match=AGAIN):
        checkpoint_vjp(Noisy(), x, bar, options)
