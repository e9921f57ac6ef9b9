"""Runs that are killed at random, and again while they are resumed: the gradient is the same."""

import random
import time
from pathlib import Path
from unittest.mock import ANY

import pytest
from cli.commands import answer, ckio
from cli.resumable import bound, left, place, planned, reference, words, work

ROUNDS = 12
FARS = ("directory", "hdf5", "zstd")


@pytest.fixture(scope="module")
def digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """That of an uninterrupted run."""
    return reference(tmp_path_factory.mktemp("whole"))["gradient_digest"]


def moment(draw: random.Random, seconds: float) -> str:
    """A moment of a run: at a step, in a dump or the write after it, or at any time."""
    match draw.randrange(4):
        case 0:
            return f"step:{draw.randint(1, 109)}"
        case 1:
            return f"adjoint:{draw.randint(1, 40)}"
        case 2:
            return f"dump:{draw.randint(1, 45)}:9:{draw.uniform(1e-6, 1e-3)}"
        case _:
            return f"born:1:9:{draw.uniform(1e-3, seconds)}"


def until_done(at: Path, kills: list[str], patch: pytest.MonkeyPatch) -> tuple[str, float]:
    """Kill a run at each of these moments of a process in turn; then let it go on to its end.

    Returns the digest of the gradient, and what the kills may cost at most.
    """
    costs = 0.0
    for kill in kills:
        with patch.context() as here:
            here.setenv("KILL", kill)
            done = ckio(*words("--resume"), at=at, status=ANY)
        assert done.returncode in {0, -9}, done.stderr
        costs += bound(done.stdout) if done.returncode else 0.0
    return answer(*words("--resume"), at=at)["gradient_digest"], costs


@pytest.mark.slow
@pytest.mark.parametrize("far", FARS)
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_however_often_a_run_is_killed_the_gradient_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digest: str, far: str, seed: int
) -> None:
    draw = random.Random(f"{far} {seed}")
    began = time.monotonic()
    answer(*words(), at=place(tmp_path / "timed", far))
    seconds = time.monotonic() - began
    for number in range(2):
        at = place(tmp_path / f"at-{number}", far)
        monkeypatch.setenv("WORK", str(at / "work"))
        kills = [moment(draw, seconds) for _ in range(draw.randint(1, 4))]
        found, costs = until_done(at, kills, monkeypatch)
        assert found == digest, kills
        assert left(at) == []
        if (at / "run" / "schedule-1.txt").exists():
            assert work(at) <= planned(at) + costs, kills
