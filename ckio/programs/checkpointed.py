"""Reverse mode with checkpoints (`checkpoint_vjp`), which can be resumed after a kill.

The program is run forward once in steps of `base` ticks. Because its length is not known yet, a
rule decides which states are stored meanwhile. Then the steps are reversed one by one, each from
the nearest stored state before it. For example, bisection has stored x_0, x_4, x_6 and x_7 when 8
steps have been run. Steps 7, 6 and 4 start from these states. Step 5 runs one step again from x_4.
Step 3 runs three steps again from x_0, and stores x_2 meanwhile, from which step 2 starts. Step 1
runs one step again, and step 0 none. So 5 steps are run again, in addition to 8 steps to the end
and 8 steps with a tape.

A plan assumes the size of the first state. If states grow, it may need more bytes than a level has.
The rest of the run is then planned again from the stored states. It stores fewer states and runs
more steps again.

If the options name a directory, a killed run is resumed from it:

    program.json    the fingerprint of the code, digests of x and ybar, the ticks of a step, and the
                    number of steps as soon as it is known
    checkpoints/    states of the forward run; later also the adjoint, at regular times

The reverse run is planned from these files. Therefore the process may be killed at any time.
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
from ckio.platform import Affine, Level, Platform, platform_of
from ckio.platform.chain import Chain
from ckio.platform.readable import path_of
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
from ckio.runner.reproducible import ReplayCheck, checked
from ckio.runner.unknown import AT_ONCE, Rule
from ckio.schedule import Schedule
from ckio.schedule.timeline import Event, TimelineRecorder

S = TypeVar("S")

log = logging.getLogger("ckio")

MANIFEST: Final = "program.json"
CHECKPOINTS: Final = "checkpoints"

_FORMAT: Final = 1
_ADJOINTS: Final = 2
"""Number of adjoints stored at a time. The next is complete before the older is discarded."""

_SLOTS: Final = 32
"""The default number of checkpoints of "revolve"."""

_ONE_EACH: Final = 1e-18
"""A ratio so small that each checkpoint takes one byte. The capacity is then a number of slots."""

_SPEED: Final = Affine(latency=2e-5, per_byte=2.5e-10)
"""Rough seconds of an access to memory or the page cache, for planners that use costs."""

_PROBE: Final = 64
"""Ticks that are run to estimate the costs of a program."""

_FEW: Final = 8
"""Ticks that are taped first if `base` is given, to detect code that cannot be taped."""

_MOST: Final = 1 << 40
"""The most ticks of a step. This matters only if a tick needs no tape."""

_BACK: Final = 4.0
"""Rough seconds to reverse a tick, relative to running it, for planners that use costs."""

_RULES: Final[dict[Any, Callable[[Chain, Platform], Rule]]] = {
    "bisection": Bisection,
    "revolve": Online,
    "hrevolve": Online,
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of `checkpoint_vjp`. Raises BadInput for values that do not fit together.

    Attributes
    ----------
    base
        The number of ticks in a step. With "auto" it is the largest number whose tape fits into
        `memory`, estimated from the first ticks.
    schedule
        "bisection" (Siskind & Pearlmutter, 2016) halves the program. "revolve" runs the fewest
        forward ticks that are possible with `slots` states. "hrevolve" does the same on the levels
        of `platform`. You can also give any planner. The ticks are then counted in an additional
        run.
    slots
        The most states that are stored at a time. The default is 32, or with "bisection" the number
        that it needs.
    memory
        Bytes that a tape may take. A step with a larger tape is reversed in halves. A single tick
        is always taped whole, whatever its size.
    platform, backends
        The levels for states, and the opened backend of each level. By default states are stored in
        memory. The run is planned with the size of the first state. If fewer states fit than
        planned, the run continues with those that fit. Only the capacity of the opened backend is a
        strict bound.
    directory
        The directory for checkpoints. If the run is killed, the same call resumes it from there.
        The directory is emptied at the end. The reverse run is optimal for `slots`, by default the
        number that "bisection" uses. A directory cannot be combined with `backends` or a planner.
    every
        Seconds between two checkpoints of the adjoint in `directory`.
    allow_rounding
        Whether a state may differ by rounding when it is computed again.
    """

    base: int | Literal["auto"] = "auto"
    schedule: Literal["bisection", "revolve", "hrevolve"] | Planner = "bisection"
    slots: int | None = None
    memory: float = 256 << 20
    platform: Platform | str | PathLike[str] | None = None
    backends: Sequence[Backend] | None = None
    directory: str | PathLike[str] | None = None
    every: float = 60.0
    allow_rounding: bool = False

    def __post_init__(self) -> None:
        if self.platform is not None:
            object.__setattr__(self, "platform", platform_of(self.platform))
        memory, every = as_float(self.memory), as_float(self.every)
        if (self.platform is None) != (self.backends is None):
            refusal = "give platform and backends together, or neither"
        elif self.slots is not None and not _from_one(self.slots):
            refusal = f"slots = {self.slots!r}; it must be a whole number >= 1"
        elif not callable(self.schedule) and self.schedule not in _RULES:
            names = ", ".join(_RULES)
            refusal = f"schedule = {self.schedule!r}; it must be one of {names}, or a planner"
        elif self.platform is not None and self.slots is not None:
            refusal = "slots and a platform exclude each other; give its levels capacities instead"
        elif self.directory is not None and (self.backends is not None or callable(self.schedule)):
            refusal = "give a directory with no backends and no planner, or no directory"
        elif memory is None or not memory > 0:
            refusal = f"memory = {self.memory!r}; it must be a number of bytes > 0"
        elif self.base != "auto" and not _from_one(self.base):
            refusal = f'base = {self.base!r}; it must be a whole number of ticks, or "auto"'
        elif every is None or not every >= 0:
            refusal = f"every = {self.every!r}; it must be a number of seconds >= 0"
        else:
            return
        raise BadInput(f"checkpoint_vjp: {refusal}")

    def rule(self, chain: Chain, platform: Platform) -> Rule:
        """Return the rule that decides which states the forward run stores.

        `schedule` must not be a planner.
        """
        return _RULES[self.schedule](chain, platform)

    def levels(self) -> tuple[Platform, Sequence[Backend]]:
        """Return the levels for states, and their backends. The default is memory."""
        if self.platform is not None and self.backends is not None:
            return platform_of(self.platform), self.backends
        slots = self.slots if self.schedule == "bisection" else self.slots or _SLOTS
        return Platform(levels=(level("memory", slots),)), [Ram()]


