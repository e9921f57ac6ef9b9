"""The reader of the text form: it knows which line it is at, and says what is wrong there."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NoReturn
from urllib.parse import unquote

from ckio.actions import Key, Kind
from ckio.actions.checks import check_line
from ckio.actions.columns import WRITE, Actions, Row
from ckio.errors import BadInput
from ckio.platform import Platform
from ckio.platform.chain import COSTS, SIZES, Chain
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap
from ckio.schedule.text.variables import FORMS, Headers
from ckio.schedule.text.words import (
    CODES,
    LETTERS,
    LEVELS,
    LINE,
    NAMES,
    NO_OVERLAP,
    OPS,
    ORIGINS,
    STEPS,
    TRANSFER,
    VERBS,
    VERSION,
)
from ckio.schedule.timeline import Recorder, Timeline

_SPAN: Final = "`{} BEGIN END`, whole numbers, 0 <= BEGIN < END"
_ACCESS: Final = "`{} KIND STEP LEVEL [NAME]`, KIND one of " + ", ".join(LETTERS)
_TIMES: Final = "`START STOP NBYTES` with 0 <= START <= STOP, then "
_COUNTS: Final = ("actions", "transfers", "steps")
_HEADERS: Final = ", ".join((*_COUNTS, *COSTS, *FORMS, "stored", "overlap", "platform"))
_OVERLAP: Final = "`# overlap write_behind=N,read_ahead=N[,horizon=SECONDS]`, N may be all"
_STORED: Final = "`# stored LEVEL KIND STEP [NAME]`, KIND one of " + ", ".join(LETTERS)


@dataclass(frozen=True)
class Document:
    """What a text holds.

    Attributes
    ----------
    schedule : Schedule
        The schedule; of a timeline, the part of it that is timed.
    platform : Platform or None
        What it was made for, where that was written with it.
    timeline : Timeline or None
        None where the text is a schedule.
    overlap : Overlap
        With which policy the timeline came about, or for which the schedule was made.
    origin : str
        "predicted" or "measured", as a timeline says it is; "" where it does not.
    """

    schedule: Schedule
    platform: Platform | None = None
    timeline: Timeline | None = None
    overlap: Overlap = NO_OVERLAP
    origin: str = ""


def _name(words: list[str]) -> str:
    """The name that ends a line, or "" where it has none."""
    if len(words) > 1:
        raise ValueError
    return check_line("name", unquote(words[0], errors="strict")) if words else ""


def _row(words: list[str], names: dict[str, int]) -> Row:
    """The row of one action; raises ValueError, KeyError or IndexError where it is none."""
    op = OPS[words[0]]
    if op < WRITE:
        begin, end = int(words[1]), int(words[2])
        if not 0 <= begin < end < STEPS or len(words) > 3:
            raise ValueError
        return op, 0, 0, begin, end, 0
    kind, step, level = CODES[words[1]], int(words[2]), int(words[3])
    if not (0 <= step < STEPS and 0 <= level < LEVELS):
        raise ValueError
    return op, kind, level, step, 0, names.setdefault(_name(words[4:]), len(names))


def _keep_times(recorder: Recorder, words: list[str]) -> None:
    start, stop, nbytes = float(words[0]), float(words[1]), int(words[2])
    if not (0 <= start <= stop < math.inf and 0 <= nbytes < STEPS):
        raise ValueError
    recorder.add(start, stop, nbytes)


class Reader:
    """Reads one text, a line after the other, and knows which line it is at."""

    def __init__(self, lines: Iterator[str], source: str) -> None:
        self.lines = lines
        self.source = source
        self.number = 0
        self.times: Recorder | None = None
        self.moved, self.moves = Recorder(), list[Row]()  # the transfers
        self.numbers: dict[str, Any] = {}
        self.each = ""  # the cost whose values for each step may follow
        self.variables = Headers()
        self.handed = frozenset[Kind]()
        self.stored: list[tuple[int, Key]] = []
        self.overlap = NO_OVERLAP
        self.origin = ""
        self.digest = ""
        self.toml: list[str] = []

    def fail(self, line: str, expected: str) -> NoReturn:
        raise BadInput(
            f"{self.source}, line {self.number}: found {line.strip()[:80]!r}; expected {expected}"
        ) from None

    def document(self) -> Document:
        names = {"": 0}
        try:
            self.title()
            actions = Actions.of_rows(self.rows(names), names)
        except UnicodeDecodeError:
            raise BadInput(f"{self.source}: not text (after line {self.number})") from None
        if len(names) > NAMES:
            raise BadInput(
                f"{self.source}: {len(names) - 1} variables are named; a text may name {NAMES - 1}"
            )
        self.check_announced("actions", len(actions))
        self.check_announced("transfers", len(self.moves))
        timeline = None
        if self.times is not None:
            moved = self.moved.timeline(Actions.of_rows(self.moves, names)) if self.moves else None
            timeline = self.times.timeline(actions, moved)
        schedule = Schedule(self.chain(), actions, self.levels())
        return Document(schedule, self.platform(), timeline, self.overlap, self.origin)

    def check_announced(self, word: str, count: int) -> None:
        announced = self.numbers.pop(word, count)
        if announced != count:
            raise BadInput(
                f"{self.source}: {announced} {word} announced, {count} follow; the file is"
                f" cut off, or was edited: then correct its `# {word}` line, or remove it"
            )

    def title(self) -> None:
        line = next(self.lines, "")
        self.number = 1
        self.check_length(line)
        match line.split():
            case ["#", "ckio", "schedule" | "timeline" as what, version] if version.isdecimal():
                if int(version) > VERSION:
                    self.fail(line, f"version {VERSION} at most; read it with a newer ckio")
                self.times = Recorder() if what == "timeline" else None
            case _:
                self.fail(line, f"`# ckio schedule {VERSION}` or `# ckio timeline {VERSION}`")

    def rows(self, names: dict[str, int]) -> Iterator[Row]:
        """The rows of the actions; headers are kept as they are met."""
        for line in self.lines:
            self.number += 1
            self.check_length(line)
            if line.startswith("#"):
                self.keep_header(line)
                continue
            words = line.split()
            if not words:
                continue
            try:
                if words[0] == TRANSFER:
                    self.keep_transfer(words, names)
                    continue
                if self.times is not None:
                    _keep_times(self.times, words)
                    words = words[3:]
                row = _row(words, names)
            except (BadInput, ValueError, KeyError, IndexError):
                self.fail(line, self.form(words))
            yield row

    def check_length(self, line: str) -> None:
        if len(line) > LINE:
            self.fail(line, f"at most {LINE} characters on a line")

    def keep_transfer(self, words: list[str], names: dict[str, int]) -> None:
        row = _row(words[4:], names)
        if self.times is None or row[0] < WRITE:
            raise ValueError
        _keep_times(self.moved, words[1:])
        self.moves.append(row)

    def form(self, words: list[str]) -> str:
        """How a line of this verb is written."""
        verb = next((word for word in words if word in OPS), None)
        prefix = "" if self.times is None else _TIMES
        if words[:1] == [TRANSFER]:
            if self.times is None:
                return "no transfer in a schedule; a timeline has them"
            return f"`{TRANSFER}`, {_TIMES}one of {', '.join(VERBS[WRITE:])} with KIND STEP LEVEL"
        if verb is None:
            return f"{prefix}one of {', '.join(VERBS)}"
        return prefix + (_SPAN if OPS[verb] < WRITE else _ACCESS).format(verb)

    def keep_header(self, line: str) -> None:
        if line.startswith("##"):
            self.keep_origin(line[2:].strip())
            return
        if line.startswith("#|"):
            self.toml.append(line[2:].strip("\r\n").removeprefix(" "))
            return
        if line.startswith("#:"):
            self.keep_values(line)
            return
        match line.split():
            case ["#", header, *words] if header in FORMS:
                self.keep_variables(line, header, words)
            case ["#", "stored", level, kind, step, *name]:
                self.keep_stored(line, level, kind, step, name)
            case ["#", "overlap", policy]:
                self.keep_overlap(line, policy)
            case ["#", "handed", *letters]:
                self.keep_handed(line, letters)
            case ["#", "platform", digest]:
                self.digest = digest
            case [
                "#",
                "actions" | "transfers" | "steps" | "restart" | "tape" | "adjoint" as word,
                text,
            ]:
                self.keep_number(line, word, text, int)
            case ["#", "advance" | "record" | "reverse" as word, text]:
                self.keep_number(line, word, text, float)
            case ["#", word, "per", "step"] if word in COSTS and word not in self.numbers:
                self.each, self.numbers[word] = word, []
            case _:
                expected = f"one of the headers {_HEADERS} after `# `, or a comment after `##`"
                self.fail(line, expected)

    def keep_origin(self, comment: str) -> None:
        """The comment below the title of a timeline says whether it is predicted or measured."""
        if self.number == 2 and self.times is not None and comment in ORIGINS:
            self.origin = comment

    def keep_variables(self, line: str, header: str, words: list[str]) -> None:
        try:
            self.variables.keep(header, words)
        except ValueError:
            self.fail(line, FORMS[header])

    def keep_stored(self, line: str, level: str, kind: str, step: str, name: list[str]) -> None:
        try:
            number, key = int(level), Key(Kind(kind), int(step), _name(name))
        except (BadInput, ValueError):
            self.fail(line, _STORED)
        if not (0 <= number < LEVELS and key.step < STEPS):
            self.fail(line, _STORED)
        self.stored.append((number, key))

    def keep_overlap(self, line: str, policy: str) -> None:
        try:
            self.overlap = Overlap.parse(policy)
        except BadInput:
            self.fail(line, _OVERLAP)

    def keep_handed(self, line: str, letters: list[str]) -> None:
        try:
            self.handed = frozenset(map(Kind, letters))
        except ValueError:
            self.fail(line, f"`# handed KIND ...`, each one of {', '.join(LETTERS)}")

    def keep_number(self, line: str, word: str, text: str, number: type[int] | type[float]) -> None:
        least = 1 if word == "steps" else 0
        expected = f"`# {word}` once, with a{' whole' if number is int else ''} number >= {least}"
        try:
            value = number(text)
        except ValueError:
            self.fail(line, expected)
        below = STEPS if number is int else math.inf
        if not least <= value < below or word in self.numbers:
            self.fail(line, expected)
        self.numbers[word] = value

    def keep_values(self, line: str) -> None:
        number = int if self.each in SIZES else float
        expected = (
            f"`#: VALUE ...`, {'whole ' * (number is int)}numbers >= 0, after `# COST per step`"
        )
        try:
            values = [number(word) for word in line[2:].split()]
        except ValueError:
            self.fail(line, expected)
        below = STEPS if number is int else math.inf
        if not self.each or not all(0 <= value < below for value in values):
            self.fail(line, expected)
        self.numbers[self.each] += values

    def chain(self) -> Chain:
        missing = [word for word in ("steps", *COSTS) if word not in self.numbers]
        if missing:
            raise BadInput(f"{self.source}: headers are missing: `# {'`, `# '.join(missing)}`")
        try:
            variables = self.variables.variables(self.numbers["steps"])
            return Chain(**self.numbers, variables=variables, handed=self.handed)
        except BadInput as error:
            raise BadInput(f"{self.source}: {error}") from None

    def levels(self) -> list[set[Key]]:
        keys: list[set[Key]] = [
            set() for _ in range(1 + max((n for n, _ in self.stored), default=-1))
        ]
        for level, key in self.stored:
            keys[level].add(key)
        return keys

    def platform(self) -> Platform | None:
        if not self.toml:
            return None
        platform = Platform.loads("\n".join(self.toml), source=f"{self.source}, its platform")
        if self.digest not in ("", platform.digest()):
            raise BadInput(
                f"{self.source}: the platform in it has the digest {platform.digest()}, not"
                f" {self.digest}; it was edited: correct the `# platform` line, or remove it"
            )
        return platform
