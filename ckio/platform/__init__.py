"""The machine on which a chain runs: its storage levels, and the costs of writing and reading."""

import math
import os
import re
from bisect import bisect_right
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Kind
from ckio.actions.checks import as_float, check_cost, check_line, is_whole
from ckio.errors import BadInput
from ckio.platform.chain import SIZES, Chain
from ckio.platform.profile import (
    ACCESSES,
    FREE,
    Affine,
    Profile,
)
from ckio.platform.readable import (
    bytes_text,
    counted,
    path_of,
    read_text,
    seconds_text,
    sheet_text,
)

__all__ = [
    "ACCESSES",
    "FREE",
    "Affine",
    "Level",
    "Option",
    "Platform",
    "copies",
    "is_paper_text",
    "memory_level",
    "platform_of",
    "size",
]

Option = str | int | float | bool


_MOST_RATIO: Final = 1000.0
"""Maximum of `Level.ratio`; a larger value is a mistake, because no codec is that bad."""

_NEAR: Final = ("ram", "device", "")
"""The backends in whose memory a model computes: that of the host, or of an accelerator. A plan
takes a first level without a backend for memory, too.
"""

_NAMES_OF_MEMORY: Final = ("ram", "memory")
_ARCHIVES: Final = (".h5", ".hdf5")


