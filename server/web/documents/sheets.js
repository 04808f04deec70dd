// The text of spreadsheets in ECMA-376: a table for each sheet, with its name above it.

const DATES = new Set([14, 15, 16, 17, 22]); // number formats that every file has
const TIMES = new Set([18, 19, 20, 21, 45, 46, 47]);
const EPOCH = Date.UTC(1899, 11, 30); // the day 0 of serial numbers from March 1900 on
const EPOCH_1904 = Date.UTC(1904, 0, 1);
const DAY = 86_400_000; // milliseconds

/** The text of the documents of an archive, a Map by name. */
export function sheetsText(parts) {
  const workbook = parts.get("xl/workbook.xml");
  const targets = new Map(all(parts.get("xl/_rels/workbook.xml.rels"), "Relationship").map((to) => [to.getAttribute("Id"), to.getAttribute("Target")]));
  const book = {
    strings: all(parts.get("xl/sharedStrings.xml"), "si").map(textOf),
    isDate: datesOf(parts.get("xl/styles.xml")),
    epoch: all(workbook, "workbookPr")[0]?.getAttribute("date1904") === "1" ? EPOCH_1904 : EPOCH,
  };
  const sheets = all(workbook, "sheet").map((sheet) => {
    const target = targets.get(sheet.getAttribute("r:id")) ?? "";
    const part = parts.get(target.startsWith("/") ? target.slice(1) : `xl/${target}`);
    return `${sheet.getAttribute("name")}\n${all(part, "row").map((row) => rowText(row, book)).join("\n")}`;
  });
  return sheets.join("\n\n");
}

function rowText(row, book) {
  const cells = [];
  for (const cell of all(row, "c")) {
    const at = columnOf(cell.getAttribute("r") ?? "");
    while (cells.length < at) cells.push("");
    cells.push(cellText(cell, book).replaceAll(/\s+/g, " "));
  }
  return cells.join("\t").trimEnd();
}

function cellText(cell, { strings, isDate, epoch }) {
  const type = cell.getAttribute("t");
  const value = all(cell, "v")[0]?.textContent ?? "";
  if (type === "s") return strings[value] ?? "";
  if (type === "inlineStr") return textOf(cell);
  if (type === "b") return value === "1" ? "TRUE" : "FALSE";
  if (!value || (type ?? "n") !== "n" || !isDate(Number(cell.getAttribute("s") ?? 0))) return value;
  const time = new Date(epoch + Math.round(value * DAY)).toISOString();
  if (value < 1) return time.slice(11, 19);
  return value % 1 ? time.slice(0, 19).replace("T", " ") : time.slice(0, 10);
}

// Whether a cell with a style is a date or a time: a function of the style's number.
function datesOf(styles) {
  const codes = new Map(all(styles, "numFmt").map((format) => [format.getAttribute("numFmtId"), format.getAttribute("formatCode")]));
  const formats = all(all(styles, "cellXfs")[0], "xf").map((style) => style.getAttribute("numFmtId"));
  const isDate = (id) => DATES.has(Number(id)) || TIMES.has(Number(id)) || /[ymdhs]/i.test(bare(codes.get(id) ?? ""));
  const dates = formats.map(isDate);
  return (style) => dates[style] ?? false;
}

// A format's code without quoted texts, colors and conditions.
const bare = (code) => code.replaceAll(/"[^"]*"|\\.|\[[^\]]*\]|General/gi, "");

// The number of a column in a reference such as AB12, from 0.
const columnOf = (reference) =>
  [...(/^[A-Z]{1,3}/.exec(reference)?.[0] ?? "A")].reduce((sum, letter) => 26 * sum + letter.charCodeAt(0) - 64, 0) - 1;

// The text of a cell without the pronunciation of its characters.
const textOf = (node) => all(node, "t").filter((part) => part.parentNode.localName !== "rPh").map((part) => part.textContent).join("");

const all = (node, name) => [...(node?.getElementsByTagNameNS("*", name) ?? [])];
