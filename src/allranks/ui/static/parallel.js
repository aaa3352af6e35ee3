// Axes of values from 0 to 1, parallel coordinates with brushes, and a contour of two parameters.

import { number } from "./plot.js";
import { shade } from "./shades.js";

const short = (value) => (typeof value === "number" ? String(Number(value.toPrecision(3))) : String(value));

// Where values lie on an axis: numbers by size, or by powers of ten if the range is wide and they
// are not drawn evenly; texts one after another. `ticks`: places and labels; `at`: the value of a place, of numbers only.
export function axis(values, even) {
  const known = values.filter((each) => each !== undefined && each !== null);
  if (known.length && known.every((each) => number(each) !== null)) {
    const [low, high] = [known.reduce((a, b) => Math.min(a, b)), known.reduce((a, b) => Math.max(a, b))];
    const powers = !even && low > 0 && high / low >= 100;
    const [size, back] = powers ? [Math.log10, (each) => 10 ** each] : [Number, Number];
    const span = size(high) - size(low);
    const place = (each) => (number(each) === null ? null : span ? (size(each) - size(low)) / span : 0.5);
    const at = (share) => back(size(low) + share * span);
    const shares = span ? [0, 0.25, 0.5, 0.75, 1] : [0.5];
    return { place, at, ticks: shares.map((share) => [share, short(at(share))]) };
  }
  const texts = [...new Set(known.map(short))];
  const share = (n) => (texts.length > 1 ? n / (texts.length - 1) : 0.5);
  const place = (each) => (each === undefined || each === null ? null : share(texts.indexOf(short(each))));
  const every = Math.ceil(texts.length / 12);
  return { place, at: null, ticks: texts.map((text, n) => [share(n), text]).filter((_, n) => n % every === 0) };
}

