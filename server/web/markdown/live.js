// Markdown that grows. Only the blocks that have changed are rendered again, so that a selection
// survives in the others.

import { blocks } from "./markdown.js";

export class LiveMarkdown {
  #root;
  #enhance;
  #shown = []; // [{source, element}]

  /** `enhance(element)` completes what was rendered. */
  constructor(root, enhance) {
    this.#root = root;
    this.#enhance = enhance;
  }

  /** Show a text, in place of the one before. */
  update(text) {
    const wanted = blocks(text);
    let same = 0;
    while (same < wanted.length && wanted[same].source === this.#shown[same]?.source) same += 1;
    for (const { element } of this.#shown.splice(same)) element.remove();
    for (const { source, nodes } of wanted.slice(same)) {
      const element = document.createElement("div");
      element.className = "block";
      element.append(...nodes());
      this.#root.append(element);
      this.#enhance(element);
      this.#shown.push({ source, element });
    }
  }
}
