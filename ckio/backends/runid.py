"""The id of the run that the checkpoints on a level are of, as the files themselves say it.

The id is the name of the run, and behind an @ the digest of what it computes, so that a checkpoint
is never read for another model, other settings or other controls.
"""

import re
from dataclasses import dataclass
from typing import Final, Self

from ckio.errors import BadInput, ForeignLevel

NBYTES: Final = 64
"""Bytes that an id has in a file: UTF-8, then zeros."""


@dataclass(frozen=True, slots=True)
class RunId:
    """The id of a run; an empty one stands for no run in particular, which looks at all.

    Raises BadInput where files have no room for it.
    """

    text: str = ""

    def __post_init__(self) -> None:
        if "\0" in self.text or len(self.text.encode(errors="replace")) > NBYTES:
            raise BadInput(f"{self.text!r:.99} is no id of a run: it takes at most {NBYTES} bytes")
        try:
            self.text.encode()
        except UnicodeEncodeError:
            raise BadInput(f"{self.text!r} is no id of a run: it is not text") from None

    def __bool__(self) -> bool:
        return bool(self.text)

    def __str__(self) -> str:
        return f"run {self.name}" if self else "no run"

    @property
    def name(self) -> str:
        """Name of the run on its level, without the digest of what it computes."""
        return run_name(self.text)

    def pack(self) -> bytes:
        """Return its bytes in a file."""
        return self.text.encode().ljust(NBYTES, b"\0")

    @classmethod
    def unpack(cls, data: bytes, /) -> Self:
        """Read it; raises ValueError where it is none."""
        return cls(data.rstrip(b"\0").decode())

    def check(self, found: "RunId", where: str, /) -> None:
        """Raise ForeignLevel where what was found is not of this run."""
        if self and found.name == self.name and found != self:
            raise ForeignLevel(
                f"{where} holds checkpoints that {self} stored for another computation: its model,"
                " settings, controls or sizes were others; it is left as it is. Resume the run as"
                " it was begun, or begin a new one"
            )
        if self and found != self:
            raise ForeignLevel(
                f"{where} holds checkpoints of {found}, not of {self}: it was moved, copied or"
                f" restored to the wrong place, and is left as it is; bring back what {self}"
                " stored there, or move this away and go on without"
            )


_COMPUTES: Final = "@"


def run_name(text: str, /) -> str:
    """Return the name of the run whose id has this text.

    >>> run_name("0a1b2c3d@5e6f"), run_name("0a1b2c3d")
    ('0a1b2c3d', '0a1b2c3d')
    """
    return text.partition(_COMPUTES)[0]


def computing(run: str, identity: str, /) -> str:
    """Return the id of a run whose checkpoints are of the computation with this digest."""
    return f"{run}{_COMPUTES}{identity}" if run and identity else run


_OF_RANK: Final = re.compile(r"([0-9a-f]{8})-([0-9]{1,7})")


def of_rank(run: str, rank: int, /) -> str:
    """Return the name of a run of many ranks on the levels of one of them."""
    return f"{run}-{rank}"


def rank_of(run: str, /) -> tuple[str, int | None]:
    """Return the name of a run, and the rank whose part of it that is, if it has many.

    >>> rank_of("0a1b2c3d-7"), rank_of("0a1b2c3d")
    (('0a1b2c3d', 7), ('0a1b2c3d', None))
    """
    match = _OF_RANK.fullmatch(run)
    return (match[1], int(match[2])) if match else (run, None)


NOBODY: Final = RunId()
"""No run in particular."""
