// The text of documents that people attach. The parsers are loaded with the first document. They run in the
// browser: it is built to read hostile files, and the server stays small.

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
  if (OLD.has(type)) throw new DocumentError(`the format .${type} cannot be read: save it as .${OLD.get(type)}`);
  const data = new Uint8Array(await file.arrayBuffer());
  const text = type === "pdf" ? await readPdf(data) : await readOffice(data, type);
  const trimmed = text.replaceAll(/[^\S\n]+$/gm, "").replaceAll(/\n{3,}/g, "\n\n").trim();
  if (!trimmed) throw new DocumentError("it has no text: its pages may be pictures");
  return trimmed;
}

async function readPdf(data) {
  const { pdfText } = await import("./pdf.js");
  return pdfText(data).catch((error) => {
    throw new DocumentError(error.name === "PasswordException" ? "it is protected with a password" : "it is not a PDF file, or is damaged");
  });
}

async function readOffice(data, type) {
  const { officeText } = await import("./office.js");
  try {
    return officeText(data, type);
  } catch {
    throw new DocumentError(`it is not a .${type} file, or is damaged or protected with a password`);
  }
}

const ending = (name) => name.slice(name.lastIndexOf(".") + 1).toLowerCase();
