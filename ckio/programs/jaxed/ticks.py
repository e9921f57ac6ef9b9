"""What one tick computes, and its adjoint, as functions that JAX can compile."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ckio.analysis.partitioned.jaxprs import jax
from ckio.programs.jaxed.code import Code, Constant, Node, Operand, Values
from ckio.programs.jaxed.equations import OPENED, is_smooth, opened


def tick(node: Node, values: Mapping[str, Any]) -> tuple[Any, Values]:
    """The number of the node that comes next, and all registers after a node."""
    update = jax().lax.dynamic_update_index_in_dim
    after = _computed(node, dict(values) | _rows_read(node, values))
    for row in node.writes:
        stacked = values[row.stacked]
        after[row.stacked] = update(stacked, after[row.row], row.number(values), 0)
    return _next(node, after), after


@dataclass(frozen=True)
class Back:
    """The adjoint of one node.

    Attributes
    ----------
    code : Code
    pc : int
        Which node.
    active : frozenset of str
        The registers that have cotangents.
    """

    code: Code
    pc: int
    active: frozenset[str]

    @cached_property
    def touched(self) -> tuple[str, ...]:
        """The registers whose cotangents it changes, in order."""
        names = {*self.code.before(self.pc), *self.code.after(self.pc)}
        return tuple(sorted(names & self.active))

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """The registers before it of which the adjoint depends on the values, in order."""
        avals = self.code.avals
        values = {name: avals[name] for name in self.code.before(self.pc)}
        cotangent = {name: avals[name] for name in self.touched}
        constants = self.code.constants
        closed = jax().make_jaxpr(lambda v, ct: self(v | constants, ct))(values, cotangent)
        used = _used(closed.jaxpr)
        variables = closed.jaxpr.invars[: len(values)]
        return tuple(name for name, it in zip(sorted(values), variables, strict=True) if it in used)

    def __call__(self, values: Mapping[str, Any], cotangent: Mapping[str, Any]) -> Values:
        """The cotangents of what it touches before the node, from those after it.

        `values` are constants and the registers before the node; what is not needed may lack.
        """
        code, node = self.code, self.code.nodes[self.pc]
        shapes = {name: code.avals[name] for name in self.code.before(self.pc)}
        known = {name: _zeros(shapes[name]) for name in shapes if name not in values}
        values = {**known, **values}
        numbers = [row.number(values) for row in (*node.reads, *node.writes)]
        back = dict(cotangent)

        rows: Values = {}
        for row, number in zip(node.writes, numbers[len(node.reads) :], strict=True):
            if row.stacked in back:
                rows[row.row] = back[row.stacked][number]
                back[row.stacked] = back[row.stacked].at[number].set(0)
        stacks = {row.stacked for row in node.writes}
        changed = {name: back.pop(name) for name in self.touched if name in node.sets - stacks}
        back |= {name: _zeros(code.avals[name]) for name in changed}

        read = _rows_read(node, values)
        inputs = {name: values[name] for name in self.touched if name in shapes}
        inputs = {name: it for name, it in inputs.items() if name not in stacks}
        inputs |= {row.row: read[row.row] for row in node.reads if row.stacked in back}
        fixed = values | read

        def forward(smooth: Values) -> Values:
            after = _computed(node, fixed | smooth)
            return {name: after[name] for name in (*changed, *rows)}

        _, pull = jax().vjp(forward, inputs)
        (found,) = pull({**changed, **rows})
        for row, number in zip(node.reads, numbers, strict=False):
            if row.stacked in back and row.row in found:
                part = found.pop(row.row)
                back[row.stacked] = back[row.stacked].at[number].add(part)
        for name, part in found.items():
            if name in back and name in shapes:
                back[name] = back[name] + part
        return back


def active(code: Code) -> frozenset[str]:
    """The registers that have cotangents: derivatives by the inputs reach them.

    Others are constants as far as derivatives go. To take one by them would be lost work, and JAX
    refuses to where a function with a rule of its own closes over them.
    """
    flows = [flow for pc in range(len(code.nodes)) for flow in _flows(code, pc).items()]
    found = {name for name in code.inputs if is_smooth(code.avals[name])}
    more = set(found)
    while more:
        more = {name for name, sources in flows if not sources.isdisjoint(found)} - found
        found |= more
    return frozenset(found)


def _flows(code: Code, pc: int) -> dict[str, frozenset[str]]:
    """For what a node sets, the registers before it by which it has derivatives."""
    after, constants = code.after(pc), code.constants

    def run(values: Values) -> list[Any]:
        _, came = tick(code.nodes[pc], values | constants)
        return [came[name] for name in after]

    before = code.before(pc)
    closed = jax().make_jaxpr(run)({name: code.avals[name] for name in before})
    found = _reached(closed.jaxpr, [frozenset({name}) for name in before])
    return dict(zip(after, found, strict=True))


def _reached(jaxpr: Any, sources: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    """For each output of a jaxpr, the names of the inputs by which it has derivatives."""
    literal, nothing = jax().extend.core.Literal, frozenset[str]()
    known = dict(zip(jaxpr.invars, sources, strict=True))

    def of(atom: Any) -> frozenset[str]:
        return nothing if isinstance(atom, literal) else known.get(atom, nothing)

    for equation in jaxpr.eqns:
        given, name = [of(atom) for atom in equation.invars], equation.primitive.name
        if name in OPENED:
            found = _reached(opened(equation.params[OPENED[name]])[0], given)
        else:
            either = nothing.union(*given) if name != "stop_gradient" else nothing
            found = [either] * len(equation.outvars)
        for variable, names in zip(equation.outvars, found, strict=True):
            known[variable] = names if is_smooth(variable.aval) else nothing
    return [of(atom) for atom in jaxpr.outvars]


def _zeros(aval: Any) -> Any:
    return jax().numpy.zeros(aval.shape, aval.dtype)


def _rows_read(node: Node, values: Mapping[str, Any]) -> Values:
    index = jax().lax.dynamic_index_in_dim
    return {
        row.row: index(values[row.stacked], row.number(values), keepdims=False)
        for row in node.reads
    }


def _computed(node: Node, values: Values) -> Values:
    """All registers after the pieces of a node; `values` becomes them."""
    for piece in node.pieces:
        results = piece.compute(*(_value(it, values) for it in piece.operands))
        values.update(zip(piece.results, results, strict=True))
    return values


def _value(operand: Operand, values: Mapping[str, Any]) -> Any:
    return operand.array if isinstance(operand, Constant) else values[operand]


def _next(node: Node, values: Mapping[str, Any]) -> Any:
    numpy = jax().numpy
    targets = np.asarray(node.targets, np.int32)
    if node.choice is None or len(targets) == 1:
        return numpy.asarray(targets[0])
    number = numpy.asarray(_value(node.choice, values), numpy.int32)
    return numpy.asarray(targets)[numpy.clip(number, 0, len(targets) - 1)]


def _used(jaxpr: Any) -> set[Any]:
    """The variables that the outputs of a jaxpr depend on."""
    literal = jax().extend.core.Literal
    used = {atom for atom in jaxpr.outvars if not isinstance(atom, literal)}
    for equation in reversed(jaxpr.eqns):
        if not used.isdisjoint(equation.outvars):
            used |= {atom for atom in equation.invars if not isinstance(atom, literal)}
    return used


def bucket(ticks: int, row: int, most: int) -> int:
    """A number of rows that is not smaller, of the few that are compiled for.

    They grow by eight while they are small, and twofold where that would be much memory; `row` is
    in bytes. None is larger than `most`.
    """
    rows = 8 if row <= 1 << 17 else 1
    while rows < ticks:
        rows *= 8 if rows * row <= 1 << 17 else 2
    return min(rows, most)


def nbytes(arrays: Sequence[Any]) -> int:
    """Bytes of arrays or of what is known of them."""
    return sum(int(np.prod(it.shape)) * it.dtype.itemsize for it in arrays)
