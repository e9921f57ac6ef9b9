"""What the history says of earlier runs; its file is checked when it is read."""

import json
import os
import platform as host
import stat
from dataclasses import replace

import pytest

import ckio
from ckio import Level, Platform
from ckio.jobs import history
from ckio.jobs.history import EarlierRuns, PastRun
from ckio.jobs.result import verdict

PLATFORM = Platform((Level(name="ram"),), None)


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "state" / "history.jsonl"
    monkeypatch.setenv("CKIO_HISTORY", str(path))
    return path


def past(ratio=1.0, **given):
    return PastRun("m", "h", overlap=False, predicted=1.0, measured=ratio, **given)


def of_kind(ratio, **given):
    run = PastRun("m", host.node(), overlap=False, predicted=2.0, measured=2.0 * ratio)
    return replace(run, **given)


def test_the_last_runs_of_the_kind_are_told_and_no_others(file):
    others = {"model": "n"}, {"host": "elsewhere"}, {"overlap": True}
    ratios = [5.0] * 3 + [1.0 + k / 100 for k in (3, 1, 4, 2, 5, 9, 0, 6, 8, 7, 11, 10)]
    for ratio in ratios:
        for other in others:
            history.append(of_kind(9.0, **other))
        history.append(of_kind(ratio))
    found = history.earlier("m grid=8", PLATFORM, overlap=False)
    assert found == EarlierRuns(1.0, 1.11, 12)
    assert found.text() == (
        "the last 12 runs of this kind took between 1.00 and 1.11 of the prediction"
    )


def test_of_fewer_than_three_runs_nothing_is_said(file):
    assert history.earlier("m", PLATFORM, overlap=False) is None
    for count in (1, 2, 3):
        history.append(of_kind(1.25))
        found = history.earlier("m", PLATFORM, overlap=False)
        assert found == (EarlierRuns(1.25, 1.25, 3) if count == 3 else None)


def test_what_is_appended_is_read_and_only_its_owner_can_read_it(file):
    runs = [past(1.0 + k / 10, steps=k) for k in range(5)]
    for run in runs:
        history.append(run)
    assert [run.measured for run in history.read()] == [run.measured for run in runs]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "line",
    [
        "",
        "no json",
        "[1, 2]",
        "[" * 100_000,
        '{"model": "m"}',
        '{"model": 1, "host": "h", "overlap": false, "predicted": 1, "measured": 1}',
        '{"model": "m", "host": "h", "overlap": 1, "predicted": 1, "measured": 1}',
        '{"model": "m", "host": "h", "overlap": false, "predicted": 0, "measured": 1}',
        '{"model": "m", "host": "h", "overlap": false, "predicted": 1, "measured": NaN}',
        '{"model": "m", "host": "h", "overlap": false, "predicted": "1", "measured": -1}',
        f'{{"model": "m", "host": "h", "overlap": false, "predicted": 1, "measured": {10**400}}}',
        '{"model": "m", "host": "h", "overlap": false, "predicted": 5e-324, "measured": 1e300}',
    ],
    ids=range(12),
)
def test_a_line_that_is_no_record_is_skipped(file, line):
    history.append(past())
    with file.open("a") as stream:
        stream.write(line + "\n")
    history.append(past(2.0))
    assert [run.measured for run in history.read()] == [1.0, 2.0]


def test_a_long_history_begins_anew_and_keeps_the_old_file(file):
    file.parent.mkdir()
    file.write_text("x" * 2_000_000)
    history.append(past())
    assert len(history.read()) == 1
    assert file.with_name("history.jsonl.1").stat().st_size == 2_000_000


def test_a_history_that_cannot_be_written_fails_nothing(tmp_path, monkeypatch):
    target = tmp_path / "target"
    target.write_text("")
    (tmp_path / "link").symlink_to(target)
    for name in (tmp_path / "link", tmp_path, target / "below"):
        monkeypatch.setenv("CKIO_HISTORY", str(name))
        history.append(past())
        assert history.read() == []
    assert target.read_text() == ""


def test_it_is_off_or_in_the_state_of_the_user(monkeypatch, tmp_path):
    assert os.environ["CKIO_HISTORY"] == "off"
    assert history.path() is None
    monkeypatch.delenv("CKIO_HISTORY")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert history.path() == tmp_path / "ckio" / "history.jsonl"


def test_a_run_adds_itself_and_the_next_one_knows_it(file, tmp_path):
    for number in range(4):
        job = ckio.Job(
            tmp_path / f"run{number}",
            model="vorticity",
            settings={"grid": 16},
            steps=20,
            ram="100KiB",
        )
        result = job.run()
    runs = history.read()
    assert len(runs) == 4
    assert {run.model for run in runs} == {"vorticity"}
    assert [run.measured for run in runs][-1] == pytest.approx(result.report.measured)
    line = json.loads(file.read_text().splitlines()[-1])
    assert set(line["classes"]) == {row.name for row in result.report.rows}
    ratios = [run.measured / run.predicted for run in runs[:3]]
    assert result.figures["earlier"] == {"low": min(ratios), "high": max(ratios), "runs": 3}
    assert "the last 3 runs of this kind took between" in verdict(result)
    assert json.loads(json.dumps(result.figures["record"])) == line
