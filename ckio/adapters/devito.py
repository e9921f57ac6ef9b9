"""A pair of Devito operators as a model: Devito computes the steps, and ckio stores wavefields.

A range of steps is one call of an operator, so that Devito's loop over time stays compiled. Tapes
and states are arrays of wavefields with their halos, which are contiguous.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ckio.actions import Buffers, Key, Kind, Layout
from ckio.errors import BadInput, RunFailed
from ckio.model.arrays import Array, Arrays, as_bytes, copy, empty, field


class OperatorModel:
    """A model whose steps are those of a forward and of a backward operator of Devito.

    Step i of the model is the time i + `first` of the operators. A fresh model is at rest, or has
    whatever values the wavefields have when it is made.

    Parameters
    ----------
    forward, backward : devito.CheckpointOperator
        The operators with their arguments, among them `time_m=first`.
    state : sequence of devito.TimeFunction
        The wavefields that `forward` computes and `backward` reads, without `save`.
    adjoint : sequence of devito functions
        The wavefields that `backward` computes, and whatever `seed` sets and `backward` reads, for
        example the residual. They are in the checkpoints of the adjoint.
    control, gradient : mapping of str to devito.Function
        Functions that `forward` reads, and those to which `backward` adds the derivative of J with
        respect to them, under the same names.
    seed : callable() returning float
        Called when the forward sweep has ended. It returns J, and prepares what `backward` reads,
        for example the residual of traces.
    records : sequence of devito functions
        What `forward` writes besides wavefields, for example traces. They are in the checkpoints of
        the state, so that a run which is resumed has those of earlier steps.
    first : int
        The time of step 0.
    records_late : bool
        Whether `backward` reads wavefields at the time of its step and before, as in `u * v.dt2`,
        but not at the next time, as in `u.dt2 * v`. Then a step that is recorded is computed when
        the state after it is needed: never if the step is reversed next.

    Raises
    ------
    BadInput
        If a wavefield of the state has all its times in memory, or controls and gradients do not
        have the same names.
    """

    shared_controls = ()  # functions of Devito are distributed, also if their parts are equal

    def __init__(  # noqa: PLR0917
        self,
        forward: Any,
        backward: Any,
        state: Sequence[Any],
        adjoint: Sequence[Any],
        control: Mapping[str, Any],
        gradient: Mapping[str, Any],
        seed: Callable[[], float],
        *,
        records: Sequence[Any] = (),
        first: int = 1,
        records_late: bool = False,
    ) -> None:
        for wavefield in state:
            if wavefield.save:
                raise BadInput(f"{wavefield.name} keeps all its times; make it without `save`")
        if control.keys() != gradient.keys():
            raise BadInput(
                f"control = {sorted(control)}, gradient = {sorted(gradient)}; give both the same"
                " names"
            )
        self._forward, self._backward, self._seed, self._first = forward, backward, seed, first
        self._state = {it.name: (_whole(it), it.time_order) for it in state}
        self._records = {it.name: _whole(it) for it in records}
        self.control = Arrays({name: np.asarray(it.data) for name, it in control.items()})
        self.gradient = Arrays({name: np.asarray(it.data) for name, it in gradient.items()})
        self._adjoint = {it.name: _whole(it) for it in adjoint}
        self._adjoint |= {f"gradient {name}": _whole(it) for name, it in gradient.items()}
        self._functional = np.zeros(())
        self._tapes: dict[int, list[Array]] = {}
        self.records_late = records_late
        self._due = False  # whether the last step was recorded, and is still to be computed
        self._at = self._seeded = 0
        self._recorded = 0  # the records have the values of all steps before this one
        self._live: int | None = None  # the step whose tape the wavefields still are
        self._turned = False
        self.on_step: Callable[[int], None] | None = None

    @property
    def functional(self) -> float:
        self._keep_seed()
        return float(self._functional)

    def layout(self, key: Key, /) -> Layout:
        return tuple(field(name, array, "") for name, array in self._arrays(key).items())

    def advance(self, begin: int, end: int, /) -> int:
        self._compute_due()
        self._live = None
        self._forward.apply(begin, end)
        return self._reached(end)

    def record(self, begin: int, end: int, /) -> int:
        self._compute_due()
        self._tapes, self._live = {}, None
        for i in range(begin, end):
            self._keep_live()
            if self.records_late and i + 1 == end:
                self._due = True
            else:
                self._forward.apply(i, i + 1)
            self._live = i
            self._reached(i + 1)
        return end

    def reverse(self, begin: int, end: int, /) -> None:
        self._keep_seed()
        self._turned = True
        for i in reversed(range(begin, end)):
            if i != self._live:
                self._restore(i)
            self._backward.apply(i, i + 1)
            self._live = None
            if self.on_step is not None:
                self.on_step(i)

    def dump(self, key: Key, /) -> Buffers:
        if key.kind is Kind.ADJOINT:
            self._keep_seed()
        elif key.kind is Kind.RESTART:
            self._compute_due()
        return [as_bytes(array) for array in self._arrays(key).values()]

    @contextmanager
    def load(self, key: Key, layout: Layout, /) -> Generator[Buffers]:
        if layout != self.layout(key):
            raise BadInput(f"{key} contains {layout}, not {self.layout(key)}; use the same grid")
        buffers = [empty(form.shape, form.dtype) for form in layout]
        yield [as_bytes(buffer) for buffer in buffers]
        if key.kind is Kind.TAPE:
            self._tapes, self._live = {key.step: buffers}, None
            return
        self._keep_seed()  # the state that is overwritten now may be the last one
        arrays = list(self._arrays(key).values())
        if key.kind is Kind.ADJOINT:
            self._turned = True
        else:
            self._at, self._live, self._due = key.step, None, False
            if key.step <= self._recorded:  # records of later steps stay
                arrays = arrays[: len(arrays) - len(self._records)]
            self._recorded = max(self._recorded, key.step)
        for array, buffer in zip(arrays, buffers, strict=False):
            array[...] = buffer

    def _arrays(self, key: Key) -> dict[str, Array]:
        """Return the arrays of a checkpoint, by name.

        The tape of a step is the state before it, without records, if steps are recorded late.
        Otherwise it is all that is in the wavefields after the step.
        """
        if key.kind is Kind.ADJOINT:
            return {"J": self._functional, **self._adjoint}
        if key.kind is Kind.TAPE:
            live = self._tape_in_wavefields(key.step)
            return dict(zip(live, self._tapes.get(key.step) or live.values(), strict=True))
        return self._state_in_wavefields(key.step) | self._records

    def _state_in_wavefields(self, step: int) -> dict[str, Array]:
        """Return as many times of each wavefield as the order of its derivative in time."""
        time = step + self._first
        return {
            f"{name}[t-{back}]" if back else f"{name}[t]": array[(time - back) % len(array)]
            for name, (array, order) in self._state.items()
            for back in range(order)
        }

    def _tape_in_wavefields(self, step: int) -> dict[str, Array]:
        if self.records_late:
            return self._state_in_wavefields(step)
        return {name: array for name, (array, _) in self._state.items()}

    @property
    def kept_records(self) -> frozenset[str]:
        """The records, which have the rows of later steps, too, when a state is computed again."""
        return frozenset(self._records)

    def _reached(self, step: int) -> int:
        self._at, self._recorded = step, max(step, self._recorded)
        if self.on_step is not None:
            self.on_step(step)
        return step

    def _compute_due(self) -> None:
        """Compute the last recorded step, if its state is asked for."""
        if self._due:
            self._forward.apply(self._at - 1, self._at)
            self._due = False

    def _keep_live(self) -> None:
        """Copy the tape that the wavefields are, before a step overwrites it."""
        if self._live is not None:
            live = self._tape_in_wavefields(self._live)
            self._tapes[self._live] = [copy(array) for array in live.values()]

    def _restore(self, step: int) -> None:
        """Let the wavefields be the tape of a step."""
        if step not in self._tapes:
            raise RunFailed(f"no tape of step {step} is stored; record the step, or read the tape")
        live = self._tape_in_wavefields(step)
        for array, kept in zip(live.values(), self._tapes.pop(step), strict=True):
            array[...] = kept
        self._due = False  # this was the state before the step that is due

    def _keep_seed(self) -> None:
        """Compute J if the state is at a later step than ever before."""
        if not self._turned and self._at > self._seeded:
            self._compute_due()
            self._functional[...], self._seeded = self._seed(), self._at


def _whole(function: Any) -> Array:
    """Return the array of a function of Devito with its halo, which is contiguous."""
    return np.asarray(function._data)  # noqa: SLF001  `data` is a view without the halo
