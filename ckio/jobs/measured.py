"""Calibration of levels and models by name: the levels are opened, measured, and left empty."""

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ckio.adapters.registry import AUTO, lossless_codecs, plain
from ckio.backends.base import Backend
from ckio.errors import BadInput
from ckio.jobs.display import QUIET, Display
from ckio.jobs.levels import opened
from ckio.jobs.models import blamed
from ckio.parallel.agreed import LargestWrites
from ckio.parallel.team import ALONE, MeetingsClock, Team
from ckio.platform import Level, Platform
from ckio.platform.clock import Clock
from ckio.platform.memory import available

if TYPE_CHECKING:
    from ckio.calibrate.codecs import Checkpoint

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
    found = []
    if ram is not None:
        found.append(Level(name="ram", backend="ram", capacity=ram))
    places = {"disk": ("directory", disk), "archive": ("hdf5", archive)}
    for name, (backend, path) in places.items():
        if path is not None:
            options = {"path": str(path.expanduser().absolute())}
            found.append(Level(name=name, backend=backend, options=options))
    return tuple(found)


def measured(
    asked: Sequence[Level],
    /,
    *,
    models: Mapping[str, Callable[[], Any]],
    sizes: Sequence[int] = (),
    repeats: int = 5,
    display: Display = QUIET,
    team: Team = ALONE,
) -> Platform:
    """Return the platform of the levels asked for, measured; nothing is left in their places.

    With many ranks, each access is one of all of them at once, and takes what the slowest takes.
    """
    from ckio.calibrate import calibrate

    Platform(tuple(asked))  # names must differ, before anything is opened
    bare = [_without_auto(level, models) for level in asked]
    clock = None if team.is_alone else MeetingsClock(team)
    bar = display.progress("calibrating", unit="probes")
    name = secrets.token_hex(4)
    run = f"calibrate-{name}" if team.is_alone else team.once(lambda: name)
    there = opened(bare, run, keep="nothing", team=team)
    with there as open_levels, bar as tick, blamed("measuring failed"):
        backends = [it if team.is_alone else LargestWrites(it, team) for it in open_levels]
        try:
            late, step = _late(asked, models, clock)
            chosen = []
            for level, backend in zip(asked, backends, strict=True):
                tick(0, say=f"{level.name}, codecs")
                chosen.append(_chosen(level, backend, late, step, clock=clock, team=team))
            found = calibrate(
                {level.name: backend for level, backend in chosen},
                sizes,
                repeats=repeats,
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
        for (level, _), cost in zip(chosen, found.levels, strict=True)
    )
    return replace(found, levels=levels)


def _without_auto(level: Level, models: Collection[str]) -> Level:
    """The level to open: one whose codec is to be found out has none yet."""
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
    from ckio.calibrate.codecs import kept, late_checkpoints
    from ckio.calibrate.probe import pace, reach

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
    team: Team,
) -> tuple[Level, Backend]:
    """The level with the codec that suits it, where that is to be found out, and a note why."""
    if level.options.get("codec") != AUTO:
        return level, backend
    from ckio.backends.compressed import Compressed
    from ckio.calibrate.codecs import decide

    codecs = lossless_codecs()
    everywhere = set(codecs).intersection(*team.gather(list(codecs)))
    codecs = {name: codec for name, codec in codecs.items() if name in everywhere}
    room = level.capacity
    found = decide(
        level.name, backend, codecs, late, capacity=room, step=step, clock=clock, team=team
    )
    bare = replace(plain(level), note=found.sentence)
    if not found.codec:
        return bare, backend
    options = {**bare.options, "codec": found.codec}
    return replace(bare, options=options), Compressed(backend, codecs[found.codec])
