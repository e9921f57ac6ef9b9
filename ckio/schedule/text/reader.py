"""The reader of the text format: its errors name the line, and the text that is expected there.

The headers of a chain with variables are JSON:

    # variables {"nbytes": {"zeta": 8192, "Q": 8192}, "seed": ["zeta"], "tape": ["zeta"]}
    # step {"forward": {"use": ["Q"], "out": ["zeta"], "kill": ["zeta"]}, "record": {...}}
    # step {"forward": {}}
    # which [[0, 99], [1, 1]]

The first one has the arguments of `Variables`. The others have the arguments of each different
`Step`, and for all steps in order the number of a step above and how many times it follows; `which`
is omitted if all steps are equal. Lines of `which` follow each other.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NoReturn
from urllib.parse import unquote

from ckio.actions import Key, Kind
from ckio.actions.checks import is_whole
from ckio.actions.columns import KIND_CODE, KINDS, VERBS, WRITE, Actions, Row
from ckio.actions.variables import Flow, Step, Variables
from ckio.errors import BadInput
from ckio.platform import Platform
from ckio.platform.chain import ALL_COSTS, COSTS, SIZES, Chain
from ckio.schedule import Schedule
from ckio.schedule.policy import SYNCHRONOUS, Overlap
from ckio.schedule.timeline import Timeline, TimelineRecorder

VERSION: Final = 7
"""The version of the format. The reader refuses newer versions."""

_KNOWN: Final = tuple(str(version) for version in range(1, VERSION + 1))

OPS: Final = {verb: op for op, verb in enumerate(VERBS)}
LETTERS: Final = tuple(kind.value for kind in KINDS)
CODES: Final = {kind.value: code for kind, code in KIND_CODE.items()}
TRANSFER: Final = "transfer"

ORIGINS: Final = ("predicted", "measured")
"""The possible comments in the second line of a timeline."""

STEPS: Final = 2**63
LEVELS: Final = 2**15
"""Steps and levels must be below these two numbers. All whole numbers must be below STEPS."""

LINE: Final = 1 << 20
"""The most characters of a line. The writer needs fewer, and a line is read into memory at one
time.
"""

VERSIONS: Final = 10_000_000
"""The most variables times steps: each variable has a version in each state, of about 60 bytes."""

_VARIABLES: Final = {
    "variables": '`# variables {"nbytes": {NAME: BYTES, ...}, "seed": [NAME, ...], "tape": [...]}`',
    "step": (
        '`# step {"forward": {"use": [NAME, ...], "out": [...], "kill": [...]}, "record": {...},'
        ' "reverse": {...}, "restored": [...]}`, what kill has in out, too'
    ),
    "which": "`# which [[NUMBER, COUNT], ...]`, for steps in order the number of what they do",
}
_COUNTS: Final = ("actions", "transfers", "steps")
_WHOLE: Final = (*_COUNTS, *SIZES)
_KINDS: Final = f"one of {', '.join(LETTERS)}"
FORMS: Final = {
    **{
        word: f"`# {word}` once, with a{' whole' * (word in _WHOLE)} number"
        f" >= {int(word == 'steps')}"
        for word in (*_COUNTS, *ALL_COSTS)
    },
    **_VARIABLES,
    "stored": f"`# stored LEVEL KIND STEP [NAME]`, KIND {_KINDS}",
    "overlap": "`# overlap write_behind=N,read_ahead=N[,horizon=SECONDS]`, N may be all",
    "handed": f"`# handed KIND ...`, each {_KINDS}",
    "tape_restarts": "`# tape_restarts 1`",
}
"""The headers, and the form of each."""
_HEADERS: Final = ", ".join((*_COUNTS, *ALL_COSTS, *_VARIABLES, "stored", "overlap", "platform"))
_ANY: Final = f"one of the headers {_HEADERS} after `# `, or a comment after `##`"


class VariableHeaders:
    """The headers of variables in a text, read one by one."""

    def __init__(self) -> None:
        self._about: dict[str, Any] = {}
        self._steps: list[Step] = []
        self._runs: list[tuple[int, int]] = []

    def keep(self, header: str, text: str) -> None:
        """Read one header; raise an error if it does not have the form in `_VARIABLES`."""
        given = json.loads(text)
        match header:
            case "variables" if not self._about:
                self._about = dict(**given)
            case "step":
                self._steps.append(_step(**given))
            case "which":
                self._runs += [(_number(number), _number(count)) for number, count in given]
            case _:
                raise ValueError

    def variables(self, length: int) -> Variables | None:
        """Return the variables of a chain of this length, or None without headers of variables.

        Raises BadInput if headers are missing, or if they contradict each other.
        """
        if not (self._about or self._steps or self._runs):
            return None
        total, steps = sum(count for _, count in self._runs), self._steps
        if not steps or max((number for number, _ in self._runs), default=0) >= len(steps):
            raise BadInput("a `# step` is missing: there must be one for each number in `# which`")
        if not self._runs and len(steps) > 1:
            raise BadInput(f"`# which` is missing: it says which of {len(steps)} each step is")
        if self._runs and total != length:
            raise BadInput(f"`# which` describes {total} steps; the chain has {length}")
        if (count := max(1, len(self._about.get("nbytes", ())))) * length > VERSIONS:
            raise BadInput(
                f"{count} variables over {length} steps; a text may have {VERSIONS} versions of"
                " variables, one of each variable in each step: correct `# steps`, or store"
                " variables in groups (Variables.together)"
            )
        each = [step for number, count in self._runs for step in [steps[number]] * count]
        return _variables(each or steps[0], **self._about)


def _variables(
    steps: Step | list[Step],
    nbytes: Mapping[str, int] = MappingProxyType({}),
    seed: Iterable[str] = (),
    tape: Iterable[str] = (),
) -> Variables:
    return Variables(nbytes, steps, seed, tape)


def _step(restored: Iterable[str] = (), **flows: Mapping[str, Any]) -> Step:
    return Step(**{name: Flow(**flow) for name, flow in flows.items()}, restored=restored)


def _number(number: object) -> int:
    if not is_whole(number) or number < 0:
        raise ValueError
    return int(number)


_SPAN: Final = "`{} BEGIN END`, whole numbers, 0 <= BEGIN < END"
_ACCESS: Final = f"`{{}} KIND STEP LEVEL [NAME]`, KIND {_KINDS}"
_TIMES: Final = "`START STOP NBYTES` with 0 <= START <= STOP, then "


@dataclass(frozen=True)
class Document:
    """The contents of a text.

    Attributes
    ----------
    schedule : Schedule
        The schedule with its policy of overlap. For a timeline, only the part that has times, with
        the policy of the timeline.
    platform : Platform or None
        The platform of the schedule, if the text contains it.
    timeline : Timeline or None
        The timeline; None if the text is a schedule.
    origin : str
        "predicted" or "measured", from the comment of a timeline; "" without this comment.
    """

    schedule: Schedule
    platform: Platform | None = None
    timeline: Timeline | None = None
    origin: str = ""


def _name(words: list[str]) -> str:
    """Return the name at the end of a line, or "" if there is none."""
    if len(words) > 1:
        raise ValueError
    return unquote(words[0], errors="strict") if words else ""


def _row(words: list[str], names: dict[str, int]) -> Row:
    """Return the row of an action; raise ValueError, KeyError or IndexError if it is not valid."""
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


def _quantity(word: str, text: str, /, *, least: int = 0) -> int | float:
    """Return the number of a header, in seconds or whole; raise ValueError if it is not valid."""
    whole = word in _WHOLE
    value = int(text) if whole else float(text)
    if not least <= value < (STEPS if whole else math.inf):
        raise ValueError
    return value


def _keep_times(recorder: TimelineRecorder, words: list[str]) -> None:
    start, stop, nbytes = float(words[0]), float(words[1]), int(words[2])
    if not (0 <= start <= stop < math.inf and 0 <= nbytes < STEPS):
        raise ValueError
    recorder.add(start, stop, nbytes)


class TextReader:
    """Reads one text line by line, and counts the lines for its errors."""

    def __init__(self, lines: Iterator[str], source: str) -> None:
        self.lines = lines
        self.source = source
        self.number = 0
        self.times: TimelineRecorder | None = None
        self.moved, self.moves = TimelineRecorder(), list[Row]()  # the transfers
        self.numbers: dict[str, Any] = {}
        self.each = ""  # the cost whose values for each step may follow
        self.variables = VariableHeaders()
        self.handed, self.tape_restarts = frozenset[Kind](), False
        self.stored: list[tuple[int, Key]] = []
        self.overlap = SYNCHRONOUS
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
        self.check_announced("actions", len(actions))
        self.check_announced("transfers", len(self.moves))
        timeline = None
        if self.times is not None:
            moved = self.moved.timeline(Actions.of_rows(self.moves, names)) if self.moves else None
            timeline = self.times.timeline(actions, moved)
        schedule = Schedule(self.chain(), actions, self.levels(), overlap=self.overlap)
        return Document(schedule, self.platform(), timeline, self.origin)

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
                if version not in _KNOWN:
                    self.fail(line, f"version {VERSION} at most; read it with a newer ckio")
                self.times = TimelineRecorder() if what == "timeline" else None
            case _:
                self.fail(line, f"`# ckio schedule {VERSION}` or `# ckio timeline {VERSION}`")

    def rows(self, names: dict[str, int]) -> Iterator[Row]:
        """Yield the rows of the actions, and keep the headers between them."""
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
        """Return the form of a line with this verb."""
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
        """Take in a line that begins with `#`."""
        if line.startswith("##"):
            self.keep_origin(line[2:].strip())
        elif line.startswith("#|"):
            self.toml.append(line[2:].strip("\r\n").removeprefix(" "))
        elif line.startswith("#:"):
            self.keep_values(line)
        else:
            mark, *words = line.split()
            header = words[0] if words else ""
            try:
                if header in _VARIABLES:
                    self.variables.keep(header, line.partition(header)[2])
                    return
                known = mark == "#" and self.keep(words)
            except (BadInput, ValueError, TypeError, AttributeError, RecursionError):
                self.fail(line, FORMS[header])
            if not known:
                self.fail(line, _ANY)

    def keep(self, words: list[str]) -> bool:
        """Read a header, or return False; raise an error if its form is not that in `FORMS`."""
        match words:
            case ["stored", level, kind, step, *name]:
                number, key = int(level), Key(Kind(kind), int(step), _name(name))
                if not (0 <= number < LEVELS and key.step < STEPS):
                    raise ValueError
                self.stored.append((number, key))
            case ["overlap", policy]:
                self.overlap = Overlap.parse(policy)
            case ["handed", *letters]:
                self.handed = frozenset(map(Kind, letters))
            case ["tape_restarts", "1"]:
                self.tape_restarts = True
            case ["platform", digest]:
                self.digest = digest
            case [word, text] if word in (*_COUNTS, *ALL_COSTS):
                if word in self.numbers:
                    raise ValueError
                self.numbers[word] = _quantity(word, text, least=int(word == "steps"))
            case [word, "per", "step"] if word in ALL_COSTS and word not in self.numbers:
                self.each, self.numbers[word] = word, []
            case _:
                return False
        return True

    def keep_origin(self, comment: str) -> None:
        """Read the comment that says whether a timeline is predicted or measured."""
        if self.number == 2 and self.times is not None and comment in ORIGINS:
            self.origin = comment

    def keep_values(self, line: str) -> None:
        whole = "whole " * (self.each in SIZES)
        expected = f"`#: VALUE ...`, {whole}numbers >= 0, after `# COST per step`"
        if not self.each:
            self.fail(line, expected)
        try:
            self.numbers[self.each] += [_quantity(self.each, word) for word in line[2:].split()]
        except ValueError:
            self.fail(line, expected)

    def chain(self) -> Chain:
        missing = [word for word in ("steps", *COSTS) if word not in self.numbers]
        if missing:
            raise BadInput(f"{self.source}: headers are missing: `# {'`, `# '.join(missing)}`")
        try:
            variables = self.variables.variables(self.numbers["steps"])
            declared: Any = {"handed": self.handed, "tape_restarts": self.tape_restarts}
            return Chain(**self.numbers, variables=variables, **declared)
        except (BadInput, TypeError) as error:
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
