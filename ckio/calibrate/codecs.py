"""Choose a codec for a level, or none, by the measured times of a model's own checkpoints.

Each codec writes and reads the last checkpoints that a probe reaches, because a model often starts
from rest or from a smooth state, and its first states compress better than all later ones. The
codec with which a run would be fastest is chosen: compression changes the time of an access, and
also the number of slots. The run is planned by `revolve`, with the measured times and slots.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from ckio.backends.base import Backend
from ckio.backends.compressed import Compressed
from ckio.calibrate.probe import (
    STEPS,
    Checkpoint,
    FrozenModel,
    Probe,
    Workload,
    worst_ratios,
)
from ckio.calibrate.samples import with_margin
from ckio.compression import Codec
from ckio.errors import BadInput
from ckio.parallel.group import ALONE, RankGroup
from ckio.planners.binomial import revolve
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.clock import Clock
from ckio.platform.readable import seconds_text
from ckio.schedule import makespan

_SHRINKS: Final = 0.95
"""A codec is measured only if it shrinks every checkpoint to this ratio or less."""

_FASTER: Final = 0.98
"""A codec is chosen only if a run takes this part of its time, or less, than without a codec."""

_RUN: Final = 1000
"""The steps of the run. With more than a few hundred, the order of the codecs seldom changes."""


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

    def run_seconds(self, *, nbytes: int, capacity: int | None, step: float) -> float:
        """Return the seconds of a run with checkpoints of `nbytes`, on a level of this capacity.

        Each advance, recording and reversal takes `step` seconds. For example, two slots of 100
        bytes become four if checkpoints shrink to less than half:

        >>> plain, half = Trial(write=0, read=0), Trial(codec="half", write=0, read=0, ratio=0.45)
        >>> run = dict(nbytes=100, capacity=200, step=1.0)
        >>> plain.run_seconds(**run), half.run_seconds(**run)
        (30820.0, 9998.0)
        """
        level = Level(
            name="level",
            capacity=capacity,
            write=Affine(self.write),
            read=Affine(self.read),
            ratio=with_margin(self.ratio),
        )
        chain = Chain(
            steps=_RUN, advance=step, record=step, reverse=step, restart=nbytes, tape=0, adjoint=0
        )
        platform = Platform((level,))
        return makespan(revolve(chain, platform), platform)


@dataclass(frozen=True, slots=True)
class Decision:
    """The name of the codec for a level, "" for none, and the reason as a sentence."""

    codec: str
    sentence: str


def choose(
    plain: Trial, trials: Sequence[Trial], /, *, nbytes: int, capacity: int | None, step: float
) -> Decision:
    """Return the codec with which a run is fastest, if it is faster than without a codec.

    Parameters
    ----------
    plain
        The measurement without a codec.
    trials
        The measurement with each codec, at least one.
    nbytes, capacity, step
        As in `Trial.run_seconds`.
    """
    seconds = {
        trial: trial.run_seconds(nbytes=nbytes, capacity=capacity, step=step)
        for trial in (*trials, plain)
    }
    best = min(trials, key=seconds.__getitem__)
    runs = f"a run of {_RUN} steps takes {seconds_text(seconds[best])}"
    runs += f" instead of {seconds_text(seconds[plain])}, with a ratio of {best.ratio:.2g}"
    if seconds[best] <= _FASTER * seconds[plain]:
        return Decision(best.codec, f"{best.codec}: {runs}")
    return Decision("", f"no codec: with {best.codec}, {runs}")


def decide(
    level: str,
    backend: Backend,
    codecs: Mapping[str, Codec],
    late: Sequence[Checkpoint],
    /,
    *,
    step: float,
    capacity: int | None = None,
    repeats: int = 1,
    clock: Clock | None = None,
    ranks: RankGroup = ALONE,
) -> Decision:
    """Measure codecs on an open, empty level with a model's checkpoints, and choose the best.

    The model computes no steps, so that the choice takes little longer than writing and reading
    some slots with each codec. Afterwards the level is empty again.

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
        Seconds of a forward step of the model.
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
    make = partial(FrozenModel, *late[0][1:], estimated=mine < nbytes)
    own = Workload(make, nbytes, STEPS, own=True)
    if not own.fits(capacity):
        raise BadInput(
            f"level {level!r}: its capacity of {capacity} bytes holds no checkpoint of"
            f" {own.nbytes} bytes, so that codecs cannot be compared there: name one"
        )
    through = {name: Compressed(backend, codec) for name, codec in codecs.items()}
    # On the rank with the most bytes, the ratio is that of the stored bytes to these.
    ratios = {name: min(ranks.gather(ratio)) for name, ratio in worst_ratios(through, late).items()}

    def trial(codec: str, on: Backend, ratio: float) -> Trial:
        probe = Probe(level, on, own, own.slots(capacity), repeats, clock)
        seconds = {sample.access: sample.seconds for sample in probe.samples()}
        return Trial(codec=codec, write=seconds["write"], read=seconds["read"], ratio=ratio)

    # A ratio is 0 if not even one checkpoint fits the level with this codec.
    shrinking = {name: ratio for name, ratio in ratios.items() if 0 < ratio <= _SHRINKS}
    if not shrinking:
        return Decision("", f"no codec: none shrinks all checkpoints to {_SHRINKS:.0%} or less")
    trials = [trial(name, through[name], ratio) for name, ratio in shrinking.items()]
    plain = trial("", backend, 1.0)
    decision = choose(plain, trials, nbytes=nbytes, capacity=capacity, step=step)
    return ranks.gather(decision)[0]
