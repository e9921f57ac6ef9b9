"""`ckio calibrate`: measure this machine and write a platform file."""

import inspect
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ckio.backends.base import Backend
from ckio.cli import console
from ckio.cli.files import out, tell_written, write_text
from ckio.cli.levels import opened, parse_level, say_lossy
from ckio.cli.models import Settings, blamed, identity, maker
from ckio.cli.options import json_option, settings_option, size_option
from ckio.cli.profiles import print_profiles
from ckio.cli.team import all_ranks, check_alike
from ckio.clock import Clock
from ckio.errors import BadInput
from ckio.pictures.words import bytes_text, seconds_text
from ckio.platforms import Level, Platform
from ckio.registry import AUTO, find, lossless_codecs, lossy, names, options_of, plain
from ckio.team import ALONE, MeetingsClock, Team
from ckio.team.levels import Widest

if TYPE_CHECKING:
    from ckio.calibrate.late import Checkpoint

DURABILITIES: Final = {
    "process": "A checkpoint survives its process being killed; this is the default.",
    "fdatasync": "It survives the machine failing, too.",
    "direct": "As fdatasync, and its bytes go past the page cache.",
}


class _Explained(click.Command):
    """Says after its options of what levels and which models are installed here."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        backends = [_explained("backends", name) for name in names("backends")]
        codecs = [_explained("codecs", name, prefix="codec_") for name in names("codecs")]
        models = [_explained("models", name) for name in names("models")]
        auto = (AUTO, "Whichever of the lossless ones pays here, if any; measured, with --model.")
        for title, rows in (
            ("Backends, with their options", backends),
            ("Durabilities, of backends with files (durability=NAME)", [*DURABILITIES.items()]),
            ("Codecs, with their options (codec=NAME)", [*codecs, auto]),
            ("Models, with their options (--set); your own is MODULE:ATTRIBUTE", models),
        ):
            with formatter.section(title):
                formatter.write_dl(rows)


def _explained(group: str, name: str, *, prefix: str = "") -> tuple[str, str]:
    """What is registered by this name, in the first words of its documentation."""
    try:
        factory = find(group, name)
    except BadInput as error:
        return name, str(error)
    what = (inspect.getdoc(factory) or "").partition("\n")[0]
    options = [
        f"{prefix}{option}{'' if default in (None, inspect.Parameter.empty) else f'={default}'}"
        for option, default in options_of(factory).items()
        if option != "capacity"
    ]
    return name, f"{what} {', '.join(options)}".strip()


@click.command(cls=_Explained)
@click.option(
    "--level", "levels", multiple=True, required=True, metavar="LEVEL",
    help="NAME=BACKEND[:PLACE][,option=value]...; one for each level, nearest first. PLACE is where"
    " it keeps files, its option `path`",
)  # fmt: skip
@size_option("--working-memory", help="bytes for the tape; default: one step's tape")
@click.option("--model", "model", metavar="MODEL", help="a model to measure as well")
@settings_option
@size_option("--size", "sizes", multiple=True, help="bytes of a checkpoint to try; may be repeated")
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True, help="passes")
@out(
    "-o", "--output", default=Path("platform.toml"), show_default=True,
    help="the platform file; - is stdout",
)  # fmt: skip
@json_option
def command(
    *,
    levels: tuple[str, ...],
    working_memory: int | None,
    model: str | None,
    settings: Settings,
    sizes: tuple[int, ...],
    repeats: int,
    output: Path,
    as_json: bool,
) -> None:
    """Measure writing, reading and discarding on each level, at several sizes, and a model's steps.

    The result is a platform file for `plan`, `simulate` and `run`, made to be read and edited. What
    is written to the levels meanwhile is removed.

    \b
    For example
      --level ram=ram,capacity=2GiB
      --level nvme=directory:DIR,capacity=100GiB,durability=fdatasync
      --level archive=hdf5:FILE.h5,codec=auto
    """  # noqa: D301  (the mark tells click to leave these lines as they are)
    if settings and model is None:
        raise BadInput("--set gives options to a model: give --model as well")
    with all_ranks() as team:
        check_alike(team, click.get_current_context().params)
        asked = [parse_level(text, here=Path.cwd()) for text in levels]
        models: dict[str, Callable[[], Any]] = {}
        if model is not None:
            models[identity(model, settings, ranks=team.size)] = maker(model, settings, team)
        quiet = as_json or team.rank > 0
        platform = measured(
            asked, models=models, sizes=sizes, repeats=repeats, quiet=quiet, team=team
        )
        if working_memory is not None:
            platform = replace(platform, working_memory=working_memory)
        team.once(lambda: write_text(output, platform.dumps()))
    if team.rank == 0:
        _tell(platform, output, as_json=as_json)


def _tell(platform: Platform, output: Path, /, *, as_json: bool) -> None:
    if as_json:
        rounds = lossy(platform)
        console.print_json(
            {"platform": str(output), "levels": [_figures(x, rounds) for x in platform.levels]}
        )
    else:
        show(platform)
        tell_written(output)


def measured(
    asked: Sequence[Level],
    /,
    *,
    models: Mapping[str, Callable[[], Any]],
    sizes: Sequence[int] = (),
    repeats: int = 5,
    quiet: bool = False,
    team: Team = ALONE,
) -> Platform:
    """The platform of the levels asked for, measured; nothing is left behind in their places.

    With many ranks, each access is one of all of them at once, and takes what the slowest takes.
    """
    from ckio.calibrate import calibrate

    Platform(tuple(asked))  # names must differ, before anything is opened
    bare = [_without_auto(level, models) for level in asked]
    clock = None if team.is_alone else MeetingsClock(team)
    bar = console.progress("calibrating", unit="probes", quiet=quiet)
    name = secrets.token_hex(4)
    run = f"calibrate-{name}" if team.is_alone else team.once(lambda: name)
    there = opened(bare, run, keep="nothing", team=team)
    with there as open_levels, bar as tick, blamed("measuring failed"):
        backends = [it if team.is_alone else Widest(it, team) for it in open_levels]
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
    """What codecs are chosen by, where any is to be: the model's last checkpoints, and its pace."""
    if all(level.options.get("codec") != AUTO for level in asked):
        return [], 0.0
    from ckio.calibrate.late import kept, late_checkpoints
    from ckio.calibrate.steps import pace, reach

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


