(() => {
"use strict";
// A picture is WIDTH wide; its plot begins at LEFT and is COLUMNS wide. `part` gives the visible
// part of each axis, [begin, length], as fractions of 1. All pictures of an axis share it.
const CLOSEST = 1e-6;
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
