// The output of ranks. Only a part of it is read; scrolling reads what is before and after it.

import { get, refresh, whileVisible } from "./page.js";
import { coloured, plain } from "./ansi.js";

const MOST = 20000;
// Seconds within which ranks print the same line, if it is shown once.
const TOGETHER = 2;
// Ranks that one address names.
const SEVERAL = 400;
const log = document.getElementById("log");
const follow = document.getElementById("follow");
const fold = document.getElementById("fold");
const { job, path, rank, attempt, ended, at: wanted } = log.dataset;
const merged = rank === "all";
const place = `/ui/jobs/${job}`;
// What is shown reaches from here to there: bytes of one rank, pieces of all.
let begin = 0;
let end = 0;
let atEnd = false;
let reading = false;
let over = false;

function ranges(ranks) {
  const spans = [];
  for (const each of [...ranks].sort((a, b) => a - b)) {
    const last = spans.at(-1);
    if (last && each === last[1] + 1) last[1] = each;
    else spans.push([each, each]);
  }
  return spans.map(([first, last]) => (last > first ? `${first}–${last}` : first)).join(", ");
}

function addressOf(rankOf, offset, whole = merged) {
  return `${place}/logs?${new URLSearchParams({ rank: whole ? "all" : rankOf, attempt, at: `${rankOf}:${offset}` })}`;
}

function row(line) {
  const made = document.createElement("div");
  const rankOf = line.rank ?? Number(rank);
  const link = document.createElement("a");
  link.className = "place";
  link.href = addressOf(rankOf, line.offset);
  link.tabIndex = -1;
  link.textContent = merged ? `[${rankOf}]` : "";
  if (!merged) link.setAttribute("aria-label", "Link to this line");
  made.append(link, merged ? " " : "", coloured(line.text));
  if (line.at) made.dataset.time = line.at;
  const text = plain(line.text);
  if (/\b(ERROR|CRITICAL|FATAL|Traceback)\b|\w(Error|Exception)\b/.test(text)) made.classList.add("error");
  else if (/\bWARN(ING)?\b|\wWarning\b/i.test(text)) made.classList.add("warning");
  if (wanted === `${rankOf}:${line.offset}`) made.setAttribute("aria-current", "location");
  return made;
}

// Rows of lines. Lines that several ranks print at about the same time are one row, in which no
// rank's own order changes.
class Rows {
  #rows = new Map();
  #last = new Map();
  #times = new Map();
  #count = 0;

