"""Measure how concurrent transfers and computation slow each other down.

The probe consists of two short adjoint computations: one stores all its restart data on the level,
the other all its tapes. Each is performed without overlap, with transfers in the background, and
such that the program waits for each write. Their times are compared action by action. With
transfers in the background, the computation of an action takes longer by

    overhead + sum over writes, reads, discards: share * (latency + per_byte * bytes)

where share is the fraction of a transfer that is concurrent with the action. The coefficients are a
least-squares fit to all such actions of all passes. Therefore each kind of access gets its own
loss, also if several transfers are concurrent with one step. Two other quantities are measured
directly: the program's own part of a write or read, and the additional time of waiting for a write
compared with a write without overlap.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Action, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.columns import DISCARD, KINDS, READ, WRITE, Actions
from ckio.backends.base import Backend
from ckio.calibrate.probe import BUDGET, MOST_BYTES, Workload
from ckio.calibrate.samples import Floats, Sample, durations, later, typical
from ckio.model import sizes_of
from ckio.planners.binomial import revolve
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.runner import run
from ckio.runner.reproducible import unchecked
from ckio.runner.space import memory_for
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap
from ckio.schedule.timeline import Timeline

_ALONE: Final = Overlap()
_WAITING: Final = Overlap(0, 1)

_TICK: Final = 1e-9
"""Minimum seconds of a transfer."""
_PASSES: Final = 40
"""Maximum number of passes with each policy."""
_PER_SLOT: Final = 4
"""Steps per slot; with this number, most slots are also written in the reverse sweep."""

_MOVED: Final = {"write": WRITE, "read": READ}
_KINDS: Final = (Kind.RESTART, Kind.TAPE)

Taken = Mapping[Overlap, list[Timeline]]
"""The passes of each policy."""


@dataclass(frozen=True)
class OverlapProbe:
    """A probe of concurrent transfers between memory and one level, with one model's checkpoints.

    Attributes
    ----------
    level : str
        The name of the level.
    backend : Backend
        The open and empty level.
    workload : Workload
        The model.
    slots : int
        Maximum number of checkpoints on the level.
    budget : float
        Seconds after which no further pass is made.
    """

    level: str
    backend: Backend
    workload: Workload
    slots: int
    budget: float = BUDGET

    def samples(self) -> Iterator[Sample]:
        """Measure the seconds of concurrent transfers, and the loss of the computation by each."""
        given = sizes_of(self.workload.make())
        sizes = {Kind.RESTART: given["restart"], Kind.TAPE: given["tape"]}
        taken = self._taken(list(self._schedules()))
        overhead, losses = lost(list(_pairs(taken)), sizes)
        behind, alone = (
            [timeline for passes in taken for timeline in passes[overlap]]
            for overlap in (self._behind, _ALONE)
        )
        yield self._sample("overhead", 0, overhead)
        if len(mine := own(behind, DISCARD)):  # the program's own part has no cost of its own
            yield self._sample("discard_hinders", 0, losses[DISCARD](0) + typical(mine))
        for (access, op), kind in product(_MOVED.items(), _KINDS):
            transfers = [_of(timeline.transfers, op, kind) for timeline in behind]
            if not any(map(len, transfers)):
                continue
            nbytes = sizes[kind]
            yield self._sample(f"{access}_hinders", nbytes, losses[op](nbytes))
            beside = np.concatenate([each.stop - each.start for each in transfers])
            yield self._sample(f"{access}_beside", nbytes, *beside)
            if len(mine := own(behind, op, kind)):
                yield self._sample(f"{access}_own", nbytes, *mine)
            if kind is Kind.TAPE:  # `Probe` measures only restart data
                yield self._alone(access, op, kind, nbytes, alone)
        waits, writes = (own(taken[0][overlap], WRITE) for overlap in (_WAITING, _ALONE))
        if len(waits):
            handoff = max(0.0, typical(waits) - typical(writes))
            yield self._sample("handoff", sizes[Kind.RESTART], handoff)

    @property
    def _behind(self) -> Overlap:
        """Return the policy with as many concurrent transfers as `MOST_BYTES` of memory allow."""
        most = max(1, MOST_BYTES // (2 * max(1, self.workload.nbytes)))
        return Overlap(most, most)

    def _schedules(self) -> Iterator[tuple[Schedule, Sequence[Overlap]]]:
        """Yield schedules with their policies; one with tapes if they fit the level."""
        sizes = sizes_of(self.workload.make())
        chain = Chain(steps=self.workload.steps, advance=1, record=1, reverse=1, **sizes)
        slots = min(self.slots, max(1, chain.length // _PER_SLOT))
        platform = self._platform(slots * chain.restart)
        yield revolve(chain, platform, on=self.level), (_ALONE, _WAITING, self._behind)
        if 0 < (chain.length - 1) * chain.tape <= self.slots * chain.restart:
            yield Schedule(chain, _with_tapes(chain.length)), (_ALONE, self._behind)

    def _platform(self, capacity: int | None = None) -> Platform:
        memory = Level(name=f"memory-of-{self.level}")
        return Platform((memory, Level(name=self.level, capacity=capacity, backend="far")))

    def _taken(self, schedules: Sequence[tuple[Schedule, Sequence[Overlap]]]) -> list[Taken]:
        """Perform as many passes of each schedule as the time budget allows."""
        taken: list[Taken] = [{overlap: [] for overlap in policies} for _, policies in schedules]
        memory = memory_for(self.workload.make())
        passes, spent = 0, 0.0
        while not passes or (passes < _PASSES and spent < self.budget):
            for (schedule, _), each in zip(schedules, taken, strict=True):
                for overlap, timelines in each.items():
                    backends, model = [memory, self.backend], unchecked(self.workload.make())
                    timeline = run(schedule, self._platform(), model, backends, overlap=overlap)
                    timelines.append(timeline)
                    spent += timeline.makespan
            passes += 1
        return taken

    def _alone(
        self, access: str, op: int, kind: Kind, nbytes: int, alone: Sequence[Timeline]
    ) -> Sample:
        """Return the seconds of an access without overlap."""
        stored = max(int(_of(timeline, op, kind).nbytes.max(initial=0)) for timeline in alone)
        sample = self._sample(access, nbytes, *own(alone, op, kind))
        return replace(sample, ratio=stored / nbytes)

    def _sample(self, access: str, nbytes: int, *seconds: float) -> Sample:
        return Sample(
            level=self.level,
            access=access,
            nbytes=nbytes,
            seconds=typical(np.array(seconds)),
            ratio=1.0,
            model=self.workload.own,
        )


def _with_tapes(steps: int) -> list[Action]:
    """Return actions that write the tape of every step but the last, and read them in reverse."""
    tapes = [Key(Kind.TAPE, step) for step in range(steps)]
    forward, backward = list[Action](), list[Action]()
    for step, tape in enumerate(tapes):
        last = step == steps - 1
        forward += [Record(step, step + 1)] if last else [Record(step, step + 1), Write(tape, 1)]
        reverse = Reverse(step, step + 1)
        backward[:0] = [reverse] if last else [Read(tape, 1), Discard(tape, 1), reverse]
    return [*forward, *backward]


def _pairs(taken: Sequence[Taken]) -> Iterator[tuple[Timeline, Timeline]]:
    """Yield each pass with overlap together with the pass without overlap of the same time."""
    for passes in taken:
        for overlap, timelines in passes.items():
            if overlap != _ALONE:
                yield from zip(timelines, passes[_ALONE], strict=True)


def lost(
    pairs: Sequence[tuple[Timeline, Timeline]], sizes: Mapping[Kind, int], /
) -> tuple[float, Mapping[int, Affine]]:
    """Return the seconds that an action loses with overlap, and the loss by each kind of access.

    Parameters
    ----------
    pairs
        Passes with transfers in the background, each with a pass of the same schedule without
        overlap.
    sizes
        The bytes of each kind of checkpoint.

    Returns
    -------
    The overhead of every computing action in seconds, and for each operation the seconds that one
    concurrent access costs the computation, as a function of its bytes.
    """
    from scipy.optimize import nnls

    unit = max(1, *sizes.values())
    known = np.array([sizes.get(kind, 0) / unit for kind in KINDS])
    longer, columns = [], []
    for overlapped, plain in pairs:
        computes = overlapped.actions.op < WRITE
        longer.append((durations(overlapped) - durations(plain))[computes])
        shares = [np.ones((len(computes), 1))]
        for op in (WRITE, READ, DISCARD):
            moved = _of(overlapped.transfers, op)
            laws = np.column_stack((np.ones(len(moved)), known[moved.actions.kind]))
            shares.append(_parts(overlapped, moved) @ laws)
        columns.append(np.hstack(shares)[computes])
    (overhead, *laws), _ = nnls(np.vstack(columns)[:, :-1], np.concatenate(longer))
    write, read, discard = laws[0:2], laws[2:4], (laws[4], 0.0)
    losses = {
        op: Affine(float(latency), float(slope / unit))
        for op, (latency, slope) in ((WRITE, write), (READ, read), (DISCARD, discard))
    }
    return float(overhead), losses


def own(timelines: Sequence[Timeline], op: int, kind: Kind | None = None, /) -> Floats:
    """Return the program's seconds for each access, except the first and those that had to wait.

    An access perhaps waited if a transfer of its kind ended meanwhile. A write waits for an earlier
    one if the memory for staged writes is full. If all writes waited, all are returned.
    """
    seconds = [np.zeros(0)]
    for timeline in timelines:
        chosen = _among(timeline.actions, op, kind)
        if op in (READ, WRITE):
            ends = np.sort(_of(timeline.transfers, op).stop)
            ended = np.searchsorted(ends, timeline.stop, "right")
            free = chosen & (np.diff(ended, prepend=0) == 0)
            chosen = free if op == READ or free.any() else chosen
        seconds.append(later(durations(timeline)[chosen]))
    return np.concatenate(seconds)


def _parts(timeline: Timeline, moved: Timeline) -> Floats:
    """Return, for each action (row) and transfer (column), the fraction of it during the action."""
    length = np.maximum(moved.stop - moved.start, _TICK)
    done = np.clip((timeline.stop[:, None] - moved.start) / length, 0.0, 1.0)
    parts: Floats = np.diff(done, axis=0, prepend=0.0)
    return parts


def _of(timeline: Timeline, op: int, kind: Kind | None = None) -> Timeline:
    """Return the timeline of one kind of access, to one kind of checkpoint or to all kinds."""
    chosen = _among(timeline.actions, op, kind)
    return Timeline(
        timeline.actions.take(chosen),
        timeline.start[chosen],
        timeline.stop[chosen],
        timeline.nbytes[chosen],
    )


def _among(actions: Actions, op: int, kind: Kind | None) -> NDArray[np.bool_]:
    chosen: NDArray[np.bool_] = actions.op == op
    return chosen if kind is None else chosen & (actions.kind == KINDS.index(kind))
