"""A register program run node by node, each of them compiled; innermost loops run on in XLA."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from ckio.analysis.partitioned.jaxprs import jax
from ckio.programs.jaxed.code import Code, Values
from ckio.programs.jaxed.compiling import Compiling
from ckio.programs.jaxed.ticks import Back, bucket, nbytes, tick

MOST = 2**30
"""Ticks that one call of XLA passes at most: its counters have 32 bits."""


class Taped(NamedTuple):
    """Ticks of one node, and the registers it needs before the first of them."""

    pc: int
    ticks: int
    values: Values


@dataclass(frozen=True)
class Blocks(Compiling):
    """How `blocks` runs and reverses a program.

    Attributes
    ----------
    code : Code
    base : int
        Iterations of an innermost loop of which the inputs are stored at a time: from those
        before the first of them they are computed again.
    """

    def advance(
        self, pc: int, registers: Mapping[str, Any], limit: int, tape: list[Taped] | None = None
    ) -> tuple[int, Values, int]:
        """Run at most `limit` ticks: where it is, the live registers, and the ticks passed.

        Each call of a compiled function is put on the tape, if there is one.
        """
        code, values, done = self.code, dict(registers), 0
        while pc < len(code.nodes) and done < limit:
            run, known, before, after = self._run(pc)
            given = [values[name] for name in before]
            if code.is_loop(pc):
                most = min(limit - done, MOST if tape is None else self.base)
                counts, results = run(known, given, most)
                came, ticks = np.asarray(counts).tolist()  # far faster than int() of each
            else:
                came, results = run(known, given)
                ticks = 1
            if tape is not None:
                needed = self._back(pc).needed
                kept = before if code.is_loop(pc) else needed
                tape.append(Taped(pc, ticks, {name: values[name] for name in kept}))
            values.update(zip(after, results, strict=True))
            targets, done = code.nodes[pc].targets, done + ticks
            pc = targets[0] if len(targets) == 1 else int(np.asarray(came))
            values = {name: values[name] for name in code.live[pc]}
        return pc, values, done

    def pullback(
        self, pc: int, registers: Mapping[str, Any], ticks: int, cotangent: Values
    ) -> tuple[Values, int, int]:
        """The cotangent of a state from that of the one reached; ticks and bytes of the tape."""
        tape: list[Taped] = []
        self.advance(pc, registers, ticks, tape)
        kept = {id(it): it for taped in tape for it in taped.values.values()}
        rows, stored = max(map(self._rows, tape), key=itemgetter(1), default=(0, 0))
        size = nbytes(list(kept.values())) + stored
        del kept
        back = dict(cotangent)
        count = len(tape) + rows
        while tape:
            self._reverse(tape.pop(), back)
        return back, count, size

    def _reverse(self, taped: Taped, back: Values) -> None:
        """Take the cotangents back over what was taped in one call."""
        adjoint = self._back(taped.pc)
        before = self.code.before(taped.pc)
        ends = [name for name in adjoint.touched if name in before]
        given = {name: back.pop(name, None) for name in adjoint.touched}
        if all(it is None for it in given.values()):
            return
        filled = [self._zero(name) if it is None else it for name, it in given.items()]
        values, known = list(taped.values.values()), self.code.known(taped.pc)
        if self.code.is_loop(taped.pc):
            reverse = self._compile(("loop", taped.pc, self._rows(taped)[0]), self._loop_back)
            found = reverse(known, (values, taped.ticks), filled)
        else:
            found = self._compile(("back", taped.pc), self._node_back)(known, values, filled)
        back.update(zip(ends, found, strict=True))

    def _rows(self, taped: Taped) -> tuple[int, int]:
        """How many iterations are stored while a loop is reversed, and their bytes."""
        if not self.code.is_loop(taped.pc):
            return 0, 0
        row = nbytes([self.code.avals[name] for name in self._varying(taped.pc)])
        rows = bucket(taped.ticks, row, self.base)
        return rows, rows * row

    def _varying(self, pc: int) -> list[str]:
        """What the adjoint of a loop's iteration needs and the loop changes."""
        after = self.code.after(pc)
        return [name for name in self._back(pc).needed if name in after]

    def _run(self, pc: int) -> tuple[Callable[..., Any], Values, Sequence[str], Sequence[str]]:
        if ("run", pc) not in self._compiled:
            make = _loop if self.code.is_loop(pc) else _node
            run = jax().jit(partial(make, self.code, pc))
            names = self.code.before(pc), self.code.after(pc)
            self._compiled["run", pc] = run, self.code.known(pc), *names
        found: tuple[Any, Any, Any, Any] = self._compiled["run", pc]
        return found

    def _back(self, pc: int) -> Back:
        if ("adjoint", pc) not in self._compiled:
            self._compiled["adjoint", pc] = Back(self.code, pc, self.active)
        back: Back = self._compiled["adjoint", pc]
        return back

    def _node_back(
        self, pc: int, known: Values, given: list[Any], cotangent: list[Any]
    ) -> list[Any]:
        adjoint = self._back(pc)
        values = known | dict(zip(adjoint.needed, given, strict=True))
        back = adjoint(values, dict(zip(adjoint.touched, cotangent, strict=True)))
        return [back[name] for name in adjoint.touched if name in self.code.before(pc)]

    def _loop_back(
        self, pc: int, rows: int, known: Values, taped: tuple[list[Any], Any], cotangent: list[Any]
    ) -> list[Any]:
        """The adjoint of iterations, at most `rows`.

        `taped` are the registers before the first of them, and how many they are.
        They are computed once more, and what each needs is stored; then it goes back over them.
        How many there are was found out before: a loop's condition is asked in one place only.
        """
        numpy, fori = jax().numpy, jax().lax.fori_loop
        given, ticks = taped
        code, adjoint = self.code, self._back(pc)
        node, before, varying = code.nodes[pc], code.before(pc), self._varying(pc)
        first = dict(zip(before, given, strict=True))
        changing = [name for name in before if name in code.after(pc)]
        fixed = {name: first[name] for name in before if name not in changing} | known

        def store(row: Any, stored: Values, values: Values) -> Values:
            return {name: stored[name].at[row].set(values[name]) for name in varying}

        def forwards(row: Any, carried: tuple[Values, Values]) -> tuple[Values, Values]:
            values, stored = carried
            _, after = tick(node, fixed | values)
            values = {name: after[name] for name in changing}
            return values, store(row, stored, values)

        def backwards(row: Any, cotangent: Values) -> Values:
            values = {name: stored[name][ticks - 1 - row] for name in varying}
            return adjoint(fixed | values, cotangent)

        avals = {name: code.avals[name] for name in varying}
        empty = {name: numpy.zeros((rows, *it.shape), it.dtype) for name, it in avals.items()}
        values = {name: first[name] for name in changing}
        _, stored = fori(1, ticks, forwards, (values, store(0, empty, values)))
        back = fori(0, ticks, backwards, dict(zip(adjoint.touched, cotangent, strict=True)))
        return [back[name] for name in adjoint.touched if name in before]


