"""A loop of JAX by checkpoints has the gradient that it has without them, and leaves no files."""

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.experimental import io_callback  # noqa: E402

from ckio import Level, Platform  # noqa: E402
from ckio.actions import Advance, Key, Kind, Read, Record, Reverse, Write  # noqa: E402
from ckio.adapters.jax import checkpointed_scan  # noqa: E402
from ckio.adapters.jax import store as stores  # noqa: E402
from ckio.adapters.jax.blocks import Cotangents, Given, blocks_of, compile_blocks  # noqa: E402
from ckio.adapters.jax.scan import _loop  # noqa: E402
from ckio.adapters.jax.store import STORE, SweepRow, plan  # noqa: E402
from ckio.errors import BadInput, LevelFull, NoSchedule  # noqa: E402
from ckio.platform import Affine  # noqa: E402
from ckio.schedule import Schedule  # noqa: E402

N = 53

COMPILED = {"disk"}
"""On these levels, whole gradients are compiled, too: to the same bits."""


CONFIG = "jax_enable_x64", "jax_disable_most_optimizations"


@pytest.fixture(autouse=True)
def wide(request: pytest.FixtureRequest) -> Iterator[None]:
    """Double precision; code that takes less time to compile, except in the slow tier."""
    before = {name: jax.config.values[name] for name in CONFIG}
    jax.config.update("jax_enable_x64", True)
    quick = request.node.get_closest_marker("slow") is None
    jax.config.update("jax_disable_most_optimizations", quick)
    yield
    for name in CONFIG:
        jax.config.update(name, before[name])
    assert len(STORE) == 0


def step(x: Any, params: Any, i: Any, row: Any) -> Any:
    return {
        "u": x["u"] + 0.1 * jnp.sin(params["k"] * x["u"] + 0.01 * i + x["count"] % 3) + row,
        "count": x["count"] + 1,
        "half": x["half"] * jnp.bfloat16(0.97),
    }


def start(u: Any) -> Any:
    return {"u": u, "count": jnp.int32(0), "half": jnp.ones(3, jnp.bfloat16)}


def value(x: Any) -> Any:
    return jnp.sum(x["u"] ** 2) + x["half"].astype(float).sum()


def by_scan(u: Any, k: Any, rows: Any) -> Any:
    u, params, at = jnp.asarray(u), {"k": k, "whole": 7}, jnp.arange(N, dtype=jnp.int32)
    return value(jax.lax.scan(lambda x, it: (step(x, params, *it), None), start(u), (at, rows))[0])


def by_ckio(u: Any, k: Any, rows: Any, **options: Any) -> Any:
    params = {"k": k, "whole": 7}
    return value(checkpointed_scan(step, start(u), N, params=params, xs=rows, **options))


@cache
def by_scan_alone() -> Any:
    return jax.jit(jax.value_and_grad(by_scan, (0, 1, 2)))(*arguments())


def arguments() -> tuple[Any, ...]:
    return jnp.linspace(0.0, 1.0, 8), jnp.float64(1.3), jnp.linspace(0, 0.1, N)


def levels(place: Path) -> dict[str, Platform]:
    memory = Level(name="memory", capacity=500)
    disk = Level(name="disk", backend="directory", options={"path": str(place / "disk")})
    codec = {"codec": "zstd", "path": str(place / "small")}
    archive = Level(name="archive", backend="hdf5", options={"path": str(place / "a.h5")})
    priced = Level(
        name="slow", backend="ram", write=Affine(0.1, 0.0), read=Affine(0.1, 0.0), capacity=700
    )
    return {
        "memory": Platform((memory,)),
        "disk": Platform((memory, disk)),
        "compressed": Platform((Level(name="z", backend="directory", options=codec),)),
        "archive": Platform((archive,)),
        "priced": Platform((priced,)),
    }


def close(found: Any, wanted: Any) -> bool:
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    return all(np.allclose(a, b, rtol=1e-12, atol=1e-12) for a, b in pairs)


