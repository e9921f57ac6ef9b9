"""Platforms as text: TOML, there and back, and H-Revolve's form, which is only read."""

import hashlib
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import asdict, fields, replace
from typing import Any, Final, NoReturn

import tomli_w

from ckio.actions import Kind
from ckio.actions.checks import check_line
from ckio.errors import BadInput
from ckio.platform import Level, Platform, size
from ckio.platform.chain import COSTS, SECONDS, SIZES, Chain
from ckio.platform.profile import (
    ACCESSES,
    PRICES,
    Affine,
    Profile,
    Spread,
    parse_spread,
    spread_text,
)
from ckio.platform.readable import meant

_ENTRIES: Final = ("format", "working_memory", "drift", "overhead", "level", "models")

FORMAT: Final = 1
"""The version of the TOML form; a newer one is refused."""

MOST_TEXT: Final = 1 << 20
"""Characters of a file at most. 64 levels, all of them measured, take some 200,000."""

MOST_LEVELS: Final = 64
"""Levels at most: planners go through them one inside the other, and machines have a few."""

_DEEPEST: Final = 8
"""Names in a key, and tables in each other, at most; `level.profile.read_own.latency` has four."""

_LONGEST_KEY: Final = 1024
"""Characters of the name of an entry; that of a model with its options is the longest."""

_MOST_KEYS: Final = 20_000
"""Keys with dots in them at most: the parser keeps several tables for each."""

_PART: Final = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_DOTTED: Final = re.compile(rf"(?<![\w-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART})++")
"""Parts with dots between them: a key, a number, or words of a text."""

_NUMBERS: Final = 2**63

_HEADER: Final = """\
# The storage of one machine, as ckio sees it. Edit freely: nothing else is kept.
# Seconds of one access = latency + per_byte * bytes of the checkpoint.
# Bytes are plain numbers or text like "64 MiB". A level without `capacity` never fills;
# without `working_memory` a tape of any length fits in memory.

"""


def dumps(platform: Platform, /) -> str:
    """The TOML form, made to be read and edited."""
    models = {name: _model(platform, name) for name in platform.models}
    return _HEADER + tomli_w.dumps(_tables(platform) | ({"models": models} if models else {}))


def _model(platform: Platform, name: str) -> dict[str, Any]:
    """The costs of a model, and how they vary."""
    costs = {cost: getattr(platform.models[name], cost) for cost in COSTS}
    spreads = platform.spreads.get(name, {})
    if handed := platform.models[name].handed:
        costs["handed"] = sorted(kind.name.lower() for kind in handed)
    return costs | {_spread(of): spread_text(spread) for of, spread in spreads.items()}


def _spread(of: str) -> str:
    """The entry for how the seconds of a step vary."""
    return f"{of}_spread"


def digest(platform: Platform, /) -> str:
    """A short name for everything that a plan depends on."""
    silent = replace(platform, levels=tuple(map(_silent, platform.levels)), drift=None)
    return hashlib.sha256(tomli_w.dumps(_tables(silent)).encode()).hexdigest()[:16]


def _silent(level: Level) -> Level:
    """A level without what is only for people, and without what varies by chance."""
    profile = level.profile and replace(level.profile, spread={})
    return replace(level, note="", profile=None if profile == Profile() else profile)


def _tables(platform: Platform) -> dict[str, Any]:
    """The working memory and the levels, as TOML's own types."""
    tables: dict[str, Any] = {"format": FORMAT}
    if platform.working_memory is not None:
        tables["working_memory"] = platform.working_memory
    if platform.drift is not None:
        tables["drift"] = spread_text(platform.drift)
    if platform.overhead:
        tables["overhead"] = platform.overhead
    return tables | {"level": [_table(level) for level in platform.levels]}


def _table(level: Level) -> dict[str, Any]:
    table: dict[str, Any] = {"name": level.name}
    if level.capacity is not None:
        table["capacity"] = level.capacity
    table |= {"backend": level.backend, "channel": level.channel, "ratio": level.ratio}
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
    prices = {name: asdict(price) for name in PRICES if (price := getattr(profile, name))}
    sizes = {name: getattr(profile, name) for name in ("cached", "dirty", "drained")}
    table = prices | {name: value for name, value in sizes.items() if value is not None}
    spread = {access: spread_text(factors) for access, factors in profile.spread.items()}
    return table | ({"spread": spread} if spread else {})


