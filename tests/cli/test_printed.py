"""What is in files steers no terminal: escape sequences of theirs are shown, or refused."""

import contextlib
import json
import os
import pty
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from cli.commands import ckio, run_in
from cli.resumable import killed, words
from cli.resumable import place as run_place

from ckio.actions import Field, Key, Kind
from ckio.backends.directory import Directory
from ckio.backends.forms import form_from, form_of
from ckio.backends.runid import RunId
from ckio.errors import CorruptCheckpoint, StorageError
from ckio.jobs.directory import sealed, unsealed
from ckio.planners.dp import hrevolve
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.report.pictures import draw
from ckio.schedule import text as texts
from ckio.sim.engine import simulate
from ckio.testing import put

EVIL = "\x1b[2J"
"""Clears the screen."""

ALSO = "\x9b2J\x07\u202e"

OWN = re.compile(r"\x1b\[[01]m")
"""The letters that ckio prints bold."""

CHAIN = Chain(steps=9, advance=1, record=1, reverse=1, restart=8, tape=8, adjoint=8)
COSTS = [f"--{name}={value}" for name, value in (("advance", 1), ("record", 1), ("reverse", 1))]
SIZES = [f"--{name}=8" for name in ("restart", "tape", "adjoint")]


def platform(at: Path) -> Platform:
    levels = (
        Level(name="ram", capacity=40),
        Level(name="disk", backend="directory", options={"path": str(at / "level")}, note="slow"),
    )
    model = Chain(steps=None, advance=1, record=1, reverse=1, restart=8, tape=8, adjoint=8)
    return Platform(levels, 100, {"MODEL": model})


END = "---- the next command ----"


def on_a_terminal(*commands: Sequence[object], at: Path) -> list[str]:
    """All that each command prints to a terminal, without what ckio prints bold."""
    child, terminal = pty.fork()
    if child == 0:
        try:
            os.environ |= {"TERM": "dumb", "COLUMNS": "200"}
            out, err = (os.fdopen(number, "w") for number in (1, 2))
            for command in commands:
                run_in(at, list(map(str, command)), out, err)
                os.write(1, END.encode())
        finally:
            os._exit(0)
    printed = b"".join(_read(terminal))
    os.close(terminal)
    os.waitpid(child, 0)
    *each, rest = OWN.sub("", printed.decode(errors="surrogateescape")).split(END)
    assert (len(each), rest) == (len(commands), "")
    return each


def _read(fd: int) -> Iterator[bytes]:
    with contextlib.suppress(OSError):  # nobody has the other end any more
        while data := os.read(fd, 1 << 16):
            yield data


def steering(text: str) -> list[str]:
    """The control characters in what was printed, but for ends of lines and tabs."""
    found = (letter for letter in text if unicodedata.category(letter) in ("Cc", "Cs"))
    return [letter for letter in found if letter not in "\r\n\t"]


def check(*commands: Sequence[object], at: Path) -> list[str]:
    """Run commands one after the other on a terminal; return what each of them prints."""
    each = on_a_terminal(*commands, at=at)
    for command, printed in zip(commands, each, strict=True):
        assert printed.strip(), command
        assert steering(printed) == [], (command, printed)
        assert "\u202e" not in printed, command
        assert "Traceback" not in printed, command
    return each


def escaped(text: str) -> str:
    """A text as TOML writes it between quotes."""
    return "".join(f"\\u{ord(letter):04x}" for letter in text)


FIELDS = [
    ('name = "ram"', 'name = "{}"'),
    ('channel = "ram"', 'channel = "{}"'),
    ('backend = "ram"', 'backend = "{}"'),
    ('note = "slow"', 'note = "{}"'),
    ("models.MODEL", 'models."{}"'),
    ("/level", "/{}"),
    ("path =", '"{}" ='),
    ("capacity = 40", 'capacity = "{}"'),
    ("working_memory =", '"{}" ='),
    ("[level.read]", '[level."{}"]'),
    ("ratio = 1.0", 'ratio = "{}"'),
    ("[level.options]", '[level.profile]\ncached = "{}"\n[level.options]'),
    ("[level.options]", '[level.options]\ncodec = "{}"'),
    ("working_memory =", 'drift = "{}"\nworking_memory ='),
    ("format = 1", "format = 1 {}"),
]


def test_a_platform_steers_no_terminal(tmp_path: Path) -> None:
    text = platform(tmp_path).dumps()
    commands = list[Sequence[object]]()
    for number, (old, new) in enumerate(FIELDS):
        assert old in text
        made = EVIL + ALSO if new.endswith("1 {}") else escaped(EVIL + ALSO)
        name = f"p{number}.toml"
        (tmp_path / name).write_text(text.replace(old, new.format(made), 1))
        commands.append(("plan", "--steps", 9, "--platform", name, *COSTS, *SIZES))
    check(*commands, at=tmp_path)


def test_what_was_typed_steers_no_terminal(tmp_path: Path) -> None:
    evil = EVIL + ALSO
    words = ("--level", f"a=directory:{tmp_path}/{evil}", "--model", f"m{evil}", "-o", "o")
    check(("calibrate", *words), at=tmp_path)


def schedule(at: Path, *, timeline: bool = False) -> str:
    machine = platform(at)
    planned = hrevolve(CHAIN, machine)
    return texts.dumps(planned, machine, *([simulate(planned, machine)] if timeline else []))


