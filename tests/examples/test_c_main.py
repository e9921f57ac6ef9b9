"""Programs in C and Fortran that keep their main loop: ckio_schedule.h, and its example.

The C programs of these tests are compiled once, with the sanitizers of gcc.
"""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from drawing import Case, mutated, random_complete
from example_models import EXAMPLES

import ckio
from ckio.actions import Action, Discard, Kind, Read, Write
from ckio.actions.columns import KINDS, READ, VERBS, WRITE, Actions
from ckio.errors import IllegalAction
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain, PerStep
from ckio.schedule import Schedule
from ckio.schedule import text as texts
from ckio.schedule.machine import Machine
from ckio.schedule.text.reader import VERSION

INCLUDE = Path(ckio.__path__[0]) / "include"
HEADER = (INCLUDE / "ckio_schedule.h").read_text()
HERE = Path(__file__).parent / "c_main"
README = (EXAMPLES / "c_main" / "README.md").read_text(encoding="utf-8")
IN_C, IN_FORTRAN = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
OK, NO_FILE, _, BAD_TEXT, NOT_SUPPORTED, ILLEGAL = range(6)
EQUAL = "equal to the last bit to the gradient"
STRICT = "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"
SANITIZED = "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")


def output(words: list[str | Path], **options: object) -> str:
    """What a program prints; it must end well, and a sanitizer must have nothing to say."""
    merged = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True} | options
    done = subprocess.run(words, check=False, **merged)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout[-3000:]
    assert "Sanitizer" not in done.stdout
    return str(done.stdout)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A function that compiles a program of this test, once."""
    at = tmp_path_factory.mktemp("compiled")

    def compile_once(name: str, *flags: str) -> Path:
        if not (program := at / name).exists():
            found = [f"-I{INCLUDE}", f"-I{EXAMPLES / 'c_main'}", str(HERE / f"{name}.c")]
            output(["gcc", "-O1", *SANITIZED, *flags, *found, "-lm", "-o", program])
        return program

    return compile_once


def listed(program: Path, texts_of_plans: list[str], at: Path) -> list[list[list[str]]]:
    """What the header makes of each text: the words of the lines that `listing.c` prints."""
    paths = [at / f"{number}.txt" for number in range(len(texts_of_plans))]
    for path, text in zip(paths, texts_of_plans, strict=True):
        path.write_text(text)
    plans = re.split(r"^plan ", output([program, *paths]), flags=re.MULTILINE)[1:]
    return [
        [line.split(" ", 3 if n == 0 else -1) for n, line in enumerate(plan.splitlines())]
        for plan in plans
    ]


# --- the header against the definition of the rules


def plain(case: Case) -> Case:
    """A schedule without what `ckio plan` does not write: adjoints, and sizes that differ."""
    schedule, platform = case
    sizes = {name: int(schedule.chain.each(name).min()) for name in ("restart", "tape")}
    actions = [it for it in schedule.actions if not is_of_adjoint(it)]
    return Schedule(replace(schedule.chain, **sizes), actions), platform


def is_of_adjoint(action: Action) -> bool:
    return isinstance(action, Write | Read | Discard) and action.key.kind is Kind.ADJOINT


def drawn() -> Iterator[Case]:
    """500 schedules, of which half have one change."""
    for seed in range(500):
        random = Random(seed)
        case = random_complete(random, most_steps=8)
        case = plain(case) if seed % 5 else case
        yield mutated(random, case) if seed % 2 else case


def expected(schedule: Schedule, platform: Platform) -> int:
    """The error of a schedule by `Machine`, on levels that store the bytes of the program."""
    chain = schedule.chain
    if isinstance(chain.restart, PerStep) or isinstance(chain.tape, PerStep):
        return NOT_SUPPORTED
    levels = tuple(replace(level, ratio=1.0) for level in platform.levels)
    machine = Machine(chain, replace(platform, levels=levels))
    for action in schedule.actions:
        if is_of_adjoint(action):
            return BAD_TEXT  # `ckio plan` writes none
        try:
            machine.apply(action)
        except IllegalAction:
            return ILLEGAL
    return ILLEGAL if machine.adjoint else OK


def check_slots(rows: list[list[int]], chain: Chain, levels: list[list[str]]) -> None:
    """Each slot has one checkpoint, which is the one that is read; and no more are needed."""
    sizes = chain.restart, chain.tape
    slots: list[dict[int, tuple[int, int]]] = [{} for _ in levels]
    most, peak = [0] * len(levels), [0] * len(levels)
    for op, kind, level, slot, step, _ in rows:
        if op < WRITE:
            continue
        if op == WRITE:
            assert slot not in slots[level]
            slots[level][slot] = kind, step
        assert slots[level][slot] == (kind, step)
        if op > READ:
            del slots[level][slot]
        most[level] = max(most[level], len(slots[level]))
        peak[level] = max(peak[level], sum(int(sizes[it]) for it, _ in slots[level].values()))
        assert slot < most[level]
    assert [[int(word) for word in level[2:]] for level in levels] == [
        [*both] for both in zip(most, peak, strict=True)
    ]


def test_it_accepts_what_the_machine_accepts_and_returns_the_same_actions(
    compiled: Callable[..., Path], tmp_path: Path
) -> None:
    cases = list(drawn())
    texts_of_plans = [texts.dumps(*case) for case in cases]
    found = listed(compiled("listing", *STRICT), texts_of_plans, tmp_path)
    codes = Counter[int]()
    for (schedule, platform), plan in zip(cases, found, strict=True):
        assert int(plan[0][0]) == expected(schedule, platform), plan[0]
        codes[int(plan[0][0])] += 1
        if int(plan[0][0]) == OK:
            levels = [line for line in plan[1:] if line[0] == "level"]
            rows = [[int(word) for word in line] for line in plan[1 : len(plan) - len(levels)]]
            actions = Actions.of(schedule.actions)
            for row, (op, kind, level, begin, end, _) in zip(rows, actions.rows(), strict=True):
                access = op >= WRITE
                assert row[:3] == [op, kind, level]
                assert row[4:] == [begin, begin if access else end]
            check_slots(rows, schedule.chain, levels)
            assert [level[1] for level in levels] == [level.name for level in platform.levels]
    assert min(codes[code] for code in (OK, BAD_TEXT, NOT_SUPPORTED, ILLEGAL)) > 25, codes


CHAIN = Chain(steps=2, advance=1, record=1, reverse=1, restart=8, tape=4, adjoint=8)
PLATFORM = Platform((Level(name="ram", capacity=8),), working_memory=8)
LINES = "record 0 2\nreverse 0 2\n"
TEXT = texts.dumps(Schedule(CHAIN, []), PLATFORM).replace("actions 0", "actions 2") + LINES


BYTES, WORDS = "expected a whole number of bytes", "expected one of advance, record, reverse, "
SPAN, ACCESS = "expected BEGIN and END, whole numbers", "expected x or t, STEP and LEVEL"
LINE, COUNT = "expected lines of text, of 8190 bytes", "expected all `# actions` until here"
CHANGES = [
    ("", "", OK, ""),
    ("\n", "\r\n", OK, ""),
    ("reverse 0 2\n", "reverse 0 2", OK, ""),
    ("# advance 1.0", "# advance per step\n#: 1.0 2.0", OK, ""),
    ("# steps 2", "# steps 2\n## news\n# overlap write_behind=1,read_ahead=1", OK, ""),
    ("record 0 2", "\n  record\t0   2", OK, ""),
    ("# actions 2\n", "", OK, ""),
    (
        "schedule 1",
        f"schedule {VERSION + 1}",
        NOT_SUPPORTED,
        f"this header reads version {VERSION} at most",
    ),
    ("schedule", "timeline", BAD_TEXT, 'line 1, "# ckio timeline 1": expected `# ckio'),
    ("# steps 2", "# steps 2.0", BAD_TEXT, 'line 3, "# steps 2.0": expected a header'),
    ("# steps 2", "# steps 2\n# steps 2", BAD_TEXT, 'line 4, "# steps 2": expected a'),
    ("# steps 2", "# steps 2\n# news 1", BAD_TEXT, 'line 4, "# news 1": expected a h'),
    ("# steps 2\n", "", BAD_TEXT, "expected `# steps`, `# restart` and `# tape` first"),
    (
        "# tape 4",
        "# tape 9223372036854775808",
        BAD_TEXT,
        'line 8, "# tape 9223372036854775808": exp',
    ),
    ("# tape 4", "# tape 9223372036854775807", ILLEGAL, "needs more than the 8 bytes"),
    ("# tape 4", "# tape per step", NOT_SUPPORTED, "sizes differ: plan with the largest"),
    ("# steps 2", "# steps 2\n# tape_restarts 1", NOT_SUPPORTED, "the plan is not one of whole"),
    ("# steps 2", "# steps 2\n# stored 0 x 1", NOT_SUPPORTED, 'line 4, "# stored 0 x 1'),
    ("# steps 2", "# steps 2\n# variables {}", NOT_SUPPORTED, "plan without --by-variable"),
    ("capacity = 8", 'capacity = "8 B"', BAD_TEXT, BYTES),
    ("working_memory = 8", "working_memory = 8.0", BAD_TEXT, BYTES),
    ("[[level]]", '[[level]]\n#| name = "disk"', BAD_TEXT, "expected one name in each [[level"),
    ("[[level]]\n", "[[level]]\n" + 16 * "#| [[level]]\n", NOT_SUPPORTED, ": more than 16 l"),
    ("record 0 2", "record 0 2\n# steps 2", BAD_TEXT, "expected no header after the first act"),
    ("record 0 2", "forward 0 2", BAD_TEXT, WORDS),
    ("record 0 2", "record 0 +2", BAD_TEXT, SPAN),
    ("record 0 2", "record 2 0", BAD_TEXT, SPAN),
    ("record 0 2", "record 0 2 3", BAD_TEXT, SPAN),
    ("record 0 2", "record 0 3", ILLEGAL, 'line 37, "record 0 3": the state is x_0 of x_2'),
    ("record 0 2", "write x 0 1", ILLEGAL, 'write x 0 1": the platform has 1 levels, from 0'),
    ("record 0 2", "write x 0 0\nwrite x 0 0", ILLEGAL, "it is stored on level 0 already"),
    ("capacity = 8", "capacity = 7", OK, ""),
    ("record 0 2", "read x 0 0", ILLEGAL, 'read x 0 0": it is not stored on level 0'),
    ("record 0 2", "write x 0 99999999999999999999", BAD_TEXT, ACCESS),
    ("record 0 2", "write x 0 0 zeta", BAD_TEXT, ACCESS),
    ("record 0 2", "record 0 1", ILLEGAL, 'reverse 0 2": needs the tapes of its steps'),
    ("record 0 2", "record 0 2\nwrite t 1 0", ILLEGAL, "alone; that of [0, 2) is there"),
    ("reverse 0 2", "reverse 1 2", ILLEGAL, ": the plan ends before all steps are reversed"),
    ("reverse 0 2\n", "", BAD_TEXT, COUNT),
    (TEXT, "", BAD_TEXT, 'line 1, "": expected `# ckio schedule 1`'),
    ("record", "re\0cord", BAD_TEXT, LINE),
    ("record", "record\r", BAD_TEXT, LINE),
    ("record", "record" + 9000 * " ", BAD_TEXT, LINE),
]
"""What is changed in the text, the error, and a part of its message."""


def test_an_error_names_the_line_and_the_rule(
    compiled: Callable[..., Path], tmp_path: Path
) -> None:
    changed_texts = [TEXT.replace(old, new) if old else TEXT for old, new, _, _ in CHANGES]
    found = listed(compiled("listing", *STRICT), changed_texts, tmp_path)
    for number, (change, plan) in enumerate(zip(CHANGES, found, strict=True)):
        _, _, code, message = change
        assert int(plan[0][0]) == code, change
        assert message in plan[0][3], change
        assert not message or re.search(rf"/{number}\.txt, line \d+, \".*\": ", plan[0][3]), change


def test_a_file_that_cannot_be_read_is_an_error(
    compiled: Callable[..., Path], tmp_path: Path
) -> None:
    printed = output([compiled("listing", *STRICT), tmp_path / "none", tmp_path])
    assert re.findall(r"^plan (\d)", printed, re.MULTILINE) == [str(NO_FILE)] * 2
    assert "none: No such file or directory" in printed


def test_it_knows_the_words_and_the_version_of_the_format() -> None:
    assert f"CKIO_FORMAT = {VERSION}," in HEADER
    assert ", ".join(f"CKIO_{verb.upper()}" for verb in VERBS) in HEADER
    assert [kind.value for kind in KINDS][:2] == ["x", "t"]
    module = (INCLUDE / "ckio_schedule.f90").read_text()
    for name, number in (("advance", 0), ("discard", 5), ("state", 0), ("tape", 1), ("illegal", 5)):
        assert re.search(rf"\bckio_{name} = {number}\b", module)
    assert max(len(line) for line in HEADER.splitlines()) <= 100


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_it_is_also_c_plus_plus(tmp_path: Path) -> None:
    flags = [
        "-std=c++11",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-DCKIO_SCHEDULE_IMPLEMENTATION",
    ]
    output(["g++", *flags, "-x", "c++", "-c", INCLUDE / "ckio_schedule.h", "-o", tmp_path / "it.o"])


# --- the example


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A copy of the example, as a user makes it."""
    return Path(shutil.copytree(EXAMPLES / "c_main", tmp_path / "c_main"))


