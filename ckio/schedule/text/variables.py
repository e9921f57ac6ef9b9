"""The headers that say what the variables of a chain are, and what its steps do to them.

    # variable zeta 8192                each variable, and its bytes
    # variable Q 8192
    # seed zeta                         what the functional reads of x_n
    # tape-of zeta                      what tapes are made of
    # step 0 forward use: Q zeta out: zeta kill: zeta
    # step 0 record use: zeta out: zeta kill: zeta    where it is not as forward
    # step 0 reverse use: Q             where the adjoint step touches the state
    # step 0 restored zeta
    # step 1 forward
    # which 0*99 1                      for each step in order, which of these it is, and how often;
                                        left out where all are the same one

What is empty is left out, but for `forward`; lines of `which` follow each other.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final
from urllib.parse import quote, unquote

from ckio.actions.checks import check_line
from ckio.actions.flows import Flow, Step
from ckio.actions.variables import Variables
from ckio.errors import BadInput
from ckio.schedule.text.words import NAMES, STEPS, VARIED, VERSIONS

_SETS: Final = ("use:", "out:", "kill:")
_FLOWS: Final = ("forward", "record", "reverse")
_PER_LINE: Final = 10

FORMS: Final = {
    "variable": "`# variable NAME BYTES`, each name once, BYTES a whole number >= 0",
    "seed": "`# seed NAME ...` once",
    "tape-of": "`# tape-of NAME ...` once",
    "step": (
        f"`# step NUMBER FLOW use: NAME ... out: NAME ... kill: NAME ...`, FLOW one of"
        f" {', '.join(_FLOWS)}, what kill has in out, too; or `# step NUMBER restored NAME ...`;"
        " each once"
    ),
    "which": "`# which NUMBER[*COUNT] ...`, for steps in order the number of what they do",
}
"""The headers, and how each is written."""


def header_lines(variables: Variables) -> Iterator[str]:
    """The headers of a chain's variables; `Headers` reads them back."""
    for name, nbytes in variables.nbytes.items():
        yield f"# variable {_quoted(name)} {nbytes}\n"
    if variables.seed:
        yield f"# seed{_names(variables.seed)}\n"
    if variables.tape:
        yield f"# tape-of{_names(variables.tape)}\n"
    numbers = {step: number for number, step in enumerate(variables.different)}
    for step, number in numbers.items():
        yield from (f"# step {number} {line}\n" for line in _step(step))
    if not isinstance(variables.steps, Step):
        runs = [
            f"{numbers[step]}*{count}" if count > 1 else f"{numbers[step]}"
            for step, count in ((step, len(list(run))) for step, run in groupby(variables.steps))
        ]
        for start in range(0, len(runs), _PER_LINE):
            yield f"# which {' '.join(runs[start : start + _PER_LINE])}\n"


def _step(step: Step) -> Iterator[str]:
    yield f"forward{_flow(step.forward)}"
    if step.record != step.forward:
        yield f"record{_flow(step.record)}"
    if step.reverse != Flow():
        yield f"reverse{_flow(step.reverse)}"
    if step.restored:
        yield f"restored{_names(step.restored)}"


def _flow(flow: Flow) -> str:
    sets = zip(_SETS, (flow.use, flow.out, flow.kill), strict=True)
    return "".join(f" {word}{_names(names)}" for word, names in sets if names)


def _names(names: frozenset[str]) -> str:
    return "".join(f" {_quoted(name)}" for name in sorted(names))


def _quoted(name: str) -> str:
    return quote(name, safe="")


class Headers:
    """What the headers say, as they are read one by one."""

    def __init__(self) -> None:
        self._nbytes: dict[str, int] = {}
        self._names: dict[str, list[str]] = {}
        self._flows: dict[tuple[int, str], Flow] = {}
        self._restored: dict[int, list[str]] = {}
        self._runs: list[tuple[int, int]] = []

    def keep(self, header: str, words: Sequence[str]) -> None:
        """Take one in; raises ValueError where it is not as `FORMS` has it."""
        match header, words:
            case "variable", [name, nbytes] if (known := _unquoted(name)) not in self._nbytes:
                self._nbytes[known] = _number(nbytes)
            case (("seed" | "tape-of"), [_, *_]) if header not in self._names:
                self._names[header] = list(map(_unquoted, words))
            case "step", [number, "restored", _, *_] if _number(number) not in self._restored:
                self._restored[_number(number)] = list(map(_unquoted, words[2:]))
            case "step", [number, word, *rest] if (
                word in _FLOWS and (key := (_number(number), word)) not in self._flows
            ):
                self._flows[key] = _read_flow(rest)
            case "which", [_, *_]:
                self._runs += map(_run, words)
            case _:
                raise ValueError

    def variables(self, length: int) -> Variables | None:
        """The variables of a chain of this length, or None where no header says any.

        Raises BadInput where headers are missing, or contradict each other.
        """
        if not (self._nbytes or self._names or self._flows or self._restored or self._runs):
            return None
        count = len(self._nbytes)
        if count >= NAMES or length > VARIED or count * length > VERSIONS:
            raise BadInput(
                f"{count} variables over {length} steps; a text may have {NAMES - 1} variables,"
                f" {VARIED} steps with variables, and {VERSIONS} versions, one of each in each step"
            )
        numbers = {number for number, _ in self._flows} | {number for number, _ in self._runs}
        numbers |= self._restored.keys() | {0}
        steps = {number: self._step(number) for number in sorted(numbers)}
        total = sum(count for _, count in self._runs)
        if not self._runs and len(steps) > 1:
            raise BadInput(f"`# which` is missing: it says which of {len(steps)} each step is")
        if self._runs and total != length:
            raise BadInput(f"`# which` says it of {total} steps; the chain has {length}")
        each = [step for number, count in self._runs for step in [steps[number]] * count]
        seed, tape = (self._names.get(header, ()) for header in ("seed", "tape-of"))
        return Variables(self._nbytes, each or steps[0], seed, tape)

    def _step(self, number: int) -> Step:
        forward, record, reverse = (self._flows.get((number, word)) for word in _FLOWS)
        if forward is None:
            raise BadInput(f"`# step {number} forward` is missing")
        return Step(forward, record, reverse or Flow(), self._restored.get(number, ()))


def _read_flow(words: Sequence[str]) -> Flow:
    sets: dict[str, list[str]] = {}
    names: list[str] | None = None
    for word in words:
        if word in _SETS and word not in sets:
            names = sets[word] = []
        elif names is None:
            raise ValueError
        else:
            names.append(_unquoted(word))
    return Flow(*(sets.get(word, ()) for word in _SETS))


def _run(word: str) -> tuple[int, int]:
    number, star, count = word.partition("*")
    run = _number(number), _number(count) if star else 1
    if not run[1]:
        raise ValueError
    return run


def _number(word: str) -> int:
    number = int(word)
    if not 0 <= number < STEPS:
        raise ValueError
    return number


def _unquoted(word: str) -> str:
    if ":" in word or "*" in word:  # a set out of place; the writer encodes these
        raise ValueError
    try:
        return check_line("name", unquote(word, errors="strict"))
    except BadInput as error:
        raise ValueError from error
