// A chart as SVG from what Plotly will draw: shown at once, until Plotly, which takes a second to run,
// draws over it. The same points, colours, ranges and size, so that nothing moves then.

import { colour, plain } from "./plot.js";

const SECONDS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
const DASHES = { dash: "9 6", dot: "3 3", dashdot: "9 3 3 3" };

export function sketch(box, data, look) {
  if (look.xaxis.type === "log") return;
  const { height, margin } = look;
  const width = box.clientWidth;
  const curves = data.filter((each) => each.visible !== "legendonly");
  const lines = curves.filter((each) => !each.yaxis);
  const log = look.yaxis.type === "log";
  const up = (value) => (value === null || (log && value <= 0) ? null : log ? Math.log10(value) : value);
  const dated = curves[0]?.x[0] instanceof Date;
  // The room that Plotly takes below for the texts of the axis.
  const tall = height - margin.t - (dated ? 60 : 46);
  const y = ranged(lines.flatMap((each) => each.y.map(up).map((value) => [value, 0.05 * tall])), tall, look.yaxis);
  if (!Number.isFinite(y[1] - y[0])) return; // the largest numbers: Plotly's chart comes without it
  const rows = log ? powers(y) : even(y, (y[1] - y[0]) / count(tall, 40)).map((at) => [at, text(at, look.yaxis)]);
  const left = Math.max(margin.l, 12 + 6.7 * Math.max(...rows.map(([, label]) => label.length)) + (look.yaxis.title.text ? 18 : 0));
  const wide = width - left - margin.r;
  const x = ranged(curves.flatMap((each) => each.x.map((at) => [at === null ? null : Number(at), each.mode === "markers" ? 0.05 * wide + 4 : 0])), wide, look.xaxis);
  const columns = dated ? times(x, wide) : even(x, (x[1] - x[0]) / count(wide, 80)).map((at) => [at, text(at, look.xaxis)]);
  const across = (at) => (left + (wide * (Number(at) - x[0])) / (x[1] - x[0])).toFixed(1);
  const down = (at) => (margin.t + tall * ((y[1] - at) / (y[1] - y[0]))).toFixed(1);

  const svg = node(null, "svg", { class: "sketch", viewBox: `0 0 ${width} ${height}`, "aria-hidden": true, "font-size": 12, fill: colour("--text") });
  const frame = node(svg, "svg", { x: left, y: margin.t, width: wide, height: tall, viewBox: `${left} ${margin.t} ${wide} ${tall}` });
  const grid = { stroke: colour("--line") };
  for (const [at, label] of columns) {
    node(frame, "path", { ...grid, d: `M${across(at)} 0V${height}` });
    node(svg, "text", { x: across(at), y: margin.t + tall + 15, "text-anchor": "middle" }, label);
  }
  for (const [at, label] of rows) {
    node(frame, "path", { ...grid, d: `M0 ${down(at)}H${width}` });
    node(svg, "text", { x: left - 3, y: Number(down(at)) + 4, "text-anchor": "end" }, label);
  }
  curves.forEach((each) => {
    const { color, dash, width: thick, shape } = each.line ?? each.marker;
    const height = each.yaxis ? (value) => margin.t + tall * (1 - value) : (value) => down(up(value));
    const points = each.x.map((at, n) => (!each.yaxis && up(each.y[n]) === null ? null : [across(at), height(each.y[n])]));
    if (each.mode === "markers") return points.forEach((at, n) => at && mark(frame, at, each.marker ?? { color }, n));
    const fill = each.fillcolor ?? "none";
    const join = (part) => (shape === "hv" ? `M${part[0]}${part.map(([x, y]) => `H${x}V${y}`).join("")}` : `M${part.join("L")}`);
    node(frame, "path", { fill, opacity: each.opacity ?? 1, stroke: color, "stroke-width": thick, "stroke-dasharray": DASHES[dash] ?? "", d: pieces(points).map((part) => join(points.slice(...part))).join("") });
  });
  const title = { "text-anchor": "middle", "font-size": 14 };
  node(svg, "text", { ...title, x: width / 2, y: 20 }, plain(look.title.text));
  node(svg, "text", { ...title, x: left + wide / 2, y: height - 9 }, look.xaxis.title.text);
  node(svg, "text", { ...title, transform: `translate(14 ${margin.t + tall / 2}) rotate(-90)` }, look.yaxis.title.text);
  box.querySelector(".sketch")?.remove();
  box.append(svg);
}