def _from_one(value: object) -> bool:
    return is_whole(value) and value >= 1


def level(name: str, slots: int | None, /) -> Level:
    """Return a level for a number of checkpoints of any size, or without a limit if it is None."""
    ratio = 1.0 if slots is None else _ONE_EACH
    return Level(name=name, capacity=slots, ratio=ratio, write=_SPEED, read=_SPEED)


class Live:
    """A watcher of events that counts the stored states, and passes each event on.

    Attributes
    ----------
    now, peak : int
        The number of stored states, and its largest value so far.
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
    """A gradient to compute, and the number of ticks of its steps.

    Attributes
    ----------
    base : int
        Ticks of a step.
    seconds : float
        Rough seconds of one tick.
    ticks : int or None
        Ticks of the whole program if it ended within the first ones, otherwise None.
    live : Live
        Counts the stored states.
    replay : ReplayCheck
        The states that are compared when they are computed again, by all models of the task.
    """

    program: Program[S]
    x: Any
    ybar: Any
    options: Options
    base: int
    seconds: float
    ticks: int | None
    live: Live
    replay: ReplayCheck

    def model(self) -> ProgramModel[S]:
        """Return a new model of the program."""
        budget = self.options.memory
        model = ProgramModel(self.program, self.x, self.base, ybar=self.ybar, budget=budget)
        return checked(model, self.replay)

    def chain(self, model: ProgramModel[Any], steps: int | None, /) -> Chain:
        """Return the chain of this model, with estimated costs."""
        forward, sizes = self.base * self.seconds, sizes_of(model)
        return Chain(steps=steps, advance=forward, record=0.0, reverse=_BACK * forward, **sizes)

    def forward(
        self, model: ProgramModel[S], rules: Rules, platform: Platform,
        backends: Sequence[Backend], stored: Stored = ()
    ) -> Forward:  # fmt: skip
        """Run from x_0, or from the states on these levels, to the end of the program."""
        return run_forward(
            rules, platform, model, backends, say=log.warning, stored=stored, watch=self.live
        )

    def back(
        self, model: ProgramModel[S], schedule: Schedule, platform: Platform,
        backends: Sequence[Backend], replan: Replan = _from_what_is_left
    ) -> ProgramModel[S]:  # fmt: skip
        """Perform a schedule back to x_0. Return the model that has the gradient."""
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
    """Run some ticks, also with a tape, and return the task. Raise BadInput if they fail.

    With base="auto", the tape of a step fits into `memory`, estimated from the first ticks. For
    example, if 64 ticks store 1 MiB and 256 MiB are allowed, a step has 16,384 ticks.
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
    replay = ReplayCheck(allow_rounding=options.allow_rounding)
    return Task(p, x, ybar, options, size, seconds, ticks if finished else None, live, replay)


