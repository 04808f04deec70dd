// From the file of a picture to what the server reads of it.

import { dataUri } from "../data/data_uri.js";
import { make } from "./dom.js";

// A file within these limits is sent as it is. A request may have 4 MB, for all images of a chat.
const MAX_FILE = 500_000; // bytes
const MAX_PIXELS = 2 ** 24;
const MAX_EDGE = 1536; // pixels of other pictures
const QUALITY = 0.85;
const FORMATS = new Set(["image/jpeg", "image/png", "image/webp", "image/gif"]);

/** Whether a file is a picture. SVG is a text. */
export const isPicture = ({ type }) => type.startsWith("image/") && type !== "image/svg+xml";

/** A data URI of a picture; a large one is made smaller, and other formats become JPEG. Throws
 * DOMException if the browser cannot read it. */
export async function readPicture(file) {
  const bitmap = await createImageBitmap(file);
  const pixels = bitmap.width * bitmap.height;
  if (FORMATS.has(file.type) && file.size <= MAX_FILE && pixels <= MAX_PIXELS) return dataUri(file);
  const scale = Math.min(1, MAX_EDGE / Math.max(bitmap.width, bitmap.height));
  const [width, height] = [bitmap.width, bitmap.height].map((edge) => Math.max(1, Math.round(edge * scale)));
  const canvas = make("canvas", { width, height });
  const context = canvas.getContext("2d");
  context.fillStyle = "white"; // JPEG has no transparency
  context.fillRect(0, 0, width, height);
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, width, height);
  bitmap.close();
  return canvas.toDataURL("image/jpeg", QUALITY);
}