  of(lines) {
    const made = [];
    const changed = new Set();
    for (const line of lines) {
      if (merged) line.at = Math.max(line.at, this.#times.get(line.rank) ?? 0);
      this.#times.set(line.rank, line.at);
      const same = this.#rows.get(line.text)?.filter((each) => Math.abs(line.at - each.at) <= TOGETHER) ?? [];
      const last = this.#last.get(line.rank) ?? -1;
      let entry = merged && fold.checked ? same.find((each) => each.number > last && !each.ranks.has(line.rank)) : null;
      if (!entry) {
        entry = { at: line.at, number: this.#count++, ranks: new Set(), row: row(line) };
        this.#rows.set(line.text, [...same, entry]);
        made.push(entry.row);
      }
      entry.ranks.add(line.rank);
      this.#last.set(line.rank, entry.number);
      if (entry.ranks.size > 1) changed.add(entry);
      if (wanted === `${line.rank}:${line.offset}`) entry.row.setAttribute("aria-current", "location");
    }
    for (const { ranks, row: of } of changed) of.firstChild.textContent = `[ranks ${ranges(ranks)}]`;
    if (this.#rows.size > MOST) this.#rows.clear();
    return made;
  }
}

let newest = new Rows();

function bottom() {
  if (follow.checked) log.scrollTop = log.scrollHeight;
}

async function part(query) {
  const answer = await get(`${place}/log?${new URLSearchParams({ rank, attempt, path, live: ended ? "" : "1", ...query })}`);
  if (!answer.ok) throw new Error(String(answer.status));
  return answer.json();
}

async function read(work) {
  if (reading) return;
  reading = true;
  try {
    await work();
  } finally {
    reading = false;
  }
}

const earlier = () =>
  read(async () => {
    if (begin === 0) return;
    const piece = await part({ before: begin });
    const height = log.scrollHeight;
    log.prepend(...new Rows().of(piece.lines));
    begin = piece.begin;
    log.scrollTop += log.scrollHeight - height;
  });

const later = () =>
  read(async () => {
    if (atEnd) return;
    const piece = await part({ after: end });
    append(piece.lines);
    end = piece.end;
    reached(piece);
  });

// Whether everything so far is shown.
function reached(piece) {
  atEnd = merged ? piece.over || piece.end >= piece.pieces : piece.over;
  over = Boolean(ended) && atEnd;
  if (over && !log.childElementCount) log.textContent = "Nothing was printed.";
  if (atEnd && !over) whileVisible(tail, pause);
}

// Output of another node may have travelled longer: it goes where its time belongs.
function append(lines) {
  if (lines.length) log.querySelector(".empty")?.remove();
  for (const each of newest.of(lines)) {
    let last = log.lastElementChild;
    while (last && Number(last.dataset.time) > Number(each.dataset.time)) last = last.previousElementSibling;
    if (last) last.after(each);
    else log.prepend(each);
  }
  while (log.childElementCount > MOST) {
    log.firstElementChild.remove();
    begin = Infinity; // what is before it was dropped here, not in the file
  }
  bottom();
}

let events = null;

// Goes on where it was: a stream is closed while nobody looks, and the server may be restarted.
function tail() {
  if (events || over) return;
  events = new EventSource(`${place}/tail?${new URLSearchParams({ rank, attempt, after: end })}`);
  events.onmessage = (message) => {
    const piece = JSON.parse(message.data);
    if (piece.error) return; // the stream ends, which is an error below
    append(piece.lines);
    end = piece.end;
    if (!piece.over) return;
    over = true;
    pause();
    if (!log.querySelector("div")) log.textContent = "Nothing was printed.";
    refresh();
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

async function start(query) {
  pause();
  const piece = await part(query);
  newest = new Rows();
  const rows = newest.of(piece.lines);
  if (rows.length || ended) log.replaceChildren(...rows);
  begin = piece.begin;
  end = piece.end;
  reached(piece);
  const line = log.querySelector("[aria-current]");
  if (line) line.scrollIntoView({ block: "center" });
  else bottom();
}

log.addEventListener("scroll", () => {
  if (log.scrollTop < 200 && begin !== Infinity) earlier();
  const left = log.scrollHeight - log.scrollTop - log.clientHeight;
  if (left < 200 && !atEnd) later();
  if (left > 40) follow.checked = false;
});

log.addEventListener("mouseover", (event) => {
  const row = event.target.closest("[data-time]");
  if (row && !row.title) row.title = new Date(1000 * row.dataset.time).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
});

fold?.addEventListener("change", () => start(wanted ? { at: wanted } : {}));

const search = document.getElementById("search");
const matches = document.getElementById("matches");
const found = document.getElementById("found");
let searching = null;

// Calls `each` with every answer to a search, the last one too.
function look(query, each) {
  searching?.close();
  searching = new EventSource(`${place}/search?${new URLSearchParams({ path, attempt, ...query })}`);
  searching.onmessage = (message) => {
    const answer = JSON.parse(message.data);
    if (answer.over || answer.error) searching.close();
    each(answer);
    if (!answer.over) found.textContent = answer.error ?? `searching, ${Math.round(answer.read / 1e6)} MB`;
  };
  searching.onerror = () => searching.close();
}

// A match leads to its line in the log, among the lines of all ranks if they are shown.
function match(line) {
  const made = row(line);
  made.firstChild.removeAttribute("tabindex");
  return made;
}

search?.addEventListener("submit", (event) => {
  event.preventDefault();
  const data = new FormData(search);
  const nothing = !data.get("text") && !data.get("level");
  matches.replaceChildren();
  matches.hidden = nothing;
  found.textContent = "";
  searching?.close();
  if (nothing) return;
  look({ text: data.get("text"), level: data.get("level") }, (answer) => {
    if (answer.lines) matches.append(...answer.lines.map(match));
    if (!answer.over) return;
    const lines = answer.found === 1 ? "1 line" : `${answer.found} lines`;
    found.textContent = answer.stopped ? `the first ${answer.found} lines` : lines;
  });
});

// The first error of one rank; of all ranks the one that came first.
document.getElementById("first-error")?.addEventListener("click", () => {
  const firsts = [];
  look({ level: "error", first: "1" }, async (answer) => {
    firsts.push(...(answer.lines ?? []));
    if (!answer.over) return;
    found.textContent = firsts.length ? "" : "no error";
    if (!firsts.length) return;
    let first = firsts[0];
    let time = Infinity;
    // Addresses have a bound: some ranks at a time.
    for (let at = 0; firsts.length > 1 && at < firsts.length; at += SEVERAL) {
      const query = new URLSearchParams({ rank, attempt });
      for (const each of firsts.slice(at, at + SEVERAL)) query.append("at", `${each.rank}:${each.offset}`);
      const { lines } = await (await get(`${place}/log?${query}`)).json();
      const line = lines.find((each) => firsts.some(({ rank: of, offset }) => of === each.rank && offset === each.offset));
      if (line?.at < time) [first, time] = [line, line.at];
    }
    location.assign(addressOf(first.rank ?? rank, first.offset));
  });
});

if (wanted) follow.checked = false;
if (path || merged) {
  const failed = () => (log.textContent = "The output did not arrive: reload the page.");
  start(wanted ? { at: wanted } : {}).catch(failed);
} else if (!ended) {
  atEnd = true;
  whileVisible(tail, pause);
} else log.textContent = "Nothing was printed.";
