"""Sizes that files claim are bounded before anything is allocated; only bad input comes of them."""

import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from cli.commands import CKIO
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ckio.backends.files import Files
from ckio.backends.forms import form_from
from ckio.backends.hdf5 import Hdf5
from ckio.backends.hdf5.heads import PAGE, ROW, Group, Start, load
from ckio.errors import BadInput, CkioError, CorruptCheckpoint
from ckio.planners import compact
from ckio.planners.dp import hrevolve
from ckio.platform import Level, Platform, costs
from ckio.platform.chain import Chain
from ckio.platform.toml import MOST_LEVELS, MOST_TEXT
from ckio.report.render import render
from ckio.schedule import text as texts
from ckio.schedule.replay import validate
from ckio.schedule.text import notation
from ckio.sim.engine import simulate
from ckio.sim.failures import Failure, parse_trace
from ckio.testing import FLOW, put, x

CHAIN = Chain(steps=30, advance=1, record=1, reverse=1, restart=1000, tape=1000, adjoint=1000)
PLATFORM = Platform(
    (
        Level(name="ram", capacity=100_000),
        Level(name="disk", backend="directory", options={"path": "disk"}),
    ),
    10_000,
)
TOML = PLATFORM.dumps()
TEXT = texts.dumps(hrevolve(CHAIN, PLATFORM), PLATFORM)
VARIED = TEXT.replace("# platform", "# variable a 8\n# step 0 forward use: a out: a\n# platform")

ROOM = 100 << 20
"""Bytes that reading a text of a few kilobytes may take."""

NO_MORE = 2 << 30
"""Bytes of address space in which a command has to say what is wrong with a small file."""


