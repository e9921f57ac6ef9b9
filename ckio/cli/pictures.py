"""Pictures, as commands write them."""

from pathlib import Path
from typing import Final

from ckio.cli.files import STDOUT, write_bytes, write_text
from ckio.errors import BadInput
from ckio.report.pictures.svg import check_png, png

_SUFFIXES: Final = (".svg", ".png")


def check_picture(path: Path, /) -> None:
    """Refuse, before any work is done, what `write_picture` could not write."""
    if path == STDOUT:
        raise BadInput("a picture on stdout has no name that says what it is; name a file")
    if path.suffix not in _SUFFIXES:
        raise BadInput(f"{path}: pictures are written as {' and '.join(_SUFFIXES)}")
    if path.suffix == ".png":
        check_png()


def write_picture(path: Path, svg: str, /) -> None:
    """Write the text of an SVG file as what the path's suffix says; whole or not at all."""
    if path.suffix == ".png":
        write_bytes(path, png(svg))
    else:
        write_text(path, svg)
