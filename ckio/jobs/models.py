"""The models that runs work on: their names, their costs, and whose errors are whose."""

import logging
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import getattr_static
from typing import Any, Final

from ckio.actions.variables import Variables
from ckio.adapters.registry import METHODS, check_options, find_model, make, takes
from ckio.errors import BadInput, CkioError, RunFailed
from ckio.jobs.display import QUIET, Display, Ticker
from ckio.model import Differentiable
from ckio.parallel.agreed import AgreedModel
from ckio.parallel.team import ALONE, MeetingsClock, Team
from ckio.platform import Option, Platform
from ckio.platform.chain import Chain

log = logging.getLogger("ckio")

Settings = Mapping[str, Option]

RESULTS: Final = ("functional", "gradient")


def identity(model: str, settings: Settings, /, *, ranks: int = 1) -> str:
    """The name under which a model's costs are kept: the model and its options, sorted.

    Those of a model in parts are per rank, and with other ranks they are others.

    >>> identity("vorticity", {"wind": 0.1, "grid": 64.0})
    'vorticity grid=64 wind=0.1'
    >>> identity("wave", {}, ranks=4)
    'wave on 4 ranks'
    """
    options = (f"{name}={_text(settings[name])}" for name in sorted(settings))
    return " ".join([model, *options, *([f"on {ranks} ranks"] if ranks > 1 else [])])


def _text(value: Option) -> str:
    """One way to write a value, so that 64 and 64.0 are the same option."""
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
    team: Team = ALONE,
    *,
    wrap: Callable[[Any], Any] | None = None,
) -> Callable[[], Any]:
    """Return what makes fresh instances of a model; its options are checked once, now.

    One that takes an option `comm` gets the ranks of the team, and makes this one's part. Each is
    put into what `wrap` makes of it, on each rank.
    """
    what = f"model {name_of(model)!r}"

    def found() -> Any:
        factory = find_model(model) if isinstance(model, str) else model
        check_options(what, factory, settings)
        return factory

    factory = team.each(found)  # which may be there on some ranks, and not on others
    given: dict[str, Any] = dict(settings)
    if takes(factory, "comm") and not team.is_alone:
        given["comm"] = team.comm.apart()
    elif not team.is_alone:
        log.warning(
            "%s takes no `comm`: each of the %d ranks computes all of it, unless it finds the"
            " others itself",
            what,
            team.size,
        )

    def own() -> Any:
        fresh = make(what, factory, given)
        check_has(what, fresh, METHODS)
        return fresh if wrap is None else wrap(fresh)

    def made() -> Any:
        return own() if team.is_alone else AgreedModel(team.each(own, calls_off=True), team)

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
    team: Team = ALONE,
) -> Chain:
    """A model's costs and sizes as the platform has them, or else measured now, with a note.

    A model whose costs are known need not be importable here.
    """
    name = identity(model, settings, ranks=team.size)
    known = platform.models.get(name)
    if known is not None:
        return known
    from ckio.calibrate import measure_model

    near = [repr(other) for other in platform.models if other.partition(" ")[0] == model]
    others = f" (it has those of {', '.join(near)})" if near else ""
    log.warning("the platform has no costs of %r%s: they were measured now", name, others)
    with display.progress(f"measuring {name}"), blamed(f"model {model!r}, measured"):
        clock = None if team.is_alone else MeetingsClock(team)
        return measure_model(make or maker(model, settings, team), clock=clock)


def watched(fresh: Callable[[], Differentiable], tick: Ticker, /) -> Callable[[], Differentiable]:
    """A maker of the same models, which move a progress bar if they have a callback for it."""

    def made() -> Differentiable:
        model = fresh()
        if hasattr(model, "on_step"):
            model.on_step = lambda _step: tick()
        return model

    return made
