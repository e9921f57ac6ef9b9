"""Reverse mode in little memory: `vjp` by checkpoints, also by processes that are killed.

The program is run forward once in steps of `base` ticks; which states are stored on the way is up
to a rule, as nobody knows yet how long it is. Then it is taken back, step by step, from the nearest
state. For example, of 8 steps bisection has stored x_0, x_4, x_6 and x_7 when the end is reached.
Steps 7, 6 and 4 start from these; step 5 runs one step again, from x_4; step 3 runs three again,
from x_0, and stores x_2 on the way, from which step 2 starts; step 1 runs one, and step 0 none. So
5 steps are run again, beside 8 to the end and 8 on a tape.

States may grow, so that a plan by the size of the first may ask for more than a level has. The rest
is then planned from what is stored: with fewer states, and more to run again.

Where the options give a directory, a run that is killed is resumed from it:

    program.json    what is run: the fingerprint of its code, digests of x and ybar, the ticks of
                    a step, and once it is known the number of steps
    checkpoints/    states on the way forward; then also the adjoint, from time to time

The way back is planned from what is there, so that it does not matter when the process was killed.
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import inf
from os import PathLike
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar

import numpy as np

from ckio.actions import Discard, Key, Kind, Write
from ckio.actions.checks import as_float, is_whole
from ckio.actions.columns import Actions
from ckio.backends.base import Backend
from ckio.backends.contents import verified
from ckio.backends.directory import Directory
from ckio.backends.files import write_whole
from ckio.backends.ram import Ram
from ckio.errors import BadInput, CkioError, RunFailed
from ckio.model import sizes_of
from ckio.planners.base import Planner
from ckio.planners.bisection import Bisection
from ckio.planners.online import Online
from ckio.planners.recover import recover
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.programs.heap import flatten, rebuild
from ckio.programs.interface import Program, Stats, begin, check_inputs, metered, vjp
from ckio.programs.model import ProgramModel, rate
from ckio.runner.failover import (
    Forward,
    Replan,
    Rules,
    Stored,
    failover,
    ready_for_the_way_back,
    run_forward,
)
from ckio.runner.unknown import AT_ONCE, Rule
from ckio.schedule import Schedule
from ckio.schedule.timeline import Event, TimelineRecorder

S = TypeVar("S")

log = logging.getLogger("ckio")

MANIFEST: Final = "program.json"
CHECKPOINTS: Final = "checkpoints"

_FORMAT: Final = 1
_ADJOINTS: Final = 2
"""That lie there at a time: the next one is complete before the older one goes."""

_SLOTS: Final = 32
"""Checkpoints that "revolve" holds if nothing else is said."""

_ONE_EACH: Final = 1e-18
"""The ratio by which each checkpoint takes one byte of a capacity: it then counts slots."""

_SPEED: Final = Affine(latency=2e-5, per_byte=2.5e-10)
"""Of memory and of files in the page cache, roughly: enough for those who plan by costs."""

_PROBE: Final = 64
"""Ticks by which a program is judged."""

_FEW: Final = 8
"""Ticks that are taped where the base is given: enough to see most of what cannot be."""

_MOST: Final = 1 << 40
"""Ticks of a step at the most, where a tick takes nothing."""

_BACK: Final = 4.0
"""Seconds to take a tick back, in those of running it: roughly, for who plans by costs."""

_RULES: Final[dict[Any, Callable[[Chain, Platform], Rule]]] = {
    "bisection": Bisection,
    "revolve": Online,
    "hrevolve": Online,
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of `checkpoint_vjp`. Raises BadInput for what makes no sense.

    Attributes
    ----------
    base
        Ticks of a step; "auto" makes a tape of them as large as `memory`, by what the first ticks
        take.
    schedule
        "bisection" (Siskind and Pearlmutter, 2016); "revolve", which runs forward as little as can
        be in `slots` states; "hrevolve", the same on the levels of `platform`; or any planner,
        for which the ticks are counted beforehand.
    slots
        States that are kept at a time: 32 if not given, with "bisection" as many as it needs.
    memory
        Bytes that a tape may take: a step whose tape would take more is taken back in halves. A
        single tick is taped whole, whatever it takes.
    platform, backends
        Levels to store on, and each of them opened; memory, if they are not given. What states take
        is judged by the first. Should a level have less room than that in the end, the run goes on
        with what fits; what must not be exceeded is the capacity of the opened level.
    directory
        Where to keep what is stored, so that a run that is killed is resumed: call the same again.
        What it leaves is removed at the end. The way back is then the best one in as many slots as
        "bisection" has, or `slots`. Not together with `backends`, or a planner.
    every
        Seconds between two checkpoints of the adjoint in `directory`.
    """

    base: int | Literal["auto"] = "auto"
    schedule: Literal["bisection", "revolve", "hrevolve"] | Planner = "bisection"
    slots: int | None = None
    memory: float = 256 << 20
    platform: Platform | None = None
    backends: Sequence[Backend] | None = None
    directory: str | PathLike[str] | None = None
    every: float = 60.0

    def __post_init__(self) -> None:
        memory, every = as_float(self.memory), as_float(self.every)
        if (self.platform is None) != (self.backends is None):
            refusal = "give platform and backends together, or neither"
        elif self.slots is not None and not _from_one(self.slots):
            refusal = f"slots = {self.slots!r}; it must be a whole number from 1"
        elif not callable(self.schedule) and self.schedule not in _RULES:
            names = ", ".join(_RULES)
            refusal = f"schedule = {self.schedule!r}; it must be one of {names}, or a planner"
        elif self.platform is not None and self.slots is not None:
            refusal = "slots go with no platform; its levels have capacities"
        elif self.directory is not None and (self.backends is not None or callable(self.schedule)):
            refusal = "a directory goes with no backends and no planner"
        elif memory is None or not memory > 0:
            refusal = f"memory = {self.memory!r}; it must be bytes above 0"
        elif self.base != "auto" and not _from_one(self.base):
            refusal = f'base = {self.base!r}; it must be a whole number of ticks, or "auto"'
        elif every is None or not every >= 0:
            refusal = f"every = {self.every!r}; it must be a number of seconds >= 0"
        else:
            return
        raise BadInput(f"checkpoint_vjp: {refusal}")

    def rule(self, chain: Chain, platform: Platform) -> Rule:
        """Return the rule for what is stored on the way forward; not for a planner."""
        return _RULES[self.schedule](chain, platform)

    def levels(self) -> tuple[Platform, Sequence[Backend]]:
        """Return where states are stored: memory, if nothing was given."""
        if self.platform is not None and self.backends is not None:
            return self.platform, self.backends
        slots = self.slots if self.schedule == "bisection" else self.slots or _SLOTS
        return Platform(levels=(level("memory", slots),)), [Ram()]


