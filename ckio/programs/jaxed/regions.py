"""Forward and reverse runs of a register program by compiled functions, region by region.

A region is a set of nodes that one call of XLA runs. The call ends when the next node is outside of
the region, or when a limit of ticks is reached. There are two ways to divide a program:

    blocks    each node is a region: straight-line code is one call, an innermost loop a loop in XLA
    switch    all nodes are one region: a single loop in XLA with a switch between the nodes

Neither is best for all programs. Loops over 65,536 cells that fill a history of 20 rows take 4.2
times longer in a switch than in blocks, and their gradient 11 times longer, on a tape that is 160
times larger, because each tick copies and stores all registers. The 1,380 ticks of Listing 1 of
Siskind & Pearlmutter (2016), n = 203, take 65 times longer in blocks than in a switch, and their
gradient 136 times longer, because each tick is a call.
"""

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np

from ckio.analysis.partitioned.jaxprs import jax
from ckio.programs.jaxed.nodes import NodeAdjoint, RegisterCode, Values, nbytes

MOST: Final = 2**30
"""The most ticks of one call of XLA, because its counters have 32 bits."""


class RegionRun(NamedTuple):
    """The ticks of one call: their number, the registers before the first, and their nodes."""

    region: "Region"
    ticks: int
    values: list[Any]
    path: Any


class RegisterMachine:
    """Runs a program forward, and propagates cotangents backwards.

    Attributes
    ----------
    code : RegisterCode
    base : int
        The most ticks of a loop whose inputs are stored at a time. They are recomputed from the
        registers before the first of these ticks.
    """

    def __init__(self, code: RegisterCode, base: int, *, whole: bool) -> None:
        self.code, self.base = code, base
        numbers = range(len(code.nodes))
        self._regions = (
            [Region(code, numbers, base)] * len(numbers)
            if whole
            else [Region(code, range(pc, pc + 1), base) for pc in numbers]
        )

    def advance(
        self, pc: int, registers: Mapping[str, Any], limit: int, tape: list[RegionRun] | None = None
    ) -> tuple[int, Values, int]:
        """Run at most `limit` ticks. Return the next node, the live registers, and the ticks.

        If a tape is given, each call of a compiled function is appended to it.
        """
        values, passed, end = dict(registers), 0, len(self.code.nodes)
        while pc < end and passed < limit:
            region = self._regions[pc]
            most = min(limit - passed, self.base if region.several or tape is not None else MOST)
            given = region.given(values)
            pc, ticks, results, path = region.forward(pc, given, most)
            if tape is not None:
                saved = given if region.loops else [values[name] for name in region.needed]
                tape.append(RegionRun(region, ticks, saved, path))
            values.update(zip(region.after, results, strict=True))
            values = {name: values[name] for name in self.code.live[pc]}
            passed += ticks
        return pc, values, passed

    def pullback(
        self, pc: int, registers: Mapping[str, Any], ticks: int, cotangent: Values
    ) -> tuple[Values, int, int]:
        """Return the cotangent of a state from that of the state `ticks` ticks later.

        Also return the number of operations on the tape, and its bytes.
        """
        tape: list[RegionRun] = []
        self.advance(pc, registers, ticks, tape)
        arrays = {id(it): it for run in tape for it in (*run.values, run.path) if it is not None}
        rows, stored = max((run.region.rows(run.ticks) for run in tape), key=itemgetter(1),
                           default=(0, 0))  # fmt: skip
        nodes, size = len(tape) + rows, nbytes(arrays.values()) + stored
        del arrays
        back = dict(cotangent)
        while tape:
            run = tape.pop()
            run.region.back(run, back)
        return back, nodes, size


