"""Runs that are killed at random, and again while they are resumed: the gradient is the same."""

import random
import time
from pathlib import Path
from unittest.mock import ANY

import pytest
from cli.commands import answer, ckio
from cli.resumable import bound, left, place, planned, reference, words, work

ROUNDS = 12
LEAST = 20
"""Kills on each kind of level that come before the end of a run; the others come too late."""
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


def until_done(at: Path, kills: list[str], patch: pytest.MonkeyPatch) -> tuple[str, float, int]:
    """Kill a run at each of these moments of a process in turn; then let it go on to its end.

    Returns the digest of the gradient, what the kills may cost at most, and how many came before
    the end.
    """
    costs, count = 0.0, 0
    for kill in kills:
        with patch.context() as here:
            here.setenv("KILL", kill)
            done = ckio(*words("--resume"), at=at, status=ANY)
        assert done.returncode in {0, -9}, done.stderr
        costs += bound(done.stdout) if done.returncode else 0.0
        count += done.returncode != 0
    return answer(*words("--resume"), at=at)["gradient_digest"], costs, count


@pytest.mark.slow
@pytest.mark.parametrize("far", FARS)
def test_however_often_a_run_is_killed_the_gradient_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digest: str, far: str
) -> None:
    killed = 0
    for seed in range(ROUNDS):
        at = tmp_path / f"{seed}"
        at.mkdir()
        killed += kills_of(at, monkeypatch, digest, far, seed)
    assert killed >= LEAST


def kills_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digest: str, far: str, seed: int
) -> int:
    """Two runs that are killed up to four times each; returns how many kills there were."""
    killed = 0
    draw = random.Random(f"{far} {seed}")
    began = time.monotonic()
    answer(*words(), at=place(tmp_path / "timed", far))
    seconds = time.monotonic() - began
    for number in range(2):
        at = place(tmp_path / f"at-{number}", far)
        monkeypatch.setenv("WORK", str(at / "work"))
        kills = [moment(draw, seconds) for _ in range(draw.randint(1, 4))]
        found, costs, count = until_done(at, kills, monkeypatch)
        killed += count
        assert found == digest, kills
        assert left(at) == []
        if (at / "run" / "schedule-1.txt").exists():
            assert work(at) <= planned(at) + costs, kills
    return killed
