"""Pictures and other files that are not text, as commands write them."""

import os
from pathlib import Path
from typing import Final

from ckio.cli.files import write_text
from ckio.errors import BadInput
from ckio.pictures.png import needs, png
from ckio.rundir import write_whole

_SUFFIXES: Final = (".svg", ".png")


def check_picture(path: Path, /) -> None:
    """Refuse, before any work is done, what `write_picture` could not write."""
    if path.suffix not in _SUFFIXES:
        raise BadInput(f"{path}: pictures are written as {' and '.join(_SUFFIXES)}")
    if path.suffix == ".png":
        needs()


def write_picture(path: Path, svg: str, /) -> None:
    """Write the text of an SVG file as what the path's suffix says; whole or not at all."""
    if path.suffix == ".png":
        write_bytes(path, png(svg))
    else:
        write_text(path, svg)


def write_bytes(path: Path, data: bytes, /) -> None:
    """Write a file whole or not at all; a device or a pipe gets the bytes as they come."""
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
        else:
            write_whole(Path(os.path.realpath(path)), data)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {error.strerror}") from None
