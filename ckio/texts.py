"""Schedules and timelines as text: one action a line, under headers that say what it belongs to.

    # ckio schedule 1               what this is, and the version of the form
    # actions 3                     how many lines of actions there are; may be left out
    # steps 1                       the chain: its steps, then seconds and bytes of each
    # advance 2.0
    # record per step               or, after this, a value for each step, in lines of any length;
    #: 2.0 2.5                      of restart and adjoint one more, that of x_n and a_n
    # ...
    # stored 0 x 5                  what lies on a level at the start: LEVEL KIND STEP [NAME]
    # platform 90ee62d04d6b8ac6     the digest of a platform, and the whole of it as TOML
    #| format = 1
    #| ...
    ## a comment
    record 0 1                      advance, record, reverse: BEGIN END
    write t 0 1                     write, read, discard: KIND STEP LEVEL [NAME]
    reverse 0 1

A timeline is the same with `START STOP NBYTES` before each action. Floats come back to the last
bit; a name of anything but letters, digits and `_.-~` is percent-encoded. Version 2 has values for
each step; what does without them is still written as version 1.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import StringIO
from typing import Any, Final, NoReturn, TextIO
from urllib.parse import quote, unquote

from ckio.actions import Key, Kind
from ckio.chain import COSTS, SIZES, Chain
from ckio.columns import ACCESSES, KIND_CODE, KINDS, SPANS, WRITE, Actions, Row
from ckio.errors import BadInput
from ckio.perstep import PerStep
from ckio.platforms import Platform
from ckio.schedule import Schedule
from ckio.timeline import Recorder, Timeline

VERSION: Final = 2
"""The version of the form; a newer one is refused."""

_PER_LINE: Final = 10
"""Values of single steps that are written on one line."""

_VERBS: Final = tuple(action.__name__.lower() for action in (*SPANS, *ACCESSES))
_OPS: Final = {verb: op for op, verb in enumerate(_VERBS)}
_LETTERS: Final = tuple(kind.value for kind in KINDS)
_CODES: Final = {kind.value: code for kind, code in KIND_CODE.items()}
_STEPS: Final = 2**63
_LEVELS: Final = 2**15

_SPAN: Final = "`{} BEGIN END`, whole numbers, 0 <= BEGIN < END"
_ACCESS: Final = "`{} KIND STEP LEVEL [NAME]`, KIND one of " + ", ".join(_LETTERS)
_TIMES: Final = "`START STOP NBYTES` with 0 <= START <= STOP, then "
_STORED: Final = "`# stored LEVEL KIND STEP [NAME]`, KIND one of " + ", ".join(_LETTERS)


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
    """

    schedule: Schedule
    platform: Platform | None = None
    timeline: Timeline | None = None


def dumps(
    schedule: Schedule, platform: Platform | None = None, timeline: Timeline | None = None, /
) -> str:
    """The text of a schedule or, if one is given, of its timeline; `loads` reads it back, equal."""
    file = StringIO()
    dump(file, schedule, platform, timeline)
    return file.getvalue()


def dump(
    file: TextIO,
    schedule: Schedule,
    platform: Platform | None = None,
    timeline: Timeline | None = None,
    /,
) -> None:
    """Write the text of a schedule, or of its timeline, line by line.

    Raises BadInput if the timeline does not begin as the schedule does.
    """
    if timeline is None:
        file.writelines(_headers("schedule", schedule, len(schedule), platform))
        file.writelines(_lines(schedule.actions))
        return
    if timeline.actions != schedule.actions[: len(timeline)]:
        raise BadInput("the timeline is of other actions than those of the schedule")
    file.writelines(_headers("timeline", schedule, len(timeline), platform))
    times = zip(timeline.start, timeline.stop, timeline.nbytes, strict=True)
    for (start, stop, nbytes), line in zip(times, _lines(timeline.actions), strict=True):
        file.write(f"{float(start)!r} {float(stop)!r} {nbytes} {line}")


def loads(text: str, /, *, source: str = "schedule") -> Document:
    """Read the text of a schedule or of a timeline.

    `source` is named in errors, usually the file. Raises BadInput with the line, what was found
    there and what is expected.
    """
    return load(StringIO(text), source=source)


def load(lines: Iterable[str], /, *, source: str = "schedule") -> Document:
    """Read a schedule or a timeline from its lines, an open file say; see `loads`."""
    return _Reader(iter(lines), source).document()


def _headers(what: str, schedule: Schedule, count: int, platform: Platform | None) -> Iterator[str]:
    chain = schedule.chain
    yield f"# ckio {what} {VERSION if chain.varies else 1}\n"
    yield f"# actions {count}\n"
    yield f"# steps {chain.length}\n"
    for cost in COSTS:
        yield from _cost(cost, getattr(chain, cost))
    for level, keys in enumerate(schedule.stored):
        for key in sorted(keys, key=lambda key: (key.kind.value, key.step, key.name)):
            yield f"# stored {level} {key.kind.value} {key.step}{_suffix(key.name)}\n"
    if platform is not None:
        yield f"# platform {platform.digest()}\n"
        for line in platform.dumps().rstrip("\n").split("\n"):
            yield f"#| {line}".rstrip() + "\n"


def _cost(name: str, cost: float | PerStep) -> Iterator[str]:
    if not isinstance(cost, PerStep):
        yield f"# {name} {cost!r}\n"
        return
    yield f"# {name} per step\n"
    values = list(map(repr, cost))
    for start in range(0, len(values), _PER_LINE):
        yield f"#: {' '.join(values[start : start + _PER_LINE])}\n"


