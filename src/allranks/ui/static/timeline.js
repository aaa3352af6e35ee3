// One time axis on the overview: curves of metrics and resources below what the job did, and a zoom
// that all lanes share. Places are from 0 to 1000; to zoom is to show another part of them.

import { get } from "./page.js";

const [WIDE, HEIGHT, POINTS] = [1000, 40, 400];
const find = (name) => document.querySelector(`#timeline ${name}`);
// When the curves were drawn, how many milliseconds until they may be again, and what waits for it.
let [last, pause, timer] = [0, 2000, null];
// What is shown, in seconds since the epoch; null: the whole.
let shown = null;
const [kind, from, to] = (new URLSearchParams(location.search).get("range") ?? "").split(":");
if (kind === "time" && Number(from) < Number(to)) shown = [Number(from), Number(to)];

function span() {
  const { begin, seconds } = find(".timeline").dataset;
  return { begin: Number(begin), seconds: Number(seconds) };
}

function ago(seconds) {
  if (seconds < 60) return `${Number(seconds.toPrecision(3))} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

function amount(value, { kind, name }) {
  if (kind === "metric") return String(Number(value.toPrecision(4)));
  if (/load|cpu/.test(name)) return `${Number(value.toPrecision(3))} %`;
  const power = Math.max(0, Math.min(4, Math.floor(Math.log10(value || 1) / 3)));
  return `${Number((value / 1000 ** power).toPrecision(3))} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}

// Times, middle, least and greatest of a curve. Of several series their mean and range.
async function curveOf([kind, name, count]) {
  const metric = encodeURIComponent(name);
  const across = kind === "resource" || count > 1;
  const query = across ? `ranks.json?metric=${metric}&kind=${kind}&most=${POINTS}` : `metrics.json?metric=${metric}&most=${POINTS}`;
  const answer = await get(`${location.pathname}/${query}`);
  if (!answer.ok) return [];
  const found = await answer.json();
  const rows = across
    ? found.attempts.map(({ times, mean, least, greatest }) => times.map((at, n) => [at, mean[n], least[n], greatest[n]]))
    : found.series.map(({ points }) => points.map(([, at, value]) => [at, value, value, value]));
  return rows.map((each) => each.filter((row) => row.every(Number.isFinite)));
}

