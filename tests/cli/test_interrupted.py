"""Ctrl-C at any time, also while the command starts, is one line and exit status 130."""

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

import pytest
from cli.commands import CKIO

import ckio

MOMENTS = 30

HOOK = """\
import os, sys

def begun(event, arguments):
    if event == "import" and arguments[0] == "ckio.actions" and not told:
        told.append(os.write(int(os.environ["PIPE"]), b"."))

told = []
sys.addaudithook(begun)
"""
"""Says when the command listens: before it imports the first module of what it does.

Until then it is Python that begins.
"""

COMMANDS = {"ckio": [str(CKIO)], "python -m ckio": [sys.executable, "-m", "ckio"]}
PLATFORM = 'format = 1\n[[level]]\nname = "ram"\ncapacity = "1 MiB"\n'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "node.toml").write_text(PLATFORM)
    (tmp_path / "sitecustomize.py").write_text(HOOK)
    return tmp_path


def interrupted(command: list[str], after: float, at: Path) -> tuple[int, str]:
    """The status and stderr of a command that gets SIGINT so many seconds after it began."""
    ours, pipe = os.pipe()
    path = os.pathsep.join([str(at), str(Path(ckio.__file__).parents[1])])
    with subprocess.Popen(
        command,
        cwd=at,
        env={**os.environ, "PYTHONPATH": path, "PIPE": str(pipe)},
        pass_fds=[pipe],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        os.close(pipe)
        assert os.read(ours, 1) == b"."
        os.close(ours)
        time.sleep(after)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    return process.returncode, err


def all_interrupted(commands: list[list[str]], at: Path) -> list[tuple[int, str]]:
    """The same for many commands, a few at a time, each at a moment of its first second."""
    drawn = random.Random(26)
    moments = [0.0, *(drawn.uniform(0, 1) for _ in commands[1:])]
    with ThreadPoolExecutor(6) as pool:
        return list(pool.map(interrupted, commands, moments, repeat(at)))


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_help_that_is_interrupted_is_one_line(place: Path, command: str) -> None:
    found = all_interrupted([[*COMMANDS[command], "plan", "--help"]] * MOMENTS, place)
    assert set(found) - {(0, "")} == {(130, "ckio: interrupted\n")}


@pytest.mark.slow
def test_a_run_that_is_interrupted_is_one_line(place: Path) -> None:
    words = "run vorticity --set grid=16 --steps 20000 --overlap none --platform node.toml --into"
    commands = [[str(CKIO), *words.split(), f"run{number}"] for number in range(MOMENTS)]
    found = all_interrupted(commands, place)
    for status, err in found:
        if status == 75:  # it had begun, and can be resumed
            lines = err.splitlines()
            assert sum(line.startswith("ckio: stopped by SIGINT: ") for line in lines) == 1
            assert all(line.startswith("ckio: ") for line in lines)  # that costs were measured
        else:
            assert (status, err) == (130, "ckio: interrupted\n")
    assert (130, "ckio: interrupted\n") in found


@pytest.mark.campaign
@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_an_interrupt_that_is_ignored_stays_ignored(tmp_path: Path, words: list[str]) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # which it inherits
    try:
        process = subprocess.Popen([*words, "--version"], stdout=subprocess.PIPE, cwd=tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        while process.poll() is None:  # at any time
            process.send_signal(signal.SIGINT)
            time.sleep(0.01)
        out, _ = process.communicate()
    assert process.returncode == 0
    assert out.startswith(b"ckio ")


def test_a_program_that_imports_ckio_keeps_its_own_handler() -> None:
    script = "import signal, ckio; print(signal.getsignal(2) is signal.default_int_handler)"
    done = subprocess.run(
        [sys.executable, "-c", script, "ckio"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"
