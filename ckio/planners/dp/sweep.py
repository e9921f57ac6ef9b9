"""The first sweep of a long chain if sizes differ, from tables of its segments.

The first sweep divides a chain into segments. A segment of d steps begins with a restart
checkpoint, or it is one step whose tape is stored. With Q from the tables of `mixed`, it costs

    phi_k,f(d) = w_k + r_k + d u + Q_k,f(d),     or w'_k + r'_k for the tape of one step,

where f is the number of the free space on level k at the begin of the segment. Let each step be
worth theta seconds. Then the best way to fill a level does not depend on the length of the chain,

    W_k(f) = min(0,  w'_k + r'_k - theta + W_k(f - b),  min_d phi_k,f(d) - theta d + W_k(f - a)),

and theta n + sum_k W_k(empty) is a lower bound of the seconds of all hierarchical plans of n steps,
because theta is a Lagrange multiplier of the length (Everett, 1963). At the optimal multiplier two
fillings tie, one covering fewer than n steps and one more; the sweep starts with the second and
ends with the first. Each of them is optimal from any f. The point of change is the first at which
the sweep covers n steps; it covers at most about a segment more. Then segments are made shorter to
fit. The sweep is at most `Sweep.seconds` - `Sweep.bound` above the optimum.

For example, let a level store two states at no cost, let a step take 1 s, and h = 1. Segments cost
phi_2(d) = 1, 3, 5, ... (the advance to their end and, for d = 2, one more step) and phi_1(d) = 1,
3, 6. At theta = 2 s, segments of one step and of two are equally good. Therefore sweeps of 3, 4 and
5 steps, the last step without a checkpoint, cost 2, 4 and 6 s, and no sweep can cost less.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Kind
from ckio.actions.columns import WRITE, Actions
from ckio.planners.compiled import kernel
from ckio.planners.dp.costs import INFEASIBLE
from ckio.planners.dp.hulls import Ints
from ckio.planners.dp.recurrence import Table
from ckio.planners.dp.spaces import Numbers, Space
from ckio.planners.dp.unroll import Segment, Unrolling
from ckio.planners.draft import Draft

# mypy: disable-error-code="no-any-return"

Seconds = NDArray[np.float64]
Rows = NDArray[np.int64]

_ROUNDS: Final = 80
"""The most rounds of the search for theta; usually it ends after ten or twenty."""

_SHORTEST: Final = 512
"""The longest segment, in steps, of the first tables."""

_MOST_CELLS: Final = 1 << 25
"""The most numbers in all tables together: a quarter of a gigabyte."""

_STOP, _TAPE = -1, 0
"""Used instead of the steps of a segment: there is no segment, or it is the tape of one step."""


class SweepCosts(NamedTuple):
    """Costs of the first sweep and of its checkpoints, in seconds.

    Attributes
    ----------
    restart, tape : float arrays, by stage
        To write, read and discard one checkpoint.
    move : float
        To go forward over one step.
    held : float
        For each of the last steps, which are recorded and reversed without a checkpoint.
    """

    restart: Seconds
    tape: Seconds
    move: float
    held: float


class Filling(NamedTuple):
    """The free space of a level during the first sweep.

    Attributes
    ----------
    after_restart, after_tape : int arrays
        For each number of the free space, the number after a checkpoint; -1 if it does not fit.
    layer : int array
        For each number, the number of the free space within a segment.
    """

    after_restart: Numbers
    after_tape: Numbers
    layer: Numbers

    @property
    def endless(self) -> tuple[bool, bool]:
        """Whether restart checkpoints, and tapes, never fill the level."""
        last = len(self.layer) - 1
        return bool(self.after_restart[-1] == last), bool(self.after_tape[-1] == last)


class Stretch(NamedTuple):
    """A segment of the first sweep, and the stage and layer that reverse it; 0 steps for a tape."""

    stage: int
    layer: int
    steps: int

    def segment(self) -> Segment:
        """Return it in the words of `unroll`."""
        kind = Kind.RESTART if self.steps else Kind.TAPE
        return Segment(kind, self.stage, self.layer, max(1, self.steps), 1)


@dataclass(frozen=True)
class Sweep:
    """A first sweep of n steps.

    Attributes
    ----------
    segments : tuple of Stretch
        The segments in the order of the chain.
    rest : int
        The steps after the segments, recorded and reversed together.
    seconds : float
        The cost, without recording and reversing each step once.
    bound : float
        A lower bound of the cost of all hierarchical plans.
    """

    segments: tuple[Stretch, ...]
    rest: int
    seconds: float
    bound: float


class _Fill(NamedTuple):
    """A way to fill all levels: choices by stage, the last steps, all steps, and seconds."""

    choices: tuple[Ints, ...]
    rest: int
    steps: int
    seconds: float


@dataclass(eq=False)
class SegmentTables:
    """The stages of `mixed` for segments up to a length, and the actions of segments.

    Attributes
    ----------
    stages : tuple of Table
        The solutions, in the order of the levels.
    stored : tuple of float arrays (layers, steps)
        Q in seconds; infinite if there is none.
    """

    stages: tuple[Table, ...]
    held: int
    recording: bool
    unit: float
    stored: tuple[Seconds, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.stored = tuple(_stored(stage, self.unit) for stage in self.stages)
        self._unrolling = Unrolling(self.stages, held=self.held, recording=self.recording)
        self._known: dict[Stretch, tuple[Rows, Rows]] = {}

    @property
    def longest(self) -> int:
        """The steps of the longest segment."""
        return self.stages[0].longest

    @property
    def spaces(self) -> tuple[Space, ...]:
        """The levels, by stage."""
        return tuple(stage.space for stage in self.stages)

    def level(self, segment: Stretch, /) -> int:
        """Return the number of a segment's level in the platform."""
        return self.stages[segment.stage].space.number

    def rows(self, segment: Stretch, /) -> tuple[Rows, Rows]:
        """Return the actions of a segment at step 0: its first sweep, and its reversal.

        Each is an array of (op, kind, level, begin, end) by action.
        """
        if segment not in self._known:
            ahead, back = self._unrolling.apart(segment.segment())
            self._known[segment] = _rows(ahead.actions()), _rows(back)
        return self._known[segment]


