// Colours of terminals: what programs print between ESC [ and m. Other sequences are left out.

const COLOUR = /\x1b\[([0-9;:]*)m/g;
const OTHER = /\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-9;:?]*[ -/]*[@-ln-~]|\x1b[@-Z\\^_]|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]/g;
const STYLES = { 1: "bold", 2: "dim", 3: "italic", 4: "underline" };

export function plain(text) {
  return text.replace(OTHER, "").replace(COLOUR, "");
}

// The nearest of the sixteen colours: pages may set no others.
function nearest(red, green, blue) {
  const bright = Math.max(red, green, blue) > 200 ? 8 : 0;
  const half = Math.max(64, Math.max(red, green, blue) / 2);
  return bright + (red > half ? 1 : 0) + (green > half ? 2 : 0) + (blue > half ? 4 : 0);
}

function of256(number) {
  if (number < 16) return number;
  if (number > 231) return number > 243 ? 7 : 8;
  const part = number - 16;
  return nearest(...[36, 6, 1].map((each) => (Math.floor(part / each) % 6) * 51));
}

function change(style, codes) {
  for (let at = 0; at < codes.length; at++) {
    const code = codes[at];
    if (code === 0) style.clear();
    else if (STYLES[code]) style.set(STYLES[code], "");
    else if (code === 22) ["bold", "dim"].forEach((each) => style.delete(each));
    else if (code === 23) style.delete("italic");
    else if (code === 24) style.delete("underline");
    else if (code === 38 || code === 48) {
      const kind = code === 38 ? "colour" : "back";
      if (codes[at + 1] === 5) style.set(kind, of256(codes[at + 2] || 0));
      if (codes[at + 1] === 2) style.set(kind, nearest(...[2, 3, 4].map((each) => codes[at + each] || 0)));
      at += codes[at + 1] === 5 ? 2 : 4;
    } else if (code === 39) style.delete("colour");
    else if (code === 49) style.delete("back");
    else if (code >= 30 && code <= 37) style.set("colour", code - 30);
    else if (code >= 90 && code <= 97) style.set("colour", code - 82);
    else if (code >= 40 && code <= 47) style.set("back", code - 40);
    else if (code >= 100 && code <= 107) style.set("back", code - 92);
  }
}

// A line with its colours as elements.
export function coloured(text) {
  const all = document.createDocumentFragment();
  const style = new Map();
  text.replace(OTHER, "").split(COLOUR).forEach((part, at) => {
    if (at % 2) change(style, part.split(/[;:]/).map(Number));
    else if (part && style.size) {
      const span = document.createElement("span");
      span.className = [...style].map(([kind, value]) => `ansi-${kind}${value === "" ? "" : `-${value}`}`).join(" ");
      span.textContent = part;
      all.append(span);
    } else if (part) all.append(part);
  });
  return all;
}
