"""Costs that earlier runs have measured: the next run of the same kind begins at once.

Two runs are of the same kind if the model has the same name, settings, code and checkpoints, and
the levels are at the same paths of the same devices, on nodes whose names differ in digits only.
Each kind has a file in `~/.cache/ckio` (or below `XDG_CACHE_HOME`). The variable CKIO_CACHE names
another directory, and `off` turns this off. Files may be removed at any time; then costs are
measured again. So they are after a month, for a run that is much longer, and after a run, or a part
of it before it was stopped, that took 1.5 times its prediction or more, or less by as much.
"""

import ast
import functools
import inspect
import json
import os
import platform as host
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

import xxhash

from ckio import __version__
from ckio.calibrate import seconds_of_brief
from ckio.errors import BadInput
from ckio.jobs.history import path_of_user
from ckio.jobs.models import identity, settings_of_costs
from ckio.jobs.request import Request
from ckio.model import Model, handed_by, optional, sizes_of
from ckio.parallel.group import RankGroup
from ckio.platform import Level, Platform

_OLDEST: Final = 30 * 86400.0
"""A month in seconds, in which disks fill and nodes are exchanged."""

_OFF: Final = 1.5
"""The ratio of measured and predicted makespans, or its inverse, above which costs are wrong."""

_SHORT: Final = 0.1
"""Seconds of a run below which an interruption of the processor may double it."""

_LONGER: Final = 2.0
"""A run that would be measured for more than this many times as long is measured again."""


@dataclass(frozen=True)
class Known:
    """The costs of one kind of run.

    Attributes
    ----------
    file : Path
        The file of this kind.
    kind : mapping
        What makes runs the same kind, as data for JSON.
    platform : Platform or None
        The levels and the model with their costs; None if they are not known.
    when : float
        Seconds since 1970 of the measurement.
    """

    file: Path
    kind: Mapping[str, Any]
    platform: Platform | None = None
    when: float = 0.0

    @classmethod
    def of(cls, kind: Mapping[str, Any] | None, steps: int | None, /) -> Self | None:
        """Return what is known for a run of so many steps; None if costs are not to be kept.

        With None for the steps, only a measurement at length suffices.
        """
        where = directory()
        if where is None or kind is None:
            return None
        name = re.sub(r"\W+", "-", kind["model"]).strip("-")[:40]
        file = where / f"{name}-{xxhash.xxh3_64_hexdigest(json.dumps(kind).encode())}.json"
        unknown = cls(file, kind)
        # A file that was cut off, or that someone else has written, is measured anew.
        with suppress(OSError, ValueError, LookupError, TypeError, RecursionError, BadInput):
            checksum, _, text = file.read_text().partition("\n")
            if checksum != xxhash.xxh3_128_hexdigest(text.encode()):
                return unknown
            read = json.loads(text)
            platform = Platform.loads(read["platform"], source=str(file))
            when, measured_for = float(read["when"]), read["steps"]
            (chain,) = platform.models.values()
            is_ours = read["kind"] == kind and 0 <= time.time() - when <= _OLDEST
            if is_ours and _suffices(measured_for, steps, chain.costs["advance"]):
                return replace(unknown, platform=platform, when=when)
        return unknown

    def on(self, levels: Sequence[Level], /) -> Platform | None:
        """Return the platform with the capacities that a run asks for."""
        if self.platform is None or len(self.platform.levels) != len(levels):
            return None
        pairs = zip(self.platform.levels, levels, strict=True)
        return replace(
            self.platform,
            levels=tuple(
                replace(it, capacity=like.capacity, options=like.options) for it, like in pairs
            ),
        )

    def keep(self, platform: Platform, steps: int | None, /) -> None:
        """Store costs that were measured for a run of so many steps; None: at length."""
        data = {"kind": self.kind, "steps": steps, "when": time.time()}
        text = json.dumps({**data, "platform": platform.dumps()})
        own = self.file.with_suffix(f".{os.getpid()}")
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            own.write_text(f"{xxhash.xxh3_128_hexdigest(text.encode())}\n{text}")
            own.replace(self.file)
        except OSError:  # the next run measures, too
            with suppress(OSError):
                own.unlink(missing_ok=True)

    def are_of(self, platform: Platform, /) -> bool:
        """Return whether the levels and models of a run have these costs."""
        known = self.on(platform.levels)
        return (
            known is not None
            and known.levels == platform.levels
            and all(platform.models.get(name) == it for name, it in known.models.items())
        )

    def judge(self, predicted: float, measured: float, /) -> None:
        """Forget these costs if a run took 1.5 times its prediction in seconds, or less by that."""
        if (
            max(predicted, measured) >= _SHORT
            and not predicted <= measured * _OFF <= predicted * _OFF**2
        ):
            with suppress(OSError):
                self.file.unlink(missing_ok=True)


