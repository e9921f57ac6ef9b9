"""Reverse mode in little memory: `vjp` by checkpoints, also by processes that are killed.

Where the options give a directory, a run that is killed is resumed from it:

    program.json    what is run: the fingerprint of its code, digests of x and ybar, the ticks of
                    a step, and once it is known the number of steps
    checkpoints/    states on the way forward; then also the adjoint, from time to time

The way back is planned from what is there, so that it does not matter when the process was killed.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import inf
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from ckio.actions import Key, Kind
from ckio.actions.columns import Actions
from ckio.backends.directory import Directory
from ckio.backends.verified import verified
from ckio.backends.wholefile import write_whole
from ckio.errors import BadInput, CkioError, RunFailed
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.programs.heap import flatten, rebuild
from ckio.programs.interface import Program, Stats, check_inputs, metered, vjp
from ckio.programs.model import ProgramModel
from ckio.programs.sweeps import (
    Live,
    Options,
    Task,
    by_planner,
    by_rule,
    level,
    log,
    task_of,
)
from ckio.recover import recover
from ckio.runner.forward import Forward, Stored, ready_for_the_way_back
from ckio.schedule import Schedule
from ckio.schedule.timeline import Event, TimelineRecorder

S = TypeVar("S")

MANIFEST: Final = "program.json"
CHECKPOINTS: Final = "checkpoints"

_FORMAT: Final = 1
_ADJOINTS: Final = 2
"""That lie there at a time: the next one is complete before the older one goes."""

_DEFAULT: Final = Options()


def checkpoint_vjp(
    p: Program[S],
    x: Any,
    ybar: Any,
    options: Options = _DEFAULT,
    *,
    stats: Stats | None = None,
    watch: Callable[[Event], None] | None = None,
) -> tuple[Any, Any]:
    """Return what `vjp(p, x, ybar)` does, in memory that grows with the logarithm of its ticks.

    With t ticks in steps of `base`, "bisection" keeps ceil(log2(t / base)) + 1 states at a time at
    most, and runs the program forward about 1 + log2(t / base) / 2 times. A tape holds one step.
    For example, 1024 ticks in steps of 64 are 16 steps: 5 states, and about 3 times forward.

    Parameters
    ----------
    p, x, ybar
        As `vjp` takes them.
    options
        Ticks of a step, schedule, memory, levels, or a directory to resume from: see `Options`.
    stats
        A dict that is filled with `ticks`, `base`, `live_peak`, `tape_peak`, `forward_ticks`: see
        `ckio.programs.interface.Stats`.
    watch
        Called with each event after it has happened, as by `ckio.run`: to show how far it is. What
        it raises ends the run. A program that is taken back by one tape has no events.

    Raises
    ------
    BadInput
        As `vjp`; where what `directory` holds is of other code or other inputs, or cannot be used.
    StorageError
        A level failed, and there is no way to go on without it.
    """
    live = Live(watch)
    task = task_of(p, x, ybar, options, live)
    directory, planner = options.directory, options.schedule
    short = task.ticks is not None and task.ticks <= task.base
    if short and (directory is None or not begun(directory)):
        return vjp(p, x, ybar, stats=stats)
    check_inputs(x)
    with metered() as meter, _as_raised():
        if directory is not None:
            model = _in_directory(Path(directory), task)
        else:
            model = by_planner(task, planner) if callable(planner) else by_rule(task)
    if stats is not None:
        stats.update(ticks=model.ticks or 0, base=model.base, live_peak=live.peak)
        stats.update(tape_peak=meter.nodes, tape_bytes=meter.nbytes, forward_ticks=meter.ticks)
    return model.result, model.xbar


@contextmanager
def _as_raised() -> Iterator[None]:
    """Let what the program raises be what the caller sees, as `vjp` does."""
    try:
        yield
    except RunFailed as failed:
        cause = failed.__cause__
        if cause is None or isinstance(cause, CkioError):
            raise
        cause.add_note(f"(within checkpoint_vjp: {failed})")
        raise cause from None


@dataclass(frozen=True)
class ProgramManifest:
    """The file that says what was run in the directory.

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


