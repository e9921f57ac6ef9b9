"""The picture in plain text: one that can be checked by eye, and rules for all the others."""

import re

import numpy as np
import pytest
from drawing import Case, legal_schedules
from hypothesis import given
from hypothesis import strategies as st

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.columns import Actions
from ckio.errors import BadInput
from ckio.report.render import LINES, render
from ckio.schedule.timeline import Timeline

from .drawing import halving, repeated

X0, X3, T3 = Key(Kind.RESTART, 0), Key(Kind.RESTART, 3), Key(Kind.TAPE, 3)

# Six steps on two levels: x_0 goes out to level 1 and later moves to level 0; the tape of step 3
# is stored for as long as it takes to reverse steps 5 and 4.
SMALL: list[Action] = [
    *(Write(X0, 1), Advance(0, 3), Write(X3, 0), Advance(3, 5), Record(5, 6), Reverse(5, 6)),
    *(Read(X3, 0), Discard(X3, 0), Record(3, 4), Write(T3, 0), Record(4, 5), Reverse(4, 5)),
    *(Read(T3, 0), Discard(T3, 0), Reverse(3, 4)),
    *(Read(X0, 1), Write(X0, 0), Discard(X0, 1), Advance(0, 2), Record(2, 3), Reverse(2, 3)),
    *(Read(X0, 0), Discard(X0, 0), Record(0, 2), Reverse(1, 2), Reverse(0, 1)),
]

PICTURE = """\
6 steps, 26 actions   --> advance   ==> record   <~~ reverse
0 1 restart data on level 0, 1   a tape on level 0   | as long as it is stored

   action  0     1     2     3     4     5     6
        0  1---------------->0---------->=====>
        5  |                 |           <~~~~~
        6  |                 0a===>=====>
       11  |                 <a~~~~<~~~~~
       15  1
       16  0---------->=====>
       20  |           <~~~~~
       21  0==========>
       24  <~~~~~<~~~~~"""


def lines_below_the_legend(picture: str) -> list[str]:
    return picture.split("\n\n", 1)[1].split("\n")


def test_a_small_schedule_looks_like_this() -> None:
    assert render(SMALL) == PICTURE


def test_a_timeline_is_labelled_in_seconds() -> None:
    start = np.arange(len(SMALL)) / 4
    timeline = Timeline(
        Actions.of(SMALL), start, start + 0.25, np.zeros(len(SMALL), dtype=np.int64)
    )
    expected = re.sub(
        r"^ *(\d+)  ", lambda row: f"{int(row[1]) / 4:9.4g}  ", PICTURE, flags=re.MULTILINE
    ).replace("   action  ", "  seconds  ")
    assert render(timeline) == expected
    assert render(iter(timeline)) == expected


def test_what_lay_on_a_level_from_the_start_is_drawn_from_the_start() -> None:
    actions = [Advance(0, 2), Read(X3, 1), Discard(X3, 1), Record(3, 4), Reverse(3, 4)]
    assert lines_below_the_legend(render(actions)) == [
        "   action  0     1     2     3     4",
        "        0  ----------->      |",
        "        1                    1====>",
        "        4                    <~~~~~",
    ]


def test_marks_do_not_hide_one_another() -> None:
    actions = [Write(X0, 0), Write(X0, 1), Advance(0, 1), Read(X0, 0), Write(X0, 2)]
    assert lines_below_the_legend(render(actions)) == [
        "   action  0     1",
        "        0  0",
        "        1  1---->",
        "        3  0",
        "        4  2",
    ]


def test_many_steps_share_columns_and_many_sweeps_share_lines() -> None:
    picture = render(halving(1000, levels=1))
    assert "one column is 15 steps" in picture
    assert "one line is 25 sweeps" in picture
    assert len(lines_below_the_legend(picture)) <= LINES + 1


def test_nothing_has_a_picture_too() -> None:
    assert render([]) == "no actions"


def test_a_picture_needs_some_width() -> None:
    with pytest.raises(BadInput, match="width = 39"):
        render(SMALL, width=39)


@given(legal_schedules(), st.integers(40, 120))
def test_every_legal_schedule_fits_its_width_and_every_action_is_in_its_picture(
    case: Case, width: int
) -> None:
    schedule, _ = case
    for line in render(schedule.actions, width=width).split("\n"):
        assert len(line) <= width
        assert line == line.rstrip()
    if len(schedule):
        rows = "\n".join(lines_below_the_legend(render(schedule.actions, width=120))[1:])
        assert all(mark_of(action) in rows for action in schedule.actions)


def mark_of(action: Action) -> str:
    match action:
        case Advance():
            return "-"
        case Record():
            return "="
        case Reverse():
            return "~"
        case Write(key, level) | Read(key, level):
            first = {Kind.RESTART: "0", Kind.TAPE: "a", Kind.ADJOINT: "A"}[key.kind]
            return chr(ord(first) + level)
        case _:
            return ""


def test_a_million_actions_are_drawn_at_once() -> None:
    picture = render(repeated(250_000))
    assert "250000 steps, 1000000 actions" in picture
    assert len(picture) < 10_000