def _node(code: Code, pc: int, known: Values, given: list[Any]) -> tuple[Any, list[Any]]:
    values = dict(zip(code.before(pc), given, strict=True)) | known
    came, after = tick(code.nodes[pc], values)
    return came, [after[name] for name in code.after(pc)]


def _loop(
    code: Code, pc: int, known: Values, given: list[Any], limit: Any
) -> tuple[Any, list[Any]]:
    """Iterations of a loop until it ends or the limit is reached; at least one.

    Where it comes to and how many there were are one array.
    """
    numpy = jax().numpy
    before, after = code.before(pc), code.after(pc)
    values = dict(zip(before, given, strict=True))
    fixed = {name: it for name, it in values.items() if name not in after} | known
    zeros = {name: code.avals[name] for name in after if name not in values}
    first = {name: numpy.zeros(it.shape, it.dtype) for name, it in zeros.items()}
    first |= {name: values[name] for name in after if name in values}

    def again(carried: tuple[Any, Any, Values]) -> Any:
        return (carried[0] == pc) & (carried[1] < limit)

    def once(carried: tuple[Any, Any, Values]) -> tuple[Any, Any, Values]:
        came, results = tick(code.nodes[pc], fixed | carried[2])
        return came, carried[1] + 1, {name: results[name] for name in after}

    start = numpy.int32(pc), numpy.int32(0), first
    came, ticks, results = jax().lax.while_loop(again, once, start)
    return numpy.stack([came, ticks]), [results[name] for name in after]
