// A small part of Markdown: paragraphs, headings, lists, code, bold, italics.
// `parse` makes plain data of a text, `render` makes DOM nodes of that: no text becomes markup.

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.+?)\s*#*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(?:\s+(.*))?$/;
const INLINE = new RegExp(
  [
    /\\([\\`*_#[\](){}<>+.!~|-])/, // 1: an escaped sign
    /(`+)([^`]|[^`][^]*?[^`])\2(?!`)/, // 3: code
    /\*\*(?=\S)([^]*?\S)\*\*/, // 4: bold
    /(?<![\w_])__(?=\S)([^]*?\S)__(?![\w_])/, // 5
    /\*(?=[^\s*])([^]*?[^\s*])\*(?!\*)/, // 6: italics
    /(?<![\w_])_(?=[^\s_])([^]*?[^\s_])_(?![\w_])/, // 7
  ].map(({ source }) => source).join("|"),
  "g",
);

/** Blocks: {kind: "p" | "h" | "ul" | "ol" | "code", ...}; the text in them as `inline` has it. */
export function parse(source) {
  return blocks(source.replaceAll("\t", "    ").split(/\r\n|\n|\r/));
}

/** The nodes of the blocks that `parse` gave. */
export function render(found) {
  return found.map((block) => {
    if (block.kind === "code") return codeNode(block);
    if (block.kind === "p") return node("p", inlineNodes(block.inline));
    // The page's name is the first level.
    if (block.kind === "h") return node(`h${Math.min(block.level + 1, 6)}`, inlineNodes(block.inline));
    const list = node(block.kind, block.items.map((item) => node("li", itemNodes(item))));
    if (block.kind === "ol" && block.start !== 1) list.start = block.start;
    return list;
  });
}

function blocks(lines) {
  const found = [];
  let paragraph = [];
  const close = () => {
    if (paragraph.length) found.push({ kind: "p", inline: inline(paragraph.join("\n")) });
    paragraph = [];
  };
  for (let at = 0; at < lines.length; ) {
    const block = fenced(lines, at) ?? heading(lines, at) ?? list(lines, at, paragraph.length > 0);
    if (block) {
      close();
      found.push(block.block);
      at = block.next;
    } else {
      if (lines[at].trim()) paragraph.push(lines[at].trim());
      else close();
      at += 1;
    }
  }
  close();
  return found;
}

// Code goes to its closing fence or, as long as that has not come, to the end.
function fenced(lines, at) {
  const open = FENCE.exec(lines[at]);
  if (!open) return null;
  const [, fence, language] = open;
  const closes = (line) => line.trim().startsWith(fence) && !line.trim().replaceAll(fence[0], "");
  let end = at + 1;
  while (end < lines.length && !closes(lines[end])) end += 1;
  const text = lines.slice(at + 1, end).join("\n");
  return { block: { kind: "code", language, text }, next: end + 1 };
}

function heading(lines, at) {
  const found = HEADING.exec(lines[at]);
  if (!found) return null;
  return { block: { kind: "h", level: found[1].length, inline: inline(found[2]) }, next: at + 1 };
}

// Neighbouring items of one kind; what is indented under an item is blocks of its own.
function list(lines, at, inParagraph) {
  const first = ITEM.exec(lines[at]);
  // "2024. was a year" in a paragraph begins no list.
  if (!first || first[1].length > 3 || (inParagraph && /\d/.test(first[2]) && Number.parseInt(first[2], 10) !== 1)) return null;
  const ordered = /\d/.test(first[2]);
  const items = [];
  while (at < lines.length) {
    const item = ITEM.exec(lines[at]);
    if (!item || item[1].length > first[1].length + 1 || /\d/.test(item[2]) !== ordered) break;
    const inner = [item[3] ?? ""];
    at += 1;
    while (at < lines.length && belongs(lines, at, item[1].length)) {
      inner.push(lines[at].slice(Math.min(indent(lines[at]), item[1].length + item[2].length + 1)));
      at += 1;
    }
    items.push(blocks(inner));
    while (at < lines.length && !lines[at].trim() && ITEM.test(lines[at + 1] ?? "")) at += 1;
  }
  const start = ordered ? Number.parseInt(first[2], 10) : 1;
  return { block: { kind: ordered ? "ol" : "ul", start, items }, next: at };
}

function belongs(lines, at, outer) {
  if (lines[at].trim()) {
    const free = !ITEM.test(lines[at]) && !FENCE.test(lines[at]) && !HEADING.test(lines[at]);
    return indent(lines[at]) > outer + 1 || (free && Boolean(lines[at - 1].trim()));
  }
  return indent(lines[at + 1] ?? "") > outer + 1;
}

const indent = (line) => line.length - line.trimStart().length;

/** Runs of text: strings, and {kind: "code", text} or {kind: "strong" | "em", inline}. */
export function inline(source) {
  const found = [];
  let end = 0;
  for (const match of source.matchAll(INLINE)) {
    if (match.index > end) found.push(source.slice(end, match.index));
    const [all, escaped, , code, ...marked] = match;
    const strong = marked[0] ?? marked[1];
    if (escaped !== undefined) found.push(escaped);
    else if (code !== undefined) found.push({ kind: "code", text: code.replace(/^ (.*\S.*) $/, "$1") });
    else if (strong !== undefined) found.push({ kind: "strong", inline: inline(strong) });
    else found.push({ kind: "em", inline: inline(marked[2] ?? marked[3]) });
    end = match.index + all.length;
  }
  if (end < source.length) found.push(source.slice(end));
  return found;
}

function codeNode({ language, text }) {
  const code = node("code", [text]);
  const box = node("pre", [code]);
  box.tabIndex = 0; // so that keys can scroll it
  if (language) box.dataset.language = language;
  return box;
}

// An item of one paragraph is its text alone.
function itemNodes(item) {
  const [first, ...rest] = item;
  return first?.kind === "p" ? [...inlineNodes(first.inline), ...render(rest)] : render(item);
}

function inlineNodes(runs) {
  return runs.flatMap((run) => {
    if (typeof run !== "string") {
      return run.kind === "code" ? [node("code", [run.text])] : [node(run.kind, inlineNodes(run.inline))];
    }
    return run.split("\n").flatMap((line, at) => (at ? [document.createElement("br"), line] : [line]));
  });
}

function node(name, children) {
  const made = document.createElement(name);
  made.append(...children);
  return made;
}
