// The text of documents that people attach. The parsers are loaded with the first document. They run in the
// browser: it is built to read hostile files, and the server stays small.

import { phrase } from "../strings/phrase.js";

const OFFICE = new Set(["docx", "docm", "pptx", "pptm", "xlsx", "xlsm", "odt", "odp", "ods"]);
const OLD = new Map([["doc", "docx"], ["ppt", "pptx"], ["xls", "xlsx"]]);

/** A document cannot be read. The message completes a sentence for the user. */
export class DocumentError extends Error {}

/** Whether a file is a document that textOf reads. */
export const isDocument = ({ name }) => ending(name) === "pdf" || OFFICE.has(ending(name)) || OLD.has(ending(name));

/** The text of a document; rows of tables are lines, and their cells are separated by tabs. Throws
 * DocumentError. */
export async function textOf(file) {
  const type = ending(file.name);
  if (OLD.has(type)) throw new DocumentError(phrase("file.old_format", { type, newer: OLD.get(type) }));
  const data = new Uint8Array(await file.arrayBuffer());
  const text = type === "pdf" ? await readPdf(data) : await readOffice(data, type);
  const trimmed = text.replaceAll(/[^\S\n]+$/gm, "").replaceAll(/\n{3,}/g, "\n\n").trim();
  if (!trimmed) throw new DocumentError(phrase("file.no_text"));
  return trimmed;
}

async function readPdf(data) {
  const { pdfText } = await import("./pdf.js");
  return pdfText(data).catch((error) => {
    throw new DocumentError(error.name === "PasswordException" ? phrase("file.password") : phrase("file.bad_pdf"));
  });
}

async function readOffice(data, type) {
  const { officeText } = await import("./office.js");
  try {
    return officeText(data, type);
  } catch {
    throw new DocumentError(phrase("file.bad_office", { type }));
  }
}

const ending = (name) => name.slice(name.lastIndexOf(".") + 1).toLowerCase();
