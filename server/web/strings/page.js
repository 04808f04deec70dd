// Put the texts into index.html, before the other modules are loaded. The attribute data-text there has the key
// of an element's text, and the attributes below have the keys of its other readable attributes.

import { phrase } from "./phrase.js";

const PROPERTIES = {
  text: ["textContent"],
  label: ["ariaLabel"],
  title: ["title"],
  tip: ["ariaLabel", "title"],
  placeholder: ["placeholder"],
};

for (const [name, properties] of Object.entries(PROPERTIES)) {
  for (const element of document.querySelectorAll(`[data-${name}]`)) {
    for (const property of properties) element[property] = phrase(element.dataset[name]);
  }
}
