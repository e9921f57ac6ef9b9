"""A run that is asked to stop stores where it stands, says how to resume, and loses nothing."""

import json
import os
import signal
import time
from pathlib import Path
from unittest.mock import ANY

import pytest
from cli.commands import answer, ckio
from cli.resumable import RESUME, STEPS, adjoints, left, place, words, work

from ckio.cli.entry import cli as command_line
from ckio.errors import RunFailed
from ckio.jobs.stopping import Stopper, began

IMPORTED = time.monotonic()
WARNINGS = tuple(int(getattr(signal, name)) for name in ("SIGUSR1", "SIGUSR2", "SIGXCPU"))
TERM, INT, HUP = (int(getattr(signal, name)) for name in ("SIGTERM", "SIGINT", "SIGHUP"))


def stopped(at: Path, kill: str, *line: object, patch: pytest.MonkeyPatch, status: int = 75) -> str:
    """Run until a signal stops it; returns the line that it leaves on stderr."""
    with patch.context() as here:
        here.setenv("KILL", kill)
        done = ckio(*line, at=at, status=status)
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.campaign
@pytest.mark.parametrize("number", [TERM, INT, HUP, *WARNINGS])
def test_a_signal_on_the_way_forward_stops_a_run_where_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digest: str, number: int
) -> None:
    if number == HUP and signal.getsignal(HUP) is signal.SIG_IGN:
        pytest.skip("these tests are run by nohup")
    at = place(tmp_path / "at")
    monkeypatch.setenv("WORK", str(at / "work"))
    said = stopped(at, f"step:17:{number}", *words(), patch=monkeypatch)
    reached = work(at)
    assert 17 <= reached < STEPS
    assert f"stopped by {signal.Signals(number).name}: x_{reached} is stored on far;" in said
    assert said.endswith(" resume with: ckio run ocean:growth --resume --into run\n")
    ended = answer(*RESUME, at=at)
    assert ended["gradient_digest"] == digest
    assert work(at) == reached + ended["forward_steps"] + STEPS
    assert left(at) == []


@pytest.mark.parametrize("number", WARNINGS)
def test_a_program_keeps_its_own_handler_of_a_warning(number: int) -> None:
    heard = []
    before = signal.signal(number, lambda *_: heard.append(number))
    try:
        with Stopper() as stopper:
            os.kill(os.getpid(), number)
            assert not stopper()
    finally:
        signal.signal(number, before)
    assert heard == [number]
    with Stopper() as stopper:
        os.kill(os.getpid(), number)
        assert stopper()
        assert stopper.why == signal.Signals(number).name
    assert signal.getsignal(number) is signal.SIG_DFL


def test_a_run_that_is_stopped_on_the_way_back_again_and_again_reverses_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digest: str
) -> None:
    at = place(tmp_path / "at")
    with monkeypatch.context() as here:
        here.setenv("KILL", f"adjoint:12:{TERM}")
        for stops in (1, 2, 3):
            said = json.loads(ckio(*words("--resume", "--json"), at=at, status=75).stdout)
            step = STEPS - 12 * stops
            assert (said.pop("state") or step) >= step
            assert said == {
                "stopped": True,
                "why": "SIGTERM",
                "adjoint": step,
                "stored": {f"a_{step}": "far"},
                "refused": None,
                "resume": "ckio run ocean:growth --resume --into run",
            }
            assert adjoints(at) == [f"a_{step}"]
    monkeypatch.setenv("WORK", str(at / "work"))
    ended = answer(*words("--resume"), at=at)
    assert ended["gradient_digest"] == digest
    assert work(at) == ended["forward_steps"] + STEPS - 36


def test_a_signal_after_the_last_step_lets_a_run_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digest: str
) -> None:
    at = place(tmp_path / "at")
    monkeypatch.setenv("KILL", f"adjoint:{STEPS}:{TERM}")
    assert answer(*words(), at=at)["gradient_digest"] == digest


def test_where_it_stands_may_not_fit_and_older_checkpoints_remain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digest: str
) -> None:
    at = place(tmp_path / "at", capacity=2 * 4104)  # no room for an adjoint
    line = _without_every(words())
    said = stopped(at, f"adjoint:9:{TERM}", *line, patch=monkeypatch)
    assert "the present state cannot be stored (" in said
    assert "has no space for a_31" in said
    assert left(at)
    assert answer(*RESUME, at=at)["gradient_digest"] == digest


