"""Variables in the text form: what states are made of, what steps do to them, and named keys."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from ckio.actions import Key, Kind, Read, Write
from ckio.actions.variables import Flow, Step, Variables
from ckio.cli.entry import cli
from ckio.errors import BadInput
from ckio.platform.chain import Chain
from ckio.schedule import Schedule
from ckio.schedule import text as texts

from .test_texts import CHAIN, SHORT

RING = [
    Step(Flow({"zeta", "F 1"}, {"zeta", "F 0"}, {"zeta", "F 0"}), Flow({"zeta"}, {"zeta", "F 0"})),
    Step(Flow({"zeta"}), None, Flow({"zeta"}, {"zeta"}), {"zeta"}),
]
NAMED = replace(
    CHAIN,
    variables=Variables(
        {"zeta": 3, "F 0": 4, "F 1": 5, "use": 0}, [*RING, RING[1], RING[0]], ["zeta"], ["zeta"]
    ),
)
NAMED_LINES = """\
# variables {"nbytes": {"zeta": 3, "F 0": 4, "F 1": 5, "use": 0}, "seed": ["zeta"], \
"tape": ["zeta"]}
# step {"forward": {"use": ["F 1", "zeta"], "out": ["F 0", "zeta"], "kill": ["F 0", "zeta"]}, \
"record": {"use": ["zeta"], "out": ["F 0", "zeta"]}}
# step {"forward": {"use": ["zeta"]}, "reverse": {"use": ["zeta"], "out": ["zeta"]}, \
"restored": ["zeta"]}
# which [[0, 1], [1, 2], [0, 1]]
"""


def test_variables_and_what_each_step_does_to_them_are_written_under_a_newer_version() -> None:
    actions = [Write(Key(Kind.RESTART, 0, "zeta"), 0), Read(Key(Kind.RESTART, 0, "zeta"), 0)]
    schedule = Schedule(NAMED, actions, [{Key(Kind.TAPE, 1, "F 0")}])
    text = texts.dumps(schedule)
    assert text.startswith("# ckio schedule 6\n# actions 2\n# steps 4\n")
    assert text.endswith(
        f"# adjoint 13\n{NAMED_LINES}# stored 0 t 1 F%200\nwrite x 0 0 zeta\nread x 0 0 zeta\n"
    )
    assert texts.loads(text).schedule == schedule


def test_one_step_for_all_and_as_many_equal_ones_are_told_apart() -> None:
    step = Step(Flow())
    for steps in (step, [step] * 4):
        chain = replace(CHAIN, variables=Variables({}, steps))
        text = texts.dumps(Schedule(chain, []))
        assert ("# which [[0, 4]]\n" in text) is (steps is not step)
        assert texts.loads(text).schedule.chain == chain


name_sets = st.frozensets(st.sampled_from(["a", "b+c", "use:", "kill", "\u2003 %*"]))


@st.composite
def flows(draw: st.DrawFn, out: frozenset[str] = frozenset()) -> Flow:
    out |= draw(name_sets)
    return Flow(draw(name_sets), out, draw(name_sets) & out)


@st.composite
def steps(draw: st.DrawFn) -> Step:
    forward = draw(flows())
    record = draw(st.none() | flows(forward.out))
    return Step(forward, record, draw(flows()), draw(name_sets))


@st.composite
def named_chains(draw: st.DrawFn) -> Chain:
    kinds = draw(st.lists(steps(), min_size=1, max_size=3))
    each = draw(st.sampled_from(kinds) | st.lists(st.sampled_from(kinds), min_size=1, max_size=40))
    names = frozenset(["a", "b+c", "use:", "kill", "\u2003 %*", "z"])
    nbytes = {name: draw(st.integers(0, 2**40)) for name in draw(st.permutations(sorted(names)))}
    variables = Variables(nbytes, each, draw(name_sets), draw(name_sets))
    return replace(CHAIN, steps=4 if isinstance(each, Step) else len(each), variables=variables)


@given(named_chains())
def test_any_variables_come_back_equal_and_in_their_order(chain: Chain) -> None:
    read = texts.loads(texts.dumps(Schedule(chain, []))).schedule.chain
    assert read == chain
    assert chain.variables is not None
    assert read.variables is not None
    assert list(read.variables.nbytes) == list(chain.variables.nbytes)


WRONG = {
    '`# variables {"nbytes": {NAME: BYTES, ...}, "seed"': [
        *("# variables", "# variables {", "# variables 3", "# variables {} {}"),
        '# variables {"nbytes": {"psi": 3}}',  # there is one already
    ],
    '`# step {"forward": {"use": [NAME, ...], "out"': [
        *("# step", "# step []", '# step {"back": {}}', '# step {"forward": {"uses": ["zeta"]}}'),
        *('# step {"forward": {"use": "zeta"}}', '# step {"forward": 1}', '# step {"reverse": {}}'),
        *('# step {"forward": {"kill": ["zeta"]}}', '# step {"forward": {"use": [""]}}'),
        '# step {"forward": {}, "restored": 1}',
    ],
    "`# which [[NUMBER, COUNT], ...]`": [
        *("# which", "# which 0", "# which [0]", "# which [[0]]", "# which [[-1, 2]]"),
        *("# which [[0, 1.5]]", "# which [[0, true]]"),
    ],
}


def test_a_malformed_header_of_variables_is_refused_with_its_line() -> None:
    for expected, lines in WRONG.items():
        for line in lines:
            found = rf"^a\.txt, line 13: found {re.escape(repr(line))}; expected "
            with pytest.raises(BadInput, match=found + re.escape(expected)):
                texts.loads(SHORT + NAMED_LINES + line, source="a.txt")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "# which [[0, 1], [1, 2], [0, 1]]\n",
            "",
            "`# which` is missing: it says which of 2 each step is",
        ),
        ("[1, 2]", "[1, 3]", "`# which` describes 5 steps; the chain has 4"),
        (
            "[1, 2]",
            "[1, 99999999999999]",
            "`# which` describes 100000000000001 steps; the chain has 4",
        ),
        ("[1, 2]", "[7, 2]", "a `# step` is missing"),
        ('"zeta": 3, ', "", "Variables: nbytes does not say how large zeta is"),
        ('"zeta": 3', '"zeta": -3', "Variables: nbytes['zeta'] = -3; "),
        ('"zeta": 3', '"zeta": 3, "u\\n": 3', "Variables: nbytes: the name of a variable = "),
        ('"seed"', '"seeds"', ""),
        ('"seed": ["zeta"]', '"seed": "zeta"', "Variables: seed = 'zeta'"),
    ],
)
def test_headers_of_variables_that_do_not_fit_together_are_refused(
    old: str, new: str, message: str
) -> None:
    text = SHORT + NAMED_LINES
    assert text.count(old) == 1
    with pytest.raises(BadInput, match=rf"^a\.txt: {re.escape(message)}"):
        texts.loads(text.replace(old, new), source="a.txt")


BY_HAND = (
    SHORT.replace("steps 4", "steps 2")
    + """\
# variables {"nbytes": {"u": 5, "Q": 2}}
# step {"forward": {"use": ["u", "Q"], "out": ["u"], "kill": ["u"]}}
#| [[level]]
#| name = "ram"
#| capacity = 5
#| write.latency = 0.5
write x 0 0 u
advance 0 1
record 1 2
reverse 1 2
read x 0 0 u
discard x 0 0 u
record 0 1
reverse 0 1
"""
)


def test_one_written_by_hand_is_shown_and_simulated(tmp_path: Path) -> None:
    path = tmp_path / "plan.txt"
    path.write_text(BY_HAND)
    shown = CliRunner().invoke(cli, ["show", str(path)])
    assert shown.exit_code == 0, shown.output
    done = CliRunner().invoke(cli, ["simulate", str(path)])
    assert done.exit_code == 0, done.output
    assert "11.5" in done.output
    path.write_text(BY_HAND.replace("read x 0 0 u\n", "", 1))
    wrong = CliRunner().invoke(cli, ["simulate", str(path)])
    assert wrong.exit_code != 0
    assert "Record[0, 1): needs u as in x_0; it is as in x_2" in str(wrong.exception)
