"""What a rule says along one run, without going through all that is stored at each step."""

from collections.abc import Iterable, Sequence

from ckio.actions import Key
from ckio.actions.columns import Actions
from ckio.errors import BadInput
from ckio.planners.draft import Draft
from ckio.planners.online.levels import Levels
from ckio.planners.online.sweep import Sweep


class Follower:
    """Says at each step of a run what `Online.at` and `Online.until` would, and remembers it.

    It takes for granted that the run does what it says, all of it and nothing else that changes
    what is stored, before it is asked again. What is `stored` when it begins, at x_step, is gone
    through once.
    """

    def __init__(
        self, levels: Levels, step: int = 0, stored: Sequence[Iterable[Key]] = (), /
    ) -> None:
        self._sweep, self._step = Sweep(levels, Draft(), stored, step), step

    def at(self, step: int, /) -> Actions:
        """What to do when x_step has been reached; it is in the register before and after.

        Raises BadInput for a step before the last one it was asked about.
        """
        if step < self._step:
            raise BadInput(f"a run is followed forward: step {step} comes before {self._step}")
        self._step, draft = step, Draft()
        self._sweep.at(step, draft)
        return draft.actions()

    def until(self, step: int, /) -> int:
        """The first step after this one at which `at` may say anything, if nothing else changes."""
        return self._sweep.until(step)