@dataclass(frozen=True, kw_only=True)
class Level:
    """One storage level of a platform.

    Attributes
    ----------
    name : str
        Name of the level; unique on its platform.
    capacity : int or None
        Maximum number of payload bytes per rank; None means no limit, and so do 2**63 or more. It
        may be given as text, such as "64GiB".
    write, read, discard : Affine
        Seconds of one access, as a function of the bytes of a checkpoint before compression.
    read_cold : Affine or None
        Seconds to read a checkpoint that is not in the page cache any more, if this was measured.
        Then `read` is the cost of a read from the page cache.
    backend : str
        Name of the entry point in `ckio.backends` that opens the level. By default it follows from
        the option `path`: "hdf5" for a file .h5 or .hdf5, else "directory". Without a path it is
        "ram" for a level that is called ram or memory. For any other level it is "": such a level
        is for plans and simulations, and cannot be opened.
    options : mapping of str to str, int, float or bool
        Keyword arguments for the backend.
    channel : str
        Levels with the same channel share one transfer path; the default is the level's own name.
    ratio : float
        Stored bytes per payload byte (below 1 if it was calibrated with a codec).
    note : str
        A remark for readers of the platform file; nothing depends on it.
    profile : Profile or None
        Further measurements of the level.
    read_only : bool
        Whether the level is read-only: its checkpoints can be read and discarded, but no new ones
        can be stored.
    """

    name: str
    capacity: int | None = None
    write: Affine = FREE
    read: Affine = FREE
    discard: Affine = FREE
    read_cold: Affine | None = None
    backend: str = ""
    options: Mapping[str, Option] = field(default_factory=dict, hash=False)
    channel: str = ""
    ratio: float = 1.0
    note: str = ""
    profile: Profile | None = None
    read_only: bool = False

    def __post_init__(self) -> None:
        where = f"level {self.name!r}"
        for text in ("name", "backend", "channel", "note"):
            if not isinstance(getattr(self, text), str):
                raise BadInput(f"{where}: {text} = {getattr(self, text)!r} is not text")
            check_line(f"{where}: {text}", getattr(self, text))
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", self.name):
            raise BadInput(f"{where}: a name is letters, digits, '_', '-' and '.'")
        for access in ACCESSES:
            cost = getattr(self, access)
            if not isinstance(cost, Affine) and (access, cost) != ("read_cold", None):
                raise BadInput(f"{where}: {access} = {cost!r} is not an Affine")
        if not isinstance(self.profile, Profile | None):
            raise BadInput(f"{where}: profile = {self.profile!r} is not a Profile")
        if not isinstance(self.read_only, bool):
            raise BadInput(f"{where}: read_only = {self.read_only!r} is neither true nor false")
        capacity, ratio = _bytes(self.capacity), as_float(self.ratio)
        if capacity is not None and not (is_whole(capacity) and capacity >= 0):
            raise BadInput(
                f"{where}: capacity = {capacity!r}; it must be a whole number of"
                " bytes >= 0, or text such as '64GiB' (leave it out for a level without a limit)"
            )
        if ratio is None or not 0 < ratio <= _MOST_RATIO:
            raise BadInput(
                f"{where}: ratio = {self.ratio!r}; it must be a number above 0, and"
                f" {_MOST_RATIO:g} at most"
            )
        object.__setattr__(self, "capacity", _limit(capacity))
        object.__setattr__(self, "ratio", ratio)
        object.__setattr__(self, "channel", self.channel or self.name)
        object.__setattr__(self, "options", _checked_options(self.options, where))
        object.__setattr__(self, "backend", self.backend or self._implied_backend())

    def _implied_backend(self) -> str:
        if (path := self.options.get("path")) is not None:
            return "hdf5" if str(path).endswith(_ARCHIVES) else "directory"
        return "ram" if self.name in _NAMES_OF_MEMORY else ""

    @property
    def made_of(self) -> str:
        """The backend, durability and codec of the level, as text."""
        backend = self.backend or "no backend"
        words = (backend, self.options.get("durability"), self.options.get("codec"))
        return ", ".join(str(word) for word in words if word is not None)

    def stored(self, nbytes: int, /) -> int:
        """Return the bytes of the capacity that a checkpoint of `nbytes` needs.

        This is `nbytes` times `ratio`, rounded up:

        >>> Level(name="nvme", ratio=0.4).stored(1001)
        401
        """
        return nbytes if self.ratio == 1.0 else math.ceil(nbytes * self.ratio)

    def stored_of(self, nbytes: NDArray[np.int64], /) -> NDArray[np.int64]:
        """Return `stored` of each element of an array."""
        return nbytes if self.ratio == 1.0 else np.ceil(nbytes * self.ratio).astype(np.int64)

    def slots(self, nbytes: int, most: int, /) -> int:
        """Return the number of checkpoints of `nbytes` that fit the level, but at most `most`."""
        if self.read_only:
            return 0
        each = self.stored(nbytes)
        if self.capacity is None or each == 0:
            return most
        return min(most, self.capacity // each)


def _bytes(given: object) -> Any:
    """Return a number of bytes that may be written as text; anything else as it is."""
    with suppress(BadInput):
        return size(given) if isinstance(given, str) else given
    return given


def _limit(nbytes: int | None) -> int | None:
    """Return a maximum of bytes as an int, or None if all checkpoints of any chain are below it.

    A platform file could not contain such a number, because its numbers have 64 bits.
    """
    return None if nbytes is None or nbytes >= 2**63 else int(nbytes)


def _checked_options(options: object, where: str) -> dict[str, Option]:
    """Return a copy; raises BadInput if one line of TOML cannot express an option."""
    if not isinstance(options, Mapping):
        raise BadInput(f"{where}: options = {options!r} is not a table")
    for name, value in options.items():
        if not isinstance(name, str) or not isinstance(value, Option):
            raise BadInput(
                f"{where}: option {name!r} = {value!r}; options are text, numbers, true or false"
            )
        check_line(f"{where}: the name of an option", name)
    return dict(options)


@dataclass(frozen=True)
class Platform:
    """The storage levels of a machine, fastest first, and its memory for the tape.

    Attributes
    ----------
    levels : tuple of Level
        The levels. The number of a level is its index here, from 0.
    working_memory : int or None
        Maximum bytes of tape in memory; None means no limit, and so do 2**63 or more. It may be
        given as text, such as "2GiB".
    models : mapping of str to Chain
        Measured costs of models on this machine, by the identity of the model. They are chains
        without a number of steps.
    overhead : float
        Additional seconds of each action if I/O overlaps with the program.
    """

    levels: tuple[Level, ...]
    working_memory: int | None = None
    models: Mapping[str, Chain] = field(default_factory=dict, hash=False)
    overhead: float = 0.0

    def __post_init__(self) -> None:
        overhead = check_cost("platform: overhead (seconds)", self.overhead)
        object.__setattr__(self, "overhead", overhead)
        if isinstance(self.levels, Level):
            raise BadInput("platform: levels is one Level; give a sequence: Platform((level,))")
        object.__setattr__(self, "levels", tuple(self.levels))
        if not all(isinstance(level, Level) for level in self.levels):
            raise BadInput(f"platform: levels = {self.levels!r:.80}; each must be a Level")
        object.__setattr__(self, "models", dict(self.models))
        for model in self.models:
            check_line("platform: the name of a model", model)
        names: set[str] = set()
        for level in self.levels:
            if level.name in names:
                raise BadInput(f"platform: two levels are named {level.name!r}; names must differ")
            names.add(level.name)
        memory = _bytes(self.working_memory)
        if memory is not None and not (is_whole(memory) and memory >= 0):
            raise BadInput(
                f"platform: working_memory = {memory!r}; it must be a whole number of bytes >= 0,"
                " or text such as '2GiB'"
            )
        object.__setattr__(self, "working_memory", _limit(memory))

    def number(self, name: str, /) -> int:
        """Return the number of the level called `name`; raises BadInput if there is none."""
        for number, level in enumerate(self.levels):
            if level.name == name:
                return number
        known = ", ".join(level.name for level in self.levels) or "none"
        raise BadInput(f"no level is named {name!r}; this platform has: {known}")

    def tapes(self, chain: Chain, /) -> int:
        """Return the number of steps whose tape fits the working memory.

        It is at most the length of the chain. If the tapes of steps differ, any group of this many
        successive steps fits. For example, 10 bytes of working memory hold the tapes of 3 steps of
        3 bytes:

        >>> chain = Chain(steps=8, advance=1, record=1, reverse=1, restart=1, tape=3, adjoint=1)
        >>> Platform((), working_memory=10).tapes(chain)
        3
        """
        memory = self.working_memory
        if memory is None or not (largest := chain.largest("tape")):
            return chain.length
        count = min(chain.length, memory // largest)
        if not chain.varies:
            return count
        steps = np.arange(chain.length + 1)
        more = range(count + 1, chain.length + 1)
        return count + bisect_right(
            more, memory, key=lambda many: chain.tape_bytes_of(steps[:-many], steps[many:]).max()
        )

    def __str__(self) -> str:
        memory = self.working_memory
        most = "any" if memory is None else bytes_text(memory)
        title = f"platform of {counted(len(self.levels), 'level')}, {most} working memory for tapes"
        header = ["level", "kept by", "capacity", "stored", "write", "read", "discard"]
        rows = [
            [
                level.name,
                level.made_of,
                "never fills" if level.capacity is None else bytes_text(level.capacity),
                f"{level.ratio:.0%}",
                *(_cost_text(cost) for cost in (level.write, level.read, level.discard)),
            ]
            for level in self.levels
        ]
        models = [
            f"costs of model {name!r}: {_brief(chain)}" for name, chain in self.models.items()
        ]
        notes = [f"level {level.name}: {level.note}" for level in self.levels if level.note]
        return sheet_text(title, header, rows, [*models, *notes])

    def digest(self) -> str:
        """Return a short hash of everything on which a plan depends: levels, capacities, costs."""
        from ckio.platform import toml  # imported here because it imports this module

        return toml.digest(self)

    @staticmethod
    def of(
        *,
        ram: int | str | None = None,
        disk: str | os.PathLike[str] | None = None,
        archive: str | os.PathLike[str] | None = None,
        ranks: int = 1,
    ) -> "Platform":
        """Return a platform of levels in words, whose costs are usual ones and not measured.

        Parameters
        ----------
        ram : int or str, optional
            Memory for checkpoints, in bytes or as "2GiB". If no level is given, it is half of the
            available memory.
        disk, archive : path, optional
            A directory for files of checkpoints, and an HDF5 file for checkpoints; with a capacity,
            as in "/scratch:200GiB". By default it is 90 % of what is free there.
        ranks : int
            The number of ranks that share the memory and the disks. Capacities that are given are
            those of one rank.

        Raises
        ------
        BadInput
            If a size or a path is none.
        """
        from ckio.platform import places  # imported here because it imports this module

        levels = places.levels_of(*places.words_of(ram, disk, archive), ranks=ranks)
        return Platform(places.within_what_is_free(levels, ranks))

    @staticmethod
    def load(path: str | os.PathLike[str], /) -> "Platform":
        """Return the platform in a file of `ckio calibrate`; raises BadInput."""
        return Platform.loads(read_text(path_of(path)), source=str(path))

    def dumps(self) -> str:
        """Return this platform as TOML, which people can read and edit."""
        from ckio.platform import toml

        return toml.dumps(self)

    @staticmethod
    def loads(text: str, /, *, source: str = "platform") -> "Platform":
        r"""Return the platform described by a text.

        The text is TOML, or in H-Revolve's text form (Herrmann & Pallez, 2020) if its first data
        line is a bare integer: the number of levels K, then K lines `slots write read`. A
        checkpoint has one byte in this form, so that a capacity of s slots is s bytes; the working
        memory holds the tape of one step. `source` is named in errors; usually it is the file name.
        Raises BadInput.

        >>> platform = Platform.loads("2\n20 1 1\n500 5.5 5")
        >>> platform.levels[1].capacity, platform.levels[1].write(1)
        (500, 5.5)
        """
        from ckio.platform import toml

        read = toml.loads_paper if is_paper_text(text) else toml.loads
        return read(text, source=source)


def _cost_text(cost: Affine) -> str:
    """Return a cost as latency and bandwidth.

    >>> _cost_text(Affine(0.0015, 1 / 2**30)), _cost_text(Affine(0.0, 0.0))
    ('1.5 ms + 1 GiB/s', '0 s')
    """
    if not cost.per_byte:
        return seconds_text(cost.latency)
    rate = f"{bytes_text(round(1 / cost.per_byte))}/s"
    return f"{seconds_text(cost.latency)} + {rate}" if cost.latency else rate


def _brief(chain: Chain) -> str:
    """Return the costs of a model in one line, or a remark if its steps differ."""
    if chain.varies:
        return "its steps differ"
    return ", ".join(
        f"{name} {bytes_text(cost) if name in SIZES else seconds_text(cost)}"
        for name, cost in chain.costs.items()
    )


def platform_of(
    given: "Platform | str | os.PathLike[str] | None",
    /,
    *,
    ram: int | str | None = None,
    disk: str | os.PathLike[str] | None = None,
    archive: str | os.PathLike[str] | None = None,
    ranks: int = 1,
) -> Platform | None:
    """Return the platform that a user gives to a front, or None if nothing is given.

    It is given as a Platform, as the path of its file, or by levels in words, as for `Platform.of`.
    In one process, the same words always give the same platform. Raises BadInput if both are given,
    or if one of them is invalid.
    """
    from ckio.platform import places  # imported here because it imports this module

    words = places.words_of(ram, disk, archive, platform=given)
    if isinstance(given, str | os.PathLike):
        return Platform.load(given)
    if words != places.Words():
        return places.usual_platform(places.levels_of(*words, ranks=ranks), ranks)
    if not isinstance(given, Platform | None):
        raise BadInput(f"platform = {given!r:.80}; it must be a Platform, or the path of its file")
    return given


def memory_level(platform: Platform, /) -> int | None:
    """Return the number of the level whose memory transfers use as buffers; None if there is none.

    It is level 0 if that is plain memory, of the host or of a device, without a codec.
    """
    first = platform.levels[0] if platform.levels else None
    plain = first is not None and first.backend in _NEAR and "codec" not in first.options
    return 0 if plain else None


def copies(chain: Chain, platform: Platform, number: int, kind: Kind, /) -> bool:
    """Return whether writing or reading a whole checkpoint on level `number` copies its bytes.

    There is no copy if the level is plain memory and the model passes this kind of checkpoint
    without a copy (`Chain.handed`). Memory with a checksum counts as a copy, because computing the
    checksum of all bytes takes as long.
    """
    memory = number == memory_level(platform)
    return not (
        memory and kind in chain.handed and not platform.levels[number].options.get("checksum")
    )


def is_paper_text(text: str, /) -> bool:
    """Return whether the text of a platform is in H-Revolve's form.

    In this form the first data line is a bare integer.
    """
    for line in text.splitlines():
        data = line.split("#", 1)[0].strip()
        if data:
            return bool(re.fullmatch(r"[0-9]+", data))
    return False


_BYTES: Final = {"": 1, "b": 1} | {
    f"{prefix}{suffix}": base**power
    for suffix, base in (("", 1024), ("ib", 1024), ("b", 1000))
    for power, prefix in enumerate("kmgtp", 1)
}
"""Bytes of each unit; the units are in lower case."""


def size(text: str, /) -> int:
    """Return the number of bytes of a size with a unit; raises BadInput if it is not a size.

    MB is 10**6 bytes, MiB is 2**20, and M alone means MiB, as in SLURM. The same holds for k, G, T
    and P. Upper and lower case mean the same.

    >>> size("4096"), size("8 mb"), size("8MiB"), size("8M"), size("1.5 GiB"), size("8e6")
    (4096, 8000000, 8388608, 8388608, 1610612736, 8000000)
    """
    match = re.fullmatch(
        r"\s*([0-9]{1,18}(?:\.[0-9]{1,18})?)(e\+?[0-9]{1,2})?\s*([a-z]*)\s*", text.lower(), re.ASCII
    )
    unit = _BYTES.get(match[3]) if match else None
    if match is not None and unit is not None:
        number = Decimal(match[1] + (match[2] or ""))
        is_whole_number = bool(match[2]) and number == number.to_integral_value()
        if unit > 1 or "." not in match[1] or is_whole_number:
            return int(number * unit)
    raise BadInput(
        f"{text[:80]!r} is not a size; write bytes or e.g. 64MiB, 2GB, 1.5GiB, 8M"
        " (MB is 10^6 bytes, MiB is 2^20, M alone is MiB)"
    )
