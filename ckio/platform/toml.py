"""Platforms as text: read and write TOML, and read H-Revolve's form."""

import hashlib
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from typing import Any, Final, NoReturn

import tomli_w

from ckio.actions import Kind
from ckio.errors import BadInput
from ckio.platform import Level, Platform, size
from ckio.platform.chain import ALL_COSTS, COSTS, SIZES, Chain
from ckio.platform.profile import (
    ACCESSES,
    PROFILE_COSTS,
    Affine,
    Profile,
)
from ckio.platform.readable import did_you_mean

_ENTRIES: Final = ("format", "working_memory", "overhead", "level", "models")

_FORMER: Final = ("drift", "spread", "advance_spread", "record_spread", "reverse_spread")
"""Entries of earlier versions for distributions of times; they are ignored."""

FORMAT: Final = 1
"""The version of the TOML form; a file with another version is refused."""

_HEADER: Final = """\
# The storage of one machine, as ckio uses it. You can edit this file; ckio stores nothing else.
# Seconds of one access = latency + per_byte * bytes of the checkpoint.
# Bytes are plain numbers or text like "64 MiB". A level without `capacity` never fills;
# without `working_memory` a tape of any length fits in memory.

"""


def dumps(platform: Platform, /) -> str:
    """Return a platform as TOML, which people can read and edit."""
    models = {name: _model(chain) for name, chain in platform.models.items()}
    return _HEADER + tomli_w.dumps(_tables(platform) | ({"models": models} if models else {}))


def _model(chain: Chain) -> dict[str, Any]:
    """Return the costs of a model as TOML's types."""
    handed = sorted(kind.name.lower() for kind in chain.handed)
    restarts = {"tape_restarts": True} if chain.tape_restarts else {}
    return chain.costs | ({"handed": handed} if handed else {}) | restarts


def digest(platform: Platform, /) -> str:
    """Return a short hash of everything on which a plan depends."""
    silent = replace(platform, levels=tuple(map(_silent, platform.levels)))
    return hashlib.sha256(tomli_w.dumps(_tables(silent)).encode()).hexdigest()[:16]


def _silent(level: Level) -> Level:
    """Return a level without its note, which does not affect a plan."""
    return replace(level, note="", profile=None if level.profile == Profile() else level.profile)


def _tables(platform: Platform) -> dict[str, Any]:
    """Return everything except the costs of models as TOML's types."""
    tables: dict[str, Any] = {"format": FORMAT}
    if platform.working_memory is not None:
        tables["working_memory"] = platform.working_memory
    if platform.overhead:
        tables["overhead"] = platform.overhead
    return tables | {"level": [_table(level) for level in platform.levels]}


def _table(level: Level) -> dict[str, Any]:
    table: dict[str, Any] = {"name": level.name}
    if level.capacity is not None:
        table["capacity"] = level.capacity
    if level.backend:
        table["backend"] = level.backend
    table |= {"channel": level.channel, "ratio": level.ratio}
    if level.read_only:
        table["read_only"] = True
    if level.note:
        table["note"] = level.note
    for access in ACCESSES:
        cost = getattr(level, access)
        if cost is not None:
            table[access] = asdict(cost)
    if level.options:
        table["options"] = dict(level.options)
    if level.profile is not None:
        table["profile"] = _profile(level.profile)
    return table


def _profile(profile: Profile) -> dict[str, Any]:
    costs = {name: asdict(cost) for name in PROFILE_COSTS if (cost := getattr(profile, name))}
    sizes = {name: getattr(profile, name) for name in ("cached", "dirty", "drained")}
    return costs | {name: value for name, value in sizes.items() if value is not None}


def loads(text: str, /, *, source: str) -> Platform:
    """Return the platform in a TOML text; raises BadInput with the source, level and entry."""
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5000 digits raises ValueError
        raise BadInput(f"{source}: not TOML: {str(error).partition(';')[0]}") from None
    return _PlatformReader(source).platform(data)


