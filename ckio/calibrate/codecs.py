"""Choose a codec for a level, or none, by measurements with a model's own checkpoints.

`decide` measures codecs on a level. It uses the last checkpoints that a probe reaches, because a
model often starts from rest or from a smooth state, and its first states compress better than all
later ones. `choose` then decides by the measured numbers alone.
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
"""Compression counts only if the ratio of stored bytes to bytes is at most this."""

MORE: Final = 1.25
"""A slower codec must give at least this many times the slots without a codec."""

Pays = Literal["time", "capacity", "nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The measured cost of a checkpoint on a level, with a codec or without.

    Attributes
    ----------
    codec : str
        The name of the codec; empty for no codec.
    write, read : float
        Seconds for one checkpoint.
    ratio : float
        Stored bytes per byte of a checkpoint, the worst of the measured values.
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
    """The decision for a codec on a level, or for none.

    Attributes
    ----------
    codec : str
        The name of the codec; empty if checkpoints should be stored without compression.
    pays : str
        The gain by compression on this level: "time", only "capacity", or "nothing".
    sentence : str
        The reason, with the numbers.
    """

    codec: str
    pays: Pays
    sentence: str


def decline(ratio: float, /) -> Decision:
    """Return the decision for no codec because a sample has the compression ratio `ratio`."""
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
    """Return the best codec for a level, or none, and the kind of gain.

    If writing and reading a checkpoint takes less time with a codec, compression pays in time, and
    the fastest codec is chosen. Otherwise, if the level has a capacity, compression may pay in
    capacity: a codec must give at least a quarter more slots, and the steps of the model must be
    slow enough for a gain (see `break_even`). Then the codec with the fewest additional seconds per
    additional slot is chosen.

    Parameters
    ----------
    plain
        The measurement without a codec.
    trials
        The measurement with each codec. All must be lossless, because lossy compression must be
        requested by the user.
    nbytes
        Bytes of a checkpoint, before compression.
    capacity
        Capacity of the level in bytes; None means no limit.
    step
        Seconds of a forward step of the model; infinite if unknown.
    """
    shrinking = [trial for trial in trials if trial.ratio <= SHRINKS]
    if not shrinking:
        return _nothing(trials)
    fastest = min(shrinking, key=lambda trial: trial.seconds)
    slots = {trial.codec: _slots(trial, nbytes, capacity) for trial in (plain, *shrinking)}
    if fastest.seconds < plain.seconds:
        return _time(fastest, plain, slots)

    def cost_of_a_slot(trial: Trial) -> tuple[float, int]:
        more = slots[trial.codec] - slots[""]
        return (trial.seconds - plain.seconds) / more, -more

    enough = max(1.0, MORE * slots[""])
    buying = [trial for trial in shrinking if slots[trial.codec] >= enough]
    if buying:
        best = min(buying, key=cost_of_a_slot)
        gain = f"a run gains where a step takes more than about {_text(best, plain, slots)}"
        bought = f"{_instead(best, slots)}, for {_cost(best, plain)}"
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
    """Return the decision for no codec, with the saving that a codec would give."""
    cost = _cost(trial, plain)
    if capacity is None:
        would = f"{trial.codec} would store {trial.ratio:.0%} of the bytes for {cost}"
        return Decision("", "capacity", f"no codec: {would}, but the level never fills")
    few = f"too few slots more ({slots[trial.codec]} instead of {slots['']})"
    return Decision("", "nothing", f"no codec: {trial.codec} would make {few} for {cost}")


def _slots(trial: Trial, nbytes: int, capacity: int | None) -> int:
    level = Level(name="level", capacity=capacity, ratio=planned(trial.ratio))
    return level.slots(nbytes, sys.maxsize)


def break_even(trial: Trial, plain: Trial, slots: Mapping[str, int]) -> float:
    """Return the seconds of a forward step above which the new slots save more than a codec costs.

    If a fraction s of the slots is new, a checkpoint saves about s steps. This rule of thumb comes
    from plans for chains of hundreds of steps with and without the new slots. For example, with 20
    slots instead of 10 (s = 1/2) and 1 s more per checkpoint, it is 2 s:

    >>> slow, plain = Trial(codec="zstd", write=2, read=1), Trial(write=1, read=1)
    >>> break_even(slow, plain, {"": 10, "zstd": 20})
    2.0
    """
    new = 1.0 - slots[""] / slots[trial.codec]
    return (trial.seconds - plain.seconds) / new


def _text(trial: Trial, plain: Trial, slots: Mapping[str, int]) -> str:
    return seconds_text(break_even(trial, plain, slots))


def _instead(trial: Trial, slots: Mapping[str, int]) -> str:
    return f"{slots[trial.codec]} slots instead of {slots['']}"


def _cost(trial: Trial, plain: Trial) -> str:
    more, seconds = trial.seconds - plain.seconds, map(seconds_text, (trial.seconds, plain.seconds))
    return (
        f"{seconds_text(more)} more per checkpoint, written and read"
        f" ({' instead of '.join(seconds)})"
    )


class Still:
    """A model that always has the same checkpoint, so that a probe of a level computes no steps.

    With `estimated`, the plan may have more bytes than the checkpoint, for example those of the
    rank with the largest part.
    """

    def __init__(self, checkpoint: Checkpoint, *, estimated: bool = False) -> None:
        _, self._layout, self._data = checkpoint
        self.estimated = estimated

    def layout(self, key: Key, /) -> Layout:
        del key
        return self._layout

    def advance(self, begin: int, end: int, /) -> int:
        del begin
        for view in self._data:  # read all data, so that the caches are as after a step
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
"""Bytes of a field that suffice to estimate its compression."""


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
    """Measure codecs on an open, empty level with a model's checkpoints, and choose the best.

    First a sample of a checkpoint is compressed quickly; if it does not shrink, no codec is
    measured. The model computes no steps, so that the choice takes little longer than writing and
    reading some slots with each codec. Afterwards the level is empty again.

    Parameters
    ----------
    level
        The name of the level.
    backend
        The level without a codec.
    codecs
        The codecs to choose from, by their names in a platform file.
    late
        Typical checkpoints of the model: restart data first, then any others.
    step
        Seconds of a forward step of the model; infinite if unknown.
    capacity, repeats, clock
        As in `calibrate`, for this level.
    ranks
        The ranks that decide together, each with its part of the checkpoints. The worst compression
        of all ranks counts. Their level must be one on which every access takes the time of the
        slowest rank.

    Raises
    ------
    BadInput
        A codec is lossy, or the level cannot store a checkpoint without compression.
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
        # `write.ratio` is the ratio of the stored bytes to the bytes of the rank with the most.
        ratio = max(write.ratio, min(ranks.gather(ratios[codec])))
        return Trial(codec=codec, write=write.seconds, read=read.seconds, ratio=ratio)

    trials = [trial(""), *map(trial, codecs)]
    decision = choose(trials[0], trials[1:], nbytes=own.nbytes, capacity=capacity, step=step)
    return ranks.gather(decision)[0]


def _compressibility(checkpoint: Checkpoint) -> float:
    """Return the stored bytes per byte of a sample of every field, with a fast codec."""
    key, layout, data = checkpoint
    fields, pieces = _sample(layout, data)
    nbytes = sum(map(len, pieces))
    level = Compressed(Ram(), Zstd(level=-5, shuffle=True))
    try:
        return level.write(key, fields, pieces) / nbytes if nbytes else 1.0
    finally:
        level.close()


def _sample(layout: Layout, data: Buffers) -> tuple[Layout, Buffers]:
    """Return a sample from the middle of each field, in whole elements."""
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
