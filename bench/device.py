"""ckio on a CUDA device: the gradient of a 3-D wave, beside the methods of JAX and PyTorch.

    python -m bench.device run FILE [--grid 400] [--steps 1000] [--cases "ckio;nested;copies"]
    python -m bench.device record FILE          bench/results/device.txt, on any machine

The model is examples/wave3d. Each case is a process of its own. It computes the gradient once to
compile, and then several times, of which the median is shown. The checkpoints of a case may take
8 GB of the memory of the device, and 56 GB of the host. The cases:

* ckio: its plan with the levels "device" and "pinned"; the same without overlap; and with the level
  "device" alone
* nested: `jax.checkpoint` around the bodies of loops within loops
* offloaded: the state before each segment goes to the host, by a policy of `jax.checkpoint`
* torch: nested `torch.utils.checkpoint`, with the step compiled by `torch.compile`

Two further parts measure the speed of copies beside that of bare page-locked copies, with and
without a computation at the same time, and the error of predictions for five schedules.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from bench import ROOT, record

EXAMPLE = ROOT / "examples/wave3d"
LIMIT = 8 * 10**9
HOST = 56 * 10**9
BLOCK = 4
"""Time steps of one step of ckio's schedules."""
REPEATS = 3
COPIES = 20
CASES = (
    "ckio",
    "ckio, no overlap",
    "ckio, device alone",
    "nested",
    "offloaded, 8",
    "offloaded, 10",
    "offloaded, 20",
    "torch",
    "copies",
    "predictions",
)

sys.path.insert(0, str(EXAMPLE))

Result = dict[str, Any]


def timed(gradient: Callable[[], Any]) -> list[float]:
    """Return the seconds of each computation, without the first one, which compiles."""
    return [record.seconds(gradient) for _ in range(1 + REPEATS)][1:]


def digest(array: Any) -> str:
    """Return a short digest of the bits of an array."""
    import numpy as np
    import xxhash

    return xxhash.xxh3_64_hexdigest(np.ascontiguousarray(np.asarray(array)))


# ckio


def calibrated(grid: int, *, pinned: bool = True) -> Any:
    """Return the measured platform."""
    from wave3d import wave

    from ckio import Level
    from ckio.jobs.models import measured

    levels = [Level(name="device", backend="device", capacity=LIMIT)]
    if pinned:
        levels.append(Level(name="pinned", backend="pinned", capacity=HOST))
    return measured(levels, models={"wave": partial(wave, grid, 24 * BLOCK, BLOCK)})


def performed(grid: int, steps: int, schedule: Any, platform: Any, overlap: Any) -> Result:
    """Run a schedule several times; return the makespans and the gradient of the last run."""
    from wave3d import wave

    from ckio.adapters.registry import open_level
    from ckio.runner import run

    makespans, model = [], None
    levels = [open_level(level, run="bench") for level in platform.levels]
    for _ in range(1 + REPEATS):
        model = None  # release it before the next one is made
        model = wave(grid, steps, BLOCK)
        makespans.append(run(schedule, platform, model, levels, overlap=overlap).makespan)
    for level in levels:
        level.close()
    assert model is not None
    return {
        "seconds": makespans[1:],
        "J": model.functional,
        "digest": digest(model.gradient["params"]),
        "overlap": str(overlap),
    }


