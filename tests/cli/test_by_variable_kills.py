"""Runs by variable that are killed and stopped at random: the gradient is the same."""

import random
import signal
import time
from pathlib import Path
from unittest.mock import ANY

import pytest
from cli.commands import answer, ckio
from cli.resumable import left
from cli.test_by_variable import place, words

ROUNDS = 14
LEAST = 12
"""Kills and stops, on each kind of level, that come before the end of a run."""
FARS = ("directory", "hdf5", "zstd")

PLANNERS = ("hrevolve", "mixed", "auto", "multistage")
OVERLAPS = ("", "write_behind=1,read_ahead=1", "write_behind=3")


@pytest.fixture(scope="module")
def digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """That of an uninterrupted run of whole checkpoints."""
    return answer(*words(), at=place(tmp_path_factory.mktemp("whole") / "at"))["gradient_digest"]


def moment(draw: random.Random, seconds: float) -> str:
    """When a run is killed, or stopped: at a step, in a dump or the write after it, at any time."""
    number = int(draw.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)))
    match draw.randrange(5):
        case 0:
            return f"step:{draw.randint(1, 70)}:{number}:0"
        case 1:
            return f"adjoint:{draw.randint(1, 40)}:{number}:0"
        case 2:
            return f"dump:{draw.randint(1, 30)}:{number}:{draw.uniform(1e-6, 1e-3)}"
        case 3:  # while it is planned what is left, or soon after
            return f"born:1:{number}:{draw.uniform(1e-3, 0.2)}"
        case _:
            return f"born:1:{number}:{draw.uniform(1e-3, seconds)}"


def line(draw: random.Random) -> tuple[object, ...]:
    """A run by variable: its planner, what overlaps, and how often an adjoint is stored."""
    overlap = draw.choice(OVERLAPS)
    every = draw.choice(("3s", "8s", "30s"))
    more = ("--overlap", overlap) if overlap else ()
    begun = words("--by-variable", "--planner", draw.choice(PLANNERS), "--every", every, *more)
    return (*begun, "--resume")


@pytest.mark.slow
@pytest.mark.parametrize("far", FARS)
def test_however_often_a_run_is_killed_or_stopped_the_gradient_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digest: str, far: str
) -> None:
    ended = 0
    for seed in range(ROUNDS):
        draw = random.Random(f"{far} {seed}")
        begun = line(draw)
        began = time.monotonic()
        answer(*begun, at=place(tmp_path / f"timed-{seed}", far))
        seconds = time.monotonic() - began
        at = place(tmp_path / f"at-{seed}", far)
        moments = [moment(draw, seconds) for _ in range(draw.randint(2, 6))]
        for kill in moments:
            with monkeypatch.context() as here:
                here.setenv("KILL", kill)
                done = ckio(*begun, at=at, status=ANY)
            assert done.returncode in {0, -9, -15, 75}, (begun, moments, done.stderr)
            ended += done.returncode != 0
        assert answer(*begun, at=at)["gradient_digest"] == digest, (begun, moments)
        assert left(at) == []
    assert ended >= LEAST
