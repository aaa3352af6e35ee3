// Shortcuts, and the palette and help that they open. What can be done is read from the page itself:
// its pages, its tabs and its buttons.

import { choose, get, localTimes } from "./page.js";

const $ = (query) => [...document.querySelectorAll(query)];
const words = (element) => element.textContent.trim().replace(/\s+/g, " ");

function flip(name, one, other) {
  choose(name, document.documentElement.dataset[name] === one ? other : one);
  localTimes();
}

function commands() {
  const link = (kind) => (each) => ({ text: words(each), kind, key: each.dataset.key && `g ${each.dataset.key}`, run: () => each.click() });
  return [
    ...$(".tabs a").map(link("this job")),
    ...$("main .actions :is(a, button)").filter((each) => each.offsetParent).map(link("action")),
    ...$("#menu nav a").map(link("page")),
    { text: "Switch between light and dark", kind: "view", key: "t", run: () => document.getElementById("theme").click() },
    { text: "Switch between exact and relative times", kind: "view", run: () => flip("times", "exact", "relative") },
    { text: "Switch between compact and wide rows", kind: "view", run: () => flip("density", "compact", "wide") },
    { text: "Show the keys", kind: "view", key: "?", run: help },
    { text: "Sign out", kind: "action", run: () => document.querySelector(".tools form").requestSubmit() },
  ];
}

// `restart digits` finds jobs by the rest of the words, and leads to that action.
const ACTIONS = ["restart", "cancel", "tag", "archive", "delete", "register"];

async function jobs(text) {
  const [first, ...rest] = text.split(" ");
  const action = rest.length && ACTIONS.find((each) => each === first.toLowerCase());
  const name = action ? rest.join(" ") : text;
  const answer = await get(`/ui/find?${new URLSearchParams({ text: name })}`);
  if (!answer.ok) return [];
  return (await answer.json()).map((each) => ({
    text: action ? `${action} ${each.name}` : each.name,
    kind: each.status,
    run: () => location.assign(action ? `/ui/do/${action}?${new URLSearchParams({ job: each.name })}` : `/ui/jobs/${encodeURIComponent(each.name)}`),
  }));
}

function dialog(label) {
  const made = document.createElement("dialog");
  made.setAttribute("aria-label", label);
  made.addEventListener("close", () => made.remove());
  made.addEventListener("click", (event) => event.target === made && made.close());
  document.body.append(made);
  return made;
}

function palette() {
  if (document.querySelector("dialog")) return;
  const made = dialog("Go to");
  made.innerHTML = `<input role="combobox" aria-expanded="true" aria-controls="found-here" aria-label="Find a job, a page or an action" placeholder="Find a job, a page or an action" autocomplete="off" spellcheck="false"><ul role="listbox" id="found-here" aria-label="Found"></ul>`;
  const [input, list] = made.children;
  const fixed = commands();
  let [shown, at] = [[], 0];
  const mark = (place) => {
    at = Math.max(0, Math.min(place, shown.length - 1));
    [...list.children].forEach((each, n) => each.setAttribute("aria-selected", n === at));
    list.children[at]?.scrollIntoView({ block: "nearest" });
    if (shown.length) input.setAttribute("aria-activedescendant", `found-${at}`);
  };
  const run = (place) => {
    made.close();
    shown[place]?.run();
  };
  const draw = (found, over = false) => {
    shown = found;
    list.replaceChildren(...found.map((each, n) => {
      const row = document.createElement("li");
      row.setAttribute("role", "option");
      row.id = `found-${n}`;
      const [text, kind] = [document.createElement("span"), document.createElement(each.key ? "kbd" : "span")];
      text.textContent = each.text;
      kind.textContent = each.key ?? each.kind;
      row.append(text, kind);
      row.addEventListener("click", () => run(n));
      return row;
    }));
    if (!found.length && over) list.innerHTML = `<li role="option" aria-disabled="true"><span>Nothing has this name.</span><span></span></li>`;
    mark(over ? at : 0);
  };
  let searching = null;
  const search = async () => {
    const text = input.value.trim();
    const parts = text.toLowerCase().split(/\s+/);
    const near = fixed.filter((each) => parts.every((part) => each.text.toLowerCase().includes(part)));
    // What the page has is there at once, so that Enter never runs what an earlier text had found.
    draw(near);
    const mine = (searching = jobs(text).catch(() => []));
    const found = await mine;
    if (mine === searching) draw(text ? [...near, ...found] : [...found, ...near], true);
  };
  input.addEventListener("input", search);
  input.addEventListener("keydown", async (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step && event.key !== "Enter") return;
    event.preventDefault();
    if (!shown.length) await searching;
    if (step) mark((at + step + shown.length) % shown.length);
    else run(at);
  });
  made.showModal();
  search();
}

