"""The script of a page's pictures: read off values, zoom in and out, by pointer and keys."""

from typing import Final

from ckio.report.pictures.svg import COLUMNS, LEFT, WIDTH, WORDED

_SCRIPT: Final = """\
(() => {
"use strict";
// A picture is WIDTH wide; what lies along its axis begins at LEFT and is COLUMNS wide. Of each
// axis a part is shown, [where it begins, its length] of 1: all pictures of that axis move at once.
const WIDTH = %d, LEFT = %d, COLUMNS = %d, WORDED = %d, CLOSEST = 1e-6;
const part = { time: [0, 1], step: [0, 1] };
const hair = document.getElementById("hair"), chosen = document.getElementById("chosen");
const pictures = [...document.querySelectorAll("svg.picture")];
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

// Where the pointer is along the axis, from 0 to 1 of what is shown.
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
    try { picture.setPointerCapture(event.pointerId); } catch { /* a pointer that is no more */ }
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
"""The script of the page, which needs nothing else."""

STYLE: Final = """\
#help { margin-top: 2rem; }
svg.picture { user-select: none; cursor: crosshair; }
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
"""What the script needs, and a page's own colours: --paper, --quiet and --rule."""

ELEMENTS: Final = """\
<div id="hair" hidden><span></span></div>
<div id="chosen" hidden></div>"""
"""What the script shows at the pointer."""

HELP: Final = """\
<p id="help" hidden>Rest on a shape to see what it is. Drag across a picture to see that part of it
closely, double-click to see all again; or Ctrl and the wheel, and Shift and the wheel to move; or
the keys + &minus; &larr; &rarr; and 0 on a picture that has the focus. Pictures with time across
move together.</p>"""
"""How to use it; seen only where the script runs."""
