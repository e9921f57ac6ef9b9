"""A run on the disk of a node that is lost: resumed from the copies, at the cost that was said."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.commands import answer, ckio
from cli.resumable import RESUME, STEPS, killed, place, reference, words, work

from ckio import Job
from ckio.actions import Discard, Key, Write
from ckio.errors import BadInput
from ckio.jobs.adjoints import AdjointPolicy, cost_of_a_kill, next_plan
from ckio.platform import Platform
from ckio.platform.places import with_copies
from ckio.schedule import Schedule
from ckio.schedule.text import loads
from ckio.sim.engine import simulate

EVERY = 8.0


def copied(at: Path, every: float) -> Path:
    """The place of a run whose far level has copies."""
    place(at)
    text = (at / "node.toml").read_text()
    options = f'{{path = "ck", copies = "saved", copies_every = {every}}}'
    (at / "node.toml").write_text(text.replace('{path = "ck"}', options))
    return at


@pytest.mark.parametrize("moment", ["step:30", "adjoint:5", "adjoint:25"])
def test_the_disk_of_a_killed_run_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    expected = reference(tmp_path)
    at = copied(tmp_path / "here", every=0.0)
    killed(monkeypatch, at, moment, *words())
    shutil.rmtree(at / "ck")  # the next job is on another node
    monkeypatch.setenv("WORK", "work")
    done = ckio(*RESUME, at=at)
    assert "checkpoints were read back from their copies" in done.stderr
    assert answer(*RESUME, at=at)["gradient_digest"] == expected["gradient_digest"]
    assert work(at) < 2 * STEPS + expected["forward_steps"]
    assert not list((at / "saved").rglob("slots*"))


def test_without_copies_and_disk_the_run_starts_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = copied(tmp_path / "here", every=3600.0)
    killed(monkeypatch, at, "adjoint:25", *words())
    shutil.rmtree(at / "ck")
    shutil.rmtree(at / "saved")
    assert f"{STEPS} of {STEPS} steps are left to reverse" in ckio(*RESUME, at=at).stdout


def test_a_stopped_run_leaves_a_copy_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = reference(tmp_path)
    at = copied(tmp_path / "here", every=3600.0)
    killed(monkeypatch, at, "adjoint:25:15", *words(), status=75)
    shutil.rmtree(at / "ck")
    assert answer(*RESUME, at=at)["gradient_digest"] == expected["gradient_digest"]
    assert work(at) < STEPS


def keys_at(schedule: Schedule, rows: int, level: int) -> set[Key]:
    """The keys on a level after so many actions."""
    keys = set[Key]()
    for action in list(schedule.actions)[:rows]:
        match action:
            case Write(key, number) if number == level:
                keys.add(key)
            case Discard(key, number) if number == level:
                keys.remove(key)
    return keys


def test_the_loss_of_a_node_costs_what_was_said(tmp_path: Path) -> None:
    """In simulated time: at any moment all is lost but the last copy, and the rest is planned."""
    at = copied(tmp_path, every=EVERY)
    ckio(*words(), at=at)
    found = loads((at / "run" / "schedule.txt").read_text())
    schedule, platform = found.schedule, found.platform
    assert platform is not None
    policy = AdjointPolicy("far", 8.0)
    said = cost_of_a_kill(schedule, platform, policy)
    match = re.search(r"of work; the loss of far, up to ([\d.]+) s", said)
    assert match is not None, said
    timeline = simulate(schedule, platform)
    total, lost = timeline.makespan, []
    for moment in np.linspace(0.0, total, 41)[1:-1]:
        last = np.searchsorted(timeline.stop, max(0.0, moment - EVERY), side="right")
        copies = keys_at(schedule, int(last), 1)
        rest, _ = next_plan(schedule.chain, platform, [set(), copies], None, policy)
        lost.append(moment + simulate(rest, platform).makespan - total)
    assert max(lost) <= float(match[1])
    assert max(lost) > 0.4 * float(match[1])


def test_the_words_of_a_job(tmp_path: Path) -> None:
    def job(**levels: Any) -> Job:
        return Job(tmp_path / "run", model="burgers", steps=20, settings={"grid": 32}, **levels)

    job(ram="1kB", disk=tmp_path / "ck", copies=f"{tmp_path}/s:5m").run()
    platform = loads((tmp_path / "run" / "schedule.txt").read_text()).platform
    assert platform is not None
    assert platform.levels[1].options["copies"] == f"{tmp_path}/s"
    assert platform.levels[1].options["copies_every"] == 300.0
    assert not list(tmp_path.glob("s/*"))
    with pytest.raises(BadInput, match="no level has any; give disk, too"):
        with_copies((), "saved")
    with pytest.raises(BadInput, match="is not a time"):
        with_copies((), "saved:often")
    with pytest.raises(BadInput, match="copies cannot be given with a platform"):
        job(platform=Platform(()), copies="saved")
