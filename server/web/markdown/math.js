// Typeset formulas with KaTeX, which is loaded for the first one.

const VENDOR = new URL("../vendor/katex/", import.meta.url);
const MAX_LENGTH = 5000; // characters
const OPTIONS = { trust: false, strict: "ignore", maxSize: 20, maxExpand: 500 };

let loading = null;

/** Replace the TeX in an element by the formula. What KaTeX cannot read stays as it is. */
export async function typeset(element) {
  const tex = element.textContent;
  if (tex.length > MAX_LENGTH) return;
  try {
    const katex = globalThis.katex ?? (await (loading ??= load()));
    const box = document.createElement("span");
    katex.render(tex, box, { ...OPTIONS, displayMode: element.classList.contains("display") });
    element.replaceChildren(...box.childNodes);
    element.tabIndex = element.classList.contains("display") ? 0 : -1; // the keyboard can scroll it
  } catch {
    element.classList.add("plain-text");
    element.textContent = element.title;
  }
}

async function load() {
  const style = document.createElement("link");
  style.rel = "stylesheet";
  style.href = new URL("katex.min.css", VENDOR);
  document.head.append(style);
  await import(new URL("katex.min.js", VENDOR)); // it defines globalThis.katex
  return globalThis.katex;
}
