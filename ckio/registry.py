"""Things found by name: backends, planners, codecs and models, ours and other people's.

All are entry points, in groups `ckio.backends`, `ckio.planners`, `ckio.codecs` and `ckio.models`; a
thing is imported when it is asked for.
"""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache, reduce
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ckio.backends.base import Backend
from ckio.backends.runid import RunId, computing, rank_of
from ckio.errors import BadInput, CkioError
from ckio.platforms import Level, Option, Platform
from ckio.spelling import meant
from ckio.team import ALONE, Team

if TYPE_CHECKING:  # which brings zstandard in
    from ckio.compression import Codec

GROUPS: Final = ("backends", "planners", "codecs", "models")

AUTO: Final = "auto"
"""The codec that calibration chooses."""

_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

_WORDS: Final = frozenset({"str", "int", "float", "bool", "None"})
"""The types of what one can write in a word."""


@cache
def _entries(group: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """What is registered under each name: one thing, unless packages are at odds."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in entry_points(group=f"ckio.{group}"):
        found[entry.name] = *found.get(entry.name, ()), entry
    return found


def names(group: str, /) -> list[str]:
    """The names known in a group, sorted."""
    return sorted(_entries(group))


def find(group: str, name: str, /) -> Any:
    """The object called `name` in a group.

    Raises BadInput, where there is none with the nearest known names, and where there are two.
    """
    entries, what = _entries(group), group.removesuffix("s")
    if name not in entries:
        raise BadInput(
            f"no {what} is named {name!r}; {meant(name, entries)}"
            " (what another package brings is found where that is installed)"
        )
    entry, *others = entries[name]
    if others:
        raise BadInput(
            f"{what} {name!r} is registered by {' and by '.join(map(_package, entries[name]))};"
            " which is meant cannot be told: uninstall all but one"
        )
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        whose = "" if is_ours(group, name) else f" of {_package(entry)}"
        raise BadInput(f"{what} {name!r}{whose} cannot be imported: {_told(error)}") from error


def is_ours(group: str, name: str, /) -> bool:
    """Whether ckio itself brings it, and no other package."""
    entries = _entries(group).get(name, ())
    return bool(entries) and all(entry.module.partition(".")[0] == "ckio" for entry in entries)


def _package(entry: EntryPoint) -> str:
    """The package that brings it, with its version."""
    found = entry.dist
    return entry.module if found is None else f"{found.name} {found.version}"


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
            raise BadInput(f"{what} has no option {name!r}; {meant(name, known)}")
    for parameter in parameters:
        needed = parameter.default is parameter.empty and parameter.kind in _NAMED
        if needed and parameter.name not in options:
            raise BadInput(f"{what} needs the option {parameter.name!r}")


def options_of(factory: Callable[..., Any], /) -> dict[str, Any]:
    """The options of `factory` that can be given in words, with their defaults."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # something in C that does not say
        return {}
    return {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.kind in _NAMED and _WORDS.issuperset(_types(parameter))
    }


def _types(parameter: inspect.Parameter) -> list[str]:
    """The names of what an option may be, however its annotation is written."""
    return inspect.formatannotation(parameter.annotation).strip("'").split(" | ")


def make(what: str, factory: Callable[..., Any], options: Mapping[str, Any], /) -> Any:
    """Call `factory(**options)`; wrong options, and what it raises itself, become BadInput."""
    check_options(what, factory, options)
    try:
        return factory(**options)
    except CkioError as error:
        name = what.rpartition(": ")[2]  # which our own say themselves
        error.args = (f"{what}: {str(error).removeprefix(f'{name}: ')}",)
        raise
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:
        raise BadInput(f"{what} cannot be made: {_told(error)}") from error


def place(level: Level, run: str, /) -> Path | None:
    """Where a level keeps the files of the run called `run`; None where it keeps none."""
    path, factory = level.options.get("path"), find("backends", level.backend)
    for_run = getattr(factory, "for_run", None)
    if path is None or for_run is None:
        return None
    own = rank_of(run)[0] if takes(factory, "team") else run
    return Path(for_run(Path(str(path)), own)) if run else Path(str(path))


def is_shared(level: Level, /) -> bool:
    """Whether all ranks of a job have one storage of it, which is told the team."""
    return takes(find("backends", level.backend), "team")


def open_level(
    level: Level, /, *, run: str = "", team: Team = ALONE, identity: str = ""
) -> Backend:
    """Open the storage of a level, for the run called `run`, or one rank's part of it.

    `identity` is the digest of what the run computes, which is stored beside its name.
    The option `codec` says how to compress, and `codec_X` is the codec's option X. `path` is where
    the level keeps files; each run has files of its own there. Raises ForeignLevel where they turn
    out to be those of another run. A level that all ranks share is opened by all of the `team`.
    """
    codec = codec_of(level)  # first: what cannot be wrapped must not be left open
    what = f"level {level.name!r}: {level.backend}"
    factory = find("backends", level.backend)
    options: dict[str, Any] = {**plain(level).options, "capacity": level.capacity}
    if shared := takes(factory, "team"):
        if codec is not None:
            raise BadInput(f"{what} takes no codec: its slots have one size; use hdf5")
        options["team"] = team
    if (where := place(level, run)) is not None:
        own = RunId(computing(rank_of(run)[0] if shared else run, identity))
        options |= {"path": where, **({"run": own} if takes(factory, "run") else {})}
    backend: Backend = make(what, factory, options)
    if codec is None:
        return backend
    from ckio.backends.compressed import Compressed

    return Compressed(backend, codec, ratio=level.ratio)


def takes(factory: Callable[..., Any], option: str, /) -> bool:
    """Whether what it calls has such an option."""
    try:
        return option in inspect.signature(factory).parameters
    except (TypeError, ValueError):  # something in C that does not say
        return False


def codec_of(level: Level, /) -> "Codec | None":
    """What compresses on a level, if anything does; BadInput where it cannot be made here."""
    name, options = level.options.get("codec"), _codec_options(level)
    what = f"level {level.name!r}"
    if name is None:
        if options:
            raise BadInput(f"{what}: {level.backend} has no codec for 'codec_{min(options)}'")
        return None
    if name == AUTO:
        raise BadInput(
            f"{what}: codec = 'auto' is for `ckio calibrate --model`, which measures and chooses;"
            f" calibrate, or name one of: {', '.join(names('codecs'))}"
        )
    codec: Codec = make(f"{what}: {name}", find("codecs", str(name)), options)
    return codec


def lossless_codecs() -> "dict[str, Codec]":
    """Every codec that is installed with what it needs, and gives back the very bytes; by name."""
    found = {}
    for name in names("codecs"):
        try:
            codec = make(name, find("codecs", name), {})
        except BadInput:  # it needs what is not installed, or an option
            continue
        if codec.lossless:
            found[name] = codec
    return found


def plain(level: Level, /) -> Level:
    """The level without its codec."""
    kept = {name: value for name, value in level.options.items() if not _of_codec(name)}
    return replace(level, options=kept)


def _codec_options(level: Level) -> dict[str, Option]:
    prefix = "codec_"
    return {
        name.removeprefix(prefix): value
        for name, value in level.options.items()
        if name.startswith(prefix)
    }


def _of_codec(option: str) -> bool:
    return option == "codec" or option.startswith("codec_")


def lossy(platform: Platform, /) -> dict[str, str]:
    """The levels whose codec does not give back the very bytes it got, each with the codec's name.

    A codec that cannot be asked here is not taken for lossless.
    """
    found = {}
    for level in platform.levels:
        try:
            codec = codec_of(level)
        except BadInput:
            found[level.name] = f"{level.options.get('codec')}, which cannot be asked here"
            continue
        if codec is not None and not codec.lossless:
            found[level.name] = codec.name
    return found


def close(backend: Backend, /, *, remove: bool) -> None:
    """Close a level; with `remove`, delete what it kept, where it knows how to."""
    getattr(backend, "remove" if remove and hasattr(backend, "remove") else "close")()


def _told(error: BaseException) -> str:
    """What an error of somebody else's says, with its kind."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")