def by_ckio(grid: int, steps: int, *, overlaps: bool = True, pinned: bool = True) -> Result:
    """Plan as `ckio run` does, and run the plan."""
    from ckio.planners.fastest import plan
    from ckio.schedule.policy import AUTO, SYNCHRONOUS

    platform = calibrated(grid, pinned=pinned)
    chain = replace(platform.models["wave"], steps=steps // BLOCK)
    begin = time.perf_counter()
    planned = plan(chain, platform, tapes=False, overlap=AUTO if overlaps else SYNCHRONOUS)
    planning = time.perf_counter() - begin
    result = performed(grid, steps, planned, platform, planned.overlap)
    predicted = planned.makespan or planned.synchronous
    costs = f"{chain.advance:.3g} {chain.reverse:.3g}; {planned.note}; {planned.bound}"
    return {**result, "predicted": predicted, "planning": planning, "costs": costs}


# JAX


def by_jax(grid: int, j: Callable[..., Any]) -> Result:
    """Compute the gradient of J(x_0, c2) by `jax.grad`."""
    import jax
    from wave3d import start

    x, c2 = start(grid)
    compiled = jax.jit(jax.value_and_grad(j, argnums=(0, 1)))
    last: list[Any] = []

    def gradient() -> None:
        last.clear()
        last.append(jax.block_until_ready(compiled(x, c2)))

    seconds = timed(gradient)
    value, (_, by_c2) = last[0]
    return {"seconds": seconds, "J": float(value), "digest": digest(by_c2)}


def nested(lengths: tuple[int, ...]) -> Callable[..., Any]:
    """Return J(x_0, c2) by loops of these lengths within each other."""
    import jax
    from jax import lax
    from wave3d import step

    def loop(x: Any, c2: Any, lengths: tuple[int, ...]) -> Any:
        if not lengths:
            return step(x, c2, 0)
        body = jax.checkpoint(lambda x: loop(x, c2, lengths[1:]))
        return lax.scan(lambda x, _: (body(x), None), x, None, lengths[0])[0]

    return lambda x, c2: loop(x, c2, lengths)["J"]


def offloaded(steps: int, segment: int) -> Callable[..., Any]:
    """Return J(x_0, c2) by segments, of which JAX stores the first state on the host."""
    import jax
    from jax import lax
    from jax.ad_checkpoint import checkpoint_name
    from wave3d import step

    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["x"],
        offload_src="device",
        offload_dst="pinned_host",
    )

    def inner(x: Any, c2: Any) -> Any:
        named = {name: checkpoint_name(x[name], "x") for name in ("u", "v")}
        body = jax.checkpoint(lambda x: step(x, c2, 0))
        x = {**named, "J": x["J"]}
        return lax.scan(lambda x, _: (body(x), None), x, None, segment)[0]

    def j(x: Any, c2: Any) -> Any:
        body = jax.checkpoint(lambda x: inner(x, c2), policy=policy)
        return lax.scan(lambda x, _: (body(x), None), x, None, steps // segment)[0]["J"]

    return j


def lengths_of(steps: int) -> tuple[int, ...]:
    """Return the lengths of nested loops; 1000 steps are 5 x 5 x 5 x 8, with 23 stored states."""
    return (steps // 200, 5, 5, 8)


# PyTorch


def by_torch(grid: int, steps: int) -> Result:
    """Compute the gradient by nested `torch.utils.checkpoint`."""
    import numpy as np
    import torch
    from torch.nn.functional import pad
    from torch.utils.checkpoint import checkpoint
    from wave3d import RADIUS, WEIGHTS, start

    x, c2 = start(grid)
    u = torch.from_numpy(np.array(x["u"])).cuda()
    speed = torch.from_numpy(np.array(c2)).cuda().requires_grad_()

    @torch.compile
    def step(u: Any, v: Any, speed: Any) -> Any:
        padded = pad(u, [RADIUS] * 6)
        total = 3 * WEIGHTS[0] * u
        for axis in range(3):
            for k in range(1, RADIUS + 1):
                for shift in (k, -k):
                    part = padded
                    for dim in range(3):
                        offset = RADIUS + (shift if dim == axis else 0)
                        part = part.narrow(dim, offset, grid)
                    total = total + WEIGHTS[k] * part
        return 2 * u - v + speed * total

    def loop(u: Any, v: Any, j: Any, lengths: tuple[int, ...]) -> Any:
        if not lengths:
            after = step(u, v, speed)
            return after, u, j + 0.5 * (after[:, :, RADIUS] ** 2).sum()
        for _ in range(lengths[0]):
            u, v, j = checkpoint(loop, u, v, j, lengths[1:], use_reentrant=False)
        return u, v, j

    last: list[Any] = []

    def gradient() -> None:
        last.clear()
        first = u.clone().requires_grad_()
        *_, j = loop(first, first, torch.zeros((), device="cuda"), lengths_of(steps))
        found = torch.autograd.grad(j, (first, speed))
        torch.cuda.synchronize()
        last.extend((float(j), found[1]))

    torch.cuda.reset_peak_memory_stats()
    seconds = timed(gradient)
    value, by_c2 = last
    peak = torch.cuda.max_memory_allocated()
    return {"seconds": seconds, "J": value, "digest": digest(by_c2.cpu()), "peak": peak}


# Copies, and predictions


def copies(grid: int) -> Result:
    """Measure copies alone, and beside the computation."""
    from wave3d import wave

    from ckio.actions import Key, Kind
    from ckio.adapters.cuda import PinnedMemory, stream_of

    key, model = Key(Kind.RESTART, 0), wave(grid, 10_000)
    layout, data = model.layout(key), model.dump(key)
    nbytes = sum(view.nbytes for view in data)
    cuda, pinned = stream_of(0).cuda, PinnedMemory()
    host, stream = cuda.hostAlloc(nbytes, 0), cuda.streamCreateWithFlags(cuda.streamNonBlocking)

    def bare(*, down: bool) -> None:
        begin = 0
        for view in data:
            ends = (host + begin, view.address) if down else (view.address, host + begin)
            cuda.memcpyAsync(*ends, view.nbytes, cuda.memcpyDefault, stream)
            begin += view.nbytes
        cuda.streamSynchronize(stream)

    def write() -> None:
        pinned.write(key, layout, data)
        pinned.discard(key)

    def rate(copy: Callable[[], object]) -> float:
        copy()
        return nbytes * COPIES / record.seconds(lambda: [copy() for _ in range(COPIES)]) / 1e9

    pinned.reserve({nbytes: 2})
    kept = Key(Kind.RESTART, 1)
    pinned.write(kept, layout, data)
    result = {
        "bare down": rate(lambda: bare(down=True)),
        "bare up": rate(lambda: bare(down=False)),
        "write": rate(write),
        "read": rate(lambda: pinned.read(kept, data)),
    }
    at = 0

    def advance() -> None:
        nonlocal at
        model.advance(at, at + 200)
        at += 200

    with _repeated(write) as moved:
        alone, beside, rates = [], [], []
        for _ in range(5):
            moved["pause"] = True
            time.sleep(0.1)
            alone.append(record.seconds(advance))
            moved["pause"] = False
            before, begin = moved["count"], time.perf_counter()
            beside.append(record.seconds(advance))
            rates.append((moved["count"] - before) * nbytes / (time.perf_counter() - begin) / 1e9)
    slower = statistics.median(beside) / statistics.median(alone) - 1
    return {**result, "beside": statistics.median(rates), "slower": slower}


@contextmanager
def _repeated(copy: Callable[[], object]) -> Iterator[dict[str, Any]]:
    """Repeat a copy in a thread, except during pauses."""
    state: dict[str, Any] = {"count": 0, "pause": True, "end": False}

    def work() -> None:
        while not state["end"]:
            if state["pause"]:
                time.sleep(0.001)
            else:
                copy()
                state["count"] += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield state
    finally:
        state["end"] = True
        thread.join()


def predictions(grid: int, steps: int) -> Result:
    """Compare the predicted with the measured makespan of five schedules."""
    from ckio.planners.dp import hrevolve
    from ckio.planners.fastest import plan
    from ckio.planners.literature import disk_revolve, two_level
    from ckio.planners.overlap import best_policy
    from ckio.schedule import makespan
    from ckio.schedule.policy import SYNCHRONOUS

    platform = calibrated(grid)
    chain = replace(platform.models["wave"], steps=steps // BLOCK)
    planned = plan(chain, platform, tapes=False)
    cases = {"best plan": (planned, planned.overlap, planned.makespan)}
    for planner in (hrevolve, disk_revolve, two_level):
        schedule = planner(chain, platform)
        policy, seconds = best_policy(schedule, platform)
        cases[f"{planner.__name__}, overlap"] = schedule, policy, seconds
    schedule = hrevolve(chain, platform)
    cases["hrevolve, no overlap"] = schedule, SYNCHRONOUS, makespan(schedule, platform)
    rows = {}
    for name, (schedule, policy, predicted) in cases.items():
        done = performed(grid, steps, schedule, platform, policy)
        rows[name] = (str(policy), predicted, statistics.median(done["seconds"]))
    return {"rows": rows}


# The table


def by_name(name: str, grid: int, steps: int) -> Result:
    """Compute one case in this process."""
    cases: dict[str, Callable[[], Result]] = {
        "ckio": lambda: by_ckio(grid, steps),
        "ckio, no overlap": lambda: by_ckio(grid, steps, overlaps=False),
        "ckio, device alone": lambda: by_ckio(grid, steps, pinned=False),
        "nested": lambda: by_jax(grid, nested(lengths_of(steps))),
        **{
            f"offloaded, {segment}": partial(by_jax, grid, offloaded(steps, segment))
            for segment in (8, 10, 20)
        },
        "torch": lambda: by_torch(grid, steps),
        "copies": lambda: copies(grid),
        "predictions": lambda: predictions(grid, steps),
    }
    return cases[name]()


def in_process(name: str, grid: int, steps: int) -> Result | None:
    """Compute one case in a process of its own; None if it fails, with its last lines."""
    command = [sys.executable, "-m", "bench.device", "case", name]
    command += ["--grid", str(grid), "--steps", str(steps)]
    # JAX takes the memory of the device when it starts; this leaves some for other allocations.
    environment = {**os.environ, "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.75"}
    if name == "torch":
        environment["JAX_PLATFORMS"] = "cpu"
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"{name} failed: {done.stderr[-1000:]}", flush=True)
        return None
    result: Result = json.loads(done.stdout.splitlines()[-1])
    print(name, result, flush=True)
    return result


def text(results: dict[str, Result]) -> str:
    """Return the tables of gradients, copies and predictions, as far as there are results."""
    one = next(iter(results.values()))
    parts = [f"{one['device']}: a 3-D wave of {one['grid']}^3 points, {one['steps']} steps"]
    if rows := [_row(name, results[name]) for name in CASES[:-2] if name in results]:
        header = ("checkpoints", "seconds", "of three", "predicted", "peak GB", "gradient")
        parts.append(record.columns(header, rows))
    if it := results.get("copies"):
        rates = [(name, f"{it[name]:.1f}") for name in ("bare down", "write", "bare up", "read")]
        rates.append(("write while it computes", f"{it['beside']:.1f}"))
        parts.append(record.columns(("copies", "GB/s"), rates))
        parts.append(f"The computation is {it['slower']:.1%} slower meanwhile.")
    if it := results.get("predictions"):
        lines = [
            (name, f"{predicted:.2f}", f"{took:.2f}", f"{took / predicted - 1:+.1%}", policy)
            for name, (policy, predicted, took) in it["rows"].items()
        ]
        parts.append(record.columns(("plan", "predicted", "measured", "error", "policy"), lines))
    return "\n\n".join(parts)


def _row(name: str, result: Result) -> tuple[str, ...]:
    seconds = sorted(result["seconds"])
    predicted = f"{result['predicted']:.2f}" if "predicted" in result else ""
    return (
        name,
        f"{statistics.median(seconds):.2f}",
        f"{seconds[0]:.2f} to {seconds[-1]:.2f}",
        predicted,
        f"{result['peak'] / 1e9:.1f}",
        result["digest"],
    )


def device() -> str:
    """Return the name of the device."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("task", choices=("run", "record", "case"))
    parser.add_argument("what", help="the file of results, or the name of a case")
    parser.add_argument("--grid", type=int, default=400)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--cases", default=";".join(CASES))
    options = parser.parse_args()
    grid, steps = options.grid, options.steps
    match options.task:
        case "case":
            result = by_name(options.what, grid, steps)
            if "peak" not in result:
                import jax

                result["peak"] = jax.devices()[0].memory_stats()["peak_bytes_in_use"]
            print(json.dumps(result))
        case "run":
            with Path(options.what).open("a") as file:
                for name in options.cases.split(";"):
                    if (it := in_process(name, grid, steps)) is not None:
                        row = {"case": name, "device": device(), "grid": grid, "steps": steps, **it}
                        file.write(json.dumps(row) + "\n")
                        file.flush()
        case "record":
            rows = map(json.loads, Path(options.what).read_text().splitlines())
            when = datetime.fromtimestamp(Path(options.what).stat().st_mtime, UTC)
            tables = text({row["case"]: row for row in rows})
            written = f"device: {when:%Y-%m-%d %H:%M} UTC\n{tables}\n"
            (record.RESULTS / "device.txt").write_text(written)
            print(written)


if __name__ == "__main__":
    main()
