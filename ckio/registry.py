"""Things found by name: backends, planners, codecs and models, ours and other people's.

All are entry points, in groups `ckio.backends`, `ckio.planners`, `ckio.codecs` and `ckio.models`; a
thing is imported when it is asked for.
"""

import difflib
import importlib
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

from ckio.backends.base import Backend
from ckio.errors import BadInput, CkioError
from ckio.platforms import Level, Option

GROUPS: Final = ("backends", "planners", "codecs", "models")


@cache
def _entries(group: str) -> Mapping[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=f"ckio.{group}")}


def names(group: str, /) -> list[str]:
    """The names known in a group, sorted."""
    return sorted(_entries(group))


def find(group: str, name: str, /) -> Any:
    """The object called `name` in a group; raises BadInput with the nearest known names."""
    entries = _entries(group)
    if name in entries:
        return entries[name].load()
    near = difflib.get_close_matches(name, entries, n=2, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(sorted(entries))}"
    raise BadInput(f"no {group.removesuffix('s')} is named {name!r}; {hint}")


def find_model(name: str, /) -> Callable[..., Any]:
    """A registered model, or the object at `module:attribute`; raises BadInput."""
    module, colon, attribute = name.partition(":")
    if not colon:
        model = find("models", name)
    else:
        try:
            model = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise BadInput(f"model {name!r}: {error}; write MODULE:ATTRIBUTE") from None
    if not callable(model):
        raise BadInput(f"model {name!r} cannot be called; it must make a fresh model")
    return model  # type: ignore[no-any-return]


def make(what: str, factory: Callable[..., Any], options: Mapping[str, Any], /) -> Any:
    """Call `factory(**options)`; wrong options become BadInput."""
    try:
        return factory(**options)
    except CkioError:
        raise
    except TypeError as error:
        text = str(error).split(") ", 1)[-1].split("() ", 1)[-1]
        raise BadInput(f"{what}: {text}") from error


def open_level(level: Level, /, *, run: str = "") -> Backend:
    """Open the storage of a level, for the run called `run`.

    The option `codec` says how to compress, and `codec_X` is the codec's option X. `path` is where
    the level keeps files; each run has files of its own there.
    """
    options = dict(level.options)
    codec = options.pop("codec", None)
    codec_options = {
        name.removeprefix("codec_"): options.pop(name)
        for name in [name for name in options if name.startswith("codec_")]
    }
    factory = find("backends", level.backend)
    place = options.get("path")
    if place is not None and run and hasattr(factory, "for_run"):
        options["path"] = factory.for_run(Path(str(place)), run)
    limits = {**options, "capacity": level.capacity}
    backend: Backend = make(f"level {level.name!r}", factory, limits)
    if codec is not None:
        backend = _compressed(level, backend, str(codec), codec_options)
    return backend


def _compressed(
    level: Level, backend: Backend, codec: str, options: Mapping[str, Option]
) -> Backend:
    from ckio.backends.compressed import Compressed

    made = make(f"level {level.name!r}, codec {codec}", find("codecs", codec), options)
    return Compressed(backend, made, ratio=level.ratio)


def close(backend: Backend, /, *, remove: bool) -> None:
    """Close a level; with `remove`, delete what it kept, where it knows how to."""
    getattr(backend, "remove" if remove and hasattr(backend, "remove") else "close")()
