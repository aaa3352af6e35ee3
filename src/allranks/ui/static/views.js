// Filters of the list of jobs under a name of the reader's, kept in this browser.

const KEY = "allranks-views";
const list = document.getElementById("view-list");
const form = document.getElementById("save-view");

function views() {
  try {
    return Object.entries(JSON.parse(localStorage.getItem(KEY)) ?? {});
  } catch {
    return [];
  }
}

function keep(entries) {
  localStorage.setItem(KEY, JSON.stringify(Object.fromEntries(entries)));
  show();
}

function show() {
  list.replaceChildren(
    ...views().map(([name, query]) => {
      const view = document.createElement("span");
      const link = document.createElement("a");
      link.href = `/ui/${query}`;
      link.textContent = name;
      if (query === location.search) link.setAttribute("aria-current", "page");
      const remove = document.createElement("button");
      remove.className = "plain";
      remove.textContent = "×";
      remove.setAttribute("aria-label", `Remove the view ${name}`);
      remove.addEventListener("click", () => keep(views().filter(([each]) => each !== name)));
      view.append(link, " ", remove);
      return view;
    }),
  );
  const filtered = [...new URLSearchParams(location.search).values()].some(Boolean);
  form.hidden = !filtered;
  document.getElementById("views").hidden = !filtered && !views().length;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const name = new FormData(form).get("view");
  keep([...views().filter(([each]) => each !== name), [name, location.search]]);
  form.reset();
});
show();
