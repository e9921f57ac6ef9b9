"""What code does to arrays, found by doing it again on copies in which one holds something else.

That says exactly what depends on what, here and as far as other contents tell (`FILLS`):

    used         something else that the code computes comes out different
    overwritten  in one of these runs the array does not hold what it held before
    killed       overwritten, and what it holds afterwards is the same whatever it held before

An array that only its own new value depends on (a sum that is carried on, say) is not used by that:
where it is wrong, nothing else becomes so. It may be declared either way.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias
from warnings import catch_warnings, simplefilter

import numpy as np
import xxhash
from numpy.typing import NDArray

from ckio.actions.variables import NOTHING, Flow
from ckio.errors import RunFailed
from ckio.model.arrays import Array, Arrays, copies

Results: TypeAlias = Mapping[str, Array]
"""What some code computes; what has the name of an array is what that array holds afterwards."""

NAN: Final = 0
"""Content that shows wherever it comes to; but a model may refuse it without using it."""
OTHER: Final = 1
"""Content that could be real: finite, of either sign, and about as large."""
FILLS: Final = (NAN, OTHER, 2, 3)
"""And content far above and far below all that is likely: comparisons come out otherwise."""

_FAR: Final = 1e6
"""How many times the largest number there is that is."""

_ADDED: Final = (1, 2, 1000, -1000)
"""To whole numbers, which have no NaN: a program that counts up to one still comes to an end."""

_AS_NUMBERS: Final = {"U": np.uint32, "M": np.int64, "m": np.int64}


def poison(array: NDArray[Any], fill: int, /) -> None:
    """Fill an array, which is in C order, with other content than it has: one of `FILLS`."""
    if not array.nbytes:
        return
    flat = array.reshape(-1)
    with np.errstate(all="ignore"):
        match flat.dtype.kind:
            case "f" | "c":
                numbers = flat.view(flat.real.dtype)  # of complex ones both parts
                numbers[...] = np.nan if fill == NAN else _finite(numbers, fill)
            case "b":
                np.logical_not(flat, out=flat)
            case "V" if flat.dtype.names:
                for name in flat.dtype.names:
                    part = np.ascontiguousarray(flat[name])
                    poison(part, fill)
                    flat[name] = part
            case "u" if _ADDED[fill] < 0:  # far below, but a program that counts up to it ends
                flat[...] = flat == 0
            case kind:
                numbers = flat if kind in "iu" else flat.view(_AS_NUMBERS.get(kind, np.uint8))
                numbers += np.array(_ADDED[fill]).astype(numbers.dtype)


def _finite(array: NDArray[Any], fill: int) -> NDArray[Any]:
    sizes = np.abs(array)
    largest = np.max(sizes, where=np.isfinite(sizes), initial=0) or 1
    random = np.random.default_rng(0)
    content = np.asarray(largest * random.uniform(0.3, 0.9, array.shape))
    if fill == OTHER:
        content *= random.choice((-1.0, 1.0), array.shape)
    else:
        content *= _FAR if fill == FILLS[2] else -_FAR
    most = np.finfo(array.dtype).max
    clipped: NDArray[Any] = np.clip(content, -most, most)
    return clipped


def same(one: Array, other: Array, /) -> bool:
    """Whether two arrays hold the same values, to the last bit.

    One NaN is like another: which sign a sum of two of them has depends on where in memory they
    are. Bytes that belong to no value, in structured arrays, do not count.
    """
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if np.array_equal(_words(one), _words(other)):
        return True
    return one.dtype.kind in "fcV" and np.array_equal(_values(one), _values(other))


def digest(content: Array, /) -> bytes:
    """The xxh3_128 of the values of an array; equal where `same` says so."""
    return xxhash.xxh3_128_digest(_values(content).data)


def _words(array: Array) -> NDArray[Any]:
    """The memory of an array as the largest whole numbers that it is a multiple of."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return flat if flat.nbytes % 8 else flat.view(np.uint64)


