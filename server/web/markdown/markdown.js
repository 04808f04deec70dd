// Markdown as DOM nodes. markdown-it parses it; no text is ever interpreted as HTML.

import MarkdownIt from "../vendor/markdown-it.esm.min.mjs";
import { phrase } from "../strings/phrase.js";
import { make } from "../view/dom.js";
import { githubSyntax } from "./github_syntax.js";
import { mathSyntax } from "./math_syntax.js";

// markdown-it drops blocks that are nested deeper.
const MAX_NESTING = 100;
const SAFE_LINK = /^(https?|mailto):/i;
const CONTAINERS = new Set(
  "p h1 h2 h3 h4 h5 h6 ul ol li blockquote table thead tbody tr th td strong em s a".split(" "),
);
const parser = new MarkdownIt({ html: false, breaks: true, linkify: true, maxNesting: MAX_NESTING })
  .use(mathSyntax)
  .use(githubSyntax);
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false }); // README.md is not an address

/** The DOM nodes of a text; one paragraph of plain text if it cannot be rendered. */
export const render = (source) => blocks(source).flatMap(({ nodes }) => nodes());

/** The top-level blocks of a text: [{source, nodes()}], where `nodes` renders the block. */
export function blocks(source) {
  try {
    const tokens = parser.parse(source, {});
    if (!tokens.some(({ level }) => level >= MAX_NESTING - 1)) return groups(tokens, source.split(/\r\n|\n|\r/));
  } catch (error) {
    console.error(error);
  }
  return [{ source, nodes: () => [make("p", { className: "plain-text" }, source)] }];
}

// Tokens are a flat list. At level 0 a block begins, and ends if it is one token.
function groups(tokens, lines) {
  const list = [];
  for (const token of tokens) {
    if (token.level === 0 && token.nesting >= 0) {
      const group = [];
      const [start, end] = token.map;
      list.push({ source: `${token.type}\n${lines.slice(start, end).join("\n")}`, group, nodes: () => nodes(group) });
    }
    list.at(-1).group.push(token);
  }
  return list;
}

// A token opens an element, closes it, or is one.
function nodes(tokens) {
  const root = document.createDocumentFragment();
  let parent = root;
  for (const token of tokens) {
    if (token.hidden) continue; // the paragraph of an item in a tight list
    if (token.type === "inline") {
      parent.append(...nodes(token.children));
    } else if (token.nesting === 1) {
      parent = parent.appendChild(container(token));
    } else if (token.nesting === -1) {
      parent = parent.parentNode;
    } else {
      parent.append(leaf(token));
    }
  }
  return [...root.childNodes];
}

function container({ tag, attrs }) {
  const attributes = Object.fromEntries(attrs ?? []);
  if (!CONTAINERS.has(tag) || (tag === "a" && !SAFE_LINK.test(attributes.href))) return make("span");
  // The page's name is the heading of level 1.
  const element = make(tag.replace(/^h([1-5])$/, (_, level) => `h${Number(level) + 1}`));
  if (tag === "a") Object.assign(element, { href: attributes.href, target: "_blank", rel: "noopener noreferrer" });
  if (tag === "ol" && attributes.start) element.start = attributes.start;
  if (attributes.class) element.className = attributes.class;
  if (attributes.style) element.style.textAlign = attributes.style.replace("text-align:", "");
  return element;
}

function leaf({ type, content, info, meta }) {
  switch (type) {
    case "hr":
    case "hardbreak":
    case "softbreak":
      return make(type === "hr" ? "hr" : "br");
    case "code_inline":
      return make("code", {}, content);
    case "fence":
    case "code_block":
      return codeBlock(content.replace(/\n$/, ""), info.trim().split(/\s+/)[0]);
    case "math":
      return formula(content, meta);
    case "task":
      return make("input", { type: "checkbox", disabled: true, checked: meta.done, ariaLabel: meta.done ? phrase("message.done") : phrase("message.not_done") });
    default: // text; of an image, its description
      return content;
  }
}

// A formula as TeX, which math.js typesets. The title is the source with its delimiters.
function formula(tex, { display, source }) {
  return make("span", { className: display ? "math display" : "math", title: source }, tex);
}

function codeBlock(text, language) {
  const box = make("pre", { tabIndex: 0 }, make("code", {}, text)); // the keyboard can scroll it
  if (language) box.dataset.language = language;
  return box;
}