@contextmanager
def small() -> Iterator[None]:
    """Fail where more than `ROOM` is allocated within."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < ROOM
    finally:
        tracemalloc.stop()


def changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new, 1)


def read(text: str) -> None:
    """All that is done with a schedule that somebody hands over."""
    document = texts.loads(text, source="FILE")
    render(document.schedule.actions)
    validate(document.schedule, document.platform or PLATFORM)
    simulate(document.schedule, document.platform or PLATFORM)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (changed(TEXT, "# steps 30", "# steps 2147483647"), "needs the adjoint at 30"),
        (changed(TEXT, "# steps 30", f"# steps {9**4000}"), "line 3: .*whole number >= 1"),
        (changed(TEXT, "# restart 1000", f"# restart {9**4000}"), "line 7: .*whole number >= 0"),
        (changed(VARIED, "# steps 30", "# steps 2147483647"), "2000000 steps with variables"),
        (
            changed(
                changed(VARIED, "# steps 30", "# steps 2147483647"),
                "# platform",
                "# which 0*2147483647\n# platform",
            ),
            "2000000 steps with variables",
        ),
        (
            TEXT + "".join(f"discard x 0 0 n{number}\n" for number in range(5000)),
            "5000 variables are named",
        ),
        (TEXT + "##" + "a" * (1 << 20) + "\n", r"line \d+: .*at most 1048576 characters"),
        (changed(TEXT, "#| format = 1", f"#| {'a.' * 20_000}a = 1"), "at most 8 names with dots"),
    ],
    ids=["steps", "digits", "bytes", "variables", "which", "names", "line", "key"],
)
def test_a_schedule_claims_more_than_it_has(text: str, told: str) -> None:
    with small(), pytest.raises(CkioError, match=told):
        read(text)


def test_a_long_chain_of_few_actions_costs_no_memory() -> None:
    long = Chain(steps=2**31 - 1, advance=1, record=1, reverse=1, restart=8, tape=0, adjoint=8)
    text = texts.dumps(hrevolve(long.with_steps(2), PLATFORM), PLATFORM)
    text = text.replace("# steps 2\n", f"# steps {long.steps}\n")
    lines = [line for line in text.splitlines() if line.startswith("#") and "actions" not in line]
    spans = [f"record 0 {long.steps}", f"reverse 0 {long.steps}"]
    with small():
        read("\n".join([*lines, *spans, ""]))


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (TOML + "a" + ".a" * 20_000 + " = 1\n", r"FILE, line \d+: 'a\.a.*8 names with dots"),
        ("".join(f"a{n}.b.c.d.e.f = 1\n" for n in range(30_000)), "20000 names and numbers"),
        ("level = " + "[" * 100_000, "not TOML"),
        ("level = " + "{a = " * 40 + "1" + "}" * 40, "more than 8 deep"),
        ("a" * 2000 + " = 1", "1024 characters"),
        (
            "".join(f'[[level]]\nname = "l{n}"\n' for n in range(3000)),
            f"3000 levels; a platform has {MOST_LEVELS} at most",
        ),
        (changed(TOML, "100000", "9" * 5000), "not TOML: Exceeds the limit"),
        (changed(TOML, "100000", "9" * 4000), "numbers are below 2"),
        (changed(TOML, "100000", "0x" + "f" * 50_000), "numbers are below 2"),
        ("#" * (MOST_TEXT + 1), f"{MOST_TEXT} at most"),
        ("100000\n" + "10 1 1\n" * 100_000, "line 1: 100000 levels"),
    ],
)
def test_a_platform_claims_more_than_it_has(text: str, told: str) -> None:
    with small(), pytest.raises(BadInput, match=told) as error:
        Platform.loads(text, source="FILE")
    assert len(str(error.value)) < 400


def test_a_platform_of_the_most_levels_is_read() -> None:
    levels = tuple(Level(name=f"l{number}", capacity=number) for number in range(MOST_LEVELS))
    assert Platform.loads(Platform(levels).dumps()) == Platform(levels)


@pytest.mark.parametrize(
    "text",
    [
        f"Sequence: [F_{'9' * 5000}]",
        f"Sequence: [W^{'9' * 11}_0]",
        "Sequence: [F_0->999999999999999999, B_5]",
        "[" * 1_000_000,
        "Sequence: [" * 200_000,
    ],
)
def test_a_sequence_claims_more_than_it_has(text: str) -> None:
    with small(), pytest.raises(BadInput, match=r"^FILE") as error:
        notation.loads(text, _endless(), source="FILE")
    assert len(str(error.value)) < 400


def _endless() -> Chain:
    return Chain(steps=None, advance=1, record=1, reverse=1, restart=1000, tape=1000, adjoint=1000)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Sequence: [Revolve(2147483646, 3)]", "more than 1000000"),
        ("Sequence: (2147483646; 10)", "more than 1000000"),
        ("Sequence: [WD_0, Revolve(99999, 3)" + ", RD_0, Revolve(99999, 3)" * 5000 + "]", "in all"),
        ("Sequence: [" * 200_000, "no compact schedule"),
    ],
)
def test_a_compact_sequence_claims_more_than_it_has(text: str, told: str) -> None:
    with small(), pytest.raises(BadInput, match=f"^FILE: .*{told}"):
        compact.loads(text, _endless(), PLATFORM, source="FILE")


def test_a_trace_of_failures_is_quoted_in_part() -> None:
    kinds = {"process": Failure(survive=frozenset())}
    for text in ("x" * 100_000, f"1 {'x' * 100_000}"):
        with pytest.raises(BadInput, match="line 1") as error:
            parse_trace(text, kinds, float)
        assert len(str(error.value)) < 200


def test_a_dtype_of_many_fields_is_not_read() -> None:
    text = f'[["a", "{",".join(["i4"] * 10_000)}", [1], ""]]'
    with pytest.raises(CorruptCheckpoint):
        form_from(text.encode())


def test_an_archive_of_holes_claims_slots_without_end(tmp_path: Path) -> None:
    path, files = tmp_path / "archive.h5", Files()
    level = Hdf5(path)
    put(level, x(0), FLOW)
    level.close()
    fd = files.open(path)
    start = load(files, fd, str(path))
    ((begin, end),) = start.spans()
    slots = 1 << 30
    data = bytearray(end - begin)
    files.read(fd, [memoryview(data)], begin)
    head = bytes(data[: Group.length(bytes(data[:PAGE]))])
    group = Group.unpack(head, begin, end, start.run)
    rows = end
    payload = -(-(rows + slots * ROW.itemsize) // PAGE) * PAGE
    last = payload + slots * group.stride
    grown = Group(group.name, group.kind, group.form, slots, rows, payload, last, last)
    page, leaf = start.pages[:PAGE], start.pages[PAGE : 2 * PAGE]
    made = Start.sealed(
        page, leaf, fixed=start.fixed, begin=begin, end=last, groups=(begin,), run=start.run
    )
    files.write(fd, [memoryview(grown.pack())], begin)
    for at in (0, len(made.pages)):
        files.write(fd, [memoryview(made.pages)], at)
    files.cut(fd, last)
    files.close(fd)
    assert path.stat().st_size > 1 << 36
    assert path.stat().st_blocks * 512 < 1 << 20
    with small():
        (damage,) = Hdf5.contents(path)
    assert damage.what == "the head of a group is damaged"  # type: ignore[union-attr]


# Texts that are changed at random

HUGE = [
    "0",
    "-1",
    "1e308",
    "nan",
    "2147483647",
    str(2**63 - 1),
    "9" * 30,
    "9" * 5000,
    "0x" + "f" * 99,
]
WORDS = st.one_of(
    st.sampled_from([*HUGE, "x", "t", "read", "\x1b[2J", "%1B", "*", "per step", ""]),
    st.integers(0, 2**64).map(str),
    st.text(max_size=5),
)
Changes = list[tuple[float, str, int]]
CHANGES = st.lists(st.tuples(st.floats(0, 0.999), WORDS, st.integers(0, 3)), min_size=1, max_size=4)
TABLE = "advance,restart\n1.5,64MiB\n2.5,32MiB\n"
SEQUENCE = "Sequence: [WD_0, F_0->5, Revolve(9, 2), RD_0, Revolve(5, 2)]\n"
READERS: dict[str, tuple[str, Callable[[str], object]]] = {
    "schedule": (TEXT, read),
    "variables": (VARIED, read),
    "platform": (TOML, lambda text: Platform.loads(text, source="FILE").digest()),
    "levels": ("2\n20 1 1\n500 5.5 5\n", lambda text: Platform.loads(text, source="FILE")),
    "sequence": (
        "[W^0_0, F_0->6, B_7, R^0_0]",
        lambda text: notation.loads(text, _endless(), source="FILE"),
    ),
    "compact": (SEQUENCE, lambda text: compact.loads(text, _endless(), PLATFORM, source="FILE")),
    "costs": (
        TABLE,
        lambda text: costs.loads(text, {"record": 1, "reverse": 1, "tape": 1, "adjoint": 1}),
    ),
}


def mutated(text: str, changes: Changes) -> str:
    """The text with some of its words replaced, repeated, or left out."""
    for place, word, times in changes:
        words = text.split(" ")
        number = int(place * len(words))
        words[number : number + 1] = [word] * times
        text = " ".join(words)
    return text


@pytest.mark.parametrize("reader", READERS)
@settings(deadline=None, derandomize=True, max_examples=60)
@given(changes=CHANGES)
@example(changes=[(0.02, "2147483647", 1)])
def test_whatever_a_text_says_only_bad_input_comes_of_it(reader: str, changes: Changes) -> None:
    text, function = READERS[reader]
    with small(), suppress(CkioError):
        function(mutated(text, changes))


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "s.txt",
            changed(TEXT, "# steps 30", "# steps 2147483647"),
            ["show", "s.txt", "--svg", "o"],
        ),
        ("s.txt", changed(TEXT, "# steps 30", "# steps 2147483647"), ["simulate", "s.txt"]),
        (
            "p.toml",
            TOML + "a" + ".a" * 20_000 + " = 1\n",
            ["plan", "--steps", "3", "--platform", "p.toml"],
        ),
        ("zero", "", ["show", "/dev/zero"]),
        ("zero", "", ["plan", "--steps", "3", "--platform", "/dev/zero"]),
    ],
    ids=["show", "simulate", "plan", "endless-schedule", "endless-platform"],
)
def test_the_command_says_it_in_one_line_and_little_memory(
    tmp_path: Path, name: str, text: str, words: list[str]
) -> None:
    (tmp_path / name).write_text(text)
    limited = f"import resource, os, sys; resource.setrlimit(resource.RLIMIT_AS, ({NO_MORE},) * 2)"
    limited += "; os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", limited, str(CKIO), *words]
    done = subprocess.run(
        command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert len(done.stderr) < 1000


def test_numbers_of_single_steps_take_no_more_than_their_text() -> None:
    values = " ".join(map(repr, np.linspace(1, 2, 30).tolist()))
    text = changed(TEXT, "# advance 1.0", f"# advance per step\n#: {values}")
    read(text)
    with pytest.raises(BadInput, match="31 values"):
        read(changed(text, "#: ", "#: 1.0 "))
