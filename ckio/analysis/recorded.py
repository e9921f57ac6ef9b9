"""Find the arrays that steps use and overwrite, by running the steps again with other values.

`flow_of` runs code again on copies in which one array has other values (`FILLS`). The results show
how the arrays depend on each other, for these values:

    used         another result of the code changes
    overwritten  in one of these runs the array has other values afterwards
    killed       overwritten, and its new values do not depend on its old ones

An array on which only its own new value depends, for example a running sum, is not used in this
sense, because an error in it affects nothing else. It may be declared either way.

    >>> def step(arrays):
    ...     arrays["flux"][...] = arrays["u"] ** 2
    ...     arrays["u"] -= arrays["flux"]
    ...     arrays["total"] += 1.0
    ...     return arrays
    >>> flow = flow_of(step, {name: np.ones(3) for name in ("u", "flux", "total")})
    >>> sorted(flow.use), sorted(flow.out), sorted(flow.kill)
    (['u'], ['flux', 'total', 'u'], ['flux'])

`observe` does this for some steps of a model, forward and backward. The result holds for these
steps. You can declare it, or compare it with the declaration (`contradictions`, `unneeded`).
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias
from warnings import catch_warnings, simplefilter

import numpy as np
import xxhash
from numpy.typing import NDArray

from ckio.actions.variables import NOTHING, Flow, Names, Step, Variables
from ckio.errors import BadInput, RunFailed
from ckio.model.arraymodel import ArrayModel, functional_at
from ckio.model.arrays import Array, Arrays, copies

Results: TypeAlias = Mapping[str, Array]
"""The results of some code. A result with the name of an array has its values afterwards."""

NAN: Final = 0
"""NaN spreads to everything that depends on it. But a model may check for it and refuse it."""
OTHER: Final = 1
"""Values that are possible: finite, of either sign, and of similar size."""
FILLS: Final = (NAN, OTHER, 2, 3)
"""The last two are far above and far below all likely values, so that comparisons change."""

_FAR: Final = 1e6
"""The ratio of these last two to the largest number in the array."""

_ADDED: Final = (1, 2, 1000, -1000)
"""The numbers added to whole numbers, which have no NaN. A loop that counts to one of them still
ends.
"""

HIDDEN: Final = (
    "perhaps the model stores data between steps that are not in its state, or draws random numbers"
)
"""The usual reasons why code is not a function of its arrays."""

_ENDED: Final = ""
"""The name of the answer of `finished` among the results of a step; no array has this name."""


def poison(array: NDArray[Any], fill: int, /) -> None:
    """Fill an array, which is in C order, with other values than it has: one of `FILLS`."""
    if not array.nbytes:
        return
    flat = array.reshape(-1)
    with np.errstate(all="ignore"):
        match flat.dtype.kind:
            case "f" | "c":
                numbers = flat.view(flat.real.dtype)  # both parts of complex numbers
                numbers[...] = np.nan if fill == NAN else _finite(numbers, fill)
            case "b":
                np.logical_not(flat, out=flat)
            case "u" if _ADDED[fill] < 0:  # far below, but a loop that counts to it still ends
                flat[...] = flat == 0
            case kind:  # of other types, for example text, the bytes
                numbers = flat if kind in "iu" else flat.view(np.uint8)
                numbers += np.array(_ADDED[fill]).astype(numbers.dtype)


def _finite(array: NDArray[Any], fill: int) -> NDArray[Any]:
    sizes = np.abs(array)
    largest = np.max(sizes, where=np.isfinite(sizes), initial=0) or 1
    random = np.random.default_rng(0)
    values = np.asarray(largest * random.uniform(0.3, 0.9, array.shape))
    if fill == OTHER:
        values *= random.choice((-1.0, 1.0), array.shape)
    else:
        values *= _FAR if fill == FILLS[2] else -_FAR
    most = np.finfo(array.dtype).max
    clipped: NDArray[Any] = np.clip(values, -most, most)
    return clipped


def equal(one: Array, other: Array, /) -> bool:
    """Return whether two arrays have the same values, to the last bit.

    All NaN are equal, because the sign of a sum of two of them depends on their position in memory.
    Bytes of structured arrays that belong to no value are ignored.
    """
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    return np.array_equal(_values(one), _values(other))


def digest(array: Array, /) -> bytes:
    """Return the xxh3_128 of the values of an array; it is the same for arrays that are `equal`."""
    return xxhash.xxh3_128_digest(_values(array).data)


def _values(array: Array) -> NDArray[np.uint8]:
    """Return bytes that are equal if and only if the values are."""
    flat: NDArray[Any] = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.names:
        return np.concatenate([_values(flat[name]) for name in flat.dtype.names])
    if flat.dtype.kind in "fc":
        flat = flat.view(flat.real.dtype)
        if flat.itemsize > 8:  # some bytes are padding, so that it is split in two numbers
            with np.errstate(all="ignore"):
                large = flat.astype(np.float64)
                flat = np.stack([large, (flat - large).astype(np.float64)]).reshape(-1)
        nans = np.isnan(flat)
        if nans.any():
            flat = np.where(nans, flat.dtype.type(np.nan), flat)
    return flat.view(np.uint8)


def flow_of(
    does: Callable[[Arrays], Results],
    arrays: Mapping[str, Array],
    /,
    names: Iterable[str] | None = None,
    *,
    fills: Iterable[int] = FILLS,
    results: Results | None = None,
) -> Flow:
    """Return the arrays that a piece of code uses and overwrites. It is run on copies.

    This takes two runs, and one more with each of `fills` for each array. An array is also used if
    the code fails when it is filled with `OTHER`. A failure with another fill is ignored, because
    it may only be a check of the values.

    Parameters
    ----------
    does : callable
        The code: a function from arrays, which it may change in place, to its results.
    arrays : mapping of str to array
        The arrays with which it starts. They are not changed.
    names : iterable of str, optional
        The arrays that are given other values. The flow of others is incomplete.
    fills : iterable of int
        Their other values, some of `FILLS`.
    results : mapping of str to array, optional
        The results of a run that was made before; otherwise it is run once more.

    Raises
    ------
    RunFailed
        If the code is not a function of the arrays, so that two runs give different results.
    """
    truth = _run(does, copies("arrays", arrays))
    if results is None:
        results = _run(does, copies("arrays", arrays))
    if odd := _different(truth, results):
        raise RunFailed(
            f"run once more on copies of the same arrays, it gives another {join(odd)}: its"
            f" results have to be a function of its arguments; {HIDDEN}"
        )
    out = {name for name in arrays if name in truth and not equal(truth[name], arrays[name])}
    used, carried = set(), set()
    for name in sorted(arrays.keys() if names is None else arrays.keys() & set(names)):
        for fill in fills:
            trial = copies("arrays", arrays)
            poison(trial[name], fill)
            start = copies("arrays", trial)
            try:
                with quiet():
                    after = _run(does, trial)
            except Exception:  # the code may raise any error for values that it cannot use
                if fill == OTHER:
                    used.add(name)
                    carried.add(name)
                continue
            odd = _different(truth, after)
            used |= {name} if odd - {name} else NOTHING
            carried |= odd & {name}
            out |= {n for n in start if n in after and not equal(after[n], start[n])}
    return Flow(used, out, out - carried)


def _run(does: Callable[[Arrays], Results], arrays: Arrays) -> dict[str, Array]:
    """Return the results of some code, copied, because the code may use their memory again."""
    return {name: np.array(value) for name, value in does(arrays).items()}


def _different(one: Results, other: Results) -> set[str]:
    return {name for name in one if not equal(one[name], other[name])}


@contextmanager
def quiet() -> Generator[None]:
    """Suppress the warnings that impossible values would cause."""
    with np.errstate(all="ignore"), catch_warnings():
        simplefilter("ignore")
        yield


def join(names: Iterable[str], /) -> str:
    """Return names as words of a sentence."""
    return ", ".join(sorted(names)) or "nothing"


class OwnMethods:
    """A model's own methods, before others replace them.

    No method of this class changes the model's state or gradient. All may raise RunFailed, as
    `flow_of` does. Only the arrays `names` are tested.
    """

    def __init__(self, model: ArrayModel) -> None:
        self._model = model
        self.step, self.finished = model.step, model.finished
        self.adjoint_step, self.adjoint_seed = model.adjoint_step, model.adjoint_seed

    def ends_by(self, state: Arrays, i: int, names: Iterable[str], /) -> Names:
        """Return the arrays that determine whether the program ends at x_i."""
        return flow_of(lambda state: self._ended(state, i), state, names).use

    def forward(self, state: Arrays, i: int, /) -> Flow:
        """Return the flow of a step, including the call of `finished` before it."""

        def does(state: Arrays) -> Results:
            ended = self._ended(state, i)
            if not ended[_ENDED]:
                self.step(state, i)
            return {**dict(dict.items(state)), **ended}

        return flow_of(does, state)

    def reads(self, adjoint: Arrays, tape: Arrays, i: int, names: Iterable[str], /) -> Names:
        """Return the arrays of its tape on which the adjoint of a step depends."""
        any_cotangent = copies("adjoint", adjoint)  # zeros would hide the factors next to them
        for array in any_cotangent.values():
            poison(array, OTHER)

        def does(tape: Arrays) -> Results:
            cotangent = copies("adjoint", any_cotangent)
            return self._derivatives(cotangent, lambda: self.adjoint_step(cotangent, tape, i))

        return flow_of(does, tape, names).use

    def seeds(self, state: Arrays, adjoint: Arrays, n: int, names: Iterable[str], /) -> Names:
        """Return the arrays of x_n on which J and the start of the adjoint depend."""

        def does(state: Arrays) -> Results:
            cotangent = Arrays({name: np.zeros_like(x) for name, x in adjoint.items()})
            return self._derivatives(
                cotangent, lambda: functional_at(self.adjoint_seed, state, cotangent, n)
            )

        return flow_of(does, state, names).use

    def _ended(self, state: Arrays, i: int) -> dict[str, NDArray[Any]]:
        return {_ENDED: np.array(self.finished(state, i))}

    def _derivatives(self, cotangent: Arrays, does: Callable[[], float | None]) -> Results:
        """Return the results of some code of the adjoint."""
        gradient = self._model.gradient
        before = copies("gradient", gradient)
        for array in gradient.values():
            array[...] = 0
        try:
            value = does()
            results: dict[str, NDArray[Any]] = {"value of J": np.array(value or 0.0)}
            results |= {f"cotangent of {name}": x for name, x in cotangent.items()}
            results |= {f"gradient of {name}": x.copy() for name, x in gradient.items()}
        finally:
            for name, array in before.items():
                gradient[name][...] = array
        return results


def observe(make: Callable[[], ArrayModel], /, steps: int = 3) -> Variables:
    """Return the arrays that the first steps of a model use, overwrite, and read from tapes.

    Each of these steps is run once forward and backward on a new model, and some times more on
    copies for every array. It is observed with its tape, from x_0 on, with J evaluated right after
    it.

    A model that computes arrays again after loads (`recompute`) is observed as if it did not.

    Parameters
    ----------
    make : callable
        A function that returns a new model, the same each time.
    steps : int
        The number of steps of the model, at least 1. A model may finish earlier.

    Returns
    -------
    Variables
        The variables of the state. An array is used if some step uses it, and killed if every step
        kills it. `record` uses the arrays that are really read from tapes, and those that
        `finished` reads. `tape` and `seed` also contain only arrays that are really read.

    Raises
    ------
    BadInput
        If `steps` is below 1.
    RunFailed
        If the model has finished at x_0, or if its results are not a function of the state.
    """
    if steps < 1:
        raise BadInput(f"observe: steps = {steps}; it must be at least 1")
    observed = _ObservedSteps()
    for step in range(steps):
        model = make()
        if step and model.advance(0, step) < step:
            break
        observed.watch(model)
        if model.record(step, step + 1) == step:
            break
        model.reverse(step, step + 1)
    if observed.forward is None:
        raise RunFailed("observe: the model has finished at x_0; there is no step to observe")
    forward = observed.forward
    record = Flow(observed.tape | observed.ends, forward.out, forward.kill)
    seed = observed.seed | ({"J"} & observed.nbytes.keys())  # which ckio adds to J itself
    return Variables(observed.nbytes, Step(forward, record), seed=seed, tape=observed.tape)


class _ObservedSteps:
    """The flows that were observed so far, with methods that replace those of a model."""

    def __init__(self) -> None:
        self.nbytes: dict[str, int] = {}
        self.forward: Flow | None = None
        self.ends = self.tape = self.seed = NOTHING

    def watch(self, model: ArrayModel) -> None:
        own = OwnMethods(model)

        def step(state: Arrays, i: int, /) -> None:
            self.nbytes = {name: array.nbytes for name, array in state.items()}
            self.ends |= own.ends_by(state, i, state)
            one, other = self.forward, own.forward(state, i)
            self.forward = (
                other
                if one is None
                else Flow(one.use | other.use, one.out | other.out, one.kill & other.kill)
            )
            return own.step(state, i)  # the model refuses a step that returns a value

        def adjoint_step(adjoint: Arrays, tape: Arrays, i: int, /) -> None:
            self.tape |= own.reads(adjoint, tape, i, tape)
            return own.adjoint_step(adjoint, tape, i)

        def adjoint_seed(state: Arrays, adjoint: Arrays, n: int, /) -> float:
            self.seed |= own.seeds(state, adjoint, n, state)
            return own.adjoint_seed(state, adjoint, n)

        vars(model).update(step=step, adjoint_step=adjoint_step, adjoint_seed=adjoint_seed)


def contradictions(declared: Variables, observed: Variables, /) -> tuple[str, ...]:
    """Return a sentence for each array and set in which observation contradicts declaration.

    If steps are declared separately, the observations are compared with all of them together.
    """
    says, does = _AllSteps(declared), _AllSteps(observed)
    sizes = {
        name
        for name, nbytes in observed.nbytes.items()
        if declared.nbytes.get(name, nbytes) != nbytes
    }
    return _sentences(
        {
            "the state has {}, which is not declared": observed.nbytes.keys() - declared.nbytes,
            "{} is declared to have other bytes than it has": sizes,
            "step uses {}, which is not declared": does.use - says.use,
            "step overwrites {}, which is not declared": does.out - says.out,
            # An array that is used has its right value before the step. Then it has it after the
            # step, too, whether it is killed or not.
            "step is declared to overwrite all of {}; some of its old values remain": (
                says.kill - says.use - does.kill
            ),
            "a recorded step needs {}, which is not declared": does.record - says.record,
            "adjoint_step reads {} from the tape, of which it is not declared to be a part": (
                does.tape - says.tape if says.tape else NOTHING
            ),
            "adjoint_seed reads {}, which is not declared": does.seed - says.seed,
        }
    )


def unneeded(declared: Variables, observed: Variables, /) -> tuple[str, ...]:
    """Return a sentence for each array and set that is declared and was not observed.

    These do no harm, but checkpoints and tapes may be larger than necessary. They may also be right
    for other steps or other values, which only the author of the model knows. Differences without
    consequences are omitted: whether an array is used on which only its own new value depends, and
    whether an array that is used is also killed.
    """
    says, does = _AllSteps(declared), _AllSteps(observed)
    carried = does.out - does.kill
    return _sentences(
        {
            "step is declared to use {}; nothing depends on it": says.use - does.use - carried,
            "step is declared to overwrite {}; it stays as it is": says.out - does.out,
            "step overwrites all of {}; it is declared to preserve some of its old values": (
                does.kill - says.kill - says.use
            ),
            "a recorded step is declared to need {}; it does not": says.record - does.record,
            "{} is on the tape; adjoint_step does not need it": says.tape - does.tape,
            "adjoint_seed is declared to read {}; it does not need it": says.seed - does.seed,
        }
    )


def _sentences(found: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Return the sentences, each once for every name that was found for it."""
    return tuple(text.format(name) for text, names in found.items() for name in sorted(names))


class _AllSteps:
    """The combined flow of all steps."""

    def __init__(self, variables: Variables) -> None:
        steps = variables.different
        self.use = NOTHING.union(*(step.forward.use for step in steps))
        self.out = NOTHING.union(*(step.forward.out for step in steps))
        self.kill = frozenset(variables.nbytes).intersection(*(step.forward.kill for step in steps))
        self.record = NOTHING.union(*(step.record.use | step.reverse.use for step in steps))
        self.tape, self.seed = variables.tape, variables.seed
