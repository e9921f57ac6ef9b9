"""A journal says what a run does while it does it, survives a kill, and never ends a run."""

import io
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from ckio.actions import Advance, Discard, Key, Kind, Read, Write
from ckio.backends.ram import Ram
from ckio.errors import BadInput
from ckio.jobs.journal import Journal
from ckio.planners.binomial import revolve
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.runner import run
from ckio.schedule.text import dumps
from ckio.schedule.timeline import Event
from ckio.testing import CountingModel

CHAIN = Chain(steps=9, advance=1.0, record=1.5, reverse=2.5, restart=100, tape=50, adjoint=70)
PLATFORM = Platform((Level(name="ram", capacity=300),), working_memory=50)
X12 = Key(Kind.RESTART, 12)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_every_event_has_a_line_once_it_has_happened(tmp_path: Path) -> None:
    path, schedule, seen = tmp_path / "journal", revolve(CHAIN, PLATFORM), []
    with Journal(path, {"steps": 9, "planner": "revolve"}, levels=["ram"]) as journal:

        def watch(event: Event) -> None:
            seen.append(event)
            journal(event)
            assert len(lines(path)) == 1 + len(seen)

        timeline = run(schedule, PLATFORM, CountingModel(CHAIN), [Ram()], watch=watch)
    first, *others = lines(path)
    assert first == {"ckio_journal": 1, "steps": 9, "planner": "revolve"}
    assert [(line["start"], line["stop"], line["nbytes"]) for line in others] == [
        (event.start, event.stop, event.nbytes) for event in timeline
    ]
    assert {line["level"] for line in others if line["nbytes"]} == {"ram"}
    spelled = [line["action"] + " 0" * (line["level"] is not None) for line in others]
    assert spelled == [line for line in dumps(schedule).splitlines() if line[0] != "#"]


def test_an_event_in_a_line() -> None:
    adjoint, odd = Key(Kind.ADJOINT, 4), Key(Kind.RESTART, 1, '"\\\n')
    for action, text, level in (
        (Write(X12, 1), "write x 12", "nvme"),
        (Read(Key(Kind.TAPE, 3), 0), "read t 3", "ram"),
        (Discard(adjoint, 2), "discard a 4", 'a "b"\\c'),
        (Discard(adjoint, 3), "discard a 4", "3"),
        (Write(odd, 0), "write x 1 %22%5C%0A", "ram"),
        (Advance(0, 2), "advance 0 2", None),
    ):
        file = io.StringIO()
        Journal(file, {}, levels=["ram", "nvme", 'a "b"\\c'])(Event(action, 0.1, 1 / 3, 7))
        assert json.loads(file.getvalue().splitlines()[1]) == {
            "action": text,
            "level": level,
            "start": 0.1,
            "stop": 1 / 3,
            "nbytes": 7,
        }


def test_a_killed_process_has_lost_no_line(tmp_path: Path) -> None:
    """It is killed while it is in its tenth event; nine were over, and are there."""
    path = tmp_path / "journal"
    child = os.fork()
    if child == 0:
        journal = Journal(path, {})
        for step in range(9):
            journal(Event(Advance(step, step + 1), step, step + 1))
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert [line["action"] for line in lines(path)[1:]] == [
        f"advance {i} {i + 1}" for i in range(9)
    ]


def test_a_run_that_goes_on_appends_and_ends_a_line_that_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path, {"part": 1}) as journal:
        journal(Event(Advance(0, 1), 0.0, 1.0))
    os.truncate(path, path.stat().st_size - 5)
    for part in (2, 3):
        with Journal(path, {"part": part}) as journal:
            journal(Event(Advance(1, 2), 0.0, 1.0))
    texts = path.read_text().splitlines()
    assert len(texts) == 6
    with pytest.raises(json.JSONDecodeError):
        json.loads(texts[1])
    assert [json.loads(texts[number])["part"] for number in (0, 2, 4)] == [1, 2, 3]


def test_a_full_disk_ends_the_journal_and_not_the_run() -> None:
    told: list[str] = []
    journal = Journal(Path("/dev/full"), {}, warn=told.append)
    run(revolve(CHAIN, PLATFORM), PLATFORM, CountingModel(CHAIN), [Ram()], watch=journal)
    journal.close()
    (line,) = told
    assert line.startswith("/dev/full: the journal ends here, and the run continues")
    with pytest.warns(UserWarning, match="the journal ends here"):  # where nobody is to be told
        journal = Journal(Path("/dev/full"), {})
    journal(Event(Advance(0, 1), 0.0, 1.0))  # warnings are errors here: a second one would fail


def test_a_file_that_was_closed_ends_the_journal_and_not_the_run() -> None:
    file, told = io.StringIO(), list[str]()
    with Journal(file, {}, warn=told.append) as journal:
        pass
    assert not file.closed  # a file that was given is closed by its owner
    journal = Journal(file, {}, warn=told.append)
    file.close()
    journal(Event(Advance(0, 1), 0.0, 1.0))
    journal(Event(Advance(1, 2), 1.0, 2.0))
    assert len(told) == 1
    assert "closed file" in told[0]


def test_a_closed_journal_says_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", {})
    journal.close()
    journal.close()
    journal(Event(Advance(0, 1), 0.0, 1.0))
    assert len(lines(tmp_path / "journal")) == 1


def test_a_place_that_cannot_be_opened_is_seen_before_the_run(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "no" / "journal", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(BadInput, match=f"cannot hold a journal: {why}"):
            Journal(path, {})