def _from_one(value: object) -> bool:
    return is_whole(value) and value >= 1


def level(name: str, slots: int | None, /) -> Level:
    """Return a level of so many checkpoints, whatever their size; None for as many as there are."""
    ratio = 1.0 if slots is None else _ONE_EACH
    return Level(name=name, capacity=slots, ratio=ratio, write=_SPEED, read=_SPEED)


class Live:
    """Counts the states that are stored, as events pass by, and passes them on.

    Attributes
    ----------
    now, peak : int
        How many there are, and the most at a time.
    """

    def __init__(self, watch: Callable[[Event], None] | None = None, /) -> None:
        self.peak = self.now = 0
        self._watch = watch

    def __call__(self, event: Event, /) -> None:
        match event.action:
            case Write(key, _) if key.kind is Kind.RESTART:
                self.now += 1
                self.peak = max(self.peak, self.now)
            case Discard(key, _) if key.kind is Kind.RESTART:
                self.now -= 1
        if self._watch is not None:
            self._watch(event)


def _from_what_is_left(chain: Chain, platform: Platform, stored: Stored) -> Schedule:
    return recover(chain, platform, stored, level=None, every=inf)


@dataclass(frozen=True)
class Task(Generic[S]):
    """A gradient that is to be computed, and how large a step is.

    Attributes
    ----------
    base : int
        Ticks of a step.
    seconds : float
        Of one tick, roughly.
    ticks : int or None
        Of the whole program, where they were no more than were tried.
    live : Live
        Sees each event.
    """

    program: Program[S]
    x: Any
    ybar: Any
    options: Options
    base: int
    seconds: float
    ticks: int | None
    live: Live

    def model(self) -> ProgramModel[S]:
        """Return a fresh model of it."""
        budget = self.options.memory
        return ProgramModel(self.program, self.x, self.base, ybar=self.ybar, budget=budget)

    def chain(self, model: ProgramModel[Any], steps: int | None, /) -> Chain:
        """Return the chain of this model, with costs that are good enough to plan by."""
        forward, sizes = self.base * self.seconds, sizes_of(model)
        return Chain(steps=steps, advance=forward, record=0.0, reverse=_BACK * forward, **sizes)

    def forward(
        self, model: ProgramModel[S], rules: Rules, platform: Platform,
        backends: Sequence[Backend], stored: Stored = ()
    ) -> Forward:  # fmt: skip
        """Run from x_0, or from what is stored on these levels, to the end of the program."""
        return run_forward(
            rules, platform, model, backends, say=log.warning, stored=stored, watch=self.live
        )

    def back(
        self, model: ProgramModel[S], schedule: Schedule, platform: Platform,
        backends: Sequence[Backend], replan: Replan = _from_what_is_left
    ) -> ProgramModel[S]:  # fmt: skip
        """Perform a schedule, to x_0; return the model that came there."""
        return failover(
            schedule,
            platform,
            model,
            backends,
            fresh=self.model,
            replan=replan,
            say=log.warning,
            watch=self.live,
        )[1]


