"""Who reads what a run prints may leave: the run goes on, or stops as it was asked to."""

import contextlib
import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest
from cli.commands import CKIO, answer
from cli.resumable import RESUME, left, place, words


def on_a_terminal(at: Path, hangups: signal.Handlers) -> int:
    """Begin a run on a terminal of its own, and close that while it goes on; its exit status."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(at)
        signal.signal(signal.SIGHUP, hangups)
        more = {"PAUSE": "0.05", "TERM": "xterm"}
        os.execve(CKIO, [str(CKIO), *map(str, words("--resume"))], {**os.environ, **more})
    said = b""
    while b"steps/s" not in said:
        said += os.read(terminal, 4096)
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.slow
def test_a_terminal_that_is_closed_stops_a_run_unless_hangups_are_ignored(
    tmp_path: Path, digest: str
) -> None:
    for hangups, status in ((signal.SIG_DFL, 75), (signal.SIG_IGN, 0)):
        at = place(tmp_path / f"at-{status}")
        assert on_a_terminal(at, hangups) == status
        assert bool(left(at)) == bool(status)  # it stores where it stands
        assert answer(*RESUME, at=at)["gradient_digest"] == digest
        assert left(at) == []


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("more", "both"),
    [((), False), ((), True), (("--json",), False)],
    ids=["stdout", "both", "json"],
)
def test_a_run_outlives_who_reads_it(
    tmp_path: Path, digest: str, more: tuple[str, ...], both: bool
) -> None:
    at = place(tmp_path / "at")
    reading, writing = os.pipe()
    os.close(reading)
    with contextlib.closing(os.fdopen(writing, "wb")) as closed:
        err = subprocess.STDOUT if both else subprocess.PIPE
        line = [CKIO, *map(str, words(*more))]
        done = subprocess.run(line, cwd=at, stdout=closed, stderr=err, check=False)
    assert (done.returncode, done.stderr or b"") == (0, b"")
    assert left(at) == []
    assert answer(*RESUME, at=at)["gradient_digest"] == digest


def on_a_full_disk(at: Path, *more: object, both: bool) -> subprocess.CompletedProcess[str]:
    """Run where what is printed finds no room."""
    line = [CKIO, *map(str, words(*more))]
    with Path("/dev/full").open("wb") as full:
        err = full if both else subprocess.PIPE
        return subprocess.run(line, cwd=at, stdout=full, stderr=err, text=True, check=False)


@pytest.mark.campaign
@pytest.mark.parametrize("more", [(), ("--json",)], ids=["stdout", "json"])
def test_a_run_that_finds_no_room_to_say_its_result_says_where_that_is(
    tmp_path: Path, digest: str, more: tuple[str, ...]
) -> None:
    at = place(tmp_path / "at")
    done = on_a_full_disk(at, *more, both=False)
    assert done.returncode == 1
    assert done.stderr.startswith("ckio: stdout cannot be written: No space left on device")
    assert done.stderr.endswith("its result is in run\n")
    assert left(at) == []
    assert answer(*RESUME, at=at)["gradient_digest"] == digest


@pytest.mark.campaign
@pytest.mark.parametrize("more", [(), ("--json",)], ids=["stdout", "json"])
def test_a_run_that_finds_no_room_to_say_that_it_stopped_has_the_status_that_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digest: str, more: tuple[str, ...]
) -> None:
    at = place(tmp_path / "at")
    with monkeypatch.context() as here:
        here.setenv("KILL", "step:30:15")
        assert on_a_full_disk(at, *more, both=True).returncode == 75
    assert answer(*RESUME, at=at)["gradient_digest"] == digest
