"""The planners of ckio, in one table: a new one is a function, a line here and its entry point.

The help of `ckio plan`, the names that `ckio` exports, `auto` and the tests of the documentation
and of the entry points read this table. Functions are imported when they are asked for.
"""

import importlib
from dataclasses import dataclass
from typing import Any, Final, Literal

Compared = Literal["tapes", "states", "follower", "slow", ""]
"""How `auto` compares a planner: in one of the two groups that hold the best synchronous schedule,
with tapes or of states only; as one that follows for short chains; as one whose time may grow with
the square of the steps; or not at all."""


@dataclass(frozen=True)
class Listed:
    """A planner of ckio.

    Attributes
    ----------
    name : str
        Its name on the command line.
    place : str
        The function, as MODULE:NAME below `ckio.planners`.
    what : str
        One line for people.
    compared : str
        How `auto` compares it.
    """

    name: str
    place: str
    what: str
    compared: Compared = ""

    @property
    def module(self) -> str:
        """The module of the function."""
        return f"ckio.planners.{self.place.partition(':')[0]}"

    @property
    def function(self) -> str:
        """The name of the function in its module."""
        return self.place.partition(":")[2]

    def load(self) -> Any:
        """Import and return the function."""
        return getattr(importlib.import_module(self.module), self.function)


PLANNERS: Final = (  # of equally good schedules `auto` takes that of the first
    Listed("auto", "auto:auto", "the best of all that apply, with the reason"),
    Listed("store-all", "trivial:store_all", "the tape of every step, nothing twice", "tapes"),
    Listed(
        "periodic",
        "trivial:periodic",
        "a state every so many steps, and the tapes of one block",
        "tapes",
    ),
    Listed("mixed", "dp:mixed", "the best with tapes and states on any levels", "tapes"),
    Listed("hrevolve", "dp:hrevolve", "the best of states only on any levels", "states"),
    Listed("hrevolve-2020", "dp:hrevolve_2020", "hrevolve as it was printed in 2020"),
    Listed("overlapped", "overlap:overlapped", "auto with --overlap auto"),
    Listed("revolve", "binomial:revolve", "the fewest steps on one level", "follower"),
    Listed(
        "multistage",
        "literature:multistage",
        "revolve in the slots of all levels, the most used nearest",
        "follower",
    ),
    Listed("two-level", "literature:two_level", "blocks of equal length on two levels", "follower"),
    Listed(
        "per-rev-revolve",
        "literature:per_rev_revolve",
        "far states at equal distances, each read once",
        "follower",
    ),
    Listed(
        "periodic-disk-revolve",
        "literature:periodic_disk_revolve",
        "far states at equal distances, read as often as it pays",
        "follower",
    ),
    Listed("1d-revolve", "literature:revolve_1d", "x_0 alone on the far level", "follower"),
    Listed(
        "disk-revolve",
        "literature:disk_revolve",
        "the best on a free near level and a far one that never fills",
        "slow",
    ),
    Listed("bisection", "bisection:bisection", "halves, as programs of any shape are checkpointed"),
    Listed("recompute-all", "trivial:recompute_all", "x_0 alone, everything from the start"),
    Listed("online", "online:online", "for a chain whose end is not known"),
    Listed(
        "wang-moin", "literature:wang_moin", "minimal repetition, the end not known: to compare"
    ),
)


def compared(*groups: Compared) -> dict[str, Any]:
    """Return the planners that `auto` compares in these ways, by name, in the table's order."""
    return {each.name: each.load() for each in PLANNERS if each.compared in groups}
