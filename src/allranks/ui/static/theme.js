// Runs before the page is drawn, so that it never flashes in the other colours.
for (const name of ["theme", "density", "times"]) {
  const chosen = localStorage.getItem(name);
  if (chosen) document.documentElement.dataset[name] = chosen;
}
