// What all charts share: colours, layout, saving.

import { get } from "./page.js";

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
    font: { color: colour("--text"), family: "system-ui, sans-serif", size: 12 },
    hovermode: "x unified",
    hoverlabel: { bgcolor: colour("--panel"), font: { color: colour("--text") } },
    legend: { orientation: "h", y: -0.2 },
    xaxis: { ...axis, title: { text: x } },
    yaxis: { ...axis, type: log ? "log" : "linear", title: { text: unit || "" } },
    dragmode: "zoom",
  };
}

// Draw a chart, again or for the first time. What the reader chose in it stays: the zoomed ranges as
// long as the axes are the same `kind`, and the series that the legend hides. Plotly's own
// `uirevision` loses zooms that were dragged, in plotly.js 4.1.
export async function show(box, data, layout, config, kind = "") {
  if (box.dataset.kind === kind) keepView(box, data, layout);
  box.dataset.kind = kind;
  await Plotly.react(box, data, layout, config);
}

function keepView(box, data, layout) {
  for (const axis of ["xaxis", "yaxis"]) {
    const { range, autorange } = box.layout?.[axis] ?? {};
    if (autorange === false && range) layout[axis] = { ...layout[axis], range: [...range], autorange };
  }
  if (box.layout?.dragmode) layout.dragmode = box.layout.dragmode;
  const hidden = new Set(box.data?.filter((each) => each.visible === "legendonly").map((each) => each.name));
  for (const each of data) if (hidden.has(each.name)) each.visible = "legendonly";
}

// Plotly takes some HTML in texts: names from jobs must stay text.
export function escape(text) {
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

export function config(name) {
  return {
    responsive: true,
    displaylogo: false,
    scrollZoom: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
    toImageButtonOptions: { format: "png", filename: name, scale: 2 },
    modeBarButtonsToAdd: [
      { name: "Save as CSV", icon: Plotly.Icons.disk, click: (chart) => saveCsv(chart, name) },
    ],
  };
}

export function saveCsv(chart, name) {
  const rows = ["series,x,y"];
  for (const each of chart.data) {
    each.x.forEach((x, at) => rows.push([JSON.stringify(each.name), x, each.y[at]].join(",")));
  }
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([rows.join("\n") + "\n"], { type: "text/csv" }));
  link.download = `${name}.csv`;
  link.click();
  URL.revokeObjectURL(link.href);
}

// Values that JSON lacks arrive as texts. Gaps stand for them.
export function number(value) {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

export async function json(address) {
  const answer = await get(address);
  if (!answer.ok) throw new Error(String(answer.status));
  return answer.json();
}
