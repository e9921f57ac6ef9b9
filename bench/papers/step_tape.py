"""How large must the tape of a step be, where values may be computed again?

One step of the vorticity model written in JAX, which does what the model in NumPy does. `jax.vjp`
keeps all that its adjoint reads; a `partition` stores what takes least: bytes, or the seconds of a
level against those that it takes to compute values again, of one step or of several jointly. Levels
are priced as they commonly are; seconds to compute are measured. `forward` and `back` are measured
for a step as both are used, compiled.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from example_models.ocean import Ocean

from bench import record
from ckio.actions import Key, Kind
from ckio.analysis.dag import cost_on, solve
from ckio.analysis.partitioned import Function, Partition, trace, weigh
from ckio.models.vorticity import ADAMS_BASHFORTH, INSIDE
from ckio.platform import Affine, Level
from ckio.platform.clock import WallClock

LENGTH, BETA, DRAG, VISCOSITY = 1e6, 2e-11, 1e-7, 100.0
"""What the model in NumPy has by default: m, m-1 s-1, s-1, m2 s-1."""


def _level(name: str, bandwidth: float) -> Level:
    price = Affine(per_byte=1 / bandwidth)
    return Level(name=name, write=price, read=price)


RAM, NVME, ARCHIVE = _level("ram", 10e9), _level("nvme", 1e9), _level("archive", 0.1e9)
LEVELS = (None, RAM, NVME, ARCHIVE)
"""Bytes only; and bytes per second, each way."""


def vorticity(grid: int, dt: float) -> Function:
    """A step of the model after its first two, from a dict of all fields to that of the next."""
    import jax.numpy as jnp

    h, wave = LENGTH / grid, np.arange(1, grid)
    sines = jnp.asarray(np.sqrt(2 / grid) * np.sin(np.pi * np.outer(wave, wave) / grid))
    values = (2 * np.cos(np.pi * wave / grid) - 2) / h**2
    inverse_values = jnp.asarray(1 / (values[:, None] + values))

    def inverse(a: Any) -> Any:
        return jnp.pad(sines @ ((sines @ a[INSIDE] @ sines) * inverse_values) @ sines, 1)

    def tendency(psi: Any, zeta: Any, wind: Any) -> Any:
        around = zeta[1:-1, 2:] + zeta[1:-1, :-2] + zeta[2:, 1:-1] + zeta[:-2, 1:-1]
        return jnp.pad(
            wind[INSIDE]
            - jacobian(psi, zeta) / (12 * h**2)
            - BETA / (2 * h) * (psi[1:-1, 2:] - psi[1:-1, :-2])
            - DRAG * zeta[INSIDE]
            + VISCOSITY / h**2 * (around - 4 * zeta[INSIDE]),
            1,
        )

    def step(state: Mapping[str, Any]) -> dict[str, Any]:
        psi, zeta = state["psi"], state["zeta"]
        now = tendency(psi, zeta, state["Q"])
        weights = (dt * weight for weight in ADAMS_BASHFORTH[-1])
        tendencies = zip((now, state["F_1"], state["F_2"]), weights, strict=True)
        new = zeta + sum(weight * each for each, weight in tendencies)
        return {
            **state,
            "J": state["J"] - 0.5 / grid**2 * jnp.sum(psi[INSIDE] * zeta[INSIDE]),
            "zeta": new,
            "psi": inverse(new),
            "zeta_prev": zeta,
            "F_0": now,
            "F_1": now,
            "F_2": state["F_1"],
        }

    return step


def repeated(step: Function, times: int, /) -> Function:
    """So many steps as one, whose values are then chosen together."""

    def steps(state: Any) -> Mapping[str, Any]:
        for _ in range(times):
            state = {**state, **step(state)}
        return dict(state)

    return steps


def jacobian(a: Any, b: Any) -> Any:
    """As `Basin.jacobian`, but for the factor."""
    across, along = a[:-2] - a[2:], a[:, 2:] - a[:, :-2]
    east, north = across[:, 1:] + across[:, :-1], along[1:] + along[:-1]
    northeast, northwest = a[:-1, 1:] - a[1:, :-1], a[1:, 1:] - a[:-1, :-1]
    there = east[:, 1:] * b[1:-1, 2:] + north[1:] * b[2:, 1:-1]
    there += northeast[1:, 1:] * b[2:, 2:] + northwest[1:, :-1] * b[2:, :-2]
    back = east[:, :-1] * b[1:-1, :-2] + north[:-1] * b[:-2, 1:-1]
    back += northeast[:-1, :-1] * b[:-2, :-2] + northwest[:-1, 1:] * b[:-2, 2:]
    return there - back


def started(grid: int, steps: int) -> tuple[Ocean, dict[str, np.ndarray]]:
    """A model in NumPy after some steps, and a copy of its state."""
    model, key = Ocean(grid=grid), Key(Kind.RESTART, steps)
    model.advance(0, steps)
    fields = zip(model.layout(key), model.dump(key), strict=True)
    return model, {
        field.name: np.frombuffer(data, field.dtype).reshape(field.shape).copy()
        for field, data in fields
    }


def away(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> float:
    """The largest difference of an array, by its largest value."""
    pairs = [(np.asarray(found[name]), np.asarray(array)) for name, array in wanted.items()]
    return max(float(np.abs(a - b).max() / (np.abs(b).max() or 1.0)) for a, b in pairs)


HEADER = ["", "fields", "values", "of x_i", "ms again", "forward ms", "back ms", "error"]


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is measured.

    Attributes
    ----------
    jointly : tuple of int
        So many steps as one.
    levels : tuple of Level or None
        For which tapes; None for as few bytes as can be.
    rounds, calls : int
        What forward and back take is the median of rounds, each of so many calls.
    """

    jointly: tuple[int, ...] = (1, 4)
    levels: tuple[Level | None, ...] = LEVELS
    rounds: int = 5
    calls: int = 10


