"""`ckio calibrate`: measure this machine and write a platform file."""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from ckio.backends.base import Backend
from ckio.cli import console
from ckio.cli.options import FILE, SETTING, SIZE, identity, maker, parse_level, write_text
from ckio.errors import BadInput
from ckio.platforms import Level, Option, Platform
from ckio.registry import close, open_level


@click.command(short_help="Measure this machine's storage levels and a model's steps.")
@click.option(
    "--level", "levels", multiple=True, required=True, metavar="LEVEL",
    help="nearest first: NAME=BACKEND[:PLACE][,option=value]...",
)  # fmt: skip
@click.option("--working-memory", type=SIZE, help="bytes for the tape; default: one step's tape")
@click.option("--model", "model", metavar="MODEL", help="a model to measure as well")
@click.option("--set", "settings", type=SETTING, multiple=True, help="option of the model")
@click.option("--size", "sizes", type=SIZE, multiple=True, help="bytes of a checkpoint to try")
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True, help="passes")
@click.option("-o", "--output", type=FILE, default=Path("platform.toml"), show_default=True)
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def command(
    *,
    levels: tuple[str, ...],
    working_memory: int | None,
    model: str | None,
    settings: tuple[tuple[str, Option], ...],
    sizes: tuple[int, ...],
    repeats: int,
    output: Path,
    as_json: bool,
) -> None:
    """Measure writing, reading and discarding on each level, at several sizes, and a model's steps.

    The result is a platform file for `plan`, `simulate` and `run`, made to be read and edited.
    """
    asked = [parse_level(text, here=Path.cwd()) for text in levels]
    models = (
        {} if model is None else {identity(model, dict(settings)): maker(model, dict(settings))}
    )
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

    bar = console.progress("calibrating", unit="probes", quiet=quiet)
    with open_for_probes(asked) as backends, bar as tick:
        found = calibrate(
            backends,
            sizes,
            repeats=repeats,
            capacities={level.name: level.capacity for level in asked},
            models=models,
            progress=lambda what, total: tick(say=what, total=total),
        )
    levels = tuple(
        replace(cost, backend=level.backend, options=level.options, channel=level.channel)
        for level, cost in zip(asked, found.levels, strict=True)
    )
    return replace(found, levels=levels)


@contextmanager
def open_for_probes(asked: Sequence[Level], /) -> Iterator[dict[str, Backend]]:
    """Open levels in places of their own beside where runs will keep theirs; removed afterwards."""
    run = f"calibrate-{secrets.token_hex(4)}"
    with ExitStack() as stack:
        backends = {}
        for level in asked:
            if level.name in backends:
                raise BadInput(f"two levels are named {level.name!r}; names must differ")
            stack.enter_context(_no_new_folders(level))
            backends[level.name] = open_level(level, run=run)
            stack.callback(close, backends[level.name], remove=True)
        yield backends


@contextmanager
def _no_new_folders(level: Level) -> Iterator[None]:
    """Remove the folders above a level's files that were not there before."""
    place = level.options.get("path")
    above = [] if place is None else [Path(str(place)), *Path(str(place)).parents]
    new = [folder for folder in above if not folder.exists()]
    try:
        yield
    finally:
        for folder in new:
            with suppress(OSError):
                folder.rmdir()


def show(platform: Platform, /) -> None:
    """A table of the levels and one of the models."""
    sizes = [chain.restart for chain in platform.models.values()] or [1 << 20]
    header = ["level", "capacity"]
    for nbytes in sizes:
        header += [f"{access} {console.nbytes(nbytes)}" for access in ("write", "read", "cold")]
    rows = []
    for level in platform.levels:
        room = "never fills" if level.capacity is None else console.nbytes(level.capacity)
        row = [f"{level.name} ({level.backend})", room]
        for nbytes in sizes:
            prices = (level.write, level.read, level.read_cold)
            row += ["" if cost is None else console.seconds(cost(nbytes)) for cost in prices]
        rows.append(row)
    console.print_table("storage levels", header, rows)
    if platform.models:
        console.print_table(
            "models, per step",
            ["model", "advance", "record", "reverse", "restart", "tape"],
            [
                [name]
                + [console.seconds(cost) for cost in (c.advance, c.record, c.reverse)]
                + [console.nbytes(c.restart), console.nbytes(c.tape)]
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
