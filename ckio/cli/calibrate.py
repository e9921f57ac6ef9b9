"""`ckio calibrate`: measure this machine and write a platform file."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import click

from ckio.adapters.registry import AUTO, find, lossy, names, options_of
from ckio.cli import console
from ckio.cli.files import out, tell_written, write_text
from ckio.cli.launch import all_ranks, check_alike
from ckio.cli.levels import parse_level, say_lossy
from ckio.cli.options import json_option, settings_option, size_option
from ckio.cli.profiles import print_profiles
from ckio.errors import BadInput
from ckio.jobs.models import Settings, identity, maker, measured
from ckio.platform import Level, Platform
from ckio.platform.readable import bytes_text, seconds_text

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
            ("Models, with their options (--set); or MODULE:ATTRIBUTE, FILE.py:ATTRIBUTE", models),
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
        platform = measured(
            asked,
            models=models,
            sizes=sizes,
            repeats=repeats,
            display=console.display(quiet=as_json, rank=team.rank),
            team=team,
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


def show(platform: Platform, /) -> None:
    """A table of the levels and one of the models, and what is to be known of the codecs."""
    sizes = [chain.restart for chain in platform.models.values()] or [1 << 20]
    header = ["level", "capacity", "stored"]
    for nbytes in sizes:
        header += [f"{access} {bytes_text(nbytes)}" for access in ("write", "read", "read cold")]
    rows = []
    for level in platform.levels:
        room = "never fills" if level.capacity is None else bytes_text(level.capacity)
        row = [f"{level.name} ({level.made_of})", room, f"{level.ratio:.0%}"]
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
