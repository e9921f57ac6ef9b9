"""Sweeps: plan and predict many combinations of machines, chains and planners.

`parse` reads an axis, that is, a quantity with its values. `points` yields all combinations of the
values. `sweep` plans each of them and computes its costs, on all cores. `front` selects the best
combinations, and `sentence` describes the effect of one axis.
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
