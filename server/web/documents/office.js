// The text of office documents, which are ZIP archives of XML: ECMA-376 (.docx, .pptx, .xlsx) and
// OpenDocument 1.3 (.odt, .odp, .ods).

import { strFromU8, unzipSync } from "../vendor/fflate/browser.js";
import { sheetsText } from "./sheets.js";
import { parseXml } from "./trusted.js";

const MAX_PART = 64_000_000; // bytes of a file in the archive
const CONTENT = {
  docx: /^word\/(document|footnotes|endnotes)\.xml$/,
  pptx: /^ppt\/slides\/slide\d+\.xml$/,
  xlsx: /^xl\/(workbook|sharedStrings|styles|_rels\/workbook|worksheets\/[^/]+)\.xml(\.rels)?$/,
  odt: /^content\.xml$/,
};
// Deleted text, fields, comments, and fallbacks of drawings that are there in another form.
const SKIPPED = new Set(["delText", "instrText", "tabs", "Fallback", "annotation", "tracked-changes", "fld"]);

/** The text of an archive; `type` is its ending. Throws an Error if it is damaged. */
export function officeText(data, type) {
  const kind = type.startsWith("od") ? "odt" : `${type.slice(0, 3)}x`;
  const isWanted = ({ name, originalSize }) => CONTENT[kind].test(name) && originalSize <= MAX_PART;
  const parts = Object.entries(unzipSync(data, { filter: isWanted })).map(([name, bytes]) => [name, parseXml(strFromU8(bytes))]);
  if (!parts.length) throw new Error("no content");
  if (kind === "xlsx") return sheetsText(new Map(parts));
  const byNumber = new Intl.Collator("en", { numeric: true });
  parts.sort(([a], [b]) => byNumber.compare(a, b));
  return parts.map(([, document]) => textIn(document.documentElement, kind !== "odt")).join("\n\n");
}

// The text below a node. Only elements named `t` have text in ECMA-376.
function textIn(node, isOoxml) {
  if (node.nodeType === Node.TEXT_NODE) {
    return !isOoxml || node.parentNode.localName === "t" ? node.data : "";
  }
  const { localName } = node;
  if (SKIPPED.has(localName)) return "";
  const inner = [...node.childNodes].map((child) => textIn(child, isOoxml)).join("");
  switch (localName) {
    case "p":
    case "h":
      return `${inner}\n`;
    case "tab":
      return "\t";
    case "br":
    case "line-break":
      return "\n";
    case "s":
      return isOoxml ? inner : " ".repeat(Number(node.getAttribute("text:c") ?? 1));
    case "tc":
    case "table-cell":
      return `${inner.trim().replaceAll(/\s*\n\s*/g, " ")}\t`.repeat(inner ? repeated(node, "columns") : 1);
    case "tr":
    case "table-row":
      return `${inner.trimEnd()}\n`;
    case "table":
    case "page":
      return `${inner}\n`;
  }
  return inner;
}

const repeated = (node, what) => Math.min(Number(node.getAttribute(`table:number-${what}-repeated`) ?? 1), 1000);
