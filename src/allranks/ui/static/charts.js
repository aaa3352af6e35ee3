// Charts of metrics and resources, drawn by Plotly.

import { meanAndSpread, runs, runStyle } from "./compared.js";
import { area, colour, config, escape, json, layout, marks, number, show, style } from "./plot.js";

// Four for each pixel: see `thin` of the server.
const POINTS = 4000;
const form = document.getElementById("charts-form");
const charts = document.getElementById("charts");

// An exponential average that does not begin at zero.
function smoothed(values, weight) {
  if (!weight) return values;
  let last = 0;
  let sum = 0;
  return values.map((each) => {
    if (each === null) return null;
    last = last * weight + (1 - weight) * each;
    sum = sum * weight + (1 - weight);
    return last / sum;
  });
}

function traces(several, given) {
  const grouped = [];
  const found = [];
  let drawn = 0;
  for (const { label, series, run } of several) {
    const [name, jobs, runColour] = run ?? [label, []];
    const legendrank = run ? runs.indexOf(run) : 0;
    for (const [place, each] of series.entries()) {
      if (/^\d+$/.test(given.rank) && each.rank !== null && String(each.rank) !== given.rank) continue;
      const start = each.points[0]?.[1] ?? 0;
      const x = each.points.map(([step, at]) =>
        given.x === "step" ? step : given.x === "time" ? new Date(at * 1000) : at - start,
      );
      const y = smoothed(each.points.map((point) => number(point[2])), given.smooth);
      if (jobs.length > 1) {
        const lowest = Math.min(...series.map(({ rank }) => rank ?? 0));
        if ((each.rank ?? 0) === lowest) grouped.push({ label, x, y });
        continue;
      }
      const attempt = each.attempt > 1 ? `, attempt ${each.attempt}` : "";
      // The title has the metric's name, and a run its own.
      const own = [each.name, `${each.name}/rank_${each.rank}`].includes(each.key);
      const rank = each.rank === null || !own ? each.key : `rank ${each.rank}`;
      const part = run && own && series.length === 1 ? "" : rank;
      const text = escape([name, part].filter(Boolean).join(" ") + attempt);
      const look = run ? runStyle(runColour, place) : style(drawn++);
      found.push({
        x,
        y,
        name: text,
        series: each.id,
        legendrank,
        customdata: each.points.map((point) => point[1]),
        mode: each.points.length === 1 ? "markers" : "lines",
        line: look,
        type: "scatter",
        connectgaps: false,
      });
      if (given.smooth) {
        // What was smoothed, faint and below its curve.
        const raw = { x, y: each.points.map((point) => number(point[2])), meta: "raw", opacity: 0.3, hoverinfo: "skip", showlegend: false };
        found.splice(-1, 0, { ...found.at(-1), ...raw, customdata: undefined, line: { ...look, width: 1 } });
      }
      const odd = marks(text, x, each.points.map((point) => point[2]), each.points.map((point) => point[0]), look);
      found.push(...odd.map((mark) => ({ ...mark, legendrank })));
    }
  }
  for (const [legendrank, [name, jobs, runColour]] of (runs ?? []).entries()) {
    // The attempts of a job are one curve.
    const curves = jobs.map((job) => grouped.filter(({ label }) => label === job)).filter((parts) => parts.length);
    const whole = curves.map((parts) => ({ x: parts.flatMap(({ x }) => x), y: parts.flatMap(({ y }) => y) }));
    if (!whole.length) continue;
    for (const each of meanAndSpread(escape(name), runColour, whole)) found.push({ ...each, legendrank });
  }
  return found.sort((a, b) => a.legendrank - b.legendrank);
}