def _rows(a: Actions) -> Rows:
    return np.array([a.op, a.kind, a.level, a.begin, a.end], np.int64)


def _stored(stage: Table, unit: float) -> Seconds:
    q = np.full((len(stage.rows), len(stage.lower)), inf)
    for row, (_, stored) in zip(q, stage.values(), strict=True):
        row[1:] = np.where(stored < INFEASIBLE >> 1, stored * unit, inf)[1:]
    return q


def sweep_of_segments(
    order: Sequence[Space], steps: int, solve: Callable[[int], tuple[Table, ...]], /, *, held: int
) -> tuple[Sweep, tuple[Table, ...]] | None:
    """Return the best first sweep, and the stages that reverse its segments.

    Access costs the same in the first sweep and later. `solve` computes the tables of segments up
    to a length, in the unit of the costs. The length is doubled until it is at least twice that of
    the longest segment. Return None if the tables would be too large.
    """
    longest = _SHORTEST
    while True:
        stages = solve(min(longest, steps))
        tables = SegmentTables(stages, held, recording=False, unit=1.0)
        costs = SweepCosts(
            restart=np.array([float(space.write + space.read) for space in order]),
            tape=np.array([float(space.tape) for space in order]),
            move=float(stages[0].move),
            held=0.0,
        )
        sweep = first_sweep(tables, costs, steps, [filling(space) for space in order])
        longest *= 2
        if sweep is not None and 2 * max(it.steps for it in sweep.segments) <= tables.longest:
            return sweep, stages
        if longest > steps or sum(len(it.rows) for it in stages) * longest > _MOST_CELLS:
            return None


def filling(space: Space, /) -> Filling:
    """Return the filling of a whole level."""
    return Filling(space.after_restart, space.after_tape, np.arange(len(space.after_restart)))


def first_sweep(
    tables: SegmentTables,
    costs: SweepCosts,
    steps: int,
    fillings: Sequence[Filling],
    /,
    longest: int | None = None,
) -> Sweep | None:
    """Return the best first sweep of `steps` steps; None if the tables are too short for one.

    Segments have at most `longest` steps, if it is given.
    """
    return _Search(tables, costs, steps, fillings, longest or tables.longest).sweep()


