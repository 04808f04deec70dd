// How much of the model's context the conversation fills, and the speed of the latest answer.

import { byId } from "./dom.js";

const NEARLY_FULL = 0.9;

/** Show the meter. All are numbers or undefined: `context` and `limit` in tokens, `rate` in tokens
 * per second. */
export function showMeter({ context, limit, rate }) {
  const known = Boolean(context && limit);
  byId("meter").hidden = !known;
  if (!known) return;
  const share = context / limit;
  const gauge = byId("context");
  gauge.max = limit;
  gauge.value = context;
  gauge.high = limit * NEARLY_FULL;
  const used = `${context.toLocaleString("en")} of ${limit.toLocaleString("en")} tokens`;
  byId("context-text").textContent = share > NEARLY_FULL ? `${used}: the context is nearly full` : used;
  byId("rate").textContent = rate ? `${rate.toFixed(1)} tokens/s` : "";
}
