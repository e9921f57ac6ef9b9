"""Equations of JAX, and register programs.

The first part handles the equations of a jaxpr: it makes functions from them, and finds those that
are divided, refused or differentiable. A register program consists of nodes of straight-line code.
Each node is one tick, and chooses the next node. Its adjoint propagates cotangents backwards.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from ckio.analysis.partitioned.jaxprs import BODIES, jax

LOOPS: Final = frozenset({"while", "scan"})
OPENED: Final = {name: where for name, where in BODIES.items() if not name.startswith("custom")}
"""Calls of functions without derivative rules, with the parameter that has their code.

Other calls are not divided.
"""


def inner(equation: Any) -> list[Any]:
    """Return the jaxprs, closed or not, in the parameters of an equation."""
    core = jax().extend.core
    values = (it if isinstance(it, tuple | list) else (it,) for it in equation.params.values())
    bodies = core.ClosedJaxpr | core.Jaxpr
    return [each for several in values for each in several if isinstance(each, bodies)]


def open_jaxpr(jaxpr: Any) -> tuple[Any, Sequence[Any]]:
    """Return a jaxpr and its constants."""
    return getattr(jaxpr, "jaxpr", jaxpr), getattr(jaxpr, "consts", ())


def has_loop(equation: Any) -> bool:
    """Return whether an equation is divided, because it has a loop in code that can be divided."""
    name = equation.primitive.name
    if name in LOOPS:
        return True
    if name != "cond" and name not in OPENED:
        return False
    return any(has_loop(each) for body in inner(equation) for each in open_jaxpr(body)[0].eqns)


def compute(jaxpr: Any, equations: Sequence[Any], inputs: Any, outputs: Any) -> Callable[..., Any]:
    """Return some equations of a jaxpr as a function of their free variables."""
    core = jax().extend.core
    alone = jaxpr.replace(constvars=[], invars=list(inputs), outvars=list(outputs), eqns=equations)
    call: Callable[..., Any] = core.jaxpr_as_fun(core.ClosedJaxpr(alone, []))
    return call


def fingerprint(closed: Any) -> str:
    """Return a digest of a closed jaxpr: of its text, and the bits of its numbers, at any depth.

    It includes the adjoints of functions with derivative rules of their own.
    """
    digest = hashlib.sha256()
    for each in (closed, *_rules(closed.jaxpr)):
        text = each.jaxpr.pretty_print(source_info=False, name_stack=False, use_color=False)
        # The text contains the addresses of rules, which differ between processes.
        digest.update(" ".join(re.sub(r" at 0x[0-9a-f]+", "", text).split()).encode())
        for number in _numbers(each):
            array = np.asarray(number)
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(array.tobytes())
    return digest.hexdigest()[:32]


def _rules(jaxpr: Any) -> Iterator[Any]:
    """Yield the adjoints of functions with derivative rules, as closed jaxprs, at any depth."""
    for equation in jaxpr.eqns:
        if equation.primitive.name.startswith("custom"):
            # If a rule cannot be traced now, JAX raises its error in the reverse sweep.
            with suppress(Exception):
                yield _rule(jaxpr, equation)
        for each in inner(equation):
            yield from _rules(open_jaxpr(each)[0])


def _rule(jaxpr: Any, equation: Any) -> Any:
    core, package = jax().extend.core, jax()
    atoms = [atom for atom in equation.invars if not isinstance(atom, core.Literal)]
    atoms = list(dict.fromkeys(atoms))
    results = [v for v in equation.outvars if is_smooth(v.aval) and not isinstance(v, core.DropVar)]
    call = compute(jaxpr, [equation], atoms, results)
    # Closed-over arrays come first, and have no derivative in a rule.
    closed_over = set(equation.invars[: equation.params.get("num_consts", 0)])
    by = [i for i, atom in enumerate(atoms) if is_smooth(atom.aval) and atom not in closed_over]

    def adjoint(given: list[Any], bars: list[Any]) -> Any:
        def of(*smooth: Any) -> Any:
            now = dict(enumerate(given)) | dict(zip(by, smooth, strict=True))
            return call(*now.values())

        return package.vjp(of, *(given[i] for i in by))[1](bars)

    known = [
        [package.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in vs]
        for vs in (atoms, results)
    ]
    return package.make_jaxpr(adjoint)(*known)


def is_smooth(aval: Any, /) -> bool:
    """Return whether numbers of this dtype have derivatives."""
    numpy = jax().numpy
    return bool(numpy.issubdtype(aval.dtype, numpy.inexact))


def smooth_sources(jaxpr: Any, sources: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    """Return for each output of a jaxpr the names on which it depends smoothly.

    `sources` has the names of each input.
    """
    literal, nothing = jax().extend.core.Literal, frozenset[str]()
    known = dict(zip(jaxpr.invars, sources, strict=True))

    def of(atom: Any) -> frozenset[str]:
        return nothing if isinstance(atom, literal) else known.get(atom, nothing)

    for equation in jaxpr.eqns:
        given, name = [of(atom) for atom in equation.invars], equation.primitive.name
        if name in OPENED:
            results = smooth_sources(open_jaxpr(equation.params[OPENED[name]])[0], given)
        else:
            either = nothing.union(*given) if name != "stop_gradient" else nothing
            results = [either] * len(equation.outvars)
        for variable, names in zip(equation.outvars, results, strict=True):
            known[variable] = names if is_smooth(variable.aval) else nothing
    return [of(atom) for atom in jaxpr.outvars]


def variables_used(jaxpr: Any) -> set[Any]:
    """Return the variables on which the outputs of a jaxpr depend."""
    literal = jax().extend.core.Literal
    used = {atom for atom in jaxpr.outvars if not isinstance(atom, literal)}
    for equation in reversed(jaxpr.eqns):
        if not used.isdisjoint(equation.outvars):
            used |= {atom for atom in equation.invars if not isinstance(atom, literal)}
    return used


def _numbers(body: Any) -> Iterator[Any]:
    literal = jax().extend.core.Literal
    jaxpr, constants = open_jaxpr(body)
    for constant in constants:
        yield bits(constant)
    for equation in jaxpr.eqns:
        yield from (bits(atom.val) for atom in equation.invars if isinstance(atom, literal))
        for each in inner(equation):
            yield from _numbers(each)
    yield from (bits(atom.val) for atom in jaxpr.outvars if isinstance(atom, literal))


def is_key(aval: Any) -> bool:
    """Return whether this is a typed key of a random number generator."""
    dtypes = jax().dtypes
    return bool(dtypes.issubdtype(aval.dtype, dtypes.extended))


def bits(array: Any) -> Any:
    """Return a typed key as integers, and any other array unchanged."""
    return jax().random.key_data(array) if is_key(jax().typeof(array)) else array


# Register programs

Values: TypeAlias = dict[str, Any]
"""Arrays of JAX by the names of registers."""


class Constant(NamedTuple):
    """An operand that is a number in the code, not a register."""

    array: Any


Operand: TypeAlias = str | Constant


class EquationGroup(NamedTuple):
    """Some equations as a function of the operands, which returns an array for each result."""

    compute: Callable[..., Sequence[Any]]
    operands: tuple[Operand, ...]
    results: tuple[str, ...]


class StackRow(NamedTuple):
    """One row of a stacked array, which a scan reads at the start of a node or writes at its end.

    `counter` is the register that counts iterations. `length` is the number of iterations of a scan
    from the end to the start, and 0 for a forward scan.
    """

    stacked: str
    row: str
    counter: str
    length: int

    def number(self, values: Mapping[str, Any]) -> Any:
        index = values[self.counter]
        return self.length - 1 - index if self.length else index


@dataclass(frozen=True)
class Node:
    """One tick: it reads rows, computes equations, writes rows, and then chooses the next node.

    Attributes
    ----------
    targets : tuple of int
        Nodes that may come next. The number of nodes stands for the end.
    choice : str, Constant or None
        A boolean or integer that is the index in `targets`, limited to the valid range. None is the
        first target.
    """

    equations: tuple[EquationGroup, ...]
    reads: tuple[StackRow, ...]
    writes: tuple[StackRow, ...]
    choice: Operand | None
    targets: tuple[int, ...]

    @cached_property
    def uses(self) -> frozenset[str]:
        """The registers that it needs from earlier nodes."""
        used: set[str] = set()
        for row in (*self.reads, *self.writes):
            used |= {row.stacked, row.counter}
        known = {row.row for row in self.reads}
        for each in self.equations:
            used |= {name for name in each.operands if isinstance(name, str)} - known
            known |= set(each.results)
        choice = {self.choice} if isinstance(self.choice, str) else set()
        return frozenset(used | (choice - known))

    @cached_property
    def sets(self) -> frozenset[str]:
        """The registers that it changes."""
        results = {name for each in self.equations for name in each.results}
        rows = {row.row for row in self.reads} | {row.stacked for row in self.writes}
        return frozenset(results | rows)

    def tick(self, values: Mapping[str, Any]) -> tuple[Any, Values]:
        """Return the number of the next node, and all registers after this node."""
        update = jax().lax.dynamic_update_index_in_dim
        after = self.computed({**values, **self.rows_read(values)})
        for row in self.writes:
            after[row.stacked] = update(values[row.stacked], after[row.row], row.number(values), 0)
        numpy, targets = jax().numpy, np.asarray(self.targets, np.int32)
        if self.choice is None or len(targets) == 1:
            return numpy.asarray(targets[0]), after
        number = numpy.asarray(_value(self.choice, after), numpy.int32)
        return numpy.asarray(targets)[numpy.clip(number, 0, len(targets) - 1)], after

    def rows_read(self, values: Mapping[str, Any]) -> Values:
        index = jax().lax.dynamic_index_in_dim
        return {
            row.row: index(values[row.stacked], row.number(values), keepdims=False)
            for row in self.reads
        }

    def computed(self, values: Values) -> Values:
        """Return all registers after the equations. It changes `values`."""
        for each in self.equations:
            results = each.compute(*(_value(it, values) for it in each.operands))
            values.update(zip(each.results, results, strict=True))
        return values


@dataclass(frozen=True)
class RegisterCode:
    """A whole program. It starts at node 0, to which no node leads, and ends after the last node.

    Attributes
    ----------
    avals : dict of str to Any
        Shape and dtype of each register.
    constants : dict of str to array
        Registers that no node sets. They are part of the code, and not stored in states.
    inputs, outputs : tuple of str
        Registers of the first and of the last state.
    """

    nodes: tuple[Node, ...]
    avals: dict[str, Any]
    constants: dict[str, Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @cached_property
    def live(self) -> tuple[tuple[str, ...], ...]:
        """For each node and for the end, the registers of which a state there consists."""
        live = [set(node.uses) for node in self.nodes] + [set(self.outputs)]
        changed = True
        while changed:
            changed = False
            for pc, node in reversed(list(enumerate(self.nodes))):
                after = set[str]().union(*(live[target] for target in node.targets))
                more = after - node.sets - live[pc]
                live[pc] |= more
                changed |= bool(more)
        live[0] = set(self.inputs)
        known = self.constants.keys()
        return tuple(tuple(sorted(names - known)) for names in live)

    def before(self, *nodes: int) -> tuple[str, ...]:
        """Return the registers that these nodes need, without constants, in order."""
        uses = frozenset[str]().union(*(self.nodes[pc].uses for pc in nodes))
        return tuple(sorted(uses - self.constants.keys()))

    def after(self, *nodes: int) -> tuple[str, ...]:
        """Return the registers that these nodes set and later nodes use, in order."""
        chosen = [self.nodes[pc] for pc in nodes]
        later = {name for node in chosen for target in node.targets for name in self.live[target]}
        return tuple(sorted(frozenset[str]().union(*(node.sets for node in chosen)) & later))

    def zeros(self, name: str) -> Any:
        """Return zeros with the shape and dtype of a register."""
        return jax().numpy.zeros(self.avals[name].shape, self.avals[name].dtype)

    def nbytes(self, names: Iterable[str]) -> int:
        """Return the bytes of these registers."""
        return nbytes(self.avals[name] for name in names)

    @cached_property
    def active(self) -> frozenset[str]:
        """The registers that have cotangents, because they depend smoothly on the inputs.

        Derivatives with respect to other registers are not needed. JAX even refuses to compute them
        if a function with a derivative rule closes over such a register.
        """
        flows = [flow for pc in range(len(self.nodes)) for flow in self._flows(pc).items()]
        names = {name for name in self.inputs if is_smooth(self.avals[name])}
        more = set(names)
        while more:
            more = {name for name, sources in flows if not sources.isdisjoint(names)} - names
            names |= more
        return frozenset(names)

    def _flows(self, pc: int) -> dict[str, frozenset[str]]:
        """Return for each register that a node sets the registers on which it depends smoothly."""
        before, after = self.before(pc), self.after(pc)

        def run(values: Values) -> list[Any]:
            results = self.nodes[pc].tick(values | self.constants)[1]
            return [results[name] for name in after]

        closed = jax().make_jaxpr(run)({name: self.avals[name] for name in before})
        sources = smooth_sources(closed.jaxpr, [frozenset({name}) for name in before])
        return dict(zip(after, sources, strict=True))


@dataclass(frozen=True)
class NodeAdjoint:
    """The adjoint of the node `pc`."""

    code: RegisterCode
    pc: int

    @cached_property
    def touched(self) -> tuple[str, ...]:
        """The registers whose cotangents it changes, in order."""
        names = {*self.code.before(self.pc), *self.code.after(self.pc)}
        return tuple(sorted(names & self.code.active))

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """The registers before the node on whose values the adjoint depends, in order."""
        avals = self.code.avals
        values = {name: avals[name] for name in self.code.before(self.pc)}
        cotangent = {name: avals[name] for name in self.touched}
        constants = self.code.constants
        closed = jax().make_jaxpr(lambda v, ct: self(v | constants, ct))(values, cotangent)
        used, variables = variables_used(closed.jaxpr), closed.jaxpr.invars[: len(values)]
        return tuple(name for name, it in zip(sorted(values), variables, strict=True) if it in used)

    def __call__(self, values: Mapping[str, Any], cotangent: Mapping[str, Any]) -> Values:
        """Return the cotangents of the touched registers before the node from those after it.

        `values` are constants and the registers before the node. Only `needed` ones must be given.
        """
        code, node = self.code, self.code.nodes[self.pc]
        shapes = code.before(self.pc)
        values = {name: code.zeros(name) for name in shapes if name not in values} | {**values}
        numbers = [row.number(values) for row in (*node.reads, *node.writes)]
        back = dict(cotangent)

        rows: Values = {}
        for row, number in zip(node.writes, numbers[len(node.reads) :], strict=True):
            if row.stacked in back:
                rows[row.row] = back[row.stacked][number]
                back[row.stacked] = back[row.stacked].at[number].set(0)
        stacks = {row.stacked for row in node.writes}
        changed = {name: back.pop(name) for name in self.touched if name in node.sets - stacks}
        back |= {name: code.zeros(name) for name in changed}

        read = node.rows_read(values)
        inputs = {n: values[n] for n in self.touched if n in shapes and n not in stacks}
        inputs |= {row.row: read[row.row] for row in node.reads if row.stacked in back}
        fixed = values | read

        def forward(smooth: Values) -> Values:
            after = node.computed(fixed | smooth)
            return {name: after[name] for name in (*changed, *rows)}

        _, pull = jax().vjp(forward, inputs)
        (parts,) = pull({**changed, **rows})
        for row, number in zip(node.reads, numbers, strict=False):
            if row.stacked in back and row.row in parts:
                back[row.stacked] = back[row.stacked].at[number].add(parts.pop(row.row))
        for name, part in parts.items():
            if name in back and name in shapes:
                back[name] = back[name] + part
        return back


def nbytes(arrays: Iterable[Any]) -> int:
    """Return the bytes of arrays, or of objects with a shape and a dtype."""
    return sum(int(np.prod(it.shape)) * it.dtype.itemsize for it in arrays)


def _value(operand: Operand, values: Mapping[str, Any]) -> Any:
    return operand.array if isinstance(operand, Constant) else values[operand]
