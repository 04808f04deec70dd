// Color code with highlight.js, which is loaded for the first block of code.

const MAX_LENGTH = 50_000; // characters

let library = null;
let loading = null;

/** Color the text of an element, if the language is known. */
export async function highlight(element, language) {
  const text = element.textContent;
  if (text.length > MAX_LENGTH) return;
  const hljs = library ?? (await (loading ??= load()));
  if (!hljs.getLanguage(language)) return;
  try {
    element.replaceChildren(hljs.highlight(text, { language, ignoreIllegals: true })._emitter.root);
  } catch (error) {
    console.error(error);
  }
}

async function load() {
  library = (await import("../vendor/highlight.min.mjs")).default;
  library.configure({ __emitter: DomEmitter });
  return library;
}

// What highlight.js calls with the parts of a text, here to make DOM nodes in place of HTML.
class DomEmitter {
  root = document.createDocumentFragment();
  #stack = [this.root];

  addText(text) {
    this.#stack.at(-1).append(text);
  }

  startScope(scope) {
    const span = document.createElement("span");
    span.className = scope.split(".").map((part, depth) => (depth ? `${part}_` : `hljs-${part}`)).join(" ");
    this.#stack.at(-1).append(span);
    this.#stack.push(span);
  }

  endScope() {
    this.#stack.pop();
  }

  openNode(scope) {
    this.startScope(scope);
  }

  closeNode() {
    this.endScope();
  }

  __addSublanguage(emitter) {
    this.#stack.at(-1).append(emitter.root);
  }

  finalize() {}

  toHTML() {
    return "";
  }
}