class _PlatformReader:
    """Converts parsed TOML into a Platform; errors name the file, the level and the entry."""

    def __init__(self, source: str) -> None:
        self.source = source

    def fail(self, text: str) -> NoReturn:
        raise BadInput(f"{self.source}: {text}") from None

    @contextmanager
    def within(self, where: str = "", but: str = "") -> Iterator[None]:
        """Add the file and the entry to an error; `but` is what its text begins with instead."""
        try:
            yield
        except BadInput as error:
            self.fail(f"{where and f'{where}: '}{str(error).removeprefix(but)}")

    def platform(self, data: Mapping[str, Any]) -> Platform:
        data = self.only(data, _ENTRIES, "the file")
        version = data.get("format", FORMAT)
        if type(version) is not int or version != FORMAT:
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
        memory = self.bytes_of(data, "working_memory", "the file")
        chains = {name: self.model(name, costs) for name, costs in models.items()}
        with self.within():
            return Platform(levels, memory, chains, data.get("overhead", 0.0))

    def level(self, place: int, entry: Mapping[str, Any]) -> Level:
        where = f"level {entry.get('name', place)!r}"
        self.only(entry, [field.name for field in fields(Level)], where)
        if "name" not in entry:
            self.fail(f"[[level]] number {place}: `name` is missing")
        known = dict(entry, capacity=self.bytes_of(entry, "capacity", where))
        for access in ACCESSES:
            if access in entry:
                known[access] = self.affine(entry[access], f"{where}, {access}")
        if "profile" in entry:
            known["profile"] = self.profile(entry["profile"], f"{where}, profile")
        with self.within():
            return Level(**known)

    def profile(self, entry: object, where: str) -> Profile:
        names = [field.name for field in fields(Profile)]
        known = self.only(self.table(entry, where), names, where)
        for name in ("cached", "dirty"):
            known[name] = self.bytes_of(known, name, where)
        for name in PROFILE_COSTS:
            if name in known:
                known[name] = self.affine(known[name], f"{where}, {name}")
        with self.within(where, but="profile: "):
            return Profile(**known)

    def table(self, entry: object, where: str) -> Mapping[str, Any]:
        if not isinstance(entry, dict):
            self.fail(f"{where}: {entry!r} is not a table")
        return entry

    def affine(self, entry: object, where: str) -> Affine:
        if isinstance(entry, int | float) and not isinstance(entry, bool):
            entry = {"latency": entry}
        if not isinstance(entry, dict):
            self.fail(
                f"{where}: {entry!r} is neither a number of seconds nor"
                " { latency = …, per_byte = … }"
            )
        self.only(entry, [field.name for field in fields(Affine)], where)
        with self.within(where, but="Affine: "):
            return Affine(**entry)

    def model(self, name: str, costs: Mapping[str, Any]) -> Chain:
        where = f"models.{name}"
        self.only(costs, [*ALL_COSTS, "handed", "tape_restarts"], where)
        missing = [cost for cost in COSTS if cost not in costs]
        if missing:
            self.fail(f"{where}: {', '.join(missing)} missing")
        sizes = {each: self.bytes_of(costs, each, where) for each in SIZES}
        seconds: dict[str, Any] = {name: costs[name] for name in ALL_COSTS if name in costs}
        handed = self.handed(costs, where)
        with self.within(where, but="Chain: "):
            restarts = costs.get("tape_restarts", False)
            return Chain(steps=None, handed=handed, tape_restarts=restarts, **seconds | sizes)

    def handed(self, costs: Mapping[str, Any], where: str) -> frozenset[Kind]:
        names = costs.get("handed", [])
        kinds = {kind.name.lower(): kind for kind in Kind}
        if not isinstance(names, list) or not all(str(name) in kinds for name in names):
            self.fail(f"{where}: handed = {names!r}; it is a list of {', '.join(kinds)}")
        return frozenset(kinds[name] for name in names)

    def bytes_of(self, entry: Mapping[str, Any], name: str, where: str) -> int | None:
        value = entry.get(name)
        if isinstance(value, str):
            with self.within(f"{where}: {name}"):
                return size(value)
        if value is not None and type(value) is not int:
            self.fail(
                f'{where}: {name} = {value!r} is not a number of bytes, nor text like "64MiB"'
            )
        return value

    def only(self, entry: Mapping[str, Any], known: Collection[str], where: str) -> dict[str, Any]:
        """Return the entries; raise BadInput for the first unknown one, with the most similar."""
        entries = {name: value for name, value in entry.items() if name not in _FORMER}
        for name in sorted(set(entries) - set(known)):
            self.fail(f"{where}: {name!r} is not known here; {did_you_mean(name, known)}")
        return entries


def loads_paper(text: str, /, *, source: str) -> Platform:
    """Return the platform in H-Revolve's text form (Herrmann & Pallez, 2020).

        2            # the number of levels K
        20  1   1    # K lines: slots, seconds to write, seconds to read
        500 5.5 5

    A checkpoint has one byte in this form, so that s slots are s bytes; the working memory holds
    the tape of one step. Raises BadInput with the source and the line.
    """
    lines = [
        (number, line)
        for number, raw in enumerate(text.splitlines(), 1)
        if (line := raw.split("#", 1)[0].strip())
    ]
    if not lines:
        raise BadInput(f"{source}: empty; the first line must be the number of levels")
    (number, first), *rows = lines
    if not re.fullmatch(r"[0-9]{1,9}", first):
        raise BadInput(f"{source}, line {number}: {first[:80]!r} is not the number of levels")
    if len(rows) != int(first):
        raise BadInput(
            f"{source}, line {lines[-1][0]}: {int(first)} levels announced,"
            f" {len(rows)} lines `slots write read` follow"
        )
    levels = [
        _paper_level(place, line, f"{source}, line {at}") for place, (at, line) in enumerate(rows)
    ]
    return Platform(tuple(levels), working_memory=1)


def _paper_level(place: int, line: str, where: str) -> Level:
    try:
        slots, write, read = line.split()
        costs = float(write), float(read)
    except ValueError:
        raise BadInput(f"{where}: {line[:80]!r} is not `slots write read`") from None
    if not re.fullmatch(r"[0-9]{1,18}", slots):
        raise BadInput(f"{where}: {slots[:80]!r} is not a number of slots, whole and >= 0")
    try:
        return Level(
            name=f"level{place}",
            capacity=int(slots),
            write=Affine(latency=costs[0]),
            read=Affine(latency=costs[1]),
        )
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None
