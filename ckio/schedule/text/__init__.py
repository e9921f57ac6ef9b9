"""Schedules and timelines as text: one action a line, after headers that describe them.

    # ckio schedule 1               the kind of text, and the version of the format
    # actions 3                     the number of lines of actions; may be omitted
    # steps 1                       the chain: its steps, then seconds and bytes of each
    # advance 2.0
    # record per step               or, after this, a value for each step, in lines of any length;
    #: 2.0 2.5                      restart and adjoint have one more, that of x_n and a_n
    # ...
    # handed t                      the kinds of checkpoints that memory takes without a copy
    # tape_restarts 1               the tape of step i contains x_{i+1}
    # variables {"nbytes": ...}     the variables of a state, and what steps do to them, if single
    # ...                           variables are stored: see `text.reader`
    # stored 0 x 5                  a key stored on a level at the start: LEVEL KIND STEP [NAME]
    # overlap write_behind=1,read_ahead=0     the policy of the schedule, if there is one
    # platform 90ee62d04d6b8ac6     the digest of a platform, and the whole platform as TOML
    #| format = 1
    #| ...
    ## a comment
    record 0 1                      advance, record, reverse: BEGIN END
    write t 0 1                     write, read, discard: KIND STEP LEVEL [NAME]
    reverse 0 1

The text of a timeline has `START STOP NBYTES` before each action. A comment in its second line,
`## predicted` or `## measured`, gives its origin. Its transfers come after the actions, and
`# transfers` gives their number. A transfer is `transfer START STOP NBYTES`, then an access. Floats
are read back to the last bit. In a name, all characters except letters, digits and `_.-~` are
percent-encoded.

Version 2 adds values for each step, version 3 overlap, version 5 `handed`, version 6 variables, and
version 7 `record_only` and `tape_restarts`. A text has the oldest version that is sufficient.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from io import StringIO
from itertools import groupby
from typing import Final, TextIO
from urllib.parse import quote

from ckio.actions.columns import VERBS, WRITE, Actions
from ckio.actions.variables import Flow, Step, Variables
from ckio.errors import BadInput
from ckio.platform import Platform
from ckio.platform.chain import Chain, PerStep
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap
from ckio.schedule.text.reader import (
    LETTERS,
    TRANSFER,
    VERSION,
    Document,
    TextReader,
)
from ckio.schedule.timeline import Timeline

__all__ = ["VERSION", "Document", "dump", "dumps", "header_lines", "load", "loads"]

_PER_LINE: Final = 10
"""The number of values of single steps on one line."""


def dumps(
    schedule: Schedule,
    platform: Platform | None = None,
    timeline: Timeline | None = None,
    /,
    *,
    overlap: Overlap | None = None,
    origin: str = "",
) -> str:
    """Return the text of a schedule or, if one is given, of its timeline; `loads` reads it.

    >>> from ckio.actions import Record, Reverse
    >>> chain = Chain(steps=1, advance=2.0, record=2.0, reverse=3.0, restart=8, tape=8, adjoint=8)
    >>> text = dumps(Schedule(chain, [Record(0, 1), Reverse(0, 1)]))
    >>> print(*text.splitlines()[-2:], sep="; ")
    record 0 1; reverse 0 1
    >>> loads(text).schedule.chain == chain
    True
    """
    file = StringIO()
    dump(file, schedule, platform, timeline, overlap=overlap, origin=origin)
    return file.getvalue()


def dump(
    file: TextIO,
    schedule: Schedule,
    platform: Platform | None = None,
    timeline: Timeline | None = None,
    /,
    *,
    overlap: Overlap | None = None,
    origin: str = "",
) -> None:
    """Write the text of a schedule, or of its timeline, line by line.

    `overlap` is the policy of the timeline; None means that of the schedule. `origin` says whether
    the timeline is "predicted" or "measured". Raises BadInput if the actions of the timeline are
    not the first actions of the schedule.
    """
    overlap = schedule.overlap if overlap is None else overlap
    if timeline is None:
        file.writelines(_headers("schedule", schedule, platform, overlap=overlap))
        file.writelines(_lines(schedule.actions))
        return
    if timeline.actions != schedule.actions[: len(timeline)]:
        raise BadInput(
            "the timeline has other actions than those of the schedule; give the timeline of this"
            " schedule"
        )
    title, *headers = _headers("timeline", schedule, platform, timeline, overlap=overlap)
    file.writelines([title, *([f"## {origin}\n"] if origin else []), *headers])
    file.writelines(_timed(timeline))
    file.writelines(f"{TRANSFER} {line}" for line in _timed(timeline.transfers))


def loads(text: str, /, *, source: str = "schedule") -> Document:
    """Read the text of a schedule or of a timeline.

    `source` is the name of the text in errors, usually that of a file. Raises BadInput with the
    line, the text that was found there, and the text that is expected.
    """
    return load(StringIO(text), source=source)


def load(lines: Iterable[str], /, *, source: str = "schedule") -> Document:
    """Read a schedule or a timeline from its lines, for example from an open file; see `loads`."""
    return TextReader(iter(lines), source).document()


def _headers(
    what: str,
    schedule: Schedule,
    platform: Platform | None,
    timeline: Timeline | None = None,
    *,
    overlap: Overlap,
) -> Iterator[str]:
    chain, transfers = schedule.chain, 0 if timeline is None else len(timeline.transfers)
    yield f"# ckio {what} {_version(chain, moved=bool(overlap or transfers))}\n"
    yield f"# actions {len(schedule if timeline is None else timeline)}\n"
    if transfers:
        yield f"# transfers {transfers}\n"
    yield f"# steps {chain.length}\n"
    for name, cost in chain.costs.items():
        yield from _cost(name, cost)
    if chain.handed:
        yield f"# handed {' '.join(sorted(kind.value for kind in chain.handed))}\n"
    if chain.tape_restarts:
        yield "# tape_restarts 1\n"
    if chain.variables is not None:
        yield from header_lines(chain.variables)
    for level, keys in enumerate(schedule.stored):
        for key in sorted(keys, key=lambda key: (key.kind.value, key.step, key.name)):
            yield f"# stored {level} {key.kind.value} {key.step}{_suffix(key.name)}\n"
    if overlap:
        yield f"# overlap {overlap}\n"
    if platform is not None:
        yield f"# platform {platform.digest()}\n"
        for line in platform.dumps().rstrip("\n").split("\n"):
            yield f"#| {line}".rstrip() + "\n"


def header_lines(variables: Variables, /) -> Iterator[str]:
    """Yield the headers of a chain's variables."""
    about = {
        "nbytes": dict(variables.nbytes),
        "seed": sorted(variables.seed),
        "tape": sorted(variables.tape),
    }
    yield f"# variables {json.dumps(about)}\n"
    numbers = {step: number for number, step in enumerate(variables.different)}
    yield from (f"# step {json.dumps(_step(step))}\n" for step in numbers)
    if not isinstance(variables.steps, Step):
        runs = [[numbers[step], len(list(run))] for step, run in groupby(variables.steps)]
        for start in range(0, len(runs), _PER_LINE):
            yield f"# which {json.dumps(runs[start : start + _PER_LINE])}\n"


