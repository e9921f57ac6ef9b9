"""The best of all planners: it is, and it says why."""

import logging
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings

from ckio.chain import Chain
from ckio.errors import BadInput, NoSchedule
from ckio.planners import compiled
from ckio.planners.auto import auto
from ckio.planners.binomial import revolve
from ckio.planners.hrevolve import hrevolve
from ckio.planners.mixed import levels as mixed_levels
from ckio.planners.multistage import multistage
from ckio.planners.twolevel import two_level
from ckio.platforms import Platform
from ckio.replay import validate
from ckio.schedule import makespan

from .cases import PLANNERS, chain, chains, platform, platforms
from .oracle import least_makespan


@settings(max_examples=25, deadline=None)
@given(chains(), platforms())
def test_no_planner_is_faster(chain: Chain, platform: Platform) -> None:
    best = makespan(auto(chain, platform), platform)
    for planner in PLANNERS.values():
        try:
            assert best <= makespan(planner(chain, platform), platform) + 1e-9
        except NoSchedule:
            continue


def test_tapes_beside_restart_data_are_found() -> None:
    """RAM 20 and NVMe 200 of Maddison's setting: a third less than restart data alone."""
    machine = Platform.from_hrevolve("2\n 20 0 0\n 200 1 1")
    costs = Chain(steps=1001, advance=1, record=1, reverse=0, restart=1, tape=1, adjoint=1)
    schedule = auto(costs, machine)
    assert makespan(schedule, machine) == 2070
    assert re.match(
        r"mixed: 2070 s, 31\.4% less than hrevolve, the next of the \d+ planners that apply",
        schedule.note,
    )


def test_of_equally_good_planners_it_takes_the_plainest() -> None:
    schedule = auto(chain(5, record=2), platform((3, 2, 3), tapes=5))
    assert schedule.note.startswith("store-all: 10 s, and none of the ")


def test_a_planner_that_does_not_apply_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    machine = platform((2, 1, 1))
    with caplog.at_level(logging.INFO, logger="ckio"):
        schedule = auto(chain(9, record=1), machine)
    assert "auto: store-all does not apply" in caplog.text
    assert validate(schedule, machine).adjoint == 0
    assert makespan(schedule, machine) == least_makespan(chain(9, record=1), machine, tapes=True)


def test_where_none_applies_it_says_what_is_needed() -> None:
    with pytest.raises(NoSchedule, match=r"needs .*: give a level more capacity"):
        auto(chain(7), platform((0, 2, 3)))


@pytest.mark.parametrize(("slots", "far"), [(20, 5), (None, 10**16)])
def test_where_hrevolve_does_not_apply_others_are_asked_however_long_the_chain(
    monkeypatch: pytest.MonkeyPatch, slots: int | None, far: float
) -> None:
    for module in (compiled, mixed_levels):
        monkeypatch.setattr(module, "available", lambda: False)
    costs, machine = chain(30_000, record=1), platform((5, 1, 1), (slots, far, far))
    with pytest.raises(BadInput):
        hrevolve(costs, machine)
    best = makespan(auto(costs, machine), machine)
    for planner in (revolve, multistage, two_level):
        assert best <= makespan(planner(costs, machine), machine)


def test_steps_that_differ_are_planned_by_those_that_can() -> None:
    machine, costs = platform((6, 1, 1)), replace(chain(6, record=1), restart=[1, 2, 3, 1, 1, 1])
    schedule = auto(costs, machine)
    assert makespan(schedule, machine) == least_makespan(costs, machine, tapes=True)
