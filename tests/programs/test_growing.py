"""States and tapes that become larger than they were at first: less is stored, and none is lost."""

import gc
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from growing import GROWING, refined

from ckio.backends.directory import Directory
from ckio.backends.hdf5 import Hdf5
from ckio.backends.ram import Ram
from ckio.platform import Level, Platform
from ckio.programs import Options, checkpoint_vjp, program, vjp
from ckio.programs.interface import metered
from ckio.programs.model import Pulling, rate


def same(one: Any, other: Any) -> None:
    (y, xbar), (z, zbar) = one, other
    assert y == z
    assert np.array_equal(xbar[0], zbar[0])


@pytest.mark.campaign
@pytest.mark.parametrize("schedule", ["bisection", "revolve"])
@pytest.mark.parametrize("name", GROWING)
def test_on_levels_that_states_outgrow(
    name: str, schedule: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes on with what fits, and says so."""
    p, x = GROWING[name]
    wanted = vjp(p, x, 1.0)
    for files in (False, True):
        levels = [Level(name="memory", capacity=1000)]
        backends: list[Any] = [Ram(capacity=1000)]
        if files:
            levels += [Level(name="files", capacity=6000), Level(name="archive")]
            backends.append(Directory(tmp_path / "files", capacity=6000))
            backends.append(Hdf5(tmp_path / "archive.h5"))
        found = checkpoint_vjp(
            p,
            x,
            1.0,
            Options(
                base=10,
                schedule=schedule,
                platform=Platform(levels=tuple(levels)),
                backends=backends,
            ),
        )
        same(found, wanted)
        assert [list(backend.keys()) for backend in backends] == [[] for _ in backends]
        for backend in backends:
            backend.close()
    if name != "deep":
        assert any("is full" in record.message for record in caplog.records)


def test_tapes_that_grow_keep_to_the_memory() -> None:
    """The last steps have 128 times the cells of the first, by which a step was judged."""
    x, stats = (np.linspace(0.0, 1.0, 16), 400, 50), dict[str, int]()
    found = checkpoint_vjp(refined, x, 1.0, Options(memory=200_000), stats=stats)
    same(found, vjp(refined, x, 1.0))
    assert stats["ticks"] > stats["base"] > 64
    assert stats["tape_bytes"] < 250_000


def test_how_a_tape_is_divided_does_not_depend_on_what_was_before() -> None:
    """So a run that is killed ends with the same bits."""
    p, x = GROWING["refined"]
    start = p.start(*x)
    middle = p.advance(start, 120)[0]
    ticks = p.advance(middle)[1]
    whole, later = Pulling(p, 20_000.0), Pulling(p, 20_000.0)
    bar = whole.back(middle, ticks, {"y": np.array(1.0)})
    later.rate = whole.rate
    one, other = whole.back(start, 120, bar), later.back(start, 120, bar)
    assert whole.rate == later.rate
    assert np.array_equal(one["x.0"], other["x.0"])


@program
def scalar(x: Any, steps: int) -> Any:
    for _ in range(steps):
        x = 1.01 * np.sin(x) * x + 0.5
    return x


@program
def waves(u: Any, steps: int) -> Any:
    for _ in range(steps):
        u = 1.01 * np.sin(u) + 0.5 * u
    return u


@program
def heat(u: Any, steps: int) -> Any:
    u = u.copy()
    for _ in range(steps):
        u[1:-1] += 0.1 * (u[2:] - 2.0 * u[1:-1] + u[:-2])
    return u


def test_what_a_tick_is_said_to_take_it_takes() -> None:
    for p, u in (
        *((scalar, 0.3), (waves, np.linspace(0, 1, 16)), (heat, np.linspace(0, 1, 16))),
        *((waves, np.linspace(0, 1, 2000)), (waves, np.linspace(0, 1, 50_000))),
    ):
        state = p.advance(p.start(u, 2000), 3)[0]
        ticks = 40 if np.size(u) > 10_000 else 1000
        said = rate(p, state, 32) * ticks
        tracemalloc.start()
        with metered() as meter:
            p.pullback(state, ticks, {})
        taken = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert meter.nodes >= ticks
        assert said / 2.5 < taken < said * 2.5, (p, np.size(u))


PEAK = """
import re, sys
import numpy as np
from ckio.programs import Options, checkpoint_vjp, program, vjp

@program
def waves(u, steps):
    for _ in range(steps):
        u = 1.01 * np.sin(u) + 0.5 * u
    return np.sum(u)

def peak():
    with open("/proc/self/status") as status:  # of this process alone, unlike getrusage
        return int(re.search(r"VmHWM:\\s*(\\d+) kB", status.read())[1]) << 10

x = np.linspace(0, 1, 1 << 16), int(sys.argv[2])
checkpoint_vjp(waves, (x[0], 40), 1.0, Options(base=8))
before, stats = peak(), {}
if sys.argv[1] == "all":
    vjp(waves, x, 1.0)
else:
    checkpoint_vjp(waves, x, 1.0, Options(base=8), stats=stats)
print(peak() - before, stats.get("live_peak", 0))
"""


def peak(place: Path, way: str, steps: int) -> tuple[float, int]:
    """Arrays by which a longer program's peak is above that of one of 40 steps."""
    (place / "peak.py").write_text(PEAK, encoding="utf-8")
    command = [sys.executable, str(place / "peak.py"), way, str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    more, live = done.stdout.split()
    return int(more) / (1 << 19), int(live)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux for the peak")
@pytest.mark.campaign
@pytest.mark.parametrize("way", ["few", "all"])
def test_memory_grows_with_the_logarithm_alone(way: str, tmp_path: Path) -> None:
    """Four times as long: two more states, each of one array, and no copies beside them."""
    more, live = peak(tmp_path, way, 160)
    if way == "few":
        assert live <= 6
        assert more < 6
    else:  # by one tape
        assert more > 110


@pytest.mark.slow
def test_a_gradient_leaves_no_cycles_that_keep_arrays_until_they_are_collected() -> None:
    p, x = GROWING["refined"]
    checkpoint_vjp(p, x, 1.0, Options(base=10))
    gc.collect()
    gc.disable()
    try:
        checkpoint_vjp(p, x, 1.0, Options(base=10))
        assert gc.collect() == 0
    finally:
        gc.enable()