def by_rule(task: Task[S], /) -> ProgramModel[S]:
    """Run forward, storing states by the rule, and then reverse."""
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
    """Run forward to count the ticks, and then perform the plan."""
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
    """Return the result of `vjp(p, x, ybar)`, in memory that grows with the logarithm of the ticks.

    The program is divided into steps of `base` ticks, and a tape contains one step. For t ticks,
    "bisection" stores at most ceil(log2(t / base)) + 1 states at a time, and runs the program
    forward about 1 + log2(t / base) / 2 times. For example, 1024 ticks in steps of 64 are 16 steps.
    They need 5 states, and about 3 forward runs.

    Parameters
    ----------
    p, x, ybar
        The program, its inputs, and the cotangent of y, as for `vjp`.
    options
        Ticks of a step, schedule, memory, levels, or a directory to resume from: see `Options`.
    stats
        A dict that receives `ticks`, `base`, `live_peak`, `tape_peak`, `tape_bytes` and
        `forward_ticks`: see `ckio.programs.interface.Stats`.
    watch
        A function that is called after each event with this event, for example to show the
        progress. `ckio.run` has the same argument. An exception that it raises ends the run. A
        program that is reversed with a single tape has no events.

    Returns
    -------
    y, xbar
        The result of the program, and the cotangent of x in the structure of x.

    Raises
    ------
    BadInput
        For the same reasons as `vjp`. Also if `directory` cannot be used, or if it contains a run
        of other code or other inputs.
    StorageError
        A level failed, and the run cannot continue without it.
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
            model = _in_directory(path_of(directory), task)
        else:
            model = by_planner(task, planner) if callable(planner) else by_rule(task)
    if stats is not None:
        stats.update(ticks=model.ticks or 0, base=model.base, live_peak=live.peak)
        stats.update(tape_peak=meter.nodes, tape_bytes=meter.nbytes, forward_ticks=meter.ticks)
    return model.result, model.xbar


@contextmanager
def _as_raised() -> Iterator[None]:
    """Raise the program's own exceptions instead of RunFailed, with a note."""
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
    """The file that describes the run in a directory.

    Attributes
    ----------
    program, x, ybar : str
        The fingerprint of the code, and digests of its arguments.
    base : int
        Ticks of a step.
    steps : int or None
        The number of steps, as soon as it is known.
    format : int
        The format of this file.
    """

    program: str
    x: str
    ybar: str
    base: int
    steps: int | None = None
    format: int = _FORMAT

    def store(self, place: Path) -> None:
        """Write the file. Raises OSError."""
        write_whole(place / MANIFEST, json.dumps(asdict(self), indent=1) + "\n")


