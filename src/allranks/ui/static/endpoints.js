// Endpoints: numbers that change without a job's change, and charts of the last hour.

import { refresh, whileVisible } from "./page.js";

const PACE = 5000;
let timer = null;
whileVisible(
  () => (timer ??= setInterval(() => refresh().catch(() => {}), PACE)),
  () => (timer = clearInterval(timer) ?? null),
);

// The title of a chart, its unit, and the series of a deployment that it has.
const CHARTS = [
  ["Requests", "1/s", ["requests"]],
  ["Errors and refusals", "1/s", ["errors", "refused"]],
  ["Latency", "ms", ["p50", "p95", "p99"]],
  ["Queue", "", ["waiting"]],
  ["Replicas", "", ["ready"]],
];
const parent = document.getElementById("series");

async function draw() {
  const { config, escape, json, layout, show, style } = await import("./plot.js");
  const deployments = await json(parent.dataset.points);
  if (!deployments.some(({ at }) => at.length)) {
    parent.textContent = "The first values come in some seconds.";
    return;
  }
  if (!parent.children.length) parent.replaceChildren(...CHARTS.map(chart));
  CHARTS.forEach(([title, unit, keys], place) => {
    const several = deployments.flatMap((each) => keys.map((key) => [each, key]));
    const data = several.map(([each, key], number) => ({
      x: each.at.map((at) => new Date(at * 1000)),
      y: each[key],
      name: escape(keys.length > 1 ? `${each.name} ${key}` : each.name),
      mode: each.at.length === 1 ? "markers" : unit === "ms" ? "lines+markers" : "lines",
      type: "scatter",
      line: style(number),
    }));
    const look = layout(title, "time", false, unit);
    look.yaxis = { ...look.yaxis, rangemode: "tozero" };
    show(parent.children[place].firstChild, data, look, config(title));
  });
}

function chart([title]) {
  const frame = document.createElement("div");
  frame.className = "chart";
  frame.setAttribute("role", "figure");
  frame.setAttribute("aria-label", `Chart of ${title}`);
  frame.append(Object.assign(document.createElement("div"), { className: "plot" }));
  return frame;
}

if (parent) {
  const drawn = () => draw().catch((error) => parent.querySelector(".js-plotly-plot") ?? (parent.textContent = `The values did not arrive: ${error.message}`));
  drawn();
  for (const name of ["news", "theme"]) addEventListener(name, drawn);
}