// The mean of all ranks, between the least and the greatest, and the ranks that differ.
function bands({ attempts }, given) {
  const found = [];
  attempts.forEach((each, at) => {
    const start = each.times[0];
    const places = { step: each.places, time: each.times.map((t) => new Date(t * 1000)), elapsed: each.times.map((t) => t - start) };
    const x = places[given.x];
    const attempt = attempts.length > 1 ? `, attempt ${each.attempt}` : "";
    const shared = { x, type: "scatter", mode: "lines" };
    const edge = { ...shared, line: { width: 1, color: `${style(at).color}66` }, hoverinfo: "skip", showlegend: false };
    const who = (number) => label(each.tracks[number]);
    const text = x.map((_, n) =>
      each.mean[n] === null ? "" : `least ${each.least[n]} (${who(each.least_track[n])}), greatest ${each.greatest[n]} (${who(each.greatest_track[n])})`,
    );
    found.push(
      { ...edge, y: each.least, name: "least" },
      { ...edge, y: each.greatest, name: "greatest" },
      area(x, each.least, each.greatest, style(at).color),
      { ...shared, y: smoothed(each.mean, given.smooth), text, customdata: each.times, name: `mean of ${each.tracks.length} ${kindOf(each.tracks)}, and range${attempt}`, meta: "band", line: { ...style(at), width: 2 }, hovertemplate: "%{y}; %{text}" },
    );
    const odd = each.tracks.map((track, n) => [track, n]).filter(([track]) => track.outlier);
    odd.sort(([a], [b]) => Math.abs(b.difference) - Math.abs(a.difference));
    const columns = each.columns.map((place) => x[each.places.indexOf(place)] ?? null);
    for (const [track] of odd.slice(0, NAMED)) {
      found.push({ ...shared, x: columns, y: track.cells, name: `${label(track)}${attempt}`, line: style(found.length) });
    }
    for (const [value, dy] of [["NaN", 0.03], ["-Infinity", 0.03], ["Infinity", 0.97]]) {
      const these = each.odd.filter((point) => point[2] === value);
      if (!these.length) continue;
      found.push({
        x: these.map(([place]) => x[before(each.places, place)]),
        y: these.map(() => dy),
        text: these.map(([place, number]) => `${value} at step ${place}, ${who(number)}`),
        name: value, hovertemplate: "%{text}<extra></extra>", mode: "markers", type: "scatter", yaxis: "y2", showlegend: false,
        marker: { symbol: value === "NaN" ? "x" : value === "Infinity" ? "triangle-up" : "triangle-down", color: colour("--bad"), size: 9 },
      });
    }
  });
  return found;
}

const isLogX = (given) => given.logx && given.x !== "time";

// The range of a vertical axis without the farthest values, if they are far.
function usualRange(data, log) {
  const drawn = data.filter((each) => !each.yaxis && !each.fill);
  const raw = drawn.filter((each) => each.meta === "raw");
  const values = (raw.length ? raw : drawn).flatMap(({ y }) => y).filter((y) => y !== null && (!log || y > 0));
  const sorted = values.map((y) => (log ? Math.log10(y) : y)).sort((a, b) => a - b);
  const at = (share) => sorted[Math.round(share * (sorted.length - 1))];
  const [low, high] = [at(0.05), at(0.95)];
  const edge = (high - low) * 0.1;
  return high > low ? { range: [Math.max(at(0), low - edge), Math.min(at(1), high + edge)], autorange: false } : {};
}

function kindOf([{ rank, gpu }]) {
  return rank !== null ? "ranks" : gpu !== null ? "GPUs" : "nodes";
}

// Ranks that a band names.
const NAMED = 5;

function before(places, place) {
  const at = places.findIndex((each) => each > place);
  return at < 0 ? places.length - 1 : Math.max(0, at - 1);
}

export function label({ node, rank, gpu }) {
  return rank !== null ? `rank ${rank}` : gpu !== null ? `node ${node} GPU ${gpu}` : `node ${node}`;
}

function options() {
  const data = new FormData(form);
  return {
    find: String(data.get("find") ?? "").toLowerCase(),
    smooth: Number(data.get("smooth") ?? 0),
    x: String(data.get("x") ?? "step"),
    rank: String(data.get("rank") ?? ""),
    log: data.has("log"),
    logx: data.has("logx"),
    usual: data.has("usual"),
  };
}

const AXES = { step: "step", time: "time", elapsed: "seconds since the first value" };

// The points of a metric of one job, or of several, all or of a time span.
async function points(name, span, most = POINTS) {
  const between = span ? `&begin=${span.begin}&end=${span.end}` : "";
  const query = `metrics.json?most=${most}&metric=${encodeURIComponent(name)}${between}`;
  if (!runs) {
    const { series } = await json(charts.dataset.points + query.slice("metrics.json".length));
    return [{ label: "", series }];
  }
  return Promise.all(
    runs.flatMap((run) =>
      run[1].map(async (job) => {
        const { series } = await json(`/ui/jobs/${encodeURIComponent(job)}/${query}`);
        return { label: job, run, series };
      }),
    ),
  );
}

