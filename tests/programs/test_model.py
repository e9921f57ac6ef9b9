"""A program is a model: every schedule, level, simulator and recovery of ckio takes it."""

import json
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from logistic import Logistic

from ckio.actions import Field, Key, Kind
from ckio.backends.directory import Directory
from ckio.backends.ram import Ram
from ckio.errors import BadInput, RunFailed, UnsupportedKind
from ckio.model import sizes_of
from ckio.model.gradient import check_gradient
from ckio.planners.binomial import revolve
from ckio.planners.dp import hrevolve
from ckio.planners.fastest import auto
from ckio.planners.literature import disk_revolve, multistage
from ckio.planners.midpoint import Bisection, bisection
from ckio.planners.trivial import recompute_all, store_all
from ckio.planners.unknown import Online
from ckio.platform import Affine, Level, Platform
from ckio.programs.interface import digests, metered, report_tape, vjp
from ckio.programs.model import as_chain
from ckio.runner import run
from ckio.runner.unknown import run_to_end
from ckio.schedule import makespan
from ckio.sim.engine import simulate

X = (np.array([0.1, 0.2]), 3.1, 100)
BAR = np.array([1.0, -2.0])
WANTED = vjp(Logistic(), X, BAR)

PLATFORM = Platform(
    levels=(
        Level(name="memory", capacity=400),
        Level(name="files", capacity=4000, write=Affine(1e-3), read=Affine(1e-3)),
    )
)

PLANNERS = [bisection, revolve, hrevolve, disk_revolve, multistage, recompute_all, store_all, auto]


def fresh(base: int = 7) -> Any:
    return as_chain(Logistic(), X, base, ybar=BAR)


def check(model: Any) -> None:
    assert np.array_equal(model.result, WANTED[0])
    for bar, wanted in zip(model.xbar, WANTED[1], strict=True):
        assert np.array_equal(bar, wanted)
    assert np.array_equal(model.gradient["x.0"], WANTED[1][0])
    assert model.functional == np.sum(BAR * WANTED[0])


@pytest.mark.parametrize("planner", PLANNERS, ids=lambda planner: planner.__name__)
def test_any_schedule_gives_the_gradient_to_the_last_bit(planner: Any, tmp_path: Any) -> None:
    chain = fresh().measure()
    assert chain.steps == 15
    schedule = planner(chain, PLATFORM)
    model, backends = fresh(), [Ram(), Directory(tmp_path / "files")]
    timeline = run(schedule, PLATFORM, model, backends)
    check(model)
    assert len(timeline) == len(schedule.actions)
    assert simulate(schedule, PLATFORM).makespan == pytest.approx(makespan(schedule, PLATFORM))
    backends[1].close()


@pytest.mark.parametrize("rule", [Bisection, Online])
def test_with_no_count_before(rule: Any) -> None:
    model = fresh()
    chain = fresh().measure().with_steps(1)
    schedule, _ = run_to_end(rule(chain, PLATFORM), model, [Ram(), Ram()])
    check(model)
    again = fresh()
    run(schedule, PLATFORM, again, [Ram(), Ram()])
    check(again)


def test_tapes_of_several_steps_are_taken_back_in_any_pieces() -> None:
    model = fresh()
    model.measure()
    with metered() as meter:
        model.record(0, 15)
        model.reverse(11, 15)
        model.reverse(10, 11)
        model.reverse(0, 10)
    check(model)
    assert meter.ticks > 100


def test_the_taylor_test_passes() -> None:
    def early() -> Any:
        return as_chain(Logistic(), (*X[:2], 20), 7, ybar=BAR)

    verdicts = []
    for make in (early, fresh):
        model = make()
        steps = model.measure().steps
        model.record(0, steps)
        model.reverse(0, steps)
        check = check_gradient(make, None, model.gradient)
        verdicts.append((check.verdict, {name: c.verdict for name, c in check.controls.items()}))
    # After 100 steps, x has forgotten its start: J changes by 1e-10 of itself.
    late = ("inconclusive", {"x.0": "inconclusive", "x.1": "verified"})
    assert verdicts == [("verified", {}), late]


def test_the_end_may_be_where_a_step_ends() -> None:
    for base in (10, 25, 100):
        model = fresh(base)
        chain = model.measure()
        assert chain.steps == 100 // base == model.steps
        run(hrevolve(chain, PLATFORM), PLATFORM, model, [Ram(), Ram()])
        check(model)


def test_moves_that_are_in_no_legal_schedule() -> None:
    model = fresh()
    with pytest.raises(RunFailed, match="no tape"):
        model.reverse(0, 1)
    with pytest.raises(RunFailed, match="y is not known"):
        _ = model.result
    with pytest.raises(BadInput, match="base = 0"):
        as_chain(Logistic(), X, 0)


def test_a_read_that_fails_leaves_the_model_as_it_was() -> None:
    model, key = fresh(), Key(Kind.RESTART, 3)
    model.advance(0, 3)
    layout, before = model.layout(key), [bytes(view) for view in model.dump(key)]
    with suppress(OSError), model.load(Key(Kind.RESTART, 0), layout) as buffers:
        buffers[0][:] = bytes(len(buffers[0]))
        raise OSError
    assert [bytes(view) for view in model.dump(key)] == before
    assert model.advance(3, 20) == 15
    assert np.array_equal(model.result, WANTED[0])


def test_what_cannot_be_stored() -> None:
    model = fresh()
    for key in (Key(Kind.TAPE, 0), Key(Kind.RESTART, 0, "u")):
        with pytest.raises(UnsupportedKind):
            model.layout(key)
    assert sizes_of(model)["tape"] == 0
    with pytest.raises(BadInput, match="not stored by a program"):
        model.load(Key(Kind.RESTART, 0), (Field("u", "<f8", (3,)),))


def test_checkpoints_have_names_and_say_what_they_are() -> None:
    model = fresh()
    key = Key(Kind.RESTART, 0)
    layout = model.layout(key)
    assert [(field.name, field.shape) for field in layout[1:]] == [("x", (2,))]
    text = json.loads(bytes(model.dump(key)[0]))
    assert text["names"] == ["x"]


def test_what_is_given_stays_as_it_is() -> None:
    u = np.array([0.1, 0.2])
    model = as_chain(Logistic(), (u, 3.1, 100), 7, ybar=BAR)
    model.control["x.0"][...] += 0.05
    assert u.tolist() == [0.1, 0.2]
    model.measure()
    assert not np.array_equal(model.result, WANTED[0])


def test_the_chain_of_a_measured_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step takes one second by this clock, and the last of 15 has 2 ticks in place of 7."""
    seconds = iter(range(1000))
    monkeypatch.setattr("ckio.programs.model.time.perf_counter", lambda: float(next(seconds)))
    chain = fresh(7).measure()
    assert chain.steps == 15
    assert chain.advance == 15 * 7 / 100
    assert chain.reverse == 1.0


def test_a_state_that_differs_on_a_tape_is_described() -> None:
    """The message names at most eight of the variables."""
    with metered() as meter:
        meter.compare = digests(({}, {"values": {f"v{n}": n for n in range(10)}}))
        with pytest.raises(
            RunFailed, match="reproducible: v1, v2, v3, v4, v5, v6, v7, v8 differed"
        ):
            report_tape(0, 0, lambda: ({}, {"values": {"v0": 0}}))
