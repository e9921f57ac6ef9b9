"""Runs are killed at random, and their files edited before they are resumed: one gradient.

`pytest -m slow tests/jobs/test_campaign.py -s` prints the figures of the whole campaign.
"""

import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from random import Random
from unittest.mock import ANY

import numpy as np
import pytest
from cli.commands import answer, ckio
from jobs.inversion import LINE, PLATFORM, STEPS, place

CONTROL = ("--control", "control.npz")

EDITS = ("flip", "byte", "cut", "insert", "digit", "line", "truncate", "zero", "swap", "empty")


def edited(data: bytes, random: Random) -> tuple[str, bytes]:  # noqa: PLR0912  (a list)
    """One edit of a file, and its name; it always changes something."""
    while True:
        what, it = random.choice(EDITS), bytearray(data)
        at = random.randrange(len(it)) if it else 0
        match what:
            case "flip":
                it[at] ^= 1 << random.randrange(8)
            case "byte":
                it[at] = random.randrange(256)
            case "cut":
                del it[at : at + random.randint(1, 40)]
            case "insert":
                it[at:at] = random.randbytes(random.randint(1, 20))
            case "digit":
                digits = [n for n, byte in enumerate(it) if chr(byte).isdigit()]
                if digits:
                    it[random.choice(digits)] = random.choice(b"0123456789")
            case "line":
                lines = bytes(it).splitlines(keepends=True)
                number = random.randrange(len(lines))
                lines[number:number] = [lines[random.randrange(len(lines))]]
                it = bytearray(b"".join(lines))
            case "truncate":
                del it[at:]
            case "zero":
                it[at : at + 64] = bytes(len(it[at : at + 64]))
            case "swap":
                other = random.randrange(len(it))
                it[at], it[other] = it[other], it[at]
            case "empty":
                it.clear()
        if it != data:
            return what, bytes(it)


def begun(at: Path, overlap: bool) -> tuple[Path, tuple[object, ...]]:
    """A run with given controls that was killed on its way back, and its line."""
    place(at)
    np.savez(at / "control.npz", x=np.linspace(0, 1, 64), source=np.linspace(1, 0, 64))
    line = (*LINE, *(("--overlap", "all") if overlap else ()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KILL", "adjoint:25:run/manifest.json")
        ckio(*line, *CONTROL, at=at, status=-9)
    return at, line


def campaign(tmp_path: Path, edits: int, seed: int, *, overlap: bool) -> Counter[str]:
    """How so many edits, of a random file each, end; asserts that none ends badly."""
    random = Random(seed)
    whole = place(tmp_path / "whole")
    half, line = begun(tmp_path / "killed", overlap)
    shutil.copy(half / "control.npz", whole)
    digest = answer(*line, *CONTROL, at=whole)["gradient_digest"]
    at, ends = tmp_path / "at", Counter[str]()
    for _ in range(edits):
        shutil.copytree(half, at)
        files = sorted(path for path in (at / "run").iterdir() if path.is_file())
        files += sorted(path for path in (at / "ck").rglob("*") if path.is_file())
        path = random.choice(files)
        what, data = edited(path.read_bytes(), random)
        path.write_bytes(data)
        done = _resumed(at, line)
        story = f"{what} of {path.name}: {done}"
        status, out, err = done
        if status == 0:
            assert json.loads(out)["gradient_digest"] == digest, story
            ends[f"{_kind(path, at)}: resumed to the same gradient"] += 1
        else:
            assert status == 2, story
            assert err.startswith("ckio: "), story
            assert err.count("\n") == 1, story
            assert "--debug" not in err, story
            ends[f"{_kind(path, at)}: refused"] += 1
        shutil.rmtree(at)
    return ends


def _kind(path: Path, at: Path) -> str:
    return path.name if path.parent == at / "run" else "a level"


def _resumed(at: Path, line: tuple[object, ...]) -> tuple[int, str, str]:
    done = ckio(*line, "--json", at=at, status=ANY)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_edits_of_a_runs_files_are_refused_or_change_nothing(tmp_path: Path, seed: int) -> None:
    ends = campaign(tmp_path, 600, 100 + seed, overlap=bool(seed % 2))
    lines = [f"  {count:4} {end}" for end, count in sorted(ends.items())]
    sys.stdout.write("\n".join([f"\nseed {seed}: {sum(ends.values())} edits", *lines, ""]))


PLANNERS = (
    *("auto", "mixed", "hrevolve", "hrevolve-2020", "revolve", "multistage"),
    *("disk-revolve", "1d-revolve", "per-rev-revolve", "overlapped"),
    *("periodic-disk-revolve", "two-level", "bisection", "store-all", "recompute-all"),
    "periodic:period=7",
)
"""Every planner that knows the number of steps, with options of its own."""

KILLS = 3


def killed(tmp_path: Path, planners: list[str], seed: int) -> int:
    """Kill runs by these planners, and what resumes them; returns how many kills there were."""
    random, kills = Random(seed), 0
    digests = set()
    for planner in planners:
        for overlap in ("none", "all"):
            at = place(tmp_path / f"{planner}-{overlap}")
            (at / "node.toml").write_text(PLATFORM.replace("40000", "200000"))
            words = ("run", "heat.py:Heat", "--steps", STEPS, "--platform", "node.toml")
            words = (*words, "--planner", planner, "--resume", "--into", "run")
            overlapped = () if planner == "overlapped" else ("--overlap", overlap)
            for _ in range(KILLS):
                moment = f"{random.choice(('step', 'adjoint'))}:{random.randint(1, STEPS)}"
                with pytest.MonkeyPatch.context() as patch:
                    patch.setenv("KILL", f"{moment}:run/manifest.json")
                    done = ckio(*words, *overlapped, at=at, status=ANY)
                story = f"{planner}, {overlap}: {moment}: {done.stderr}"
                assert done.returncode in {0, -9}, story
                kills += done.returncode == -9
            found = answer(*words, *overlapped, at=at)
            digests.add(found["gradient_digest"])
            assert len(digests) == 1, story
    return kills


@pytest.mark.slow
def test_runs_of_every_planner_are_killed_and_come_to_one_gradient(tmp_path: Path) -> None:
    assert killed(tmp_path, [*PLANNERS], 11) >= 60
