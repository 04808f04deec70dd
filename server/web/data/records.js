// The records that the page stores: conversations, and their messages as a tree.
//
// A conversation is {id, title, created, updated, leaf, model, settings}: `leaf` is the id of the
// last message on the branch that is shown, `settings` is {system, sampling, probabilities, tools}.
// A message is {id, conversation, parent, created, role, content}: `parent` is the id of the message
// before it, or null. A user's message can have `attachments`: texts {name, text, tokens}, and
// images {name, image, tokens} and sounds {name, sound, tokens} as data URIs. An answer can have `model`, the name of the model that wrote it, `reasoning`,
// `calls`, `tokens`, `figures`, `finish`, `error`; while it is written, `finish` is "running", `writer` is the tab and
// `saved` the time. A tool's message has `call`, an id.
// Times are milliseconds since 1970.

import { phrase } from "../strings/phrase.js";

const TITLE_LENGTH = 60;
const ROLES = new Set(["user", "assistant", "tool"]);
const NUMBERS = new Set(
  "temperature top_k top_p min_p repeat_penalty max_tokens seed".split(" "),
);

/** A random id. crypto.randomUUID needs HTTPS. */
export const newId = () =>
  [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

/** A conversation without messages. */
export function newConversation(settings, model = "") {
  const now = Date.now();
  return { id: newId(), title: "", created: now, updated: now, leaf: null, model, settings };
}

/** A message with a new id. */
export const newMessage = (fields) => ({ id: newId(), created: Date.now(), ...fields });

/** The title of a conversation that begins with this message. */
export function titleOf({ content, attachments }) {
  const line = content.trim().split("\n", 1)[0] || attachments?.[0]?.name || phrase("list.new_title");
  return line.length > TITLE_LENGTH ? `${line.slice(0, TITLE_LENGTH - 1).trimEnd()}…` : line;
}

/** The conversation in untrusted data, with unknown fields dropped; null if it is not one. */
export function validConversation(data) {
  if (!isObject(data) || !isText(data.id) || !data.id || !isText(data.title)) return null;
  const { id, title } = data;
  return {
    id,
    title,
    created: time(data.created),
    updated: time(data.updated),
    leaf: isText(data.leaf) ? data.leaf : null,
    model: isText(data.model) ? data.model : "",
    settings: validSettings(data.settings),
  };
}

/** The settings in untrusted data; invalid ones are dropped. */
export function validSettings(data) {
  const { system, sampling, probabilities, tools } = isObject(data) ? data : {};
  const numbers = Object.entries(isObject(sampling) ? sampling : {}).filter(
    ([name, value]) => NUMBERS.has(name) && Number.isFinite(value),
  );
  return {
    system: isText(system) ? system : "",
    sampling: Object.fromEntries(numbers),
    probabilities: probabilities === true,
    tools: isText(tools) ? tools : "",
  };
}

/** The message in untrusted data; null if it is not one. */
export function validMessage(data) {
  if (!isObject(data) || !isText(data.id) || !isText(data.conversation)) return null;
  if (!ROLES.has(data.role) || !isText(data.content)) return null;
  const message = { ...data, parent: isText(data.parent) ? data.parent : null, created: time(data.created) };
  const valid = {
    attachments: all(isAttachment),
    calls: all(({ id, name, arguments: given }) => isText(id) && isText(name) && isText(given)),
    tokens: all(({ text, logprob, top }) => isText(text) && Number.isFinite(logprob) && Array.isArray(top)),
    figures: isObject,
    reasoning: isText,
    model: isText,
    finish: isText,
    error: isText,
  };
  for (const [name, check] of Object.entries(valid)) if (!check(message[name])) delete message[name];
  return message;
}

function isAttachment({ name, text, image, sound }) {
  if (!isText(name)) return false;
  if (image !== undefined) return isImage(image);
  return sound === undefined ? isText(text) : isSound(sound);
}
const isSound = (value) => isText(value) && value.startsWith("data:audio/wav;base64,");
const isImage = (value) => isText(value) && /^data:image\/(png|jpeg|webp|gif);base64,/.test(value);
const isText = (value) => typeof value === "string";
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const all = (check) => (list) => Array.isArray(list) && list.every((item) => isObject(item) && check(item));
const time = (value) => (Number.isFinite(value) ? value : 0);
