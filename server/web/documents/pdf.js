// The text of PDF files, by PDF.js.

import { getDocument, GlobalWorkerOptions } from "../vendor/pdfjs/pdf.min.mjs";
import { pdfWorker } from "./trusted.js";

/** The text of the pages of a PDF file. Throws the errors of PDF.js. */
export async function pdfText(data) {
  GlobalWorkerOptions.workerPort ??= pdfWorker();
  const task = getDocument({ data, useWorkerFetch: false, useWasm: false, stopAtErrors: false });
  try {
    const pdf = await task.promise;
    const pages = [];
    for (let number = 1; number <= pdf.numPages; ++number) {
      const page = await pdf.getPage(number);
      const { items } = await page.getTextContent();
      pages.push(items.map(({ str, hasEOL }) => (hasEOL ? `${str}\n` : str)).join(""));
      page.cleanup();
    }
    return pages.join("\n\n");
  } finally {
    task.destroy();
  }
}
