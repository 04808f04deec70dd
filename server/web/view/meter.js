// How much of the model's context the conversation fills, and the speed of the latest answer.

import { decimal, phrase } from "../strings/phrase.js";
import { byId } from "./dom.js";

const NEARLY_FULL = 0.8;

/** Show the meter. In tokens: `context` is what the model has read and written, `attached` what will
 * be added, `limit` the size of the context. `rate` is in tokens per second. Each can be missing.
 * While an answer is `growing`, its numbers are not announced to screen readers. */
export function showMeter({ context = 0, attached = 0, limit, rate, growing = false }) {
  const used = context + attached;
  const known = Boolean(used && limit);
  byId("meter").hidden = !known;
  warn(known ? used : 0, limit, growing);
  if (!known) return;
  const gauge = byId("context");
  gauge.max = limit;
  gauge.value = used;
  gauge.high = limit * NEARLY_FULL;
  const parts = [context, attached].filter(Boolean).map((count) => decimal(count, 0));
  byId("context-text").textContent = phrase("meter.used", { used: parts.join(" + "), limit });
  byId("rate").textContent = rate ? phrase("meter.rate", { rate: decimal(rate, 1) }) : "";
}

// Say that little of the context is left. The element is a live region: it changes rarely.
function warn(used, limit, growing) {
  const box = byId("nearly-full");
  const text = used < limit * NEARLY_FULL || !used ? "" : warning(used, limit);
  if (box.textContent === text || (growing && text && box.textContent)) return;
  box.textContent = text;
}

const warning = (used, limit) =>
  used < limit ? phrase("meter.nearly_full", { used, limit }) : phrase("meter.full", { used, limit });
