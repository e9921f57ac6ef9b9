"""The frame of an HTML page: its style, its script, its tables and its figures.

The script shows the value under the pointer and zooms by pointer and keys. A page needs no other
file and no network.
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from ckio.report.pictures.svg import COLUMNS, LEFT, STYLE, WIDTH, WORDED


def document(title: str, body: Iterable[str], /) -> str:
    """Return a page. The parts of `body` are HTML; `title` is plain text."""
    return _DOCUMENT.format(
        title=escape(title),
        style=STYLE + _STYLE,
        body="\n".join(body),
        script=SCRIPT,
    )


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of plain text as an HTML table. The first row is the heading."""
    head, *body = rows
    lines = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in body]
    return (
        '<div class="wide"><table>\n<thead><tr>'
        + "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
        + "</tr></thead>\n<tbody>\n"
        + "\n".join(f"<tr>{line}</tr>" for line in lines)
        + "\n</tbody></table></div>"
    )


def figure(heading: str, caption: str, pictures: Iterable[str], *, lead: str = "") -> str:
    """Return a heading, the sentence `lead`, pictures, and below them their caption; all HTML."""
    return (
        f"<figure>\n<h2>{heading}</h2>\n"
        + (f"<p>{lead}</p>\n" if lead else "")
        + "\n".join(pictures)
        + f"\n<figcaption>{caption}</figcaption>\n</figure>"
    )


HELP: Final = """\
<p id="help" hidden>Point at a shape to see its name and times. Drag across a picture to enlarge
that part, and double-click to see the whole picture again. Ctrl and the wheel also zoom, and Shift
and the wheel move; in a picture that has the focus, so do the keys + &minus; &larr; &rarr; and 0.
All pictures with a time axis zoom together.</p>"""
"""Instructions for the reader. The script makes them visible, so they are hidden without it."""

_STYLE: Final = """\
:root { color-scheme: light dark; --paper: #fff; --text: #1c1e21; --quiet: #5f656d;
  --rule: #d9dce0; --box: #f3f4f6; }
@media screen and (prefers-color-scheme: dark) { :root {
  --paper: #15181b; --text: #e8eaed; --quiet: #a2a9b2; --rule: #3a3f46; --box: #1f2328; } }
body { margin: 0 auto; padding: 1.5rem 1.25rem 4rem; max-width: 62rem; background: var(--paper);
  color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 1rem; }
h2 { font-size: 1.2rem; margin: 1.6rem 0 .4rem; }
.verdict { font-size: 1.1rem; color: var(--text); max-width: none; }
footer { margin-top: 2rem; font-size: .85rem; color: var(--quiet); }
h3 { font-size: .85rem; font-weight: 400; color: var(--quiet); margin: .8rem 0 .2rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.5rem; margin: 0; }
dt { color: var(--quiet); }
dd { margin: 0; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem 1.2rem .25rem 0; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th:last-child, td:last-child { padding-right: 0; }
th { font-weight: 400; color: var(--quiet); border-bottom: 1px solid var(--rule); }
.summed tbody tr:last-child td { font-weight: 600; border-top: 1px solid var(--rule); }
@media (max-width: 56rem) { th, td { padding-right: .9rem; } }
figure { margin: 0; }
figcaption, p { max-width: 46rem; margin: 0 0 .5rem; color: var(--quiet); }
figcaption { margin-top: .5rem; }
svg.picture { display: block; width: 100%; height: auto; }
svg.difference { display: inline-block; width: 8rem; height: .9rem; vertical-align: middle; }
table.differences td:last-child { text-align: left; padding-left: 1.2rem; }
tr.largest td { font-weight: 600; }
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
  h2 { break-after: avoid; }
  figcaption { break-before: avoid; }
  svg { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
svg.picture:has(.plot) { user-select: none; cursor: crosshair; }
.picture .plot.zoomed { overflow: hidden; }
.picture .plot.zoomed path { vector-effect: non-scaling-stroke; }
.picture .point > path, .picture .tip > path { transform-box: fill-box;
  transform: scaleX(var(--thin, 1)); transform-origin: center; }
.picture .to-right > path { transform-origin: right; }
.picture .to-left > path { transform-origin: left; }
#hair { position: fixed; top: 0; bottom: 0; width: 0; border-left: 1px dotted var(--quiet);
  pointer-events: none; }
#hair span { position: absolute; left: .5rem; margin-top: -2rem; padding: 0 .4rem;
  white-space: nowrap; font-size: .8rem; background: var(--paper); border: 1px solid var(--rule);
  border-radius: 3px; }
#chosen { position: fixed; background: var(--quiet); opacity: .25; pointer-events: none; }
@media print { #hair, #chosen, #help { display: none; } }
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
<div id="hair" hidden><span></span></div>
<div id="chosen" hidden></div>
<script>
{script}</script>
</body>
</html>
"""