def known_costs(
    request: Request,
    factory: Callable[..., Any],
    model: Model,
    levels: Sequence[Level],
    /,
    *,
    steps: int | None,
    ranks: RankGroup,
) -> tuple[str, Known | None]:
    """Return the name of the costs of a fresh model, and what is known of them, as `Known.of`."""
    facts, settings = facts_of(model), settings_of_costs(factory, request.settings)
    name = identity(request.model or "", settings, ranks=ranks.size)
    known = ranks.once(lambda: Known.of(kind_of(name, factory, facts, levels), steps))
    return name, known


def facts_of(model: Model, /) -> dict[str, Any]:
    """Return the sizes of a fresh model's checkpoints in bytes, and what it declares of them."""
    more = optional(model)
    return {
        **sizes_of(model),
        "handed": sorted(kind.value for kind in handed_by(model)),
        "tape_restarts": more.tape_restarts,
        "records_late": more.records_late,
    }


def kind_of(
    model: str,
    factory: Callable[..., Any],
    facts: Mapping[str, Any],
    levels: Sequence[Level],
    /,
) -> dict[str, Any] | None:
    """Return what makes runs the same kind; None if the code of the model cannot be read.

    `model` is its name with the settings, and `facts` are those of `facts_of`.
    """
    code = code_of(factory)
    if code is None:
        return None
    return {
        "model": model,
        "code": code,
        "facts": {**facts},
        "levels": [[it.name, it.backend, dict(it.options), _device(it)] for it in levels],
        "node": re.sub(r"\d+", "#", host.node()),
        "ckio": __version__,
    }


def directory() -> Path | None:
    """Return the directory of the files; None if it is turned off."""
    return path_of_user("CKIO_CACHE", "XDG_CACHE_HOME", "~/.cache", "ckio")


def _suffices(measured_for: int | None, steps: int | None, advance: float) -> bool:
    """Return whether costs that were measured for one number of steps are used for another."""
    if measured_for is None or steps is None:
        return measured_for is None
    asked, had = (seconds_of_brief(many, advance) for many in (steps, measured_for))
    return asked <= _LONGER * had


def code_of(factory: Callable[..., Any]) -> str | None:
    """Return a digest of the file in which a model is written; None if it cannot be read.

    The modules that this file imports from its own directory count, too, and those that they do.
    """
    while isinstance(factory, functools.partial):
        factory = factory.func
    # What `ckio.functions` returns is written where its step is.
    function = inspect.unwrap(getattr(factory, "model_of", factory))
    with suppress(OSError, TypeError):
        file = inspect.getsourcefile(function if callable(function) else type(function))
        if file is not None:
            texts = _with_imports(Path(file), {}).values()
            return xxhash.xxh3_64_hexdigest(b"\0".join(texts))
    return None


def _with_imports(file: Path, found: dict[Path, bytes]) -> dict[Path, bytes]:
    """Add a file and those that it imports from its directory to `found`, with their contents."""
    found[file] = file.read_bytes()
    words = set[str]()
    with suppress(SyntaxError, ValueError):  # other languages than Python import in other ways
        for node in ast.walk(ast.parse(found[file])):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names]
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                words.update(word for name in names for word in name.split("."))
    for word in sorted(words - {""}):
        for other in (file.parent / f"{word}.py", file.parent / word / "__init__.py"):
            if other not in found and other.is_file():
                _with_imports(other, found)
    return found


def _device(level: Level) -> int | None:
    """Return the number of the device of a level; None for memory, and for a disk that has died."""
    if (path := level.options.get("path")) is not None:
        with suppress(OSError):
            paths = (Path(str(path)), *Path(str(path)).parents)
            return next(it for it in paths if it.exists()).stat().st_dev
    return None