def loads(text: str, /, *, source: str) -> Platform:
    """Read the TOML form; raises BadInput with the source, the level and the entry."""
    _check_text(text, source)
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5000 digits is a bare ValueError
        raise BadInput(f"{source}: not TOML: {str(error).partition(';')[0]}") from None
    _check_values(data, source)
    return _PlatformReader(source).platform(data)


def _check_text(text: str, source: str) -> None:
    """Raise BadInput for what the parser would need much more memory for than the text has."""
    _check_length(text, source)
    for number, match in enumerate(_DOTTED.finditer(text)):
        parts = len(re.findall(_PART, match[0]))
        if parts > _DEEPEST or number >= _MOST_KEYS:
            rule = f"{_DEEPEST} names with dots between them"
            if parts <= _DEEPEST:
                rule = f"{_MOST_KEYS} names and numbers with dots in them"
            line = 1 + text.count("\n", 0, match.start())
            raise BadInput(f"{source}, line {line}: {match[0][:40]!r}: at most {rule}")


def _check_length(text: str, source: str) -> None:
    if len(text) > MOST_TEXT:
        raise BadInput(
            f"{source}: {len(text)} characters; the text of a platform has {MOST_TEXT} at most"
        )


def _check_values(data: dict[str, Any], source: str) -> None:
    """Raise BadInput for tables too deep, names too long, and numbers that no column holds."""
    left: list[tuple[Any, int]] = [(data, 0)]
    while left:
        value, depth = left.pop()
        if depth > _DEEPEST:
            raise BadInput(f"{source}: tables lie in each other, more than {_DEEPEST} deep")
        match value:
            case dict():
                for name in value:
                    check_line(f"{source}: the name of an entry", name)
                    if len(name) > _LONGEST_KEY:
                        raise BadInput(
                            f"{source}: {name[:40]!r}...: the name of an entry has at most"
                            f" {_LONGEST_KEY} characters"
                        )
                left += [(entry, depth + 1) for entry in value.values()]
            case list():
                left += [(entry, depth + 1) for entry in value]
            case int() if not -_NUMBERS <= value < _NUMBERS:
                raise BadInput(
                    f"{source}: a number of {value.bit_length()} bits; numbers are below 2**63"
                )


