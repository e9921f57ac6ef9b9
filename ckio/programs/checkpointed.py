"""Reverse mode with checkpoints (`checkpoint_vjp`), which can be resumed after a kill.

The program is run forward once in steps of `base` ticks. Because its length is not known yet, a
rule decides which states are stored meanwhile. Then the steps are reversed one by one, each from
the nearest stored state before it. For example, bisection has stored x_0, x_4, x_6 and x_7 when 8
steps have been run. Steps 7, 6 and 4 start from these states. Step 5 recomputes one step from x_4.
Step 3 recomputes three steps from x_0, and stores x_2 meanwhile, from which step 2 starts. Step 1
recomputes one step, and step 0 none. So 5 steps are recomputed, in addition to 8 steps to the end
and 8 steps with a tape.

A plan assumes the size of the first state. If states grow, it may need more bytes than a level has.
The rest of the run is then planned from the stored states. It stores fewer states and recomputes
more steps.

If the options name a directory, a killed run is resumed from it:

    program.json    the fingerprint of the code, digests of x and ybar, the ticks of a step, and the
                    number of steps as soon as it is known
    checkpoints/    states of the forward run; later also the adjoint, at regular times

The reverse run is planned from these files. Therefore the process may be killed at any time.
"""

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import InitVar, dataclass, replace
from math import inf
from os import PathLike
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar

import numpy as np

from ckio.actions import Key, Kind
from ckio.actions.checks import as_float, is_whole
from ckio.actions.columns import DISCARD, KIND_CODE, WRITE, Actions
from ckio.adapters.scratch import temporary
from ckio.backends.base import Backend
from ckio.backends.contents import verified
from ckio.backends.directory import Directory
from ckio.backends.files import write_whole
from ckio.backends.ram import Ram
from ckio.errors import BadInput, CkioError, RunFailed
from ckio.model import sizes_of
from ckio.planners.midpoint import Bisection
from ckio.planners.recovery import recover
from ckio.planners.unknown import Online
from ckio.platform import Affine, Level, Platform, platform_of
from ckio.platform.chain import Chain
from ckio.platform.readable import path_of
from ckio.programs.heap import leaves
from ckio.programs.interface import (
    Program,
    Stats,
    begin,
    check_inputs,
    digests,
    metered,
    vjp,
)
from ckio.programs.model import ProgramModel, rate
from ckio.runner.failover import (
    Stored,
    Watcher,
    failover,
    run_forward,
)
from ckio.runner.reproducible import ReplayCheck, checked
from ckio.runner.unknown import Rule
from ckio.schedule import Schedule
from ckio.schedule.timeline import Event

S = TypeVar("S")

log = logging.getLogger("ckio")

MANIFEST: Final = "program.json"
CHECKPOINTS: Final = "checkpoints"

