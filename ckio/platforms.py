"""The machine a chain runs on: its storage levels and what it costs to reach them."""

import hashlib
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final, NoReturn

import tomli_w

from ckio.chain import COSTS, Chain, check_cost, is_whole
from ckio.errors import BadInput

FORMAT: Final = 1
"""The version of the TOML form; a newer one is refused."""

Option = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Affine:
    """Seconds to move or drop a checkpoint: `latency + per_byte * nbytes`."""

    latency: float = 0.0
    per_byte: float = 0.0

    def __post_init__(self) -> None:
        latency = check_cost("Affine: latency (seconds)", self.latency)
        per_byte = check_cost("Affine: per_byte (seconds per byte)", self.per_byte)
        object.__setattr__(self, "latency", latency)
        object.__setattr__(self, "per_byte", per_byte)

    def __call__(self, nbytes: int, /) -> float:
        return self.latency + self.per_byte * nbytes


FREE: Final = Affine()


@dataclass(frozen=True, kw_only=True)
class Level:
    """One storage level.

    Attributes
    ----------
    name : str
        What people call it; unique on its platform.
    capacity : int or None
        Payload bytes per rank that it may hold; None never fills.
    write, read, discard : Affine
        Seconds as a function of the bytes of a checkpoint, before compression.
    read_cold : Affine or None
        Reading what has left the page cache, where that was measured; `read` is then the hot read.
    backend, options
        How to open it: the name of an entry point in `ckio.backends` and its keyword arguments.
    channel : str
        Levels with the same channel share one transfer path; the level's own name if not given.
    ratio : float
        Stored bytes per payload byte (below 1 when calibrated with a codec).
    """

    name: str
    capacity: int | None = None
    write: Affine = FREE
    read: Affine = FREE
    discard: Affine = FREE
    read_cold: Affine | None = None
    backend: str = "ram"
    options: Mapping[str, Option] = field(default_factory=dict, hash=False)
    channel: str = ""
    ratio: float = 1.0

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", self.name):
            raise BadInput(f"level {self.name!r}: a name is letters, digits, '_', '-' and '.'")
        if self.capacity is not None and not (is_whole(self.capacity) and self.capacity >= 0):
            raise BadInput(
                f"level {self.name!r}: capacity = {self.capacity!r}; it must be a whole number of"
                " bytes >= 0 (leave it out for a level that never fills)"
            )
        if not (math.isfinite(self.ratio) and self.ratio > 0):
            raise BadInput(f"level {self.name!r}: ratio = {self.ratio}; it must be finite and > 0")
        object.__setattr__(self, "ratio", float(self.ratio))
        if self.capacity is not None:
            object.__setattr__(self, "capacity", int(self.capacity))
        if not self.channel:
            object.__setattr__(self, "channel", self.name)
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))

    def stored(self, nbytes: int, /) -> int:
        """Bytes that a checkpoint of `nbytes` takes of the capacity."""
        return nbytes if self.ratio == 1.0 else math.ceil(nbytes * self.ratio)

    def slots(self, nbytes: int, most: int, /) -> int:
        """How many checkpoints of `nbytes` fit, `most` at the most."""
        each = self.stored(nbytes)
        if self.capacity is None or each == 0:
            return most
        return min(most, self.capacity // each)


@dataclass(frozen=True)
class Platform:
    """The storage levels, nearest first, and the room for the tape.

    Attributes
    ----------
    levels : tuple of Level
        A level's number is its place here, from 0.
    working_memory : int or None
        Bytes that the tape register may hold; None is unlimited.
    models : mapping of str to Chain
        Measured costs of models on this machine, chains without a length, by the model's identity.
    """

    levels: tuple[Level, ...]
    working_memory: int | None = None
    models: Mapping[str, Chain] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))
        object.__setattr__(self, "models", MappingProxyType(dict(self.models)))
        seen: set[str] = set()
        for level in self.levels:
            if level.name in seen:
                raise BadInput(f"platform: two levels are named {level.name!r}; names must differ")
            seen.add(level.name)
        room = self.working_memory
        if room is not None and not (is_whole(room) and room >= 0):
            raise BadInput(
                f"platform: working_memory = {room!r}; it must be a whole number of bytes >= 0"
            )
        object.__setattr__(self, "working_memory", None if room is None else int(room))

    def number(self, name: str, /) -> int:
        """The number of the level called `name`."""
        for number, level in enumerate(self.levels):
            if level.name == name:
                return number
        known = ", ".join(level.name for level in self.levels) or "none"
        raise BadInput(f"no level is named {name!r}; this platform has: {known}")

    def tapes(self, chain: Chain, /) -> int:
        """How many steps' tape the register may hold, at most the length of the chain."""
        if self.working_memory is None or chain.tape == 0:
            return chain.length
        return min(chain.length, self.working_memory // chain.tape)

    def digest(self) -> str:
        """A short name for everything that a plan depends on: levels, capacities, costs."""
        return hashlib.sha256(tomli_w.dumps(_tables(self)).encode()).hexdigest()[:16]

    def dumps(self) -> str:
        """The TOML form, made to be read and edited."""
        tables = _tables(self)
        if self.models:
            tables["models"] = {
                name: {cost: getattr(chain, cost) for cost in COSTS}
                for name, chain in self.models.items()
            }
        return _HEADER + tomli_w.dumps(tables)

    @staticmethod
    def loads(text: str, /, *, source: str = "platform") -> "Platform":
        """Read either form: TOML, or paper 004's text (first data line a bare integer).

        `source` is named in errors, usually the file.
        """
        if is_paper_text(text):
            return Platform.from_hrevolve(text, source=source)
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise BadInput(f"{source}: not TOML: {error}") from None
        return _Reader(source).platform(data)

    @staticmethod
    def from_hrevolve(text: str, /, *, source: str = "platform") -> "Platform":
        """Read paper 004's text form: the number of levels K, then K lines `slots write read`.

        A checkpoint is one byte there, so that slots are bytes; the tape register holds one step.
        """
        lines = [
            (number, line)
            for number, raw in enumerate(text.splitlines(), 1)
            if (line := raw.split("#", 1)[0].strip())
        ]
        if not lines:
            raise BadInput(f"{source}: empty; the first line must be the number of levels")
        number, first = lines[0]
        if not re.fullmatch(r"\d+", first):
            raise BadInput(f"{source}, line {number}: {first!r} is not the number of levels")
        count, rows = int(first), lines[1:]
        if len(rows) != count:
            raise BadInput(
                f"{source}, line {rows[-1][0] if rows else number}: {count} levels announced,"
                f" {len(rows)} lines `slots write read` follow"
            )
        levels = tuple(_paper_level(place, row, source) for place, row in enumerate(rows))
        return Platform(levels, working_memory=1)


_HEADER = """\
# The storage of one machine, as ckio sees it. Edit freely: nothing else is kept.
# Seconds of one access = latency + per_byte * bytes of the checkpoint.
# Bytes are plain numbers or text like "64 MiB". A level without `capacity` never fills;
# without `working_memory` a tape of any length fits in memory.

"""


def _tables(platform: Platform) -> dict[str, Any]:
    """Everything that a plan depends on, as TOML's own types."""
    tables: dict[str, Any] = {"format": FORMAT}
    if platform.working_memory is not None:
        tables["working_memory"] = platform.working_memory
    tables["level"] = [_table(level) for level in platform.levels]
    return tables


def _table(level: Level) -> dict[str, Any]:
    table: dict[str, Any] = {"name": level.name}
    if level.capacity is not None:
        table["capacity"] = level.capacity
    table |= {"backend": level.backend, "channel": level.channel, "ratio": level.ratio}
    for access in ("write", "read", "read_cold", "discard"):
        cost = getattr(level, access)
        if cost is not None:
            table[access] = asdict(cost)
    if level.options:
        table["options"] = dict(level.options)
    return table


def is_paper_text(text: str, /) -> bool:
    """Whether a platform file is in paper 004's form: its first data line is a bare integer."""
    for line in text.splitlines():
        data = line.split("#", 1)[0].strip()
        if data:
            return bool(re.fullmatch(r"\d+", data))
    return False


def _paper_level(place: int, row: tuple[int, str], source: str) -> Level:
    number, line = row
    words = line.split()
    try:
        slots, (write, read) = int(words[0]), map(float, words[1:])
    except (ValueError, IndexError):
        raise BadInput(f"{source}, line {number}: {line!r} is not `slots write read`") from None
    try:
        return Level(
            name=f"level{place}",
            capacity=slots,
            write=Affine(latency=write),
            read=Affine(latency=read),
        )
    except BadInput as error:
        raise BadInput(f"{source}, line {number}: {error}") from None


_UNITS: Final = {"": 1, "B": 1} | {
    f"{prefix}{suffix}": base**power
    for suffix, base in (("iB", 1024), ("B", 1000))
    for power, prefix in enumerate("KMGTP", 1)
}
_UNITS["kB"] = 1000


def size(text: str, /) -> int:
    """Bytes from what a person writes: 4096, 64MiB, 2 GB, 1.5GiB."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if not match or match[2] not in _UNITS:
        raise BadInput(f"{text!r} is not a size; write bytes or e.g. 64MiB, 2GB, 1.5GiB")
    nbytes = (
        float(match[1]) * _UNITS[match[2]] if "." in match[1] else int(match[1]) * _UNITS[match[2]]
    )
    return int(nbytes)


class _Reader:
    """Turns parsed TOML into a Platform; names the file, the level and the entry that is wrong."""

    def __init__(self, source: str) -> None:
        self.source = source

    def fail(self, text: str) -> NoReturn:
        raise BadInput(f"{self.source}: {text}") from None

    def platform(self, data: dict[str, Any]) -> Platform:
        self.only(data, {"format", "working_memory", "level", "models"}, "the file")
        version = data.get("format", FORMAT)
        if version != FORMAT:
            self.fail(f"format = {version!r}; this ckio reads format {FORMAT}")
        entries = data.get("level", [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            self.fail("levels are written as [[level]] tables")
        models = data.get("models", {})
        if not isinstance(models, dict) or not all(
            isinstance(costs, dict) for costs in models.values()
        ):
            self.fail("model costs are written as [models.NAME] tables")
        levels = tuple(self.level(place, entry) for place, entry in enumerate(entries))
        try:
            return Platform(
                levels,
                self.bytes_of(data, "working_memory", "the file"),
                {name: self.model(name, costs) for name, costs in models.items()},
            )
        except BadInput as error:
            self.fail(str(error).removeprefix(f"{self.source}: "))

    def level(self, place: int, entry: dict[str, Any]) -> Level:
        where = f"level {entry.get('name', place)!r}"
        self.only(entry, {field.name for field in fields(Level)}, where)
        if not isinstance(entry.get("name"), str):
            self.fail(f"[[level]] number {place}: `name` is missing")
        known = dict(entry)
        for access in ("write", "read", "read_cold", "discard"):
            if access in known:
                known[access] = self.affine(known[access], f"{where}, {access}")
        known["capacity"] = self.bytes_of(entry, "capacity", where)
        for text in ("backend", "channel"):
            if not isinstance(known.get(text, ""), str):
                self.fail(f"{where}: {text} = {known[text]!r} is not text")
        if not isinstance(known.get("options", {}), dict):
            self.fail(f"{where}: options = {known['options']!r} is not a table")
        if not isinstance(known.get("ratio", 1.0), int | float):
            self.fail(f"{where}: ratio = {known['ratio']!r} is not a number")
        try:
            return Level(**known)
        except BadInput as error:
            self.fail(str(error))

    def affine(self, entry: object, where: str) -> Affine:
        if isinstance(entry, int | float) and not isinstance(entry, bool):
            entry = {"latency": entry}
        if not isinstance(entry, dict):
            self.fail(f"{where}: {entry!r} is not seconds, nor {{ latency = …, per_byte = … }}")
        self.only(entry, {"latency", "per_byte"}, where)
        try:
            return Affine(**entry)
        except BadInput as error:
            self.fail(f"{where}: {str(error).removeprefix('Affine: ')}")

    def model(self, name: str, costs: dict[str, Any]) -> Chain:
        where = f"models.{name}"
        self.only(costs, set(COSTS), where)
        missing = [cost for cost in COSTS if cost not in costs]
        if missing:
            self.fail(f"{where}: {', '.join(missing)} missing")
        try:
            return Chain(steps=None, **costs)
        except BadInput as error:
            self.fail(f"{where}: {str(error).removeprefix('Chain: ')}")

    def bytes_of(self, entry: dict[str, Any], name: str, where: str) -> int | None:
        value = entry.get(name)
        if isinstance(value, str):
            try:
                return size(value)
            except BadInput as error:
                self.fail(f"{where}: {name}: {error}")
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            self.fail(
                f'{where}: {name} = {value!r} is not a number of bytes, nor text like "64MiB"'
            )
        return value

    def only(self, entry: dict[str, Any], known: set[str], where: str) -> None:
        unknown = sorted(set(entry) - known)
        if unknown:
            self.fail(
                f"{where}: {unknown[0]!r} is not known here; known: {', '.join(sorted(known))}"
            )