def files(place: Path) -> list[Path]:
    return [path for path in place.rglob("*") if path.is_file()]


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["memory", "disk", "compressed", "archive", "priced"])
def test_the_gradient_is_that_of_a_scan_on_any_level(name: str, tmp_path: Path) -> None:
    options = {"platform": levels(tmp_path)[name], "segment": 7}
    wanted = by_scan_alone()
    compute = jax.value_and_grad(lambda *a: by_ckio(*a, **options), (0, 1, 2))
    found = compute(*arguments())
    assert close(found, wanted)
    if name in COMPILED:
        pairs = zip(*map(jax.tree.leaves, (jax.jit(compute)(*arguments()), found)), strict=True)
        # XLA compiles another program, whose operations it may fuse and order differently.
        assert all(np.allclose(one, other, rtol=1e-14, atol=0) for one, other in pairs)
    assert files(tmp_path) == []


@pytest.mark.slow
def test_keys_of_random_numbers_are_stored_as_they_are() -> None:
    def noisy(x: Any, k: Any, i: Any) -> Any:
        key, u = x
        return jax.random.fold_in(key, i), u + k * jax.random.uniform(key) * u

    def end(k: Any) -> Any:
        return checkpointed_scan(noisy, (jax.random.key(3), 1.0), 9, params=k, segment=2)[1]

    def scan(k: Any) -> Any:
        first = jax.random.key(3), jnp.float64(1.0)
        at = jnp.arange(9, dtype=jnp.int32)
        return jax.lax.scan(lambda x, i: (noisy(x, k, i), None), first, at)[0][1]

    assert close(jax.grad(end)(0.3), jax.grad(scan)(0.3))


def test_states_really_are_on_the_disk_between_the_sweeps(tmp_path: Path) -> None:
    platform = levels(tmp_path)["disk"]
    pull = lambda: jax.vjp(lambda *a: by_ckio(*a, platform=platform, segment=7), *arguments())[1]  # noqa: E731
    back = pull()
    assert files(tmp_path)
    back(1.0)
    assert files(tmp_path) == []
    forgotten = pull()
    assert files(tmp_path)
    del forgotten
    gc.collect()
    assert files(tmp_path) == []


@pytest.mark.parametrize("planner", ["periodic", "multistage"])
def test_any_planner_of_states_will_do(planner: str) -> None:
    platform = Platform((Level(name="memory", capacity=600),))
    if planner == "periodic":
        platform = Platform((Level(name="memory"),))
        options: dict[str, Any] = {"planner": lambda c, p: _periodic(c, p, period=1)}
    else:
        options = {"planner": planner}
    found = jax.grad(
        lambda u: by_ckio(u, *arguments()[1:], platform=platform, segment=7, **options)
    )
    assert close(found(arguments()[0]), by_scan_alone()[1][0])


def _periodic(chain: Any, platform: Any, period: int) -> Any:
    from ckio.planners.trivial import periodic

    return periodic(chain, platform, period=period)


def test_without_a_derivative_nothing_is_stored(tmp_path: Path) -> None:
    platform = levels(tmp_path)["disk"]
    assert close(by_ckio(*arguments(), platform=platform), by_scan(*arguments()))
    assert not (tmp_path / "disk").exists()


def test_complex_results_of_costly_operations() -> None:
    def one(x: Any, k: Any, _: Any) -> Any:
        y = jnp.fft.ifft(jnp.fft.fft(x) * jnp.exp(-k)).real + jnp.fft.irfft(jnp.fft.rfft(x), 8)
        turned = jnp.full((8, 8), 1j * k) @ (x + 1j * x**2)
        return y / 2 + 0.01 * (jnp.abs(turned) ** 2 * turned).imag

    x = jnp.linspace(0.1, 0.2, 8)
    found = jax.grad(lambda k: checkpointed_scan(one, x, 12, params=k).sum())(0.1)
    right = jax.grad(lambda k: jax.lax.fori_loop(0, 12, lambda i, x: one(x, k, i), x).sum())(0.1)
    assert float(found) == pytest.approx(float(right), rel=1e-10)


@pytest.mark.parametrize("segment", [3, "auto"])
def test_a_second_derivative_is_refused(segment: int | str) -> None:
    """In one block as in several, in forward mode and in reverse mode, compiled or not."""
    one = lambda u, k, i: u + k * jnp.sin(u)  # noqa: E731
    end = lambda k: checkpointed_scan(one, jnp.ones(2), 9, params=k, segment=segment).sum()  # noqa: E731
    for second in jax.hessian(end), jax.grad(jax.grad(end)), jax.jit(jax.grad(jax.grad(end))):
        with pytest.raises(BadInput, match="no second derivative"):
            second(0.1)


def test_no_steps_are_no_steps() -> None:
    x = checkpointed_scan(step, {"u": 2.0}, 0)
    assert float(x["u"]) == 2.0