def show(platform: Platform, /) -> None:
    """A table of the levels and one of the models, and what is to be known of the codecs."""
    sizes = [chain.restart for chain in platform.models.values()] or [1 << 20]
    header = ["level", "capacity", "stored"]
    for nbytes in sizes:
        header += [f"{access} {bytes_text(nbytes)}" for access in ("write", "read", "read cold")]
    rows = []
    for level in platform.levels:
        room = "never fills" if level.capacity is None else bytes_text(level.capacity)
        row = [f"{level.name} ({_made_of(level)})", room, f"{level.ratio:.0%}"]
        for nbytes in sizes:
            prices = (level.write, level.read, level.read_cold)
            row += ["" if cost is None else seconds_text(cost(nbytes)) for cost in prices]
        rows.append(row)
    console.print_table("levels, per checkpoint", header, rows)
    print_profiles(platform.levels, sizes[0])
    if platform.models:
        console.print_table(
            "models, per step",
            ["model", "advance", "record", "reverse", "restart data", "tape"],
            [
                [name]
                + [seconds_text(cost) for cost in (c.advance, c.record, c.reverse)]
                + [bytes_text(c.restart), bytes_text(c.tape)]
                for name, c in platform.models.items()
            ],
        )
    for level in platform.levels:
        if level.note:
            console.echo(f"level {level.name}: {level.note}")
    say_lossy(platform)


def _made_of(level: Level) -> str:
    """The words of a level that say how it keeps checkpoints."""
    words = (level.backend, level.options.get("durability"), level.options.get("codec"))
    return ", ".join(str(word) for word in words if word is not None)


def _figures(level: Level, rounds: Mapping[str, str]) -> dict[str, object]:
    costs = {
        access: asdict(cost)
        for access in ("write", "read", "read_cold", "discard")
        if (cost := getattr(level, access)) is not None
    }
    return {
        "name": level.name,
        "capacity": level.capacity,
        "durability": level.options.get("durability"),
        "codec": level.options.get("codec"),
        "lossless": level.name not in rounds,
        "ratio": level.ratio,
        "note": level.note,
        **costs,
    }
