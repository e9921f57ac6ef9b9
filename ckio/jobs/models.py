"""Models and levels by name: making, checking and measuring them.

`maker` makes a model, `costs` returns the costs of its steps, and `measured` calibrates levels,
which are empty afterwards. `naming` adds the name of the model to errors.
"""

import logging
import secrets
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from inspect import getattr_static, isclass, isfunction
from typing import TYPE_CHECKING, Any, Final

from ckio.actions.variables import Variables
from ckio.adapters.registry import (
    AUTO,
    METHODS,
    check_options,
    find_model,
    lossless_codecs,
    make,
    makes_models,
    plain,
    takes,
    without_copies,
)
from ckio.backends.base import Backend
from ckio.errors import BadInput, CkioError, RunFailed
from ckio.jobs.display import QUIET, Display, Ticker
from ckio.jobs.levels import opened
from ckio.model import Differentiable, optional
from ckio.parallel.agreed import AgreedModel, LargestWrites
from ckio.parallel.group import ALONE, CollectiveClock, RankGroup
from ckio.platform import Level, Option, Platform
from ckio.platform.chain import Chain
from ckio.platform.clock import Clock
from ckio.platform.readable import option

if TYPE_CHECKING:
    from ckio.analysis.guarded import Guarded
    from ckio.calibrate.probe import Checkpoint

log = logging.getLogger("ckio")

Settings = Mapping[str, Option]

_OF_ONE_STEP: Final = (
    "for a function that computes one step, give ckio.functions(step, adjoint, x0, params)"
)

RESULTS: Final = ("functional", "gradient")


def identity(model: str, settings: Settings, /, *, ranks: int = 1) -> str:
    """Return the name under which the costs of a model are stored: model and sorted options.

    The costs of a model on several ranks are those of one rank, and depend on their number.

    >>> identity("vorticity", {"wind": 0.1, "grid": 64.0})
    'vorticity grid=64 wind=0.1'
    >>> identity("wave", {}, ranks=4)
    'wave on 4 ranks'
    """
    options = (f"{name}={_text(settings[name])}" for name in sorted(settings))
    return " ".join([model, *options, *([f"on {ranks} ranks"] if ranks > 1 else [])])


def _text(value: Option) -> str:
    """Return the text of a value; 64 and 64.0 have the same text."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return shlex.quote(value)
        case float() if value.is_integer():
            return str(int(value))
        case _:
            return str(value)


def name_of(model: str | Callable[..., Any], /) -> str:
    """Return the name of a model: the given name, or MODULE:NAME of the function that makes it."""
    if isinstance(model, str):
        return model
    module = getattr(model, "__module__", None) or type(model).__module__
    return f"{module}:{getattr(model, '__qualname__', None) or type(model).__qualname__}"


def factory_of(model: str | Callable[..., Any], /) -> Any:
    """Return the function that makes a model, which may be given by its name.

    Raises BadInput if it is a model itself, or no function.
    """
    factory = find_model(model) if isinstance(model, str) else model
    is_model = not isclass(factory) and all(hasattr(factory, name) for name in METHODS)
    if is_model or not callable(factory):
        raise BadInput(
            f"model {name_of(model)!r} is an object; give its class, or a function that returns a"
            " new model, because a run makes several"
        )
    return factory


def settings_of_costs(factory: Any, settings: Settings, /) -> dict[str, Option]:
    """Return the settings on which costs depend: all but those that a model names in `same_costs`.

    The attribute belongs to the class of models, or to the function that makes one: for example
    ("seed", "shot"). Raises BadInput if it is no collection of names.
    """
    same = getattr(factory, "same_costs", ())
    if isinstance(same, str) or not isinstance(same, Collection):
        raise BadInput(
            f"model {name_of(factory)!r}: same_costs = {same!r}; give names of settings, such as"
            " ('seed', 'shot')"
        )
    return {name: value for name, value in settings.items() if name not in same}


def maker(
    model: str | Callable[..., Any],
    settings: Settings,
    /,
    ranks: RankGroup = ALONE,
    *,
    wrap: Callable[[Any], Any] | None = None,
) -> Callable[[], Any]:
    """Return a function that makes fresh instances of a model. Its options are checked now.

    Parameters
    ----------
    model : str or callable
        The name of the model, or the function that makes it.
    settings : mapping
        Its options.
    ranks : RankGroup
        The ranks. A model with an option `comm` gets a communicator of all ranks, and is the part
        of this rank.
    wrap : callable, optional
        Applied to each instance, on each rank.

    Raises
    ------
    BadInput
        If an option does not fit, or an instance lacks a method of a model.
    """
    what = f"model {name_of(model)!r}"

    def checked() -> Any:
        factory = factory_of(model)
        try:
            check_options(what, factory, settings)
        except BadInput as error:
            if isfunction(factory) and not settings:
                error.args = (f"{error}; {_OF_ONE_STEP}",)
            raise
        return factory

    factory = ranks.each(checked)  # on all ranks, because the model may be missing on some
    given: dict[str, Any] = dict(settings)
    if takes(factory, "comm") and not ranks.is_alone:
        given["comm"] = ranks.comm.duplicate()
    elif not ranks.is_alone:
        log.warning(
            "%s has no option `comm`: each of the %d ranks computes the whole model, unless the"
            " model connects to the other ranks itself",
            what,
            ranks.size,
        )

    def own() -> Any:
        fresh = make(what, factory, given)
        if makes_models(fresh):  # a function that returns what `ckio.functions` does
            fresh = fresh()
        check_has(what, fresh, METHODS)
        return fresh if wrap is None else wrap(fresh)

    def made() -> Any:
        return own() if ranks.is_alone else AgreedModel(ranks.each(own, calls_off=True), ranks)

    return made


def check_has(what: str, model: object, needed: tuple[str, ...], /) -> None:
    """Raise BadInput if an object lacks an attribute that a model needs."""
    missing = [name for name in needed if getattr_static(model, name, None) is None]
    # A wrapper may provide an attribute of another object by `__getattr__`.
    missing = [name for name in missing if not hasattr(model, name)]
    if missing:
        kind = type(model).__name__
        raise BadInput(
            f"{what} makes a {kind}, which is no model: it has no {missing[0]!r}; define it, or use"
            " ArrayModel"
        )


def variables_of(name: str, model: object, /) -> Variables:
    """Return the variables of a model's state; raises BadInput if the model declares no flow."""
    variables = optional(model).variables
    if not isinstance(variables, Variables):
        raise BadInput(
            f"{option('by_variable')}: model {name!r} does not declare which arrays its steps use"
            f" and overwrite; `ckio analyze {name}` observes them; declare them as `flow`"
        )
    return variables