const HELP = [
  ["Ctrl K", "find a job, a page or an action"], ["/", "go to the search of this page"], ["j k", "next and previous row"],
  ["x", "choose the row"], ["Enter", "open what has the focus"], ["1 … 9", "tabs of a job"], ["[ ]", "previous and next tab"],
  ["t", "light or dark"], ["?", "this help"], ["Esc", "close, or leave a field"],
];

function help() {
  if (document.querySelector("dialog")) return;
  const made = dialog("Keys");
  const body = document.createElement("div");
  body.className = "help";
  body.tabIndex = 0;
  const pages = $("#menu nav a").map((each) => [`g ${each.dataset.key}`, words(each)]);
  const list = document.createElement("dl");
  for (const [keys, what] of [...HELP, ...pages]) {
    const [term, text] = [document.createElement("dt"), document.createElement("dd")];
    for (const key of keys.split(" ")) term.append(Object.assign(document.createElement("kbd"), { textContent: key }), " ");
    text.textContent = what;
    list.append(term, text);
  }
  body.innerHTML = `<h2>Keys</h2><label><input type="checkbox"> single keys too, not only Ctrl K</label>`;
  const box = body.querySelector("input");
  box.checked = localStorage.getItem("keys") !== "off";
  box.addEventListener("change", () => localStorage.setItem("keys", box.checked ? "on" : "off"));
  body.append(list);
  made.append(body);
  made.showModal();
}

function row(step) {
  const rows = $("main tbody tr").filter((each) => each.querySelector("a"));
  const at = rows.findIndex((each) => each.contains(document.activeElement));
  rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.max(0, Math.min(at + step, rows.length - 1))]?.querySelector("a").focus();
}

function tab(step) {
  const tabs = $(".tabs a");
  tabs[tabs.findIndex((each) => each.ariaCurrent) + step]?.click();
}

function search() {
  const field = $("main .filters input:is([type=search], [type=text], :not([type]))").find((each) => each.offsetParent);
  if (field) field.focus();
  else palette();
}

const KEYS = {
  "?": help, t: () => document.getElementById("theme").click(), j: () => row(1), k: () => row(-1),
  x: () => document.activeElement.closest("tr")?.querySelector("input[type=checkbox]")?.click(),
  "[": () => tab(-1), "]": () => tab(1),
  "/": search,
};

let before = "";

addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    palette();
    return;
  }
  const field = event.target.closest?.("input:not([type=checkbox]), select, textarea, dialog");
  if (event.key === "Escape" && field && !field.closest("dialog")) field.blur();
  if (field || event.ctrlKey || event.metaKey || event.altKey || localStorage.getItem("keys") === "off") return;
  const page = before === "g" && $("#menu nav a").find((each) => each.dataset.key === event.key);
  const digit = /^[1-9]$/.test(event.key) && $(".tabs a")[event.key - 1];
  before = event.key;
  const act = page || digit ? () => (page || digit).click() : KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});
document.getElementById("find")?.addEventListener("click", palette);
document.getElementById("help")?.addEventListener("click", help);
if (navigator.platform.startsWith("Mac")) for (const each of $("#find kbd")) each.textContent = "⌘ K";
