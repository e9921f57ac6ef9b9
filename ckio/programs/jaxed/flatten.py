"""Translation of a jaxpr to a register program: loops, and branches with loops, become jumps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ckio.analysis.partitioned.jaxprs import jax
from ckio.errors import BadInput
from ckio.programs.jaxed.nodes import (
    OPENED,
    Constant,
    EquationGroup,
    Node,
    Operand,
    RegisterCode,
    StackRow,
    compute,
    has_loop,
    is_key,
    open_jaxpr,
)


def flatten(closed: Any, inputs: Sequence[str], outputs: Sequence[str]) -> RegisterCode:
    """Return the register program of a closed jaxpr whose inputs and outputs have these names.

    An innermost loop is one node that leads to itself. Its condition is computed in the node before
    it, and at the end of each iteration. So every iteration of every loop takes at least one tick,
    and a loop without iterations takes no tick.
    """
    draft = _Draft()
    jaxpr = closed.jaxpr
    for name, variable in zip(inputs, jaxpr.invars, strict=True):
        draft.define(name, variable.aval)
    results = draft.add(jaxpr, closed.consts, inputs)
    for name, variable in zip(outputs, jaxpr.outvars, strict=True):
        draft.define(name, variable.aval)
    draft.move(results, outputs)
    end = _Label()
    draft.close(end)
    end.place = len(draft.nodes)
    nodes = tuple(each.node() for each in draft.nodes)
    return RegisterCode(nodes, draft.avals, draft.constants, tuple(inputs), tuple(outputs))


@dataclass
class _Label:
    """The target of a jump. The number of its node is known when this node has been begun."""

    place: int = -1


@dataclass
class _Open:
    """A node that is being written."""

    equations: list[EquationGroup] = field(default_factory=list)
    reads: list[StackRow] = field(default_factory=list)
    writes: list[StackRow] = field(default_factory=list)
    choice: Operand | None = None
    targets: tuple[_Label, ...] = ()

    def node(self) -> Node:
        targets = tuple(label.place for label in self.targets)
        rows = tuple(self.reads), tuple(self.writes)
        return Node(tuple(self.equations), *rows, self.choice, targets)


@dataclass
class _Draft:
    """A program while it is written. The last node is open until it is closed."""

    nodes: list[_Open] = field(default_factory=lambda: [_Open()])
    avals: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    _named: dict[int, str] = field(default_factory=dict)

    def define(self, name: str, aval: Any) -> str:
        """Add a register with this name, shape and dtype, and return the name."""
        if is_key(aval):
            raise BadInput(
                f"jax_program: {name!r} is a typed key of a random number generator"
                f" ({aval.dtype}), which no checkpoint can store; use"
                " jax.random.PRNGKey(seed), which returns an array of integers"
            )
        self.avals[name] = jax().ShapeDtypeStruct(aval.shape, aval.dtype)
        return name

    def fresh(self, aval: Any) -> str:
        return self.define(f"r{len(self.avals)}", aval)

    def constant(self, array: Any) -> str:
        """Return the register of a closed-over array, which is kept so that its id stays unique."""
        if id(array) not in self._named:
            name = self._named[id(array)] = self.fresh(jax().typeof(array))
            self.constants[name] = array
        return self._named[id(array)]

    def close(self, *targets: _Label, choice: Operand | None = None) -> None:
        self.nodes[-1].choice, self.nodes[-1].targets = choice, targets

    def begin(self, label: _Label) -> None:
        label.place = len(self.nodes)
        self.nodes.append(_Open())

    def move(self, sources: Sequence[Operand], targets: Sequence[str]) -> None:
        """Copy registers, all at the same time, so that they may also be exchanged."""
        self.nodes[-1].equations.append(
            EquationGroup(lambda *arrays: arrays, tuple(sources), tuple(targets))
        )

    def add(self, jaxpr: Any, constants: Sequence[Any], inputs: Sequence[Operand]) -> list[Operand]:
        """Write the code of a jaxpr with these inputs, and return its outputs."""
        literal = jax().extend.core.Literal
        known: dict[Any, Operand] = {}
        known.update(zip(jaxpr.constvars, map(self.constant, constants), strict=True))
        known.update(zip(jaxpr.invars, inputs, strict=True))

        def place(atom: Any) -> Operand:
            return Constant(atom.val) if isinstance(atom, literal) else known[atom]

        straight: list[Any] = []
        for equation in jaxpr.eqns:
            if has_loop(equation):
                self._straight(jaxpr, straight, known)
                straight = []
                results = self._split(equation, [place(atom) for atom in equation.invars])
                known.update(zip(equation.outvars, results, strict=True))
            else:
                straight.append(equation)
        self._straight(jaxpr, straight, known)
        return [place(atom) for atom in jaxpr.outvars]

    def _straight(self, jaxpr: Any, equations: Sequence[Any], known: dict[Any, Operand]) -> None:
        """Add equations without loops as one function."""
        if not equations:
            return
        core = jax().extend.core
        outputs: dict[Any, None] = {}
        taken: dict[Any, None] = {}
        for equation in equations:
            free = (atom for atom in equation.invars if not isinstance(atom, core.Literal))
            taken.update((atom, None) for atom in free if atom not in outputs)
            outputs.update((v, None) for v in equation.outvars if not isinstance(v, core.DropVar))
        used = _used_later(jaxpr, equations)
        results = [variable for variable in outputs if variable in used]
        call = compute(jaxpr, equations, taken, results)
        operands = tuple(known[atom] for atom in taken)
        known.update((variable, self.fresh(variable.aval)) for variable in results)
        names = tuple(str(known[variable]) for variable in results)
        self.nodes[-1].equations.append(EquationGroup(call, operands, names))

    def _split(self, equation: Any, given: list[Operand]) -> list[Operand]:
        params, name = equation.params, equation.primitive.name
        if name in OPENED:
            return self.add(*open_jaxpr(params[OPENED[name]]), given)
        divide = {"while": self._while, "scan": self._scan, "cond": self._cond}[name]
        return divide(params, [variable.aval for variable in equation.outvars], given)

    def _while(
        self, params: Mapping[str, Any], avals: Sequence[Any], given: list[Operand]
    ) -> list[Operand]:
        """Write a loop. With `vmap` it has several lanes, and ends when all of them have ended.

        Lanes that have ended keep their values.
        """
        test, body = open_jaxpr(params["cond_jaxpr"]), open_jaxpr(params["body_jaxpr"])
        first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
        carry = [self.fresh(aval) for aval in avals]
        onwards, after = _Label(), _Label()
        lanes = test[0].outvars[0].aval
        going = [self.fresh(lanes)] if lanes.shape else []

        def ask() -> Operand:
            (choice,) = self.add(*test, [*given[:first], *carry])
            if not going:
                return choice
            some = self.fresh(jax().ShapeDtypeStruct((), lanes.dtype))
            lanes_go = EquationGroup(lambda it: (it, it.any()), (choice,), (*going, some))
            self.nodes[-1].equations.append(lanes_go)
            return some

        def turn() -> None:
            taken = [self.fresh(aval) for aval in avals] if going else carry
            if going:
                self.nodes[-1].equations.append(
                    EquationGroup(_stop_ended, (*going, *carry), tuple(taken))
                )
            results = self.add(*body, [*given[first:second], *taken])
            if going:
                selected = EquationGroup(_select, (*going, *carry, *results), tuple(carry))
                self.nodes[-1].equations.append(selected)
            else:
                self.move(results, carry)

        self.move(given[second:], carry)
        self.close(after, onwards, choice=ask())
        self.begin(onwards)
        turn()
        self.close(after, onwards, choice=ask())
        self.begin(after)
        return list(carry)

    def _scan(
        self, params: Mapping[str, Any], avals: Sequence[Any], given: list[Operand]
    ) -> list[Operand]:
        numpy = jax().numpy
        length, reverse = int(params["length"]), bool(params["reverse"])
        first, second = params["num_consts"], params["num_consts"] + params["num_carry"]
        body, constants = open_jaxpr(params["jaxpr"])
        registers = [self.fresh(aval) for aval in avals]
        carry, stacks = registers[: params["num_carry"]], registers[params["num_carry"] :]
        empty = [Constant(numpy.zeros(v.shape, v.dtype)) for v in avals[len(carry) :]]
        if length == 0:
            self.move([*given[first:second], *empty], registers)
            return list(registers)
        counter = self.fresh(jax().ShapeDtypeStruct((), numpy.int32))
        zero = Constant(numpy.zeros((), numpy.int32))
        likes = [self.avals[name] for name in stacks]  # zeros are computed, not stored as constants
        zeros = EquationGroup(
            lambda: [numpy.zeros(it.shape, it.dtype) for it in likes], (), tuple(stacks)
        )
        self.nodes[-1].equations.append(zeros)
        self.move([*given[first:second], zero], [*carry, counter])
        loop, after = _Label(), _Label()
        self.close(loop)
        self.begin(loop)
        scanned = [it if isinstance(it, str) else self.constant(it.array) for it in given[second:]]
        rows = [self.fresh(variable.aval) for variable in body.invars[second:]]
        ends = length if reverse else 0
        self.nodes[-1].reads += [
            StackRow(*it, counter, ends) for it in zip(scanned, rows, strict=True)
        ]
        results = self.add(body, constants, [*given[:first], *carry, *rows])
        ys = [self.fresh(variable.aval) for variable in body.outvars[len(carry) :]]
        self.nodes[-1].writes += [
            StackRow(*it, counter, ends) for it in zip(stacks, ys, strict=True)
        ]
        self.move(results, [*carry, *ys])
        choice = self.fresh(jax().ShapeDtypeStruct((), numpy.bool_))
        count = EquationGroup(lambda i: (i + 1, i + 1 < length), (counter,), (counter, choice))
        self.nodes[-1].equations.append(count)
        self.close(after, loop, choice=choice)
        self.begin(after)
        return list(registers)

    def _cond(
        self, params: Mapping[str, Any], avals: Sequence[Any], given: list[Operand]
    ) -> list[Operand]:
        results = [self.fresh(aval) for aval in avals]
        branches = [(_Label(), *open_jaxpr(branch)) for branch in params["branches"]]
        after = _Label()
        self.close(*(label for label, *_ in branches), choice=given[0])
        for label, body, constants in branches:
            self.begin(label)
            self.move(self.add(body, constants, given[1:]), results)
            self.close(after)
        self.begin(after)
        return list(results)


def _stop_ended(going: Any, *carry: Any) -> list[Any]:
    """Return the carry without derivatives in lanes that have ended, which would be 0 * inf."""
    stop = jax().lax.stop_gradient
    return [_where(going, it, stop(it)) for it in carry]


def _select(going: Any, *both: Any) -> list[Any]:
    """Return the second half of the arrays in lanes that continue, and the first half in others."""
    half = len(both) // 2
    return [_where(going, new, old) for old, new in zip(both[:half], both[half:], strict=True)]


def _where(going: Any, new: Any, old: Any) -> Any:
    lanes = going.reshape(going.shape + (1,) * (new.ndim - going.ndim))
    return jax().numpy.where(lanes, new, old)


def _used_later(jaxpr: Any, equations: Sequence[Any]) -> set[Any]:
    """Return the variables that other equations of a jaxpr use, and its outputs."""
    literal = jax().extend.core.Literal
    own = {id(equation) for equation in equations}
    others = (atom for each in jaxpr.eqns if id(each) not in own for atom in each.invars)
    return {atom for atom in (*others, *jaxpr.outvars) if not isinstance(atom, literal)}
