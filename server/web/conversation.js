// A conversation as an immutable value, and its storage. It knows no DOM and no HTTP.
//
// A message is {role, content}. An answer also has `tokens` as in api.js (or an empty list),
// `figures` {prompt, completion, first, rate} and `finish`.

const STORAGE_KEY = "hearth.conversation";

export const EMPTY = Object.freeze([]);

export const withQuestion = (messages, content) => [...messages, { role: "user", content }];

export const withAnswer = (messages, answer) => [...messages, { role: "assistant", ...answer }];

/** The conversation up to the user's last message. */
export function untilQuestion(messages) {
  return messages.slice(0, lastQuestion(messages) + 1);
}

/** The conversation up to the user's last message, with its content replaced. */
export function withEditedQuestion(messages, content) {
  return withQuestion(messages.slice(0, lastQuestion(messages)), content);
}

/** The index of the user's last message, or -1. */
export const lastQuestion = (messages) => messages.findLastIndex(({ role }) => role === "user");

/** Messages for a model with a chat template. Templates require alternating roles, so adjacent
 * messages of the same role are joined. */
export function turns(messages, system) {
  const joined = system ? [{ role: "system", content: system }] : [];
  for (const { role, content } of messages) {
    const last = joined.at(-1);
    if (last?.role === role) last.content += `\n\n${content}`;
    else joined.push({ role, content });
  }
  return joined;
}

/** The prompt for a model without a chat template: the whole conversation as one text. */
export function text(messages) {
  return messages
    .map(({ role, content }, at) => (role === "user" && at ? `\n${content}` : content))
    .join("");
}

/** Seconds to the first token, and tokens per second after it. The arguments are milliseconds. */
export function figures({ sent, first, last, usage, count }) {
  const completion = usage?.completion_tokens ?? count;
  return {
    prompt: usage?.prompt_tokens ?? null,
    completion,
    first: first === null ? null : (first - sent) / 1000,
    rate: last > first && completion > 1 ? (completion - 1) / ((last - first) / 1000) : null,
  };
}

/** The stored conversation, or an empty one if nothing valid is stored. */
export function load(storage) {
  try {
    const messages = JSON.parse(storage.getItem(STORAGE_KEY)) ?? EMPTY;
    return messages.every(({ role, content }) => role && typeof content === "string")
      ? messages
      : EMPTY;
  } catch {
    return EMPTY;
  }
}

/** Store a conversation, without token probabilities if it does not fit otherwise. Return false if
 * it does not fit at all. */
export function save(storage, messages) {
  for (const version of [messages, messages.map(({ tokens, ...message }) => message)]) {
    try {
      storage.setItem(STORAGE_KEY, JSON.stringify(version));
      return true;
    } catch {
      // The storage is full.
    }
  }
  return false;
}

export const clear = (storage) => storage.removeItem(STORAGE_KEY);
