"""Runs by every planner are killed at random, with overlap and without: one gradient."""

from pathlib import Path
from random import Random
from unittest.mock import ANY

import pytest
from cli.commands import answer, ckio
from jobs.inversion import PLATFORM, STEPS, place

PLANNERS = {
    **dict.fromkeys(("auto", "mixed", "hrevolve", "hrevolve-2020", "revolve", "multistage"), ()),
    **dict.fromkeys(("disk-revolve", "1d-revolve", "per-rev-revolve", "overlapped"), ()),
    **dict.fromkeys(("periodic-disk-revolve", "two-level", "bisection", "store-all"), ()),
    "recompute-all": (),
    "periodic": ("--period", 7),
    "wang-moin": (),
}
"""Every planner that knows the number of steps, with options of its own."""

KILLS = 3


def campaign(tmp_path: Path, planners: list[str], seed: int) -> int:
    """Kill runs by these planners, and what resumes them; returns how many kills there were."""
    random, killed = Random(seed), 0
    digests = set()
    for planner in planners:
        for overlap in ("none", "all"):
            at = place(tmp_path / f"{planner}-{overlap}")
            (at / "node.toml").write_text(PLATFORM.replace("40000", "200000"))
            words = ("run", "heat.py:Heat", "--steps", STEPS, "--platform", "node.toml")
            words = (*words, "--planner", planner, *PLANNERS[planner], "--resume", "--into", "run")
            overlapped = () if planner == "overlapped" else ("--overlap", overlap)
            for _ in range(KILLS):
                moment = f"{random.choice(('step', 'adjoint'))}:{random.randint(1, STEPS)}"
                with pytest.MonkeyPatch.context() as patch:
                    patch.setenv("KILL", f"{moment}:run/manifest.json")
                    done = ckio(*words, *overlapped, at=at, status=ANY)
                story = f"{planner}, {overlap}: {moment}: {done.stderr}"
                assert done.returncode in {0, -9}, story
                killed += done.returncode == -9
            found = answer(*words, *overlapped, at=at)
            digests.add(found["gradient_digest"])
            assert len(digests) == 1, story
    return killed


@pytest.mark.slow
def test_two_planners_are_killed(tmp_path: Path) -> None:
    assert campaign(tmp_path, ["auto", "mixed"], 7) >= 4


@pytest.mark.slow
def test_every_planner_is_killed(tmp_path: Path) -> None:
    assert campaign(tmp_path, [*PLANNERS], 11) >= 60
