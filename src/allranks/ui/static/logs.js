// The output of ranks. Only the end of a file is read; scrolling up reads what is before it.

import { get, refresh, whileVisible } from "./page.js";

const MOST = 20000;
const log = document.getElementById("log");
const follow = document.getElementById("follow");
const { job, path, rank, attempt, ended } = log.dataset;
let start = 0;
// Bytes that have arrived, by rank.
let ends = {};
let reading = false;

function line(text, rankOf) {
  const row = document.createElement("div");
  // Colours of terminals are left out.
  const plain = text.replace(/\x1b\[[0-9;?]*[ -/]*[@-~]/g, "");
  row.textContent = (rankOf === undefined ? "" : `[${rankOf}] `) + plain;
  if (/\b(ERROR|CRITICAL|FATAL|Traceback)\b|\w(Error|Exception)\b/.test(plain)) row.className = "error";
  else if (/\bWARN(ING)?\b|\wWarning\b/i.test(plain)) row.className = "warning";
  return row;
}

// What tqdm and others draw over is one line, its last state.
function lines(text) {
  const found = text.replaceAll("\r\n", "\n").split("\n");
  if (found.at(-1) === "") found.pop();
  return found.map((each) => each.slice(each.replace(/\r$/, "").lastIndexOf("\r") + 1));
}

function bottom() {
  if (follow.checked) log.scrollTop = log.scrollHeight;
}

async function part(before) {
  const query = new URLSearchParams({ path });
  if (before !== undefined) query.set("before", before);
  const answer = await get(`/ui/jobs/${job}/log?${query}`);
  if (!answer.ok) throw new Error(String(answer.status));
  return answer.json();
}

async function earlier() {
  if (reading || start === 0 || !path) return;
  reading = true;
  try {
    const piece = await part(start);
    const height = log.scrollHeight;
    log.prepend(...lines(piece.text).map((each) => line(each)));
    start = piece.start;
    log.scrollTop += log.scrollHeight - height;
  } finally {
    reading = false;
  }
}

const rests = new Map();

// Output arrives in pieces that may end within a line.
function append(text, rankOf) {
  const whole = (rests.get(rankOf) ?? "") + text;
  const cut = whole.lastIndexOf("\n") + 1;
  rests.set(rankOf, whole.slice(cut));
  log.append(...lines(whole.slice(0, cut)).map((each) => line(each, rankOf)));
  while (log.childElementCount > MOST) {
    log.firstElementChild.remove();
    start = 1; // what is before it was dropped here, not in the file
  }
  bottom();
}

function flush() {
  for (const [rankOf, text] of rests) if (text) log.append(...lines(text).map((each) => line(each, rankOf)));
  rests.clear();
  bottom();
}

let events = null;
let over = false;

// Goes on where it was: a stream is closed while nobody looks, and the server may be restarted.
function tail() {
  if (events || over) return;
  const query = new URLSearchParams({ rank, attempt, ends: JSON.stringify(ends) });
  events = new EventSource(`/ui/jobs/${job}/tail?${query}`);
  events.onmessage = (message) => {
    const told = JSON.parse(message.data);
    if (told.error) return; // the stream ends, which is an error below
    if (told.over) {
      over = true;
      pause();
      flush();
      if (!log.childElementCount) log.textContent = "Nothing was printed.";
      if (!ended) refresh();
      return;
    }
    ends[told.rank] = told.end;
    append(told.text, rank === "all" ? told.rank : undefined);
  };
  events.onerror = () => {
    pause();
    setTimeout(() => document.visibilityState === "visible" && tail(), 2000);
  };
}

function pause() {
  events?.close();
  events = null;
}

async function begin() {
  if (path) {
    const piece = await part();
    start = piece.start;
    ends = { [rank]: piece.end };
    if (ended) {
      log.append(...lines(piece.text).map((each) => line(each)));
      bottom();
      return;
    }
    append(piece.text, undefined);
  }
  whileVisible(tail, pause);
}

log.addEventListener("scroll", () => {
  if (log.scrollTop < 200) earlier();
  if (log.scrollHeight - log.scrollTop - log.clientHeight > 40) follow.checked = false;
});

const search = document.getElementById("search");
const matches = document.getElementById("matches");
const found = document.getElementById("found");
let searching = null;

search?.addEventListener("submit", (event) => {
  event.preventDefault();
  searching?.close();
  const data = new FormData(search);
  const nothing = !data.get("text") && !data.get("level");
  matches.replaceChildren();
  matches.hidden = nothing;
  found.textContent = "";
  if (nothing) return;
  const query = new URLSearchParams({ path, attempt, text: data.get("text"), level: data.get("level") });
  searching = new EventSource(`/ui/jobs/${job}/search?${query}`);
  searching.onmessage = (message) => {
    const told = JSON.parse(message.data);
    if (told.lines) matches.append(...told.lines.map((each) => line(each, told.rank ?? undefined)));
    if (told.over) {
      searching.close();
      const lines = told.found === 1 ? "1 line" : `${told.found} lines`;
      found.textContent = told.stopped ? `the first ${told.found} lines` : lines;
    } else {
      found.textContent = `searching, ${Math.round(told.read / 1e6)} MB`;
    }
  };
  searching.onerror = () => searching.close();
});

begin().catch(() => (log.textContent = "The output did not arrive: reload the page."));