def milliseconds(call: Callable[[], object], effort: Effort) -> float:
    """Of one call, whose arrays are waited for."""
    import jax

    def several() -> None:
        for _ in range(effort.calls):
            result = call()
        jax.block_until_ready(result)

    several()
    times = [record.seconds(several) for _ in range(effort.rounds)]
    return statistics.median(times) / effort.calls * 1e3


def rows(step: Function, state: Any, steps: int, effort: Effort) -> Iterator[list[str]]:
    """What `jax.vjp` keeps of one step, or what partitions store of several, for each level."""
    import jax

    field = state["zeta"].nbytes * steps
    cotangent = {name: np.cos(np.arange(x.size)).reshape(x.shape) for name, x in state.items()}
    forward, back = jax.jit(partial(jax.vjp, step)), jax.jit(lambda pull, c: pull(c)[0])
    after, gradient, pulls = state, cotangent, []
    for _ in range(steps):
        after, pull = forward(after)
        pulls.append(pull)
    for pull in reversed(pulls):
        gradient = back(pull, gradient)

    def taken(*calls: Callable[[], object]) -> list[str]:
        return [f"{milliseconds(call, effort) / steps:.2f}" for call in calls]

    if steps == 1:
        kept = residuals(forward, state)
        nbytes = sum(array.nbytes for array in kept)
        calls = partial(forward, state), partial(back, pulls[0], cotangent)
        yield ["jax.vjp", f"{nbytes / field:.2f}", str(len(kept)), "", "", *taken(*calls), ""]
    program = trace(repeated(step, steps), state)
    graph = weigh(program, state, WallClock())
    for level in effort.levels:
        choice = solve(graph, cost=cost_on(level) if level else None)
        halves = Partition(program, graph, choice)
        _, tape = halves.forward(state)
        error = away(halves.backward(tape, cotangent, state), gradient)
        calls = partial(halves.forward, state), partial(halves.backward, tape, cotangent, state)
        yield [
            f"{steps} jointly, {level.name if level else 'bytes only'}",
            *(f"{halves.tape / field:.2f}", str(len(halves.stored))),
            ", ".join(name for name in halves.stored if name in state),
            f"{halves.recomputing / steps * 1e3:.2f}" if level else "",
            *taken(*calls),
            f"{error:.0e}",
        ]


def residuals(forward: Callable[[Any], tuple[Any, Any]], state: Mapping[str, Any]) -> list[Any]:
    """What `jax.vjp` keeps that is not the same for every state, as its matrices of sines are."""
    import jax

    other = {name: 3 * array + 1 for name, array in state.items()}
    kept, others = (jax.tree.leaves(forward(each)[1]) for each in (state, other))
    pairs = zip(kept, others, strict=True)
    return [one for one, another in pairs if not np.array_equal(one, another)]


def table(grid: int = 128, effort: Effort = Effort()) -> str:
    """All rows; a sentence where JAX is not installed."""
    try:
        import jax
    except ImportError:
        return "jax is not installed: no tapes of a step written in it"
    with jax.enable_x64(True):
        model, state = started(grid, 3)
        step = vorticity(grid, model.dt)
        same = away(jax.jit(step)(state), started(grid, 4)[1])
        found = [row for steps in effort.jointly for row in rows(step, state, steps, effort)]
    priced = ", ".join(
        f"{level.name} {1 / level.write.per_byte:.0e}" for level in effort.levels if level
    )
    return (
        f"a step in JAX {jax.__version__}, {grid + 1} x {grid + 1} points: its tape in fields, and"
        f" how many values\nthey are; it differs from the step in NumPy by {same:.0e};"
        f" medians of {effort.rounds} rounds\n"
        f"bytes per second each way: {priced or 'no level'}\n\n"
        f"{record.columns(HEADER, found)}"
    )


if __name__ == "__main__":
    record.main("step_tape", table)
