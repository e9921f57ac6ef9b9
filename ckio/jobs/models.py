"""Models and levels by name: made, checked, and measured where nobody has measured them.

`maker` makes a model, `costs` says what its steps take, and `measured` calibrates levels, which are
left empty. `blamed` says whose fault an error is.
"""

import logging
import secrets
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from inspect import getattr_static
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ckio.actions.variables import Variables
from ckio.adapters.registry import (
    AUTO,
    METHODS,
    check_options,
    find_model,
    lossless_codecs,
    make,
    plain,
    takes,
)
from ckio.backends.base import Backend
from ckio.errors import BadInput, CkioError, RunFailed
from ckio.jobs.display import QUIET, Display, Ticker
from ckio.jobs.levels import opened
from ckio.model import Differentiable
from ckio.parallel.agreed import AgreedModel, LargestWrites
from ckio.parallel.group import ALONE, CollectiveClock, RankGroup
from ckio.platform import Level, Option, Platform
from ckio.platform.chain import Chain
from ckio.platform.clock import Clock
from ckio.platform.memory import available

if TYPE_CHECKING:
    from ckio.analysis.guarded import Guarded
    from ckio.calibrate.probe import Checkpoint

log = logging.getLogger("ckio")

Settings = Mapping[str, Option]

RESULTS: Final = ("functional", "gradient")


def identity(model: str, settings: Settings, /, *, ranks: int = 1) -> str:
    """Return the name under which a model's costs are kept: the model and its options, sorted.

    Those of a model in parts are per rank, and with other ranks they are others.

    >>> identity("vorticity", {"wind": 0.1, "grid": 64.0})
    'vorticity grid=64 wind=0.1'
    >>> identity("wave", {}, ranks=4)
    'wave on 4 ranks'
    """
    options = (f"{name}={_text(settings[name])}" for name in sorted(settings))
    return " ".join([model, *options, *([f"on {ranks} ranks"] if ranks > 1 else [])])


def _text(value: Option) -> str:
    """Write a value in one way, so that 64 and 64.0 are the same option."""
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
    """Return what a model is called: as it is named, or as the factory is in its module."""
    if isinstance(model, str):
        return model
    module = getattr(model, "__module__", None) or type(model).__module__
    return f"{module}:{getattr(model, '__qualname__', None) or type(model).__qualname__}"


def maker(
    model: str | Callable[..., Any],
    settings: Settings,
    /,
    ranks: RankGroup = ALONE,
    *,
    wrap: Callable[[Any], Any] | None = None,
) -> Callable[[], Any]:
    """Return what makes fresh instances of a model; its options are checked once, now.

    A model with an option `comm` gets the communicator of all ranks, and makes the part of this
    one. `wrap` is applied to each instance, on each rank.
    """
    what = f"model {name_of(model)!r}"

    def checked() -> Any:
        factory = find_model(model) if isinstance(model, str) else model
        check_options(what, factory, settings)
        return factory

    factory = ranks.each(checked)  # which may be there on some ranks, and not on others
    given: dict[str, Any] = dict(settings)
    if takes(factory, "comm") and not ranks.is_alone:
        given["comm"] = ranks.comm.apart()
    elif not ranks.is_alone:
        log.warning(
            "%s takes no `comm`: each of the %d ranks computes all of it, unless it finds the"
            " others itself",
            what,
            ranks.size,
        )

    def own() -> Any:
        fresh = make(what, factory, given)
        check_has(what, fresh, METHODS)
        return fresh if wrap is None else wrap(fresh)

    def made() -> Any:
        return own() if ranks.is_alone else AgreedModel(ranks.each(own, calls_off=True), ranks)

    return made


def check_has(what: str, model: object, needed: tuple[str, ...], /) -> None:
    """Raise BadInput where something that should be a model lacks part of one."""
    missing = [name for name in needed if getattr_static(model, name, None) is None]
    # A model may hand its parts on from another object.
    missing = [name for name in missing if not hasattr(model, name)]
    if missing:
        kind = type(model).__name__
        raise BadInput(f"{what} makes a {kind}, which is no model: it has no {missing[0]!r}")


def variables_of(name: str, model: object, /) -> Variables:
    """Return what the states of a model are made of; raises BadInput where it does not say."""
    found = getattr(model, "variables", None)
    if not isinstance(found, Variables):
        raise BadInput(
            f"--by-variable: model {name!r} does not say what its steps use and overwrite; see what"
            f" `ckio analyze {name}` observes, and declare it as `flow`"
        )
    return found


@contextmanager
def blamed(what: str, /) -> Iterator[None]:
    """Say whose fault it is where a model fails, or raises something that ckio does not know."""
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
    display: Display = QUIET,
    ranks: RankGroup = ALONE,
) -> Chain:
    """Return a model's costs as the platform has them, or else measured now, with a note.

    A model whose costs are known need not be importable here.
    """
    name = identity(model, settings, ranks=ranks.size)
    known = platform.models.get(name)
    if known is not None:
        return known
    from ckio.calibrate import measure_model

    near = [repr(other) for other in platform.models if other.partition(" ")[0] == model]
    others = f" (it has those of {', '.join(near)})" if near else ""
    log.warning("the platform has no costs of %r%s: they were measured now", name, others)
    with display.progress(f"measuring {name}"), blamed(f"model {model!r}, measured"):
        clock = None if ranks.is_alone else CollectiveClock(ranks)
        return measure_model(make or maker(model, settings, ranks), clock=clock)


