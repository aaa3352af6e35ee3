// The charts of a sweep: the value of each trial with the best so far, parallel coordinates, and the
// contour of two parameters.

import { contour, parallel } from "./parallel.js";
import { config, escape, json, layout, number, show, style } from "./plot.js";

const box = document.querySelector("[data-sweep]");

function history(trials, objective) {
  const better = objective.goal === "minimize" ? Math.min : Math.max;
  let best = null;
  const known = trials.filter((each) => number(each.value) !== null);
  const bests = known.map((each) => (best = best === null ? each.value : better(best, each.value)));
  const x = known.map((each) => each.number);
  const text = known.map((each) => escape(each.job + (each.stopped_early ? ", stopped early" : "")));
  const symbol = known.map((each) => (each.stopped_early ? "x" : "circle"));
  return [
    { x, y: known.map((each) => each.value), text, name: "trials", mode: "markers", type: "scatter", marker: { symbol, color: style(0).color } },
    { x, y: bests, name: "best so far", mode: "lines", type: "scatter", line: { ...style(1), shape: "hv" } },
  ];
}

// The columns of parallel coordinates: parameters, then the metric.
function columnsOf(trials, metric, even) {
  const keys = [...new Set(trials.flatMap((each) => Object.keys(each.parameters)))];
  return [
    ...keys.map((name) => ({ name, values: trials.map((each) => each.parameters[name]), even: even.includes(name) })),
    { name: metric, values: trials.map((each) => each.value) },
  ];
}

function amongBest(trials, goal) {
  const worth = trials.map((each) => each.value).sort((a, b) => a - b);
  if (goal === "maximize") worth.reverse();
  const limit = worth[Math.max(0, Math.ceil(worth.length / 5) - 1)];
  return trials.map(({ value }) => (goal === "minimize" ? value <= limit : value >= limit));
}

// The rows of the table follow the brushes.
function chosen(trials, brushed) {
  let [kept, all] = [0, 0];
  for (const row of document.querySelectorAll("tr[data-trial]")) {
    const inside = !brushed || trials.has(row.dataset.trial);
    row.hidden = !inside;
    kept += inside;
    all += 1;
  }
  box.querySelector(".parallel [role=status]").textContent = brushed ? `${kept} of ${all} trials.` : "";
}

function drawContour(trials, columns, metric) {
  const panel = box.querySelector(".contour");
  const parameters = columns.slice(0, -1);
  panel.hidden = parameters.length < 2 || trials.length < 5;
  if (panel.hidden) return;
  const form = panel.querySelector("form");
  const { across, up } = form.elements;
  if (across.length !== parameters.length) {
    // The most important ones first, as in the table.
    const ranked = [...document.querySelectorAll(".worth tbody th")].map((each) => each.textContent);
    const [first, second] = [...new Set([...ranked, ...parameters.map(({ name }) => name)])];
    for (const [select, usual] of [[across, first], [up, second]]) {
      select.replaceChildren(...parameters.map(({ name }) => new Option(name, name, name === usual, name === usual)));
    }
    form.onchange = draw;
  }
  const named = (select) => parameters.find(({ name }) => name === select.value);
  const points = trials.map((each) => ({ value: each.value, text: `${each.job}: ${metric} ${each.value}` }));
  contour(panel.querySelector("canvas"), points, named(across), named(up), panel.querySelector("[role=status]"));
}

async function draw() {
  const { trials, objective, even } = await json(box.dataset.sweep);
  const known = trials.filter((each) => number(each.value) !== null);
  if (!known.length) return;
  const metric = objective.primary_metric;
  const columns = columnsOf(known, metric, even);
  const panel = box.querySelector(".parallel");
  panel.hidden = false;
  parallel(panel.querySelector("svg"), known, columns, amongBest(known, objective.goal), chosen);
  drawContour(known, columns, metric);
  const first = box.querySelector(".plot");
  await show(first, history(trials, objective), layout(`${objective.goal} ${metric}`, "trial", false), config(metric));
}

if (box) {
  draw();
  addEventListener("resize", draw);
  let last = 0;
  addEventListener("news", () => {
    if (Date.now() - last < 2000) return;
    last = Date.now();
    draw();
  });
  addEventListener("theme", draw);
}
