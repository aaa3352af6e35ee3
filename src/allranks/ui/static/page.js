// Every page: local times, light and dark, copying, and live parts.

const UNITS = [[31557600, "y"], [2629800, "mo"], [86400, "d"], [3600, "h"], [60, "min"]];

// The same words as `relative` in render.py.
function relative(seconds) {
  const size = Math.abs(seconds);
  if (size < 45) return "now";
  const [each, unit] = UNITS.find(([each]) => size >= 0.95 * each) ?? UNITS.at(-1);
  const amount = `${Math.round(size / each)} ${unit}`;
  return seconds > 0 ? `${amount} ago` : `in ${amount}`;
}

export function localTimes(root = document) {
  const exact = document.documentElement.dataset.times === "exact";
  for (const each of root.querySelectorAll("time[datetime]")) {
    const at = new Date(each.dateTime);
    const text = at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
    each.title = at.toString();
    each.textContent = exact ? text : relative((Date.now() - at) / 1000);
  }
}
setInterval(() => localTimes(), 30_000);

function isDark() {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

// What the reader chose for all pages; `theme.js` reads it before a page is drawn.
export function choose(name, value) {
  document.documentElement.dataset[name] = value;
  localStorage.setItem(name, value);
}

document.getElementById("theme").addEventListener("click", () => {
  choose("theme", isDark() ? "light" : "dark");
  dispatchEvent(new Event("theme"));
});

document.addEventListener("click", (event) => {
  const text = event.target.dataset?.copy;
  if (event.target.dataset?.back !== undefined) history.back();
  if (text) navigator.clipboard?.writeText(text).then(() => (event.target.textContent = "Copied"));
});

// What is chosen is shown at once; texts wait for the Enter key, and columns for their button.
document.addEventListener("change", ({ target }) => {
  if (target.matches("[data-submits]:is(select, input), form[data-submits] :is(select, [type=checkbox]:not([name=column]))")) target.form.requestSubmit();
});

// A part of the page is replaced by the same part of the page as it is now, if that differs. What
// the reader has ticked, opened or focused stays.
function replacePart(old, part) {
  localTimes(part);
  const ticked = new Set([...old.querySelectorAll("input:checked")].map((each) => each.value));
  const opened = [...old.querySelectorAll("details")].map((each) => each.open);
  const focus = old.contains(document.activeElement) ? document.activeElement : null;
  const place = focus && [...old.querySelectorAll("a,button,input,[tabindex]")].indexOf(focus);
  const charts = new Map([...old.querySelectorAll("[data-kept]")].map((each) => [each.dataset.kept, each]));
  old.replaceWith(part);
  for (const each of part.querySelectorAll("input[type=checkbox]")) each.checked = ticked.has(each.value);
  part.querySelectorAll("details").forEach((each, at) => (each.open = opened[at] ?? each.open));
  for (const each of part.querySelectorAll("[data-kept]")) {
    const kept = charts.get(each.dataset.kept);
    if (kept) each.replaceWith(kept);
  }
  if (focus) part.querySelectorAll("a,button,input,[tabindex]")[place]?.focus();
}

// A request, again if the network changed meanwhile: a laptop that wakes, a tunnel that is renewed.
export async function get(address, options) {
  for (let left = 3; ; left--) {
    try {
      return await fetch(address, options);
    } catch (error) {
      if (left === 0) throw error;
      await new Promise((done) => setTimeout(done, 1000));
    }
  }
}

let busy = false;
let again = false;
const sources = new Map();

export async function refresh() {
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  try {
    const headers = { accept: "text/html", "x-allranks-refresh": "yes" };
    const answer = await fetch(location.href, { headers });
    if (answer.redirected && new URL(answer.url).pathname === "/ui/sign-in") {
      location.assign(answer.url);
      return;
    }
    if (answer.ok) {
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      document.title = page.title;
      // A refresh comes without the secret of forms, so that it can be compressed.
      const secret = document.querySelector("input[name=forms]")?.defaultValue;
      for (const each of page.querySelectorAll("input[name=forms]")) each.setAttribute("value", secret);
      for (const part of page.querySelectorAll("[data-part]")) {
        const old = document.getElementById(part.id);
        const source = part.outerHTML;
        if (old && sources.get(part.id) !== source) {
          sources.set(part.id, source);
          replacePart(old, part);
        }
      }
      if (page.body.dataset.live !== "yes") close();
    }
    dispatchEvent(new Event("news"));
  } finally {
    busy = false;
    if (again) {
      again = false;
      setTimeout(refresh, 500);
    }
  }
}

// Browsers open six connections to a server, for all tabs together, and a stream holds one of them.
// So only pages that are looked at have a stream: see `whileVisible`.
let events = null;

function close() {
  events?.close();
  events = null;
}

// Call `open` when the page is looked at again, and `close` when it is not.
export function whileVisible(open, close) {
  const change = () => (document.visibilityState === "visible" ? open() : close());
  document.addEventListener("visibilitychange", change);
  addEventListener("pagehide", close);
  change();
}

function offline(is) {
  document.getElementById("offline").hidden = !is;
}

function watch() {
  const { live, job } = document.body.dataset;
  if (live !== "yes" || events) return;
  let first = !hidden;
  events = new EventSource(`/ui/changes?job=${encodeURIComponent(job)}`);
  events.onopen = () => offline(false);
  events.onerror = () => {
    offline(true);
    // A browser gives up after an answer that is an error; the server may only be restarting.
    if (events?.readyState === EventSource.CLOSED) {
      close();
      setTimeout(watch, 2000);
    }
  };
  events.onmessage = (message) => {
    const { error } = JSON.parse(message.data);
    offline(Boolean(error));
    if (!error && !first) refresh().catch(() => offline(true));
    first = false;
  };
}

for (const part of document.querySelectorAll("[data-part]")) sources.set(part.id, part.outerHTML);
localTimes(document);
// The first answer after an interruption is news: things happened meanwhile.
let hidden = false;
whileVisible(watch, () => {
  hidden = true;
  close();
});
