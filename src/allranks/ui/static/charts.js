// Charts of metrics and resources, drawn by Plotly.

import { config, escape, json, layout, number, show, style } from "./plot.js";

const POINTS = 2000;
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
  const found = [];
  for (const { label, series } of several) {
    for (const each of series) {
      if (given.rank && each.rank !== null && String(each.rank) !== given.rank) continue;
      const start = each.points[0]?.[1] ?? 0;
      const x = each.points.map(([step, at]) =>
        given.x === "step" ? step : given.x === "time" ? new Date(at * 1000) : at - start,
      );
      const y = smoothed(each.points.map((point) => number(point[2])), given.smooth);
      const attempt = each.attempt > 1 ? `, attempt ${each.attempt}` : "";
      const rank = each.key !== each.name ? each.key : each.rank === null ? each.name : `rank ${each.rank}`;
      found.push({
        x,
        y,
        name: escape((label ? `${label} ` : "") + rank + attempt),
        customdata: each.points.map((point) => point[1]),
        mode: each.points.length === 1 ? "markers" : "lines",
        line: style(found.length),
        type: "scatter",
        connectgaps: false,
      });
    }
  }
  return found;
}

function options() {
  const data = new FormData(form);
  return {
    find: String(data.get("find") ?? "").toLowerCase(),
    smooth: Number(data.get("smooth") ?? 0),
    x: String(data.get("x") ?? "step"),
    rank: String(data.get("rank") ?? ""),
    log: data.has("log"),
  };
}

const AXES = { step: "step", time: "time", elapsed: "seconds since the first value" };

// The points of a metric of one job, or of several, all or of a time span.
async function points(name, span) {
  const between = span ? `&begin=${span.begin}&end=${span.end}` : "";
  const query = `metrics.json?most=${POINTS}&metric=${encodeURIComponent(name)}${between}`;
  const jobs = charts.dataset.jobs ? JSON.parse(charts.dataset.jobs) : null;
  if (!jobs) {
    const { series } = await json(charts.dataset.points + query.slice("metrics.json".length));
    return [{ label: "", series }];
  }
  return Promise.all(
    jobs.map(async (job) => {
      const { series } = await json(`/ui/jobs/${encodeURIComponent(job)}/${query}`);
      return { label: job, series };
    }),
  );
}

const loaded = new Map();
// What is looked at closely: by metric, a time span and its points.
const close = new Map();

async function draw(box) {
  const name = box.dataset.name;
  const given = options();
  if (!loaded.has(name)) loaded.set(name, await points(name));
  const data = traces(withClose(loaded.get(name), close.get(name)), given);
  const first = !box.classList.contains("ready");
  box.classList.add("ready");
  const kind = `${given.x} ${given.log ? "log" : "linear"}`;
  await show(box, data, layout(name, AXES[given.x], given.log), config(name), kind);
  if (first) box.on("plotly_relayout", (change) => zoomed(box, change).catch(failed(box)));
}

