// The heat map of a metric or resource: a row for each rank, sorted by node. Not Plotly's, which sets
// inline styles, and of which 512 rows of 300 cells would take a second.

import { get } from "./page.js";
import { shade } from "./shades.js";

const canvas = document.getElementById("heat");
const note = document.getElementById("heat-note");
const form = document.querySelector("form.filters");

// The kind belongs to the metric that is chosen.
form?.elements.metric.addEventListener("change", ({ target }) => {
  form.elements.kind.value = target.selectedOptions[0].dataset.kind;
  form.requestSubmit();
});

const [LEFT, TOP, BOTTOM, RIGHT] = [64, 8, 24, 92];

// Of a cell without a value 0, else from 1, for `low` and below, to this, for `high` and above.
const SHADES = 255;

let heat = null;

// All columns, and of them the first and last that are shown.
let whole = null;
let shown = null;
let asked = 0;

async function load() {
  const { name, kind, attempt, points } = canvas.dataset;
  // As the page asks, so that the server has the answer already.
  const query = new URLSearchParams({ kind, metric: name, heat: "true" });
  if (shown && (shown[0] > 0 || shown[1] < whole.length - 1)) {
    query.set("low", whole[shown[0]]);
    const next = whole[shown[1] + 1];
    if (next !== undefined) query.set("high", kind === "metric" ? next - 1 : next);
  }
  const number = ++asked;
  const answer = await get(`${points}?${query}`);
  if (!answer.ok) throw new Error(String(answer.status));
  const { attempts } = await answer.json();
  const found = attempts.find((each) => String(each.attempt) === attempt);
  // Not what was asked for before the last step.
  if (!found || number !== asked) return;
  const { tracks, columns, heat: map } = found;
  whole ??= columns;
  shown ??= [0, columns.length - 1];
  const shades = Uint8Array.from(atob(map.shades), (each) => each.charCodeAt(0));
  heat = { ...map, tracks, columns, shades };
  heat.image = picture(heat);
}

// Show other columns; at the edges as many.
function zoom(first, last) {
  const size = Math.max(1, Math.min(whole.length - 1, Math.round(last - first)));
  const from = Math.max(0, Math.min(whole.length - 1 - size, Math.round(first)));
  shown = [from, from + size];
  load().then(draw).catch(failed);
}

function move(name) {
  const [first, last] = shown;
  const part = Math.max(1, (last - first) / 4);
  if (name === "in" && last - first > 1) zoom(first + part, last - part);
  if (name === "out") zoom(first - 2 * part, last + 2 * part);
  if (name === "left") zoom(first - part, last - part);
  if (name === "right") zoom(first + part, last + part);
  if (name === "all") zoom(0, whole.length - 1);
}

function failed(error) {
  note.textContent = `The points did not arrive: ${error.message}`;
}

// One pixel for each cell; a cell without a value is clear.
function picture({ tracks, columns, shades }) {
  const colours = Array.from({ length: SHADES + 1 }, (_, n) => (n ? [...shade((n - 1) / (SHADES - 1)), 255] : [0, 0, 0, 0]));
  const image = new OffscreenCanvas(columns.length, tracks.length);
  const pixels = new ImageData(columns.length, tracks.length);
  shades.forEach((each, at) => pixels.data.set(colours[each], 4 * at));
  image.getContext("2d").putImageData(pixels, 0, 0);
  return image;
}

function place(value) {
  if (canvas.dataset.kind === "metric") return String(value);
  return new Date(value * 1000).toLocaleTimeString();
}

const STEPS = Array.from({ length: 48 }, (_, n) => [1, 2, 5][n % 3] * 10 ** Math.floor(n / 3));

// The columns that begin a round step or second, about `most` of them.
function ticks(columns, most) {
  const span = columns.at(-1) - columns[0];
  const step = STEPS.find((each) => span / each <= most) ?? span;
  return columns.flatMap((each, at) =>
    Math.floor(each / step) > Math.floor((columns[at - 1] ?? each - 1) / step) ? [at] : [],
  );
}

function rowName({ node, rank, gpu }) {
  return rank !== null ? `rank ${rank}` : gpu !== null ? `GPU ${gpu}` : `node ${node}`;
}

