"""A reverse run that outlives its process: killed, it goes on from what is in its directory.

    program.json    what is run: the fingerprint of its code, digests of x and ybar, the ticks of
                    a step, and once it is known the number of steps
    checkpoints/    states on the way forward; then also the adjoint, from time to time

The way back is planned from what is there, so that it does not matter when the process was killed.
"""

import hashlib
import json
import logging
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import numpy as np

from ckio.actions import Key, Kind
from ckio.backends.directory import Directory
from ckio.backends.verified import verified
from ckio.chain import Chain
from ckio.errors import BadInput
from ckio.platforms import Platform
from ckio.programs.heap import flatten
from ckio.programs.model import ProgramModel
from ckio.programs.protocol import Program
from ckio.programs.sizing import Sizing
from ckio.programs.trees import rebuild
from ckio.programs.ways import Live, level
from ckio.recover import recover
from ckio.rundir import write_whole
from ckio.runner import run
from ckio.runner.forward import run_forward
from ckio.runner.rule import Rule

S = TypeVar("S")

log = logging.getLogger("ckio")

MANIFEST: Final = "program.json"
CHECKPOINTS: Final = "checkpoints"

_FORMAT: Final = 1
_ADJOINTS: Final = 2
"""That lie there at a time: the next one is complete before the older one goes."""


@dataclass(frozen=True)
class Given(Generic[S]):
    """What is to be computed, and the bytes that a tape may take."""

    program: Program[S]
    x: Any
    ybar: Any
    memory: float

    def model(self, base: int) -> ProgramModel[S]:
        """A fresh model of it."""
        return ProgramModel(self.program, self.x, base, ybar=self.ybar, budget=self.memory)


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
        write_whole(place / MANIFEST, json.dumps(asdict(self), indent=1) + "\n")


def reversed_in(
    directory: str | PathLike[str],
    given: Given[S],
    size: Sizing,
    rule: Callable[[Chain, Platform], Rule],
    /,
    *,
    slots: int | None,
    every: float,
    live: Live,
) -> ProgramModel[S]:
    """Run forward and back, or go on with it, with all that is stored in this directory.

    Nothing is left there at the end, nor the directory, if it was empty. Raises BadInput where
    something else was run in it; LevelInUse where another process does it now.
    """
    place = Path(directory)
    place.mkdir(parents=True, exist_ok=True)
    with closing(Directory(place / CHECKPOINTS)) as backend:
        manifest = _manifest(place, given, size)
        for damage in verified(backend)[1]:
            log.warning("%s", damage)
        if manifest.steps is None:
            steps = _forward(manifest, given, size, rule, backend=backend, live=live)
            manifest = replace(manifest, steps=steps)
            manifest.store(place)
        model = _back(manifest, given, size, slots=slots, backend=backend, every=every, live=live)
        backend.remove()
        (place / MANIFEST).unlink()
    with suppress(OSError):
        place.rmdir()
    return model


def _manifest(place: Path, given: Given[S], size: Sizing) -> Manifest:
    """What the directory is of: of this, or it is refused."""
    wanted = Manifest(
        program=given.program.fingerprint,
        x=_digest(given.x),
        ybar=_digest(given.ybar),
        base=size.base,
    )
    path = place / MANIFEST
    if not path.exists():
        wanted.store(place)
        return wanted
    try:
        found = Manifest(**json.loads(path.read_text()))
    except (ValueError, TypeError) as error:
        raise BadInput(
            f"{path} does not say what was run: {error}; give another directory"
        ) from error
    for name, what in (
        ("format", "the format of the file has"),
        ("program", "the code of the program has"),
        ("x", "the inputs have"),
        ("ybar", "the cotangent of the result has"),
    ):
        if getattr(found, name) != getattr(wanted, name):
            raise BadInput(
                f"{place} holds a run that cannot go on: {what} changed since it was begun; undo"
                " that, or give another directory, or remove this one"
            )
    return found


def _forward(
    manifest: Manifest,
    given: Given[S],
    size: Sizing,
    rule: Callable[[Chain, Platform], Rule],
    *,
    backend: Directory,
    live: Live,
) -> int:
    """To the end of the program, from the last state that is stored; the number of steps."""
    model = given.model(manifest.base)
    chain = replace(size, base=manifest.base).chain(model, None)
    return run_forward(
        lambda platform, _: rule(chain, platform),
        Platform(levels=(level(CHECKPOINTS, None),)),
        model,
        [backend],
        say=log.warning,
        stored=[set(filter(_is_state, backend.keys()))],
        watch=live,
    ).steps


def _back(
    manifest: Manifest,
    given: Given[S],
    size: Sizing,
    *,
    slots: int | None,
    backend: Directory,
    every: float,
    live: Live,
) -> ProgramModel[S]:
    """The rest, planned from what is stored."""
    assert manifest.steps is not None
    model = given.model(manifest.base)
    chain = replace(size, base=manifest.base).chain(model, manifest.steps)
    stored = set(backend.keys())
    states = sum(map(_is_state, stored))
    room = slots or (manifest.steps - 1).bit_length() + 1
    platform = Platform(levels=(level(CHECKPOINTS, max(room, states) + _ADJOINTS),))
    schedule = recover(chain, platform, [stored], level=0, every=every)
    run(schedule, platform, model, [backend], watch=live)
    return model


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
