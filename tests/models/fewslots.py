"""A gradient by store-all, by schedules that have few slots, and by two processes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from small_models import digest, reverse_all

from ckio.actions import Key, Kind
from ckio.backends.directory import Directory
from ckio.backends.hdf5 import Hdf5
from ckio.backends.ram import Ram
from ckio.model import sizes_of
from ckio.planners.binomial import revolve
from ckio.planners.dp import hrevolve, mixed
from ckio.planners.trivial import periodic, recompute_all
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.runner import run
from ckio.testing import restore, save

Make = Callable[[], Any]

PLANS = {
    "recompute-all": recompute_all,
    "periodic by 4": lambda *a: periodic(*a, period=4),
    "revolve": revolve,
    "hrevolve": hrevolve,
    "mixed": mixed,
}


def digest_by(plan: str, make: Make, steps: int, path: Path) -> tuple[float, dict[str, bytes]]:
    """By this planner, on two slots in memory, three in a directory, and an archive."""
    model = make()
    chain = Chain(steps=steps, advance=1.0, record=1.3, reverse=2.0, **sizes_of(model))
    capacities = {"ram": 2 * chain.restart, "directory": 3 * chain.restart, "archive": None}
    levels = tuple(
        Level(name=name, capacity=capacity, write=Affine(0.1 + number), read=Affine(0.2 + number))
        for number, (name, capacity) in enumerate(capacities.items())
    )
    platform = Platform(levels, working_memory=5 * chain.tape)
    backends = [Ram(), Directory(path / "slots"), Hdf5(path / "archive.h5")]
    run(PLANS[plan](chain, platform), platform, model, backends)
    for backend in backends:
        backend.close()
    return digest(model)


def digest_by_two(make: Make, steps: int) -> tuple[float, dict[str, bytes]]:
    """A first one reverses half of the steps, and a second one, from its checkpoints, the rest."""
    half = steps // 2
    keys = Key(Kind.RESTART, 0), Key(Kind.RESTART, half), Key(Kind.ADJOINT, half)
    first, second = make(), make()
    x_0 = save(first, keys[0])
    first.advance(0, half)
    x_half = save(first, keys[1])
    first.record(half, steps)
    first.reverse(half, steps)
    restore(second, keys[2], save(first, keys[2]))
    restore(second, keys[1], x_half)
    restore(second, keys[0], x_0)
    reverse_all(second, half)
    return digest(second)
