// Sampling for people who do not know its numbers.

import { byId } from "./dom.js";

const FIELDS = ["temperature", "top_k", "top_p", "min_p"];
const PRESETS = {
  default: {},
  exact: { temperature: 0 },
  focused: { temperature: 0.3 },
  creative: { temperature: 1.2, min_p: 0.1 }, // min_p keeps a high temperature coherent: arXiv 2407.01082
};

/** Bind the choice. `choose(change)` gets a function from the sampling of a conversation to the new one. */
export function startPresets(choose) {
  const select = byId("preset");
  // Before the form, which hears of it too, reads its numbers.
  select.oninput = () => choose((sampling) => ({ ...without(sampling), ...PRESETS[select.value] }));
}

/** Show which preset a sampling is, or "custom". */
export function showPreset(sampling) {
  const isSame = ([, preset]) => FIELDS.every((name) => sampling[name] === preset[name]);
  byId("preset").value = Object.entries(PRESETS).find(isSame)?.[0] ?? "custom";
}

const without = (sampling) => Object.fromEntries(Object.entries(sampling).filter(([name]) => !FIELDS.includes(name)));
