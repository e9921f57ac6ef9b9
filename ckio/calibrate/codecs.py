"""The codec that a level should have, if any: measured with a model's own checkpoints, and decided.

`decide` tries codecs on a level. It takes the last checkpoints that a probe reaches, because a
model often starts from rest or from something smooth, and its first states shrink as no later ones
do; `choose` then decides by the measured numbers alone.
"""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

import numpy as np
import xxhash

from ckio.actions import Buffers, Field, Key, Layout
from ckio.backends.base import Backend
from ckio.backends.compressed import Compressed
from ckio.backends.ram import Ram
from ckio.calibrate.probe import (
    STEPS,
    Checkpoint,
    Probe,
    Try,
    worst_ratios,
)
from ckio.calibrate.samples import planned
from ckio.compression import Codec, Zstd
from ckio.errors import BadInput
from ckio.model.arrays import as_bytes
from ckio.parallel.group import ALONE, RankGroup
from ckio.platform import Level
from ckio.platform.clock import Clock
from ckio.platform.readable import seconds_text

SHRINKS: Final = 0.95
"""Stored bytes per byte above which nothing is saved, neither of a sample nor of a checkpoint."""

MORE: Final = 1.25
"""Times the slots that a level has anyway: less is not worth being slower."""

Pays = Literal["time", "capacity", "nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The cost of a checkpoint on a level, as it is or through a codec.

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
        """The seconds to write a checkpoint and to read it."""
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
    """Return the decision for a sample that shrinks to no less than `ratio`: no more is tried."""
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
    """Return what compression is good for on a level, and the codec that is best there.

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
    """Say what could be saved where nothing is short of it."""
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
    """Return seconds of a forward step from which the slots save more than the codec costs.

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


class Still:
    """A model that stays as it was at one checkpoint, so that a probe of a level takes no steps.

    It may be `estimated`: planned for more bytes, as the part of another rank has.
    """

    def __init__(self, checkpoint: Checkpoint, *, estimated: bool = False) -> None:
        _, self._layout, self._data = checkpoint
        self.estimated = estimated

    def layout(self, key: Key, /) -> Layout:
        del key
        return self._layout

    def advance(self, begin: int, end: int, /) -> int:
        del begin
        for view in self._data:  # all of it, so that the caches are as after a step
            xxhash.xxh3_64_intdigest(view)
        return end

    def record(self, begin: int, end: int, /) -> int:
        return self.advance(begin, end)

    def reverse(self, begin: int, end: int, /) -> None: ...

    def dump(self, key: Key, /) -> Buffers:
        del key
        return self._data

    @contextmanager
    def load(self, key: Key, layout: Layout, /) -> Iterator[Buffers]:
        del layout
        yield self.dump(key)


_SAMPLE: Final = 1 << 20
"""Bytes of a field that are enough to see whether it shrinks."""


def decide(
    level: str,
    backend: Backend,
    codecs: Mapping[str, Codec],
    late: Sequence[Checkpoint],
    /,
    *,
    capacity: int | None = None,
    step: float = math.inf,
    repeats: int = 1,
    clock: Clock | None = None,
    ranks: RankGroup = ALONE,
) -> Decision:
    """Try codecs on an open, empty level with a model's checkpoints, and say which it should have.

    A sample of a checkpoint is compressed first, as fast as it goes: where that finds noise,
    nothing else is tried. The model takes no step meanwhile: to choose takes little longer than
    writing and reading some slots with each codec. Nothing is left on the level.

    Parameters
    ----------
    level
        Its name.
    backend
        The level as it is, without a codec.
    codecs
        What to choose from, by the names that a platform file gives them.
    late
        Checkpoints of the model that are like the most: restart data first, then any others.
    step
        Seconds of a forward step of the model, where they are known.
    capacity, repeats, clock
        As `calibrate` takes them, for this level.
    ranks
        The ranks that decide together, each by its part of the checkpoints: what shrinks least on
        one of them counts. Their level is one on which all take what the slowest takes.

    Raises
    ------
    BadInput
        A codec is lossy, or the level cannot hold a checkpoint as it is.
    """
    if lossy := [name for name, codec in codecs.items() if not codec.lossless]:
        raise BadInput(f"level {level!r}: codec {lossy[0]!r} is lossy; it is used only if named")
    mine = sum(map(len, late[0][2]))
    nbytes = max(ranks.gather(mine))
    still = partial(Still, late[0], estimated=mine < nbytes)
    own = Try(still, nbytes, STEPS, own=True)
    if not own.fits(capacity):
        raise BadInput(
            f"level {level!r}: its capacity of {capacity} bytes holds no checkpoint of"
            f" {own.nbytes} bytes, so that codecs cannot be compared there: name one"
        )
    shrinks = max(ranks.gather(_compressibility(late[0])))
    if shrinks > SHRINKS:
        return decline(shrinks)
    through = {"": backend, **{name: Compressed(backend, each) for name, each in codecs.items()}}
    ratios = worst_ratios(through, late)

    def trial(codec: str) -> Trial:
        probe = Probe(level, through[codec], own, own.slots(capacity), repeats, clock)
        samples = {sample.access: sample for sample in probe.samples()}
        write, read = samples["write"], samples["read"]
        # What is stored is that of the rank with the most; of its own bytes, the others have less.
        ratio = max(write.ratio, min(ranks.gather(ratios[codec])))
        return Trial(codec=codec, write=write.seconds, read=read.seconds, ratio=ratio)

    trials = [trial(""), *map(trial, codecs)]
    decision = choose(trials[0], trials[1:], nbytes=own.nbytes, capacity=capacity, step=step)
    return ranks.gather(decision)[0]


def _compressibility(checkpoint: Checkpoint) -> float:
    """Return the bytes stored per byte of a piece of every field, quickly compressed."""
    key, layout, data = checkpoint
    fields, pieces = _sample(layout, data)
    nbytes = sum(map(len, pieces))
    level = Compressed(Ram(), Zstd(level=-5, shuffle=True))
    try:
        return level.write(key, fields, pieces) / nbytes if nbytes else 1.0
    finally:
        level.close()


def _sample(layout: Layout, data: Buffers) -> tuple[Layout, Buffers]:
    """Return the middle of each field, whole numbers, one behind the other."""
    fields, pieces = [], []
    for field, view in zip(layout, data, strict=True):
        if not view.nbytes:
            continue
        array = np.frombuffer(view, field.dtype)
        most = max(1, _SAMPLE // array.itemsize)
        begin = max(0, (array.size - most) // 2)
        piece = array[begin : begin + most]
        fields.append(Field(field.name, field.dtype, piece.shape))
        pieces.append(as_bytes(piece))
    return tuple(fields), pieces
