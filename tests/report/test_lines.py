"""Single variables have no marks in the picture of a schedule; its lines are those of sweeps."""

import re
from dataclasses import replace

from ckio.actions.variables import Flow, Step, Variables
from ckio.analysis.lowering import lower
from ckio.planners.dp import hrevolve
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.report.pictures import PlotAxis, draw, storage
from ckio.report.pictures.lines import lines, whole
from ckio.report.render import render
from ckio.schedule import Schedule
from ckio.sim.engine import simulate

CHAIN = Chain(steps=8, advance=1.0, record=1.5, reverse=2.5, restart=30, tape=20, adjoint=20)
PLATFORM = Platform((Level(name="ram", capacity=90),), working_memory=20)
FLOW = Flow({"u", "m"}, {"u"}, {"u"})
VARIABLES = Variables({"u": 20, "m": 10}, Step(FLOW, record=FLOW), seed={"u"}, tape={"u"})


def of_variables() -> tuple[Schedule, Schedule]:
    """A schedule of whole checkpoints, and the same with single variables."""
    planned = hrevolve(CHAIN, PLATFORM)
    return planned, lower(planned, VARIABLES, platform=PLATFORM)


def test_sweeps_of_variables_are_those_of_whole_checkpoints() -> None:
    planned, lowered = of_variables()
    assert not whole(lowered.actions).any()
    of_whole, of_single = (
        [
            int(line)
            for line, op in zip(lines(it.actions), it.actions.op, strict=True)
            if op < 3  # that compute
        ]
        for it in (planned, lowered)
    )
    order = {line: number for number, line in enumerate(dict.fromkeys(of_whole))}
    assert [order[line] for line in of_whole] == of_single


def test_pictures_of_variables_have_spans_and_no_marks() -> None:
    planned, lowered = of_variables()
    chain = replace(CHAIN, variables=VARIABLES)
    timeline = simulate(lowered, PLATFORM)
    drawn = draw(timeline, chain, PLATFORM)
    assert "line mark" not in drawn
    assert "line mark" in draw(simulate(planned, PLATFORM), CHAIN, PLATFORM)
    text = render(lowered)
    assert "restart data" not in text
    assert "reverse" in text


def test_levels_hold_arrays_where_single_variables_are_stored() -> None:
    _, lowered = of_variables()
    timeline = simulate(lowered, PLATFORM)
    axis = PlotAxis(timeline.makespan)
    told = storage(timeline, lowered.chain, PLATFORM, axis).element()
    assert re.findall(r"\d+ (?:array|checkpoint)s?(?=<)", told)
    assert "checkpoint" not in told
