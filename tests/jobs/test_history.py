"""Intervals from earlier runs hold as often as they say; the history is checked when it is read."""

import json
import math
import os
import stat

import numpy as np
import pytest

import ckio
from ckio import Level, Platform
from ckio.jobs import history
from ckio.jobs.history import Interval, PastRun, interval_of
from ckio.platform.profile import Quantiles

DRIFTING = Platform((Level(name="ram"),), None, drift=Quantiles((0.8, 0.9, 1.0, 1.1, 1.2)))
PLAIN = Platform((Level(name="ram"),), None)


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "state" / "history.jsonl"
    monkeypatch.setenv("CKIO_HISTORY", str(path))
    return path


def test_the_worked_example():
    ratios = [1 + k / 100 for k in range(1, 20)]
    assert interval_of(2.0, ratios, PLAIN) == Interval(2.02, 2.38, 19)


@pytest.mark.parametrize("count", [3, 8, 18, 19, 40, 100])
def test_nine_of_ten_runs_of_a_drifting_machine_lie_in_it(count):
    """Ratios are lognormal with a bias, as those of a machine that became slower."""
    random, inside, trials = np.random.default_rng(7), 0, 4000
    for _ in range(trials):
        *past, new = np.exp(0.08 + 0.05 * random.standard_normal(count + 1))
        interval = interval_of(1.0, past, PLAIN)
        inside += interval.low <= new <= interval.high
    # Conformal prediction covers between 0.9 and 0.9 + 2 / (n + 1); the rest is chance.
    assert 0.885 <= inside / trials <= 0.915 + 2 / (count + 1)


def test_split_conformal_needs_no_normal_errors():
    random, inside, trials = np.random.default_rng(8), 0, 4000
    for _ in range(trials):
        *past, new = 1 + random.pareto(3.0, 60)
        interval = interval_of(1.0, past, PLAIN)
        inside += interval.low <= new <= interval.high
    assert inside / trials >= 0.885


def test_without_runs_it_is_the_spread_of_the_calibration_or_nothing():
    interval = interval_of(10.0, [1.0, 1.0], DRIFTING)
    assert interval.runs == 0
    assert 8.0 <= interval.low < 10.0 < interval.high <= 12.0
    assert "not yet checked by runs" in interval.said()
    assert interval_of(10.0, [], PLAIN) is None


def test_only_recent_runs_count():
    old, recent = [5.0] * 300, [1.0] * history.RECENT
    assert interval_of(1.0, old + recent, PLAIN) == Interval(1.0, 1.0, history.RECENT)


def past(ratio=1.0, **given):
    return PastRun("m", "h", overlap=False, predicted=1.0, measured=ratio, **given)


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
    interval = result.figures["interval"]
    assert interval["runs"] == 3
    assert 0 < interval["low"] < interval["high"] < math.inf
    assert json.loads(json.dumps(result.figures["record"])) == line