def test_a_run_on_memory_alone_can_be_stopped_and_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digest: str
) -> None:
    at = place(tmp_path / "at")
    text = (at / "node.toml").read_text()
    (at / "node.toml").write_text(
        text.replace('backend = "directory"\noptions = {path = "ck"}', 'backend = "ram"')
    )
    line = _without_every(words())
    assert "no level of this run is durable" in stopped(
        at, f"adjoint:9:{TERM}", *line, patch=monkeypatch
    )
    assert answer(*RESUME, at=at)["gradient_digest"] == digest


def _without_every(line: tuple[object, ...]) -> list[object]:
    return [word for word in line if word not in ("--every", "8s")]


# Walltime


@pytest.mark.slow
def test_a_run_with_a_walltime_is_resumed_until_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digest: str
) -> None:
    at = place(tmp_path / "at")
    monkeypatch.setenv("PAUSE", "0.03")
    seconds, statuses = 3, list[int]()
    while not statuses or statuses[-1]:
        done = ckio(*words("--resume", "--json"), "--walltime", f"{seconds}s", at=at, status=ANY)
        statuses.append(done.returncode)
        assert done.returncode in {0, 1, 75}
        assert len(statuses) < 50
        seconds += done.returncode == 1  # here, today, more is needed to begin at all
    assert statuses[0] != 0  # the model alone sleeps longer
    assert json.loads(done.stdout)["gradient_digest"] == digest


def test_a_walltime_that_is_over_before_the_first_step_is_an_error(tmp_path: Path) -> None:
    at = place(tmp_path / "at")
    line = ckio(*words("--walltime", "0.001s"), at=at, status=1).stderr
    assert "--walltime is over before the first step" in line
    assert not (at / "run").exists()


def test_a_stopper_says_when(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr("ckio.jobs.stopping.began", lambda: 100.0)
    with Stopper(60.0) as stopper:
        with pytest.raises(RunFailed, match="takes 61 s, and 60 s remained"):
            stopper.start(61.0)
        stopper.start(10.0)
        now = 149.9
        assert not stopper()
        now = 150.0
        assert stopper()
        assert stopper.why == "--walltime"
    with Stopper(60.0) as overlapping:
        overlapping.start(5.0)
        overlapping.report_backlog(2.0)
        assert not overlapping()
        overlapping.report_backlog(3.0)  # twice as long is not left any more
        assert overlapping()
    with Stopper() as free:
        free.start(1e9)
        assert not free()


def test_a_second_interrupt_does_not_wait_and_handlers_come_back() -> None:
    before = signal.getsignal(TERM), signal.getsignal(INT)
    stopper = Stopper()
    with stopper:
        assert signal.getsignal(INT) == before[1]  # what is being prepared may be interrupted
        stopper.start(0)
        stopper.start(0)  # where the end is not known a run begins again on its way back
        for number in (TERM, TERM, TERM):
            os.kill(os.getpid(), number)
            assert stopper()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(INT)
    assert stopper.why == "SIGTERM"
    assert (signal.getsignal(TERM), signal.getsignal(INT)) == before


def test_without_proc_a_process_counts_from_now(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(path: Path) -> str:
        raise OSError(path)

    monkeypatch.setattr(Path, "read_text", unreadable)
    before = time.monotonic()
    assert before <= began() <= time.monotonic()


def test_a_process_knows_when_it_began() -> None:
    tick = 0.1  # the system counts in hundredths of a second
    before = time.monotonic()
    assert 0 < began() < IMPORTED
    child = os.fork()
    if child == 0:  # however late it comes to look
        os._exit(0 if before - tick <= began() <= time.monotonic() else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.campaign
@pytest.mark.parametrize("moment", ["step:17", "step:60", "adjoint:9"])
@pytest.mark.parametrize("capacity", [4600, 9100, 14_000])
def test_what_a_stopped_run_stores_fits_the_plan_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digest: str, capacity: int, moment: str
) -> None:
    """A codec may make of it less than was planned: the level would take more than a plan may."""
    at = place(tmp_path / "at", "zstd", capacity=capacity)
    line = _without_every(words())
    stopped(at, f"{moment}:{TERM}", *line, patch=monkeypatch)
    assert answer(*RESUME, at=at)["gradient_digest"] == digest


# The end of the process


def kill_twice(number: int) -> None:
    os.kill(os.getpid(), number)
    os.kill(os.getpid(), TERM)


@pytest.mark.parametrize("number", [TERM, INT])
def test_a_signal_between_a_command_and_its_exit_status_is_no_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        kill_twice(number)

    monkeypatch.setattr(command_line, "main", interrupted)
    assert ckio("--version", at=tmp_path, status=128 + number).stderr == "ckio: interrupted\n"