class _PlatformReader:
    """Turns parsed TOML into a Platform; names the file, the level and the entry that is wrong."""

    def __init__(self, source: str) -> None:
        self.source = source

    def fail(self, text: str) -> NoReturn:
        raise BadInput(f"{self.source}: {text}") from None

    def platform(self, data: Mapping[str, Any]) -> Platform:
        self.only(data, _ENTRIES, "the file")
        version = data.get("format", FORMAT)
        if type(version) is not int or version != FORMAT:
            self.fail(f"format = {version!r}; this ckio reads format {FORMAT}")
        entries = data.get("level", [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            self.fail("levels are written as [[level]] tables")
        if len(entries) > MOST_LEVELS:
            self.fail(f"{len(entries)} levels; a platform has {MOST_LEVELS} at most")
        models = data.get("models", {})
        if not isinstance(models, dict) or not all(
            isinstance(costs, dict) for costs in models.values()
        ):
            self.fail("model costs are written as [models.NAME] tables")
        levels = tuple(self.level(place, entry) for place, entry in enumerate(entries))
        room = self.bytes_of(data, "working_memory", "the file")
        chains = {name: self.model(name, costs) for name, costs in models.items()}
        drift = self.factors(data["drift"], "drift") if "drift" in data else None
        spreads = {name: self.spreads(name, costs) for name, costs in models.items()}
        try:
            varying = {name: each for name, each in spreads.items() if each}
            return Platform(levels, room, chains, varying, drift, data.get("overhead", 0.0))
        except BadInput as error:
            self.fail(str(error))

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
        try:
            return Level(**known)
        except BadInput as error:
            self.fail(str(error))

    def profile(self, entry: object, where: str) -> Profile:
        known = dict(self.table(entry, where))
        self.only(known, [field.name for field in fields(Profile)], where)
        for name in ("cached", "dirty"):
            known[name] = self.bytes_of(known, name, where)
        for name in PRICES:
            if name in known:
                known[name] = self.affine(known[name], f"{where}, {name}")
        known["spread"] = self.spread(known.get("spread", {}), f"{where}, spread")
        try:
            return Profile(**known)
        except BadInput as error:
            self.fail(f"{where}: {str(error).removeprefix('profile: ')}")

    def spread(self, entry: object, where: str) -> dict[str, Spread]:
        table = self.table(entry, where)
        return {name: self.factors(each, f"{where}.{name}") for name, each in table.items()}

    def factors(self, entry: object, where: str) -> Spread:
        try:
            return parse_spread(str(entry))
        except BadInput as error:
            self.fail(f"{where}: {error}")

    def table(self, entry: object, where: str) -> Mapping[str, Any]:
        if not isinstance(entry, dict):
            self.fail(f"{where}: {entry!r} is not a table")
        return entry

    def affine(self, entry: object, where: str) -> Affine:
        if isinstance(entry, int | float) and not isinstance(entry, bool):
            entry = {"latency": entry}
        if not isinstance(entry, dict):
            self.fail(f"{where}: {entry!r} is not seconds, nor {{ latency = …, per_byte = … }}")
        self.only(entry, [field.name for field in fields(Affine)], where)
        try:
            return Affine(**entry)
        except BadInput as error:
            self.fail(f"{where}: {str(error).removeprefix('Affine: ')}")

    def model(self, name: str, costs: Mapping[str, Any]) -> Chain:
        where = f"models.{name}"
        self.only(costs, [*COSTS, "handed", *map(_spread, SECONDS)], where)
        missing = [cost for cost in COSTS if cost not in costs]
        if missing:
            self.fail(f"{where}: {', '.join(missing)} missing")
        sizes = {each: self.bytes_of(costs, each, where) for each in SIZES}
        try:
            seconds: dict[str, Any] = {name: costs[name] for name in SECONDS}
            return Chain(steps=None, handed=self.handed(costs, where), **seconds | sizes)
        except BadInput as error:
            self.fail(f"{where}: {str(error).removeprefix('Chain: ')}")

    def handed(self, costs: Mapping[str, Any], where: str) -> frozenset[Kind]:
        names = costs.get("handed", [])
        kinds = {kind.name.lower(): kind for kind in Kind}
        if not isinstance(names, list) or not all(name in kinds for name in names):
            self.fail(f"{where}: handed = {names!r}; it is a list of {', '.join(kinds)}")
        return frozenset(kinds[name] for name in names)

    def spreads(self, model: str, costs: Mapping[str, Any]) -> dict[str, Spread]:
        given = {name: costs[_spread(name)] for name in SECONDS if _spread(name) in costs}
        return {
            name: self.factors(each, f"models.{model}.{_spread(name)}")
            for name, each in given.items()
        }

    def bytes_of(self, entry: Mapping[str, Any], name: str, where: str) -> int | None:
        value = entry.get(name)
        if isinstance(value, str):
            try:
                return size(value)
            except BadInput as error:
                self.fail(f"{where}: {name}: {error}")
        if value is not None and type(value) is not int:
            self.fail(
                f'{where}: {name} = {value!r} is not a number of bytes, nor text like "64MiB"'
            )
        return value

    def only(self, entry: Mapping[str, Any], known: Collection[str], where: str) -> None:
        """Refuse the first entry that is not known, with the nearest that is."""
        for name in sorted(set(entry) - set(known)):
            self.fail(f"{where}: {name!r} is not known here; {meant(name, known)}")


def loads_paper(text: str, /, *, source: str) -> Platform:
    """Read H-Revolve's form; raises BadInput with the source and the line.

        2            # the number of levels K
        20  1   1    # K lines: slots, seconds to write, seconds to read
        500 5.5 5

    A checkpoint is one byte there, so that slots are bytes; the tape register holds one step.
    """
    _check_length(text, source)
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
    if int(first) > MOST_LEVELS:
        raise BadInput(
            f"{source}, line {number}: {int(first)} levels; a platform has {MOST_LEVELS} at most"
        )
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