// Of many ranks their mean and range is drawn, unless each is asked for.
const MANY = 8;
// How many ranks have a metric. A live part of the page.
const rankCount = (name) => JSON.parse(document.getElementById("names").dataset.ranks ?? "{}")[name] ?? 0;

function isBand(name, given) {
  if (!charts.dataset.across || /^\d+$/.test(given.rank)) return false;
  return given.rank === "band" || (!given.rank && rankCount(name) > MANY);
}

async function across(name, span) {
  const between = span ? `&begin=${span.begin}&end=${span.end}` : "";
  return json(`${charts.dataset.across}?metric=${encodeURIComponent(name)}${between}`);
}

const loaded = new Map();
// When each of them was asked for as a whole, and those to which points have been added since.
const begun = new Map();
const stale = new Set();
// Seconds by which points of a series may come later than those of others, and milliseconds after
// which all are asked for again, with those that came later.
const [LATE, WHOLE] = [30, 300_000];

// Add the points that came since to series. `at` is the place of its time in a point.
async function grow(series, at, ask) {
  const ends = series.map(({ points }) => points.at(-1)?.[at] ?? 0);
  const newest = Math.max(0, ...ends);
  const begin = Math.min(newest, ...ends.filter((each) => each > newest - LATE));
  for (const fresh of await ask({ begin, end: 1e12 })) {
    const own = series.find(({ id }) => id === fresh.id);
    const last = own?.points.at(-1);
    const isNew = (point) => point[at] > last[at] || (point[at] === last[at] && point[0] > last[0]);
    if (own) own.points.push(...(last ? fresh.points.filter(isNew) : fresh.points));
    else series.push(fresh);
  }
}

function isFull(key, series) {
  const old = Date.now() - (begun.get(key) ?? 0) > WHOLE;
  return old || series.some(({ points }) => points.length > 2 * POINTS);
}

async function load(key, name, banded, most) {
  const news = stale.delete(key);
  const [of] = loaded.get(key)?.length === 1 ? loaded.get(key) : [];
  if (loaded.has(key) && !news) return;
  if (of && !banded && !runs && !isFull(key, of.series)) {
    await grow(of.series, 1, async (span) => (await points(name, span, most))[0].series);
    return;
  }
  begun.set(key, Date.now());
  loaded.set(key, await (banded ? across(name) : points(name, null, most)));
}
// What is looked at closely: by metric, a time span and its points.
const close = new Map();

async function draw(box) {
  const name = box.dataset.name;
  const given = options();
  const banded = isBand(name, given);
  const key = `${banded} ${name}`;
  const most = Math.max(100, Math.min(POINTS, Math.floor((10 * POINTS) / Math.max(1, rankCount(name)))));
  await load(key, name, banded, most);
  const data = banded
    ? bands(close.get(key) ?? loaded.get(key), given)
    : traces(withClose(loaded.get(key), close.get(key)), given);
  const kind = `${given.x} ${given.log} ${given.logx} ${given.usual}`;
  for (const each of data) if (hiddenRuns.has(each.name)) each.visible = "legendonly";
  const look = ranged(layout(name, AXES[given.x], given.log), isLogX(given) ? "" : given.x);
  if (isLogX(given)) look.xaxis.type = "log";
  if (given.usual) look.yaxis = { ...look.yaxis, ...usualRange(data, given.log) };
  await show(box, data, look, config(name, () => rawRows(box)), kind);
  if (!ready(box)) return;
  box.on("plotly_relayout", (change) => {
    follow(box, options().x, change);
    zoomed(box, change).catch(failed(box));
  });
}

// Whether Plotly draws here for the first time.
function ready(box) {
  const first = !box.classList.contains("ready");
  box.classList.add("ready");
  return first;
}

// The part of the axis that all charts of one kind show: zoom in one, and the others follow. It is
// in the address, as `time:FROM:TO` in seconds, `step:…` or `elapsed:…`.
let shared = null;
const [kind, from, to] = (new URLSearchParams(location.search).get("range") ?? "").split(":");
if (kind in AXES && Number(from) < Number(to)) shared = { kind, from: Number(from), to: Number(to) };
// Runs that the legend hides, on the page that compares them.
const hiddenRuns = new Set(new URLSearchParams(location.search).getAll("hide"));

