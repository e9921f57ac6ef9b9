"""Whether a level should compress, and with what: decided from measured numbers alone."""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ckio.calibrate.samples import planned
from ckio.platform import Level
from ckio.platform.readable import seconds_text

SHRINKS: Final = 0.95
"""Stored bytes per byte above which nothing is saved, neither of a sample nor of a checkpoint."""

MORE: Final = 1.25
"""Times the slots that a level has anyway: less is not worth being slower."""

Pays = Literal["time", "capacity", "nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a checkpoint costs on a level, as it is or through a codec.

    Attributes
    ----------
    codec : str
        The codec's name; empty where checkpoints are stored as they are.
    write, read : float
        Seconds of one checkpoint.
    ratio : float
        Bytes that reach the level per byte of a checkpoint, the worst of those measured.
    """

    codec: str = ""
    write: float
    read: float
    ratio: float = 1.0

    @property
    def seconds(self) -> float:
        """To write a checkpoint and to read it."""
        return self.write + self.read


@dataclass(frozen=True, slots=True)
class Decision:
    """A codec for a level, or none.

    Attributes
    ----------
    codec : str
        Its name; empty where checkpoints are better stored as they are.
    pays : str
        What compression pays in there: "time", only "capacity", or "nothing".
    sentence : str
        Why, with the numbers.
    """

    codec: str
    pays: Pays
    sentence: str


def decline(ratio: float, /) -> Decision:
    """What to do where a sample shrinks to no less than `ratio`: nothing, without more trials."""
    return Decision(
        "", "nothing", f"no codec: a sample of the checkpoints shrinks only to {ratio:.0%}"
    )


def choose(
    plain: Trial,
    trials: Sequence[Trial],
    /,
    *,
    nbytes: int,
    capacity: int | None,
    step: float = math.inf,
) -> Decision:
    """What compression is good for on a level, and the codec that is best there.

    It pays in time where writing and reading a checkpoint take less with a codec: then the fastest
    is taken. Else, where the level has a capacity, it may pay in slots, if it makes a quarter more
    of them, and the steps of the model take long enough for them to be a gain: then the codec is
    taken whose slots cost least, in seconds for each slot more.

    Parameters
    ----------
    plain
        The level without a codec.
    trials
        The level with each codec; lossless ones, for nothing is made lossy without being asked.
    nbytes
        Bytes of a checkpoint, before compression.
    capacity
        Bytes that the level may hold; None never fills.
    step
        Seconds of a forward step of the model, where they are known.
    """
    shrinking = [trial for trial in trials if trial.ratio <= SHRINKS]
    if not shrinking:
        return _nothing(trials)
    fastest = min(shrinking, key=lambda trial: trial.seconds)
    slots = {trial.codec: _slots(trial, nbytes, capacity) for trial in (plain, *shrinking)}
    if fastest.seconds < plain.seconds:
        return _time(fastest, plain, slots)

    def price_of_a_slot(trial: Trial) -> tuple[float, int]:
        more = slots[trial.codec] - slots[""]
        return (trial.seconds - plain.seconds) / more, -more

    enough = max(1.0, MORE * slots[""])
    buying = [trial for trial in shrinking if slots[trial.codec] >= enough]
    if buying:
        best = min(buying, key=price_of_a_slot)
        gain = f"a run gains where a step takes more than about {_text(best, plain, slots)}"
        bought = f"{_instead(best, slots)}, for {_price(best, plain)}"
        if break_even(best, plain, slots) <= step:
            sentence = f"{best.codec} pays only in capacity: {bought}; {gain}"
            return Decision(best.codec, "capacity", sentence)
        would = f"no codec: {best.codec} would make {bought}; {gain}"
        return Decision("", "capacity", f"{would}, and here it takes {seconds_text(step)}")
    return _savings(fastest, plain, slots, capacity)


def _nothing(trials: Sequence[Trial]) -> Decision:
    least = min(trials, key=lambda trial: trial.ratio, default=None)
    if least is None:
        return Decision("", "nothing", "no codec: there is none to try")
    best = f"to {least.ratio:.0%} at best, with {least.codec}"
    return Decision("", "nothing", f"no codec: checkpoints hardly shrink, {best}")


def _time(trial: Trial, plain: Trial, slots: Mapping[str, int]) -> Decision:
    more = _instead(trial, slots) if slots[trial.codec] > slots[""] else ""
    return Decision(
        trial.codec,
        "time",
        f"{trial.codec} pays in time: a checkpoint is written and read in"
        f" {seconds_text(trial.seconds)} instead of {seconds_text(plain.seconds)}; it takes"
        f" {trial.ratio:.0%} of its bytes{more and f', which makes {more}'}",
    )


def _savings(
    trial: Trial, plain: Trial, slots: Mapping[str, int], capacity: int | None
) -> Decision:
    """What could be saved where nothing is short of it."""
    price = _price(trial, plain)
    if capacity is None:
        would = f"{trial.codec} would store {trial.ratio:.0%} of the bytes for {price}"
        return Decision("", "capacity", f"no codec: {would}, but the level never fills")
    few = f"too few slots more ({slots[trial.codec]} instead of {slots['']})"
    return Decision("", "nothing", f"no codec: {trial.codec} would make {few} for {price}")


def _slots(trial: Trial, nbytes: int, capacity: int | None) -> int:
    level = Level(name="level", capacity=capacity, ratio=planned(trial.ratio))
    return level.slots(nbytes, sys.maxsize)


def break_even(trial: Trial, plain: Trial, slots: Mapping[str, int]) -> float:
    """Seconds of a forward step from which the slots save more than the codec costs.

    With a share s of the slots new, a checkpoint saves about s steps: a rule of thumb, found by
    planning chains of hundreds of steps with and without.
    """
    new = 1.0 - slots[""] / slots[trial.codec]
    return (trial.seconds - plain.seconds) / new


def _text(trial: Trial, plain: Trial, slots: Mapping[str, int]) -> str:
    return seconds_text(break_even(trial, plain, slots))


def _instead(trial: Trial, slots: Mapping[str, int]) -> str:
    return f"{slots[trial.codec]} slots instead of {slots['']}"


def _price(trial: Trial, plain: Trial) -> str:
    more, seconds = trial.seconds - plain.seconds, map(seconds_text, (trial.seconds, plain.seconds))
    return (
        f"{seconds_text(more)} more per checkpoint, written and read"
        f" ({' instead of '.join(seconds)})"
    )