def _in_directory(place: Path, task: Task[S]) -> ProgramModel[S]:
    """Run forward and back, or resume that, with all that is stored in this directory.

    Nothing is left there at the end, nor the directory, if it was empty. Raises BadInput where
    something else was run in it, or it cannot be used; LevelInUse where another process does so.
    """
    with _usable(place):
        place.mkdir(parents=True, exist_ok=True)
    with closing(Directory(place / CHECKPOINTS)) as backend:
        manifest = _manifest(place, task, backend)
        for damage in verified(backend)[1]:
            log.warning("%s", damage)
        task = replace(task, base=manifest.base)
        task.live.now = task.live.peak = sum(map(_is_state, backend.keys()))
        steps = manifest.steps
        if steps is None:
            steps = _forward(task, backend)
            try:
                replace(manifest, steps=steps).store(place)
            except OSError as error:  # time alone is lost: whoever resumes runs forward once more
                log.warning("%s: that the end is known cannot be noted: %s", place, error)
        model = _back(task, steps, backend)
        backend.remove()
        (place / MANIFEST).unlink()
    with suppress(OSError):
        place.rmdir()
    return model


def _manifest(place: Path, task: Task[S], backend: Directory) -> ProgramManifest:
    """Return the manifest of the directory, which must be of this task."""
    wanted = ProgramManifest(
        program=task.program.fingerprint,
        x=_digest(task.x),
        ybar=_digest(task.ybar),
        base=task.base,
    )
    if not begun(place):
        with _usable(place):
            wanted.store(place)
        return wanted
    stored = _stored(place / MANIFEST)
    changed = [name for name in _CHANGED if getattr(stored, name) != getattr(wanted, name)]
    if changed == ["ybar"] and all(map(_is_state, backend.keys())):
        stored = replace(stored, ybar=wanted.ybar)  # on which no state depends
        with _usable(place):
            stored.store(place)
    elif changed:
        raise BadInput(
            f"{place} holds a run that cannot go on: {_CHANGED[changed[0]]} changed since it was"
            " begun; undo that, or give another directory, or remove this one"
        )
    return stored


_CHANGED: Final = {
    "format": "the format of the file has",
    "program": "the code of the program, or the version of a library that it uses, has",
    "x": "the inputs have",
    "ybar": "the cotangent of the result has",
}
"""What must be what it was, and how errors call it."""


def _stored(path: Path) -> ProgramManifest:
    with _usable(path):
        text = path.read_text(encoding="utf-8")
    try:
        return ProgramManifest(**json.loads(text))
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


def _forward(task: Task[S], backend: Directory) -> int:
    """Go to the end of the program, from the last state that is stored; return the steps."""
    model, rule = task.model(), task.options.rule
    chain = task.chain(model, None)
    stored = [set(filter(_is_state, backend.keys()))]
    platform = Platform(levels=(level(CHECKPOINTS, None),))
    rules = lambda rest, _: rule(chain, rest)  # noqa: E731
    return task.forward(model, rules, platform, [backend], stored).steps


def _back(task: Task[S], steps: int, backend: Directory) -> ProgramModel[S]:
    """Go back, by a plan from what is stored."""
    model, every = task.model(), float(task.options.every)
    chain = task.chain(model, steps)
    states = sum(map(_is_state, backend.keys()))
    slots = max(task.options.slots or (steps - 1).bit_length() + 1, states) + _ADJOINTS
    platform = Platform(levels=(level(CHECKPOINTS, slots),))

    def replan(chain: Chain, rest: Platform, stored: Stored) -> Schedule:
        try:
            return recover(chain, rest, stored, level=0, every=every)
        except BadInput:  # there is no room for an adjoint any more
            return recover(chain, rest, stored, level=None, every=inf)

    before = TimelineRecorder().timeline(Actions.of(()))
    done = Forward(steps, before, platform, [backend])
    schedule, done = ready_for_the_way_back(partial(replan, chain), chain, done, say=log.warning)
    return task.back(model, schedule, done.platform, done.backends, replan)


def _is_state(key: Key) -> bool:
    return key.kind is Kind.RESTART


def _digest(tree: Any) -> str:
    """Return a hash of values, to the last bit."""
    digest = hashlib.sha256()
    heap = flatten({"x": rebuild(tree, "x", _plain)})
    digest.update(json.dumps(heap.structure, sort_keys=True).encode())
    for name, memory in heap.memories.items():
        digest.update(f"{name} {memory.dtype} {memory.shape}".encode())
        digest.update(memory.tobytes())
    return digest.hexdigest()


def _plain(_: str, leaf: Any) -> Any:
    """An array of another library as one of NumPy's."""
    ours = isinstance(leaf, np.ndarray | np.generic) or not hasattr(leaf, "__array__")
    return leaf if ours else np.asarray(leaf)
