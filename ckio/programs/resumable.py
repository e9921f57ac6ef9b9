"""A reverse run that outlives its process: killed, it goes on from what is in its directory.

    program.json    what is run: the fingerprint of its code, digests of x and ybar, the ticks of
                    a step, and once it is known the number of steps
    checkpoints/    states on the way forward; then also the adjoint, from time to time

The way back is planned from what is there, so that it does not matter when the process was killed.
"""

import hashlib
import json
import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import inf
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from ckio.actions import Key, Kind
from ckio.actions.checks import as_float
from ckio.backends.directory import Directory
from ckio.backends.verified import verified
from ckio.backends.wholefile import write_whole
from ckio.errors import BadInput
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.programs.heap import flatten
from ckio.programs.model import ProgramModel
from ckio.programs.sweeps import RuleOf, Task, already, back, forward
from ckio.programs.trees import rebuild
from ckio.programs.ways import level
from ckio.recover import recover
from ckio.runner.forward import Stored
from ckio.schedule import Schedule

S = TypeVar("S")

log = logging.getLogger("ckio")

MANIFEST: Final = "program.json"
CHECKPOINTS: Final = "checkpoints"

_FORMAT: Final = 1
_ADJOINTS: Final = 2
"""That lie there at a time: the next one is complete before the older one goes."""


@dataclass(frozen=True)
class Manifest:
    """What is in the directory.

    Attributes
    ----------
    program, x, ybar : str
        The fingerprint of the code, and digests of what it was called with.
    base : int
        Ticks of a step.
    steps : int or None
        How many there are, once that is known.
    format : int
        Of this file.
    """

    program: str
    x: str
    ybar: str
    base: int
    steps: int | None = None
    format: int = _FORMAT

    def store(self, place: Path) -> None:
        """Write it; raises OSError."""
        write_whole(place / MANIFEST, json.dumps(asdict(self), indent=1) + "\n")


def begun(directory: str | PathLike[str], /) -> bool:
    """Whether something is left in this directory to go on with."""
    return (Path(directory) / MANIFEST).exists()


def reversed_in(
    directory: str | PathLike[str],
    task: Task[S],
    rule: RuleOf,
    /,
    *,
    slots: int | None,
    every: float,
) -> ProgramModel[S]:
    """Run forward and back, or go on with it, with all that is stored in this directory.

    Nothing is left there at the end, nor the directory, if it was empty. Raises BadInput where
    something else was run in it, or it cannot be used; LevelInUse where another process does so.
    """
    if (seconds := as_float(every)) is None or not seconds >= 0:
        raise BadInput(f"every = {every!r}; it must be a number of seconds >= 0")
    place = Path(directory)
    with _usable(place):
        place.mkdir(parents=True, exist_ok=True)
    with closing(Directory(place / CHECKPOINTS)) as backend:
        manifest = _manifest(place, task, backend)
        for damage in verified(backend)[1]:
            log.warning("%s", damage)
        task = task.of_base(manifest.base)
        states = sum(map(_is_state, backend.keys()))
        task.live.found(states)
        steps = manifest.steps
        if steps is None:
            steps = _forward(task, rule, backend)
            with _warned(place):
                replace(manifest, steps=steps).store(place)
        room = slots or (steps - 1).bit_length() + 1
        model = _back(task, steps, backend, room=room, every=seconds)
        backend.remove()
        (place / MANIFEST).unlink()
    with suppress(OSError):
        place.rmdir()
    return model


def _manifest(place: Path, task: Task[S], backend: Directory) -> Manifest:
    """What the directory is of: of this, or it is refused."""
    wanted = Manifest(
        program=task.program.fingerprint,
        x=_digest(task.x),
        ybar=_digest(task.ybar),
        base=task.size.base,
    )
    if not begun(place):
        with _usable(place):
            wanted.store(place)
        return wanted
    found = _stored(place / MANIFEST)
    changed = [name for name in _CHANGED if getattr(found, name) != getattr(wanted, name)]
    if changed == ["ybar"] and all(map(_is_state, backend.keys())):
        found = replace(found, ybar=wanted.ybar)  # on which no state depends
        with _usable(place):
            found.store(place)
    elif changed:
        raise BadInput(
            f"{place} holds a run that cannot go on: {_CHANGED[changed[0]]} changed since it was"
            " begun; undo that, or give another directory, or remove this one"
        )
    return found


_CHANGED: Final = {
    "format": "the format of the file has",
    "program": "the code of the program, or the version of a library that it uses, has",
    "x": "the inputs have",
    "ybar": "the cotangent of the result has",
}
"""What must be what it was, and how errors call it."""


def _stored(path: Path) -> Manifest:
    with _usable(path):
        text = path.read_text(encoding="utf-8")
    try:
        return Manifest(**json.loads(text))
    except (ValueError, TypeError) as error:
        raise BadInput(
            f"{path} does not say what was run: {error}; give another directory"
        ) from error


@contextmanager
def _usable(place: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise BadInput(
            f"the directory {str(place)!r} cannot be used: {error}; give another one"
        ) from error


@contextmanager
def _warned(place: Path) -> Iterator[None]:
    """What is lost is time alone: whoever goes on from there runs forward once more."""
    try:
        yield
    except OSError as error:
        log.warning("%s: that the end is known cannot be noted: %s", place, error)


def _forward(task: Task[S], rule: RuleOf, backend: Directory) -> int:
    """To the end of the program, from the last state that is stored; the number of steps."""
    model = task.model()
    chain = task.size.chain(model, None)
    stored = [set(filter(_is_state, backend.keys()))]
    platform = Platform(levels=(level(CHECKPOINTS, None),))
    return forward(
        task, model, lambda rest, _: rule(chain, rest), platform, [backend], stored=stored
    ).steps


def _back(
    task: Task[S], steps: int, backend: Directory, *, room: int, every: float
) -> ProgramModel[S]:
    """The rest, planned from what is stored."""
    model = task.model()
    chain = task.size.chain(model, steps)
    states = sum(map(_is_state, backend.keys()))
    platform = Platform(levels=(level(CHECKPOINTS, max(room, states) + _ADJOINTS),))

    def replan(chain: Chain, rest: Platform, stored: Stored) -> Schedule:
        try:
            return recover(chain, rest, stored, level=0, every=every)
        except BadInput:  # there is no room for an adjoint any more
            return recover(chain, rest, stored, level=None, every=inf)

    done = already(steps, platform, [backend])
    return back(task, model, chain, done, partial(replan, chain), replan=replan)


def _is_state(key: Key) -> bool:
    return key.kind is Kind.RESTART


def _digest(tree: Any) -> str:
    """Of values, to the last bit."""
    found = hashlib.sha256()
    heap = flatten({"x": rebuild(tree, "x", _plain)})
    found.update(json.dumps(heap.structure, sort_keys=True).encode())
    for name, memory in heap.memories.items():
        found.update(f"{name} {memory.dtype} {memory.shape}".encode())
        found.update(memory.tobytes())
    return found.hexdigest()


def _plain(_: str, leaf: Any) -> Any:
    """An array of another library as one of NumPy's."""
    ours = isinstance(leaf, np.ndarray | np.generic) or not hasattr(leaf, "__array__")
    return leaf if ours else np.asarray(leaf)
