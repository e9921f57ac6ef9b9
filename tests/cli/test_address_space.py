"""In little address space (ulimit -v), a plan is made, a run stops, a large model is told."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from cli.commands import CKIO
from cli.resumable import place, words

HUGE = """
import numpy as np
from ocean import growth

def huge():
    made = growth()
    made.more = [np.ones(1 << 27) for _ in range(3)]
    return made
"""


def limited(mebibytes: int, *command: object, at: Path) -> "subprocess.Popen[str]":
    """A command that may have so much address space."""
    within = f'ulimit -v {mebibytes << 10}; exec "$@"'
    return subprocess.Popen(
        ["/bin/sh", "-c", within, "sh", str(CKIO), *map(str, command)],
        cwd=at,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "2"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def line_of(process: "subprocess.Popen[str]") -> str:
    """What a command says that fails for want of memory."""
    try:
        out, told = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, told.count("\n")) == (1, 1), (out, told)
    return told


def test_a_plan_needs_little(tmp_path: Path) -> None:
    at = place(tmp_path / "at")
    planning = ("plan", "--steps", 40, "--platform", "node.toml")
    _, told = (process := limited(300, *planning, at=at)).communicate(timeout=60)
    assert process.returncode == 0, told


@pytest.mark.slow
def test_a_model_that_takes_more_than_there_is_is_told_in_one_line(tmp_path: Path) -> None:
    at = place(tmp_path / "at")
    (at / "more.py").write_text(HUGE)
    run = [str(word).replace("ocean:growth", "more:huge") for word in words()]
    told = line_of(limited(1500, *run, at=at))
    assert "memory" in told.lower()


@pytest.mark.campaign
@pytest.mark.parametrize("more", [(), ("--overlap", "all")], ids=["synchronous", "overlapped"])
def test_a_run_in_little_address_space_obeys_sigterm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    monkeypatch.setenv("PAUSE", "0.05")
    at = place(tmp_path / "at")
    process = limited(900, *words(*more), at=at)
    try:
        while not list((at / "ck").glob("*/*.ckio")):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 75, told
    assert "--resume" in told
