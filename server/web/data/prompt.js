// What the model reads of a conversation.

import { base64Of } from "./data_uri.js";
import { validSettings } from "./records.js";

/** Messages for a model with a chat template. Templates require alternating roles, so adjacent
 * messages of the user are joined. An answer at the end is continued by the server.
 * `reads` is whether the model reads images: a model that does not gets a note in place of those that
 * tools returned. */
export function turns(messages, system, reads) {
  const joined = system ? [{ role: "system", content: system }] : [];
  for (const message of messages) {
    const turn = turnOf(message.role === "tool" && !reads ? withoutImages(message) : message);
    const last = joined.at(-1);
    if (turn.role === "assistant" && !turn.content && !turn.tool_calls) continue;
    if (last?.role === turn.role && turn.role === "user") last.content = together(last.content, turn.content);
    else joined.push(turn);
  }
  return joined;
}

/** The images that are attached to a message. */
export const imagesOf = ({ attachments = [] }) => attachments.filter(({ image }) => image);

/** The sounds that are attached to a message. */
export const soundsOf = ({ attachments = [] }) => attachments.filter(({ sound }) => sound);

/** The prompt for a model without a chat template: the whole conversation as one text. */
export function text(messages) {
  return messages
    .map((message, at) => (message.role === "user" && at ? `\n${withFiles(message)}` : withFiles(message)))
    .join("");
}

/** The tools of a conversation's settings, in OpenAI's form. Throws SyntaxError. */
export function toolsOf(settings) {
  const { tools } = validSettings(settings);
  if (!tools.trim()) return [];
  const list = JSON.parse(tools);
  if (!Array.isArray(list)) throw new SyntaxError("not a list");
  return list.map((tool) => (tool.function ? tool : { type: "function", function: tool }));
}

function turnOf(message) {
  const { role, reasoning, calls, call } = message;
  const turn = { role, content: contentOf(message) };
  if (role === "tool") turn.tool_call_id = call;
  if (reasoning) turn.reasoning_content = reasoning;
  if (calls?.length) {
    turn.tool_calls = calls.map(({ id, name, arguments: given }) => ({
      id,
      type: "function",
      function: { name, arguments: given },
    }));
  }
  return turn;
}

function withoutImages(message) {
  const notes = imagesOf(message).map(() => "[image]");
  return { ...message, content: [message.content, ...notes].filter(Boolean).join("\n\n"), attachments: [] };
}

// A text, or with images and sounds a list of parts, in which these are first.
function contentOf(message) {
  const content = withFiles(message);
  const images = imagesOf(message).map(({ image: url }) => ({ type: "image_url", image_url: { url } }));
  const sounds = soundsOf(message).map(({ sound }) => ({
    type: "input_audio",
    input_audio: { data: base64Of(sound), format: "wav" },
  }));
  return images.length + sounds.length ? [...images, ...sounds, ...partsOf(content)] : content;
}

function together(before, after) {
  if (typeof before === "string" && typeof after === "string") return `${before}\n\n${after}`;
  return [...partsOf(before), ...partsOf(after)];
}

function partsOf(content) {
  if (typeof content !== "string") return content;
  return content ? [{ type: "text", text: content }] : [];
}

// Attached files stand before the message, each in a fence that is longer than those in the file.
function withFiles({ content, attachments = [] }) {
  const files = attachments.filter(({ image, sound }) => !image && !sound).map(({ name, text: file }) => {
    const ticks = Math.max(2, ...(file.match(/`+/g) ?? []).map((run) => run.length));
    const fence = "`".repeat(ticks + 1);
    return `${name}\n${fence}\n${file}${file.endsWith("\n") ? "" : "\n"}${fence}`;
  });
  return [...files, content].filter(Boolean).join("\n\n");
}