@pytest.mark.parametrize("wrap", [jax.jit, pytest.param(lambda f: f, marks=pytest.mark.slow)])
def test_lanes_of_vmap_are_one_loop(wrap: Any) -> None:
    u, k, rows = arguments()
    lanes = jnp.stack([u, 2 * u, u - 1])
    gradient = jax.grad(lambda u, k, rows: by_ckio(u, k, rows, segment=7), (0, 1))
    found = wrap(jax.vmap(gradient, (0, None, None)))(lanes, k, rows)
    assert close(found, jax.vmap(jax.grad(by_scan, (0, 1)), (0, None, None))(lanes, k, rows))


@pytest.mark.slow
def test_the_way_back_may_be_gone_more_than_once() -> None:
    u, k, rows = arguments()
    one = lambda u: checkpointed_scan(step, start(u), N, params={"k": k}, xs=rows, segment=6)["u"]  # noqa: E731
    found = jax.jacrev(one)(u)
    at = jnp.arange(N, dtype=jnp.int32)
    scan = lambda u: jax.lax.scan(  # noqa: E731
        lambda x, it: (step(x, {"k": k}, *it), None), start(u), (at, rows)
    )[0]["u"]
    assert close(found, jax.jacrev(scan)(u))
    end, back = jax.vjp(one, u)
    assert close(back(jnp.ones_like(end)), back(jnp.ones_like(end)))


@pytest.mark.slow
def test_several_in_one_program_and_many_in_a_loop() -> None:
    u, k, rows = arguments()

    def three(f: Any, u: Any) -> Any:
        return f(u, k, rows) + 2 * f(u, k, rows) + f(3 * u, k, rows)

    def loop(f: Any, u: Any) -> Any:
        body = lambda u, _: (u * jnp.cos(f(u, k, rows)), None)  # noqa: E731
        return jax.lax.scan(body, u, None, length=stores.WAITING + 3)[0].sum()

    mine = lambda *a: by_ckio(*a, segment=7)  # noqa: E731
    for both in (three, loop):
        found = jax.jit(jax.grad(lambda u, both=both: both(mine, u)))(u)
        assert close(found, jax.jit(jax.grad(lambda u, both=both: both(by_scan, u)))(u))