_SCRIPT: Final = """\
(() => {
"use strict";
// A picture is WIDTH wide; its plot begins at LEFT and is COLUMNS wide. `part` gives the visible
// part of each axis, [begin, length], as fractions of 1. All pictures of an axis share it.
const WIDTH = %d, LEFT = %d, COLUMNS = %d, WORDED = %d, CLOSEST = 1e-6;
const part = { time: [0, 1], step: [0, 1] };
const hair = document.getElementById("hair"), chosen = document.getElementById("chosen");
const pictures = [...document.querySelectorAll("svg.picture:has(.plot)")];
const axisOf = (picture) => picture.querySelector(".plot").dataset.axis;

function show(axis, begin, length) {
  length = Math.min(1, Math.max(CLOSEST, length));
  begin = Math.min(1 - length, Math.max(0, begin));
  part[axis] = [begin, length];
  for (const plot of document.querySelectorAll(`.plot[data-axis=${axis}]`)) {
    const box = plot.viewBox.baseVal;
    box.x = LEFT + COLUMNS * begin;
    box.width = COLUMNS * length;
    plot.classList.toggle("zoomed", length < 1);
    plot.style.setProperty("--thin", length);
  }
  document.querySelectorAll(`.ruler[data-axis=${axis}]`).forEach(rule);
}

function rule(ruler) {
  const { axis, until, top, bottom, base } = ruler.dataset, [begin, length] = part[axis];
  const span = until * length, power = 10 ** Math.floor(Math.log10(span / 8));
  let stride = [1, 2, 5, 10].find((nice) => nice * power >= span / 8) * power;
  if (axis == "step") stride = Math.max(1, stride);
  const digits = Math.max(0, -Math.floor(Math.log10(stride) + 1e-9));
  const lines = [], labels = [], last = (until * (begin + length) * (1 + 1e-12)) / stride;
  const form = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  for (let k = Math.ceil((until * begin) / stride - 1e-9) + 0; k <= last; k++) {
    const x = LEFT + (COLUMNS * ((k * stride) / until - begin)) / length;
    lines.push(`M${x.toFixed(1)} ${top}V${bottom}`);
    if (x > LEFT + COLUMNS - WORDED) continue;
    const label = document.createElementNS(ruler.namespaceURI, "text");
    label.setAttribute("class", "faint middle");
    label.setAttribute("x", x.toFixed(1));
    label.setAttribute("y", base);
    label.textContent = (k * stride).toLocaleString("en", form);
    labels.push(label);
  }
  const grid = ruler.firstElementChild;
  grid.setAttribute("d", lines.join(""));
  ruler.replaceChildren(grid, ...labels);
}

// The place of the pointer along the axis: 0 and 1 are the ends of the visible part.
function along(picture, x) {
  const box = picture.getBoundingClientRect();
  return (((x - box.left) / box.width) * WIDTH - LEFT) / COLUMNS;
}

function zoom(axis, factor, at) {
  const [begin, length] = part[axis], next = Math.min(1, Math.max(CLOSEST, length * factor));
  show(axis, begin + at * (length - next), next);
}

function move(axis, by) {
  const [begin, length] = part[axis];
  show(axis, begin + by * length, length);
}

const KEYS = {
  "+": (axis) => zoom(axis, 0.5, 0.5), "=": (axis) => zoom(axis, 0.5, 0.5),
  "-": (axis) => zoom(axis, 2, 0.5), "0": (axis) => show(axis, 0, 1),
  ArrowLeft: (axis) => move(axis, -0.25), ArrowRight: (axis) => move(axis, 0.25),
};
let from = null;

for (const picture of pictures) {
  const axis = axisOf(picture), ruler = picture.querySelector(".ruler");
  const unit = ruler.nextElementSibling.textContent.replace(/^time .(.*).$/, "$1");
  const inside = (event) => Math.min(1, Math.max(0, along(picture, event.clientX)));
  picture.tabIndex = 0;

  picture.addEventListener("pointermove", (event) => {
    const at = along(picture, event.clientX), [begin, length] = part[axis];
    hair.hidden = at < 0 || at > 1;
    hair.style.left = event.clientX + "px";
    const number = ruler.dataset.until * (begin + at * length), label = hair.firstElementChild;
    label.textContent =
      axis == "step" ? `step ${Math.floor(number)}` : `${Number(number.toPrecision(6))} ${unit}`;
    label.style.top = event.clientY + "px";
    if (from === null) return;
    const box = picture.getBoundingClientRect(), ends = [from, inside(event)];
    const left = Math.min(...ends), right = Math.max(...ends);
    chosen.hidden = false;
    Object.assign(chosen.style, {
      left: `${box.left + ((LEFT + COLUMNS * left) / WIDTH) * box.width}px`,
      width: `${(((right - left) * COLUMNS) / WIDTH) * box.width}px`,
      top: `${box.top}px`, height: `${box.height}px`,
    });
  });
  picture.addEventListener("pointerleave", () => { if (from === null) hair.hidden = true; });
  picture.addEventListener("pointerdown", (event) => {
    if (event.button != 0 || event.pointerType == "touch") return;
    const at = along(picture, event.clientX);
    if (at < 0 || at > 1) return;
    from = at;
    try { picture.setPointerCapture(event.pointerId); } catch { /* the pointer is gone */ }
  });
  picture.addEventListener("pointerup", (event) => {
    if (from === null) return;
    const to = inside(event), [begin, length] = part[axis];
    const left = Math.min(from, to), width = Math.abs(to - from);
    from = null;
    chosen.hidden = true;
    if (width > 0.005) show(axis, begin + left * length, width * length);
  });
  picture.addEventListener("pointercancel", () => { from = null; chosen.hidden = true; });
  picture.addEventListener("dblclick", () => show(axis, 0, 1));
  picture.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    const turn = event.deltaY || event.deltaX;
    if (event.ctrlKey) zoom(axis, 2 ** (turn / 200), inside(event));
    else move(axis, turn / 1000);
  }, { passive: false });
  picture.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS)) return;
    event.preventDefault();
    KEYS[event.key](axis);
  });
}
document.getElementById("help").hidden = pictures.length == 0;
})();
"""

SCRIPT: Final = _SCRIPT % (WIDTH, LEFT, COLUMNS, WORDED)
"""The script of the page, which loads nothing."""