function valueAt(kind, at) {
  return kind === "time" ? new Date(at * 1000) : at;
}

function ranged(look, kind) {
  if (shared?.kind !== kind) return look;
  const range = [valueAt(kind, shared.from), valueAt(kind, shared.to)];
  return { ...look, xaxis: { ...look.xaxis, range, autorange: false } };
}

function follow(box, kind, change) {
  if (charts?.contains(box) && isLogX(options())) return;
  const whole = Boolean(change["xaxis.autorange"]);
  if (!whole && change["xaxis.range[0]"] === undefined) return;
  const [from, to] = box.layout.xaxis.range.map((each) => (kind === "time" ? new Date(each) / 1000 : Number(each)));
  if (whole ? !shared : shared?.kind === kind && shared.from === from && shared.to === to) return;
  shared = whole ? null : { kind, from, to };
  address();
  const part = whole
    ? { "xaxis.autorange": true }
    : { "xaxis.range[0]": valueAt(kind, from), "xaxis.range[1]": valueAt(kind, to) };
  for (const other of document.querySelectorAll(".plot.ready")) {
    if (other !== box && (charts.contains(other) ? options().x : "time") === kind) Plotly.relayout(other, part);
  }
}

function toggled({ target, detail: { name, shown } }) {
  if (!runs) return;
  if (shown) hiddenRuns.delete(name);
  else hiddenRuns.add(name);
  address();
  for (const box of charts.querySelectorAll(".plot.ready")) {
    const at = box.data.findIndex((each) => each.name === name);
    if (box !== target && at >= 0) Plotly.restyle(box, { visible: shown ? true : "legendonly" }, [at]).then(() => draw(box));
  }
}

// Series are thinned: the span that is shown gets its own points in place of those few.
function withClose(several, span) {
  if (!span) return several;
  return several.map(({ label, run, series }, at) => ({
    label,
    run,
    series: series.map((each) => {
      const fine = span.several[at]?.series.find((other) => other.id === each.id)?.points;
      if (!fine?.length) return each;
      const before = each.points.filter((point) => point[1] < span.begin);
      const after = each.points.filter((point) => point[1] > span.end);
      return { ...each, points: [...before, ...fine, ...after] };
    }),
  }));
}

async function zoomed(box, change) {
  const name = box.dataset.name;
  const banded = isBand(name, options());
  const key = `${banded} ${name}`;
  if (change["xaxis.autorange"]) {
    if (close.delete(key)) await draw(box);
    return;
  }
  const whole = loaded.get(key);
  const thinned = banded
    ? whole.attempts.some(({ places }) => places.length > 1 && places[1] - places[0] > 1)
    : whole?.some(({ series }) => series.some((each) => each.thinned));
  if (change["xaxis.range[0]"] === undefined || !thinned) return;
  const span = shownSpan(box);
  if (!span) return;
  close.set(key, banded ? await across(name, span) : { ...span, several: await points(name, span) });
  await draw(box);
}

// The time span between the edges of a chart, and a point beyond each.
function shownSpan(box) {
  const { range, type } = box.layout.xaxis;
  const [low, high] = type === "log" ? range.map((each) => 10 ** each) : range;
  const [from, to] = options().x === "time" ? [new Date(low), new Date(high)] : [Number(low), Number(high)];
  let [begin, end] = [Infinity, -Infinity];
  for (const { x, customdata } of box.data) {
    if (!customdata) continue;
    // Steps come again after a resume: every point that is inside counts.
    x.forEach((each, at) => {
      if (each < from || each > to) return;
      begin = Math.min(begin, customdata[Math.max(0, at - 1)]);
      end = Math.max(end, customdata[Math.min(at + 1, x.length - 1)]);
    });
  }
  return begin > end ? null : { begin, end };
}

