"""How many ticks are one step: as many as the tape has room for, by what the first ones take."""

import time
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Literal, TypeVar

from ckio.actions.checks import as_float, is_whole
from ckio.errors import BadInput
from ckio.model import sizes_of
from ckio.platform.chain import Chain
from ckio.programs.interface import begin
from ckio.programs.model import ProgramModel
from ckio.programs.protocol import Program
from ckio.programs.pulling import rate

S = TypeVar("S")

Base = int | Literal["auto"]

MEMORY: Final = 256 << 20
"""Bytes that a tape may take if nothing else is said."""

_PROBE: Final = 64
"""Ticks by which a program is judged."""

_FEW: Final = 8
"""Ticks that are taped where the base is given: enough to see most of what cannot be."""

_MOST: Final = 1 << 40
"""Ticks of a step at the most, where a tick takes nothing."""

_BACK: Final = 4.0
"""Seconds to take a tick back, in those of running it: roughly, for who plans by costs."""


@dataclass(frozen=True)
class Sizing:
    """The ticks of a step, and what else the first ones told.

    Attributes
    ----------
    base : int
        Ticks of a step.
    seconds : float
        Of one tick, roughly.
    ticks : int or None
        Of the whole program, where they were no more than were tried.
    """

    base: int
    seconds: float
    ticks: int | None

    def chain(self, model: ProgramModel[Any], steps: int | None, /) -> Chain:
        """The chain of this model, with costs that are good enough to plan by."""
        forward, sizes = self.base * self.seconds, sizes_of(model)
        return Chain(steps=steps, advance=forward, record=0.0, reverse=_BACK * forward, **sizes)


def sizing(p: Program[S], x: Any, base: Base, memory: float, /) -> Sizing:
    """Try some ticks, with a tape too, so that what cannot be taped is known; raises BadInput."""
    room = as_float(memory)
    if room is None or not room > 0:
        raise BadInput(f"checkpoint_vjp: memory = {memory!r}; it must be bytes above 0")
    if not (base == "auto" or (is_whole(base) and base >= 1)):
        raise BadInput(
            f'checkpoint_vjp: base = {base!r}; it must be a whole number of ticks, or "auto"'
        )
    start = begin(p, x)
    before = time.perf_counter()
    _, ticks, finished = p.advance(start, _PROBE)
    seconds = (time.perf_counter() - before) / max(1, ticks)
    if finished:
        return Sizing(max(1, ticks) if base == "auto" else int(base), seconds, ticks)
    if base != "auto":
        rate(p, start, min(int(base), _FEW))
        return Sizing(int(base), seconds, None)
    tape = _tried(p, start, ticks, room)
    return Sizing(int(min(max(1.0, room / tape if tape else inf), _MOST)), seconds, None)


def _tried(p: Program[S], start: S, most: int, room: float) -> float:
    """Bytes of tape a tick, by as many of the first ones as there is room for."""
    ticks, found = 1, rate(p, start, 1)
    while ticks < most and 2 * ticks * found <= room:
        ticks = min(2 * ticks, most)
        found = rate(p, start, ticks)
    return found
