"""One question, asked of many machines, chains and planners that differ by design.

`parse` reads what varies, `points` spans all combinations, `sweep` plans and prices each on every
core, `front` says which are the best, and `sentence` what one axis changes.
"""

from ckio.sim.sweep.axes import Axis, Point, Value, front, parse, points, sentence
from ckio.sim.sweep.questions import Answer, Expect, Question, Use, sweep

__all__ = [
    "Answer",
    "Axis",
    "Expect",
    "Point",
    "Question",
    "Use",
    "Value",
    "front",
    "parse",
    "points",
    "sentence",
    "sweep",
]