// All points of the series and the span that a chart shows.
async function rawRows(box) {
  const shown = box.layout.xaxis.autorange === false ? shownSpan(box) : null;
  const series = new Set(box.data.filter((each) => each.visible !== "legendonly").map((each) => each.series));
  const banded = isBand(box.dataset.name, options());
  const rows = [["metric", "job", "attempt", "node", "rank", "step", "time", "value"]];
  for (const { label, series: several } of await points(box.dataset.name, shown, "all")) {
    for (const each of several) {
      if (!banded && !series.has(each.id)) continue;
      const head = [each.name, label || charts.dataset.job, each.attempt, each.node, each.rank];
      for (const [step, at, value] of each.points) rows.push([...head, step, new Date(at * 1000).toISOString(), value]);
    }
  }
  return rows;
}

// Charts are drawn when they come into view: a job may have ten thousand metrics.
const seen = new IntersectionObserver(
  (entries) => {
    for (const each of entries) {
      each.target.dataset.visible = each.isIntersecting ? "yes" : "";
      if (each.isIntersecting) drawn(each.target).catch(failed(each.target));
    }
  },
  { rootMargin: "200px" },
);

function failed(box) {
  return (error) => {
    if (!box.querySelector("svg:not(.sketch)")) box.textContent = `The points did not arrive: ${error.message}`;
  };
}

// The place of a chart and, below it, of its legend.
function chartBox(parent, name) {
  const frame = document.createElement("div");
  frame.className = "chart";
  frame.setAttribute("role", "figure");
  frame.setAttribute("aria-label", `Chart of ${name}`);
  const box = document.createElement("div");
  box.className = "plot";
  box.dataset.name = name;
  frame.append(box);
  parent.append(frame);
  return box;
}

const MOST = 200;

// Metrics of one prefix are a group that folds, if there are several prefixes.
function groupOf(name, names) {
  const prefix = (each) => (each.includes("/") ? each.slice(0, each.indexOf("/")) : "");
  if (names.every((each) => prefix(each) === prefix(name)) || !prefix(name)) return charts;
  const there = [...charts.querySelectorAll(":scope > details")].find(({ dataset }) => dataset.prefix === prefix(name));
  if (there) return there.lastChild;
  const group = document.createElement("details");
  group.dataset.prefix = prefix(name);
  group.open = true;
  group.append(Object.assign(document.createElement("summary"), { textContent: prefix(name) }), Object.assign(document.createElement("div"), { className: "charts" }));
  charts.append(group);
  return group.lastChild;
}

function place() {
  // A live part of the page: metrics come as the job goes on.
  const all = JSON.parse(document.getElementById("names").dataset.names);
  const names = all.filter((each) => each.toLowerCase().includes(options().find));
  const wanted = new Set(names.slice(0, MOST));
  charts.querySelector(":scope > p")?.remove();
  for (const box of charts.querySelectorAll(".plot")) {
    if (!wanted.has(box.dataset.name)) {
      seen.unobserve(box);
      if (box.classList.contains("ready")) Plotly.purge(box);
      box.parentNode.remove();
    }
  }
  const there = new Set([...charts.querySelectorAll(".plot")].map((each) => each.dataset.name));
  for (const name of wanted) {
    if (there.has(name)) continue;
    const box = chartBox(groupOf(name, all), name);
    seen.observe(box);
  }
  for (const each of charts.querySelectorAll(":scope > details")) if (!each.querySelector(".plot")) each.remove();
  if (names.length > MOST) {
    const more = document.createElement("p");
    more.textContent = `${names.length - MOST} more metrics: use Find.`;
    charts.append(more);
  }
}

function redraw() {
  form?.querySelectorAll("output").forEach((each) => (each.textContent = each.previousElementSibling.value));
  for (const box of charts?.querySelectorAll(".plot") ?? []) {
    if (box.dataset.visible === "yes") draw(box).catch(failed(box));
  }
}

function drawn(box) {
  return resources?.contains(box) ? drawResource(box) : draw(box);
}

const resources = document.getElementById("resources");
const UNITS = {
  cpu: "%", memory: "bytes", gpu_load: "%", gpu_memory: "bytes", power: "W", temperature: "°C",
  disk_read: "bytes/s", disk_write: "bytes/s", net_in: "bytes/s", net_out: "bytes/s",
};

// All series of resources, and those of each by its name.
let ofNodes = [];
let used = new Map();

async function loadResources() {
  const ask = async (between) => (await json(`${resources.dataset.points}?most=${POINTS}${between}`)).series;
  if (!isFull("resources", ofNodes)) {
    await grow(ofNodes, 0, ({ begin, end }) => ask(`&begin=${begin}&end=${end}`));
    return;
  }
  begun.set("resources", Date.now());
  ofNodes = await ask("");
}