function element(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const [TOP, HEIGHT, BOTTOM, SIDE] = [28, 260, 16, 70];

// `columns`: name and values by trial; `good`: whether a trial is among the best. Calls `chosen` with
// the set of trials that are inside all brushes.
export function parallel(svg, trials, columns, good, chosen) {
  const wide = Math.max(svg.parentNode.clientWidth - 4, columns.length * 110);
  for (const [key, value] of [["width", wide], ["height", TOP + HEIGHT + BOTTOM]]) svg.setAttribute(key, value);
  const axes = columns.map(({ values, even }) => axis(values, even));
  const x = (n) => SIDE + (n * (wide - 2 * SIDE)) / Math.max(1, columns.length - 1);
  const y = (share) => TOP + (1 - share) * HEIGHT;
  const places = trials.map((_, at) => axes.map(({ place }, n) => place(columns[n].values[at])));
  const brushes = (svg.brushes ??= new Map());
  const lines = trials.map((trial, at) => {
    const inside = places[at].map((share, n) => [share, n]).filter(([share]) => share !== null);
    const d = inside.map(([share, n]) => `${x(n).toFixed(1)} ${y(share).toFixed(1)}`).join("L");
    const text = columns.map(({ name, values }) => `${name} ${short(values[at] ?? "–")}`).join(", ");
    const line = element("path", { d: `M${d}`, class: good[at] ? "good" : "" }, element("title", {}, `${trial.job}: ${text}`));
    line.addEventListener("click", () => location.assign(`/ui/jobs/${encodeURIComponent(trial.job)}`));
    return line;
  });
  const paint = () => {
    const kept = trials.filter((_, at) => {
      const inside = [...brushes].every(([name, [low, high]]) => {
        const share = places[at][columns.findIndex((each) => each.name === name)] ?? null;
        return share !== null && share >= low && share <= high;
      });
      lines[at].classList.toggle("off", !inside);
      return inside;
    });
    chosen(new Set(kept.map(({ job }) => job)), brushes.size);
  };
  const focused = svg.contains(document.activeElement) ? document.activeElement.dataset.axis : null;
  const drawn = columns.map(({ name }, n) => brushAxis(name, axes[n], x(n), y, brushes, paint));
  svg.replaceChildren(...lines.filter((_, at) => !good[at]), ...lines.filter((_, at) => good[at]), ...drawn);
  drawn.find((each) => each.dataset.axis === focused)?.focus();
  paint();
}

function brushAxis(name, { ticks, at }, x, y, brushes, changed) {
  const labels = ticks.map(([share, text]) => element("text", { x: x + 6, y: y(share) + 4 }, text.slice(0, 14)));
  const box = element("rect", { x: x - 6, width: 12, class: "brush" });
  const hit = element("rect", { x: x - 14, y: TOP, width: 28, height: HEIGHT, class: "hit" });
  const title = element("text", { x, y: 14, class: "name" }, name.length > 18 ? `${name.slice(0, 17)}…` : name, element("title", {}, name));
  const group = element("g", { tabindex: 0, role: "slider", "aria-label": `Choose trials by ${name}`, "aria-orientation": "vertical", "aria-valuemin": 0, "aria-valuemax": 100, "data-axis": name },
    title, element("path", { d: `M${x} ${TOP}V${TOP + HEIGHT}`, class: "axis" }), ...labels, box, hit);
  const show = () => {
    const [low, high] = brushes.get(name) ?? [0, 1];
    const text = (share) => (at ? short(at(share)) : `${Math.round(100 * share)} %`);
    group.setAttribute("aria-valuenow", Math.round(50 * (low + high)));
    group.setAttribute("aria-valuetext", brushes.has(name) ? `from ${text(low)} to ${text(high)}` : "all");
    box.setAttribute("y", y(high));
    box.setAttribute("height", brushes.has(name) ? y(low) - y(high) : 0);
  };
  const set = (brush) => {
    if (brush) brushes.set(name, brush);
    else brushes.delete(name);
    show();
    changed();
  };
  const share = (event) => {
    const exact = 1 - (event.clientY - hit.getBoundingClientRect().top) / HEIGHT;
    // Near an end is the end: the least and the greatest value are there.
    return exact < 0.03 ? 0 : exact > 0.97 ? 1 : exact;
  };
  hit.addEventListener("pointerdown", (event) => {
    const begin = share(event);
    hit.setPointerCapture(event.pointerId);
    hit.onpointermove = (moved) => set([Math.min(begin, share(moved)), Math.max(begin, share(moved))]);
    hit.onpointerup = (last) => {
      hit.onpointermove = null;
      // A click, and no drag, clears.
      if (Math.abs(share(last) - begin) < 0.02) set(null);
    };
  });
  group.addEventListener("keydown", (event) => {
    const step = { ArrowUp: 0.05, ArrowDown: -0.05 }[event.key];
    if (event.key === "Escape") set(null);
    if (!step) return;
    event.preventDefault();
    const [low, high] = brushes.get(name) ?? (step > 0 ? [0.75 - step, 1 - step] : [-step, 0.25 - step]);
    const moved = Math.max(-low, Math.min(1 - high, step));
    set([low + moved, high + moved]);
  });
  show();
  return group;
}

const [LEFT, RIGHT, UNDER, CELLS, BANDS] = [64, 76, 34, 64, 9];

// Values between trials are weighted by distance: the nearest count most. As bands, whose edges are
// the contours.
export function contour(canvas, points, across, up, note) {
  const sides = [across, up].map(({ values, even }) => axis(values, even));
  const spots = points
    .map(({ value, text }, at) => ({ value, text, x: sides[0].place(across.values[at]), y: sides[1].place(up.values[at]) }))
    .filter(({ x, y }) => x !== null && y !== null);
  const estimate = (x, y) => {
    let [sum, weights] = [0, 0];
    for (const spot of spots) {
      const weight = 1 / ((spot.x - x) ** 2 + (spot.y - y) ** 2 + 0.0005) ** 1.5;
      sum += weight * spot.value;
      weights += weight;
    }
    return sum / weights;
  };
  const ordered = spots.map(({ value }) => value).sort((a, b) => a - b);
  // One that went astray does not take the colours from all others.
  const [low, high] = [ordered[0], ordered[Math.floor(0.9 * (ordered.length - 1))]];
  const band = (value) => Math.max(0, Math.min(1, Math.floor((BANDS * (value - low)) / (high - low || 1)) / (BANDS - 1)));
  const image = new OffscreenCanvas(CELLS, CELLS);
  const pixels = new ImageData(CELLS, CELLS);
  for (let n = 0; n < CELLS * CELLS; n++) {
    const [x, y] = [((n % CELLS) + 0.5) / CELLS, 1 - (Math.floor(n / CELLS) + 0.5) / CELLS];
    pixels.data.set([...shade(band(estimate(x, y))), 255], 4 * n);
  }
  image.getContext("2d").putImageData(pixels, 0, 0);
  const [width, height, ratio] = [canvas.parentNode.clientWidth - 2, 240, devicePixelRatio];
  const area = { left: LEFT, top: 10, width: width - LEFT - RIGHT, height: height - UNDER - 10 };
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.drawImage(image, area.left, area.top, area.width, area.height);
  const spotAt = ({ x, y }) => [area.left + x * area.width, area.top + (1 - y) * area.height];
  for (const spot of spots) {
    pen.beginPath();
    pen.arc(...spotAt(spot), 3.5, 0, 7);
    pen.fillStyle = "#fff";
    pen.strokeStyle = "#000";
    pen.fill();
    pen.stroke();
  }
  Object.assign(pen, { fillStyle: getComputedStyle(canvas).color, font: `12px ${getComputedStyle(canvas).fontFamily}`, textBaseline: "middle", textAlign: "center" });
  for (const [share, text] of sides[0].ticks) pen.fillText(text.slice(0, 12), area.left + share * area.width, area.top + area.height + 12);
  pen.textAlign = "right";
  for (const [share, text] of sides[1].ticks) pen.fillText(text.slice(0, 9), LEFT - 6, area.top + (1 - share) * area.height);
  pen.textAlign = "left";
  for (let n = 0; n < BANDS; n++) {
    pen.fillStyle = `rgb(${shade(n / (BANDS - 1)).join(" ")})`;
    pen.fillRect(width - RIGHT + 12, area.top + (1 - (n + 1) / BANDS) * area.height, 12, area.height / BANDS + 1);
  }
  pen.fillStyle = getComputedStyle(canvas).color;
  for (const share of [0, 1]) pen.fillText(short(low + share * (high - low)), width - RIGHT + 28, area.top + 6 + (1 - share) * (area.height - 12));
  canvas.onpointermove = (event) => {
    const [x, y] = [(event.offsetX - area.left) / area.width, 1 - (event.offsetY - area.top) / area.height];
    if (x < 0 || x > 1 || y < 0 || y > 1) return;
    const near = spots.find((spot) => Math.hypot(spotAt(spot)[0] - event.offsetX, spotAt(spot)[1] - event.offsetY) < 8);
    const where = [across, up].map(({ name }, n) => (sides[n].at ? `${name} ${short(sides[n].at([x, y][n]))}` : "")).filter(Boolean);
    note.textContent = near ? near.text : `${where.join(", ")}: about ${short(estimate(x, y))}`;
  };
}
