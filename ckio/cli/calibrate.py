"""`ckio calibrate`: measure this machine and write a platform file."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from ckio.cli import console
from ckio.cli.files import out, write_text
from ckio.cli.levels import opened, parse_level
from ckio.cli.models import Settings, blamed, identity, maker
from ckio.cli.options import json_option, settings_option, size_option
from ckio.errors import BadInput
from ckio.pictures.words import bytes_text, seconds_text
from ckio.platforms import Level, Platform


@click.command()
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
    help="the platform file",
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

    For example --level ram=ram,capacity=2GiB --level nvme=directory:DIR,capacity=100GiB
    --level archive=hdf5:FILE.h5,codec=zstd
    """
    if settings and model is None:
        raise BadInput("--set gives options to a model: give --model as well")
    asked = [parse_level(text, here=Path.cwd()) for text in levels]
    models = {} if model is None else {identity(model, settings): maker(model, settings)}
    platform = measured(asked, models=models, sizes=sizes, repeats=repeats, quiet=as_json)
    if working_memory is not None:
        platform = replace(platform, working_memory=working_memory)
    write_text(output, platform.dumps())
    if as_json:
        console.print_json(
            {"platform": str(output), "levels": [_figures(x) for x in platform.levels]}
        )
    else:
        show(platform)
        click.echo(f"written to {output}")


def measured(
    asked: Sequence[Level],
    /,
    *,
    models: Mapping[str, Callable[[], Any]],
    sizes: Sequence[int] = (),
    repeats: int = 5,
    quiet: bool = False,
) -> Platform:
    """The platform of the levels asked for, measured; nothing is left behind in their places."""
    from ckio.calibrate import calibrate

    names = [level.name for level in asked]
    Platform(tuple(asked))  # names must differ, before anything is opened
    bar = console.progress("calibrating", unit="probes", quiet=quiet)
    run = f"calibrate-{secrets.token_hex(4)}"
    with opened(asked, run, keep="nothing") as backends, bar as tick, blamed("measuring failed"):
        try:
            found = calibrate(
                dict(zip(names, backends, strict=True)),
                sizes,
                repeats=repeats,
                capacities={level.name: level.capacity for level in asked},
                models=models,
                progress=lambda what, total: tick(say=what, total=total),
            )
        except MemoryError:
            raise BadInput("measuring takes more memory than there is; try less bytes") from None
    levels = tuple(
        replace(cost, backend=level.backend, options=level.options, channel=level.channel)
        for level, cost in zip(asked, found.levels, strict=True)
    )
    return replace(found, levels=levels)


def show(platform: Platform, /) -> None:
    """A table of the levels and one of the models."""
    sizes = [chain.restart for chain in platform.models.values()] or [1 << 20]
    header = ["level", "capacity"]
    for nbytes in sizes:
        header += [f"{access} {bytes_text(nbytes)}" for access in ("write", "read", "read cold")]
    rows = []
    for level in platform.levels:
        room = "never fills" if level.capacity is None else bytes_text(level.capacity)
        row = [f"{level.name} ({level.backend})", room]
        for nbytes in sizes:
            prices = (level.write, level.read, level.read_cold)
            row += ["" if cost is None else seconds_text(cost(nbytes)) for cost in prices]
        rows.append(row)
    console.print_table("levels, per checkpoint", header, rows)
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


def _figures(level: Level) -> dict[str, object]:
    costs = {
        access: asdict(cost)
        for access in ("write", "read", "read_cold", "discard")
        if (cost := getattr(level, access)) is not None
    }
    return {"name": level.name, "capacity": level.capacity, "ratio": level.ratio, **costs}
