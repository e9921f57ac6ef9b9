"""The report as one self-contained HTML page: what was run, what it cost, and the pictures."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

import numpy as np

from ckio.actions.columns import READ, WRITE
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.platform.readable import bytes_text, seconds_text
from ckio.report.pictures import (
    STYLE,
    Picture,
    PlotAxis,
    resources,
    spacetime,
    storage,
    sweeps,
    zoom,
)
from ckio.schedule.occupancy import accesses, occupancies
from ckio.schedule.timeline import Timeline

_SCHEDULE: Final = (
    "The schedule",
    "Steps across, time down; one line for each sweep. Arrows to the right are the forward, arrows"
    " to the left the adjoint. A cross is restart data, by its shape and colour on which level; in"
    " a box it is read. The thin line below it lasts as long as it is stored.",
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
        " limits the plan: with more room there, fewer steps would be computed twice. A level that"
        " stays far below has room to spare. With overlap, what is on its way between the model and"
        " the levels takes memory too.",
    ),
    (
        "The adjoint moving back",
        "Step number over time. The forward climbs to the last step; then the adjoint comes down,"
        " and every climb beneath it computes again what was not stored. Level lines are"
        " checkpoints, as long as they are stored.",
    ),
)


def page(
    *,
    title: str,
    facts: Iterable[tuple[str, str]],
    rows: Sequence[Sequence[str]],
    platform: Platform,
    chain: Chain,
    predicted: Timeline,
    measured: Timeline | None = None,
) -> str:
    """The whole document; it needs no other file, and nothing from the network.

    Parameters
    ----------
    title : str
        The heading.
    facts : pairs of str
        What was run and how it ended, a name and a value each, in reading order.
    rows : sequences of str
        A table of predicted against measured seconds, its heading first and the total last; none
        where it is empty.
    platform, chain
        Where and what; the platform's TOML ends the page.
    predicted, measured : Timeline
        Drawn one below the other on one time axis; without `measured`, the prediction alone.
    """
    timelines = {"predicted": predicted} | ({"measured": measured} if measured is not None else {})
    body = [
        f"<h1>{escape(title)}</h1>",
        _facts(facts),
        *(["<h2>Predicted against measured</h2>", _table(rows, css="wide summed")] if rows else []),
        "<h2>Storage levels</h2>",
        _table(_levels(predicted if measured is None else measured, chain, platform)),
        *_schedule(predicted if measured is None else measured, chain, platform),
        *_figures(timelines, chain, platform),
        "<h2>The platform</h2>",
        "<p>This file, given to <code>--platform</code>, plans for the same machine again.</p>",
        f"<pre>{escape(platform.dumps())}</pre>",
    ]
    return _DOCUMENT.format(
        title=escape(title),
        style=STYLE + _STYLE + zoom.STYLE,
        body="\n".join(body),
        elements=zoom.ELEMENTS,
        script=zoom.SCRIPT,
    )


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    pairs = "\n".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return f"<dl>\n{pairs}\n</dl>"


def _table(rows: Sequence[Sequence[str]], *, css: str = "wide") -> str:
    head, *body = rows
    lines = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in body]
    return (
        f'<div class="{css}"><table>\n<thead><tr>'
        + "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
        + "</tr></thead>\n<tbody>\n"
        + "\n".join(f"<tr>{line}</tr>" for line in lines)
        + "\n</tbody></table></div>"
    )


def _levels(timeline: Timeline, chain: Chain, platform: Platform) -> list[list[str]]:
    """Return the table of the bytes to and from each level."""
    peak = "peak slots" if chain.variables is None else "peak arrays"
    heading = f"level, writes, reads, written, read, busy, {peak}, peak bytes, capacity"
    rows = [heading.split(", ")]
    for place, occupancy in enumerate(occupancies(timeline, chain, platform)):
        level, events = platform.levels[place], accesses(timeline, platform, place)
        writes, reads = events.actions.op == WRITE, events.actions.op == READ
        rows.append(
            [
                level.name,
                f"{np.count_nonzero(writes):,}",
                f"{np.count_nonzero(reads):,}",
                bytes_text(int(events.nbytes[writes].sum())),
                bytes_text(int(events.nbytes[reads].sum())),
                seconds_text(float((events.stop - events.start).sum())),
                f"{occupancy.peak_checkpoints:,}",
                bytes_text(occupancy.peak_bytes),
                "never fills" if level.capacity is None else bytes_text(level.capacity),
            ]
        )
    return rows


def _schedule(timeline: Timeline, chain: Chain, platform: Platform) -> list[str]:
    """The picture with steps across: it is the same schedule in all timelines."""
    picture = spacetime(timeline, chain, platform)
    heading, caption = _SCHEDULE
    caption += "" if chain.variables is None else _BY_VARIABLE
    return [zoom.HELP, _figure(heading, caption, [f"<div>{picture.element()}</div>"])]


def _figure(heading: str, caption: str, pictures: Iterable[str]) -> str:
    return (
        f"<figure>\n<h2>{heading}</h2>\n<figcaption>{caption}</figcaption>\n"
        + "\n".join(pictures)
        + "\n</figure>"
    )


def _figures(timelines: dict[str, Timeline], chain: Chain, platform: Platform) -> list[str]:
    """The pictures with time across, each of every timeline, all on the axis of the longest."""
    axis = PlotAxis(max(timeline.makespan for timeline in timelines.values()))
    drawn: dict[str, tuple[Picture, ...]] = {
        name: (
            resources(timeline, platform, axis),
            storage(timeline, chain, platform, axis),
            sweeps(timeline, chain, platform, axis),
        )
        for name, timeline in timelines.items()
    }
    switch = [_SWITCH] if len(timelines) > 1 else []
    return switch + [
        _figure(
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

_STYLE: Final = """\
:root { color-scheme: light dark; --paper: #fff; --text: #1c1e21; --quiet: #5f656d;
  --rule: #d9dce0; --box: #f3f4f6; }
@media screen and (prefers-color-scheme: dark) { :root {
  --paper: #15181b; --text: #e8eaed; --quiet: #a2a9b2; --rule: #3a3f46; --box: #1f2328; } }
body { margin: 0 auto; padding: 1.5rem 1.25rem 4rem; max-width: 62rem; background: var(--paper);
  color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 1rem; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .5rem; }
h3 { font-size: .85rem; font-weight: 400; color: var(--quiet); margin: .8rem 0 .2rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.5rem; margin: 0; }
dt { color: var(--quiet); }
dd { margin: 0; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem 1.6rem .25rem 0; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th:last-child, td:last-child { padding-right: 0; }
th { font-weight: 400; color: var(--quiet); border-bottom: 1px solid var(--rule); }
.summed tbody tr:last-child td { font-weight: 600; border-top: 1px solid var(--rule); }
@media (max-width: 56rem) { th, td { padding-right: .9rem; } }
figure { margin: 0; }
figcaption, p { max-width: 46rem; margin: 0 0 .5rem; color: var(--quiet); }
svg.picture { display: block; width: 100%; height: auto; }
pre { background: var(--box); padding: 1rem; overflow-x: auto; font-size: .85rem; }
fieldset { position: sticky; top: 0; z-index: 1; margin: 2rem 0 0; padding: .3rem 0; border: 0;
  background: var(--paper); }
legend { float: left; margin-right: 1rem; color: var(--quiet); }
label { margin-right: 1rem; }
@media screen {
  body:has(#only-predicted:checked) .measured, body:has(#only-measured:checked) .predicted {
    display: none; }
}
@media print {
  body { font-size: 12px; padding: 0; }
  fieldset { display: none; }
  th, td { padding-right: 1rem; }
  pre { font-size: 10px; white-space: pre-wrap; }
  figure > div, figcaption, tr { break-inside: avoid; }
  h2, figcaption { break-after: avoid; }
  svg { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""

_DOCUMENT: Final = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
{body}
{elements}
<script>
{script}</script>
</body>
</html>
"""