def done(script: str, at: Path) -> str:
    """What the commands of a page print, in one shell."""
    assert all(line.startswith("$ ") for line in script.splitlines())
    lines = [line.removeprefix("$ ") for line in script.splitlines()]
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return output(["sh", "-ec", "\n".join(lines)], cwd=at, env=os.environ | {"PATH": paths})


def test_the_commands_of_its_page_give_the_gradient(here: Path) -> None:
    printed = done(IN_C, here)
    assert EQUAL in printed
    assert list((here / "files").iterdir()) == []
    (found, by_difference) = re.findall(r"dJ/dnu = ([-\d.]+), by a difference ([-\d.]+)", printed)[
        0
    ]
    assert float(found) == pytest.approx(float(by_difference), rel=1e-6)
    (shown,) = re.findall(r"```text\n(.*?)```", README, re.DOTALL)
    assert next(line for line in shown.splitlines() if "J" in line) in printed
    if shutil.which("valgrind"):
        checked = "valgrind -q --leak-check=full --error-exitcode=9 ./burgers plan.txt files"
        assert EQUAL in done(f"$ {checked}", here)


SIZES = """\
use iso_c_binding
use ckio_schedule
type(ckio_plan) :: plan
type(ckio_action) :: a
call ckio_open(plan, "lorenz.txt")
print '(a)', ckio_name(plan, 1)
print '(i0, a)', plan%level(0)%capacity, " bytes"
print *, c_sizeof(plan), c_sizeof(plan%level(0)), c_sizeof(a)
call ckio_close(plan)
end
"""
SIZES_IN_C = """\
#include <stdio.h>
int main(void) {
    printf("%zu %zu %zu", sizeof(ckio_schedule), sizeof(ckio_level), sizeof(ckio_action));
    return 0;
}
"""
"""The same types in both languages have the same size."""