_FORMAT: Final = 3
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
        forward ticks that are possible with `slots` states, or on the levels of `platform`. For any
        other planner, use `as_chain`.
    slots
        The most states that are stored at a time. The default is 32, or with "bisection" the number
        that it needs.
    memory
        Bytes that a tape may take. A step with a larger tape is reversed in halves. A single tick
        is always taped whole, whatever its size.
    platform, backends
        The levels for states, and the opened backend of each level. Without backends, the levels
        are opened for this run, and their files are removed at the end. By default states are
        stored in memory. The run is planned with the size of the first state. If fewer states fit
        than planned, the run continues with those that fit. Only the capacity of the opened backend
        is a strict bound.
    ram, disk, archive
        The levels in words instead of a platform, with usual costs: memory such as "2GiB", a
        directory and an HDF5 file such as "/scratch:200GiB"; see `Platform.of`.
    directory
        The directory for checkpoints. If the run is killed, the same call resumes it from there.
        The directory is emptied at the end. The reverse run is optimal for `slots`, by default the
        number that "bisection" uses. A directory cannot be combined with other levels.
    every
        Seconds between two checkpoints of the adjoint in `directory`.
    allow_rounding
        Whether a state may differ by rounding when it is recomputed.
    """

    base: int | Literal["auto"] = "auto"
    schedule: Literal["bisection", "revolve"] = "bisection"
    slots: int | None = None
    memory: float = 256 << 20
    platform: Platform | str | PathLike[str] | None = None
    backends: Sequence[Backend] | None = None
    directory: str | PathLike[str] | None = None
    every: float = 60.0
    allow_rounding: bool = False
    ram: InitVar[int | str | None] = None
    disk: InitVar[str | PathLike[str] | None] = None
    archive: InitVar[str | PathLike[str] | None] = None

    def __post_init__(
        self,
        ram: int | str | None,
        disk: str | PathLike[str] | None,
        archive: str | PathLike[str] | None,
    ) -> None:
        levels = platform_of(self.platform, ram=ram, disk=disk, archive=archive)
        object.__setattr__(self, "platform", levels)
        memory, every = as_float(self.memory), as_float(self.every)
        if self.backends is not None and self.platform is None:
            refusal = "give backends together with their platform"
        elif self.slots is not None and not _from_one(self.slots):
            refusal = f"slots = {self.slots!r}; it must be a whole number >= 1"
        elif self.schedule not in _RULES:
            names = ", ".join(_RULES)
            refusal = (
                f"schedule = {self.schedule!r}; it must be one of {names}; for a planner, make a"
                " model by as_chain, and run the planner's schedule"
            )
        elif self.platform is not None and self.slots is not None:
            refusal = "slots and a platform exclude each other; give its levels capacities instead"
        elif self.directory is not None and self.platform is not None:
            refusal = "give a directory with no backends and no other levels, or no directory"
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
        """Return the rule that decides which states the forward run stores."""
        return _RULES[self.schedule](chain, platform)

    @contextmanager
    def levels(self) -> Iterator[tuple[Platform, Sequence[Backend]]]:
        """Open the levels for states, and yield them with their backends. The default is memory."""
        if platform := platform_of(self.platform):
            with temporary(platform, self.backends) as backends:
                yield platform, backends
        else:
            slots = self.slots if self.schedule == "bisection" else self.slots or _SLOTS
            yield level("memory", slots), [Ram()]


def _from_one(value: object) -> bool:
    return is_whole(value) and value >= 1


def level(name: str, slots: int | None, /) -> Platform:
    """Return one level for a number of checkpoints of any size; without a limit if it is None."""
    ratio = 1.0 if slots is None else _ONE_EACH
    return Platform((Level(name=name, capacity=slots, ratio=ratio, write=_SPEED, read=_SPEED),))


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
    replay : ReplayCheck
        The states that are compared when they are recomputed, by all models of the task.
    """

    program: Program[S]
    x: Any
    ybar: Any
    options: Options
    base: int
    seconds: float
    ticks: int | None
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


def task_of(p: Program[S], x: Any, ybar: Any, options: Options, /) -> Task[S]:
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
    return Task(p, x, ybar, options, size, seconds, ticks if finished else None, replay)


def reverse(
    task: Task[S],
    platform: Platform,
    backends: Sequence[Backend],
    watch: Watcher | None,
    run: "StoredRun | None" = None,
) -> tuple[ProgramModel[S], int]:
    """Run forward by the rule, unless the stored run has done it, and then reverse all steps.

    Without a stored run the rule plans the reverse run. With one, it is planned from the stored
    states by `recover`, which also stores adjoints, and a killed process continues from there.
    Returns the model that has the gradient, and the most states that were stored at a time.
    """
    model, options = task.model(), task.options
    chain, forward = task.chain(model, None), Actions.of(())
    stored: Stored = () if run is None else (run.states(),)
    states = sum(map(len, stored))

    def replan(chain: Chain, rest: Platform, stored: Stored) -> Schedule:
        if run is not None:
            with suppress(BadInput):  # there is no free slot for an adjoint
                return recover(chain, rest, stored, level=0, every=float(options.every))
        return recover(chain, rest, stored, level=None, every=inf)

    steps = None if run is None else run.steps
    if steps is None:
        rules = lambda rest, _: options.rule(chain, rest)  # noqa: E731
        done = run_forward(
            rules, platform, model, backends, warn=log.warning, stored=stored, watch=watch
        )
        model.rewind()
        steps, forward, stored = done.steps, done.timeline.actions, done.stored
        if run is None:
            platform, backends = done.platform, done.backends
        else:
            run.end(steps)
    chain = chain.with_steps(steps)
    if run is None:
        schedule = options.rule(chain, platform).finish(steps, stored)
    else:
        platform = run.level(options.slots)
        schedule = replan(chain, platform, tuple(frozenset(level.keys()) for level in backends))
    timeline, model = failover(
        schedule,
        platform,
        model,
        backends,
        fresh=task.model,
        replan=replan,
        warn=log.warning,
        watch=watch,
        resumed=True,
    )
    return model, states + _most_stored(forward + timeline.actions)


