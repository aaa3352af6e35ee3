// Curves of several jobs: a colour a run, and the mean and standard deviation of runs that repeat.

import { area, style } from "./plot.js";

const charts = document.getElementById("charts");
// Label, jobs, colour of each; null on the page of one job.
export const runs = charts?.dataset.runs ? JSON.parse(charts.dataset.runs) : null;
// Places at which a mean is drawn.
const MOST = 2000;

// The curves of a run share its colour; dashes tell them apart.
export function runStyle(colour, number) {
  return { ...style(colour), dash: style(colour + 8 * number).dash };
}

// Values of a curve at `places`, between its points by a straight line; null outside of it.
function at(places, { x, y }) {
  let next = 0;
  return places.map((place) => {
    while (next < x.length && x[next] < place) next++;
    if (next === x.length) return null;
    if (x[next] === place) return y[next];
    if (!next || y[next] === null || y[next - 1] === null) return null;
    const share = (place - x[next - 1]) / (x[next] - x[next - 1]);
    return y[next - 1] + share * (y[next] - y[next - 1]);
  });
}

// Of a repeated place, after a resume, the last value counts.
function inOrder({ x, y }) {
  const values = new Map(x.map((place, n) => [place, y[n]]));
  const places = [...values.keys()].sort((a, b) => a - b);
  return { x: places, y: places.map((place) => values.get(place)) };
}

export function meanAndSpread(label, colour, curves) {
  const ordered = curves.map(inOrder);
  const all = [...new Set(ordered.flatMap(({ x }) => x))].sort((a, b) => a - b);
  const x = all.filter((_, n) => n % Math.ceil(all.length / MOST) === 0);
  const columns = ordered.map((curve) => at(x, curve));
  const points = x.map((_, n) => {
    const values = columns.map((column) => column[n]).filter((value) => value !== null);
    if (!values.length) return { mean: null, spread: null, count: 0 };
    // Sums and squares of the largest numbers are none.
    const mean = values.reduce((sum, each) => sum + each / values.length, 0);
    const apart = Math.hypot(...values.map((each) => each - mean));
    return { mean, spread: values.length > 1 ? apart / Math.sqrt(values.length - 1) : 0, count: values.length };
  });
  const look = style(colour);
  const shared = { x, type: "scatter", mode: "lines" };
  const edge = { ...shared, line: { width: 0, color: look.color }, hoverinfo: "skip", showlegend: false };
  const moved = (sign) => points.map(({ mean, spread }) => (mean === null ? null : mean + sign * spread));
  return [
    { ...edge, y: moved(-1), name: `${label}, mean − sd` },
    { ...edge, y: moved(1), name: `${label}, mean + sd` },
    { ...area(x, moved(-1), moved(1), look.color), name: `${label}, mean ± sd` },
    {
      ...shared, y: points.map(({ mean }) => mean), name: label, meta: "band", line: { ...look, width: 2 },
      text: points.map(({ spread, count }) => `± ${Number(spread).toPrecision(3)}, ${count} runs`), hovertemplate: "%{y} %{text}",
    },
  ];
}
