// A subset of Markdown: paragraphs, headings, lists, code, bold, italics.
// `parse` turns text into plain data and `render` turns that into DOM nodes. No text is ever
// interpreted as HTML.

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.+?)\s*#*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(?:\s+(.*))?$/;
const INLINE = new RegExp(
  [
    /\\([\\`*_#[\](){}<>+.!~|-])/, // 1: an escaped character
    /(`+)([^`]|[^`][^]*?[^`])\2(?!`)/, // 3: code
    /\*\*(?=\S)([^]*?\S)\*\*/, // 4: bold
    /(?<![\w_])__(?=\S)([^]*?\S)__(?![\w_])/, // 5
    /\*(?=[^\s*])([^]*?[^\s*])\*(?!\*)/, // 6: italics
    /(?<![\w_])_(?=[^\s_])([^]*?[^\s_])_(?![\w_])/, // 7
  ].map(({ source }) => source).join("|"),
  "g",
);

/** Blocks {kind: "p" | "h" | "ul" | "ol" | "code", ...}. Their text is as returned by `inline`. */
export function parse(source) {
  return blocks(source.replaceAll("\t", "    ").split(/\r\n|\n|\r/));
}

/** The DOM nodes of the blocks that `parse` returns. */
export function render(parsed) {
  return parsed.map((block) => {
    if (block.kind === "code") return codeNode(block);
    if (block.kind === "p") return node("p", inlineNodes(block.inline));
    // The page's name is the heading of level 1.
    if (block.kind === "h") return node(`h${Math.min(block.level + 1, 6)}`, inlineNodes(block.inline));
    const list = node(block.kind, block.items.map((item) => node("li", itemNodes(item))));
    if (block.kind === "ol" && block.start !== 1) list.start = block.start;
    return list;
  });
}

function blocks(lines) {
  const result = [];
  let paragraph = [];
  const close = () => {
    if (paragraph.length) result.push({ kind: "p", inline: inline(paragraph.join("\n")) });
    paragraph = [];
  };
  for (let at = 0; at < lines.length; ) {
    const block = fenced(lines, at) ?? heading(lines, at) ?? list(lines, at, paragraph.length > 0);
    if (block) {
      close();
      result.push(block.block);
      at = block.next;
    } else {
      if (lines[at].trim()) paragraph.push(lines[at].trim());
      else close();
      at += 1;
    }
  }
  close();
  return result;
}

// A code block ends at its closing fence or, while the answer is running, at the end.
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
  const match = HEADING.exec(lines[at]);
  if (!match) return null;
  return { block: { kind: "h", level: match[1].length, inline: inline(match[2]) }, next: at + 1 };
}

// Adjacent items of the same kind. Indented lines under an item are parsed as blocks.
function list(lines, at, inParagraph) {
  const first = ITEM.exec(lines[at]);
  // "2024. was a year" in a paragraph does not start a list.
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
  const runs = [];
  let end = 0;
  for (const match of source.matchAll(INLINE)) {
    if (match.index > end) runs.push(source.slice(end, match.index));
    const [all, escaped, , code, ...marked] = match;
    const strong = marked[0] ?? marked[1];
    if (escaped !== undefined) runs.push(escaped);
    else if (code !== undefined) runs.push({ kind: "code", text: code.replace(/^ (.*\S.*) $/, "$1") });
    else if (strong !== undefined) runs.push({ kind: "strong", inline: inline(strong) });
    else runs.push({ kind: "em", inline: inline(marked[2] ?? marked[3]) });
    end = match.index + all.length;
  }
  if (end < source.length) runs.push(source.slice(end));
  return runs;
}

function codeNode({ language, text }) {
  const code = node("code", [text]);
  const box = node("pre", [code]);
  box.tabIndex = 0; // the keyboard can scroll it
  if (language) box.dataset.language = language;
  return box;
}

// An item with a single paragraph gets no <p>.
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