// Series are thinned: the span that is shown gets its own points in place of those few.
function withClose(several, span) {
  if (!span) return several;
  return several.map(({ label, series }, at) => ({
    label,
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
  const [low, high] = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
  if (change["xaxis.autorange"]) {
    if (close.delete(name)) await draw(box);
    return;
  }
  const thinned = loaded.get(name).some(({ series }) => series.some((each) => each.points.length < each.length));
  if (low === undefined || !thinned) return;
  const [from, to] = options().x === "time" ? [new Date(low), new Date(high)] : [Number(low), Number(high)];
  let [begin, end] = [Infinity, -Infinity];
  for (const { x, customdata } of box.data) {
    const inside = x.findIndex((each) => each >= from);
    const beyond = x.findIndex((each) => each > to);
    if (inside < 0) continue;
    begin = Math.min(begin, customdata[Math.max(0, inside - 1)]);
    end = Math.max(end, customdata[beyond < 0 ? customdata.length - 1 : beyond]);
  }
  if (begin > end) return;
  const span = { begin, end };
  close.set(name, { ...span, several: await points(name, span) });
  await draw(box);
}

// Charts are drawn when they come into view: a job may have ten thousand metrics.
const seen = new IntersectionObserver(
  (entries) => {
    for (const each of entries) {
      each.target.dataset.visible = each.isIntersecting ? "yes" : "";
      if (each.isIntersecting) draw(each.target).catch(failed(each.target));
    }
  },
  { rootMargin: "200px" },
);

function failed(box) {
  return (error) => {
    if (!box.classList.contains("ready")) box.textContent = `The points did not arrive: ${error.message}`;
  };
}

const MOST = 200;

function place() {
  // A live part of the page: metrics come as the job goes on.
  const all = JSON.parse(document.getElementById("names").dataset.names);
  const names = all.filter((each) => each.toLowerCase().includes(options().find));
  const wanted = new Set(names.slice(0, MOST));
  for (const box of [...charts.children]) {
    if (!wanted.has(box.dataset.name)) {
      seen.unobserve(box);
      if (box.classList.contains("ready")) Plotly.purge(box);
      box.remove();
    }
  }
  const there = new Set([...charts.children].map((each) => each.dataset.name));
  for (const name of wanted) {
    if (there.has(name)) continue;
    const box = document.createElement("div");
    box.className = "chart";
    box.dataset.name = name;
    box.setAttribute("role", "figure");
    box.setAttribute("aria-label", `Chart of ${name}`);
    charts.append(box);
    seen.observe(box);
  }
  if (names.length > MOST) {
    const more = document.createElement("p");
    more.textContent = `${names.length - MOST} more metrics: use Find.`;
    charts.append(more);
  }
}

function redraw() {
  for (const box of charts?.children ?? []) {
    if (box.dataset.visible === "yes") draw(box).catch(failed(box));
  }
}

const resources = document.getElementById("resources");
const UNITS = {
  cpu: "%", memory: "bytes", gpu_load: "%", gpu_memory: "bytes", power: "W", temperature: "°C",
  disk_read: "bytes/s", disk_write: "bytes/s", net_in: "bytes/s", net_out: "bytes/s",
};

async function drawResources() {
  const { series } = await json(`${resources.dataset.points}?most=${POINTS}`);
  const groups = new Map();
  for (const each of series) {
    if (each.name.endsWith("_total")) continue;
    groups.set(each.name, [...(groups.get(each.name) ?? []), each]);
  }
  for (const [name, several] of [...groups].sort()) {
    let box = [...resources.children].find((each) => each.dataset.name === name);
    if (!box) {
      box = document.createElement("div");
      box.className = "chart ready";
      box.dataset.name = name;
      box.setAttribute("role", "figure");
      box.setAttribute("aria-label", `Chart of ${name}`);
      resources.append(box);
    }
    const data = several.map((each, at) => ({
      x: each.points.map(([seconds]) => new Date(seconds * 1000)),
      y: each.points.map((point) => number(point[1])),
      name: escape(
        `node ${each.node}` +
          (each.gpu === null ? "" : ` GPU ${each.gpu}`) +
          (each.rank === null ? "" : ` rank ${each.rank}`),
      ),
      mode: each.points.length === 1 ? "markers" : "lines",
      line: style(at),
      type: "scatter",
    }));
    const title = name.replaceAll("_", " ");
    await show(box, data, layout(title, "time", false, UNITS[name.replace("node_", "")]), config(name));
  }
  if (!groups.size) resources.textContent = "There is nothing yet.";
}

function address() {
  const data = new URLSearchParams(new FormData(form));
  for (const [key, value] of [...data]) if (!value || value === "0") data.delete(key);
  const kept = new URLSearchParams(location.search).getAll("job");
  for (const job of kept) data.append("job", job);
  history.replaceState(null, "", `?${data}`);
}

// Modules run after the deferred script of Plotly.
if (charts) {
  place();
  form.addEventListener("input", () => {
    address();
    place();
    redraw();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
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
  loaded.clear();
  if (charts) place();
  redraw();
  if (resources) drawResources();
});
