"""Discards put where they belong, against planners that write their own."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from ckio.actions import Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.columns import DISCARD
from ckio.planners.base import Planner
from ckio.planners.binomial import revolve
from ckio.planners.hrevolve import hrevolve
from ckio.planners.stored.discards import with_discards
from ckio.planners.trivial import periodic, store_all
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule

from .cases import chain, chains, platforms


@pytest.mark.parametrize("planner", [hrevolve, revolve, periodic, store_all])
@settings(max_examples=40, deadline=None)
@given(chains(), platforms())
def test_they_come_where_planners_put_them(
    planner: Planner, chain: Chain, platform: Platform
) -> None:
    schedule = planner(chain, platform)
    actions = schedule.actions
    without = replace(schedule, actions=actions.take(actions.op != DISCARD))
    assert with_discards(without) == schedule


def test_what_is_stored_and_not_read_goes_first() -> None:
    x_1, x_2, t_0 = Key(Kind.RESTART, 1), Key(Kind.RESTART, 2), Key(Kind.TAPE, 0)
    actions = [
        Advance(0, 1),
        Write(x_1, 0),
        Record(1, 2),
        Reverse(1, 2),
        Read(x_1, 0),
        Read(t_0, 1),
        Reverse(0, 1),
    ]
    schedule = with_discards(Schedule(chain(2), actions, [[x_1, x_2], [t_0]]))
    assert list(schedule.actions) == [
        Discard(x_1, 0),
        Discard(x_2, 0),
        *actions[:5],
        Discard(x_1, 0),
        actions[5],
        Discard(t_0, 1),
        actions[6],
    ]