class _Search:
    """The search for theta."""

    def __init__(
        self,
        tables: SegmentTables,
        costs: SweepCosts,
        steps: int,
        fillings: Sequence[Filling],
        longest: int,
    ) -> None:
        self.tables, self.costs, self.steps, self.fillings = tables, costs, steps, fillings
        lengths = np.arange(min(longest, tables.longest) + 1)
        self.phi = [
            q[:, : len(lengths)] + (restart + costs.move * lengths)
            for q, restart in zip(tables.stored, costs.restart, strict=True)
        ]
        self.layers = [
            np.minimum(it.layer, len(phi) - 1) for it, phi in zip(fillings, self.phi, strict=True)
        ]

    def sweep(self) -> Sweep | None:
        top, unit = self._endless()
        low = self._none()
        theta = top if unit else max(self.costs.move, 1e-9)
        high = self._fill(theta)
        for _ in range(_ROUNDS):
            if high.steps >= self.steps or unit:
                break
            theta *= 4
            high = self._fill(theta)
        if high.steps < self.steps:
            return self._with_endless(high, top, unit) if unit else None
        bound, low, high = self._narrowed(low, high)
        first, last = 0, sum(len(it.layer) for it in self.fillings)
        while last - first > 1:
            middle = (first + last) // 2
            if _steps(self._path(low, high, middle)) >= self.steps:
                last = middle
            else:
                first = middle
        segments, rest = self._shortened(*self._path(low, high, last))
        return Sweep(tuple(segments), rest, self._seconds(segments, rest), bound)

    def _none(self) -> _Fill:
        rest = min(1, self.tables.held)
        none = tuple(np.full(len(it.layer), _STOP) for it in self.fillings)
        return _Fill(none, rest, rest, rest * self.costs.held)

    def _endless(self) -> tuple[float, Stretch | None]:
        """Return the least seconds for each step on levels that never fill, and its segment."""
        top, unit = inf, None
        for stage, (filling, phi) in enumerate(zip(self.fillings, self.phi, strict=True)):
            restarts, tapes = filling.endless
            layer = int(self.layers[stage][-1])
            if restarts:
                rate = phi[layer, 1:] / np.arange(1, phi.shape[1])
                if rate.min() < top:
                    top, unit = float(rate.min()), Stretch(stage, layer, int(rate.argmin()) + 1)
            if tapes and self.costs.tape[stage] < top:
                top, unit = float(self.costs.tape[stage]), Stretch(stage, layer, _TAPE)
        return top, unit

    def _with_endless(self, high: _Fill, top: float, unit: Stretch) -> Sweep:
        """Return the sweep with segments of a level that never fills for all missing steps."""
        segments, rest = self._path(high, high, 0)
        missing = self.steps - high.steps
        size = max(1, unit.steps)
        more = [unit] * (missing // size)
        if missing % size:
            more.append(unit._replace(steps=missing % size))
        at = sum(it.stage > unit.stage for it in segments)
        segments[at:at] = more
        bound = high.seconds + top * missing
        return Sweep(tuple(segments), rest, self._seconds(segments, rest), bound)

    def _fill(self, theta: float) -> _Fill:
        """Return the best way to fill the levels if each step is worth theta seconds."""
        rest = self.tables.held if self.costs.held < theta else min(1, self.tables.held)
        choices, steps, worth = [], rest, rest * (self.costs.held - theta)
        for stage, filling in enumerate(self.fillings):
            least, length = np.empty((2, len(self.phi[stage])))
            _best(self.phi[stage], theta, least, length)
            layer, choice = self.layers[stage], np.full(len(filling.layer), _STOP)
            tape = float(self.costs.tape[stage]) - theta
            after = filling.after_restart, filling.after_tape
            worth += _filled(least[layer], length[layer], tape, after, choice)
            choices.append(choice)
            steps += _walked(choice, choice, -1, after, np.empty((2, len(choice) + 1), np.int64))[1]
        return _Fill(tuple(choices), rest, steps, worth + theta * steps)

    def _narrowed(self, low: _Fill, high: _Fill) -> tuple[float, _Fill, _Fill]:
        """Return the greatest bound, and the two fillings that are equally good there."""
        bound = -inf
        for _ in range(_ROUNDS):
            if high.steps == low.steps:
                break
            theta = (high.seconds - low.seconds) / (high.steps - low.steps)
            middle = self._fill(theta)
            value = middle.seconds + theta * (self.steps - middle.steps)
            line = low.seconds + theta * (self.steps - low.steps)
            bound = max(bound, value)
            if value >= line - 1e-12 * abs(line):
                break
            if middle.steps >= self.steps:
                high = middle
            else:
                low = middle
        return bound, low, high

    def _path(self, low: _Fill, high: _Fill, cut: int) -> tuple[list[Stretch], int]:
        """Return the segments of `high` for the first `cut` numbers of free space, then of `low`.

        Numbers are counted from the last stage and its empty level. Also return the last steps.
        """
        segments, rest = list[Stretch](), high.rest if cut else low.rest
        for stage in reversed(range(len(self.fillings))):
            filling = self.fillings[stage]
            size = len(filling.layer)
            out = np.empty((2, size + 1), np.int64)
            after = filling.after_restart, filling.after_tape
            choices = low.choices[stage], high.choices[stage]
            count, _ = _walked(*choices, size - 1 - cut, after, out)
            for free, steps in out[:, :count].T.tolist():
                segments.append(Stretch(stage, int(self.layers[stage][free]), steps))
            cut = max(0, cut - size)
        return segments, rest

    def _shortened(self, segments: list[Stretch], rest: int) -> tuple[list[Stretch], int]:
        """Make segments shorter by a step, the cheapest change first, until the length is right."""
        excess = _steps((segments, rest)) - self.steps
        heap = [(self._change(it), -number) for number, it in enumerate(segments)]
        heapify(heap)
        while excess and heap:
            _, number = heappop(heap)
            steps = segments[-number].steps - 1
            segments[-number] = segments[-number]._replace(steps=steps if steps > 0 else _STOP)
            if steps > 0:
                heappush(heap, (self._change(segments[-number]), number))
            excess -= 1
        return [it for it in segments if it.steps != _STOP], rest - excess

    def _change(self, it: Stretch) -> float:
        """Return the change of cost for one step less; a segment of 0 steps is removed."""
        if it.steps == _TAPE:
            return -float(self.costs.tape[it.stage])
        phi, steps = self.phi[it.stage][it.layer], it.steps - 1
        return float((phi[steps] if steps else 0.0) - phi[it.steps])

    def _seconds(self, segments: Sequence[Stretch], rest: int) -> float:
        costs = (
            self.phi[it.stage][it.layer, it.steps] if it.steps else self.costs.tape[it.stage]
            for it in segments
        )
        return float(sum(costs)) + rest * self.costs.held


def _steps(made: tuple[Sequence[Stretch], int]) -> int:
    segments, rest = made
    return sum(max(1, it.steps) for it in segments) + rest


@kernel
def _best(phi: Seconds, theta: float, least: Seconds, length: Seconds) -> None:
    """Set the least phi(d) - theta d of each layer, and its d."""
    for layer in range(phi.shape[0]):
        least[layer], length[layer] = np.inf, 0.0
        for d in range(1, phi.shape[1]):
            value = phi[layer, d] - theta * d
            if value < least[layer]:
                least[layer], length[layer] = value, d


@kernel
def _filled(
    least: Seconds, length: Seconds, tape: float, after: tuple[Numbers, Numbers], choice: Ints
) -> float:
    """Set the best choice for every f; return W if nothing is stored."""
    after_restart, after_tape = after
    worth = least  # each element is read once before it is overwritten
    for free in range(len(choice)):
        restart, best = least[free], 0.0
        to = after_tape[free]
        if 0 <= to < free and tape + worth[to] < best:
            best, choice[free] = tape + worth[to], 0
        to = after_restart[free]
        if 0 <= to < free and restart + worth[to] < best:
            best, choice[free] = restart + worth[to], int(length[free])
        worth[free] = best
    return worth[len(choice) - 1]


@kernel
def _walked(
    low: Ints, high: Ints, cut: int, after: tuple[Numbers, Numbers], out: Rows
) -> tuple[int, int]:
    """Follow `high` while f > cut, then `low`; write (f, d) to `out`; return count and steps."""
    after_restart, after_tape = after
    free, count, steps = len(low) - 1, 0, 0
    while free >= 0:
        choice = high[free] if free > cut else low[free]
        if choice < 0:
            break
        out[0, count], out[1, count] = free, choice
        count += 1
        steps += max(1, choice)
        free = after_restart[free] if choice else after_tape[free]
    return count, steps


def actions(tables: SegmentTables, segments: Sequence[Stretch], rest: int, /) -> Actions:
    """Return the actions of a whole chain with these segments and `rest` last steps."""
    last = Draft()
    if rest:
        last.record(0, rest)
        last.reverse(0, rest)
    rows = [tables.rows(it) for it in segments]
    parts = [
        *(ahead for ahead, _ in rows),
        _rows(last.actions()),
        *(back for _, back in reversed(rows)),
    ]
    at = np.cumsum([0, *(max(1, it.steps) for it in segments)])
    by = np.repeat(np.append(at, at[-2::-1]), [part.shape[1] for part in parts])
    op, kind, level, begin, end = np.concatenate(parts, axis=1)
    return Actions(
        op=op.astype(np.uint8), kind=kind.astype(np.uint8), level=level.astype(np.int16),
        begin=begin + by, end=np.where(op < WRITE, end + by, 0),
    )  # fmt: skip
