"""`-` is stdout where a file is written, and stdin where one is read."""

import json
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from cli.commands import CKIO, ckio, complaint
from cli.resumable import left, words
from cli.resumable import place as runnable

from ckio.cli import console

MACHINE = """
[[level]]
name = "ram"
capacity = 9000
[[level]]
name = "far"
write = {latency = 0.01}
read = {latency = 0.01}
"""
COSTS = "--advance 1 --record 1 --reverse 2 --restart 1000 --tape 1000 --adjoint 1000"
PLAN = f"plan --planner hrevolve --steps 30 --platform node.toml {COSTS}"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "node.toml").write_text(MACHINE)
    return tmp_path


def piped(script: str, at: Path) -> bytes:
    """What a shell prints that knows the command by the name ckio."""
    line = ["sh", "-c", f'ckio() {{ "{CKIO}" "$@"; }}; {script}']
    done = subprocess.run(line, cwd=at, capture_output=True, check=True)
    assert "Error" not in done.stderr.decode()
    return done.stdout


def test_a_schedule_alone_goes_to_stdout_and_the_table_to_stderr(place: Path) -> None:
    said = ckio(*PLAN.split(), "-o", "plan.txt", at=place).stdout
    done = ckio(*PLAN.split(), "-o", "-", at=place)
    assert done.stdout == (place / "plan.txt").read_text()
    assert done.stderr.splitlines()[3:] == said.splitlines()[3:-1]  # all but the time that it took
    assert {path.name for path in place.iterdir()} == {"node.toml", "plan.txt"}


@pytest.mark.slow
def test_commands_work_on_each_others_output(place: Path) -> None:
    ckio(*PLAN.split(), "-o", "plan.txt", at=place)
    ckio("simulate", "plan.txt", "-o", "times.txt", at=place)
    ckio("show", "times.txt", "--svg", "times.svg", at=place)
    times = f"ckio {PLAN} -o - | ckio simulate - -o -"
    assert piped(times, place) == (place / "times.txt").read_bytes()
    drawn = piped(f"{times} | ckio show - --svg -", place)
    assert drawn == (place / "times.svg").read_bytes()
    piped(f"{times} > there; {times} >> there", place)
    assert (place / "there").read_bytes() == (place / "times.txt").read_bytes() * 2
    long = f"ckio {PLAN.replace('30', '3000')} -o - | head -1"  # whoever reads it may leave
    assert piped(long, place) == b"# ckio schedule 1\n"
    costs = "cat node.toml | ckio " + PLAN.replace("node.toml", "-")
    assert piped(f"{costs} -o -", place) == (place / "plan.txt").read_bytes()


def test_a_platform_goes_there_too(place: Path) -> None:
    words = ("calibrate", "--level", "a=ram,capacity=8KiB", "--repeats", 1)
    assert ckio(*words, "-o", "-", at=place).stdout.startswith("# The storage of one machine")
    assert [path.name for path in place.iterdir()] == ["node.toml"]


def test_a_journal_goes_there_while_a_run_goes_on(tmp_path: Path) -> None:
    at = runnable(tmp_path / "at")
    lines = ckio(*words("--log", "-"), at=at).stdout.splitlines()
    first, *events = map(json.loads, lines)
    assert first["ckio_journal"] == 1
    assert events[-1]["action"] == "reverse 0 1"
    assert left(at) == []
    assert not (at / "-").exists()


def test_stdout_is_for_one_thing(place: Path) -> None:
    ckio(*PLAN.split(), "-o", "plan.txt", at=place)
    for line in (f"{PLAN} -o - --json", "show plan.txt --svg - --html -"):
        assert "stdout is taken" in complaint(*line.split(), at=place)


def test_a_directory_is_neither_stdout_nor_a_file(place: Path) -> None:
    assert "- is a stream, and this is a file" in complaint(*words("--into", "-"), at=place)
    assert "- is a stream, and this is a file" in complaint("demo", "--into", "-", at=place)
    for name in ("out/", "node.toml/"):
        line = complaint(*PLAN.split(), "-o", name, at=place)
        assert f"{name} ends as a directory does; name a file in it" in line
    assert [path.name for path in place.iterdir()] == ["node.toml"]


def test_a_stdout_that_is_no_file_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example in a notebook, or under a test runner."""
    for stream in (StringIO(), None):
        monkeypatch.setattr(sys, "stdout", stream)
        with console.lasting():
            assert sys.stdout is stream