def watched(fresh: Callable[[], Differentiable], tick: Ticker, /) -> Callable[[], Differentiable]:
    """Return a maker of the same models, which tell a progress bar if they have a callback."""

    def made() -> Differentiable:
        model = fresh()
        if hasattr(model, "on_step"):
            model.on_step = lambda _step: tick()
        return model

    return made


TOLD: Final = (
    "guarded: steps are done more than once, to see whether they use or overwrite what is not"
    " declared; that takes a few times as long"
)


def guarded(name: str, model: Any, /) -> "Guarded":
    """Return a model that is held against what it declares of its steps.

    It raises RunFailed where a step does otherwise. Raises BadInput where the model declares
    nothing, or its steps cannot be watched.
    """
    from ckio.analysis.guarded import Guarded
    from ckio.model.arraymodel import ArrayModel

    if not isinstance(model, ArrayModel):
        raise BadInput(
            f"--guarded: model {name!r} is a {type(model).__name__} and no ArrayModel: its"
            " steps cannot be watched"
        )
    if model.variables is None:
        raise BadInput(
            f"--guarded: model {name!r} does not say what its steps use and overwrite, so there"
            f" is nothing to hold it to; see what `ckio analyze {name}` observes, and declare"
            " it as `flow`"
        )
    return Guarded(model, model.variables, digests=True)


SHARE_OF_MEMORY: Final = 2
"""Of the memory that is available, one part of so many is for checkpoints where nobody says."""


def levels_of(
    ram: int | None, disk: Path | None, archive: Path | None, /, ranks: int = 1
) -> tuple[Level, ...]:
    """Return memory, a directory of files and an HDF5 archive as levels, as far as they are given.

    Without any of them there is memory alone, half of what is available, shared by all ranks.
    """
    if ram is None and disk is None and archive is None:
        ram = (available() or 0) // SHARE_OF_MEMORY // ranks
    levels = []
    if ram is not None:
        levels.append(Level(name="ram", backend="ram", capacity=ram))
    places = {"disk": ("directory", disk), "archive": ("hdf5", archive)}
    for name, (backend, path) in places.items():
        if path is not None:
            options = {"path": str(path.expanduser().absolute())}
            levels.append(Level(name=name, backend=backend, options=options))
    return tuple(levels)


def measured(
    asked: Sequence[Level],
    /,
    *,
    models: Mapping[str, Callable[[], Any]],
    sizes: Sequence[int] = (),
    repeats: int = 5,
    seconds: float = 0.0,
    display: Display = QUIET,
    ranks: RankGroup = ALONE,
) -> Platform:
    """Return the platform of the levels asked for, measured; nothing is left in their places.

    It goes on for so many seconds at least, in bursts. With many ranks, each access is one of all
    of them at once, and takes what the slowest takes.
    """
    from ckio.calibrate import calibrate

    Platform(tuple(asked))  # names must differ, before anything is opened
    bare = [_without_auto(level, models) for level in asked]
    clock = None if ranks.is_alone else CollectiveClock(ranks)
    bar = display.progress("calibrating", unit="probes")
    name = secrets.token_hex(4)
    run = f"calibrate-{name}" if ranks.is_alone else ranks.once(lambda: name)
    there = opened(bare, run, keep="nothing", ranks=ranks)
    with there as open_levels, bar as tick, blamed("measuring failed"):
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
                progress=lambda what, total: tick(say=what, total=total),
                clock=clock,
            )
        except MemoryError:
            raise BadInput("measuring takes more memory than there is; try less bytes") from None
    levels = tuple(
        replace(
            level,
            write=cost.write,
            read=cost.read,
            read_cold=cost.read_cold,
            discard=cost.discard,
            ratio=cost.ratio,
            profile=cost.profile,
        )
        for (level, _), cost in zip(chosen, platform.levels, strict=True)
    )
    return replace(platform, levels=levels)


def _without_auto(level: Level, models: Collection[str]) -> Level:
    """Return the level to open: one whose codec is to be found out has none yet."""
    if level.options.get("codec") != AUTO:
        return level
    what, bare = f"level {level.name!r}: codec={AUTO}", plain(level)
    if not models:
        raise BadInput(f"{what} is found out with a model's checkpoints: give --model as well")
    if len(bare.options) + 1 < len(level.options):
        raise BadInput(f"{what} takes no options of a codec; name the codec that they are for")
    return bare


def _late(
    asked: Sequence[Level], models: Mapping[str, Callable[[], Any]], clock: Clock | None
) -> "tuple[Sequence[Checkpoint], float]":
    """Return the model's last checkpoints and its pace, by which codecs are chosen."""
    if all(level.options.get("codec") != AUTO for level in asked):
        return [], 0.0
    from ckio.calibrate.probe import kept, late_checkpoints, pace, reach

    make = next(iter(models.values()))
    steps = reach(make, clock=clock)
    return kept(late_checkpoints(make, steps)), pace(make, steps, clock=clock)


def _chosen(
    level: Level,
    backend: Backend,
    late: "Sequence[Checkpoint]",
    step: float,
    *,
    clock: Clock | None,
    ranks: RankGroup,
) -> tuple[Level, Backend]:
    """Return the level with the codec that suits it, where none is named, and a note why."""
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
