"""The report as one self-contained HTML page: what was run, what it cost, and the pictures."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.platform.readable import seconds_text
from ckio.report import Report
from ckio.report.accesses import level_table
from ckio.report.differences import difference_table
from ckio.report.document import HELP, document, figure, table
from ckio.report.headline import headline, memory_sentence
from ckio.report.pictures import (
    MemoryCurve,
    Picture,
    PlotAxis,
    over_memory,
    resources,
    slow_discards,
    spacetime,
    storage,
    sweeps,
)
from ckio.report.thumbnails import Thumbnail, gallery
from ckio.schedule.occupancy import occupancies
from ckio.schedule.timeline import Timeline

_SCHEDULE: Final = (
    "The schedule",
    "Steps across; one line for each sweep, the first at the top, with the time at which it begins."
    " Arrows to the right are the forward, arrows to the left the adjoint. A cross is restart data"
    " that is written, and in a box it is read; its shape says on which level. The thin line below"
    " it lasts as long as it is stored, with the dashes of that level. In all pictures a colour"
    " means a kind of action, and grey is what is stored.",
)
_BY_VARIABLE: Final = (
    " Here each variable is stored by itself: a cross is for all that are written, or read, at that"
    " step, and its tooltip names them. x_4.u is the variable u as step 3 left it, the last before"
    " to change it."
)
_CAPTIONS: Final = (
    (
        "Who works when",
        "One lane for computing and one for each storage level; a filled box is time in which that"
        " action was going on. Look for levels whose reads and writes leave long gaps in the"
        " computing lane: there the computation waits for storage. Where transfers overlap it, the"
        " waiting lane has what it copies or waits for itself. Where boxes are low, many short"
        " actions share one column, and the height is their share of its time.",
    ),
    (
        "What is stored",
        "How full each level is, against its capacity (dashed). A level that stays at its capacity"
        " limits the plan: if it held more, fewer steps would be computed twice. A level that stays"
        " far below has capacity to spare. With overlap, what is on its way between the model and"
        " the levels takes memory too.",
    ),
    (
        "The adjoint moving back",
        "Step number over time. The forward climbs to the last step; then the adjoint comes down,"
        " and every climb beneath it computes again what was not stored. Level lines are"
        " checkpoints, as long as they are stored.",
    ),
)

AGAINST: Final = "Predicted against measured"


def page(
    *,
    title: str,
    facts: Iterable[tuple[str, str]],
    platform: Platform,
    chain: Chain,
    predicted: Timeline,
    measured: Timeline | None = None,
    report: Report | None = None,
    verdict: str = "",
    memory: MemoryCurve | None = None,
    images: Sequence[Thumbnail] = (),
    origin: str = "",
) -> str:
    """The whole document; it needs no other file, and nothing from the network.

    Parameters
    ----------
    title : str
        The heading.
    facts : pairs of str
        What was run and how it ended, a name and a value each, in reading order.
    platform, chain
        Where and what; the platform's TOML ends the page.
    predicted, measured : Timeline
        Drawn one below the other on one time axis; without `measured`, the prediction alone.
    report : Report, optional
        Predicted against measured seconds by class of action: a table with a bar for each
        difference.
    verdict : str
        A paragraph that says what matters most; by default that of the timeline. The page adds
        whether more memory would help.
    memory : MemoryCurve, optional
        The makespan over the memory, drawn if it is given.
    images : sequence of Thumbnail
        Small images of the model's state and gradient.
    origin : str
        When, where and with which versions the page was made: its last line.
    """
    shown = predicted if measured is None else measured
    timelines = {"predicted": predicted} | ({"measured": measured} if measured is not None else {})
    levels = occupancies(shown, chain, platform)
    said = verdict or headline(shown, chain, platform)
    more = memory_sentence(levels, chain, platform) if memory is None else memory.said()
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="verdict">{escape(f"{said} {more}".strip())}</p>',
        *_schedule(shown, chain, platform),
        *([] if memory is None else [_memory(memory)]),
        *([_images(images)] if images else []),
        *_figures(timelines, chain, platform),
        "<h2>The run in figures</h2>",
        _facts(facts),
        *([] if report is None else [f"<h2>{AGAINST}</h2>", difference_table(report)]),
        "<h2>Storage levels</h2>",
        "<p>GB/s is 10⁹ bytes per second while the level is busy; half of the accesses take"
        " no longer than the median, and 90 % no longer than the last column.</p>",
        table(level_table(shown, levels, chain, platform)),
        "<h2>The platform</h2>",
        "<p>This file, given to <code>--platform</code>, plans for the same machine again.</p>",
        f"<pre>{escape(platform.dumps())}</pre>",
        f"<footer>{escape(origin)}</footer>",
    ]
    return document(title, body)


def _memory(curve: MemoryCurve) -> str:
    return figure(
        "Would more memory help?",
        f"{escape(curve.said())} Each box is the makespan of the best plan with so much memory for"
        " checkpoints.",
        [f"<div>{over_memory(curve).element()}</div>"],
    )


def _images(images: Sequence[Thumbnail]) -> str:
    caption = (
        "The model's arrays at the end of the forward, and the gradient. White is zero where red is"
        " positive and blue is negative; the first row of an array is at the top."
    )
    return figure("What was computed", caption, [gallery(images)])


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    pairs = "\n".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return f"<dl>\n{pairs}\n</dl>"


def _schedule(timeline: Timeline, chain: Chain, platform: Platform) -> list[str]:
    """The picture with steps across: it is the same schedule in all timelines."""
    picture = spacetime(timeline, chain, platform)
    heading, caption = _SCHEDULE
    caption += "" if chain.variables is None else _BY_VARIABLE
    return [figure(heading, caption, [f"<div>{picture.element()}</div>"]), HELP]


def _figures(timelines: dict[str, Timeline], chain: Chain, platform: Platform) -> list[str]:
    """The pictures with time across, each of every timeline, all on the axis of the longest."""
    axis = PlotAxis(max(timeline.makespan for timeline in timelines.values()))
    slow = slow_discards(timelines.values(), platform)
    drawn: dict[str, tuple[Picture, ...]] = {
        name: (
            resources(timeline, platform, axis, discards=slow),
            storage(timeline, chain, platform, axis),
            sweeps(timeline, chain, platform, axis),
        )
        for name, timeline in timelines.items()
    }
    switch = [_SWITCH] if len(timelines) > 1 else []
    return switch + [
        figure(
            *words,
            (
                f'<div class="{name}"><h3>{name}, {seconds_text(timelines[name].makespan)}</h3>\n'
                f"{pictures[place].element()}</div>"
                for name, pictures in drawn.items()
            ),
        )
        for place, words in enumerate(_CAPTIONS)
    ]


_SWITCH: Final = """\
<fieldset><legend>Show</legend>
<label><input type="radio" name="show" id="both" checked> both</label>
<label><input type="radio" name="show" id="only-predicted"> predicted</label>
<label><input type="radio" name="show" id="only-measured"> measured</label>
</fieldset>"""
