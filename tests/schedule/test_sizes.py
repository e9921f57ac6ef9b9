"""Sizes that files claim are bounded before anything is allocated; only bad input comes of them."""

import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import numpy as np
import pytest
from cli.commands import CKIO

from ckio.errors import BadInput, CkioError
from ckio.planners.dp import hrevolve
from ckio.platform import Level, Platform, costs
from ckio.platform.chain import Chain
from ckio.report.render import render
from ckio.schedule import text as texts
from ckio.schedule.replay import validate
from ckio.sim.engine import simulate

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
VARIED = TEXT.replace(
    "# platform",
    (
        '# variables {"nbytes": {"a": 8}}\n'
        '# step {"forward": {"use": ["a"], "out": ["a"]}}\n'
        "# platform"
    ),
)

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


LONG = changed(TEXT, "# steps 30", "# steps 2147483647")
LONG_VARIED = changed(VARIED, "# steps 30", "# steps 2147483647")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (LONG, "needs the adjoint at 30"),
        (changed(TEXT, "# steps 30", f"# steps {9**4000}"), "line 3: .*whole number >= 1"),
        (changed(TEXT, "# restart 1000", f"# restart {9**4000}"), "line 7: .*whole number >= 0"),
        (LONG_VARIED, "1 variables over 2147483647 steps; a text may have 10000000 versions"),
        (
            changed(LONG_VARIED, "# platform", "# which [[0, 2147483647]]\n# platform"),
            "1 variables over 2147483647 steps",
        ),
        (TEXT + "##" + "a" * (1 << 20) + "\n", r"line \d+: .*at most 1048576 characters"),
    ],
    ids=["steps", "digits", "bytes", "variables", "which", "line"],
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


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("level = " + "[" * 100_000, "not TOML"),
        (changed(TOML, "100000", "9" * 5000), "not TOML"),
        ("100000\n10 1 1\n", "100000 levels announced, 1 lines"),
    ],
    ids=["deep", "digits", "levels"],
)
def test_a_platform_claims_more_than_it_has(text: str, told: str) -> None:
    with small(), pytest.raises(BadInput, match=told) as error:
        Platform.loads(text, source="FILE")
    assert len(str(error.value)) < 400


def test_a_platform_of_many_levels_is_read() -> None:
    levels = tuple(Level(name=f"l{number}", capacity=number) for number in range(100))
    assert Platform.loads(Platform(levels).dumps()) == Platform(levels)


# Texts that are changed at random

HUGE = ["0", "-1", "1e308", "nan", "2147483647", str(2**63 - 1), "9" * 30, "9" * 5000]
WORDS = [*HUGE, "0x" + "f" * 99, "x", "t", "read", "\x1b[2J", "%1B", "*", "per step", "", "é\0"]
ALIKE = {"record": 1, "reverse": 1, "tape": 1, "adjoint": 1}
READERS: dict[str, tuple[str, Callable[[str], object]]] = {
    "schedule": (TEXT, read),
    "variables": (VARIED, read),
    "platform": (TOML, lambda text: Platform.loads(text, source="FILE").digest()),
    "levels": ("2\n20 1 1\n500 5.5 5\n", lambda text: Platform.loads(text, source="FILE")),
    "costs": ("advance,restart\n1.5,64MiB\n2.5,32MiB\n", lambda text: costs.loads(text, ALIKE)),
}


def mutated(text: str, random: Random) -> str:
    """The text with some of its words replaced, repeated, or left out."""
    for _ in range(random.randint(1, 4)):
        words = text.split(" ")
        word = random.choice((*WORDS, str(random.randrange(2**64))))
        place = random.randrange(len(words))
        words[place : place + 1] = [word] * random.randrange(4)
        text = " ".join(words)
    return text


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("seeds", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_whatever_a_text_says_only_bad_input_comes_of_it(reader: str, seeds: int) -> None:
    text, function = READERS[reader]
    for seed in range(seeds):
        changed_text = mutated(text, Random(seed))
        try:
            with small():
                function(changed_text)
        except CkioError:
            pass
        except BaseException as error:
            error.add_note(f"seed {seed}: {changed_text!r:.2000}")
            raise


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (LONG, ["show", "FILE", "--svg", "o"]),
        (LONG, ["simulate", "FILE"]),
        ("", ["show", "/dev/zero"]),
        ("", ["plan", "--steps", "3", "--platform", "/dev/zero"]),
    ],
    ids=["show", "simulate", "endless-schedule", "endless-platform"],
)
def test_the_command_says_it_in_one_line_and_little_memory(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    (tmp_path / "FILE").write_text(text)
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