class Region:
    """Nodes that one compiled function runs.

    Attributes
    ----------
    several : bool
        Whether there are several nodes, with a switch between them.
    loops : bool
        Whether a call may run more than one tick.
    takes, after : tuple of str
        The registers that a call receives, and those that it changes.
    """

    def __init__(self, code: RegisterCode, nodes: range, base: int) -> None:
        self.code, self.nodes, self.base = code, nodes, base
        targets = {target for pc in nodes for target in code.nodes[pc].targets}
        self.several = len(nodes) > 1
        self.loops = not targets.isdisjoint(nodes)
        self.after = code.after(*nodes)
        before = code.before(*nodes)
        self.takes = tuple(sorted({*before, *self.after})) if self.several else before
        used = frozenset[str]().union(*(code.nodes[pc].uses for pc in nodes))
        self._known = {name: code.constants[name] for name in sorted(used & code.constants.keys())}
        self._targets = sorted(targets)
        self._compiled: dict[int, Callable[..., Any]] = {}
        self._zeros: Values = {}

    @cached_property
    def _forward(self) -> Callable[..., Any]:
        run: Callable[..., Any] = jax().jit(self._loop if self.loops else self._straight)
        return run

    def given(self, values: Values) -> list[Any]:
        """Return the registers that a call receives. Those that are not live are zero."""
        return [values[n] if n in values else self._zero(n) for n in self.takes]

    def forward(self, pc: int, given: list[Any], most: int) -> tuple[int, int, list[Any], Any]:
        """Run at most `most` ticks.

        Return the next node, the number of ticks, the changed registers, and the path of nodes.
        """
        if not self.loops:
            came, results = self._forward(self._known, given)
            one = len(self._targets) == 1
            return self._targets[0] if one else int(np.asarray(came)), 1, results, None
        counts, results, path = self._forward(self._known, given, pc, most)
        came, ticks = np.asarray(counts).tolist()  # much faster than int() for each number
        return came, ticks, results, path

    def back(self, run: RegionRun, cotangent: Values) -> None:
        """Propagate the cotangents backwards over the ticks of one call."""
        given = [cotangent.pop(name, None) for name in self.touched]
        if all(it is None for it in given):
            return
        pairs = zip(self.touched, given, strict=True)
        filled = [self._zero(name) if it is None else it for name, it in pairs]
        if self.loops:
            rows = self.rows(run.ticks)[0]
            if rows not in self._compiled:
                self._compiled[rows] = jax().jit(partial(self._loop_back, rows))
            results = self._compiled[rows](self._known, run.values, run.path, run.ticks, filled)
        else:
            if 0 not in self._compiled:
                self._compiled[0] = jax().jit(self._straight_back)
            results = self._compiled[0](self._known, run.values, filled)
        ends = (name for name in self.touched if name in self.takes)
        cotangent.update(zip(ends, results, strict=True))

    def rows(self, ticks: int) -> tuple[int, int]:
        """Return the number of rows in which the reverse of a loop stores registers, and the bytes.

        A row has the registers of one tick. The number is at least `ticks`. To compile for few
        different numbers, it is a power of 8 as long as the rows are small, and then grows by
        factors of 2, up to `base`. For example, 100 ticks with 1000 bytes each get 512 rows.
        """
        if not self.loops:
            return 0, 0
        row = self.code.nbytes(self._varying)
        rows = 8 if row <= 1 << 17 else 1
        while rows < ticks:
            rows *= 8 if rows * row <= 1 << 17 else 2
        rows = min(rows, self.base)
        return rows, rows * row

    @cached_property
    def _adjoints(self) -> list[NodeAdjoint]:
        return [NodeAdjoint(self.code, pc) for pc in self.nodes]

    @cached_property
    def touched(self) -> tuple[str, ...]:
        """The registers whose cotangents it changes."""
        return tuple(sorted({name for adjoint in self._adjoints for name in adjoint.touched}))

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """The registers before a node on whose values some adjoint depends."""
        return tuple(sorted({name for adjoint in self._adjoints for name in adjoint.needed}))

    @cached_property
    def _varying(self) -> list[str]:
        """The needed registers that ticks change. They are stored for each tick."""
        return [name for name in self.needed if name in self.after]

    def _zero(self, name: str) -> Any:
        if name not in self._zeros:
            self._zeros[name] = self.code.zeros(name)
        return self._zeros[name]

    def _straight(self, known: Values, given: list[Any]) -> tuple[Any, list[Any]]:
        values = dict(zip(self.takes, given, strict=True)) | known
        came, after = self.code.nodes[self.nodes[0]].tick(values)
        return came, [after[name] for name in self.after]

    def _straight_back(self, known: Values, given: list[Any], cotangent: list[Any]) -> list[Any]:
        (adjoint,) = self._adjoints
        values = known | dict(zip(self.needed, given, strict=True))
        back = adjoint(values, dict(zip(self.touched, cotangent, strict=True)))
        return [back[name] for name in self.touched if name in self.takes]

    def _split(self, known: Values, given: list[Any]) -> tuple[Values, Values]:
        """Return the registers that a loop changes, before its first tick, and the others."""
        values = dict(zip(self.takes, given, strict=True))
        fixed = {name: it for name, it in values.items() if name not in self.after}
        first = {n: values[n] if n in values else self.code.zeros(n) for n in self.after}
        return first, fixed | known

    def _tick(self, pc: int, fixed: Values, values: Values) -> tuple[Any, Values]:
        came, after = self.code.nodes[pc].tick(fixed | values)
        return came, {name: after[name] for name in values}

    def _loop(
        self, known: Values, given: list[Any], pc: Any, limit: Any
    ) -> tuple[Any, list[Any], Any]:
        """Run ticks, at least one, until the region is left or the limit is reached.

        Return the next node and the number of ticks in one array, the changed registers, and the
        node of each tick if there are several nodes.
        """
        numpy, lax = jax().numpy, jax().lax
        first, fixed = self._split(known, given)
        nodes = [partial(self._tick, pc, fixed) for pc in self.nodes]
        begin, end = self.nodes[0], self.nodes[-1]

        def goes_on(carried: Any) -> Any:
            return (carried[0] >= begin) & (carried[0] <= end) & (carried[1] < limit)

        def once(carried: Any) -> Any:
            pc, ticks, values, path = carried
            came, after = lax.switch(pc - begin, nodes, values)
            path = path.at[ticks].set(pc) if self.several else None
            return came, ticks + 1, after, path

        path = numpy.zeros(self.base, numpy.int32) if self.several else None
        start = numpy.asarray(pc, numpy.int32), numpy.int32(0), first, path
        came, ticks, results, path = lax.while_loop(goes_on, once, start)
        return numpy.stack([came, ticks]), [results[name] for name in self.after], path

    def _loop_back(  # noqa: PLR0917 - by jit
        self, rows: int, known: Values, given: list[Any], path: Any, ticks: Any, back: list[Any]
    ) -> list[Any]:
        """Return the cotangents before some ticks, at most `rows`, along the known path.

        The ticks are computed once more, and the needed registers before each are stored. Then the
        cotangents are propagated backwards. The number of ticks is known, so that the condition of
        the loop is not needed.
        """
        numpy, lax = jax().numpy, jax().lax
        first, fixed = self._split(known, given)
        nodes = [partial(self._tick, pc, fixed) for pc in self.nodes]

        def at(row: Any) -> Any:
            return path[row] if self.several else 0

        def store(row: Any, stored: Values, values: Values) -> Values:
            return {name: stored[name].at[row].set(values[name]) for name in self._varying}

        def forwards(row: Any, carried: tuple[Values, Values]) -> tuple[Values, Values]:
            values, stored = carried
            _, after = lax.switch(at(row - 1), nodes, values)
            return after, store(row, stored, after)

        def through(adjoint: NodeAdjoint, values: Values, back: Values) -> Values:
            return back | adjoint(fixed | values, {name: back[name] for name in adjoint.touched})

        adjoints = [partial(through, adjoint) for adjoint in self._adjoints]

        def backwards(count: Any, back: Values) -> Values:
            row = ticks - 1 - count
            values = {name: stored[name][row] for name in self._varying}
            result: Values = lax.switch(at(row), adjoints, values, back)
            return result

        avals = self.code.avals
        empty = {n: numpy.zeros((rows, *avals[n].shape), avals[n].dtype) for n in self._varying}
        _, stored = lax.fori_loop(1, ticks, forwards, (first, store(0, empty, first)))
        end = lax.fori_loop(0, ticks, backwards, dict(zip(self.touched, back, strict=True)))
        return [end[name] for name in self.touched if name in self.takes]
