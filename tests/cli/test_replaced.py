"""Files of a level that are cut short in mid-run."""

import json
import random
from pathlib import Path

import pytest
from cli.commands import ckio
from cli.resumable import place, words

FAR = {"directory": "*/*.ckio", "hdf5": "*.h5"}
RUNS = [(), ("--overlap", "all")]
HARM = """

import importlib, pathlib
work = Growth.work

def harmed(self, name):
    counts["work"] = counts.get("work", 0) + 1
    if counts["work"] == {moment}:
        importlib.import_module("harm").change(sorted(pathlib.Path("ck").glob("{files}")))
    work(self, name)

Growth.work = harmed
"""
MOMENTS = 109
"""Steps forward and back of the synchronous run."""


def in_mid_run(at: Path, far: str, digest: str, moment: int, change: str, *more: str) -> str:
    """A run that changes its files at a moment, to its end; returns what it says to stderr."""
    place(at, far)
    with (at / "ocean.py").open("a") as file:
        file.write(HARM.format(moment=moment, files=FAR[far]))
    (at / "harm.py").write_text(
        f"import os\nfrom pathlib import Path\nfrom cli import test_replaced\n\n"
        f"def change(files):\n    {change}\n"
    )
    done = ckio(*words(*more), "--json", at=at)
    story = f"{far}, {more}: {change} at {moment}: {done.stderr}"
    assert json.loads(done.stdout)["gradient_digest"] == digest, story
    return done.stderr


@pytest.mark.parametrize(
    "tries", [pytest.param(1, id="some"), pytest.param(40, id="many", marks=pytest.mark.slow)]
)
def test_a_file_is_cut_short_in_mid_run(tmp_path: Path, digest: str, tries: int) -> None:
    """At any length and moment, for each kind of level and of run."""
    draw = random.Random(tries)
    for far in FAR:
        for more in RUNS:
            planned_anew = 0
            for number in range(tries):
                part = draw.choice([0.0, 1e-5, draw.random(), draw.random() / 20])
                change = f"os.truncate(files[0], int(files[0].stat().st_size * {part}))"
                at = tmp_path / f"{far}{len(more)}{number}"
                moment = draw.randint(2, MOMENTS - 30)
                told = in_mid_run(at, far, digest, moment, change, *more)
                planned_anew += "is planned anew" in told
            assert planned_anew >= tries // 4, f"{far}, {more}: {planned_anew}"
