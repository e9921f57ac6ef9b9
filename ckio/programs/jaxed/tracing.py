"""Programs made from functions of JAX. They can be interrupted after any tick."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ckio.analysis.partitioned.jaxprs import check_pure, jax
from ckio.errors import BadInput
from ckio.programs.heap import Json, leaves, rebuild
from ckio.programs.interface import Cotangent, report_tape
from ckio.programs.jaxed.flatten import flatten
from ckio.programs.jaxed.nodes import fingerprint, is_smooth
from ckio.programs.jaxed.regions import RegisterMachine

Mode: TypeAlias = Literal["blocks", "switch"]
"""The way in which a program runs: see `regions`. Ticks and states are the same."""

SMALL: Final = 64 << 10
"""The most bytes of all registers of a program that runs as a switch, which may copy them all."""

BASE: Final = {"blocks": 1024, "switch": 4096}
"""The most ticks whose inputs are stored at a time.

In blocks, the iterations of one innermost loop are counted.
"""

Number = bool | int | float | complex


def traceable(name: str, leaf: Any) -> Any:
    """Return a leaf that JAX can trace; raises BadInput if JAX would change its type."""
    if isinstance(leaf, Number) and not isinstance(leaf, np.generic):
        return leaf
    try:
        aval = jax().typeof(leaf)
    except (TypeError, ValueError):
        raise BadInput(
            f"jax_program: {name} is a {type(leaf).__name__}; inputs and results must be arrays and"
            " numbers, in tuples, lists and dicts"
        ) from None
    if isinstance(leaf, np.ndarray | np.generic) and leaf.dtype != aval.dtype:
        raise BadInput(
            f"jax_program: {name} is {leaf.dtype}, which JAX would convert to {aval.dtype}; call"
            " jax.config.update('jax_enable_x64', True) before, or give an array of the latter type"
        )
    return leaf


def as_leaf(name: str, leaf: Any, like: Any) -> Any:
    """Return a copy of a leaf as an array of JAX with the dtype of `like`.

    Raises BadInput if the leaf has another shape, or if the dtype cannot represent it. For a number
    of Python, only its kind must fit: for example, a float does not become an integer.
    """
    array = np.asarray(leaf)
    plain = isinstance(leaf, Number) and not isinstance(leaf, np.generic)
    fits = np.can_cast(array.dtype, like.dtype, "same_kind" if plain else "safe")
    if array.shape != like.shape or not fits:
        raise BadInput(
            f"{name} is {array.dtype}{list(array.shape)}, but this program was made for"
            f" {like.dtype}{list(like.shape)}; make another program from an example like this"
        )
    return jax().numpy.array(array, dtype=like.dtype, copy=True)


@dataclass(frozen=True)
class RegisterState:
    """The number of the next node, and the registers that are still needed, as arrays of JAX."""

    pc: int
    registers: Mapping[str, Any]


class JaxProgram:
    """A `Program` made from a function of JAX.

    Attributes
    ----------
    mode : {'blocks', 'switch'}
        The way in which the program runs: see `jax_program`. Each resumes states of the other.
    fingerprint : str
        A hash of the traced code, its constants, and the rules of `custom_vjp` and `custom_jvp`.
    """

    mode: Mode
    fingerprint: str

    def __init__(
        self, function: Callable[..., Any], example: tuple[Any, ...], mode: Mode | None = None
    ) -> None:
        # A program runs in the precision in which it was traced, whatever is set later.
        self._double = bool(jax().config.jax_enable_x64)
        given = leaves(example, "x")
        self._x = _names(example, "x")
        closed = jax().make_jaxpr(self._flat(function))(*map(traceable, given, given.values()))
        check_pure("jax_program: the function contains", closed.jaxpr)
        self.fingerprint = fingerprint(closed)
        self._code = code = flatten(closed, tuple(given), tuple(leaves(self._y, "y")))
        if mode is None:
            nbytes = code.nbytes({name for live in code.live for name in live})
            mode = "switch" if nbytes <= SMALL else "blocks"
        self.mode = mode
        self._machine = RegisterMachine(code, BASE[mode], whole=mode == "switch")

    def __repr__(self) -> str:
        nodes = len(self._code.nodes)
        return f"JaxProgram({nodes} nodes, mode={self.mode!r}, fingerprint={self.fingerprint!r})"

    def start(self, *x: Any) -> RegisterState:
        given, avals = leaves(x, "x"), self._code.avals
        if given.keys() != leaves(self._x, "x").keys():
            raise BadInput(f"start: x must have the structure of the example, {self._x}")
        with self._precision():
            return RegisterState(0, {n: as_leaf(n, it, avals[n]) for n, it in given.items()})

    def advance(
        self, state: RegisterState, limit: float = inf, /
    ) -> tuple[RegisterState, int, bool]:
        most = 2**62 if limit == inf else int(limit)
        with self._precision():
            pc, registers, ticks = self._machine.advance(state.pc, state.registers, most)
        return RegisterState(pc, registers), ticks, pc == self._end

    def result(self, state: RegisterState, /) -> Any:
        """Return the result, with arrays of JAX. Raise BadInput if the state is not finished."""
        if state.pc != self._end:
            raise BadInput("result: this state has not finished; advance it to the end first")
        return _with_leaves(self._y, state.registers)

    def pullback(
        self, state: RegisterState, ticks: int, cotangent: Cotangent, /
    ) -> dict[str, NDArray[Any]]:
        with self._precision():
            conj = jax().numpy.conj  # JAX's own cotangents are the conjugates of ckio's
            given = {name: conj(self._cotangent(name, each)) for name, each in cotangent.items()}
            given = {name: it for name, it in given.items() if name in self._code.active}
            pc, registers = state.pc, state.registers
            bars, nodes, size = self._machine.pullback(pc, registers, int(ticks), given)
            names = [name for name in self._code.live[pc] if name in bars]
            found = {name: np.array(conj(bars[name])) for name in names}
        report_tape(nodes, size)
        return found

    def pack(self, state: RegisterState, /) -> tuple[dict[str, NDArray[Any]], Json]:
        arrays = {name: np.array(array) for name, array in state.registers.items()}
        return arrays, {"pc": state.pc, "fingerprint": self.fingerprint}

    def unpack(self, arrays: Mapping[str, NDArray[Any]], meta: Json, /) -> RegisterState:
        if meta.get("fingerprint") != self.fingerprint:
            raise BadInput(
                "unpack: this state is of another program, or its code or its constants have"
                " changed; use the program that stored it"
            )
        pc, avals = meta["pc"], self._code.avals
        names = self._code.live[pc]
        if arrays.keys() != set(names):
            raise BadInput(
                f"unpack: a state at node {pc} must have the registers {', '.join(names)}, not"
                f" {', '.join(sorted(arrays))}"
            )
        with self._precision():
            return RegisterState(pc, {n: as_leaf(n, arrays[n], avals[n]) for n in names})

    @property
    def _end(self) -> int:
        return len(self._code.nodes)

    def _precision(self) -> Any:
        return jax().enable_x64(self._double)

    def _flat(self, function: Callable[..., Any]) -> Callable[..., list[Any]]:
        """Return the function of leaves instead of trees. A call stores the result's structure."""

        def flat(*arrays: Any) -> list[Any]:
            given = dict(zip(leaves(self._x, "x"), arrays, strict=True))
            y = function(*_with_leaves(self._x, given))
            self._y = _names(y, "y")
            return [traceable(name, leaf) for name, leaf in leaves(y, "y").items()]

        return flat

    def _cotangent(self, name: str, array: Any) -> Any:
        like = self._code.avals.get(name)
        if like is None or not is_smooth(like):
            raise BadInput(
                f"pullback: there is no cotangent of {name!r} in this program; give cotangents of"
                " real or complex leaves of the state"
            )
        return as_leaf(name, array, like)