function node(parent, name, attributes, label = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = label;
  parent?.append(made);
  return made;
}

function mark(parent, at, { symbol, color }, n) {
  const shape = Array.isArray(symbol) ? symbol[n] : symbol;
  const shapes = { x: "M-4-4L4 4M4-4L-4 4", "triangle-up": "M-5 4H5L0-5Z", "triangle-down": "M-5-4H5L0 5Z" };
  const d = shapes[shape] ?? "M-3 0A3 3 0 1 1 3 0A3 3 0 1 1-3 0";
  node(parent, "path", { transform: `translate(${at})`, d, fill: color, stroke: color, "stroke-width": shape === "x" ? 3 : 0 });
}

// The parts of a curve between its gaps, as [from, to].
function pieces(points) {
  const parts = [];
  points.forEach((point, n) => {
    if (point === null) return;
    if (n && points[n - 1] !== null) parts.at(-1)[1] = n + 1;
    else parts.push([n, n + 1]);
  });
  return parts;
}

// Plotly's range for values, each with the pixels that it keeps from the edges.
function ranged(values, length, { range, rangemode }) {
  if (range) return range.map(Number);
  const ends = new Map();
  for (const [value, pad] of values) {
    if (value === null) continue;
    const [low, high] = ends.get(pad) ?? [value, value];
    ends.set(pad, [Math.min(low, value), Math.max(high, value)]);
  }
  if (!ends.size) return [-1, 6];
  const all = [...ends].map(([pad, [low, high]]) => ({ pad, low, high }));
  let best = { pixel: -1 };
  for (const a of all) for (const b of all) {
    const pixel = (b.high - a.low) / (length - a.pad - b.pad);
    if (pixel > best.pixel) best = { pixel, low: a.low - pixel * a.pad, high: b.high + pixel * b.pad };
  }
  const { low, high } = best.pixel > 0 ? best : { low: best.low - 1, high: best.high + 1 };
  return [rangemode === "nonnegative" ? Math.max(0, low) : rangemode === "tozero" ? Math.min(0, low) : low, high];
}

const count = (length, least) => Math.min(9, Math.max(4, length / least)) + 1;

function integers(low, high) {
  const first = Math.ceil(low - 1e-9);
  return Array.from({ length: Math.max(0, Math.floor(high + 1e-9) - first + 1) }, (_, n) => first + n);
}

// Multiples of 2, 5 or 10 times a power of ten, at least `rough` apart.
function even([low, high], rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [2, 5, 10].find((times) => times * power >= rough * 0.9999);
  return integers(low / step, high / step).map((n) => Number((n * step).toPrecision(12)));
}

function powers([low, high]) {
  const every = Math.ceil((high - low) / 8);
  const all = integers(Math.floor(low), high).filter((at) => at % every === 0);
  const marks = all.flatMap((at) => (high - low < 1.5 ? [1, 2, 5] : [1]).map((times) => times * 10 ** at));
  return marks.map((value) => [Math.log10(value), text(value, {})]).filter(([at]) => at >= low && at <= high);
}

function times([low, high], wide) {
  const rough = (high - low) / 1000 / count(wide, 80);
  const step = 1000 * (SECONDS.find((each) => each >= rough) ?? 86400 * Math.ceil(rough / 86400));
  const shift = new Date(low).getTimezoneOffset() * 60_000;
  const style = step < 1000 ? { minute: "numeric", second: "numeric", fractionalSecondDigits: 3 } : step < 60_000 ? { timeStyle: "medium" } : step < 86_400_000 ? { timeStyle: "short" } : { month: "short", day: "numeric" };
  const written = new Intl.DateTimeFormat("en-GB", style);
  return integers((low - shift) / step, (high - shift) / step).map((n) => [n * step + shift, written.format(n * step + shift)]);
}

function text(value, { exponentformat }) {
  const size = Math.abs(value);
  if (exponentformat === "SI" && size >= 1000) {
    const power = Math.min(4, Math.floor(Math.log10(size) / 3 + 1e-9));
    return `${Number((value / 1000 ** power).toPrecision(4))}${"kMGT"[power - 1]}`;
  }
  const written = size && (size >= 1e6 || size < 1e-6) ? value.toExponential().replace(/(\.\d{4})\d+/, "$1") : value.toLocaleString("en", { maximumFractionDigits: 9, useGrouping: false });
  return written.replace("-", "−");
}
