"""Variants of models that several tests run."""

from typing import Any, Final

from ckio.models.burgers import Burgers


class Endless(Burgers):
    """The same, asked for more steps than it takes: those from T on change nothing."""

    def finished(self, state: Any, i: int, /) -> bool:
        return False


ROUGH: Final = {"drag": 1e-4, "surface": 4.0, "speed": 2.0, "coriolis": 3e-4}
"""Options of shallow water that make all that is not linear count."""