def _lines(actions: Actions) -> Iterator[str]:
    suffixes = [_suffix(name) for name in actions.names]
    for op, kind, level, begin, end, name in actions.rows():
        if op < WRITE:
            yield f"{_VERBS[op]} {begin} {end}\n"
        else:
            yield f"{_VERBS[op]} {_LETTERS[kind]} {begin} {level}{suffixes[name]}\n"


def _suffix(name: str) -> str:
    return f" {quote(name, safe='')}" if name else ""


def _name(words: list[str]) -> str:
    """The name that ends a line, or "" where it has none."""
    if len(words) > 1:
        raise ValueError
    return unquote(words[0], errors="strict") if words else ""


def _row(words: list[str], names: dict[str, int]) -> Row:
    """The row of one action; raises ValueError, KeyError or IndexError where it is none."""
    op = _OPS[words[0]]
    if op < WRITE:
        begin, end = int(words[1]), int(words[2])
        if not 0 <= begin < end < _STEPS or len(words) > 3:
            raise ValueError
        return op, 0, 0, begin, end, 0
    kind, step, level = _CODES[words[1]], int(words[2]), int(words[3])
    if not (0 <= step < _STEPS and 0 <= level < _LEVELS):
        raise ValueError
    return op, kind, level, step, 0, names.setdefault(_name(words[4:]), len(names))


class _Reader:
    """Reads one text, a line after the other, and knows which line it is at."""

    def __init__(self, lines: Iterator[str], source: str) -> None:
        self.lines = lines
        self.source = source
        self.number = 0
        self.times: Recorder | None = None
        self.numbers: dict[str, Any] = {}
        self.each = ""  # the cost whose values for each step may follow
        self.stored: list[tuple[int, Key]] = []
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
        announced = self.numbers.pop("actions", len(actions))
        if announced != len(actions):
            raise BadInput(
                f"{self.source}: {announced} actions announced, {len(actions)} follow; the file is"
                " cut off, or was edited: then correct its `# actions` line, or remove it"
            )
        timeline = None if self.times is None else self.times.timeline(actions)
        schedule = Schedule(self.chain(), actions, self.levels())
        return Document(schedule, self.platform(), timeline)

    def title(self) -> None:
        line = next(self.lines, "")
        self.number = 1
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
            if line.startswith("#"):
                self.keep_header(line)
                continue
            words = line.split()
            if not words:
                continue
            try:
                if self.times is not None:
                    self.keep_times(words)
                    words = words[3:]
                row = _row(words, names)
            except (ValueError, KeyError, IndexError):
                self.fail(line, self.form(words))
            yield row

    def keep_times(self, words: list[str]) -> None:
        start, stop, nbytes = float(words[0]), float(words[1]), int(words[2])
        if not (0 <= start <= stop < math.inf and 0 <= nbytes < _STEPS):
            raise ValueError
        assert self.times is not None
        self.times.add(start, stop, nbytes)

    def form(self, words: list[str]) -> str:
        """How a line of this verb is written."""
        verb = next((word for word in words if word in _OPS), None)
        prefix = "" if self.times is None else _TIMES
        if verb is None:
            return f"{prefix}one of {', '.join(_VERBS)}"
        return prefix + (_SPAN if _OPS[verb] < WRITE else _ACCESS).format(verb)

    def keep_header(self, line: str) -> None:
        if line.startswith("##"):
            return
        if line.startswith("#|"):
            self.toml.append(line[2:].strip("\r\n").removeprefix(" "))
            return
        if line.startswith("#:"):
            self.keep_values(line)
            return
        match line.split():
            case ["#", "stored", level, kind, step, *name]:
                self.keep_stored(line, level, kind, step, name)
            case ["#", "platform", digest]:
                self.digest = digest
            case ["#", "actions" | "steps" | "restart" | "tape" | "adjoint" as word, text]:
                self.keep_number(line, word, text, int)
            case ["#", "advance" | "record" | "reverse" as word, text]:
                self.keep_number(line, word, text, float)
            case ["#", word, "per", "step"] if word in COSTS and word not in self.numbers:
                self.each, self.numbers[word] = word, []
            case _:
                headers = ", ".join(("actions", "steps", *COSTS, "stored", "platform"))
                self.fail(line, f"one of the headers {headers} after `# `, or a comment after `##`")

    def keep_stored(self, line: str, level: str, kind: str, step: str, name: list[str]) -> None:
        try:
            number, key = int(level), Key(Kind(kind), int(step), _name(name))
        except ValueError:
            self.fail(line, _STORED)
        if not 0 <= number < _LEVELS:
            self.fail(line, _STORED)
        self.stored.append((number, key))

    def keep_number(self, line: str, word: str, text: str, number: type[int] | type[float]) -> None:
        least = 1 if word == "steps" else 0
        expected = f"`# {word}` once, with a{' whole' if number is int else ''} number >= {least}"
        try:
            value = number(text)
        except ValueError:
            self.fail(line, expected)
        if not least <= value < math.inf or word in self.numbers:
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
        if not self.each or not all(0 <= value < math.inf for value in values):
            self.fail(line, expected)
        self.numbers[self.each] += values

    def chain(self) -> Chain:
        missing = [word for word in ("steps", *COSTS) if word not in self.numbers]
        if missing:
            raise BadInput(f"{self.source}: headers are missing: `# {'`, `# '.join(missing)}`")
        try:
            return Chain(**self.numbers)
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
