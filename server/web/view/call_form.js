// What the user decides about the calls of an answer.

import { phrase } from "../strings/phrase.js";
import { make } from "./dom.js";

/**
 * A form for the calls of a message. `hostOf(name)` is the MCP server of a tool: for its calls the user
 * decides "once", "always" or "never". The user enters the results of the others. `send(message,
 * decisions)` gets these words, and {content} of the others.
 */
export function callForm(message, { hostOf, send }) {
  const decisions = message.calls.map(() => null);
  const decide = (at, decision) => {
    decisions[at] = decision;
    if (!decisions.includes(null)) send(message, decisions);
  };
  const fields = new Map();
  const parts = message.calls.map(({ name, arguments: given }, at) => {
    const host = hostOf(name);
    if (host) return question({ name, host, given }, (decision) => decide(at, decision));
    const field = make("textarea", { rows: 1, required: true });
    fields.set(at, field);
    return make("label", {}, phrase("call.result", { name }), field);
  });
  if (fields.size) parts.push(make("button", { type: "submit", className: "plain" }, phrase("call.send")));
  const form = make("form", { className: "results idle-only" }, ...parts);
  form.onsubmit = (event) => {
    event.preventDefault();
    for (const [at, field] of fields) decide(at, { content: field.value });
  };
  return form;
}

/** A text of JSON with line breaks. */
export function indented(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}

function question({ name, host, given }, decide) {
  const box = make("fieldset", { className: "call" });
  const answer = (label, decision, className = "plain") => {
    const onclick = () => {
      for (const button of buttons) button.ariaPressed = String(button === pressed);
      decide(decision);
    };
    const pressed = make("button", { type: "button", className, onclick }, label);
    return pressed;
  };
  const buttons = [
    answer(phrase("call.once"), "once", "primary"),
    answer(phrase("call.always"), "always"),
    answer(phrase("call.never"), "never"),
  ];
  box.append(
    make("legend", {}, phrase("call.question", { name, host })),
    make("pre", { tabIndex: 0 }, indented(given)),
    make("div", { className: "choices" }, ...buttons),
  );
  return box;
}
