// How much of the model's context the conversation fills, and the speed of the latest answer.

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
  const parts = [context, attached].filter(Boolean).map(number);
  byId("context-text").textContent = `${parts.join(" + ")} of ${number(limit)} tokens`;
  byId("rate").textContent = rate ? `${rate.toFixed(1)} tokens/s` : "";
}

// Say that little of the context is left. The element is a live region: it changes rarely.
function warn(used, limit, growing) {
  const box = byId("nearly-full");
  const text = used < limit * NEARLY_FULL || !used ? "" : warning(used, limit);
  if (box.textContent === text || (growing && text && box.textContent)) return;
  box.textContent = text;
}

function warning(used, limit) {
  const numbers = `${number(used)} of ${number(limit)} tokens used`;
  return used < limit
    ? `${numbers}. The model reads no more than that: start a new chat soon.`
    : `${numbers}. Nothing fits any more: start a new chat.`;
}

const number = (value) => value.toLocaleString("en");
