// How much of the model's context the conversation fills, and the speed of the latest answer.

import { byId } from "./dom.js";

const NEARLY_FULL = 0.9;

/** Show the meter. In tokens: `context` is what the model has read and written, `attached` what will
 * be added, `limit` the size of the context. `rate` is in tokens per second. Each can be missing. */
export function showMeter({ context = 0, attached = 0, limit, rate }) {
  const used = context + attached;
  const known = Boolean(used && limit);
  byId("meter").hidden = !known;
  if (!known) return;
  const gauge = byId("context");
  gauge.max = limit;
  gauge.value = used;
  gauge.high = limit * NEARLY_FULL;
  const parts = [context, attached].filter(Boolean).map((count) => count.toLocaleString("en"));
  const text = `${parts.join(" + ")} of ${limit.toLocaleString("en")} tokens`;
  const warning = used > limit ? ": too long for the model" : ": the context is nearly full";
  byId("context-text").textContent = text + (used > gauge.high ? warning : "");
  byId("rate").textContent = rate ? `${rate.toFixed(1)} tokens/s` : "";
}
