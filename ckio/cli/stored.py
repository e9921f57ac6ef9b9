"""What lies on a level as commands list it: checkpoints in words and in figures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ckio.actions import Kind, Layout
from ckio.backends import contents
from ckio.backends.contents import Damaged, Stored
from ckio.backends.encoded import unmark
from ckio.errors import BadInput, CorruptCheckpoint, StorageError
from ckio.layout import nbytes_of
from ckio.places import Holding, expected, is_run_directory
from ckio.spelling import shown

__all__ = [
    "KINDS",
    "Checkpoint",
    "Listing",
    "age",
    "age_text",
    "counted",
    "listing",
    "looked_for",
    "shown",
    "verified",
]

KINDS: Final = {Kind.RESTART: "restart data", Kind.TAPE: "tape", Kind.ADJOINT: "adjoint"}
_ORDER: Final = list(KINDS)

_NAMED: Final = 4
"""As many places of a run as are named in a line; each rank may have its own."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint, and what it was before it was compressed.

    Attributes
    ----------
    stored : Stored
    layout : Layout
        That of the checkpoint itself.
    codec : str
        What it is compressed with; "" if it is not.
    lossless : bool
        Whether what is read is bitwise what was written.
    sound : bool or None
        Whether its bytes match their checksum; None where that was not asked, or there is none.
    """

    stored: Stored
    layout: Layout
    codec: str = ""
    lossless: bool = True
    sound: bool | None = None

    @property
    def original(self) -> int:
        """Bytes of the checkpoint itself."""
        return nbytes_of(self.layout)


@dataclass(frozen=True, slots=True)
class Listing:
    """What one run keeps on one level, as it was found."""

    holding: Holding
    in_use: bool
    checkpoints: Sequence[Checkpoint]
    damaged: Sequence[Damaged]

    @property
    def nbytes(self) -> int:
        """Bytes of all checkpoints, as stored."""
        return sum(checkpoint.stored.nbytes for checkpoint in self.checkpoints)


def listing(holding: Holding, /) -> Listing:
    """List what a run keeps; raises BadInput where that cannot be told."""
    in_use = holding.in_use()
    try:
        found = holding.contents()
    except StorageError as error:
        found = [
            Damaged(
                path=holding.path, offset=0, nbytes=holding.path.lstat().st_size, what=str(error)
            )
        ]
    damaged = [entry for entry in found if isinstance(entry, Damaged)]
    checkpoints = []
    for stored in sorted((e for e in found if isinstance(e, Stored)), key=_place):
        try:
            checkpoints.append(_checkpoint(stored))
        except CorruptCheckpoint as error:
            damaged.append(_damage(stored, str(error)))
    return Listing(holding, in_use, checkpoints, damaged)


def verified(found: Listing, /, tick: Callable[[int], None]) -> Listing:
    """Read and check everything that a listing names; `tick` is told of the bytes that were read.

    What a run has discarded meanwhile is no longer in the listing.
    """
    checked, failed = [], {}
    for checkpoint in found.checkpoints:
        stored = checkpoint.stored
        try:
            sound = contents.sound(stored)
            what = "its bytes fail their checksum"
        except OSError as error:
            sound, what = False, f"it cannot be read: {error.strerror}"
        if sound is False:
            failed[stored] = _damage(stored, what)
        checked.append(replace(checkpoint, sound=sound))
        tick(stored.nbytes)
    there = _still(found.holding) if failed else set()
    return replace(
        found,
        checkpoints=[
            entry for entry in checked if entry.sound is not False or entry.stored in there
        ],
        damaged=[*found.damaged, *(failed[stored] for stored in failed if stored in there)],
    )


def _still(holding: Holding) -> set[Stored]:
    try:
        return {found for found in holding.contents() if isinstance(found, Stored)}
    except BadInput:  # the run has ended, and its files are gone
        return set()


def _damage(stored: Stored, what: str) -> Damaged:
    offset = stored.spans[0][0] if stored.spans else 0
    text = f"{stored.key}: {what}"
    return Damaged(path=stored.path, offset=offset, nbytes=stored.nbytes, what=text)


def _place(stored: Stored) -> tuple[int, int, str]:
    return _ORDER.index(stored.key.kind), stored.key.step, stored.key.name


def _checkpoint(stored: Stored) -> Checkpoint:
    """What was stored, read from its layout; raises CorruptCheckpoint where that makes no sense."""
    encoding = unmark(stored.layout)
    if encoding is None:
        return Checkpoint(stored, stored.layout)
    return Checkpoint(stored, encoding.layout, encoding.codec, encoding.lossless)


def age(written: float, now: float, /) -> float:
    """Seconds since then; nothing is younger than 0, though a clock may be set back."""
    return max(0.0, now - written)


def age_text(seconds: float, /) -> str:
    """A time span in one unit.

    >>> age_text(0.2), age_text(90), age_text(7200), age_text(200000), age_text(1e6)
    ('0 s', '90 s', '120 min', '56 h', '12 days')
    """
    for unit, name, most in ((1, "s", 120), (60, "min", 180), (3600, "h", 96)):
        if seconds < most * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86400:.0f} days"


def looked_for(place: Path, /) -> str:
    """Where a run has its levels, to be added to what is said of it; "" of other places."""
    found = expected(place) if is_run_directory(place) else []
    there = [shown(holding.path.absolute()) for holding in found]
    first = ", ".join(there[:_NAMED]) + ", ..." * (len(there) > _NAMED)
    return f" (looked for in {first})" if there else ""


def counted(count: int, what: str, /) -> str:
    """So many of them.

    >>> counted(1, "checkpoint"), counted(2, "checkpoint")
    ('1 checkpoint', '2 checkpoints')
    """
    return f"{count} {what}{'' if count == 1 else 's'}"
