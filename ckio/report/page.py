"""The report of a run or a plan as one self-contained HTML page: verdict, pictures and tables."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.platform.readable import seconds_text
from ckio.report import HEADER, Report, behind
from ckio.report import table as rows_of
from ckio.report import verdict as error_of
from ckio.report.accesses import level_table
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
    " Here each variable is stored by itself, which the chart of storage shows; the schedule has no"
    " crosses then."
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
        table.
    verdict : str
        The paragraph at the top; by default the `headline` of the timeline. The page adds
        whether more memory would help.
    memory : MemoryCurve, optional
        The makespan over the memory for checkpoints; the page shows its picture.
    origin : str
        The last line: when, where and with which versions the page was made.
    """
    shown = predicted if measured is None else measured
    parts = [
        Shown(f"{name}, {seconds_text(each.makespan)}", each, chain, platform, css=name)
        for name, each in (("predicted", predicted), ("measured", measured))
        if each is not None
    ]
    levels = occupancies(shown, chain, platform)
    said = verdict or headline(shown, chain, platform)
    more = memory_sentence(levels, chain, platform) if memory is None else memory.text()
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="verdict">{escape(f"{said} {more}".strip())}</p>',
        schedule_figure([Shown("", shown, chain, platform)]),
        HELP,
        *([] if memory is None else [_memory(memory)]),
        *([] if measured is None else [_SWITCH]),
        *figures_over_time(parts),
        "<h2>Run summary</h2>",
        _facts(facts),
        *([] if report is None else [f"<h2>{AGAINST}</h2>", *_differences(report)]),
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


def largest_difference(report: Report, /) -> str:
    """Return one sentence that names the class of action with the largest difference."""
    if not report.share:
        return "Every class of action took as long as predicted."
    row, share = report.culprit, report.share
    side = "longer" if row.difference > 0 else "shorter"
    return (
        f"The largest difference is that of {row.name}: {seconds_text(row.measured)} instead of"
        f" {seconds_text(row.predicted)}, {seconds_text(abs(row.difference))} {side} than"
        f" predicted. It explains {share:.0%} of all differences."
    )


def _differences(report: Report) -> Iterator[str]:
    """Yield two sentences and the table, and with overlap a second table for the transfers."""
    error = error_of(report).partition(";")[0]
    yield f"<p>{escape(error[:1].upper() + error[1:])}.</p>"
    yield f'<p class="largest">{escape(largest_difference(report))}</p>'
    yield table([HEADER, *rows_of(report)], css="wide summed")
    if report.transfers:
        yield "<p>Transfers in the background; their seconds are not part of the total:</p>"
        yield table([["transfer", *HEADER[1:]], *behind(report)])


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


@dataclass(frozen=True, slots=True)
class Shown:
    """A timeline that a page shows under a heading; `css` is the class of its pictures."""

    heading: str
    timeline: Timeline
    chain: Chain
    platform: Platform
    css: str = ""


def figures_over_time(parts: Sequence[Shown], /) -> list[str]:
    """Return the pictures over time, one below the other, on the time axis of the longest one."""
    axis = PlotAxis(max(part.timeline.makespan for part in parts))
    slow = frozenset[int]().union(
        *(slow_discards([part.timeline], part.platform) for part in parts)
    )
    drawn: list[tuple[Picture, ...]] = [
        (
            resources(part.timeline, part.platform, axis, discards=slow),
            storage(part.timeline, part.chain, part.platform, axis),
            sweeps(part.timeline, part.chain, part.platform, axis),
        )
        for part in parts
    ]
    overlaps = any(len(part.timeline.transfers) for part in parts)
    return [
        figure(
            heading,
            caption + (more if overlaps else ""),
            [_picture(part, three[place]) for part, three in zip(parts, drawn, strict=True)],
        )
        for place, ((heading, caption), more) in enumerate(
            zip(_CAPTIONS, _WITH_OVERLAP, strict=True)
        )
    ]


def schedule_figure(parts: Sequence[Shown], /) -> str:
    """Return the pictures of schedules, steps across and sweeps down."""
    heading, caption = _SCHEDULE
    if any(part.chain.variables is not None for part in parts):
        caption += _BY_VARIABLE
    pictures = [
        _picture(part, spacetime(part.timeline, part.chain, part.platform)) for part in parts
    ]
    return figure(heading, caption, pictures)


def _picture(part: Shown, picture: Picture) -> str:
    css = f' class="{part.css}"' if part.css else ""
    heading = f"<h3>{escape(part.heading)}</h3>\n" if part.heading else ""
    return f"<div{css}>{heading}{picture.element()}</div>"


_SWITCH: Final = """\
<fieldset><legend>Show</legend>
<label><input type="radio" name="show" id="both" checked> both</label>
<label><input type="radio" name="show" id="only-predicted"> predicted</label>
<label><input type="radio" name="show" id="only-measured"> measured</label>
</fieldset>"""
