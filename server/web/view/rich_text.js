// Tables, code blocks and formulas of rendered Markdown: a box that scrolls, colors, a copy button,
// typeset math. The libraries for code and math are loaded when the first one appears.

import { highlight } from "../markdown/highlight.js";
import { typeset } from "../markdown/math.js";
import { phrase } from "../strings/phrase.js";
import { make } from "./dom.js";
import { copyButton } from "./message_parts.js";

const LONG_WORD = /\S{30}/; // longer than a word of prose: a URL, a path, a digest

/** Complete the tables, code blocks and formulas in an element. */
export function enhance(root) {
  for (const table of root.querySelectorAll("table:not(.table table)")) completeTable(table);
  for (const pre of root.querySelectorAll("pre:not(.code pre)")) completeCode(pre);
  for (const formula of root.querySelectorAll(".math:not(.typeset)")) {
    formula.classList.add("typeset");
    typeset(formula);
  }
}

// A table that is wider than the page scrolls in its box. Only cells with a long word break it.
function completeTable(table) {
  for (const cell of table.querySelectorAll("th, td")) cell.classList.toggle("long", LONG_WORD.test(cell.textContent));
  const box = make("div", { className: "table", role: "group", ariaLabel: phrase("message.table"), tabIndex: 0 }); // the keyboard can scroll it
  table.replaceWith(box);
  box.append(table);
}

function completeCode(pre) {
  const { language = "" } = pre.dataset;
  const code = pre.firstChild;
  const head = make("div", { className: "code-head" }, make("span", {}, language), copyButton(code.textContent, phrase("message.copy_code")));
  const box = make("div", { className: "code" }, head);
  pre.replaceWith(box);
  box.append(pre);
  if (language) highlight(code, language);
}
