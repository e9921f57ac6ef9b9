"""Models in C, Fortran and other compiled languages, in memory that their library has allocated."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from ctypes import ArgumentError, c_char, c_void_p, cast
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Buffers, Key, Kind, Layout, is_layout
from ckio.actions.checks import describe
from ckio.errors import BadInput, RunFailed
from ckio.model.arrays import AdjointRegister, Arrays, as_bytes, empty, field


@dataclass(frozen=True)
class Memory:
    """A contiguous array in memory that a library has allocated.

    `address` is an integer or a pointer of ctypes. `shape` is in C order, so that the Fortran array
    u(nx, ny) has the shape (ny, nx). `dtype` is a type of NumPy, for example "<f8" for a double.
    """

    address: Any
    shape: tuple[int, ...] = ()
    dtype: str = "<f8"

    def array(self, what: str, owner: object, /) -> NDArray[Any]:
        """Return this memory as an array, which keeps `owner` alive.

        `what` is the name of the array in messages. Raises BadInput if the address, the shape or
        the type is invalid.
        """
        try:
            begin, size = cast(self.address, c_void_p).value or 0, prod(self.shape)  # None is NULL
            memory: Any = (c_char * (size * np.dtype(self.dtype).itemsize)).from_address(begin)
            memory.owner = owner
            array = np.ndarray(self.shape, self.dtype, memory)
        except (ArgumentError, TypeError, ValueError) as error:
            raise BadInput(
                f"{what} = {self}: {error}; give an address, a shape and a type"
            ) from None
        if 0 < begin < 1 << 63 and array.flags.aligned and not array.dtype.hasobject:
            return array
        raise BadInput(
            f"{what} = {self}; it must be the address of numbers: check that the library allocated"
            " them, and that the function which returns the address has restype = c_void_p"
        )


class _Owner:
    """The memory of a library as a whole. It is freed when no array refers to this object."""


class NativeModel:
    """A model whose state and adjoint are memory of a library in C, Fortran or another language.

    ckio writes checkpoints directly from that memory. It reads a checkpoint into a buffer, and
    copies the complete buffer to the memory of the library. Each function is a function of ctypes,
    or a function in Python that calls one. `step`, `record` and `reverse` return nothing, or 0 for
    success and any other value for a failure.

    Parameters
    ----------
    state, adjoint : mapping of str to Memory
        All data on which later steps depend, and the derivative of J with respect to them.
    control, gradient : mapping of str to Memory
        Controls, and the gradient with respect to them, under the same names. If a control is the
        initial value of a state array, and has its name, its gradient is in `adjoint`.
    tape : tuple of Field
        The arrays of the tape of one step, which `reverse` reads. ckio allocates them.
    step : callable(i)
        Advances the state from x_i to x_{i+1}.
    record : callable(i, *addresses)
        Does the same, and stores each array of the tape at its address.
    record_only : callable(i, *addresses), optional
        Stores each array of the tape of step i at its address, and leaves the state as it is. With
        it, the state after the last recorded step is computed only if it is needed.
    restart : callable(i, *addresses), optional
        Sets the state to x_{i+1} from the tape of step i, which is at these addresses. With it, the
        forward restarts from stored tapes, so that fewer steps are computed again.
    reverse : callable(i, *addresses)
        Changes `adjoint` from dJ/dx_{i+1} to dJ/dx_i, and adds the contribution of step i to
        `gradient`.
    seed : callable(n) returning float
        Returns J at x_n, and stores dJ/dx_n in `adjoint`. ckio sets `adjoint` and `gradient` to
        zero before.
    free : callable()
        Frees the memory. It is called once, when neither the model nor any of its arrays is used.

    Raises
    ------
    BadInput
        An address, a shape or a type is invalid, or two arrays share memory.
    RunFailed
        A function fails, or a sweep does not begin at the step of the state or of the adjoint.
    """

    def __init__(
        self,
        *,
        state: Mapping[str, Memory],
        adjoint: Mapping[str, Memory],
        control: Mapping[str, Memory],
        gradient: Mapping[str, Memory],
        tape: Layout,
        step: Callable[[int], object],
        record: Callable[..., object],
        reverse: Callable[..., object],
        seed: Callable[[int], float],
        free: Callable[[], object],
        record_only: Callable[..., object] | None = None,
        restart: Callable[..., object] | None = None,
    ) -> None:
        finalize(owner := _Owner(), free)
        groups = {"state": state, "adjoint": adjoint, "gradient": gradient, "control": control}
        arrays = {
            group: Arrays(
                {name: part.array(f"{group}[{name!r}]", owner) for name, part in of.items()}
            )
            for group, of in groups.items()
        }
        self.control, own = arrays["control"], arrays["gradient"]
        starts = {name: x for name, x in arrays["adjoint"].items() if name in self.control}
        self.gradient = Arrays({**starts, **own})
        _check(arrays, self.gradient, tape)
        self._step, self._record, self._reverse, self._seed = step, record, reverse, seed
        self._record_only, self.records_late = record_only, record_only is not None
        if record_only is not None and restart is not None:
            raise BadInput(
                "record_only and restart are both given; a tape that contains x_{i+1} cannot be"
                " recorded without computing it: give one of them"
            )
        self._restart, self.tape_restarts = restart, restart is not None
        self._due = False  # whether the state is still x_(i-1): the step was recorded only
        self.on_step: Callable[[int], None] | None = None
        adjoints = AdjointRegister(arrays["adjoint"], own, np.zeros(()))
        self._functional = adjoints.functional
        self._layouts = {
            Kind.RESTART: tuple(field(name, array, "") for name, array in arrays["state"].items()),
            Kind.TAPE: tape,
            Kind.ADJOINT: adjoints.layout(dict.fromkeys(("J", *adjoint, *own), "")),
        }
        self._registers: dict[Kind, list[NDArray[Any]]] = {
            Kind.RESTART: [*arrays["state"].values()],
            Kind.ADJOINT: [*adjoints.arrays()],
        }
        self._free: dict[Kind, list[list[NDArray[Any]]]] = {kind: [] for kind in Kind}
        self._tapes: dict[int, list[NDArray[Any]]] = {}
        self._at = self._seeded = 0  # the steps of the state, and of the last call of `seed`
        self._adjoint_at: int | None = None  # the step of the adjoint; None before a step back

    @property
    def functional(self) -> float:
        self._keep_seed()
        return float(self._functional)

    def layout(self, key: Key, /) -> Layout:
        return self._layouts[key.kind]

    def advance(self, begin: int, end: int, /) -> int:
        self._compute_due()
        return self._forward(begin, end, self._step)

    def record(self, begin: int, end: int, /) -> int:
        self._drop_tapes()
        self._compute_due()
        self._tapes = {i: self._buffers(Kind.TAPE) for i in range(begin, end)}

        def record(i: int) -> object:
            if self._record_only is None or i + 1 < end:
                return self._record(i, *self._addresses(i))
            return self._record_only(i, *self._addresses(i))

        self._forward(begin, end, record)
        self._due = self._record_only is not None
        return end

    def reverse(self, begin: int, end: int, /) -> None:
        self._keep_seed()
        _check_step("adjoint", self._seeded if self._adjoint_at is None else self._adjoint_at, end)
        for i in reversed(range(begin, end)):
            if i not in self._tapes:
                raise RunFailed(f"no tape of step {i} is stored; record the step, or read the tape")
            self._finish(i, self._reverse(i, *self._addresses(i)), i)
            self._free[Kind.TAPE].append(self._tapes.pop(i))
            self._adjoint_at = i

    def dump(self, key: Key, /) -> Buffers:
        if key.kind is Kind.ADJOINT:
            self._keep_seed()
        elif key.kind is Kind.RESTART:
            self._compute_due()
        tape = self._tapes.get(key.step, ())
        return [as_bytes(array) for array in self._registers.get(key.kind, tape)]

    @contextmanager
    def load(self, key: Key, layout: Layout, /) -> Generator[Buffers]:
        if layout != self.layout(key):
            raise BadInput(f"{key} contains {layout}, not {self.layout(key)}; use the same options")
        buffers = self._buffers(key.kind)
        yield [as_bytes(array) for array in buffers]
        if key.kind is Kind.TAPE:
            self._drop_tapes()
            self._tapes = {key.step: buffers}
            if self._restart is not None:
                self._keep_seed()
                _check_status(key.step, self._restart(key.step, *self._addresses(key.step)))
                self._at, self._due = key.step + 1, False
            return
        self._keep_seed()  # the state that is overwritten now may be x_n
        for array, buffer in zip(self._registers[key.kind], buffers, strict=True):
            array[...] = buffer
        self._free[key.kind].append(buffers)
        if key.kind is Kind.RESTART:
            self._at, self._due = key.step, False
        else:
            self._adjoint_at = key.step

    def _forward(self, begin: int, end: int, step: Callable[[int], object]) -> int:
        _check_step("state", self._at, begin)
        for i in range(begin, end):
            self._finish(i, step(i), i + 1)
            self._at = i + 1
        return end

    def _finish(self, i: int, status: object, reached: int) -> None:
        _check_status(i, status)
        if self.on_step is not None:
            self.on_step(reached)

    def _keep_seed(self) -> None:
        """Compute J and its derivative if the state is at a later step than ever before.

        The last step n of the forward sweep is known only afterwards, when the state may already be
        overwritten.
        """
        if self._adjoint_at is None and self._at > self._seeded:
            self._compute_due()
            for array in self._registers[Kind.ADJOINT]:
                array[...] = 0
            if not isinstance(value := self._seed(self._at), float):
                raise RunFailed(
                    f"seed returned {describe(value)}; it must return J: set its restype = c_double"
                )
            self._functional[...], self._seeded = value, self._at

    def _compute_due(self) -> None:
        """Compute the step that was recorded only, because its state is needed."""
        if self._due:
            self._due = False
            _check_status(self._at - 1, self._step(self._at - 1))

    def _addresses(self, i: int) -> list[int]:
        return [array.ctypes.data for array in self._tapes[i]]

    def _drop_tapes(self) -> None:
        self._free[Kind.TAPE] += self._tapes.values()

    def _buffers(self, kind: Kind) -> list[NDArray[Any]]:
        """Return memory for a checkpoint, if possible memory of an earlier one."""
        if self._free[kind]:
            return self._free[kind].pop()
        return [empty(form.shape, form.dtype) for form in self._layouts[kind]]


def _check(arrays: Mapping[str, Arrays], gradient: Arrays, tape: object) -> None:
    """Raise BadInput unless the tape is a layout, shapes agree, and no arrays share memory."""
    if not is_layout(tape):
        raise BadInput(
            f"tape = {tape!r}; it must be a tuple such as (Field('u', '<f8', (24, 32)),)"
        )
    of = [{name: x.shape for name, x in group.items()} for group in (arrays["control"], gradient)]
    if of[0] != of[1]:
        raise BadInput(
            f"control has the shapes {of[0]}, gradient {of[1]}; give both the same shapes"
        )
    spans = sorted(
        (array.ctypes.data, array.ctypes.data + array.nbytes, f"{group}[{name!r}]")
        for group in ("state", "adjoint", "gradient")
        for name, array in arrays[group].items()
    )
    for (_, end, one), (begin, _, other) in pairwise(spans):
        if begin < end:
            raise BadInput(f"{one} and {other} share memory; check their addresses and shapes")


def _check_status(i: int, status: object) -> None:
    if status is not None and status != 0:
        raise RunFailed(
            f"step {i}: the library returned {describe(status)}; it must return 0 or nothing"
            " for success (set restype = None for a function that returns nothing)"
        )


def _check_step(register: str, at: int, wanted: int) -> None:
    if at != wanted:
        raise RunFailed(f"the {register} is at step {at}, not {wanted}; make a new model for a run")