@contextmanager
def naming(what: str, /) -> Iterator[None]:
    """Put the name of the model before an error of the block; an unknown error is a RunFailed."""
    try:
        yield
    except RunFailed as error:
        error.args = (f"{what}: {error}",)
        raise
    except (CkioError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        raise RunFailed(f"{what}: {type(error).__name__}: {error}") from error


def costs(
    model: str,
    settings: Settings,
    platform: Platform,
    /,
    *,
    make: Callable[[], Any] | None = None,
    steps: int | None = None,
    display: Display = QUIET,
    ranks: RankGroup = ALONE,
) -> Chain:
    """Return the costs of a model: those of the platform, or else measured now, with a warning.

    If the platform has the costs, the model is not imported. No step after `steps` is computed.
    """
    name = identity(model, settings, ranks=ranks.size)
    known = platform.models.get(name)
    if known is not None:
        return known
    from ckio.calibrate import measure_model

    near = [repr(other) for other in platform.models if other.partition(" ")[0] == model]
    others = f" (it has those of {', '.join(near)})" if near else ""
    log.warning("the platform has no costs of %r%s: they were measured now", name, others)
    with display.progress(f"measuring {name}"), naming(f"model {model!r}, measured"):
        clock = None if ranks.is_alone else CollectiveClock(ranks)
        return measure_model(make or maker(model, settings, ranks), clock=clock, most=steps)


def with_ticker(
    fresh: Callable[[], Differentiable], tick: Ticker, /
) -> Callable[[], Differentiable]:
    """Return a function that makes the same models, whose `on_step` advances a progress bar."""

    def made() -> Differentiable:
        model = fresh()
        if hasattr(model, "on_step"):
            model.on_step = lambda _step: tick()
        return model

    return made


GUARDED_IS_SLOW: Final = (
    "guarded: each step is computed several times, to find arrays that it uses or overwrites and"
    " that are not declared; the run takes a few times as long"
)


def guarded(name: str, model: Any, /) -> "Guarded":
    """Return a model whose steps are compared with its declaration.

    The model raises RunFailed if a step violates the declaration. This function raises BadInput if
    the model declares no flow, or if it is not an ArrayModel, whose steps cannot be observed.
    """
    from ckio.analysis.guarded import Guarded
    from ckio.model.arraymodel import ArrayModel

    if not isinstance(model, ArrayModel):
        raise BadInput(
            f"{option('guarded')}: model {name!r} is a {type(model).__name__} and no ArrayModel, so"
            f" that its steps cannot be observed; leave out {option('guarded')}"
        )
    if model.variables is None:
        raise BadInput(
            f"{option('guarded')}: model {name!r} does not declare which arrays its steps use"
            f" and overwrite, so that there is nothing to compare with; `ckio analyze"
            f" {name}` observes them; declare them as `flow`"
        )
    return Guarded(model, model.variables)


def measured(
    asked: Sequence[Level],
    /,
    *,
    models: Mapping[str, Callable[[], Any]],
    sizes: Sequence[int] = (),
    repeats: int = 5,
    seconds: float = 0.0,
    run_steps: int | None = None,
    at_length: bool = False,
    display: Display = QUIET,
    ranks: RankGroup = ALONE,
) -> Platform:
    """Measure levels and models, and return the platform. The levels are empty afterwards.

    With many ranks, all ranks access a level at the same time, and the time is that of the slowest.

    Parameters
    ----------
    asked : sequence of Level
        The levels to measure.
    models : mapping of str to callable
        The models to measure, by the name of their costs.
    sizes : sequence of int
        Sizes of accesses in bytes; by default sizes near those of the checkpoints.
    repeats : int
        Repetitions of each access.
    seconds : float
        The least time of the whole measurement, which is spread over several bursts.
    run_steps : int, optional
        The number of steps of the one run for which is measured, briefly unless `at_length`.
    at_length : bool
        Whether all is measured although there is one run.
    display : Display
        Shows the progress.
    ranks : RankGroup
        The ranks of the job.
    """
    from ckio.calibrate import calibrate

    Platform(tuple(asked))  # names must differ, before anything is opened
    bare = [without_copies(_without_auto(level, models)) for level in asked]
    clock = None if ranks.is_alone else CollectiveClock(ranks)
    bar = display.progress("calibrating", unit="probes")
    name = secrets.token_hex(4)
    run = f"calibrate-{name}" if ranks.is_alone else ranks.once(lambda: name)
    opening = opened(bare, run, temporary=True, ranks=ranks)
    with opening as open_levels, bar as tick, naming("measuring failed"):
        backends = [it if ranks.is_alone else LargestWrites(it, ranks) for it in open_levels]
        try:
            late, step = _late(asked, models, clock)
            chosen = []
            for level, backend in zip(asked, backends, strict=True):
                tick(0, say=f"{level.name}, codecs")
                chosen.append(_chosen(level, backend, late, step, clock=clock, ranks=ranks))
            platform = calibrate(
                {level.name: backend for level, backend in chosen},
                sizes,
                repeats=repeats,
                seconds=seconds,
                capacities={level.name: level.capacity for level in asked},
                models=models,
                run_steps=run_steps,
                at_length=at_length,
                progress=lambda what, total: tick(say=what, total=total),
                clock=clock,
            )
        except MemoryError:
            raise BadInput(
                "measuring takes more memory than is available; give smaller sizes"
            ) from None
    levels = (
        replace(
            cost,
            backend=level.backend,
            options=level.options,
            channel=level.channel,
            note=level.note,
        )
        for (level, _), cost in zip(chosen, platform.levels, strict=True)
    )
    return replace(platform, levels=tuple(levels))


def _without_auto(level: Level, models: Collection[str]) -> Level:
    """Return the level to open: without a codec, if the codec is still to be chosen."""
    if level.options.get("codec") != AUTO:
        return level
    what, bare = f"level {level.name!r}: codec={AUTO}", plain(level)
    if not models:
        raise BadInput(
            f"{what} needs the checkpoints of a model to choose a codec; give {option('model')}"
        )
    if len(bare.options) + 1 < len(level.options):
        raise BadInput(f"{what} accepts no options of a codec; name the codec of these options")
    return bare


def _late(
    asked: Sequence[Level], models: Mapping[str, Callable[[], Any]], clock: Clock | None
) -> "tuple[Sequence[Checkpoint], float]":
    """Return late checkpoints of the model and the seconds of a step, to choose codecs by."""
    if all(level.options.get("codec") != AUTO for level in asked):
        return [], 0.0
    from ckio.calibrate.probe import copy_checkpoints, late_checkpoints, measure_model, reach

    make = next(iter(models.values()))
    steps = reach(make, clock=clock)
    late = copy_checkpoints(late_checkpoints(make, steps))
    return late, measure_model(make, repeats=1, clock=clock, steps=steps).advance


def _chosen(
    level: Level,
    backend: Backend,
    late: "Sequence[Checkpoint]",
    step: float,
    *,
    clock: Clock | None,
    ranks: RankGroup,
) -> tuple[Level, Backend]:
    """Return the level with the chosen codec and a note, if the codec is to be chosen."""
    if level.options.get("codec") != AUTO:
        return level, backend
    from ckio.backends.compressed import Compressed
    from ckio.calibrate.codecs import decide

    codecs = lossless_codecs()
    everywhere = set(codecs).intersection(*ranks.gather(list(codecs)))
    codecs = {name: codec for name, codec in codecs.items() if name in everywhere}
    capacity = level.capacity
    decision = decide(
        level.name, backend, codecs, late, capacity=capacity, step=step, clock=clock, ranks=ranks
    )
    bare = replace(plain(level), note=decision.sentence)
    if not decision.codec:
        return bare, backend
    options = {**bare.options, "codec": decision.codec}
    return replace(bare, options=options), Compressed(backend, codecs[decision.codec])
