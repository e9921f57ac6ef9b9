"""Comparisons add up, and name the class of action that is to blame."""

import numpy as np
import pytest

from ckio.actions import Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.columns import Actions
from ckio.errors import BadInput
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.report import BETWEEN, compare, shown_rows, table, verdict
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap
from ckio.schedule.timeline import Timeline
from ckio.sim.engine import simulate

X0 = Key(Kind.RESTART, 0)
ACTIONS = Actions.of(
    [Write(X0, 1), Advance(0, 3), Record(3, 4), Reverse(3, 4), Read(X0, 1), Record(0, 1)]
)


def timeline(durations: list[float], *, gap: float = 0.0) -> Timeline:
    stop = np.cumsum(np.array(durations) + gap)
    nbytes = np.array([8, 0, 0, 0, 8, 0], np.int64)
    return Timeline(ACTIONS, stop - durations, stop, nbytes)


PREDICTED = timeline([0.5, 3.0, 1.25, 2.0, 0.25, 1.25])
MEASURED = timeline([0.5, 3.5, 1.25, 2.0, 4.25, 1.25], gap=0.0625)


def test_rows_add_up_to_the_makespans_and_count_actions_steps_and_bytes() -> None:
    report = compare(PREDICTED, MEASURED)
    assert sum(row.predicted for row in report.rows) == pytest.approx(report.predicted, rel=1e-12)
    assert sum(row.measured for row in report.rows) == pytest.approx(report.measured, rel=1e-12)
    assert report.measured == MEASURED.makespan
    rows = {row.name: row for row in report.rows}
    assert rows[BETWEEN].predicted == pytest.approx(0.0)
    assert rows[BETWEEN].measured == pytest.approx(6 * 0.0625)
    assert (rows["advance"].actions, rows["advance"].steps) == (1, 3)
    assert (rows["record"].actions, rows["record"].steps) == (2, 2)
    assert (rows["write level 1"].actions, rows["write level 1"].nbytes) == (1, 8)
    assert [row.name for row in compare(PREDICTED[:0], MEASURED[:0]).rows] == [BETWEEN]


def test_the_class_with_the_largest_difference_is_the_culprit() -> None:
    report = compare(PREDICTED, MEASURED, names=["ram", "nvme"])
    assert report.culprit.name == "read nvme"
    assert report.culprit.difference == 4.0
    assert report.share == pytest.approx(4.0 / (4.0 + 0.5 + 6 * 0.0625))
    assert report.error == pytest.approx((8.25 - 13.125) / 13.125)


def test_the_verdict_says_on_which_side_the_prediction_is() -> None:
    below, above = compare(PREDICTED, MEASURED), compare(MEASURED, PREDICTED)
    assert verdict(below) == (
        "the prediction is 37.1% below the measured makespan; 'read level 1' explains 82% of the"
        " differences"
    )
    assert verdict(above).startswith("the prediction is 59.1% above the measured makespan;")
    equal = "the prediction is as long as the measured makespan"
    assert verdict(compare(PREDICTED, PREDICTED)) == equal


def test_timelines_of_different_schedules_are_refused() -> None:
    with pytest.raises(BadInput, match="5 events predicted, 6 measured"):
        compare(PREDICTED[:5], MEASURED)
    other = Actions.of([*list(ACTIONS)[:4], Read(X0, 0), Record(0, 1)])
    moved = Timeline(other, MEASURED.start, MEASURED.stop, MEASURED.nbytes)
    with pytest.raises(BadInput, match=r"event #4 is Read\(x_0, level 1\) in one"):
        compare(PREDICTED, moved)


def test_timelines_that_agree_leave_nothing_to_explain() -> None:
    for same in (PREDICTED, PREDICTED[:0], timeline([0.0] * 6)):
        report = compare(same, same)
        assert (report.error, report.share, report.culprit.difference) == (0.0, 0.0, 0.0)
        assert report.predicted == report.measured == same.makespan


def test_lossy_levels_that_were_read_are_named() -> None:
    rounds = {"ram": "zfp(tolerance=0.5)", "nvme": "zfp(tolerance=0.1)"}
    report = compare(PREDICTED, MEASURED, names=["ram", "nvme"], lossy=rounds)
    assert report.lossy == {"nvme": "zfp(tolerance=0.1)"}
    assert report.rounding == (
        "the gradient is that of rounded states: LOSSY is level 'nvme', by zfp(tolerance=0.1)"
    )
    only_written = Actions.of([Write(X0, 0), Advance(0, 1)])
    ran = Timeline(only_written, np.zeros(2), np.ones(2), np.zeros(2, np.int64))
    assert compare(ran, ran, names=["ram"], lossy=rounds).rounding == ""
    assert compare(PREDICTED, MEASURED, names=["ram", "nvme"]).rounding == ""


def test_transfers_are_compared_by_level_and_waiting_in_all() -> None:
    slow = Level(name="nvme", backend="directory", write=Affine(4.0, 0.5), read=Affine(3.0))
    platform = Platform((Level(name="ram"), slow))
    chain = Chain(steps=4, advance=1.0, record=1.0, reverse=2.0, restart=2, tape=1, adjoint=1)
    schedule = Schedule(chain, ACTIONS)
    plain = simulate(schedule, platform)
    behind = simulate(schedule, platform, overlap=Overlap(1))
    report = compare(plain, behind, names=["ram", "nvme"])
    rows = {row.name: (row.actions, row.predicted, row.measured) for row in report.transfers}
    assert rows == {"write nvme": (1, 0.0, 5.0), "read nvme": (1, 0.0, 3.0)}
    assert report.waiting == (8.0, 3.0)
    assert (report.predicted, report.measured) == (15.0, 10.0)
    assert sum(row.measured for row in report.rows) == 10.0
    assert compare(plain, plain).transfers == ()


def test_discards_that_take_next_to_no_time_are_shown_with_the_reads() -> None:
    actions = Actions.of([Write(X0, 1), Read(X0, 1), Discard(X0, 1)])
    for seconds, names in (
        (0.01, ["write nvme", "read, discard nvme", BETWEEN, "total"]),
        (0.10, ["write nvme", "read nvme", "discard nvme", BETWEEN, "total"]),
    ):
        stop = np.array([5.0, 7.0, 7.0 + seconds])
        ran = Timeline(actions, np.array([0.0, 5.0, 7.0]), stop, np.array([8, 8, 0]))
        report = compare(ran, ran, names=["ram", "nvme"])
        assert [row.name for row in report.rows][:3] == ["write nvme", "read nvme", "discard nvme"]
        assert [row[0] for row in table(report)] == names
        assert sum(row.actions for row in shown_rows(report)) == 3
        assert sum(row.measured for row in shown_rows(report)) == pytest.approx(ran.makespan)
    only = Timeline(actions[2:], np.zeros(1), np.zeros(1), np.zeros(1, np.int64))
    assert table(compare(only, only))[0][0] == "discard level 1"
