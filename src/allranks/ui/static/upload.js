// Files or a whole folder, and how much that is.

const files = document.getElementById("files");
const chosen = document.getElementById("chosen");
const MOST = 60e6;

document.getElementById("folder").addEventListener("change", (event) => {
  files.webkitdirectory = event.target.checked;
  files.value = "";
  chosen.textContent = "";
});

files.addEventListener("change", () => {
  const size = [...files.files].reduce((sum, each) => sum + each.size, 0);
  const text = `${files.files.length} ${files.files.length === 1 ? "file" : "files"}, ${(size / 1e6).toFixed(1)} MB`;
  chosen.textContent = text;
  files.setCustomValidity(size > MOST ? `${text}: more than 60 MB; use the terminal` : "");
  files.reportValidity();
});