@pytest.mark.slow
def test_gradients_in_several_threads_at_once(tmp_path: Path) -> None:
    platform = levels(tmp_path)["disk"]
    wanted = by_scan_alone()[1][0]
    gradient = jax.jit(jax.grad(lambda *a: by_ckio(*a, platform=platform, segment=3)))
    found: list[bool] = []
    threads = [
        threading.Thread(target=lambda: found.append(close(gradient(*arguments()), wanted)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4
    assert files(tmp_path) == []


def test_only_so_many_wait_for_their_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "WAITING", 4)
    u, *rest = arguments()
    pull = jax.jit(lambda u: jax.vjp(lambda u: by_ckio(u, *rest, segment=7), u)[1])
    backs = [pull(u) for _ in range(6)]
    jax.block_until_ready(backs)
    assert len(STORE) == 4
    assert all(close(back(1.0)[0], by_scan_alone()[1][0]) for back in backs)


BIG = """
import sys, threading
import jax, jax.numpy as jnp
from ckio import Level, Platform
from ckio.adapters.jax import checkpointed_scan
disk = Platform((Level(name="disk", backend="directory", options={"path": sys.argv[1]}),))
u = jnp.eye(300) + 0.01
one = lambda u, p, i: jnp.tanh(u @ u / 300 + p)
o = dict(platform=disk, segment=2)
def f(u, p): return checkpointed_scan(one, jnp.sin(u @ u), 9, params=p, **o).sum()
g = jax.jit(lambda u, p: jax.grad(lambda u: f(u, p) + f(2 * u, p) + f(u, 2 * p))(u))
found = [g(u * i, u) for i in range(3)]
threads = [threading.Thread(target=lambda: g(u, u).block_until_ready()) for _ in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert all(jnp.isfinite(each).all() for each in found)
print("done")
"""


@pytest.mark.slow
@pytest.mark.parametrize("processors", [1, 2])
def test_large_states_on_few_processors_do_not_hang(processors: int, tmp_path: Path) -> None:
    mine = sorted(os.sched_getaffinity(0))[:processors]
    done = subprocess.run(
        [sys.executable, "-c", BIG, str(tmp_path / "disk")],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        preexec_fn=lambda: os.sched_setaffinity(0, mine),
    )
    assert done.stdout == "done\n", done.stderr


def test_a_level_that_turns_out_too_small_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    options = {"path": str(tmp_path / "z"), "codec": "zstd"}
    level = Level(name="z", backend="directory", options=options, capacity=100_000, ratio=0.01)
    u = jnp.asarray(np.random.default_rng(1).normal(size=10_000))
    gradient = jax.grad(
        lambda u: checkpointed_scan(
            lambda u, p, i: jnp.sin(u), u, 8, segment=1, platform=Platform((level,))
        ).sum()
    )
    with pytest.raises(LevelFull):
        gradient(u)
    assert files(tmp_path) == []
    with pytest.raises(jax.errors.JaxRuntimeError, match="LevelFull"):
        jax.block_until_ready(jax.jit(gradient)(u))
    assert files(tmp_path) == []


ENDS = """
import gc, os, signal, sys, threading, time
import jax, jax.numpy as jnp
from ckio import Level, Platform
from ckio.adapters.jax import checkpointed_scan
disk = Platform((Level(name="disk", backend="directory", options={"path": sys.argv[1]}),))
def end(u, n):
    one = lambda u, p, i: jnp.cos(u)
    return checkpointed_scan(one, u, n, platform=disk, segment=1).sum()
u = jnp.ones(9)
waits = jax.vjp(lambda u: end(u, 5), u), jax.jit(lambda u: jax.vjp(lambda u: end(u, 5), u))(u)
if not os.fork():
    os._exit(0)
stored = sum(len(names) for _, _, names in os.walk(sys.argv[1]))
def interrupt():
    while sum(len(names) for _, _, names in os.walk(sys.argv[1])) == stored:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    jax.grad(lambda u: end(u, 1000))(u)
except KeyboardInterrupt:
    came = True
gc.collect()  # whatever the interrupt held on to, wherever it came
print(came and sum(len(names) for _, _, names in os.walk(sys.argv[1])) == stored > 0)
"""


@pytest.mark.slow
def test_a_process_that_is_interrupted_or_ends_leaves_no_files(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ENDS, str(tmp_path / "disk")],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
    assert files(tmp_path) == []


SLOPE = 1.0


class Shot:
    """A step that reads attributes, a global variable, and a function with its own derivative."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self) -> None:
        self.scale, self.speed = 0.9, jnp.float64(1.1)
        self.source = np.array([0.1, 0.2, 0.3])

    @property
    def rule(self) -> Any:
        """The sine, with a derivative of its own."""

        @jax.custom_jvp
        def sine(x: Any) -> Any:
            return jnp.sin(x)

        slope = SLOPE
        sine.defjvp(lambda x, dx: (jnp.sin(x[0]), slope * jnp.cos(x[0]) * dx[0]))
        return sine

    def __call__(self, x: Any, k: Any, i: Any) -> Any:
        return jax.lax.cond(i > 2, self.early, lambda x: self.rule(k * x * self.speed), x)

    def early(self, x: Any) -> Any:
        return self.scale * x + self.source

    def set(self, name: str, turn: int) -> None:
        global SLOPE  # noqa: PLW0603, the step reads it
        match name:
            case "scale":
                self.scale = 0.9 + turn
            case "speed":
                self.speed = jnp.float64(1.1 + turn)
            case "source":
                self.source[1] = turn  # in place
            case "slope":
                SLOPE = 1.0 + turn


@pytest.mark.parametrize(
    ("name", "of"),
    [("scale", "object"), ("speed", "method"), ("source", "partial"), ("slope", "method")],
)
def test_a_step_reads_its_surroundings_in_each_call(name: str, of: str) -> None:
    shot = Shot()
    ways = {"object": shot, "method": shot.__call__, "partial": partial(Shot.__call__, shot)}
    one, u = ways[of], jnp.linspace(0.1, 0.9, 3)

    def plain(k: Any) -> Any:
        x = u
        for i in range(5):
            x = shot(x, k, jnp.int32(i))
        return x.sum()

    for turn in range(2):
        shot.set(name, turn)
        found = jax.value_and_grad(lambda k: checkpointed_scan(one, u, 5, params=k).sum())(1.3)
        with jax.disable_jit():  # nothing is compiled
            assert close(found, jax.value_and_grad(plain)(1.3))
    shot.set("slope", 0)


def test_a_step_is_compiled_once_for_all_functions_with_its_operations() -> None:
    def of(factor: Any) -> Any:
        return lambda x, p, i: jax.nn.relu(factor * x)

    u, made = jnp.ones(3), _loop.cache_info().misses
    for k in (1.0, 2.0, 3.0):
        one = of(jnp.float64(k))
        slope = jax.grad(lambda u, one=one: checkpointed_scan(one, u, 3, segment=1).sum())(u)
        assert slope.tolist() == [k**3] * 3
    assert _loop.cache_info().misses == made + 1


def test_a_step_without_a_derivative_goes_forward() -> None:
    def one(x: Any, p: Any, i: Any) -> Any:
        return jax.lax.while_loop(lambda x: x[0] > 1, lambda x: x / 2, jax.nn.relu(x))

    assert checkpointed_scan(one, jnp.array([9.0, 1.0]), 3).tolist() == [9 / 16, 1 / 16]


def test_what_is_no_loop_is_refused() -> None:
    u = jnp.ones(3)
    with pytest.raises(BadInput, match=r"x\['a'\].*float64\[3\]"):
        checkpointed_scan(lambda x, p, i: {"a": x["a"][:2]}, {"a": u}, 3)
    with pytest.raises(BadInput, match="float32"):
        checkpointed_scan(lambda x, p, i: x.astype("float32"), u, 3)
    with pytest.raises(BadInput, match="return the structure of x"):
        checkpointed_scan(lambda x, p, i: (x, x), u, 3)
    masked = np.ma.masked_array([1.0, 2.0], mask=[True, False])
    with pytest.raises(BadInput, match="x0 is a masked array"):
        checkpointed_scan(lambda x, p, i: x, masked, 2)
    with pytest.raises(BadInput, match="is a str, not an array"):
        checkpointed_scan(lambda x, p, i: x, {"a": "b"}, 3)
    with pytest.raises(BadInput, match="xs"):
        checkpointed_scan(lambda x, p, i, r: x, u, 3, xs=jnp.ones(4))
    with pytest.raises(BadInput, match="whole number of steps"):
        jax.jit(lambda n: checkpointed_scan(lambda x, p, i: x, u, n))(3)
    for n in (-1, 2.5):
        with pytest.raises(BadInput, match="whole number of steps"):
            checkpointed_scan(lambda x, p, i: x, u, n)  # type: ignore[arg-type]
    for segment in (0, "long"):
        with pytest.raises(BadInput, match="segment"):
            checkpointed_scan(lambda x, p, i: x, u, 3, segment=segment)
    with pytest.raises(BadInput, match="give it as params"):
        jax.grad(lambda k: checkpointed_scan(lambda x, p, i: k * x, u, 3).sum())(2.0)
    shot = Shot()
    checkpointed_scan(shot, u, 3, params=1.0)  # traced before, without a derivative

    def through_an_attribute(speed: Any) -> Any:
        shot.speed = speed
        return checkpointed_scan(shot, u, 3, params=1.0).sum()

    for wrap in (jax.grad, jax.jit):
        with pytest.raises(BadInput, match="give it as params"):
            wrap(through_an_attribute)(2.0)


def test_plans_that_cannot_be_are_refused_where_a_gradient_is_asked_for() -> None:
    def gradient(**options: Any) -> Any:
        one = lambda x, p, i: 2 * x  # noqa: E731
        return jax.grad(lambda x: checkpointed_scan(one, x, 9, segment=1, **options).sum())

    with pytest.raises(NoSchedule):
        gradient(platform=Platform((Level(name="tiny", capacity=8),)))(jnp.ones(3))
    with pytest.raises(BadInput, match="stores no tape"):
        gradient(planner="store-all")(jnp.ones(3))


def test_a_table_has_a_row_for_each_turn_and_the_state_catches_up_late() -> None:
    def by_hand(chain: Any, _platform: Platform) -> Schedule:
        read = Read(Key(Kind.RESTART, 0), 0)
        back = [Advance(0, 1), Record(1, 2), Reverse(1, 2), read, Record(0, 1), Reverse(0, 1)]
        first = [Write(Key(Kind.RESTART, 0), 0), Advance(0, 2), Record(2, 3), Reverse(2, 3)]
        return Schedule(chain, [*first, read, *back])

    table = plan(3, 8, Platform((Level(name="memory"),)), by_hand, lambda: 1.0)
    assert table.forward == (SweepRow(write=0), SweepRow(begin=0, end=2))
    assert table.backward == (
        SweepRow(reverse=2),
        SweepRow(read=1, begin=0, end=1, reverse=1),
        SweepRow(read=2, reverse=0),
    )
    assert table.accesses_forward == 1


def test_blocks_are_as_long_as_memory_allows_and_equal() -> None:
    u = jax.ShapeDtypeStruct((256, 256), jnp.float64)
    cubic = lambda u, p, i: u - u**3  # noqa: E731
    assert blocks_of(cubic, u, None, None, n=1000, segment="auto").size == 25
    assert blocks_of(cubic, u, None, None, n=997, segment="auto").size == 32
    assert blocks_of(cubic, jnp.ones(2), None, None, n=1000, segment="auto").count == 1


def test_within_a_block_states_and_costly_results_are_stored() -> None:
    def waves(u: Any, p: Any, i: Any) -> Any:
        return jnp.sin(jnp.cos(jnp.exp(u) * u)) * u**3

    def product(u: Any, p: Any, i: Any) -> Any:
        return jnp.tanh(u @ u)

    @jax.custom_vjp
    def solve(u: Any) -> Any:
        return jax.lax.fori_loop(0, 9, lambda _, y: jnp.cos(y + u), u)

    solve.defvjp(lambda u: (solve(u), solve(u)), lambda y, bar: (bar / (1 + y),))

    u = jax.ShapeDtypeStruct((256, 256), jnp.float64)
    assert blocks_of(waves, u, None, None, n=997, segment="auto").size == 32
    assert blocks_of(product, u, None, None, n=997, segment="auto").size == 16
    solver = lambda u, p, i: u**2 + solve(u)  # noqa: E731
    assert blocks_of(solver, u, None, None, n=997, segment="auto").size == 16


def test_steps_of_a_short_block_are_not_fused_on_a_cpu() -> None:
    def stencil(u: Any, p: Any, i: Any) -> Any:
        near = sum(jnp.roll(u, by, axis) for by in (1, -1) for axis in (0, 1))
        return u + 0.1 * (near - 4 * u) + 0.01 * (u - u**3)

    u = jnp.ones((64, 64))
    blocks = blocks_of(stencil, u, None, None, n=8, segment=4)
    given, back = Given([], [], blocks.step.consts), Cotangents([u], [], [])
    program = compile_blocks(blocks).reverse.lower(4, [u], given, 1, back).compile()
    assert program.memory_analysis().temp_size_in_bytes < 15 * u.nbytes  # 30 if they are fused


def test_a_step_may_call_python_and_is_not_computed_once_more_for_it() -> None:
    numbers: list[int] = []

    def seen(i: Any) -> Any:
        numbers.append(int(i))
        return np.int32(i)

    def one(x: Any, p: Any, i: Any) -> Any:
        number = io_callback(seen, jax.ShapeDtypeStruct((), jnp.int32), i)
        return jnp.sin(x) + 0.1 * number

    end = lambda x: checkpointed_scan(one, x, 4, segment=2).sum()  # noqa: E731
    plain = lambda x: jax.lax.fori_loop(0, 4, lambda i, x: jnp.sin(x) + 0.1 * i, x).sum()  # noqa: E731
    assert close(jax.grad(end)(jnp.ones(3)), jax.grad(plain)(jnp.ones(3)))
    assert sorted(numbers) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_of_many_processes_none_plans_by_what_it_alone_has_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cost = Affine(latency=1e-3, per_byte=0)
    priced = Platform((Level(name="ram", capacity=200, write=cost, read=cost),))
    monkeypatch.setenv("PMI_SIZE", "2")  # as mpiexec does
    monkeypatch.setenv("PMI_RANK", "0")

    def end(r: Any, platform: Platform) -> Any:
        x = jnp.array([0.1, 0.2])
        return checkpointed_scan(
            lambda x, r, i: r * x * (1 - x), x, 9, params=r, platform=platform, segment=1
        ).sum()

    with pytest.raises(BadInput, match="give levels without costs"):
        jax.grad(end)(2.0, priced)
    free = Platform((Level(name="ram", capacity=200),))
    assert float(jax.grad(end)(2.0, free)) == pytest.approx(0.5, rel=1e-4)
