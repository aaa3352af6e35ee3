// What all charts share: colours, layout, saving.

import { get } from "./page.js";
import { sketch } from "./sketch.js";

// Plotly takes a second to run, in which the browser does nothing else. So it starts when the page is
// loaded and the points that are on their way have been sketched and seen, or PATIENCE is over.
let running = null;
const loaded = new Promise((done) => (document.readyState === "complete" ? done() : addEventListener("load", done)));
let requests = 0;
const PATIENCE = 600; // milliseconds
// Curves whose values are shown together: Plotly takes half a minute for those of 512.
const TOGETHER = 20;

async function run() {
  await loaded;
  const end = performance.now() + PATIENCE;
  do await new Promise(requestAnimationFrame);
  while (requests && performance.now() < end);
  await new Promise((done) => setTimeout(done));
  await new Promise((done, failed) => {
    const missing = () => failed(new Error("the chart library is missing"));
    document.head.append(Object.assign(document.createElement("script"), { src: "/ui/plotly.js", onload: done, onerror: missing }));
  });
}

// Okabe and Ito's colours, which people with any colour vision tell apart; then dashes.
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#7f7f7f"];
const DASHES = ["solid", "dash", "dot", "dashdot"];
export function style(number) {
  return {
    color: COLOURS[number % COLOURS.length],
    dash: DASHES[Math.floor(number / COLOURS.length) % DASHES.length],
    width: 1.5,
  };
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function layout(title, x, log, unit) {
  // Powers as `1e+300`: raised exponents would need inline styles.
  const exponents = { exponentformat: unit ? "SI" : "e", minexponent: unit ? 3 : 6 };
  const axis = { ...exponents, gridcolor: colour("--line"), zerolinecolor: colour("--line"), automargin: true };
  return {
    title: { text: escape(title), font: { size: 14 } },
    height: 300,
    margin: { l: 50, r: 10, t: 40, b: 36 },
    paper_bgcolor: colour("--panel"),
    plot_bgcolor: colour("--panel"),
    font: { color: colour("--text"), family: colour("--sans"), size: 12 },
    hovermode: "x unified",
    hoverlabel: { namelength: -1, bgcolor: colour("--panel"), font: { color: colour("--text") } },
    showlegend: false,
    // Times speak for themselves.
    xaxis: { ...axis, title: { text: x === "time" ? "" : x } },
    yaxis2: { overlaying: "y", range: [0, 1], fixedrange: true, visible: false },
    yaxis: { ...axis, type: log ? "log" : "linear", title: { text: unit || "" }, rangemode: unit ? "nonnegative" : "normal" },
    dragmode: "zoom",
  };
}

// A chart that is drawn again under a drag would lose it, so drawing waits for its end.
let released = null;
document.addEventListener("pointerdown", ({ target }) => {
  if (!target.closest?.(".plot")) return;
  released = new Promise((done) => {
    // Plotly zooms at the mouse event, which comes after the pointer's.
    const end = () => setTimeout(() => ((released = null), done()), 50);
    for (const name of ["pointerup", "pointercancel"]) document.addEventListener(name, end, { once: true });
  });
}, true);

// Draw a chart, again or for the first time. What the reader chose in it stays: the zoomed ranges as
// long as the axes are the same `kind`, and the series that the legend hides. Plotly's own
// `uirevision` loses zooms that were dragged, in plotly.js 4.1.
export async function show(box, data, layout, config, kind = "") {
  if (data.length > TOGETHER) layout.hovermode = "closest";
  const keep = () => {
    if (box.dataset.kind === kind) keepView(box, data, layout);
    box.dataset.kind = kind;
  };
  if (!box.data) {
    running ??= run();
    keep();
    try {
      sketch(box, data, layout);
    } catch (error) {
      console.error(error); // Plotly's chart comes without it
    }
    box.sketched = data;
    legend(box, data, layout);
    await running;
  }
  await released;
  // Each chart is a task of its own: the page answers between two, and its load event does not wait.
  await new Promise((done) => setTimeout(done));
  keep();
  await Plotly.react(box, data, layout, config);
  box.querySelector(".sketch")?.remove();
  legend(box, data, layout);
}

// Below the chart and not in it: it never covers a curve or the title of an axis.
function legend(box, data, look) {
  if (!box.legend) box.after((box.legend = document.createElement("div")));
  const entries = data.map((each, at) => [each, at]).filter(([each]) => each.showlegend !== false);
  box.legend.className = "legend";
  // The title names a single curve, but not what a band is.
  box.legend.hidden = entries.length < 2 && !entries[0]?.[0].meta;
  const focused = [...box.legend.children].indexOf(document.activeElement);
  box.legend.replaceChildren(...entries.map(([each, at]) => entry(box, data, at, look)));
  box.legend.children[focused]?.focus();
}

function entry(box, data, at, look) {
  const trace = data[at];
  const button = document.createElement("button");
  button.type = "button";
  button.setAttribute("aria-pressed", trace.visible !== "legendonly");
  button.title = "Show or hide";
  const { color, dash } = trace.line ?? trace.marker;
  const strokes = { dash: "5 3", dot: "2 2", dashdot: "5 2 1 2" };
  const key = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  key.setAttribute("viewBox", "0 0 18 8");
  const line = document.createElementNS(key.namespaceURI, "path");
  for (const [name, value] of Object.entries({ d: "M0 4H18", stroke: color, "stroke-width": 3, "stroke-dasharray": strokes[dash] ?? "" }))
    line.setAttribute(name, value);
  key.append(line);
  button.append(key, plain(trace.name));
  button.addEventListener("click", async () => {
    const shown = trace.visible === "legendonly";
    trace.visible = shown ? true : "legendonly";
    const same = data.map((each, n) => (each.name === trace.name ? n : -1)).filter((n) => n >= 0);
    for (const n of same) data[n].visible = trace.visible;
    if (box.data) await Plotly.restyle(box, { visible: trace.visible }, same);
    else sketch(box, data, look);
    button.setAttribute("aria-pressed", shown);
    box.dispatchEvent(new CustomEvent("legend", { bubbles: true, detail: { name: trace.name, shown } }));
  });
  return button;
}

function keepView(box, data, layout) {
  for (const axis of ["xaxis", "yaxis"]) {
    const { range, autorange } = box.layout?.[axis] ?? {};
    if (autorange === false && range && layout[axis].autorange === undefined) layout[axis] = { ...layout[axis], range: [...range], autorange };
  }
  if (box.layout?.dragmode) layout.dragmode = box.layout.dragmode;
  const hidden = new Set((box.data ?? box.sketched)?.filter((each) => each.visible === "legendonly").map((each) => each.name));
  for (const each of data) if (hidden.has(each.name)) each.visible = "legendonly";
}

// Plotly takes some HTML in texts: names from jobs must stay text.
export function plain(text) {
  return text.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
}

export function escape(text) {
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

// `raw` gives the rows of the points themselves, of what is shown.
export function config(name, raw) {
  const save = (title, icon, rows) => ({
    name: title,
    get icon() {
      return Plotly.Icons[icon];
    },
    click: (chart) => rows(chart).then((found) => saveCsv(`${name}.csv`, found)).catch(report),
  });
  const drawn = (chart) => Promise.resolve(drawnRows(chart));
  return {
    responsive: true,
    displaylogo: false,
    scrollZoom: false,
    toImageButtonOptions: { format: "png", filename: name, scale: 2 },
    // All of them: Plotly's own list has one that sends the chart to its makers.
    plotlyServerURL: "",
    modeBarButtons: [
      [
        "toImage",
        ...(raw ? [save("Save the points as CSV", "disk", raw)] : []),
        save("Save what is drawn as CSV", "drawline", drawn),
      ],
      ["zoom2d", "pan2d"],
      ["zoomIn2d", "zoomOut2d", "resetScale2d"],
    ],
  };
}

function report(error) {
  alert(`The points did not arrive: ${error.message}`);
}

function drawnRows(chart) {
  const rows = [["series", "x", "y"]];
  for (const each of chart.data) {
    if (each.visible === "legendonly" || !each.x || each.fill || each.meta === "raw") continue;
    each.x.forEach((x, at) => rows.push([plain(each.name ?? ""), x instanceof Date ? x.toISOString() : x, each.y[at]]));
  }
  return rows;
}

function saveCsv(name, rows) {
  const cell = (value) => (/[",\n\r]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : value ?? "");
  const text = rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name.replaceAll("/", "_");
  link.click();
  URL.revokeObjectURL(link.href);
}

// The area between two curves; where they have a gap it has one, which Plotly's `tonexty` bridges.
export function area(x, low, high, color) {
  const [xs, ys] = [[], []];
  for (let from = 0, to; from < x.length; from = to + 1) {
    for (to = from; to < x.length && low[to] !== null && high[to] !== null; ) to++;
    if (to === from) continue;
    xs.push(...x.slice(from, to), ...x.slice(from, to).reverse(), null);
    ys.push(...high.slice(from, to), ...low.slice(from, to).reverse(), null);
  }
  return { x: xs, y: ys, name: "range", mode: "lines", type: "scatter", fill: "toself", fillcolor: `${color}33`, line: { width: 0, color }, hoverinfo: "skip", showlegend: false };
}

// Values that JSON lacks arrive as texts. Gaps stand for them.
export function number(value) {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

// A mark at the edge for each value that is no number, since a line only has a gap there. On an axis
// of its own, so that it is seen at any zoom.
export function marks(name, x, values, steps, style) {
  const places = values.map((_, at) => at).filter((at) => number(values[at]) === null);
  if (!places.length) return [];
  const up = (at) => values[at] === "Infinity";
  return [{
    x: places.map((at) => x[at]),
    y: places.map((at) => (up(at) ? 0.97 : 0.03)),
    text: places.map((at) => `${values[at]}${steps ? ` at step ${steps[at]}` : ""}`),
    name: `${name}: NaN or infinite`,
    hovertemplate: "%{text}<extra>" + name + "</extra>",
    mode: "markers",
    marker: { symbol: places.map((at) => (values[at] === "NaN" ? "x" : up(at) ? "triangle-up" : "triangle-down")), color: style.color, size: 9 },
    yaxis: "y2",
    type: "scatter",
    showlegend: false,
  }];
}

// The server computes all answers side by side: asked for eight at once, it would end the first with
// the last.
const AT_ONCE = 2;
const queue = [];
let flying = 0;

export async function json(address) {
  requests++;
  if (flying === AT_ONCE) await new Promise((begin) => queue.push(begin));
  else flying++;
  try {
    const answer = await get(address);
    if (!answer.ok) throw new Error(String(answer.status));
    return await answer.json();
  } finally {
    requests--;
    const next = queue.shift();
    if (next) next();
    else flying--;
  }
}
