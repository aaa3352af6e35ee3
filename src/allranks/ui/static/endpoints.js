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
    // A colour a deployment, as on its card; dashes tell its series apart.
    const several = deployments.flatMap((each, number) => keys.map((key, dash) => [each, key, { ...style(number), dash: style(8 * dash).dash }]));
    const data = several.map(([each, key, line]) => ({
      x: each.at.map((at) => new Date(at * 1000)),
      y: each[key],
      name: escape(keys.length > 1 ? `${each.name} ${key}` : each.name),
      mode: each.at.length === 1 ? "markers" : unit === "ms" ? "lines+markers" : "lines",
      type: "scatter",
      line,
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

// The shares of all deployments are 100 %: who gets more takes it from the others, as they have it.
const form = document.getElementById("traffic");

function divide(input) {
  const others = [...form.querySelectorAll("input[type=range]")].filter((each) => each !== input);
  const rest = 100 - input.value;
  const sum = others.reduce((total, each) => total + Number(each.value), 0);
  let left = rest;
  others.forEach((each, at) => {
    const share = at === others.length - 1 ? left : Math.round(sum ? (rest * each.value) / sum : at ? 0 : rest);
    left -= each.value = Math.min(left, share);
  });
  const changes = [input, ...others].filter((each) => each.value !== each.dataset.now);
  for (const each of [input, ...others]) each.closest(".share").querySelector("output").textContent = `${each.value} %`;
  document.getElementById("change").textContent = changes.map((each) => `${each.name.slice("traffic.".length)} ${each.dataset.now} → ${each.value} %`).join(", ");
}

form?.addEventListener("input", ({ target }) => divide(target));
form?.addEventListener("click", ({ target }) => {
  if (!target.dataset.give) return;
  const input = target.closest(".share").querySelector("input");
  input.value = target.dataset.give;
  divide(input);
});

if (parent) {
  const drawn = () => draw().catch((error) => parent.querySelector(".js-plotly-plot") ?? (parent.textContent = `The values did not arrive: ${error.message}`));
  drawn();
  for (const name of ["news", "theme"]) addEventListener(name, drawn);
}
