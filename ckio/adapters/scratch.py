"""The levels of a platform for temporary use, whose files are removed at the end."""

import logging
import secrets
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Field, Key, Kind, Layout
from ckio.adapters import registry
from ckio.backends.base import Backend
from ckio.errors import BadInput, StorageError
from ckio.model import Model
from ckio.model.arrays import as_bytes, copy, empty
from ckio.platform import Platform
from ckio.platform.clock import Clock
from ckio.runner import Stop, Watcher
from ckio.runner import run as run_on
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap
from ckio.schedule.timeline import Timeline

log = logging.getLogger("ckio")

_NATIVE: Final = "biufc"
"""The kinds of NumPy's dtypes that are plain numbers."""


class Scratch:
    """Open levels whose files are temporary.

    The files are removed when the Scratch is closed or deleted, or when the process exits. A
    framework stores its arrays on a level under a new key, and reads them by this key. Several
    threads may use one Scratch.

    >>> from ckio import Level, Platform
    >>> with Scratch(Platform((Level(name="ram"),))) as scratch:
    ...     key = scratch.put(0, {"u": np.arange(3.0)})
    ...     scratch.get(0, key)
    {'u': array([0., 1., 2.])}

    Parameters
    ----------
    platform : Platform
        The levels to open.

    Attributes
    ----------
    platform : Platform
    backends : sequence of Backend
        The open levels, in the order of the platform. Do not use them directly if you use `put`.

    Raises
    ------
    BadInput, StorageError
        A level cannot be opened. Then all levels are closed.
    """

    def __init__(self, platform: Platform, /) -> None:
        self.platform = platform
        self._locks = [threading.Lock() for _ in platform.levels]
        self._numbers, self._number_lock = 0, threading.Lock()
        run = secrets.token_hex(4)
        with ExitStack() as stack:
            backends: list[Backend] = []
            for level in platform.levels:
                backends.append(registry.open_level(level, run=run))
                stack.callback(backends[-1].remove)
            self.backends: Sequence[Backend] = tuple(backends)
            self._close = weakref.finalize(self, _closed, stack.pop_all())

    def put(self, level: int, arrays: Mapping[str, NDArray[Any]], /) -> Key:
        """Store named arrays on a level, and return their new key.

        `level` is the number of the level. Raises LevelFull and other StorageErrors, and BadInput
        if an array does not consist of plain numbers.
        """
        whole = {name: _contiguous(name, array) for name, array in arrays.items()}
        layout = tuple(_field(name, array) for name, array in whole.items())
        with self._number_lock:
            key = Key(Kind.RESTART, self._numbers)
            self._numbers += 1
        with self._locks[level]:
            self.backends[level].write(key, layout, [as_bytes(array) for array in whole.values()])
        return key

    def get(
        self, level: int, key: Key, into: Mapping[str, NDArray[Any]] | None = None, /
    ) -> dict[str, NDArray[Any]]:
        """Return the arrays of a key, in new memory or in the arrays `into`.

        Raises MissingCheckpoint and CorruptCheckpoint. Raises BadInput if the names, shapes or
        dtypes of `into` differ from the stored ones.
        """
        with self._locks[level]:
            layout = self.backends[level].layout(key)
            arrays = dict(into) if into is not None else _empty(layout)
            if tuple(_field(name, array) for name, array in arrays.items()) != layout:
                raise BadInput(
                    f"{key} does not fit these arrays; give arrays with the names, shapes and"
                    " dtypes that were stored"
                )
            self.backends[level].read(key, [as_bytes(array) for array in arrays.values()])
        return arrays

    def drop(self, level: int, key: Key, /) -> None:
        """Discard the arrays of a key; raises MissingCheckpoint."""
        with self._locks[level]:
            self.backends[level].discard(key)

    def close(self) -> None:
        """Close all levels and remove their files. A second call has no effect."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        with suppress(StorageError) if error is not None else ExitStack():
            self.close()


@contextmanager
def temporary(
    platform: Platform, backends: Sequence[Backend] | None = None, /
) -> Iterator[Sequence[Backend]]:
    """Yield these open levels, or open those of the platform and remove their files at the end.

    If files cannot be removed, this is only a warning, because no result depends on it.
    """
    if backends is not None:
        yield backends
        return
    scratch = Scratch(platform)
    try:
        yield scratch.backends
    finally:
        try:
            scratch.close()
        except (StorageError, OSError) as error:
            log.warning("the files of a temporary level remain: %s", error)


def run(
    schedule: Schedule,
    platform: Platform,
    model: Model,
    backends: Sequence[Backend] | None = None,
    /,
    *,
    overlap: Overlap | None = None,
    clock: Clock | None = None,
    watch: Watcher | None = None,
    stop: Stop | None = None,
) -> Timeline:
    """Perform a schedule and return the begin and end of each action, in seconds from the start.

    Parameters
    ----------
    schedule
        The actions. Before the first one, the whole schedule is checked by the rules of `Machine`.
    platform
        The platform for which the schedule was planned, with names and capacities of the levels.
    model
        A fresh model at x_0, or the model from which the keys in `schedule.stored` were saved.
    backends
        One open storage level for each level of the platform, in the same order. They stay open.
        Without them, the levels are opened for this run, and their files are removed at the end.
    overlap
        How many transfers may be concurrent with the computation, by the rules of `ckio.overlap`;
        by default, the policy of the schedule.
        There is one thread for each channel. All writes are complete when this function returns.
    clock
        The clock for all times; by default the clock of the machine.
    watch
        Function that is called with each event after it has happened. If it raises an error, the
        run ends immediately with this error.
    stop
        Function that is called from time to time, also within long actions. If it returns True,
        `Stopped` is raised; see `perform`, which is for callers that need no timeline or leave
        the run before its end.

    Raises
    ------
    IllegalAction
        The schedule breaks a rule of `Machine`.
    BadInput
        The arguments do not fit together, or the plan does not fit the levels. This is raised
        before the first action.
    StorageError
        A level failed. The message has the name of the level and the action; `level` and `action`
        are their numbers. The stored checkpoints are intact.
    Stopped
        `stop` returned True.
    RunFailed
        The model finished before the last step of the schedule; or the model or a backend raised an
        error that is not one of ckio's. Then this error is the `__cause__`, and the message names
        the action.
    """
    with temporary(platform, backends) as levels:
        return run_on(
            schedule, platform, model, levels, overlap=overlap, clock=clock, watch=watch, stop=stop
        )


def _closed(stack: ExitStack) -> None:
    stack.close()


def _contiguous(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, or a copy in C order if it is not contiguous.

    Raises BadInput if its dtype contains objects or named fields, or is not a plain number.
    """
    kind = array.dtype
    if kind.hasobject or kind.names is not None or kind.kind not in _NATIVE + "V":
        raise BadInput(f"array {name!r} has dtype {kind}; give an array of plain numbers")
    return array if array.flags.forc else copy(array)


def _field(name: str, array: NDArray[Any]) -> Field:
    """Return the field of an array. The shape of an array in Fortran order is reversed."""
    shape = array.shape if array.flags.c_contiguous else array.shape[::-1]
    return Field(name, array.dtype.str, shape)


def _empty(layout: Layout) -> dict[str, NDArray[Any]]:
    return {field.name: empty(field.shape, np.dtype(field.dtype)) for field in layout}