def _step(step: Step) -> dict[str, object]:
    """Return the arguments of a Step, without those that have their default."""
    flows = {"forward": step.forward, "record": step.record, "reverse": step.reverse}
    if step.record == step.forward:
        del flows["record"]
    given: dict[str, object] = {
        name: {word: sorted(names) for word, names in asdict(flow).items() if names}
        for name, flow in flows.items()
        if name != "reverse" or flow != Flow()
    }
    return given | ({"restored": sorted(step.restored)} if step.restored else {})


def _version(chain: Chain, *, moved: bool) -> int:
    """Return the oldest version that is sufficient; `moved` is true if there is overlap."""
    if chain.record_only is not None or chain.tape_restarts:
        return VERSION
    if chain.variables is not None:
        return 6
    return 5 if chain.handed else 3 if moved else 2 if chain.varies else 1


def _cost(name: str, cost: float | PerStep) -> Iterator[str]:
    if not isinstance(cost, PerStep):
        yield f"# {name} {cost!r}\n"
        return
    yield f"# {name} per step\n"
    values = list(map(repr, cost))
    for start in range(0, len(values), _PER_LINE):
        yield f"#: {' '.join(values[start : start + _PER_LINE])}\n"


def _timed(timeline: Timeline) -> Iterator[str]:
    times = zip(timeline.start, timeline.stop, timeline.nbytes, strict=True)
    for (start, stop, nbytes), line in zip(times, _lines(timeline.actions), strict=True):
        yield f"{float(start)!r} {float(stop)!r} {nbytes} {line}"


def _lines(actions: Actions) -> Iterator[str]:
    suffixes = [_suffix(name) for name in actions.names]
    for op, kind, level, begin, end, name in actions.rows():
        if op < WRITE:
            yield f"{VERBS[op]} {begin} {end}\n"
        else:
            yield f"{VERBS[op]} {LETTERS[kind]} {begin} {level}{suffixes[name]}\n"


def _suffix(name: str) -> str:
    return f" {quote(name, safe='')}" if name else ""