@pytest.mark.skipif(shutil.which("gfortran") is None, reason="gfortran is not installed")
def test_the_commands_of_its_page_give_the_gradient_in_fortran(here: Path) -> None:
    (before,) = (line for line in IN_C.splitlines() if line.startswith("$ include="))
    assert EQUAL in done(f"{before}\n{IN_FORTRAN}", here)
    flags = "-std=f2008 -Wall -g -fcheck=all -fsanitize=address,undefined"
    program = "$include/ckio_schedule.f90 lorenz.f90 ckio_schedule.o -o checked"
    checked = f"{before}\n$ gfortran {flags} {program}\n$ ./checked lorenz.txt"
    assert EQUAL in done(checked, here)
    sizes = "$ gfortran $include/ckio_schedule.f90 sizes.f90 ckio_schedule.o -o sizes"
    (here / "sizes.f90").write_text(SIZES)
    (here / "sizes.c").write_text('#include "ckio_schedule.h"\n' + SIZES_IN_C)
    in_c = "$ cc -I$include sizes.c -o sizes_in_c\n$ ./sizes_in_c"
    found = done(f"{before}\n{sizes}\n$ ./sizes\n{in_c}", here).splitlines()
    assert found[:2] == ["disk", "12288 bytes"]
    assert found[2].split() == found[3].split()
    wrong = "$ sed -i s/record/advance/ lorenz.txt\n$ ./checked lorenz.txt || echo refused"
    assert re.search(r"lorenz\.txt, line \d+, .*\n(STOP 1\n)?refused", done(wrong, here))


