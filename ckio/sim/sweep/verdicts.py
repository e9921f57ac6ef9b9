"""Which answers are the best, and what a sweep comes to in a sentence."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf
from typing import Final, TypeAlias

from ckio.sim.sweep.answers import Answer
from ckio.sim.sweep.axes import Axis
from ckio.sim.sweep.values import Value

Words: TypeAlias = Callable[[Axis, Value], str]
"""A value as a person writes it."""

_NOTHING: Final = 5e-4
"""The part of a makespan below which a sentence says that nothing is gained: 0.0 %, printed."""


def front(answers: Sequence[Answer], /) -> list[bool]:
    """Whether no other answer has both less memory and less makespan, one of them really less.

    What has no plan, or no known memory, is not on it.
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
    """What one axis comes to; `answers` are those of its values, in their order."""
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
    """The best of several, and the next."""
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
    """The step that changes most, and from where on nothing changes for the better."""
    steps = list(pairwise(ordered))
    (low, before), (high, after) = max(steps, key=lambda step: abs(_gain(step[0][1], step[1][1])))
    gain = _gain(before, after)
    if abs(gain) < _NOTHING:
        return f"{axis.name} makes no difference"
    span = f"from {words(axis, low)} to {words(axis, high)} of {axis.name}"
    found = f"{span}: {abs(gain):.1%} {'less' if gain > 0 else 'more'}"
    if len(steps) > 1:
        found += ", the largest step"
    least = min(seconds for _, seconds in ordered)
    best = next(value for value, seconds in ordered if _gain(seconds, least) < _NOTHING)
    if best != ordered[-1][0] and ordered[0][1] > least:
        found += f"; beyond {words(axis, best)} nothing is gained"
    return found


def _gain(before: float, after: float) -> float:
    """How much less the second is, as a part of the first."""
    return 1 - after / before if before else 0.0
