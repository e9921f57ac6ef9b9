"""What if: one question asked of many machines, chains and planners that differ by design.

`axes` say what varies, and `points` put them together; `answers` plan each and price it,
`processes` does so on every core, and `verdicts` say which are the best and what it comes to.
"""

from ckio.sim.sweep.answers import Answer, Expect, Question, Use
from ckio.sim.sweep.axes import Axis, Point, parse, points
from ckio.sim.sweep.processes import sweep
from ckio.sim.sweep.values import Value
from ckio.sim.sweep.verdicts import front, sentence

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
