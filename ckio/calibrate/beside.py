"""What a level and the computation cost each other where both go on at the same time.

The probe writes a checkpoint behind the computation, or reads it ahead, at the beginning of every
other stretch of steps; each stretch takes longer than the transfer. What the program loses by it is
what its own part in the access and the stretch take beyond a copy in memory and the stretch after,
less what the same stretches differ by without overlap: an access leaves other things in the caches.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Final

import numpy as np

from ckio.actions import Action, Advance, Discard, Read, Write
from ckio.backends.base import Backend
from ckio.backends.ram import Ram
from ckio.calibrate.probe import Try, x
from ckio.calibrate.samples import Floats, Sample, typical
from ckio.calibrate.steps import BUDGET
from ckio.chain import Chain
from ckio.columns import ADVANCE, READ, WRITE
from ckio.overlap import Overlap
from ckio.platforms import Affine, Level, Platform
from ckio.runner import run
from ckio.schedule import Schedule
from ckio.timeline import Timeline

_LONGER: Final = 1.5
"""Times a transfer: how long a stretch is at least, where the model has so many steps."""
_BESIDE: Final = Overlap(1, 1)
_SURE: Final = 2.0
"""Standard errors by which a loss must differ from none."""


@dataclass(frozen=True)
class Beside:
    """A level behind memory, with the checkpoints of one model.

    Attributes
    ----------
    level : str
        Its name.
    backend : Backend
        Open and empty.
    tried : Try
        The model.
    step, access : float
        Seconds of one of its steps, and of the longest access to the level.
    copy : Affine
        Seconds to copy a checkpoint in memory.
    slots : int
        The most checkpoints that the level holds.
    repeats : int
        The most passes.
    """

    level: str
    backend: Backend
    tried: Try
    step: float
    access: float
    copy: Affine
    slots: int
    repeats: int

    def samples(self) -> Iterator[Sample]:
        """What transfers take beside the computation, and what it loses by each.

        Nothing, where the model has too few steps for a transfer and two stretches.
        """
        stretch = ceil(_LONGER * self.access / self.step)
        stretch = max(1, min(stretch, self.tried.steps // 4))
        stretches = min(self.slots, self.tried.steps // (2 * stretch))
        if not stretches:
            return
        actions, model = _actions(stretches, stretch), self.tried.make()
        alone, beside, spent = list[Timeline](), list[Timeline](), 0.0
        while not alone or (len(alone) < self.repeats and spent < BUDGET):
            for timelines, overlap in ((alone, Overlap()), (beside, _BESIDE)):
                timelines.append(self._run(model, actions, overlap))
                spent += timelines[-1].makespan
        for access, op in (("write_beside", WRITE), ("read_beside", READ)):
            taken = np.concatenate([_taken(timeline, op) for timeline in beside])
            if len(taken):  # what is still in memory is read from there
                yield self._sample(access, taken)
        copies = self.copy(self.tried.nbytes)
        lost = losses(beside, stretch) - copies, losses(alone, stretch, storing=False)
        yield self._sample("hinders", np.array([max(0.0, excess(*lost))]))

    def _run(self, model: object, actions: list[Action], overlap: Overlap) -> Timeline:
        nbytes = self.tried.nbytes
        sizes = {"restart": nbytes, "tape": 0, "adjoint": 0}
        chain = Chain(steps=self.tried.steps, advance=0, record=0, reverse=0, **sizes)
        levels = Level(name=f"memory-of-{self.level}"), Level(name=self.level, backend="far")
        backends = [Ram(), self.backend]
        schedule = Schedule(chain, actions)
        return run(schedule, Platform(levels), model, backends, overlap=overlap)  # type: ignore[arg-type]

    def _sample(self, access: str, seconds: Floats) -> Sample:
        return Sample(
            level=self.level,
            access=access,
            nbytes=self.tried.nbytes,
            seconds=typical(seconds),
            ratio=1.0,
            model=self.tried.own,
            each=tuple(seconds.tolist()),
        )


def _actions(stretches: int, stretch: int) -> list[Action]:
    """A checkpoint before every other stretch; then back, reading each, and forward from it.

    It ends at x_0, where it began.
    """
    there, back = list[Action](), list[Action]()
    for begin in range(0, 2 * stretch * stretches, 2 * stretch):
        steps = [Advance(i, i + 1) for i in range(begin, begin + 2 * stretch)]
        there += [Write(x(begin), 1), *steps]
        gone = [Discard(x(begin), 1)] if begin else []
        back[:0] = [Read(x(begin), 1), *gone, *steps]
    return [*there, *back, Read(x(0), 1), Discard(x(0), 1)]


def _taken(timeline: Timeline, op: int) -> Floats:
    """Seconds of the transfers of a sort."""
    moved = timeline.transfers
    assert moved is not None
    here = moved.actions.op == op
    return np.asarray((moved.stop - moved.start)[here])


def losses(timelines: list[Timeline], stretch: int, *, storing: bool = True) -> Floats:
    """By how much each stretch after an access takes longer than the next one.

    With what the program does for the access itself, unless only its stretch is asked for.
    """
    losses = []
    for timeline in timelines:
        access = np.flatnonzero(np.isin(timeline.actions.op, (WRITE, READ)))[:-1]
        steps = np.flatnonzero(timeline.actions.op == ADVANCE)
        first = steps[np.searchsorted(steps, access)]
        end = timeline.stop
        begin = np.where(storing, np.concatenate(([0.0], end))[access], end[first - 1])
        middle = end[first + stretch - 1]
        losses.append((middle - begin) - (end[first + 2 * stretch - 1] - middle))
    return np.concatenate(losses)


def excess(more: Floats, less: Floats) -> float:
    """How much more one is than the other, in the mean; 0 where that may be chance."""
    error = sqrt(sum(each.var() / max(1, len(each) - 1) for each in (more, less)))
    excess = float(more.mean() - less.mean())
    return excess if excess > _SURE * error else 0.0
