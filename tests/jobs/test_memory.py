"""The memory that a run expects is what its process needs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ckio import Chain, Level, Platform
from ckio.jobs.memory import Space, space_of
from ckio.planners import hrevolve, store_all
from ckio.schedule.policy import SYNCHRONOUS, Overlap

CHAIN = Chain(steps=9, advance=1, record=1, reverse=1, restart=100, tape=40, adjoint=7)


def test_space_is_that_of_all_checkpoints_a_tape_and_an_adjoint() -> None:
    ram, disk = (
        Level(name="ram", capacity=300),
        Level(name="d", options={"path": "d"}, capacity=200),
    )
    schedule = hrevolve(CHAIN, Platform((ram, disk), 40))
    assert space_of(schedule, Platform((ram, disk), 40), SYNCHRONOUS) == Space(300 + 40 + 7, 200)
    alone = Platform((disk,), 40)
    assert space_of(hrevolve(CHAIN, alone), alone, SYNCHRONOUS) == Space(40 + 7, 200)
    endless = Platform((), None)
    assert space_of(store_all(CHAIN, endless), endless, SYNCHRONOUS) == Space(9 * 40 + 7, 0)


@pytest.mark.parametrize("capacity", [1000, 700])
def test_transfers_use_the_memory_that_the_level_lends(capacity: int) -> None:
    ram = Level(name="ram", capacity=capacity)
    disk = Level(name="d", options={"path": "d"})
    platform = Platform((ram, disk), 40)
    schedule = hrevolve(CHAIN, platform)
    found = space_of(schedule, platform, Overlap(None, None))
    assert found.memory - 47 <= capacity
    assert found.memory >= space_of(schedule, platform, SYNCHRONOUS).memory


@pytest.mark.parametrize(
    ("overlap", "ram"), [("none", ("--ram", "8MiB")), ("all", ("--ram", "8MiB")), ("all", ())]
)
def test_a_process_needs_what_is_expected(
    tmp_path: Path, overlap: str, ram: tuple[str, ...]
) -> None:
    given = ("--set", "grid=128", "--steps", "300", *ram, "--disk", "scratch")
    line = [sys.executable, "-m", "ckio", "run", "vorticity", *given, "--overlap", overlap]
    done = subprocess.run(
        [*line, "--json"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    memory = json.loads(done.stdout)["memory"]
    assert abs(memory["measured"] - memory["expected"]) < 30 << 20