async function drawResources() {
  await loadResources();
  used = new Map();
  for (const each of ofNodes) {
    if (each.name.endsWith("_total")) continue;
    used.set(each.name, [...(used.get(each.name) ?? []), each]);
  }
  const boxes = new Map([...resources.querySelectorAll(".plot")].map((box) => [box.dataset.name, box]));
  if (!boxes.size) resources.textContent = used.size ? "" : "There is nothing yet.";
  for (const name of [...used.keys()].sort()) {
    const box = boxes.get(name);
    if (!box) seen.observe(chartBox(resources, name));
    else if (box.dataset.visible === "yes") drawResource(box).catch(failed(box));
  }
}

async function drawResource(box) {
  const { name } = box.dataset;
  // The only rank of a node has what its node has.
  const all = used.get(name);
  const only = (node) => node.rank === null && node.gpu === null && all.filter((each) => each.rank !== null && each.node === node.node && each.attempt === node.attempt).length === 1;
  const several = all.filter((each) => !only(each));
  const across = several.length > 2 * MANY ? await acrossNodes(name) : null;
  const data = across ? bands(across, { x: "time", smooth: 0 }) : several.flatMap(resourceTraces);
  const title = name.replaceAll("_", " ");
  const look = ranged(layout(title, "time", false, UNITS[name.replace("node_", "")]), "time");
  await show(box, data, look, config(name, () => rawResources(box)));
  if (ready(box)) box.on("plotly_relayout", (change) => follow(box, "time", change));
}

function resourceTraces(each, at) {
  const label = escape(
    `node ${each.node}` +
      (each.gpu === null ? "" : ` GPU ${each.gpu}`) +
      (each.rank === null ? "" : ` rank ${each.rank}`),
  );
  const x = each.points.map(([seconds]) => new Date(seconds * 1000));
  const values = each.points.map((point) => point[1]);
  const mode = each.points.length === 1 ? "markers" : "lines";
  const line = { x, y: values.map(number), name: label, series: each.id, mode, line: style(at), type: "scatter" };
  return [line, ...marks(label, x, values, null, style(at))];
}

async function acrossNodes(name) {
  return json(`${resources.dataset.across}?kind=resource&most=300&metric=${encodeURIComponent(name)}`);
}

async function rawResources(box) {
  const { range, autorange } = box.layout.xaxis;
  const [begin, end] = range.map((each) => new Date(each) / 1000);
  const between = autorange === false ? `&begin=${begin}&end=${end}` : "";
  const { series } = await json(`${resources.dataset.points}?most=all${between}`);
  const drawn = box.data.filter((each) => each.series !== undefined && each.visible !== "legendonly");
  const shown = new Set(drawn.map((each) => each.series));
  const rows = [["resource", "job", "attempt", "node", "gpu", "rank", "time", "value"]];
  for (const each of series.filter(({ id, name }) => name === box.dataset.name && (!shown.size || shown.has(id)))) {
    const head = [each.name, resources.dataset.job, each.attempt, each.node, each.gpu, each.rank];
    for (const [at, value] of each.points) rows.push([...head, new Date(at * 1000).toISOString(), value]);
  }
  return rows;
}

function address() {
  const data = new URLSearchParams(new FormData(form));
  for (const [key, value] of [...data]) if (!value || value === "0") data.delete(key);
  if (shared) data.set("range", `${shared.kind}:${shared.from}:${shared.to}`);
  for (const name of hiddenRuns) data.append("hide", name);
  history.replaceState(null, "", `?${data}`);
}

if (charts) {
  place();
  form.addEventListener("input", () => {
    address();
    place();
    redraw();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (runs) location.reload();
  });
  charts.addEventListener("legend", toggled);
}
if (resources) drawResources().catch(() => (resources.textContent = "The numbers did not arrive."));
addEventListener("theme", () => {
  redraw();
  if (resources) drawResources();
});
let last = 0;
addEventListener("news", () => {
  if (Date.now() - last < 2000) return;
  last = Date.now();
  for (const key of loaded.keys()) stale.add(key);
  if (charts) place();
  redraw();
  if (resources) drawResources();
});
