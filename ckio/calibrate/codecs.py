"""What codecs make of a model's own checkpoints on a level: measured, and decided."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np

from ckio.actions import Buffers, Field, Layout
from ckio.backends.base import Backend
from ckio.backends.compressed import Compressed
from ckio.backends.ram import Ram
from ckio.calibrate.choice import SHRINKS, Decision, Trial, choose, decline
from ckio.calibrate.late import Checkpoint, Still, worst_ratios
from ckio.calibrate.probe import Probe, Try
from ckio.calibrate.steps import STEPS
from ckio.compression import Codec, Zstd
from ckio.errors import BadInput
from ckio.model.arrays import as_bytes
from ckio.parallel.team import ALONE, Team
from ckio.platform.clock import Clock

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
    team: Team = ALONE,
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
    team
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
    nbytes = max(team.gather(mine))
    still = partial(Still, late[0], estimated=mine < nbytes)
    own = Try(still, nbytes, STEPS, own=True)
    if not own.fits(capacity):
        raise BadInput(
            f"level {level!r}: its capacity of {capacity} bytes holds no checkpoint of"
            f" {own.nbytes} bytes, so that codecs cannot be compared there: name one"
        )
    shrinks = max(team.gather(_compressibility(late[0])))
    if shrinks > SHRINKS:
        return decline(shrinks)
    through = {"": backend, **{name: Compressed(backend, each) for name, each in codecs.items()}}
    ratios = worst_ratios(through, late)

    def trial(codec: str) -> Trial:
        probe = Probe(level, through[codec], own, own.slots(capacity), repeats, clock)
        found = {sample.access: sample for sample in probe.samples()}
        write, read = found["write"], found["read"]
        # What is stored is that of the rank with the most; of its own bytes, the others have less.
        ratio = max(write.ratio, min(team.gather(ratios[codec])))
        return Trial(codec=codec, write=write.seconds, read=read.seconds, ratio=ratio)

    trials = [trial(""), *map(trial, codecs)]
    found = choose(trials[0], trials[1:], nbytes=own.nbytes, capacity=capacity, step=step)
    return team.gather(found)[0]


def _compressibility(checkpoint: Checkpoint) -> float:
    """Of a piece of every field of a checkpoint: bytes stored per byte, quickly compressed."""
    key, layout, data = checkpoint
    fields, pieces = _sample(layout, data)
    nbytes = sum(map(len, pieces))
    level = Compressed(Ram(), Zstd(level=-5, shuffle=True))
    try:
        return level.write(key, fields, pieces) / nbytes if nbytes else 1.0
    finally:
        level.close()


def _sample(layout: Layout, data: Buffers) -> tuple[Layout, Buffers]:
    """The middle of each field, whole numbers, one behind the other."""
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