def _most_stored(actions: Actions) -> int:
    """Return the largest number of states that are stored in addition to those before."""
    change = (actions.op == WRITE).astype(int) - (actions.op == DISCARD)
    change[actions.kind != KIND_CODE[Kind.RESTART]] = 0
    return int(np.cumsum(change).max(initial=0))


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
    task = task_of(p, x, ybar, options)
    place = None if options.directory is None else path_of(options.directory)
    short = task.ticks is not None and task.ticks <= task.base
    if short and (place is None or not (place / MANIFEST).exists()):
        return vjp(p, x, ybar, stats=stats)
    check_inputs(x)
    with metered() as meter, _as_raised():
        if place:
            model, live_peak = _reverse_in(place, task, watch)
        else:
            with options.levels() as levels:
                model, live_peak = reverse(task, *levels, watch)
    if stats is not None:
        stats.update(ticks=model.ticks or 0, base=model.base, live_peak=live_peak)
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


class StoredRun:
    """A run with checkpoints in a directory, and the file that describes it.

    Raises BadInput if the directory contains another run, or if it cannot be used.

    Attributes
    ----------
    base : int
        Ticks of a step.
    steps : int or None
        The number of steps, as soon as it is known.
    """

    def __init__(self, place: Path, task: Task[Any], backend: Backend) -> None:
        self._path, self._backend = place / MANIFEST, backend
        ybar = leaves(task.ybar, "y")
        now: dict[str, Any] = {
            "format": _FORMAT,
            "program": task.program.fingerprint,
            "x": digests(task.program.pack(begin(task.program, task.x))),
            "ybar": digests(({name: np.asarray(bar) for name, bar in ybar.items()}, {})),
            "base": task.base,
            "steps": None,
        }
        with _usable(place):
            text = self._path.read_text(encoding="utf-8") if self._path.exists() else None
        begun = now if text is None else _parsed(text, self._path)
        changed = [name for name in _CHANGED if begun.get(name) != now[name]]
        # No state depends on ybar.
        if changed and (changed != ["ybar"] or set(backend.keys()) != self.states()):
            raise BadInput(
                f"{place} contains a run that cannot be resumed: {_CHANGED[changed[0]]} changed"
                " since it was begun; undo that, or give another directory, or remove this one"
            )
        self._about = now | {"base": begun["base"], "steps": begun["steps"]}
        with _usable(place):
            self._store()
        self.base: int = self._about["base"]
        self.steps: int | None = self._about["steps"]

    def _store(self) -> None:
        write_whole(self._path, json.dumps(self._about, indent=1) + "\n")

    def states(self) -> frozenset[Key]:
        """Return the keys of the stored states."""
        keys = self._backend.keys()
        return frozenset(key for key in keys if key.kind is Kind.RESTART)

    def level(self, slots: int | None) -> Platform:
        """Return the level for the reverse run, which also stores adjoints."""
        assert self.steps is not None
        states = max(slots or (self.steps - 1).bit_length() + 1, len(self.states()))
        return level(CHECKPOINTS, states + _ADJOINTS)

    def end(self, steps: int) -> None:
        """Store the number of steps."""
        self.steps = self._about["steps"] = steps
        try:
            self._store()
        except OSError as error:  # only time is lost: a resumed run would repeat the forward run
            log.warning("%s: the number of steps cannot be stored: %s", self._path, error)


def _parsed(text: str, path: Path) -> dict[str, Any]:
    """Return the description of a run by an earlier process."""
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError) as error:
        refusal = f"{path} does not describe a run: {error}; give another directory"
        raise BadInput(refusal) from error


_CHANGED: Final = {
    "format": "the format of the file has",
    "program": "the code of the program, or the version of a library that it uses, has",
    "x": "the inputs have",
    "ybar": "the cotangent of the result has",
}
"""Inputs that must not change between two calls, and their names in errors."""


def _reverse_in(place: Path, task: Task[S], watch: Watcher | None) -> tuple[ProgramModel[S], int]:
    """Compute the gradient with checkpoints in this directory, or resume such a run.

    At the end all files are removed, and the directory too if it is then empty. Raises BadInput if
    the directory contains another run or cannot be used, and LevelInUse if another process uses it.
    """
    with _usable(place):
        place.mkdir(parents=True, exist_ok=True)
    with closing(Directory(place / CHECKPOINTS)) as backend:
        run = StoredRun(place, task, backend)
        for damage in verified(backend)[1]:
            log.warning("%s", damage)
        task = replace(task, base=run.base)
        found = reverse(task, level(CHECKPOINTS, None), [backend], watch, run)
        backend.remove()
        (place / MANIFEST).unlink()
    with suppress(OSError):
        place.rmdir()
    return found


@contextmanager
def _usable(place: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise BadInput(
            f"the directory {str(place)!r} cannot be used: {error}; give another directory"
        ) from error
