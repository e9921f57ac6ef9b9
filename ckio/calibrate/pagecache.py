"""What the operating system keeps of files, and how much it takes before it has to write."""

from pathlib import Path
from typing import Final

import numpy as np

from ckio.platform.memory import available

_PAGE: Final = 4096
_ROOM: Final = 0.5
"""Of the memory that is available, the most that is touched."""


def dirty_limit(root: Path = Path("/")) -> int | None:
    """Bytes that may wait to be written before whoever writes has to wait; None: not known.

    `root` is where /proc is.
    """
    given, ratio = (_number(root / f"proc/sys/vm/dirty_{what}") for what in ("bytes", "ratio"))
    if given:
        return given
    free = available(root)
    return None if ratio is None or free is None else free * ratio // 100


def touch(nbytes: int, /) -> None:
    """Use so much memory once, as far as it is there.

    A virtual machine gets memory from its host when it is first used, and that takes far longer
    than to use it again: what is measured next is what it takes from then on.
    """
    free = available()
    if free is not None:
        nbytes = min(nbytes, int(_ROOM * free))
    np.empty(nbytes, np.uint8)[::_PAGE] = 1


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
