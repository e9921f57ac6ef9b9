"""The text forms of schedules and timelines: they come back equal, and say what is wrong."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drawing import Case, any_schedules, legal_schedules
from hypothesis import given
from hypothesis import strategies as st

from ckio.actions import Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.columns import ADVANCE, RECORD, REVERSE, WRITE, Actions
from ckio.errors import BadInput
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, seconds_of
from ckio.schedule import text as texts
from ckio.schedule.policy import Overlap
from ckio.schedule.timeline import Timeline
from ckio.sim.engine import simulate

CHAIN = Chain(steps=4, advance=0.1, record=1 / 3, reverse=5, restart=7, tape=11, adjoint=13)
PLATFORM = Platform(
    (Level(name="ram", capacity=21, read=Affine(per_byte=1e-9), options={"path": "ü\u2028\n"}),),
    working_memory=11,
)
X0 = Key(Kind.RESTART, 0)
SCHEDULE = Schedule(
    CHAIN,
    [Write(X0, 0), Advance(0, 3), Record(3, 4), Reverse(3, 4), Read(X0, 0), Discard(X0, 0)],
    [{Key(Kind.TAPE, 2), Key(Kind.RESTART, 2)}, {Key(Kind.ADJOINT, 3, "psi 0")}],
)


def timed(schedule: Schedule, platform: Platform) -> Timeline:
    stop = np.cumsum(seconds_of(schedule, platform))
    start = np.concatenate(([0.0], stop))[: len(stop)]
    nbytes = schedule.chain.nbytes_of(schedule.actions)
    return Timeline(schedule.actions, start, stop, nbytes)


TIMELINE = timed(SCHEDULE, PLATFORM)


# --- the native form, there and back


def test_a_schedule_is_written_an_action_a_line_under_its_headers() -> None:
    assert texts.dumps(SCHEDULE) == (
        "# ckio schedule 1\n"
        "# actions 6\n"
        "# steps 4\n"
        "# advance 0.1\n"
        "# record 0.3333333333333333\n"
        "# reverse 5.0\n"
        "# restart 7\n"
        "# tape 11\n"
        "# adjoint 13\n"
        "# stored 0 t 2\n"
        "# stored 0 x 2\n"
        "# stored 1 a 3 psi%200\n"
        "write x 0 0\n"
        "advance 0 3\n"
        "record 3 4\n"
        "reverse 3 4\n"
        "read x 0 0\n"
        "discard x 0 0\n"
    )


DIFFERING = Chain(
    steps=12,
    advance=[0.1] * 11 + [1 / 3],
    record=1,
    reverse=range(12),
    restart=[2**40, 7, *[3] * 10],
    tape=11,
    adjoint=13,
)


def test_costs_of_each_step_are_written_ten_to_a_line_under_a_newer_version() -> None:
    assert texts.dumps(Schedule(DIFFERING, [])) == (
        "# ckio schedule 2\n"
        "# actions 0\n"
        "# steps 12\n"
        "# advance per step\n"
        "#: 0.1 0.1 0.1 0.1 0.1 0.1 0.1 0.1 0.1 0.1\n"
        "#: 0.1 0.3333333333333333\n"
        "# record 1.0\n"
        "# reverse per step\n"
        "#: 0.0 1.0 2.0 3.0 4.0 5.0 6.0 7.0 8.0 9.0\n"
        "#: 10.0 11.0\n"
        "# restart per step\n"
        "#: 1099511627776 7 3 3 3 3 3 3 3 3\n"
        "#: 3 3 3\n"
        "# tape 11\n"
        "# adjoint 13\n"
    )
    assert texts.loads(texts.dumps(Schedule(DIFFERING, []))).schedule.chain == DIFFERING


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("#: 10.0 11.0", "#: 10.0 -1", r"a\.txt, line 10: .* `#: VALUE ...`, numbers >= 0, after"),
        ("#: 10.0 11.0", "#: 10.0 inf", r"a\.txt, line 10: .* expected `#: VALUE ...`, numbers"),
        ("#: 3 3 3", "#: 3 3 3.5", r"a\.txt, line 13: .* `#: VALUE ...`, whole numbers >= 0"),
        ("#: 3 3 3", "#: 3", r"a\.txt: Chain: restart has 11 values; the chain has 12 steps"),
        ("# steps 12", "#: 12", r"a\.txt, line 3: .* numbers >= 0, after `# COST per step`"),
        ("# tape 11", "# record per step", r"a\.txt, line 14: .*; expected one of the headers"),
        ("# tape 11", "# steps per step", r"a\.txt, line 14: .*; expected one of the headers"),
    ],
)
def test_wrong_costs_of_steps_are_refused(old: str, new: str, message: str) -> None:
    text = texts.dumps(Schedule(DIFFERING, [])).replace(old, new)
    with pytest.raises(BadInput, match=f"^{message}"):
        texts.loads(text, source="a.txt")


def test_a_timeline_has_times_and_bytes_before_each_action() -> None:
    lines = texts.dumps(SCHEDULE, None, TIMELINE).splitlines()
    assert lines[0] == "# ckio timeline 1"
    assert lines[12:15] == [
        "0.0 0.0 7 write x 0 0",
        "0.0 0.30000000000000004 0 advance 0 3",
        "0.30000000000000004 0.6333333333333333 0 record 3 4",
    ]


def test_the_platform_is_written_with_it_digest_first() -> None:
    lines = texts.dumps(SCHEDULE, PLATFORM).split("\n")
    assert f"# platform {PLATFORM.digest()}" in lines
    toml = [line for line in lines if line.startswith("#|")]
    assert "\n".join(line[3:] for line in toml) + "\n" == PLATFORM.dumps()
    whole = texts.Document(SCHEDULE, PLATFORM, TIMELINE)
    assert texts.loads(texts.dumps(SCHEDULE, PLATFORM, TIMELINE)) == whole


@given(any_schedules())
def test_any_schedule_comes_back_equal_legal_or_not(case: Case) -> None:
    assert texts.loads(texts.dumps(*case)) == texts.Document(*case)


@given(st.floats(0, 1e300), st.floats(0, 1e300), st.floats(0, 1e300), st.integers(0, 2**60))
def test_costs_and_times_come_back_to_the_last_bit(
    advance: float, start: float, length: float, nbytes: int
) -> None:
    chain = Chain(
        steps=4, advance=advance, record=length, reverse=start, restart=nbytes, tape=0, adjoint=1
    )
    timeline = Timeline(
        Actions.of([Advance(0, 4)]),
        np.array([start]),
        np.array([start + length]),
        np.array([nbytes]),
    )
    document = texts.loads(texts.dumps(Schedule(chain, timeline.actions), None, timeline))
    assert (document.schedule.chain, document.timeline) == (chain, timeline)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(NAMES, NAMES)
def test_names_of_any_characters_come_back(one: str, other: str) -> None:
    actions = [Write(Key(Kind.RESTART, 0, name), 0) for name in (one, other, "", one)]
    schedule = Schedule(CHAIN, actions, [{Key(Kind.TAPE, 1, other)}])
    assert texts.loads(texts.dumps(schedule)).schedule == schedule


OVERLAPPED = simulate(
    Schedule(CHAIN, [Write(X0, 0), Advance(0, 3), Discard(X0, 0)]),
    Platform((Level(name="disk", backend="directory", write=Affine(0.1)),)),
    overlap=Overlap(1),
)


def test_transfers_follow_the_events_of_a_timeline_under_a_newer_version() -> None:
    schedule = Schedule(CHAIN, OVERLAPPED.actions)
    lines = texts.dumps(schedule, None, OVERLAPPED).splitlines()
    assert lines[:3] == ["# ckio timeline 3", "# actions 3", "# transfers 2"]
    assert lines[-3:] == [
        "0.30000000000000004 0.30000000000000004 0 discard x 0 0",
        "transfer 0.0 0.1 7 write x 0 0",
        "transfer 0.30000000000000004 0.30000000000000004 0 discard x 0 0",
    ]
    assert texts.loads("\n".join(lines)) == texts.Document(schedule, None, OVERLAPPED)
    policy = texts.dumps(schedule, None, OVERLAPPED, overlap=Overlap(1)).splitlines()
    assert set(policy) - set(lines) == {"# overlap write_behind=1,read_ahead=0"}
    assert texts.loads("\n".join(policy)).schedule.overlap == Overlap(1)
    planned = texts.dumps(schedule, overlap=Overlap(1))
    assert planned.startswith("# ckio schedule 3\n")
    assert texts.loads(planned) == texts.Document(replace(schedule, overlap=Overlap(1)))
    assert texts.dumps(texts.loads(planned).schedule) == planned
    with pytest.raises(BadInput, match="2 transfers announced, 1 follow"):
        texts.loads("\n".join(lines[:-1]))


@given(legal_schedules(), st.integers(0, 3), st.integers(0, 3))
def test_any_timeline_with_transfers_comes_back_equal(case: Case, behind: int, ahead: int) -> None:
    timeline = simulate(*case, overlap=Overlap(behind, ahead))
    text = texts.dumps(*case, timeline, overlap=Overlap(behind, ahead))
    schedule, platform = case
    own = replace(schedule, overlap=Overlap(behind, ahead))
    assert texts.loads(text) == texts.Document(own, platform, timeline)


def test_a_malformed_transfer_is_refused_with_its_line() -> None:
    wrong = "advance 0 2", "write x 0 0", "1.0 0.5 7 write x 0 0", ""
    expected = {f"transfer 0.0 1.0 7 {wrong[0]}": "`transfer`, `START STOP NBYTES`"}
    expected |= {f"transfer {rest}".strip(): "`transfer`, `START STOP" for rest in wrong[1:]}
    expected |= {"# overlap 1": "`# overlap write_behind=N,read_ahead=N"}
    for line, form in expected.items():
        text = SHORT.replace("schedule", "timeline") + line
        with pytest.raises(BadInput, match=rf"^a\.txt, line 9: .* expected {form}"):
            texts.loads(text, source="a.txt")
        with pytest.raises(BadInput, match=r"expected (no transfer in a schedule|`# overlap)"):
            texts.loads(SHORT + line)


def test_the_timeline_of_a_run_that_stopped_comes_back_with_the_actions_it_timed() -> None:
    document = texts.loads(texts.dumps(SCHEDULE, PLATFORM, TIMELINE[:2]))
    assert document.timeline == TIMELINE[:2]
    assert document.schedule == Schedule(CHAIN, SCHEDULE.actions[:2], SCHEDULE.stored)


def test_what_has_no_text_is_not_written() -> None:
    with pytest.raises(BadInput, match="other actions than those of the schedule"):
        texts.dumps(Schedule(CHAIN, [Advance(0, 2)]), PLATFORM, TIMELINE)
    chain = Chain(steps=None, advance=1, record=2, reverse=3, restart=1, tape=2, adjoint=3)
    with pytest.raises(BadInput, match="steps is not known"):
        texts.dumps(Schedule(chain, []))


def test_a_file_is_read_line_by_line_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "plan.txt"
    with path.open("w", encoding="utf-8") as file:
        texts.dump(file, SCHEDULE, PLATFORM, TIMELINE)
    with path.open(encoding="utf-8") as file:
        document = texts.load(file, source=str(path))
    assert document == texts.Document(SCHEDULE, PLATFORM, TIMELINE)


# --- what people write


SHORT = """\
# ckio schedule 1
# steps 4
# advance 1
# record 2
# reverse 3
# restart 7
# tape 11
# adjoint 13
"""


def test_people_may_write_comments_empty_lines_and_no_count() -> None:
    text = SHORT + "## store all\n\nrecord  0 4\r\n## and back\nreverse 0 4"
    document = texts.loads(text)
    assert list(document.schedule.actions) == [Record(0, 4), Reverse(0, 4)]
    assert (document.platform, document.timeline) == (None, None)


def test_a_platform_may_come_without_its_digest_but_not_with_another() -> None:
    text = SHORT + '#| [[level]]\n#| name = "ram"\n#| capacity = 3\n'
    assert texts.loads(text).platform == Platform((Level(name="ram", capacity=3),))
    with pytest.raises(BadInput, match=r"a\.txt, its platform: .*'ram': capacity = -1"):
        texts.loads(text.replace("= 3", "= -1"), source="a.txt")
    edited = texts.dumps(SCHEDULE, PLATFORM).replace("capacity = 21", "capacity = 22")
    with pytest.raises(BadInput, match=f"a.txt: .* digest .*{PLATFORM.digest()}"):
        texts.loads(edited, source="a.txt")


def test_a_text_that_was_cut_off_is_refused() -> None:
    text = texts.dumps(SCHEDULE).removesuffix("discard x 0 0\n")
    with pytest.raises(BadInput, match=r"a\.txt: 6 actions announced, 5 follow; the file is cut"):
        texts.loads(text, source="a.txt")


SPAN = "expected `advance BEGIN END`, whole numbers, 0 <= BEGIN < END"
ACCESS = r"expected `write KIND STEP LEVEL \[NAME\]`, KIND one of x, t, a"
HEADER = "expected one of the headers actions, transfers, steps, .*, or a comment after `##`"
STORED = r"expected `# stored LEVEL KIND STEP \[NAME\]`, KIND one of x, t, a"
MALFORMED = {
    "forward 0 2": "expected one of advance, record, reverse, write, read, discard",
    "Advance 0 2": "expected one of advance",
    "advance 2": SPAN,
    "advance 2 2": SPAN,
    "advance 3 2": SPAN,
    "advance -1 2": SPAN,
    "advance 0 2 3": SPAN,
    "advance 0 2.0": SPAN,
    "advance 0 two": SPAN,
    f"advance 0 {2**63}": SPAN,
    "write x 0": ACCESS,
    "write y 0 0": ACCESS,
    "write 0 0 x": ACCESS,
    "write x -1 0": ACCESS,
    "write x 0 -1": ACCESS,
    "write x 0 1.5": ACCESS,
    "write x 0 0 u v": ACCESS,
    f"write x 0 {2**15}": ACCESS,
    f"write x {2**63} 0": ACCESS,
    "write x 0 0 %ff": ACCESS,
    "# advanced 1": HEADER,
    "# stepps 4": HEADER,
    "#": HEADER,
    "#record 0 4": HEADER,
    "# stored 0 x 1 u v": STORED,
    "# stored x 1 0": STORED,
    "# stored 0 y 1": STORED,
    "# stored -1 x 1": STORED,
    "# stored 0 x -1": STORED,
    "# actions many": "expected `# actions` once, with a whole number >= 0",
    "# advance 1": "expected `# advance` once, with a number >= 0",
}


def test_a_malformed_line_is_refused_with_its_number_and_what_is_expected() -> None:
    for line, expected in MALFORMED.items():
        text, found = f"{SHORT}record 0 4\n{line}\nreverse 0 4\n", re.escape(repr(line))
        with pytest.raises(BadInput, match=rf"^plan\.txt, line 10: found {found}; {expected}"):
            texts.loads(text, source="plan.txt")


WRONG_NUMBERS = {
    "# steps 4": ["0", "4.5", "None"],
    "# advance 1": ["nan"],
    "# record 2": ["inf"],
    "# reverse 3": ["-3"],
    "# restart 7": ["-7"],
    "# tape 11": ["1.5"],
}


def test_a_wrong_number_in_a_header_is_refused_with_its_line() -> None:
    for header, numbers in WRONG_NUMBERS.items():
        for wrong in (f"{header.rpartition(' ')[0]} {number}" for number in numbers):
            text = SHORT.replace(header, wrong)
            line = 1 + text.splitlines().index(wrong)
            with pytest.raises(BadInput, match=f"^a.txt, line {line}: found '{wrong}'; expected "):
                texts.loads(text, source="a.txt")


def test_a_header_that_is_missing_is_named() -> None:
    for header in SHORT.splitlines()[1:]:
        with pytest.raises(BadInput, match=f"^a.txt: .*missing: `{header.rpartition(' ')[0]}`$"):
            texts.loads(SHORT.replace(header + "\n", ""), source="a.txt")


def test_a_text_of_another_kind_or_of_a_newer_version_is_refused_at_its_first_line() -> None:
    for first in ("", "advance 0 2", "# ckio plan 1", "# ckio schedule one", "5"):
        expected = "expected `# ckio schedule 7` or `# ckio timeline 7`"
        with pytest.raises(BadInput, match=f"^a.txt, line 1: found '{first}'; {expected}"):
            texts.loads(first, source="a.txt")
    for kind in ("schedule", "timeline"):
        newer = SHORT.replace("schedule 1", f"{kind} 8")
        with pytest.raises(BadInput, match=f"line 1: found '# ckio {kind} 8'; expected version 7"):
            texts.loads(newer)
        with pytest.raises(BadInput, match=r"line 1: found '# ckio .* expected version 7"):
            texts.loads(newer.replace(f"{kind} 7", f"{kind} {'7' * 5000}"))


MALFORMED_EVENTS = [
    *("advance 0 2", "0.0 advance 0 2", "0.0 1.0 advance 0 2", "1.0 0.5 0 advance 0 2"),
    *("-1.0 0.5 0 advance 0 2", "nan nan 0 advance 0 2", "0.0 inf 0 advance 0 2"),
    *("0.0 1.0 -1 advance 0 2", "0.0 1.0 0.5 advance 0 2", "0.0 1.0 0 advance 0", "0.0 1.0 0"),
]


def test_a_malformed_event_is_refused_with_its_line() -> None:
    for line in MALFORMED_EVENTS:
        text = SHORT.replace("schedule", "timeline") + line
        with pytest.raises(BadInput, match=r"^a\.txt, line 9: .* `START STOP NBYTES`"):
            texts.loads(text, source="a.txt")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.txt"
    path.write_bytes(SHORT.encode() + b"advance 0 2\n\xff\xfe\n")
    with path.open(encoding="utf-8") as file, pytest.raises(BadInput, match=r"a\.txt: not text"):
        texts.load(file, source="a.txt")


def test_a_hundred_thousand_actions_come_back_equal() -> None:
    steps = 25_000
    begin = np.repeat(np.arange(steps), 4)
    op = np.tile(np.array([WRITE, ADVANCE, RECORD, REVERSE], np.uint8), steps)
    actions = Actions(op=op, begin=begin, end=np.where(op == WRITE, 0, begin + 1))
    schedule = Schedule(CHAIN.with_steps(steps), actions)
    assert texts.loads(texts.dumps(schedule)).schedule == schedule