def begun(directory: str | PathLike[str], /) -> bool:
    """Return whether this directory contains a run that can be resumed."""
    return (path_of(directory) / MANIFEST).exists()


def _in_directory(place: Path, task: Task[S]) -> ProgramModel[S]:
    """Compute the gradient with checkpoints in this directory, or resume such a run.

    At the end all files are removed, and the directory too if it is then empty. Raises BadInput if
    the directory contains another run or cannot be used, and LevelInUse if another process uses it.
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
            except OSError as error:  # only time is lost: a resumed run would run forward again
                log.warning("%s: the number of steps cannot be stored: %s", place, error)
        model = _back(task, steps, backend)
        backend.remove()
        (place / MANIFEST).unlink()
    with suppress(OSError):
        place.rmdir()
    return model


def _manifest(place: Path, task: Task[S], backend: Directory) -> ProgramManifest:
    """Return the manifest of the directory. Raise BadInput if it belongs to another task."""
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
        stored = replace(stored, ybar=wanted.ybar)  # no stored state depends on ybar
        with _usable(place):
            stored.store(place)
    elif changed:
        raise BadInput(
            f"{place} contains a run that cannot be resumed: {_CHANGED[changed[0]]} changed since"
            " it was begun; undo that, or give another directory, or remove this one"
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
            f"{path} does not describe a run: {error}; give another directory"
        ) from error


@contextmanager
def _usable(place: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise BadInput(
            f"the directory {str(place)!r} cannot be used: {error}; give another directory"
        ) from error


def _forward(task: Task[S], backend: Directory) -> int:
    """Run from the last stored state to the end of the program. Return the number of steps."""
    model, rule = task.model(), task.options.rule
    chain = task.chain(model, None)
    stored = (frozenset(filter(_is_state, backend.keys())),)
    platform = Platform(levels=(level(CHECKPOINTS, None),))
    rules = lambda rest, _: rule(chain, rest)  # noqa: E731
    return task.forward(model, rules, platform, [backend], stored).steps


def _back(task: Task[S], steps: int, backend: Directory) -> ProgramModel[S]:
    """Reverse all steps, by a plan from the stored states."""
    model, every = task.model(), float(task.options.every)
    chain = task.chain(model, steps)
    states = sum(map(_is_state, backend.keys()))
    slots = max(task.options.slots or (steps - 1).bit_length() + 1, states) + _ADJOINTS
    platform = Platform(levels=(level(CHECKPOINTS, slots),))

    def replan(chain: Chain, rest: Platform, stored: Stored) -> Schedule:
        try:
            return recover(chain, rest, stored, level=0, every=every)
        except BadInput:  # there is no free slot for an adjoint
            return recover(chain, rest, stored, level=None, every=inf)

    before = TimelineRecorder().timeline(Actions.of(()))
    done = Forward(steps, before, platform, [backend])
    schedule, done = ready_for_the_way_back(partial(replan, chain), chain, done, say=log.warning)
    return task.back(model, schedule, done.platform, done.backends, replan)


def _is_state(key: Key) -> bool:
    return key.kind is Kind.RESTART


def _digest(tree: Any) -> str:
    """Return a hash of all bits of the values."""
    digest = hashlib.sha256()
    heap = flatten({"x": rebuild(tree, "x", _plain)})
    digest.update(json.dumps(heap.structure, sort_keys=True).encode())
    for name, memory in heap.memories.items():
        digest.update(f"{name} {memory.dtype} {memory.shape}".encode())
        digest.update(memory.tobytes())
    return digest.hexdigest()


def _plain(_: str, leaf: Any) -> Any:
    """Return an array of another library as a numpy array."""
    ours = isinstance(leaf, np.ndarray | np.generic) or not hasattr(leaf, "__array__")
    return leaf if ours else np.asarray(leaf)
