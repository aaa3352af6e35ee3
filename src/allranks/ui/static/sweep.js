// The charts of a sweep: the value of each trial with the best so far, and parallel coordinates.

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

// The places of values on an axis from 0 to 1: of numbers by size, of texts one after another.
function axis(values) {
  const known = values.filter((each) => each !== undefined && each !== null);
  if (known.every((each) => typeof each === "number")) {
    const low = Math.min(...known);
    const high = Math.max(...known);
    const log = low > 0 && high / low >= 100;
    const size = log ? Math.log : (each) => each;
    const span = size(high) - size(low);
    return (each) => (number(each) === null ? null : span ? (size(each) - size(low)) / span : 0.5);
  }
  const texts = [...new Set(known.map((each) => JSON.stringify(each)))];
  return (each) => {
    const at = texts.indexOf(JSON.stringify(each));
    return at < 0 ? null : texts.length > 1 ? at / (texts.length - 1) : 0.5;
  };
}

function parallel(trials, objective) {
  const known = trials.filter((each) => number(each.value) !== null);
  const keys = [...new Set(known.flatMap((each) => Object.keys(each.parameters)))];
  const columns = [
    ...keys.map((key) => ({ name: key, values: known.map((each) => each.parameters[key]) })),
    { name: objective.primary_metric, values: known.map((each) => each.value) },
  ];
  const places = columns.map((column) => axis(column.values));
  const worth = known.map((each) => each.value).sort((a, b) => a - b);
  if (objective.goal === "maximize") worth.reverse();
  const limit = worth[Math.max(0, Math.ceil(worth.length / 5) - 1)];
  const good = (each) => (objective.goal === "minimize" ? each.value <= limit : each.value >= limit);
  const x = columns.map((column) => escape(column.name));
  return known
    .map((each, at) => ({
      x,
      y: columns.map((column, number) => places[number](column.values[at])),
      text: columns.map((column) => escape(String(column.values[at] ?? "–"))),
      hovertemplate: "%{x}: %{text}",
      name: escape(each.job),
      mode: "lines+markers",
      type: "scatter",
      showlegend: false,
      connectgaps: true,
      line: { color: style(good(each) ? 1 : 7).color, width: good(each) ? 2 : 1 },
      opacity: good(each) ? 1 : 0.4,
    }))
    .sort((a, b) => a.opacity - b.opacity);
}

async function draw() {
  const { trials, objective } = await json(box.dataset.sweep);
  if (!trials.some((each) => number(each.value) !== null)) return;
  const [first, second] = box.querySelectorAll(".plot");
  const metric = objective.primary_metric;
  await show(first, history(trials, objective), layout(`${objective.goal} ${metric}`, "trial", false), config(metric));
  const second_layout = layout("Parameters; the best fifth stands out", "", false);
  second_layout.hovermode = "closest";
  second_layout.yaxis.showticklabels = false;
  await show(second, parallel(trials, objective), second_layout, config("parameters"));
}

if (box) {
  draw();
  let last = 0;
  addEventListener("news", () => {
    if (Date.now() - last < 2000) return;
    last = Date.now();
    draw();
  });
  addEventListener("theme", draw);
}
