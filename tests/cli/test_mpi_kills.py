"""Jobs that are killed again and again, at any moment, and still come to the same gradient."""

import json
import random
import time
from pathlib import Path

import pytest
from cli.jobs import Job, answer, needs_mpi, write_platform

pytestmark = [needs_mpi, pytest.mark.slow]

SLOW = """
import time
from ckio.model.comm import SOLO
from ckio.models.wave import Wave


class Slow(Wave):
    def __init__(self, *, grid=32, comm=SOLO):
        super().__init__(grid=grid, comm=comm)

    def step(self, state, i):
        time.sleep(0.01)
        super().step(state, i)
"""

RANKS, KILLS = 3, 5
WORDS = ("run", "slow:Slow", "--planner", "hrevolve", "--set", "grid=32", "--steps", 60)


def left(at: Path) -> list[str]:
    return sorted(str(p.relative_to(at)) for p in (*at.glob("scratch/**/*"), *at.glob("*.h5")))


@pytest.mark.parametrize("seed", range(8))
def test_a_job_that_loses_any_rank_at_any_moment_comes_to_the_same_gradient(tmp_path, seed):
    """Each time it goes on; once nobody kills it, it ends, and leaves nothing on the levels."""
    (tmp_path / "slow.py").write_text(SLOW)
    platform = write_platform(tmp_path, "slow:Slow")
    into = ("--platform", platform, "--every", "0.05", "--json", "--into", "run", "--resume")
    draw, longest, killed = random.Random(seed), 1.5, 0  # the first time it is never late
    for _ in range(KILLS):
        job = Job(RANKS, *WORDS, *into, at=tmp_path)
        while len(ranks := job.processes()) < RANKS:
            time.sleep(0.01)
        # From where it imports, over all that it writes, to where it has just ended.
        time.sleep(draw.uniform(0.3, longest))
        try:
            job.kill(draw.choice(sorted(ranks)))
        except (KeyError, ProcessLookupError):
            job.ended()
            break
        out, _ = job.ended(status=None)
        longest, killed = 3.0, killed + 1
        if out.startswith("{"):
            break
    assert killed
    found = answer(RANKS, *WORDS, *into[:4], *into[5:], at=tmp_path)
    alone = answer(1, *WORDS, "--platform", platform, "--into", "alone", at=tmp_path)
    assert found["gradient_digest"] == alone["gradient_digest"]
    assert left(tmp_path) == []
    assert json.loads((tmp_path / "run" / "result.json").read_text())["steps"] == 60
