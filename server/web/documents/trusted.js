// The only strings that this page hands to a parser or starts as a script: see Trusted Types. The server's
// policy allows a policy of this name and no other.

const WORKER = new URL("../vendor/pdfjs/pdf.worker.min.mjs", import.meta.url).href;

const policy = globalThis.trustedTypes?.createPolicy("documents", {
  createHTML: (text) => text,
  createScriptURL: () => WORKER,
});

/** The document of a text in XML: it runs no scripts and loads nothing. Throws an Error if it is not XML. */
export function parseXml(text) {
  const parsed = new DOMParser().parseFromString(policy?.createHTML(text) ?? text, "application/xml");
  if (parsed.querySelector("parsererror")) throw new Error("not XML");
  return parsed;
}

/** The thread in which PDF.js reads files. */
export const pdfWorker = () => new Worker(policy?.createScriptURL("") ?? WORKER, { type: "module" });
