// Code blocks and formulas of rendered Markdown: colours, a copy button, typeset math.
// The libraries for both are loaded when the first one appears.

import { highlight } from "../markdown/highlight.js";
import { typeset } from "../markdown/math.js";
import { make } from "./dom.js";
import { copyButton } from "./message_parts.js";

/** Complete the code blocks and formulas in an element. */
export function enhance(root) {
  for (const pre of root.querySelectorAll("pre:not(.code pre)")) completeCode(pre);
  for (const formula of root.querySelectorAll(".math:not(.typeset)")) {
    formula.classList.add("typeset");
    typeset(formula);
  }
}

function completeCode(pre) {
  const { language = "" } = pre.dataset;
  const code = pre.firstChild;
  const head = make("div", { className: "code-head" }, make("span", {}, language), copyButton(code.textContent, "Copy the code"));
  const box = make("div", { className: "code" }, head);
  pre.replaceWith(box);
  box.append(pre);
  if (language) highlight(code, language);
}
