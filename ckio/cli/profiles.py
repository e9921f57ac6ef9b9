"""What calibration found of levels beside their prices, as a table."""

from collections.abc import Iterable

from ckio.cli import console
from ckio.platform import Affine, Level
from ckio.platform.profile import Quantiles
from ckio.platform.readable import bytes_text, seconds_text

_HEADER = [
    "level",
    "first write",
    "write beside",
    "steps lose",
    "read beside",
    "steps lose",
    "slow writes",
    "slow reads",
    "to disk",
]


def print_profiles(levels: Iterable[Level], nbytes: int, /) -> None:
    """For a checkpoint of so many bytes, in seconds; nothing where no level has a profile."""
    rows = [row for level in levels if any((row := _row(level, nbytes))[1:])]
    if rows:
        title = f"levels, {bytes_text(nbytes)}: to a new slot, beside the steps, 1 in 20 is slower"
        console.print_table(title, _HEADER, rows)


def _row(level: Level, nbytes: int) -> list[str]:
    profile = level.profile
    if profile is None:
        return [level.name] + [""] * (len(_HEADER) - 1)

    def price(cost: Affine | None) -> str:
        return "" if cost is None else seconds_text(cost(nbytes))

    def slow(access: str, cost: Affine) -> str:
        """One in twenty takes longer."""
        spread = profile.spread.get(access)
        if not isinstance(spread, Quantiles):
            return ""
        factor = spread.factors[round(0.95 * (len(spread.factors) - 1))]
        return seconds_text(factor * cost(nbytes))

    return [
        level.name,
        price(profile.first),
        price(profile.write_beside),
        price(profile.write_hinders) if profile.write_beside else "",
        price(profile.read_beside),
        price(profile.read_hinders) if profile.read_beside else "",
        slow("write", level.write),
        slow("read", level.read),
        "" if profile.drained is None else f"{bytes_text(int(profile.drained))}/s",
    ]
