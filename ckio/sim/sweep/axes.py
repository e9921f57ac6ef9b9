"""Axes of a sweep: quantities with their values, all combinations, and a summary of results."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import inf
from typing import Any, Final, TypeAlias

from ckio.errors import BadInput
from ckio.planners.base import Planner
from ckio.platform import Level, Platform, size
from ckio.platform.chain import SECONDS, SIZES, Chain
from ckio.platform.readable import did_you_mean
from ckio.schedule.policy import Policy, policy_of
from ckio.sim.ranks import Ranks
from ckio.sim.sweep.questions import Answer, Question

Value: TypeAlias = int | float | str | None
"""A number, a word, or None for infinity: an unlimited capacity, or no failures."""

NEVER_FILLS: Final = "unlimited"
NEVER_FAILS: Final = "never"
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _bytes(text: str) -> int:
    return size(text)


def _room(text: str) -> int | None:
    return None if text == NEVER_FILLS else size(text)


def _rate(text: str) -> int:
    """Return bytes per second; raises BadInput for 0."""
    rate = size(text.removesuffix("/s"))
    if not rate:
        raise BadInput("a bandwidth must be above 0")
    return rate


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise BadInput(f"{text!r} is not a number") from None
    if not (math.isfinite(seconds) and seconds >= 0):
        raise BadInput(f"{text!r} is not a finite number of at least 0")
    return seconds


def _mean_time(text: str) -> float | None:
    """Return the seconds between failures; None for "never". The text may have a unit."""
    if text == NEVER_FAILS:
        return None
    unit = _UNITS.get(text[-1:], 0)
    try:
        seconds = _seconds(text[:-1] if unit else text) * (unit or 1)
    except BadInput:
        raise BadInput(f"{text!r} is not a time, such as 90, 30m, 6h, 1d, or never") from None
    if not seconds:
        raise BadInput("the mean time between failures must be above 0")
    return seconds


def whole(text: str, /, *, least: int = 1) -> int:
    """Return a whole number of at least `least`; raises BadInput for any other text."""
    if not (text.isascii() and text.isdigit() and int(text[:19]) >= least):
        raise BadInput(f"{text!r} is not a whole number of at least {least}")
    return int(text)


def _slots(text: str) -> int:
    return whole(text, least=0)


def presence(text: str, /) -> str:
    """Return "on" or "off", for a level that is used or left out; raises BadInput."""
    if text not in ("on", "off"):
        raise BadInput(f"{text!r} is neither on nor off")
    return text


def _policy(text: str) -> str:
    policy_of(text.replace("/", ","))
    return text


Read: TypeAlias = Callable[[str], Value]

GLOBAL: Final[Mapping[str, Read]] = {
    "planner": str,
    "overlap": _policy,
    "ranks": whole,
    "mtbf": _mean_time,
    "steps": whole,
    "working_memory": _room,
    **dict.fromkeys(SECONDS, _seconds),
    **dict.fromkeys(SIZES, _bytes),
}
"""Quantities with a name of their own, and the functions that read their values."""

OF_LEVEL: Final[Mapping[str, Read]] = {
    "capacity": _room,
    "slots": _slots,
    "ratio": _seconds,
    **{f"{access}latency": _seconds for access in ("", "write.", "read.")},
    **{f"{access}bandwidth": _rate for access in ("", "write.", "read.")},
}
"""Quantities of a level, which are written as LEVEL.NAME, and the functions that read values."""


_MOST_VALUES: Final = 10_000
"""Maximum number of values of one axis."""
_MOST_POINTS: Final = 100_000
"""Maximum number of combinations of all axes."""

_PRESENCE: Final = "presence"
_WORDS: Final = ("planner", "overlap", _PRESENCE)
"""Quantities whose values are words, which have no order."""
_FLOATS: Final = (*SECONDS, "ratio", "latency", "mtbf")
"""Quantities that are not whole numbers."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One quantity that varies, and its values.

    Attributes
    ----------
    name : str
        The name as the user wrote it, for example `ram.capacity`.
    values : tuple of Value
        Bytes, bytes per second, seconds, numbers, words or None; all are different.
    knob : str
        The quantity without the name of the level; `presence` if `name` is the name of a level.
    level : str or None
        The level to which the quantity belongs, if any.
    """

    name: str
    values: tuple[Value, ...]
    knob: str
    level: str | None = None

    @property
    def endless(self) -> str:
        """The text for its value None."""
        return NEVER_FAILS if self.knob == "mtbf" else NEVER_FILLS

    @property
    def is_ordered(self) -> bool:
        """Whether its values are numbers."""
        return self.knob not in _WORDS

    @property
    def is_presence(self) -> bool:
        """Whether the quantity is the presence of a level."""
        return self.knob == _PRESENCE

    @property
    def touches(self) -> frozenset[str]:
        """The attributes that it sets; two axes must not set the same attribute."""
        access, _, what = self.knob.rpartition(".")
        if what in ("latency", "bandwidth"):
            words = {f"{each}.{what}" for each in ([access] if access else ["write", "read"])}
        else:
            words = {"capacity" if what == "slots" else what}
        return frozenset(f"{self.level}:{word}" for word in words)


def parse(text: str, platform: Platform, /) -> Axis:
    """Return the axis of a text `NAME=VALUES`.

    NAME is planner, overlap, ranks, mtbf, steps, working_memory, or a cost or size of the chain; or
    the name of a level for its presence (on, off); or LEVEL.capacity, .slots (for restart data),
    .ratio (stored bytes per byte), .bandwidth, .latency, .write.bandwidth and so on.

    VALUES are separated by commas. Each is one value, or LOW:HIGH:COUNT for COUNT numbers with
    equal ratios. In a policy for overlap, write / instead of the comma. For runs without failures,
    the mtbf is `never`. Raises BadInput with the name of the axis and the rule.

    >>> parse("steps=10:1000:3", Platform(())).values
    (10, 100, 1000)
    """
    name, equals, values = text.partition("=")
    if not equals or not name or not values:
        raise BadInput(f"axis {text!r} is not NAME=VALUE,... or NAME=LOW:HIGH:COUNT")
    knob, level, read = _meant(name, values, platform)
    try:
        chosen = [value for part in values.split(",") for value in _values(part, knob, read)]
    except BadInput as error:
        raise BadInput(f"axis {name}: {error}") from None
    if len(set(chosen)) < len(chosen):
        raise BadInput(f"axis {name}: {_twice(chosen)} is given twice")
    if len(chosen) > _MOST_VALUES:
        raise BadInput(f"axis {name}: {len(chosen)} values; the maximum is {_MOST_VALUES}")
    return Axis(name, tuple(chosen), knob, level)


def _twice(chosen: Sequence[Value]) -> Value:
    return next(value for at, value in enumerate(chosen) if value in chosen[:at])


def _meant(name: str, values: str, platform: Platform) -> tuple[str, str | None, Read]:
    """Return the quantity, its level, and the function that reads its values."""
    levels = [level.name for level in platform.levels]
    if name in levels and (name not in GLOBAL or {"on", "off"}.issuperset(values.split(","))):
        return _PRESENCE, name, presence
    if name in GLOBAL:
        return name, None, GLOBAL[name]
    for level in sorted(levels, key=len, reverse=True):
        knob = name.removeprefix(f"{level}.")
        if knob != name and knob in OF_LEVEL:
            return knob, level, OF_LEVEL[knob]
    known = [*GLOBAL, *levels, *(f"{level}.{knob}" for level in levels for knob in OF_LEVEL)]
    rule = (
        f"take {', '.join(GLOBAL)}, a level ({', '.join(levels) or 'this platform has none'}) to"
        f" leave it out, or LEVEL.{', .'.join(OF_LEVEL)}"
    )
    raise BadInput(
        f"axis {name}: there is no such thing to vary; {did_you_mean(name, known, rule=rule)}"
    )


def _values(part: str, knob: str, read: Read) -> list[Value]:
    """Return the values of a part of VALUES: one value, or those of a range."""
    if ":" not in part or knob in _WORDS:
        if not part:
            raise BadInput("a value is missing between two commas")
        return [read(part)]
    bounds = part.split(":")
    if len(bounds) != 3:
        raise BadInput(f"{part!r} is not LOW:HIGH:COUNT")
    low, high, count = read(bounds[0]), read(bounds[1]), whole(bounds[2])
    if not isinstance(low, int | float) or not isinstance(high, int | float) or not 0 < low < high:
        raise BadInput(f"{part!r}: a range must go from a number above 0 to a larger one")
    if not 2 <= count <= _MOST_VALUES:
        raise BadInput(f"{part!r}: a range must have 2 to {_MOST_VALUES} values")
    between = [low * (high / low) ** (at / (count - 1)) for at in range(1, count - 1)]
    numbers = [low, *between, high]
    return [*numbers] if knob.endswith(_FLOATS) else [*dict.fromkeys(map(round, numbers))]


@dataclass(frozen=True)
class Point:
    """A combination: one value of each axis, and its question, or the reason why it is invalid."""

    values: tuple[Value, ...]
    question: Question | str


def points(
    axes: Sequence[Axis], base: Question, planners: Mapping[str, Planner], /
) -> Iterator[Point]:
    """Yield all combinations of the values of all axes; the last axis varies fastest.

    `base` has all other quantities, and `planners` has every planner that occurs. Raises BadInput
    if two axes set the same attribute, if a value is invalid by itself, or if there are too many
    combinations. A combination that is invalid although its values are valid has a reason instead
    of a question.
    """
    _check(axes, base, planners)
    # The chain is changed first, because the size of slots depends on it. Levels are left out last.
    order = sorted(range(len(axes)), key=lambda at: _turn(axes[at]))
    for values in product(*(axis.values for axis in axes)):
        question: Question | str = base
        try:
            for at in order:
                question = changed(question, axes[at], values[at], planners)  # type: ignore[arg-type]
        except BadInput as error:
            question = str(error)
        yield Point(values, question)


def _turn(axis: Axis) -> int:
    return (axis.level is not None) + axis.is_presence


def _check(axes: Sequence[Axis], base: Question, planners: Mapping[str, Planner]) -> None:
    for at, axis in enumerate(axes):
        for other in axes[:at]:
            if axis.touches & other.touches:
                raise BadInput(f"axis {axis.name}: {other.name} sets the same; give one of them")
        for value in axis.values:
            try:
                changed(base, axis, value, planners)
            except BadInput as error:
                raise BadInput(f"axis {axis.name}: {error}") from None
    if (count := math.prod(len(axis.values) for axis in axes)) > _MOST_POINTS:
        raise BadInput(
            f"{count} combinations of values; the maximum is {_MOST_POINTS}: give fewer values"
        )


def changed(
    question: Question, axis: Axis, value: Value, planners: Mapping[str, Planner], /
) -> Question:
    """Return the question with one value of an axis; raises BadInput if it is not valid there."""
    if axis.level is not None:
        return replace(question, platform=_with_level(question, axis.level, axis.knob, value))
    new: dict[str, Any]
    match axis.knob:
        case "planner":
            new = {"planner": value, "call": planners[str(value)]}
        case "overlap":
            new = {"overlap": _overlap(str(value))}
        case "ranks":
            count: dict[str, Any] = {"count": value}
            new = {"ranks": replace(question.ranks or Ranks(count=1), **count)}
        case "mtbf":
            new = {"mtbf": math.inf if value is None else value}
        case "working_memory" as room:
            new = {"platform": replace(question.platform, **{room: value})}  # type: ignore[arg-type]
        case "steps" if isinstance(value, int):
            new = {"chain": question.chain.with_steps(value)}
        case cost:
            new = {"chain": replace(question.chain, **{cost: value})}  # type: ignore[arg-type]
    return replace(question, **new)


def _overlap(text: str) -> Policy:
    return policy_of(text.replace("/", ","))


def _with_level(question: Question, name: str, knob: str, value: Value) -> Platform:
    """Return the platform with one changed quantity of a level, or without this level."""
    platform = question.platform
    number = platform.number(name)
    levels = [*platform.levels]
    if knob == _PRESENCE:
        levels[number : number + 1] = [levels[number]] if value == "on" else []
    else:
        levels[number] = replace(
            levels[number], **_new(levels[number], knob, value, question.chain)
        )
    return replace(platform, levels=tuple(levels))


def _new(level: Level, knob: str, value: Value, chain: Chain) -> dict[str, Any]:
    """Return the new attributes of a level for a value of one quantity."""
    access, _, what = knob.rpartition(".")
    costs = {each: getattr(level, each) for each in ([access] if access else ["write", "read"])}
    match what, value:
        case "slots", int(slots):
            return {"capacity": slots * level.stored(chain.largest("restart"))}
        case "bandwidth", int(rate):
            return {each: replace(cost, per_byte=1 / rate) for each, cost in costs.items()}
        case "latency", float(seconds):
            return {each: replace(cost, latency=seconds) for each, cost in costs.items()}
        case _:
            return {what: value}


Words: TypeAlias = Callable[[Axis, Value], str]
"""Function that returns a value as text for people."""

_NOTHING: Final = 5e-4
"""Relative gain of makespan below which there is no difference: it would be printed as 0.0 %."""


def front(answers: Sequence[Answer], /) -> list[bool]:
    """Return, for each answer, whether it is on the Pareto front of memory and makespan.

    An answer is on the front if no other answer is better in one of the two and at least as good in
    the other. Answers without a plan, or without a known memory, are not on the front.
    """
    known = [
        (answer.memory, answer.makespan, place)
        for place, answer in enumerate(answers)
        if not answer.reason and answer.memory is not None
    ]
    chosen = [False] * len(answers)
    least, at = inf, -1
    for memory, makespan, place in sorted(known):
        if makespan < least or (makespan, memory) == (least, at):
            least, at = makespan, memory
            chosen[place] = True
    return chosen


def sentence(axis: Axis, answers: Sequence[Answer], words: Words, /) -> str:
    """Describe the effect of one axis; `answers` are those of its values, in the same order."""
    pairs = zip(axis.values, answers, strict=True)
    planned = [(value, answer.makespan) for value, answer in pairs if not answer.reason]
    if not planned:
        return f"no value of {axis.name} has a schedule: {answers[0].reason}"
    if len(planned) == 1:
        return f"only {axis.name} = {words(axis, planned[0][0])} has a schedule"
    if not axis.is_ordered:
        return _of_words(axis, planned, words)
    ordered = sorted(planned, key=lambda pair: inf if pair[0] is None else float(pair[0]))
    return _of_numbers(axis, ordered, words)


def _of_words(axis: Axis, planned: Sequence[tuple[Value, float]], words: Words) -> str:
    """Return a sentence with the best value and the second best."""
    (first, least), (second, more) = sorted(planned, key=lambda pair: pair[1])[:2]
    names = words(axis, first), words(axis, second)
    gain = _gain(more, least)
    if axis.is_presence:
        ways = ("with", "without") if first == "on" else ("without", "with")
        if gain < _NOTHING:
            return f"{axis.name} makes no difference"
        return f"{ways[0]} {axis.name}: {gain:.1%} less than {ways[1]} it"
    if gain < _NOTHING:
        return f"{axis.name}: {names[0]} is the best, and {names[1]} as fast"
    return f"{axis.name}: {names[0]} is the best, {gain:.1%} less than {names[1]}"


def _of_numbers(axis: Axis, ordered: Sequence[tuple[Value, float]], words: Words) -> str:
    """Return a sentence with the largest change, and the value after which nothing is gained."""
    steps = list(pairwise(ordered))
    (low, before), (high, after) = max(steps, key=lambda step: abs(_gain(step[0][1], step[1][1])))
    gain = _gain(before, after)
    if abs(gain) < _NOTHING:
        return f"{axis.name} makes no difference"
    span = f"from {words(axis, low)} to {words(axis, high)} of {axis.name}"
    text = f"{span}: {abs(gain):.1%} {'less' if gain > 0 else 'more'}"
    if len(steps) > 1:
        text += ", the largest step"
    least = min(seconds for _, seconds in ordered)
    best = next(value for value, seconds in ordered if _gain(seconds, least) < _NOTHING)
    if best != ordered[-1][0] and ordered[0][1] > least:
        text += f"; beyond {words(axis, best)} nothing is gained"
    return text


def _gain(before: float, after: float) -> float:
    """Return the relative gain from the first makespan to the second."""
    return 1 - after / before if before else 0.0
