"""Things found by name: backends, planners, codecs and models, ours and other people's.

All are entry points, in groups `ckio.backends`, `ckio.planners`, `ckio.codecs` and `ckio.models`; a
thing is imported when it is asked for.
"""

import difflib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache, reduce
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

from ckio.backends.base import Backend
from ckio.errors import BadInput, CkioError
from ckio.platforms import Level

GROUPS: Final = ("backends", "planners", "codecs", "models")

_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@cache
def _entries(group: str) -> Mapping[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=f"ckio.{group}")}


def names(group: str, /) -> list[str]:
    """The names known in a group, sorted."""
    return sorted(_entries(group))


def find(group: str, name: str, /) -> Any:
    """The object called `name` in a group; raises BadInput with the nearest known names."""
    entries, what = _entries(group), group.removesuffix("s")
    if name not in entries:
        raise BadInput(f"no {what} is named {name!r}; {nearest(name, entries)}")
    try:
        return entries[name].load()
    except (Exception, SystemExit) as error:
        raise BadInput(f"{what} {name!r} cannot be imported: {_told(error)}") from error


def find_model(name: str, /) -> Callable[..., Any]:
    """A registered model, or the object at `module:attribute`; raises BadInput.

    The module may be in the current directory.
    """
    module, colon, attributes = name.partition(":")
    if not colon:
        model = find("models", name)
    elif module.startswith(".") or not module or not attributes:
        raise BadInput(f"model {name!r}: write a registered name or MODULE:ATTRIBUTE")
    else:
        try:
            _import_from_here()
            model = reduce(getattr, attributes.split("."), importlib.import_module(module))
        except (Exception, SystemExit) as error:
            raise BadInput(f"model {name!r} cannot be imported: {_told(error)}") from error
    if not callable(model):
        raise BadInput(f"model {name!r} cannot be called; it must make a fresh model")
    return model  # type: ignore[no-any-return]


def _import_from_here() -> None:
    """Let modules be found in the current directory, as `python FILE` does.

    Not before a model asks for it: a file that is called like one of Python's own modules hides it.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def check_options(what: str, factory: Callable[..., Any], options: Iterable[str], /) -> None:
    """Raise BadInput where `factory` has no such option, or needs one that is not given."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # something in C that does not say
        return
    known = [parameter.name for parameter in parameters if parameter.kind in _NAMED]
    anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    for name in options:
        if name not in known and not anything:
            raise BadInput(f"{what} has no option {name!r}; {nearest(name, known)}")
    for parameter in parameters:
        needed = parameter.default is parameter.empty and parameter.kind in _NAMED
        if needed and parameter.name not in options:
            raise BadInput(f"{what} needs the option {parameter.name!r}")


def make(what: str, factory: Callable[..., Any], options: Mapping[str, Any], /) -> Any:
    """Call `factory(**options)`; wrong options, and what it raises itself, become BadInput."""
    check_options(what, factory, options)
    try:
        return factory(**options)
    except CkioError as error:
        error.args = (f"{what}: {error}",)
        raise
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:
        raise BadInput(f"{what} cannot be made: {_told(error)}") from error


def place(level: Level, run: str, /) -> Path | None:
    """Where a level keeps the files of the run called `run`; None where it keeps none."""
    path = level.options.get("path")
    for_run = getattr(find("backends", level.backend), "for_run", None)
    if path is None or for_run is None:
        return None
    return Path(for_run(Path(str(path)), run)) if run else Path(str(path))


def open_level(level: Level, /, *, run: str = "") -> Backend:
    """Open the storage of a level, for the run called `run`.

    The option `codec` says how to compress, and `codec_X` is the codec's option X. `path` is where
    the level keeps files; each run has files of its own there.
    """
    options = dict(level.options)
    codec = options.pop("codec", None)
    codec_options = {
        name.removeprefix("codec_"): options.pop(name)
        for name in level.options
        if name.startswith("codec_")
    }
    factory = find("backends", level.backend)
    where = place(level, run)
    named = {**options, **({} if where is None else {"path": where}), "capacity": level.capacity}
    what = f"level {level.name!r}: {level.backend}"
    if codec is None:
        if codec_options:
            raise BadInput(f"{what} has no codec for the option 'codec_{min(codec_options)}'")
        backend: Backend = make(what, factory, named)
        return backend
    from ckio.backends.compressed import Compressed

    # Before the level is opened: what cannot be wrapped must not be left open.
    made = make(f"level {level.name!r}: {codec}", find("codecs", str(codec)), codec_options)
    return Compressed(make(what, factory, named), made, ratio=level.ratio)


def close(backend: Backend, /, *, remove: bool) -> None:
    """Close a level; with `remove`, delete what it kept, where it knows how to."""
    getattr(backend, "remove" if remove and hasattr(backend, "remove") else "close")()


def nearest(name: str, known: Iterable[str], /) -> str:
    """What may have been meant, or else everything that is known."""
    near = difflib.get_close_matches(name, known := sorted(known), n=2, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known) or 'none'}"


def _told(error: BaseException) -> str:
    """What an error of somebody else's says, with its kind."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")