def _names(tree: Any, name: str) -> Any:
    """Return the structure of a tree, with the name of each leaf in its place."""
    return rebuild(tree, name, lambda path, _: path)


def _with_leaves(names: Any, values: Mapping[str, Any]) -> Any:
    """Return the tree with this structure of names and these leaves."""
    return rebuild(names, "", lambda _, name: values[name])


def jax_program(function: Callable[..., Any], /, *example: Any) -> JaxProgram:
    """Return a program made from a function of JAX.

    It can be interrupted, stored, resumed and reversed. The function is traced once. Loops
    (`while_loop`, `fori_loop`, `scan`, `map`) become jumps, at any depth, in branches, and in
    functions under `jit` or `checkpoint`. The straight-line code between them is one tick, and so
    is each iteration of an innermost loop. Functions with derivative rules of their own
    (`custom_vjp`, `custom_jvp`, linear solvers) are not divided, and their rules are used.
    Gradients are those of `jax.vjp`, conjugated if they are complex (see
    `ckio.programs.vjp`), and they also exist for `while_loop`.

    If all registers together have at most 64 KiB, the whole program is compiled to a single loop in
    XLA, which is much faster if a tick computes little. Otherwise each piece of straight-line code
    and each run of an innermost loop is one compiled function, because the tape is then smaller.

    Parameters
    ----------
    function : callable
        Its arguments and its result are arrays or numbers, in tuples, lists and dicts. It must have
        no side effects.
    *example : arrays or numbers
        Inputs with the shapes and dtypes of later inputs; their values do not matter. Double
        precision needs `jax_enable_x64`, which must be set before this call.

    Raises
    ------
    BadInput
        JAX is not installed, or the function has side effects or callbacks, or it uses typed keys
        of random numbers, or it has double precision while JAX is set to single precision.

    >>> from pytest import importorskip
    >>> lax = importorskip("jax.lax")
    >>> def halved(x):
    ...     return lax.while_loop(lambda y: y > 1.0, lambda y: y / 2.0, x)
    >>> program = jax_program(halved, 5.0)
    >>> state, ticks, finished = program.advance(program.start(5.0))
    >>> float(program.result(state)), ticks, finished
    (0.625, 5, True)
    >>> program.pullback(program.start(5.0), ticks, {"y": 1.0})
    {'x.0': array(0.125, dtype=float32)}
    """
    return JaxProgram(function, example)
