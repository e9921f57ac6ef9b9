"""What a level and the computation cost each other where both go on at the same time.

The probe writes a checkpoint behind the computation, reads it ahead, and discards it; after each of
these come two stretches of steps, the first of which takes longer than the transfer. What the
program loses by it is what its own part in the access and the first stretch take beyond a copy in
memory and the second stretch, less what the same stretches differ by without overlap: an access
leaves other things in the caches. With nothing written behind, the program waits for each write:
what that takes beyond the same write without overlap is the price of handing it over.

Steps of the adjoint may lose less, or more: a second probe writes and discards between those. Reads
are not among them, as they would begin with the writes; what they cost is by their bytes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Final

import numpy as np

from ckio.actions import Action, Advance, Discard, Read, Record, Reverse, Write
from ckio.backends.base import Backend
from ckio.backends.ram import Ram
from ckio.calibrate.probe import Try, x
from ckio.calibrate.samples import Floats, Sample, seconds_of, typical
from ckio.calibrate.steps import BUDGET, MOST_BYTES, MakeModel
from ckio.chain import Chain
from ckio.columns import ADVANCE, DISCARD, READ, REVERSE, WRITE
from ckio.model import Model, sizes_of
from ckio.overlap import Overlap
from ckio.platforms import Affine, Level, Platform
from ckio.runner import run
from ckio.schedule import Schedule
from ckio.timeline import Timeline

_LONGER: Final = 1.5
"""Times a transfer: how long a stretch is at least, where the model has so many steps."""
_ROUNDS: Final = 8
"""Writes of one sweep of the adjoint, the most."""
_ALONE: Final = Overlap()
_BEHIND: Final = Overlap(1, 1)
_WAITING: Final = Overlap(0, 1)
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
    copies : tuple of Affine
        Seconds to copy a checkpoint to memory, and from there.
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
    copies: tuple[Affine, Affine]
    slots: int
    repeats: int

    def samples(self) -> Iterator[Sample]:
        """What transfers take beside the computation, and what it loses by each.

        Nothing, where the model has too few steps for a checkpoint and four stretches.
        """
        stretch = ceil(_LONGER * self.access / self.step)
        stretch = max(1, min(stretch, self.tried.steps // 8))
        checkpoints = min(self.slots, self.tried.steps // (4 * stretch))
        if not checkpoints:
            return
        actions, model = _actions(checkpoints, stretch), self.tried.make()
        policies = (_ALONE, _WAITING, _BEHIND)
        taken = self._taken(lambda: model, actions, self.tried.steps, policies)
        behind = taken[_BEHIND]
        for access, op in (("write_beside", WRITE), ("read_beside", READ)):
            each = np.concatenate([_transfers(timeline, op) for timeline in behind])
            if len(each):  # what is still in memory is read from there
                yield self._sample(access, self.tried.nbytes, each)
        yield from self._lost("hinders", ADVANCE, stretch, taken)
        waits, writes = (_own(taken[overlap]) for overlap in (_WAITING, _ALONE))
        yield self._sample("handoff", self.tried.nbytes, np.array([excess(waits, writes)]))
        yield from self._of_adjoint(stretch)

    def _of_adjoint(self, stretch: int) -> Iterator[Sample]:
        """What steps of the adjoint lose; nothing, where the tapes of four stretches are too large.

        Each sweep has a fresh model, and ends when its tape is spent.
        """
        tapes = MOST_BYTES // max(1, sizes_of(self.tried.make())["tape"])
        rounds = min(_ROUNDS, min(self.tried.steps, tapes) // (4 * stretch))
        if not rounds:
            return
        actions, steps = _adjoint(rounds, stretch), 4 * stretch * rounds
        taken = self._taken(self.tried.make, actions, steps, (_ALONE, _BEHIND))
        yield from self._lost("hinders_reverse", REVERSE, stretch, taken)

    def _lost(
        self, name: str, beside: int, stretch: int, taken: Mapping[Overlap, list[Timeline]]
    ) -> Iterator[Sample]:
        """What steps of a sort lose by an access with bytes, and by a discard."""
        write, read = self.copies
        copies = {WRITE: write, READ: read, DISCARD: Affine()}
        behind, alone = taken[_BEHIND], taken[_ALONE]
        for nbytes, ops in ((self.tried.nbytes, (WRITE, READ)), (0, (DISCARD,))):
            lost = [losses(behind, op, stretch, beside) - copies[op](nbytes) for op in ops]
            less = [losses(alone, op, stretch, beside, storing=False) for op in ops]
            found = excess(np.concatenate(lost), np.concatenate(less))
            yield self._sample(name, nbytes, np.array([found]))

    def _taken(
        self, make: MakeModel, actions: list[Action], steps: int, policies: Sequence[Overlap]
    ) -> Mapping[Overlap, list[Timeline]]:
        """Passes of each policy in turn, as many as there is time for."""
        taken: dict[Overlap, list[Timeline]] = {policy: [] for policy in policies}
        spent = 0.0
        while not taken[_BEHIND] or (len(taken[_BEHIND]) < self.repeats and spent < BUDGET):
            for overlap, timelines in taken.items():
                timelines.append(self._run(make(), actions, steps, overlap))
                spent += timelines[-1].makespan
        return taken

    def _run(self, model: Model, actions: list[Action], steps: int, overlap: Overlap) -> Timeline:
        nbytes = self.tried.nbytes
        chain = Chain(
            steps=steps,
            advance=0,
            record=0,
            reverse=0,
            restart=nbytes,
            tape=0,
            adjoint=0,
        )
        levels = Level(name=f"memory-of-{self.level}"), Level(name=self.level, backend="far")
        backends = [Ram(), self.backend]
        schedule = Schedule(chain, actions)
        return run(schedule, Platform(levels), model, backends, overlap=overlap)

    def _sample(self, access: str, nbytes: int, seconds: Floats) -> Sample:
        return Sample(
            level=self.level,
            access=access,
            nbytes=nbytes,
            seconds=typical(seconds),
            ratio=1.0,
            model=self.tried.own,
            each=tuple(seconds.tolist()),
        )


def _actions(checkpoints: int, stretch: int) -> list[Action]:
    """Checkpoints four stretches apart; then back, with two stretches after each access.

    It ends at x_0, where it began.
    """
    there, back = list[Action](), list[Action]()
    for begin in range(0, 4 * stretch * checkpoints, 4 * stretch):
        steps = [Advance(i, i + 1) for i in range(begin, begin + 4 * stretch)]
        there += [Write(x(begin), 1), *steps]
        gone: list[Action] = [Discard(x(begin), 1), *steps[2 * stretch :]] if begin else []
        back[:0] = [Read(x(begin), 1), *steps[: 2 * stretch], *gone]
    return [*there, *back, Read(x(0), 1), Discard(x(0), 1)]


def _adjoint(rounds: int, stretch: int) -> list[Action]:
    """A tape of all steps; then back, with two stretches after each write and each discard."""
    steps = 4 * stretch * rounds
    actions: list[Action] = [Record(0, steps)]
    for end in range(steps, 0, -4 * stretch):
        back = [Reverse(i - 1, i) for i in range(end, end - 4 * stretch, -1)]
        actions += [Write(x(steps), 1), *back[: 2 * stretch]]
        actions += [Discard(x(steps), 1), *back[2 * stretch :]]
    return actions


def _transfers(timeline: Timeline, op: int) -> Floats:
    """Seconds of the transfers of a sort."""
    moved = timeline.transfers
    assert moved is not None
    here = moved.actions.op == op
    return np.asarray((moved.stop - moved.start)[here])


def _own(timelines: list[Timeline]) -> Floats:
    """Seconds of the program for each write."""
    return np.concatenate([seconds_of(timeline, WRITE) for timeline in timelines])


def losses(
    timelines: list[Timeline], op: int, stretch: int, beside: int, *, storing: bool = True
) -> Floats:
    """By how much each stretch of steps `beside` such an access takes longer than the next one.

    With what the program does for the access itself, unless only its stretch is asked for.
    """
    found = [np.zeros(0)]
    for timeline in timelines:
        ops, end = timeline.actions.op, timeline.stop
        access = np.flatnonzero(ops == op)
        access = access[access + 2 * stretch < len(ops)]
        access = access[ops[access + 2 * stretch] == beside]
        begin = np.where(storing, np.concatenate(([0.0], end))[access], end[access])
        middle = end[access + stretch]
        found.append((middle - begin) - (end[access + 2 * stretch] - middle))
    return np.concatenate(found)


def excess(more: Floats, less: Floats, /) -> float:
    """How much more one is than the other, in the mean; 0 where that may be chance, or unknown."""
    if not len(more) or not len(less):
        return 0.0
    error = sqrt(sum(each.var() / max(1, len(each) - 1) for each in (more, less)))
    found = float(more.mean() - less.mean())
    return found if found > _SURE * error else 0.0
