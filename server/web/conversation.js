// A conversation as a value: every function gives a new one. And where it is kept.
// It knows no DOM and no HTTP.
//
// A message is {role, content}; an answer also has `tokens` as api.js gives them (or none),
// `figures` {prompt, completion, first, rate} and `finish`.

const PLACE = "hearth.conversation";

export const EMPTY = Object.freeze([]);

export const asked = (messages, content) => [...messages, { role: "user", content }];

export const answered = (messages, answer) => [...messages, { role: "assistant", ...answer }];

/** Without what follows the last message of the user. */
export function unanswered(messages) {
  return messages.slice(0, lastAsked(messages) + 1);
}

/** With other words in the last message of the user, and nothing after it. */
export function edited(messages, content) {
  return asked(messages.slice(0, lastAsked(messages)), content);
}

/** The place of the last message of the user; -1 if there is none. */
export const lastAsked = (messages) => messages.findLastIndex(({ role }) => role === "user");

/** For a model with a chat template. Neighbours of one role are joined: templates want turns. */
export function turns(messages, system) {
  const found = system ? [{ role: "system", content: system }] : [];
  for (const { role, content } of messages) {
    const last = found.at(-1);
    if (last?.role === role) last.content += `\n\n${content}`;
    else found.push({ role, content });
  }
  return found;
}

/** For a model without one: everything so far is a text to go on with. */
export function text(messages) {
  return messages
    .map(({ role, content }, at) => (role === "user" && at ? `\n${content}` : content))
    .join("");
}

/** Tokens a second after the first one, and seconds to it; times are milliseconds. */
export function figures({ sent, first, last, usage, count }) {
  const completion = usage?.completion_tokens ?? count;
  return {
    prompt: usage?.prompt_tokens ?? null,
    completion,
    first: first === null ? null : (first - sent) / 1000,
    rate: last > first && completion > 1 ? (completion - 1) / ((last - first) / 1000) : null,
  };
}

/** What was kept, or an empty conversation if that is none or cannot be read. */
export function kept(storage) {
  try {
    const messages = JSON.parse(storage.getItem(PLACE)) ?? EMPTY;
    return messages.every(({ role, content }) => role && typeof content === "string")
      ? messages
      : EMPTY;
  } catch {
    return EMPTY;
  }
}

/** Keep it; probabilities are left out if there is no room. False if even so it does not fit. */
export function keep(storage, messages) {
  for (const kept of [messages, messages.map(({ tokens, ...message }) => message)]) {
    try {
      storage.setItem(PLACE, JSON.stringify(kept));
      return true;
    } catch {
      // The storage is full: try with less.
    }
  }
  return false;
}

export const forget = (storage) => storage.removeItem(PLACE);