def changed(random: Random, text: str) -> str:
    """A text of a plan that was cut off, or of which some lines or characters are others."""
    lines = text.splitlines(keepends=True)
    i, j = random.randrange(len(lines)), random.randrange(len(lines))
    match random.randrange(7):
        case 0:
            return text[: random.randrange(len(text))]
        case 1:
            lines[i], lines[j] = lines[j], lines[i]
        case 2:
            del lines[i : i + random.randint(1, 3)]
        case 3:
            lines.insert(i, lines[j])
        case 4 | 5:
            numbers = list(re.finditer(r"\d+", text))
            found = numbers[random.randrange(len(numbers))]
            number = random.choice([0, 1, 2**63 - 1, 2**63, int(found[0]) + random.choice((-1, 1))])
            return text[: found.start()] + str(number) + text[found.end() :]
        case _:
            at = random.randrange(len(text))
            return text[:at] + chr(random.randrange(1, 127)) + text[at + 1 :]
    return "".join(lines)


def test_500_changed_plans_are_refused_or_right(compiled: Callable[..., Path], here: Path) -> None:
    """Under the sanitizers: nothing is read or written outside an array, and nothing is lost."""
    plan = "$ ckio plan --platform platform.toml --steps 30 --advance 1e-6 --record 1e-6"
    done(f"{plan} --reverse 2e-6 --restart 4000 --tape 8000 --adjoint 4008 -o plan.txt", here)
    text, random, paths = (here / "plan.txt").read_text(), Random(0), list[Path]()
    for number in range(500):
        paths.append(here / f"{number}.txt")
        paths[-1].write_text(changed(random, text), newline="")
    (here / "files").mkdir()
    printed = output([compiled("many", "-std=c99"), here / "files", here / "plan.txt", *paths])
    first, *plans = re.split(r"^plan ", printed, flags=re.MULTILINE)[1:]
    assert EQUAL in first
    refused = 0
    for number, found in enumerate(plans):
        if EQUAL in found:
            assert "returned 0" in found
        else:
            assert re.search(rf"/{number}\.txt(, line \d+, \".*\")?: .*\nreturned 1\n$", found), (
                found
            )
            refused += 1
    assert len(plans) == 500
    assert 250 < refused < 500
