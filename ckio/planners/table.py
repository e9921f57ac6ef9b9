"""The planners of ckio in one table. A new planner is a function, a line here and an entry point.

The help of `ckio plan`, the names that `ckio` exports, `auto`, and the tests of the documentation
and of the entry points read this table. A function is imported when it is first used.
"""

import importlib
from dataclasses import dataclass
from typing import Any, Final, Literal

Compared = Literal["tapes", "states", "regular", ""]
"""How `auto` compares a planner.

"tapes" and "states" are the two groups that contain the best synchronous schedule, with tapes or
with states only, up to the rounding of costs. The "regular" planners are quick for any chain, store
states only and ignore some costs. They are compared if transfers overlap with the computation,
because they write at regular distances. A planner with "" is not compared.
"""


@dataclass(frozen=True)
class Listed:
    """A planner of ckio.

    Attributes
    ----------
    name : str
        The name on the command line.
    place : str
        The function, as MODULE:NAME below `ckio.planners`.
    what : str
        One line for the help.
    compared : str
        How `auto` compares the planner.
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
        """Import the function and return it."""
        return getattr(importlib.import_module(self.module), self.function)


PLANNERS: Final = (  # if several schedules are equally good, `auto` takes that of the first planner
    Listed("auto", "fastest:auto", "the best schedule of all planners that apply, and why"),
    Listed("store-all", "trivial:store_all", "store every tape, recompute no step", "tapes"),
    Listed(
        "periodic",
        "trivial:periodic",
        "a state at equal distances, and the tapes of one block",
        "tapes",
    ),
    Listed("mixed", "dp:mixed", "the best with tapes and states on all levels", "tapes"),
    Listed("hrevolve", "dp:hrevolve", "the best with states only on all levels", "states"),
    Listed("hrevolve-2020", "dp:hrevolve_2020", "H-Revolve as printed in 2020"),
    Listed("overlapped", "overlap:overlapped", "the same as auto with --overlap auto"),
    Listed("revolve", "binomial:revolve", "the fewest forward steps on one level", "regular"),
    Listed(
        "multistage",
        "literature:multistage",
        "Revolve in the slots of all levels, the most used slots on the nearest",
        "regular",
    ),
    Listed("two-level", "literature:two_level", "blocks of equal length on two levels", "regular"),
    Listed(
        "per-rev-revolve",
        "literature:per_rev_revolve",
        "states on a far level at equal distances, each read once",
        "regular",
    ),
    Listed(
        "periodic-disk-revolve",
        "literature:periodic_disk_revolve",
        "states on a far level at equal distances, read as often as useful",
        "regular",
    ),
    Listed("1d-revolve", "literature:revolve_1d", "only x_0 on the far level", "regular"),
    Listed(
        "disk-revolve",
        "literature:disk_revolve",
        "the best if the near level costs nothing and the far level is unlimited",
    ),
    Listed("bisection", "midpoint:bisection", "repeated halving, for programs of any shape"),
    Listed("recompute-all", "trivial:recompute_all", "store only x_0, recompute from the start"),
    Listed("online", "unknown:online", "for a chain of unknown length"),
)


def compared(*groups: Compared) -> dict[str, Any]:
    """Return the planners that `auto` compares in these ways, by name, in the table's order."""
    return {each.name: each.load() for each in PLANNERS if each.compared in groups}
