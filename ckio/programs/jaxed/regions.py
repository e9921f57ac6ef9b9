"""A register program run by compiled functions, forward and back, region by region.

A region is what one call of XLA runs: ticks pass in it until a node outside comes next, or a limit
is reached. One engine serves both ways to divide a program:

    blocks    each node is a region: a straight piece is one call, an innermost loop a loop in XLA
    switch    all nodes are one region: a single loop in XLA, around a switch between them

Neither does for all programs. Loops over 65,536 cells that fill a history of 20 rows take 4.2 times
as long in a switch as in blocks, and their gradient 11 times as long, on a tape 160 times as large,
because each tick carries and stores all registers. The 1,380 ticks of Listing 1 of Siskind and
Pearlmutter (2016), n = 203, take 65 times as long in blocks as in a switch, and their gradient 136
times, because each tick is a call.
"""

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np

from ckio.analysis.partitioned.jaxprs import jax
from ckio.programs.jaxed.nodes import NodeAdjoint, RegisterCode, Values, nbytes

MOST: Final = 2**30
"""Ticks that one call of XLA passes at most: its counters have 32 bits."""


class RegionRun(NamedTuple):
    """Ticks passed in one call, the registers before the first of them, and the node of each."""

    region: "Region"
    ticks: int
    values: list[Any]
    path: Any


class RegisterMachine:
    """Runs a program forward and back.

    Attributes
    ----------
    code : RegisterCode
    base : int
        Ticks of a loop of which the inputs are stored at a time: from the registers before the
        first of them they are computed again.
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
        """Run at most `limit` ticks: where it is, the live registers, and the ticks passed.

        Each call of a compiled function is put on the tape, if there is one.
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
        """The cotangent of a state from that of the one reached; ticks and bytes of the tape."""
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
        There is a switch between nodes.
    loops : bool
        More than one tick may pass in a call.
    takes, after : tuple of str
        The registers that are given to it, and those that it changes.
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
        """The registers that it takes; those that are not live here are zero."""
        return [values[n] if n in values else self._zero(n) for n in self.takes]

    def forward(self, pc: int, given: list[Any], most: int) -> tuple[int, int, list[Any], Any]:
        """Run at most so many ticks: where it comes to, the ticks, what changed, and the path."""
        if not self.loops:
            came, results = self._forward(self._known, given)
            one = len(self._targets) == 1
            return self._targets[0] if one else int(np.asarray(came)), 1, results, None
        counts, results, path = self._forward(self._known, given, pc, most)
        came, ticks = np.asarray(counts).tolist()  # far faster than int() of each
        return came, ticks, results, path

    def back(self, run: RegionRun, cotangent: Values) -> None:
        """Take the cotangents back over the ticks of one call."""
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
        """Return for how many ticks a loop's registers are stored while it is reversed, and bytes.

        They are as many or more, of the few numbers that are compiled for: these grow by eight
        while they are small, and twofold where that would be much memory.
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
        """The registers before a node of which some adjoint depends on the values."""
        return tuple(sorted({name for adjoint in self._adjoints for name in adjoint.needed}))

    @cached_property
    def _varying(self) -> list[str]:
        """The needed registers that ticks change: they are stored for each tick."""
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

    def _divided(self, known: Values, given: list[Any]) -> tuple[Values, Values]:
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
        """Ticks until the region is left or the limit is reached; at least one.

        Where it comes to and how many they are is one array; then come the registers, and, where
        there are several nodes, which of them each tick was.
        """
        numpy, lax = jax().numpy, jax().lax
        first, fixed = self._divided(known, given)
        nodes = [partial(self._tick, pc, fixed) for pc in self.nodes]
        begin, end = self.nodes[0], self.nodes[-1]

        def again(carried: Any) -> Any:
            return (carried[0] >= begin) & (carried[0] <= end) & (carried[1] < limit)

        def once(carried: Any) -> Any:
            pc, ticks, values, path = carried
            came, after = lax.switch(pc - begin, nodes, values)
            path = path.at[ticks].set(pc) if self.several else None
            return came, ticks + 1, after, path

        path = numpy.zeros(self.base, numpy.int32) if self.several else None
        start = numpy.asarray(pc, numpy.int32), numpy.int32(0), first, path
        came, ticks, results, path = lax.while_loop(again, once, start)
        return numpy.stack([came, ticks]), [results[name] for name in self.after], path

    def _loop_back(  # noqa: PLR0917 - by jit
        self, rows: int, known: Values, given: list[Any], path: Any, ticks: Any, back: list[Any]
    ) -> list[Any]:
        """The adjoint of ticks, at most `rows`, along the path that was found before.

        They are computed once more, and what each needs is stored; then it goes back over them.
        How many there are is known: a loop's condition is asked in one place only.
        """
        numpy, lax = jax().numpy, jax().lax
        first, fixed = self._divided(known, given)
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
