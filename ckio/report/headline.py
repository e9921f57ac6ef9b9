"""The verdict on a run in one paragraph: its gradient, its gain, and its bottleneck."""

from collections.abc import Sequence

import numpy as np

from ckio.actions.columns import ADVANCE, RECORD, REVERSE, WRITE
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.platform.readable import bytes_text, seconds_text
from ckio.schedule.occupancy import Occupancy, accesses, occupancies
from ckio.schedule.timeline import Timeline

_COMPUTING = "computing"


def headline(
    timeline: Timeline,
    chain: Chain,
    platform: Platform,
    /,
    *,
    gradient: str = "",
    forward: int | None = None,
    predicted: float | None = None,
    earlier: str = "",
) -> str:
    """Return a paragraph on a timeline, predicted or measured.

    Parameters
    ----------
    timeline, chain, platform
        The measured or predicted timeline, with at least one action, its steps and its machine.
    gradient : str
        The state of the gradient, for example "verified"; empty if none was computed.
    forward : int, optional
        The forward steps of the run, if there were others before the timeline.
    predicted : float, optional
        The predicted makespan in seconds, if the timeline was measured.
    earlier : str
        How far earlier runs were from their predictions; empty if there were too few.
    """
    steps = chain.length
    subject = f"Gradient of {steps:,} steps, {gradient}" if gradient else f"Plan of {steps:,} steps"
    sentences = [subject, _memory(timeline, chain, platform), _work(timeline, steps, forward)]
    sentences.append(_limit(timeline, platform))
    seconds = seconds_text(timeline.makespan)
    if predicted is None:
        sentences.append(f"It takes {seconds}")
    else:
        more = f"; {earlier}" if earlier else ""
        sentences.append(f"Predicted {seconds_text(predicted)}, measured {seconds}{more}")
    return ". ".join(sentences) + "."


def peak_bytes(timeline: Timeline, chain: Chain, platform: Platform, /) -> int:
    """Return the largest number of bytes stored on all levels together at one time."""
    levels = occupancies(timeline, chain, platform)
    if not levels:
        return 0
    times = np.concatenate([level.times for level in levels])
    changes = np.concatenate([np.diff(level.nbytes, prepend=0) for level in levels])
    order = np.lexsort((changes, times))  # at one time, space is freed before it is taken again
    return int(changes[order].cumsum().max())


def memory_sentence(levels: Sequence[Occupancy], chain: Chain, platform: Platform, /) -> str:
    """Return a sentence: does the first level limit the plan? It is empty without a capacity."""
    first = platform.levels[0] if platform.levels else None
    if first is None or first.capacity is None:
        return ""
    sizes = [size for size in map(chain.largest, ("restart", "tape")) if size]
    if first.capacity - levels[0].peak_bytes >= first.stored(min(sizes, default=0)):
        return (
            f"Level {first.name} never fills up, so a larger capacity would not change this plan."
        )
    return f"Level {first.name} fills up; `ckio plan --capacity` shows what more of it would save."


def _memory(timeline: Timeline, chain: Chain, platform: Platform) -> str:
    stored = f"At most {bytes_text(peak_bytes(timeline, chain, platform))} of checkpoints"
    tapes = chain.tape_bytes(0, chain.length)
    return f"{stored} instead of {bytes_text(tapes)} of tapes" if tapes else stored


def _work(timeline: Timeline, steps: int, forward: int | None) -> str:
    actions = timeline.actions
    rows = (actions.op == ADVANCE) | (actions.op == RECORD)
    spans = actions.end - actions.begin
    taken, reversed_ = int(spans[rows].sum()), int(spans[actions.op == REVERSE].sum())
    if reversed_ < steps:  # the last process of a run that was resumed
        return f"This process computed {taken:,} forward steps and reversed {reversed_:,}"
    return f"Each step is computed {(forward or taken) / steps:.2f} times"


def _limit(timeline: Timeline, platform: Platform) -> str:
    """Return the share of storage in the makespan, and the resource that is busy for longest."""
    seconds = timeline.stop - timeline.start
    waits = float(seconds[timeline.actions.op >= WRITE].sum())
    busy = {_COMPUTING: float(seconds[timeline.actions.op < WRITE].sum())}
    for number, level in enumerate(platform.levels):
        events = accesses(timeline, platform, number)
        busy[f"level {level.name}"] = float((events.stop - events.start).sum())
    most = max(busy, key=lambda name: busy[name])
    share = waits / timeline.makespan if timeline.makespan else 0.0
    return f"Storage takes {share:.0%} of the time, and {most} is the bottleneck"
