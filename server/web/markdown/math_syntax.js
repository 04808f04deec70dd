// Formulas in Markdown, as rules for markdown-it: $a$, $$a$$, \(a\), \[a\].
// A formula is a token of type "math" with its TeX as content, and meta {display, source}.

const INLINE = [
  { open: "$$", close: /\$\$/g, display: true },
  { open: "\\[", close: /\\\]/g, display: true },
  { open: "\\(", close: /\\\)/g, display: false },
  // As in Pandoc: no space inside of the dollars, no digit after them.
  { open: "$", close: /(?<!\\)\$/g, display: false, tight: true },
];
const BLOCKS = [
  { open: "$$", close: "$$" },
  { open: "\\[", close: "\\]" },
];

export function mathSyntax(parser) {
  parser.inline.ruler.before("escape", "math", inline);
  const alt = ["paragraph", "reference", "blockquote", "list"];
  parser.block.ruler.before("fence", "math", block, { alt });
}

function inline(state, silent) {
  const { src, pos, posMax } = state;
  const kind = INLINE.find(({ open }) => src.startsWith(open, pos));
  if (!kind) return false;
  const start = pos + kind.open.length;
  if (kind.tight && /\s/.test(src[start] ?? " ")) return false;
  // A search that fails fails for every later start too, so it is not repeated.
  state.mathMisses ??= new Set();
  if (state.mathMisses.has(kind.open)) return false;
  kind.close.lastIndex = start + 1;
  const end = kind.close.exec(src);
  if (!end || end.index + end[0].length > posMax) {
    state.mathMisses.add(kind.open);
    return false;
  }
  if (kind.tight && (/\s/.test(src[end.index - 1]) || /\d/.test(src[end.index + 1]))) return false;
  const tex = src.slice(start, end.index).trim();
  if (!tex) return false;
  if (!silent) add(state, { tex, display: kind.display, source: src.slice(pos, end.index + end[0].length) });
  state.pos = end.index + end[0].length;
  return true;
}

function block(state, startLine, endLine, silent) {
  const first = line(state, startLine);
  const kind = BLOCKS.find(({ open }) => first.startsWith(open));
  if (!kind || state.sCount[startLine] - state.blkIndent >= 4) return false;
  const end = endOf(state, kind, startLine, endLine);
  if (end === null) return false;
  const lines = Array.from({ length: end - startLine + 1 }, (_, at) => line(state, startLine + at));
  const source = lines.join("\n").trim();
  const tex = source.slice(kind.open.length, -kind.close.length).trim();
  if (!tex) return false;
  if (silent) return true;
  const token = add(state, { tex, display: true, source });
  token.block = true;
  token.map = [startLine, end + 1];
  state.line = end + 1;
  return true;
}

// The line that ends the formula of `startLine`, or null: the first one that ends in the closing
// delimiter, without an empty line before it.
function endOf(state, { open, close }, startLine, endLine) {
  const misses = (state.env.mathMisses ??= new Map()); // the empty line, or the end, of a failed search
  if (startLine < misses.get(open)) return null;
  let at = startLine;
  for (; at < endLine; at += 1) {
    const text = line(state, at).trimEnd();
    if (!text || state.sCount[at] < state.blkIndent) break;
    const inner = at === startLine ? text.slice(open.length) : text;
    if (inner.endsWith(close)) return at;
    if (inner.includes(close)) break; // text follows the formula
  }
  misses.set(open, at);
  return null;
}

function add(state, { tex, display, source }) {
  const token = state.push("math", "", 0);
  token.content = tex;
  token.meta = { display, source };
  return token;
}

const line = (state, at) => state.src.slice(state.bMarks[at] + state.tShift[at], state.eMarks[at]);