function draw() {
  const { tracks, columns, low, high, image } = heat;
  const ratio = devicePixelRatio;
  // Whole pixels: no row is lost between two.
  const row = Math.max(1, Math.min(22, Math.round(480 / tracks.length)));
  const [width, height] = [canvas.parentNode.clientWidth - 2, row * tracks.length];
  canvas.width = width * ratio;
  canvas.height = (height + TOP + BOTTOM) * ratio;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.imageSmoothingEnabled = false;
  heat.area = { width: width - LEFT - RIGHT, row };
  pen.drawImage(image, LEFT, TOP, heat.area.width, height);
  pen.fillStyle = getComputedStyle(canvas).color;
  pen.font = `12px ${getComputedStyle(canvas).fontFamily}`;
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  let free = 0;
  // Rows that are high enough have names of their own; else the nodes have.
  const each = row >= 14;
  tracks.forEach((track, n) => {
    const y = TOP + n * row;
    if (!each && ((n && tracks[n - 1].node === track.node) || y < free)) return;
    pen.fillText(each ? rowName(track) : `node ${track.node}`, LEFT - 8, y + (each ? row / 2 : 6));
    free = y + 18;
  });
  pen.textAlign = "center";
  for (const column of ticks(columns, heat.area.width / (canvas.dataset.kind === "metric" ? 60 : 100))) {
    pen.fillText(place(columns[column]), LEFT + ((column + 0.5) / columns.length) * heat.area.width, TOP + height + 14);
  }
  pen.textAlign = "left";
  const scale = Math.min(height, 240);
  for (let y = 0; y < scale; y++) {
    pen.fillStyle = `rgb(${shade(1 - y / scale).join(" ")})`;
    pen.fillRect(width - RIGHT + 16, TOP + y, 12, 1);
  }
  pen.fillStyle = getComputedStyle(canvas).color;
  for (const share of [0, 0.5, 1]) {
    const y = TOP + 6 + (1 - share) * (scale - 12);
    pen.fillText(number(low + share * (high - low)), width - RIGHT + 32, y);
  }
}

function under(event) {
  const { tracks, columns, area } = heat;
  const column = Math.floor(((event.offsetX - LEFT) / area.width) * columns.length);
  const track = tracks[Math.floor((event.offsetY - TOP) / area.row)];
  return track && columns[column] !== undefined ? { track, column } : null;
}

function describe(found) {
  if (!found) return "\u00a0";
  const { track, column } = found;
  const who = track.rank !== null ? `rank ${track.rank}, ` : track.gpu !== null ? `GPU ${track.gpu}, ` : "";
  const step = canvas.dataset.kind === "metric" ? "step " : "";
  return `${who}node ${track.node}, ${step}${place(heat.columns[column])}: ${value(heat.shades[heat.tracks.indexOf(track) * heat.columns.length + column])}`;
}

function value(shade) {
  const { low, high } = heat;
  if (!shade) return "no value";
  if (low === high) return number(low);
  if (shade === 1) return `at most ${number(low)}`;
  if (shade === SHADES) return `at least ${number(high)}`;
  return `about ${number(low + ((shade - 1) / (SHADES - 1)) * (high - low))}`;
}

function number(value) {
  return String(Number(value.toPrecision(3)));
}

let dragged = null;

// The part that is dragged over.
function paint(from, to) {
  draw();
  const pen = canvas.getContext("2d");
  const x = (column) => LEFT + (column / heat.columns.length) * heat.area.width;
  pen.globalAlpha = 0.35;
  pen.fillStyle = getComputedStyle(canvas).color;
  pen.fillRect(x(Math.min(from, to)), TOP, x(Math.abs(to - from) + 1) - LEFT, heat.area.row * heat.tracks.length);
  pen.globalAlpha = 1;
}

function released(event) {
  const found = under(event);
  const from = dragged;
  dragged = null;
  if (from === null || !found) return;
  // The place of a column that is drawn among all.
  const at = (column) => whole.findLastIndex((each) => each <= heat.columns[column]);
  const [first, last] = [from, found.column].sort((a, b) => a - b);
  if (last > first) return zoom(at(first), at(last));
  const { rank } = found.track;
  if (rank !== null) location.assign(`${canvas.dataset.logs}?rank=${rank}&attempt=${canvas.dataset.attempt}`);
}

if (canvas) {
  load().then(() => {
    new ResizeObserver(() => requestAnimationFrame(draw)).observe(canvas.parentNode);
    addEventListener("theme", draw);
    canvas.addEventListener("pointerdown", (event) => event.button === 0 && (dragged = under(event)?.column ?? null));
    canvas.addEventListener("pointermove", (event) => {
      const found = under(event);
      note.textContent = describe(found);
      if (dragged !== null && found) paint(dragged, found.column);
    });
    canvas.addEventListener("pointerup", released);
    document.addEventListener("click", ({ target }) => target.dataset?.heat && move(target.dataset.heat));
  }).catch(failed);
}