function element(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function path(d, name) {
  return element("path", { d, class: name });
}

// How far a value is from low to high; halves, because the greatest numbers have no difference.
function share(value, low, high) {
  return (value / 2 - low / 2) / (high / 2 - low / 2 || 1);
}

function drawCurve(svg, attempts) {
  const { begin, seconds } = span();
  const rows = attempts.flat();
  const low = rows.reduce((least, row) => Math.min(least, row[2]), Infinity);
  const high = rows.reduce((most, row) => Math.max(most, row[3]), -Infinity);
  const x = (at) => ((WIDE * (at - begin)) / seconds).toFixed(2);
  const y = (value) => (HEIGHT - 3 - (HEIGHT - 6) * share(value, low, high)).toFixed(3);
  svg.replaceChildren(
    ...attempts.filter((each) => each.length).flatMap((each) => [
      path(`M${each.map((row) => `${x(row[0])} ${y(row[3])}`).join("L")}L${each.toReversed().map((row) => `${x(row[0])} ${y(row[2])}`).join("L")}Z`, "band"),
      path(`M${each.map((row) => `${x(row[0])} ${y(row[1])}`).join("L")}${each.length > 1 ? "" : "h0.01"}`, "curve"),
    ]),
  );
  svg.rows = rows.sort((a, b) => a[0] - b[0]);
  // A job that was too short for a measurement has no lane for it.
  svg.toggleAttribute("hidden", !rows.length);
  svg.previousElementSibling.hidden = !rows.length;
  svg.place = y;
}

function laneOf([kind, name]) {
  const lanes = find(".curves");
  const there = [...lanes.querySelectorAll("svg")].find(({ dataset }) => dataset.kind === kind && dataset.name === name);
  if (there) return there;
  const label = document.createElement("span");
  label.className = "lane-name";
  label.title = name;
  label.append(kind === "metric" ? name : name.replaceAll("_", " "), " ", document.createElement("small"));
  const svg = element("svg", { class: "lane tall", preserveAspectRatio: "none", role: "img", "aria-label": `${name} over time`, "data-kind": kind, "data-name": name });
  lanes.append(label, svg);
  return svg;
}

async function draw() {
  const begun = performance.now();
  const curves = find(".timeline") ? await drawLanes() : new Map();
  // The shape of each metric of the table: of several ranks that of their mean.
  for (const cell of document.querySelectorAll("#metrics [data-metric]")) {
    const { metric, ranks } = cell.dataset;
    drawShape(cell, curves.get(metric) ?? (await curveOf(["metric", metric, Number(ranks)])));
  }
  // Of hundreds of ranks a curve is work for the server.
  pause = Math.max(2000, 20 * (performance.now() - begun));
}

// The curves of the metrics that have a lane.
async function drawLanes() {
  find(".timetools").hidden = false;
  view();
  const curves = JSON.parse(find(".timeline").dataset.curves);
  // In their order, whichever answers first.
  const lanes = curves.map(laneOf);
  const drawn = curves.map(async (curve, n) => {
    const attempts = await curveOf(curve);
    drawCurve(lanes[n], attempts);
    return [curve[0] === "metric" ? curve[1] : null, attempts];
  });
  const byMetric = new Map(await Promise.all(drawn));
  view();
  values(null);
  return byMetric;
}

function drawShape(cell, attempts) {
  const values = (attempts.at(-1) ?? []).map((row) => row[1]);
  if (values.length < 2) return;
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const x = (n) => ((150 * n) / (values.length - 1)).toFixed(1);
  const y = (value) => (24 - 22 * share(value, low, high)).toFixed(1);
  const svg = element("svg", { class: "spark", viewBox: "0 0 150 26", width: 150, height: 26, "aria-hidden": true });
  svg.append(path(`M${values.map((value, n) => `${x(n)} ${y(value)}`).join("L")}`, ""));
  cell.replaceChildren(svg);
}

// The top and height of what a lane has between two moments.
function heightOf(svg, low, high) {
  const rows = (svg.rows ?? []).filter(([at]) => at >= low && at <= high);
  if (!shown || !rows.length) return [0, HEIGHT];
  const top = Number(svg.place(rows.reduce((most, row) => Math.max(most, row[3]), -Infinity)));
  const bottom = Number(svg.place(rows.reduce((least, row) => Math.min(least, row[2]), Infinity)));
  const edge = Math.max(0.01, (bottom - top) / 12);
  return [top - edge, bottom - top + 2 * edge];
}

// Show the chosen part in all lanes, in the address and in the link to the charts.
function view() {
  const { begin, seconds } = span();
  const [low, high] = shown ?? [begin, begin + seconds];
  for (const svg of document.querySelectorAll("#timeline .lane")) {
    const [top, height] = svg.classList.contains("tall") ? heightOf(svg, low, high) : [0, 24];
    svg.setAttribute("viewBox", `${(WIDE * (low - begin)) / seconds} ${top} ${(WIDE * (high - low)) / seconds} ${height}`);
  }
  const query = new URLSearchParams(location.search);
  query.delete("range");
  if (shown) query.set("range", `time:${low.toFixed(3)}:${high.toFixed(3)}`);
  history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
  const charts = document.querySelector("#metrics p a");
  if (charts) charts.search = shown ? `?x=time&range=${query.get("range")}` : "";
  say(`From ${ago(low - begin)} to ${ago(high - begin)} after the submission.`);
}

function say(text) {
  find(".timetools [role=status]").textContent = text;
}

function zoom(low, high) {
  const { begin, seconds } = span();
  const size = Math.min(seconds, Math.max(0.05, high - low));
  const start = Math.max(begin, Math.min(begin + seconds - size, low));
  shown = size >= seconds ? null : [start, start + size];
  view();
}

function move(name) {
  const { begin, seconds } = span();
  const [low, high] = shown ?? [begin, begin + seconds];
  const part = (high - low) / 4;
  if (name === "in") zoom(low + part, high - part);
  if (name === "out") zoom(low - 2 * part, high + 2 * part);
  if (name === "left") zoom(low - part, high - part);
  if (name === "right") zoom(low + part, high + part);
  if (name === "all") zoom(begin, begin + seconds);
}

// The values at a moment; else the last ones of metrics, and the most that was used of resources.
function values(moment) {
  for (const svg of document.querySelectorAll("#timeline .tall")) {
    const rows = svg.rows ?? [];
    if (moment === null && rows.length && svg.dataset.kind === "resource") {
      const most = rows.reduce((most, row) => Math.max(most, row[3]), -Infinity);
      svg.previousElementSibling.lastChild.textContent = `max ${amount(most, svg.dataset)}`;
      continue;
    }
    const after = moment === null ? rows.length - 1 : rows.findIndex(([at]) => at >= moment);
    const row = rows[after < 0 ? rows.length - 1 : after];
    if (row) svg.previousElementSibling.lastChild.textContent = amount(row[1], svg.dataset);
  }
}

// The moment below the pointer, if it is on a lane.
function momentAt(event) {
  const lane = event.target.closest?.("#timeline .lane");
  if (!lane) return null;
  const { begin, seconds } = span();
  const [low, high] = shown ?? [begin, begin + seconds];
  const { left, width } = lane.getBoundingClientRect();
  return low + ((event.clientX - left) / width) * (high - low);
}

// A line at the pointer, or the part that is dragged over.
function paint(from, to) {
  const timeline = find(".timeline");
  const brush = find(".time-brush") ?? timeline.appendChild(Object.assign(document.createElement("div"), { className: "time-brush" }));
  const { begin, seconds } = span();
  const [low, high] = shown ?? [begin, begin + seconds];
  const lane = find(".lane").getBoundingClientRect();
  const offset = lane.left - timeline.getBoundingClientRect().left;
  const x = (moment) => offset + ((moment - low) / (high - low)) * lane.width;
  brush.style.left = `${x(Math.min(from, to))}px`;
  brush.style.width = `${Math.max(1, Math.abs(x(to) - x(from)))}px`;
  brush.hidden = false;
}

let dragged = null;
document.addEventListener("pointerdown", (event) => {
  if (event.button === 0 && !event.target.closest("#timeline a")) dragged = momentAt(event);
});
document.addEventListener("pointermove", (event) => {
  const moment = momentAt(event);
  if (moment === null) return;
  paint(dragged ?? moment, moment);
  values(moment);
  say(`${ago(moment - span().begin)} after the submission, ${new Date(moment * 1000).toLocaleString()}`);
});
document.addEventListener("pointerup", (event) => {
  const moment = momentAt(event);
  const { seconds } = find(".timeline") ? span() : {};
  if (dragged !== null && moment !== null && Math.abs(moment - dragged) > seconds / 1000) zoom(Math.min(dragged, moment), Math.max(dragged, moment));
  dragged = null;
});
document.addEventListener("click", (event) => event.target.dataset?.move && move(event.target.dataset.move));
document.addEventListener("dblclick", (event) => momentAt(event) !== null && move("all"));
addEventListener("news", () => {
  if (find(".timetools")?.hidden) find(".timetools").hidden = false;
  if (find(".timeline")) view();
  // Also after the last news.
  timer ??= setTimeout(() => {
    timer = null;
    last = performance.now();
    draw();
  }, Math.max(0, last + pause - performance.now()));
});
draw();