def task_of(p: Program[S], x: Any, ybar: Any, options: Options, live: Live, /) -> Task[S]:
    """Try some ticks, with a tape too, so that what cannot be taped is known; raises BadInput.

    With base="auto", a step has as many ticks as the tape has room for, by what the first ones
    take. For example, if 64 ticks keep 1 MiB and 256 MiB are allowed, a step has 16,384 ticks.
    """
    start = begin(p, x)
    before = time.perf_counter()
    _, ticks, finished = p.advance(start, _PROBE)
    seconds = (time.perf_counter() - before) / max(1, ticks)
    base = options.base
    if finished:
        size = max(1, ticks) if base == "auto" else int(base)
    elif base != "auto":
        rate(p, start, min(int(base), _FEW))
        size = int(base)
    else:
        tried, nbytes = 1, rate(p, start, 1)
        while tried < ticks and 2 * tried * nbytes <= options.memory:
            tried = min(2 * tried, ticks)
            nbytes = rate(p, start, tried)
        size = int(min(max(1.0, options.memory / nbytes if nbytes else inf), _MOST))
    return Task(p, x, ybar, options, size, seconds, ticks if finished else None, live)


def by_rule(task: Task[S], /) -> ProgramModel[S]:
    """Go forward, storing what the rule says, and back from there."""
    model, rule = task.model(), task.options.rule
    chain = task.chain(model, None)
    done = task.forward(model, lambda rest, _: rule(chain, rest), *task.options.levels())
    chain = chain.with_steps(done.steps)

    def plan(rest: Platform, stored: Stored) -> Schedule:
        return rule(chain, rest).finish(done.steps, stored)

    model.begin_again()
    schedule, done = ready_for_the_way_back(plan, chain, done, say=log.warning)
    return task.back(model, schedule, done.platform, done.backends)


def by_planner(task: Task[S], planner: Callable[[Chain, Platform], Schedule], /) -> ProgramModel[S]:
    """Go forward to count the ticks; then as it is planned."""
    model, (platform, backends) = task.model(), task.options.levels()
    step, reached = 0, model.advance(0, AT_ONCE)
    while reached > step and model.steps is None:
        step, reached = reached, model.advance(reached, reached + AT_ONCE)
    plan = planner(task.chain(model, reached), platform)
    model.begin_again()
    return task.back(model, plan, platform, backends)


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
"""Inputs that must not change between two calls, and their names in errors."""


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
    stored = (frozenset(filter(_is_state, backend.keys())),)
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
