"""What if: one question asked of many machines, chains and planners that differ by design.

`axes` say what varies, and `points` put them together; `answers` plan each and price it,
`processes` does so on every core, and `verdicts` say which are the best and what it comes to.
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
