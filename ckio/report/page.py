"""The report of a run or a plan as one self-contained HTML page: verdict, pictures and tables."""

from collections.abc import Iterable
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
from ckio.report.pictures.timelines import ON_ITS_WAY
from ckio.schedule.occupancy import occupancies
from ckio.schedule.timeline import Timeline

_SCHEDULE: Final = (
    "The schedule",
    "Each row is one sweep with its start time: arrows to the right are forward steps, arrows to"
    " the left are adjoint steps. A cross is a state that is written, a cross in a box is a state"
    " that is read, and the thin line below it lasts as long as the state is stored.",
)
_BY_VARIABLE: Final = (
    " Here each variable is stored by itself, and one cross stands for all variables that are"
    " written or read at that step. Its tooltip names them: x_4.u is the value of u after step 3,"
    " the last step that changed it."
)
_CAPTIONS: Final = (
    (
        "Activity over time",
        "A filled box means that an action is in progress; a low box is the share of time of many"
        " short actions. Gaps in the computing lane while a level is busy mean that the program"
        " waits for storage.",
    ),
    (
        "Storage over time",
        "Each chart shows the bytes stored on one level; a dashed line is the capacity. A level"
        " that stays at its capacity limits the plan, and a level that stays far below it has space"
        " to spare.",
    ),
    (
        "Steps over time",
        "The forward run climbs to the last step; then the adjoint descends, and each short climb"
        " below it recomputes steps. Horizontal lines are checkpoints while they are stored.",
    ),
)
_WITH_OVERLAP: Final = (
    " The waiting lane shows when the program itself copies data or waits for a transfer.",
    f" The chart {ON_ITS_WAY!r} shows the memory for data between the model and the levels.",
    "",
)
"""Further sentences of these captions, if transfers overlap with computation."""

AGAINST: Final = "Predicted and measured"


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
    origin: str = "",
) -> str:
    """Return the whole page as text. It needs no other file and no network.

    Parameters
    ----------
    title : str
        The heading.
    facts : pairs of str
        Names and values that describe the run and how it ended, in reading order.
    platform, chain
        The machine and the time steps of the run. The page ends with the platform as TOML.
    predicted, measured : Timeline
        The page shows them one below the other on one time axis. Without `measured`, it shows the
        prediction only.
    report : Report, optional
        The seconds of each class of action, predicted and measured. The page shows them as a
        table with a bar for each difference.
    verdict : str
        The paragraph at the top; by default the `headline` of the timeline. The page adds
        whether more memory would help.
    memory : MemoryCurve, optional
        The makespan over the memory for checkpoints; the page shows its picture.
    origin : str
        The last line: when, where and with which versions the page was made.
    """
    shown = predicted if measured is None else measured
    timelines = {"predicted": predicted} | ({"measured": measured} if measured is not None else {})
    levels = occupancies(shown, chain, platform)
    said = verdict or headline(shown, chain, platform)
    more = memory_sentence(levels, chain, platform) if memory is None else memory.text()
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="verdict">{escape(f"{said} {more}".strip())}</p>',
        *_schedule(shown, chain, platform),
        *([] if memory is None else [_memory(memory)]),
        *_figures(timelines, chain, platform),
        "<h2>Run summary</h2>",
        _facts(facts),
        *([] if report is None else [f"<h2>{AGAINST}</h2>", difference_table(report)]),
        "<h2>Storage levels</h2>",
        "<p>GB/s is 10⁹ bytes per second of busy time. Half of the accesses take at most the"
        " median time, and 90 % take at most the time in the last column.</p>",
        table(level_table(shown, levels, chain, platform)),
        "<h2>The platform</h2>",
        "<p>To plan for the same machine again, save this text to a file and pass it to"
        " <code>--platform</code>.</p>",
        f"<pre>{escape(platform.dumps())}</pre>",
        f"<footer>{escape(origin)}</footer>",
    ]
    return document(title, body)


def _memory(curve: MemoryCurve) -> str:
    return figure(
        "Would more memory help?",
        "Each box is the makespan of the best plan with that amount of memory for checkpoints. The"
        " vertical line is the memory of this plan.",
        [f"<div>{over_memory(curve).element()}</div>"],
        lead=escape(curve.text()),
    )


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    pairs = "\n".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return f"<dl>\n{pairs}\n</dl>"


def _schedule(timeline: Timeline, chain: Chain, platform: Platform) -> list[str]:
    """Return the picture of the schedule, which is the same for all timelines, and the help."""
    picture = spacetime(timeline, chain, platform)
    heading, caption = _SCHEDULE
    caption += "" if chain.variables is None else _BY_VARIABLE
    return [figure(heading, caption, [f"<div>{picture.element()}</div>"]), HELP]


def _figures(timelines: dict[str, Timeline], chain: Chain, platform: Platform) -> list[str]:
    """Return the pictures over time. All timelines share the time axis of the longest one."""
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
    overlaps = any(len(timeline.transfers) for timeline in timelines.values())
    return switch + [
        figure(
            heading,
            caption + (more if overlaps else ""),
            (
                f'<div class="{name}"><h3>{name}, {seconds_text(timelines[name].makespan)}</h3>\n'
                f"{pictures[place].element()}</div>"
                for name, pictures in drawn.items()
            ),
        )
        for place, ((heading, caption), more) in enumerate(
            zip(_CAPTIONS, _WITH_OVERLAP, strict=True)
        )
    ]


_SWITCH: Final = """\
<fieldset><legend>Show</legend>
<label><input type="radio" name="show" id="both" checked> both</label>
<label><input type="radio" name="show" id="only-predicted"> predicted</label>
<label><input type="radio" name="show" id="only-measured"> measured</label>
</fieldset>"""
