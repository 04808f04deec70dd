// Parts of a message: attached files, reasoning, tool calls, figures, the copy button.

import { decimal, phrase } from "../strings/phrase.js";
import { indented } from "./call_form.js";
import { iconButton, make, picture, player } from "./dom.js";
import { speak } from "./notices.js";

const ENDS = {
  length: phrase("end.length"),
  timeout: phrase("end.timeout"),
  stopped: phrase("end.stopped"),
  error: phrase("end.interrupted"),
  running: phrase("end.interrupted"),
  edited: phrase("end.edited"),
};

/** The files of a message: pictures, sounds, and texts, each folded. */
export const attachmentList = (attachments) =>
  make("div", { className: "attachments" }, ...attachments.map(attachment));

function attachment(file) {
  if (file.image) return picture(file);
  return file.sound ? player(file) : textFile(file);
}

const textFile = ({ name, text, tokens }) =>
  folded(tokens ? phrase("file.tokens", { name, count: tokens }) : name, text);

/** The reasoning before an answer, folded. */
export function reasoningBox(text, { open = false } = {}) {
  const box = folded(phrase("message.reasoning"), text);
  box.classList.add("reasoning");
  box.open = open;
  return box;
}

/** Tool calls, each folded. */
export const callList = (calls) =>
  make("div", { className: "calls" }, ...calls.map(({ name, arguments: given }) => folded(phrase("message.call", { name }), indented(given))));

/** The model of an answer, its figures, and why it ended. */
export function figureList({ model, figures, finish }) {
  const { prompt, completion, first, rate } = figures ?? {};
  const parts = [
    model,
    figures && phrase("figures.tokens", { count: completion }),
    rate && phrase("meter.rate", { rate: decimal(rate, 1) }),
    figures && phrase("figures.first", { seconds: decimal(first, 2) }),
    figures && phrase("figures.prompt", { count: prompt }),
    ENDS[finish],
  ];
  return make("p", { className: "figures" }, ...parts.filter(Boolean).map((part) => make("span", {}, part)));
}

/** A button that copies a text. */
export function copyButton(text, label) {
  const button = iconButton("copy", label, async () => {
    await copy(text);
    speak(phrase("message.copied"));
    button.classList.add("done");
    setTimeout(() => button.classList.remove("done"), 1200);
  });
  return button;
}

function folded(title, text) {
  return make("details", { className: "folded" }, make("summary", {}, title), make("pre", { tabIndex: 0 }, text));
}

// Browsers offer the clipboard only over HTTPS or on localhost. Elsewhere, select and copy.
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = make("textarea", { value: text, className: "hidden" });
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}
