"""A register program as one loop in XLA, around a switch between its nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from ckio.analysis.partitioned.jaxprs import jax
from ckio.programs.jaxed.code import Values
from ckio.programs.jaxed.compiling import Compiling
from ckio.programs.jaxed.ticks import Back, bucket, nbytes, tick


@dataclass(frozen=True)
class Switch(Compiling):
    """How `switch` runs and reverses a program.

    Attributes
    ----------
    code : Code
    base : int
        Ticks that one call of XLA passes at most, and of which the inputs are stored at a time:
        from the registers before the first of them they are computed again.
    """

    @cached_property
    def registers(self) -> tuple[str, ...]:
        """All that any state has."""
        return tuple(sorted({name for live in self.code.live for name in live}))

    @cached_property
    def _adjoints(self) -> tuple[Back, ...]:
        return tuple(Back(self.code, pc, self.active) for pc in range(len(self.code.nodes)))

    @cached_property
    def _varying(self) -> tuple[str, ...]:
        """What some adjoint needs and some node sets: it is stored for each tick."""
        needed = {name for adjoint in self._adjoints for name in adjoint.needed}
        return tuple(sorted(needed & {name for node in self.code.nodes for name in node.sets}))

    @cached_property
    def smooth(self) -> tuple[str, ...]:
        """The same in order."""
        return tuple(name for name in self.registers if name in self.active)

    def advance(self, pc: int, registers: Mapping[str, Any], limit: int) -> tuple[int, Values, int]:
        """Run at most `limit` ticks: where it is, the live registers, and the ticks passed."""
        run = self._compile(("run",), self._run)
        values, done = self._filled(registers), 0
        while pc < len(self.code.nodes) and done < limit:
            counts, values, _ = run(self.code.constants, values, pc, self._most(limit - done))
            pc, passed = np.asarray(counts).tolist()
            done += passed
        known = dict(zip(self.registers, values, strict=True))
        return pc, {name: known[name] for name in self.code.live[pc]}, done

    def pullback(
        self, pc: int, registers: Mapping[str, Any], ticks: int, cotangent: Values
    ) -> tuple[Values, int, int]:
        """The cotangent of a state from that of the one reached; ticks and bytes of the tape."""
        run, first = self._compile(("run",), self._run), pc
        values, done = self._filled(registers), 0
        tape: list[tuple[list[Any], Any, int]] = []
        while pc < len(self.code.nodes) and done < ticks:
            most, before = self._most(ticks - done), values
            counts, values, path = run(self.code.constants, before, pc, most)
            pc, passed = np.asarray(counts).tolist()
            done += passed
            tape.append((before, path, passed))
        rows = max((self._rows(count) for *_, count in tape), default=0)
        held = nbytes([self.code.avals[name] for name in self.registers]) + 4 * self.base
        size = rows * self._row + len(tape) * held
        filled = [cotangent[n] if n in cotangent else self._zero(n) for n in self.smooth]
        while tape:
            taped = tape.pop()
            reverse = self._compile(("reverse", self._rows(taped[2])), self._reverse)
            filled = reverse(self.code.constants, taped, filled)
        found = dict(zip(self.smooth, filled, strict=True))
        return {name: found[name] for name in self.code.live[first] if name in found}, rows, size

    @cached_property
    def _row(self) -> int:
        """Bytes that are stored for each tick."""
        return nbytes([self.code.avals[name] for name in self._varying])

    def _rows(self, ticks: int) -> int:
        return bucket(ticks, self._row, self.base)

    def _most(self, ticks: int) -> int:
        return min(ticks, self.base)

    def _filled(self, registers: Mapping[str, Any]) -> list[Any]:
        """All registers; what is not live is zero."""
        return [registers[n] if n in registers else self._zero(n) for n in self.registers]

    def _node(self, constants: Values, pc: int, values: Sequence[Any]) -> tuple[Any, list[Any]]:
        """One node on all registers."""
        named = dict(zip(self.registers, values, strict=True))
        came, after = tick(self.code.nodes[pc], constants | named)
        return came, [after[name] for name in self.registers]

    def _run(
        self, constants: Values, values: list[Any], pc: Any, limit: Any
    ) -> tuple[Any, list[Any], Any]:
        """Ticks up to the limit or the end: where they lead and how many they are, in one array.

        Then come the registers, and which node each tick was.
        """
        numpy, lax, end = jax().numpy, jax().lax, len(self.code.nodes)
        nodes = [partial(self._node, constants, pc) for pc in range(end)]

        def again(carried: Any) -> Any:
            return (carried[0] != end) & (carried[1] < limit)

        def once(carried: Any) -> Any:
            pc, ticks, values, path = carried
            came, after = lax.switch(pc, nodes, values)
            return came, ticks + 1, after, path.at[ticks].set(pc)

        path = numpy.zeros(self.base, numpy.int32)
        start = numpy.asarray(pc, numpy.int32), numpy.int32(0), values, path
        came, ticks, values, path = lax.while_loop(again, once, start)
        return numpy.stack([came, ticks]), values, path

    def _reverse(
        self, rows: int, constants: Values, taped: tuple[list[Any], Any, Any], back: list[Any]
    ) -> list[Any]:
        """The adjoint of ticks, at most `rows`, along the path that was found before.

        `taped` are the registers before the first of them, the path, and how many they are.
        """
        first, path, ticks = taped
        numpy, lax, end = jax().numpy, jax().lax, len(self.code.nodes)
        nodes = [partial(self._node, constants, pc) for pc in range(end)]
        fixed = dict(zip(self.registers, first, strict=True)) | constants

        def store(row: Any, stored: Values, values: list[Any]) -> Values:
            named = dict(zip(self.registers, values, strict=True))
            return {name: stored[name].at[row].set(named[name]) for name in self._varying}

        def forwards(row: Any, carried: tuple[list[Any], Values]) -> tuple[list[Any], Values]:
            values, stored = carried
            _, after = lax.switch(path[row - 1], nodes, values)
            return after, store(row, stored, after)

        def adjoint(pc: int, values: Values, back: list[Any]) -> list[Any]:
            all_back = dict(zip(self.smooth, back, strict=True))
            touched = {name: all_back[name] for name in self._adjoints[pc].touched}
            all_back |= self._adjoints[pc](fixed | values, touched)
            return [all_back[name] for name in self.smooth]

        adjoints = [partial(adjoint, pc) for pc in range(end)]

        def backwards(count: Any, back: list[Any]) -> list[Any]:
            row = ticks - 1 - count
            values = {name: stored[name][row] for name in self._varying}
            found: list[Any] = lax.switch(path[row], adjoints, values, back)
            return found

        avals = {name: self.code.avals[name] for name in self._varying}
        empty = {name: numpy.zeros((rows, *it.shape), it.dtype) for name, it in avals.items()}
        _, stored = lax.fori_loop(1, ticks, forwards, (first, store(0, empty, first)))
        found: list[Any] = lax.fori_loop(0, ticks, backwards, back)
        return found
