"""The id of a run, which the files of a level contain.

The id consists of the name of the run, an @, and a digest of its model, settings and controls.
Therefore a checkpoint is never read for another model, other settings or other controls.
"""

import re
from dataclasses import dataclass
from typing import Final, Self

from ckio.errors import BadInput, ForeignLevel

NBYTES: Final = 64
"""Bytes of an id in a file: UTF-8, then zeros."""


@dataclass(frozen=True, slots=True)
class RunId:
    """The id of a run. The empty id means no particular run; it agrees with every id.

    Raises BadInput if the id has more than 64 bytes in UTF-8.
    """

    text: str = ""

    def __post_init__(self) -> None:
        if "\0" in self.text or len(self.text.encode(errors="replace")) > NBYTES:
            raise BadInput(
                f"{self.text!r:.99} is no id of a run: it must have at most {NBYTES} bytes"
            )
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
        """The name of the run, without the digest."""
        return run_name(self.text)

    def pack(self) -> bytes:
        """Return the bytes of this id in a file."""
        return self.text.encode().ljust(NBYTES, b"\0")

    @classmethod
    def unpack(cls, data: bytes, /) -> Self:
        """Return the id with these bytes; raises ValueError if they are not UTF-8."""
        return cls(data.rstrip(b"\0").decode())

    def check(self, found: "RunId", where: str, /) -> None:
        """Raise ForeignLevel if the id in the files at `where`, `found`, is not of this run."""
        if self and found.name == self.name and found != self:
            raise ForeignLevel(
                f"{where} holds checkpoints that {self} stored for another computation: the model,"
                " settings, controls or sizes were different. The files stay unchanged. Resume the"
                " run with its original model and settings, or begin a new run"
            )
        if self and found != self:
            raise ForeignLevel(
                f"{where} holds checkpoints of {found}, not of {self}: they were moved, copied or"
                f" restored to a wrong path. The files stay unchanged. Restore the files of {self}"
                " there, or move these files away and continue without them"
            )


_COMPUTES: Final = "@"


def run_name(text: str, /) -> str:
    """Return the name of the run whose id has this text.

    >>> run_name("0a1b2c3d@5e6f"), run_name("0a1b2c3d")
    ('0a1b2c3d', '0a1b2c3d')
    """
    return text.partition(_COMPUTES)[0]


def computing(run: str, identity: str, /) -> str:
    """Return the id of a run with this name and this digest of model, settings and controls.

    >>> computing("0a1b2c3d", "5e6f"), computing("0a1b2c3d", ""), computing("", "5e6f")
    ('0a1b2c3d@5e6f', '0a1b2c3d', '')
    """
    return f"{run}{_COMPUTES}{identity}" if run and identity else run


_OF_RANK: Final = re.compile(r"([0-9a-f]{8})-([0-9]{1,7})")


def of_rank(run: str, rank: int, /) -> str:
    """Return the name that a parallel run has on the levels of one rank."""
    return f"{run}-{rank}"


def rank_of(run: str, /) -> tuple[str, int | None]:
    """Return the name of a run, and the rank if this is the part of one rank, else None.

    >>> rank_of("0a1b2c3d-7"), rank_of("0a1b2c3d")
    (('0a1b2c3d', 7), ('0a1b2c3d', None))
    """
    match = _OF_RANK.fullmatch(run)
    return (match[1], int(match[2])) if match else (run, None)


NOBODY: Final = RunId()
"""The id of no particular run."""
