// What models write beyond CommonMark, as rules for markdown-it: task lists, <br>, footnotes.
// A checkbox is a token of type "task" with meta {done}.

const TASK = /^\[([ xX])\]\s+/;
const LINE_BREAK = /^<br\s{0,9}\/?>/i;
const FOOTNOTE = /^\[\^[^\]\s]+\]:/;

export function githubSyntax(parser) {
  parser.core.ruler.after("inline", "tasks", tasks);
  parser.inline.ruler.before("autolink", "line_break", lineBreak);
  // CommonMark reads [^1]: as the definition of a link, and does not show it.
  parser.block.ruler.before("reference", "footnote", footnote);
}

// - [x] done
function tasks({ tokens, Token }) {
  for (const [at, { type, children }] of tokens.entries()) {
    const item = tokens[at - 2];
    if (type !== "inline" || item?.type !== "list_item_open") continue;
    const [first] = children;
    const found = first?.type === "text" && TASK.exec(first.content);
    if (!found) continue;
    const box = new Token("task", "", 0);
    box.meta = { done: found[1] !== " " };
    first.content = first.content.slice(found[0].length);
    children.unshift(box);
    item.attrSet("class", "task");
  }
}

// The only tag that is not shown as text: a cell of a table has no other line break.
function lineBreak(state, silent) {
  if (state.src[state.pos] !== "<") return false;
  const found = LINE_BREAK.exec(state.src.slice(state.pos, state.pos + 15));
  if (!found) return false;
  if (!silent) state.push("hardbreak", "br", 0);
  state.pos += found[0].length;
  return true;
}

// The text of a footnote is a paragraph that begins with its label.
function footnote(state, startLine, endLine, silent) {
  const text = state.src.slice(state.bMarks[startLine] + state.tShift[startLine], state.eMarks[startLine]);
  if (!FOOTNOTE.test(text) || state.sCount[startLine] - state.blkIndent >= 4) return false;
  if (silent) return true;
  state.line = startLine + 1;
  const open = state.push("paragraph_open", "p", 1);
  open.map = [startLine, state.line];
  const content = state.push("inline", "", 0);
  Object.assign(content, { content: text.trim(), map: open.map, children: [] });
  state.push("paragraph_close", "p", -1);
  return true;
}
