"""Runs and jobs of ranks that are killed very often, at any moment: one gradient.

`pytest -m slow tests/jobs/test_killed.py -s` prints how many kills there were.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random

import pytest
from cli.commands import CKIO
from cli.faulty import RESUME, edit_platform, harm, prepared
from cli.jobs import Job, needs_mpi
from jobs.inversion import place

pytestmark = pytest.mark.slow

LEVELS = """
[[level]]
name = "ram"
capacity = 2000
[[level]]
name = "near"
backend = "directory"
options = {path = "near"}
capacity = 12000
write = {latency = 0.01}
read = {latency = 0.01}
[[level]]
name = "far"
backend = "hdf5"
options = {path = "far.h5"}
capacity = 60000
write = {latency = 0.1}
read = {latency = 0.1}

[models."heat.py:Heat"]
advance = 1.0
record = 1.0
reverse = 1.0
restart = 520
tape = 512
adjoint = 1552
"""
"""Memory, a directory and an archive, for a few checkpoints each."""

KINDS = {
    "synchronous": ("--planner", "mixed"),
    "overlapped": ("--planner", "hrevolve", "--overlap", "all"),
    "of unknown length": ("--planner", "online"),
    "synced": ("--planner", "hrevolve"),
}

SLOWLY = "class Heat", "import time\nmoment = lambda name: time.sleep(0.004)\n\n\nclass Heat"
"""A run lasts half a second longer than its start."""


def started(at: Path, *words: object) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    return subprocess.Popen([CKIO, *map(str, words)], cwd=at, text=True, stdout=pipe, stderr=pipe)


def killed(at: Path, words: tuple[object, ...], after: Callable[[], float]) -> tuple[int, str]:
    """Kill a run, and what resumes it, after so many seconds each; the kills, and the gradient."""
    for kills in count():
        process = started(at, *words)
        try:
            out, err = process.communicate(timeout=after())
        except subprocess.TimeoutExpired:
            process.kill()
            assert "Traceback" not in process.communicate()[1]
        else:
            assert process.returncode == 0, err
            return kills, json.loads(out)["gradient_digest"]
    raise AssertionError("a run ends")


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_killed_at_any_moment(tmp_path: Path, kind: str) -> None:
    """At moments of the clock, so also in a write, in the growth of the archive, at the start."""
    words: tuple[object, ...] = ("run", "heat.py:Heat", "--steps", 150, "--platform", "node.toml")
    words = (*words, "--every", "2s", *KINDS[kind], "--into", "run", "--resume", "--json")
    synced = 'durability = "fdatasync", path' if kind == "synced" else "path"

    def prepared_at(name: str) -> Path:
        at = place(tmp_path / name)
        (at / "node.toml").write_text(LEVELS.replace("path", synced))
        (at / "heat.py").write_text((at / "heat.py").read_text().replace(*SLOWLY))
        return at

    random, kills, begun = Random(kind), 0, time.monotonic()
    _, expected = killed(prepared_at("whole"), words, lambda: 120.0)
    usual = time.monotonic() - begun
    for turn in range(8):
        at = prepared_at(str(turn))
        more, digest = killed(at, words, lambda: random.uniform(0.3, 1.0) * usual)
        assert digest == expected, (kind, turn)
        kills += more
    assert kills > 4
    sys.stdout.write(f"\n{kind}: {kills} kills\n")


JOBS = {
    "a file for each rank": ("--planner", "hrevolve"),
    "overlapped": ("--planner", "hrevolve", "--overlap", "all"),
    "a shared archive": ("--planner", "hrevolve"),
}


@needs_mpi
@pytest.mark.parametrize("kind", JOBS)
def test_a_job_of_ranks_is_killed_often(tmp_path: Path, kind: str) -> None:
    """One of two ranks is killed at a step forward or back, of the run and of what resumes it."""
    random, kills, digests = Random(kind), 0, set[str]()
    for turn in range(6):
        at = tmp_path / str(turn)
        at.mkdir()
        words = (*prepared(at, *JOBS[kind]), "--every", "0.01", "--json")
        if kind == "a shared archive":
            edit_platform(at, ('"hdf5"', '"hdf5-shared"'), ("400000\n", "20000\n"))
        todo = words
        for _ in range(6 if turn else 0):
            moment = f"{random.choice(('step', 'adjoint_step'))} {random.randrange(60)}"
            environ = harm(random.randrange(2), moment, "kill")
            Job(2, *todo, at=at, environ=environ).ended(status=None)
            kills += 1
            todo = (*RESUME, "--json") if (at / "run" / "manifest.json").exists() else words
        out, err = Job(2, *todo, at=at).ended()
        digests.add(json.loads(out)["gradient_digest"])
        assert len(digests) == 1, (kind, turn, err)
    sys.stdout.write(f"\n{kind}: {kills} kills of a rank\n")
