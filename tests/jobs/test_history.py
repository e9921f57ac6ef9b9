"""What the history says of earlier runs; its file is checked when it is read."""

import json
import os
from dataclasses import asdict, replace

import pytest
from cli.commands import answer

import ckio
from ckio import Chain, Level, Platform
from ckio.jobs import history
from ckio.jobs.history import PastRun
from ckio.jobs.result import verdict
from ckio.planners import hrevolve
from ckio.schedule.text import dumps


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "state" / "history.jsonl"
    monkeypatch.setenv("CKIO_HISTORY", str(path))
    return path


def add(ratio=1.0, model="m", *, overlap=False):
    history.add(model, overlap=overlap, predicted=2.0, measured=2.0 * ratio)


def test_the_last_runs_of_the_kind_are_told_and_no_others(file):
    others = {"model": "n"}, {"overlap": True}
    ratios = [5.0] * 3 + [1.0 + k / 100 for k in (3, 1, 4, 2, 5, 9, 0, 6, 8, 7, 11, 10)]
    for ratio in ratios:
        for other in others:
            add(9.0, **other)
        add(ratio)
        elsewhere = PastRun("m", "elsewhere", overlap=False, predicted=1.0, measured=9.0)
        with file.open("a") as stream:
            stream.write(json.dumps(asdict(elsewhere)) + "\n")
    assert history.earlier("m grid=8", overlap=False) == (
        "the last 12 runs of this kind took between 1.00 and 1.11 of the prediction"
    )


def test_of_fewer_than_three_runs_nothing_is_said(file):
    assert history.earlier("m", overlap=False) == ""
    for count in (1, 2, 3):
        add(1.25)
        found = history.earlier("m", overlap=False)
        assert found == (history.text([1.25] * 3) if count == 3 else "")


def test_a_line_that_was_cut_off_or_is_no_record_is_skipped(file):
    add()
    for line in ("", "no json", "[1, 2]", '{"model": "m"}', '{"model": "m", "host'):
        with file.open("a") as stream:
            stream.write(line + "\n")
    add(2.0)
    assert [run.measured for run in history.read()] == [2.0, 4.0]


def test_a_long_history_begins_anew_and_keeps_the_old_file(file):
    file.parent.mkdir()
    file.write_text("x" * 2_000_000)
    add()
    assert len(history.read()) == 1
    assert file.with_name("history.jsonl.1").stat().st_size == 2_000_000


def test_a_history_that_cannot_be_written_fails_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for name in (tmp_path, tmp_path / "file" / "below"):
        monkeypatch.setenv("CKIO_HISTORY", str(name))
        add()
        assert history.read() == []


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
    ratios = [run.measured / run.predicted for run in runs[:3]]
    assert result.figures["earlier"] == history.text(ratios)
    assert "the last 3 runs of this kind took between" in verdict(result)


def test_simulate_tells_the_earlier_runs_of_the_model_with_these_costs(file, tmp_path):
    ours = Chain(steps=None, advance=1, record=1, reverse=2, restart=8, tape=8, adjoint=8)
    models = {"other": replace(ours, advance=3.0), "m grid=8": ours}
    platform = Platform((Level(name="ram"),), models=models)
    chain = ours.with_steps(4)
    (tmp_path / "plan.txt").write_text(dumps(hrevolve(chain, platform), platform))
    assert "earlier" not in answer("simulate", "plan.txt", at=tmp_path)
    for ratio in (1.0, 1.5, 1.25):
        add(ratio)
        add(9.0, model="other")
    found = answer("simulate", "plan.txt", at=tmp_path)
    assert found["earlier"] == history.text([1.0, 1.5, 1.25])