def _values(array: Array) -> NDArray[np.uint8]:
    """Bytes that are the same wherever the values are."""
    flat: NDArray[Any] = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.names:
        return np.concatenate([_values(flat[name]) for name in flat.dtype.names])
    if flat.dtype.kind in "fc":
        flat = flat.view(flat.real.dtype)
        if flat.itemsize > 8:  # not all of these bytes are in use: as two numbers that are
            with np.errstate(all="ignore"):
                large = flat.astype(np.float64)
                flat = np.stack([large, (flat - large).astype(np.float64)]).reshape(-1)
        nans = np.isnan(flat)
        if nans.any():
            flat = np.where(nans, flat.dtype.type(np.nan), flat)
    return flat.view(np.uint8)


class Watched(Arrays):
    """Arrays, not copied, that say which of them are asked for, before they give them."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]], asked: Callable[[str], object]) -> None:
        super().__init__(arrays)
        self._asked = asked

    def __getitem__(self, name: str) -> NDArray[Any]:
        array = super().__getitem__(name)
        self._asked(name)
        return array

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 - that is this method

    def values(self) -> Any:
        return self._all().values()

    def items(self) -> Any:
        return self._all().items()

    def __iter__(self) -> Iterator[str]:  # or dict(arrays) would take them without a word
        return super().__iter__()

    def __or__(self, other: Any) -> Any:
        return self._all() | other

    def copy(self) -> Any:
        return self._all()

    def _all(self) -> dict[str, NDArray[Any]]:
        for name in self:
            self._asked(name)
        return {name: super(Watched, self).__getitem__(name) for name in self}


def flow_of(does: Callable[[Arrays], Results], arrays: Mapping[str, Array], /) -> Flow:
    """What a piece of code uses and overwrites, exactly, here: it is done on copies only.

    It takes two runs, and four more for each array that it asks for or overwrites. An array is also
    used if the code fails with `OTHER` in it. Where it fails with other fills, it may only check.

    Parameters
    ----------
    does : callable
        The code: from arrays, which it may change in place, to what it computes.
    arrays : mapping of str to array
        What it starts from; these are not changed.

    Raises
    ------
    RunFailed
        Where the code is no function of the arrays: done twice, it gives different results.
    """
    asked: set[str] = set()
    truth = _done(does, Watched(copies("arrays", arrays), asked.add))
    again = _done(does, copies("arrays", arrays))
    if odd := _different(truth, again):
        raise RunFailed(
            f"done twice on copies of the same arrays, it gives two {listed(odd)}: what it computes"
            " has to be a function of what it is given"
        )
    out = {name for name in arrays if name in truth and not same(truth[name], arrays[name])}
    used, kept = set(), set()
    for name in sorted(asked | out):
        for fill in FILLS:
            trial = copies("arrays", arrays)
            poison(trial[name], fill)
            start = copies("arrays", trial)
            try:
                with quiet():
                    found = _done(does, trial)
            except Exception:  # whatever the code raises for content that it cannot do with
                if fill == OTHER:
                    used.add(name)
                    kept.add(name)
                continue
            odd = _different(truth, found)
            used |= {name} if odd - {name} else NOTHING
            kept |= odd & {name}
            out |= {n for n in start if n in found and not same(found[n], start[n])}
    return Flow(used, out, out - kept)


def _done(does: Callable[[Arrays], Results], arrays: Arrays) -> dict[str, Array]:
    """The results, as they are now: they may be work memory of the code."""
    return {name: np.array(value) for name, value in does(arrays).items()}


@contextmanager
def quiet() -> Generator[None]:
    """While it is open, content that is not real is no reason for warnings."""
    with np.errstate(all="ignore"), catch_warnings():
        simplefilter("ignore")
        yield


def _different(one: Results, other: Results) -> set[str]:
    return {name for name in one if not same(one[name], other[name])}


def listed(names: Iterable[str], /) -> str:
    """Names in a sentence."""
    return ", ".join(sorted(names)) or "nothing"