CHANGES: list[Callable[[str, str], str]] = [
    lambda text, evil: text.replace("# ckio ", f"# ckio {evil}", 1),
    lambda text, evil: text.replace("# steps 9", f"# steps 9{evil}"),
    lambda text, evil: text.replace("# steps", f"# {evil}steps"),
    lambda text, evil: text.replace("# platform ", f"# platform {evil}"),
    lambda text, evil: text.replace("# platform", f"# overlap {evil}\n# platform"),
    lambda text, evil: text.replace("# platform", f"# handed {evil}\n# platform"),
    lambda text, evil: text.replace("# platform", f"# stored 0 x 1 {evil}\n# platform"),
    lambda text, evil: text.replace("# platform", '# step {"\\u001b[2J": {}}\n# platform'),
    lambda text, evil: text.replace("# platform", f"# variables {evil}\n# platform"),
    lambda text, evil: text.replace("#| format = 1", f"#| {evil} = 1"),
    lambda text, evil: text.replace('channel = "ram"', f'channel = "{escaped(evil)}"'),
    lambda text, evil: f"{text}discard x 0 0 %1B%5B2J\n".replace("# actions", "## actions"),
    lambda text, evil: f"{text}discard x 0 0 {evil}\n",
    lambda text, evil: f"{text}{evil} 0 1\n",
]


def test_a_schedule_steers_no_terminal(tmp_path: Path) -> None:
    written = [schedule(tmp_path, timeline=timeline) for timeline in (False, True)]
    commands = list[Sequence[object]]()
    for number, change in enumerate(CHANGES):
        text = written[number % 2]
        made = change(text, EVIL + ALSO)
        assert made != text
        name = f"s{number}{ALSO * (number % 2)}.txt"
        (tmp_path / name).write_text(made)
        command = (("simulate",), ("show",), ("compare", name))[number % 3]
        commands.append((*command, name))
    check(*commands, at=tmp_path)


def test_a_file_of_any_name_is_shown(tmp_path: Path) -> None:
    name = f"s{EVIL}{ALSO}.txt"
    (tmp_path / name).write_text(schedule(tmp_path))
    check(("show", name, "--html", f"{name}.html", "--svg", f"{name}.svg"), at=tmp_path)
    assert steering((tmp_path / f"{name}.html").read_text()) == []


def test_a_picture_of_a_path_has_no_markup_in_it(tmp_path: Path) -> None:
    machine = platform(tmp_path)
    ram, disk = machine.levels
    named = Level(name="ram", capacity=40, channel="<script>alert(1)</script>")
    evil = Platform((named, disk), 100)
    timeline = simulate(hrevolve(CHAIN, evil), evil)
    (tmp_path / "t.txt").write_text(texts.dumps(hrevolve(CHAIN, evil), evil, timeline))
    ckio("show", "t.txt", "--html", "t.html", "--perfetto", "t.json", at=tmp_path)
    assert ram.channel == "ram"
    for text in (draw(timeline, CHAIN, evil), (tmp_path / "t.html").read_text()):
        assert "<script>alert" not in text
    json.loads((tmp_path / "t.json").read_text())


def test_a_layout_that_could_steer_a_terminal_is_neither_stored_nor_read() -> None:
    fields = [Field(f"a{evil}", "<f8", (3,)) for evil in (EVIL, ALSO)]
    fields += [Field("a", "<f8", (3,), f"m{evil}") for evil in (EVIL, ALSO)]
    for field in fields:
        with pytest.raises(StorageError, match="no control characters"):
            form_of((field,))
        row = [[field.name, field.dtype, [3], field.unit]]
        with pytest.raises(CorruptCheckpoint):
            form_from(json.dumps(row).encode())


def test_a_level_steers_no_terminal(tmp_path: Path) -> None:
    folder = tmp_path / f"level{EVIL}"
    level = Directory(folder, run=RunId(f"0a{EVIL}"))
    put(level, Key(Kind.RESTART, 3, f"zeta{ALSO}"), (Field("a", "<f8", (3,)),))
    level.close()
    (folder / f"slots{EVIL}.ckio").write_bytes((next(folder.iterdir())).read_bytes())
    places = folder, folder.parent
    printed = check(
        *(("inspect", path) for path in places),
        *(("inspect", "--verify", path) for path in places),
        ("inspect", "--remove", "--yes", folder),
        ("inspect", tmp_path / f"nothing{EVIL}"),
        at=tmp_path,
    )
    assert all("zeta" in each for each in printed[:2])


NAMED = (
    *("run", "run", "control", "platform", "adjoints", "here"),
    *("request.model", "request.settings", "request.planner", "request.overlap"),
)
"""What a manifest says; the first is not sealed."""


def test_a_manifest_steers_no_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = run_place(tmp_path / "at")
    killed(monkeypatch, at, "adjoint:17", *words())
    manifest = at / "run" / "manifest.json"
    whole = unsealed(manifest.read_text(), manifest)
    for number, name in enumerate(NAMED):
        said = json.loads(whole)
        part = said["request"] if "." in name else said
        last = name.removeprefix("request.")
        part[last] = {EVIL: ALSO} if last == "settings" else f"{part[last]}{EVIL}{ALSO}"
        manifest.write_text(json.dumps(said) if number == 0 else sealed(json.dumps(said)))
        check(
            ("inspect", "run"),
            ("inspect", "--remove", "--yes", "run"),
            ("run", "--resume", "--into", "run"),
            ("run", "ocean:growth", "--resume", "--into", "run"),
            at=at,
        )
