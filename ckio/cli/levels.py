"""Levels in words, as `--level` gives them, and a line for each that loses digits."""

import re
from pathlib import Path

from ckio.adapters.registry import lossy
from ckio.cli import console
from ckio.cli.options import typed
from ckio.errors import BadInput
from ckio.platform import Level, Option, Platform, size


def parse_level(text: str, /, *, here: Path) -> Level:
    """A level from `NAME=BACKEND[:PLACE][,option=value]...`; a relative PLACE is made absolute.

    `capacity` is a size; everything else is an option of the backend, or of its codec
    (`codec=zstd`, `codec_level=3`).
    """
    match = re.fullmatch(r"([^=,]+)=([^:,]+)(?::([^,]*))?((?:,.*)?)", text)
    if not match:
        raise BadInput(f"--level {text!r} is not NAME=BACKEND[:PLACE][,option=value]...")
    name, backend, where, rest = match.groups()
    given: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        option, equals, value = part.partition("=")
        if not equals:
            raise BadInput(f"--level {text!r}: {part!r} is not option=value")
        given[option] = value
    capacity, channel = given.pop("capacity", None), given.pop("channel", "")
    options: dict[str, Option] = {option: typed(value) for option, value in given.items()}
    if where:
        options = {"path": str((here / _home(where)).absolute()), **options}
    try:
        nbytes = None if capacity is None else size(capacity)
        return Level(name=name, backend=backend, capacity=nbytes, channel=channel, options=options)
    except BadInput as error:
        raise BadInput(f"--level {text!r}: {error}") from None


def say_lossy(platform: Platform, /) -> None:
    """A line for each level that does not give back the very bytes it got."""
    for name, codec in lossy(platform).items():
        console.echo(f"level {name}: LOSSY, by {codec}")


def _home(where: str) -> Path:
    """A shell leaves a ~ in the middle of a word as it is."""
    try:
        return Path(where).expanduser()
    except RuntimeError as error:
        raise BadInput(f"{where}: {error}") from None
