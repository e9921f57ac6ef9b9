"""The command `ckio calibrate`: measure this machine, and write a platform file."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from ckio.adapters.registry import AUTO, find, lossy, names, options_of
from ckio.cli import console
from ckio.cli.files import out, print_written, write_file
from ckio.cli.options import (
    duration_option,
    json_option,
    settings_option,
    with_example,
)
from ckio.errors import BadInput
from ckio.jobs.directory import all_ranks, check_alike
from ckio.jobs.models import Settings, factory_of, identity, maker, measured, settings_of_costs
from ckio.platform import Level, Option, Platform, size
from ckio.platform.readable import bytes_text, path_of, seconds_text, typed

DURABILITIES: Final = {
    "process": "Checkpoints survive if the process is killed. This is the default.",
    "fdatasync": "Checkpoints also survive if the machine fails.",
    "direct": "As fdatasync, and checkpoints are transferred without the page cache.",
}


def _installed() -> dict[str, list[tuple[str, str]]]:
    """Return the lists of installed backends, codecs and models for the end of the help text."""
    auto = (
        AUTO,
        "The lossless codec that saves the most time here, or none. It is measured; give --model.",
    )
    codecs = [_explained("codecs", name, prefix="codec_") for name in names("codecs")]
    return {
        "Backends of levels, with their options": [
            _explained("backends", name) for name in names("backends")
        ],
        "Durability of backends that write files (durability=NAME)": [*DURABILITIES.items()],
        "Codecs, with their options (codec=NAME)": [*codecs, auto],
        "Models, with their options (--set); or FILE.py:ATTRIBUTE, MODULE:ATTRIBUTE": [
            _explained("models", name) for name in names("models")
        ],
    }


def _explained(group: str, name: str, *, prefix: str = "") -> tuple[str, str]:
    """Return the name, and the first line of the documentation of what is registered by it."""
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


@with_example(
    "ckio calibrate --model burgers --level ram=ram,capacity=16KiB \\\n"
    "    --level disk=directory:scratch,capacity=64KiB",
    sections=_installed,
)
@click.option(
    "--level", "levels", multiple=True, required=True, metavar="LEVEL",
    help="Storage level, as NAME=BACKEND[:PLACE][,option=value]... Give one for each level, the"
    " nearest (fastest) first. PLACE is the directory or file in which the level stores"
    " checkpoints (its option `path`).",
)  # fmt: skip
@click.option(
    "--model", "model", metavar="MODEL", help="Model whose time steps are measured as well."
)
@settings_option
@click.option(
    "--repeats", type=click.IntRange(1), default=5, show_default=True, metavar="N",
    help="Number of measurements; fewer if they take more than a few seconds.",
)  # fmt: skip
@duration_option(
    "--for", "seconds",
    help="Measure repeatedly over this time, e.g. 10m, to include slow changes of the machine."
    "  [default: measure once]",
)  # fmt: skip
@out(
    "-o", "--output", default=Path("platform.toml"), show_default=True,
    help="Write the platform file here; - is stdout.",
)  # fmt: skip
@json_option
def command(
    *,
    levels: tuple[str, ...],
    model: str | None,
    settings: Settings,
    repeats: int,
    seconds: float | None,
    output: Path,
    as_json: bool,
) -> None:
    """Measure the speed of the storage levels, and the time and size of a model's time steps.

    Use it first on each machine. On each level, checkpoints of several sizes are written, read and
    discarded. The result is a platform file for `ckio plan`, `simulate` and `run`: text that you
    can read and edit. The test checkpoints are removed.

    \b
    Each level is given by one option, for example:
      --level ram=ram,capacity=2GiB
      --level nvme=directory:DIR,capacity=100GiB,durability=fdatasync
      --level archive=hdf5:FILE.h5,codec=auto
    """  # noqa: D301  (the mark tells click to leave these lines as they are)
    if settings and model is None:
        raise BadInput("--set sets options of a model; give --model as well")
    with all_ranks() as ranks:
        check_alike(ranks, click.get_current_context().params)
        asked = [parse_level(text, here=Path.cwd()) for text in levels]
        models: dict[str, Callable[[], Any]] = {}
        if model is not None:
            priced = settings_of_costs(factory_of(model), settings)
            models[identity(model, priced, ranks=ranks.size)] = maker(model, settings, ranks)
        platform = measured(
            asked,
            models=models,
            repeats=repeats,
            seconds=seconds or 0.0,
            display=console.display(quiet=as_json, rank=ranks.rank),
            ranks=ranks,
        )
        ranks.once(lambda: write_file(output, platform.dumps()))
    if ranks.rank == 0:
        _tell(platform, output, as_json=as_json)


def parse_level(text: str, /, *, here: Path) -> Level:
    """Return the level that `NAME=BACKEND[:PLACE][,option=value]...` describes.

    A relative PLACE is relative to the directory `here`. The option `capacity` is a size; all other
    options are those of the backend, or of its codec (`codec=zstd`, `codec_level=3`). Raises
    BadInput if the text has another form.
    """
    match = re.fullmatch(r"([^=,]+)=([^:,]+)(?::([^,]*))?((?:,.*)?)", text)
    if not match:
        raise BadInput(
            f"--level {text!r} is not NAME=BACKEND[:PLACE][,option=value]..., e.g. ram=ram"
        )
    name, backend, where, rest = match.groups()
    given: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        name_of_option, equals, value = part.partition("=")
        if not equals:
            raise BadInput(f"--level {text!r}: {part!r} is not option=value, e.g. capacity=2GiB")
        given[name_of_option] = value
    capacity, channel = given.pop("capacity", None), given.pop("channel", "")
    options: dict[str, Option] = {each: typed(value) for each, value in given.items()}
    if where:
        options = {"path": str((here / path_of(where)).absolute()), **options}
    try:
        nbytes = None if capacity is None else size(capacity)
        return Level(name=name, backend=backend, capacity=nbytes, channel=channel, options=options)
    except BadInput as error:
        raise BadInput(f"--level {text!r}: {error}") from None


def _tell(platform: Platform, output: Path, /, *, as_json: bool) -> None:
    if as_json:
        rounds = lossy(platform)
        console.print_json(
            {"platform": str(output), "levels": [_figures(x, rounds) for x in platform.levels]}
        )
    else:
        show(platform)
        print_written(output)


def show(platform: Platform, /) -> None:
    """Print a table of the levels, a table of the models, and the notes on codecs."""
    size = next((chain.restart for chain in platform.models.values()), 1 << 20)
    header = ["level", "access", "latency", "GB/s", bytes_text(size), "capacity", "stored"]
    rows = [row for level in platform.levels for row in _price_rows(level, size)]
    title = f"storage levels, and the time to transfer one checkpoint of {bytes_text(size)}"
    console.print_table(title, header, rows)
    if platform.models:
        console.print_table(
            "models, seconds per step and bytes per checkpoint",
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
            click.echo(f"level {level.name}: {level.note}")
    console.print_lossy(lossy(platform))


def _price_rows(level: Level, nbytes: int) -> list[list[str]]:
    """Return a row for each access to a level: latency, bandwidth, time for one checkpoint."""
    capacity = "unlimited" if level.capacity is None else bytes_text(level.capacity)
    first = [f"{level.name} ({level.made_of})", capacity, f"{level.ratio:.0%}"]
    rows = list[list[str]]()
    accesses = {"write": level.write, "read": level.read, "read cold": level.read_cold}
    for access, cost in accesses.items():
        if cost is None:
            continue
        name, *last = first if not rows else ["", "", ""]
        speed = f"{1e-9 / cost.per_byte:.3g}" if cost.per_byte > 0 else ""
        seconds = seconds_text(cost(nbytes))
        rows.append([name, access, seconds_text(cost.latency), speed, seconds, *last])
    return rows


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
