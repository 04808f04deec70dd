// Conversations as a JSON file: {format, conversations: [{...conversation, messages: [...]}]}.

import { phrase } from "../strings/phrase.js";
import { newId, validConversation, validMessage } from "./records.js";

const FORMAT = "hearth-conversations-1";

/** The text of a file with these [{conversation, messages: [...]}]. Token probabilities, which are
 * a hundred times larger than the text, are left out. */
export function exported(list) {
  const conversations = list.map(({ conversation, messages }) => ({
    ...conversation,
    messages: messages.map(({ tokens, writer, saved, conversation: _, ...message }) => message),
  }));
  return JSON.stringify({ format: FORMAT, conversations }, null, 1);
}

/** The [{conversation, messages: [...]}] of a file, with new ids, so that an import never replaces
 * a conversation. Throws an Error that says what is wrong. */
export function imported(text) {
  let data;
  try {
    data = JSON.parse(text);
  } catch {
    throw new Error(phrase("list.not_json"));
  }
  if (data?.format !== FORMAT || !Array.isArray(data.conversations)) {
    throw new Error(phrase("list.wrong_format", { format: FORMAT }));
  }
  return data.conversations.map((entry, at) => {
    const conversation = validConversation(entry);
    const messages = Array.isArray(entry?.messages) ? entry.messages : [];
    const valid = messages.map((message) => validMessage({ ...message, conversation: "" }));
    if (!conversation || valid.includes(null)) throw new Error(phrase("list.not_valid", { index: at }));
    return renamed(conversation, valid);
  });
}

/** Copies of a conversation and messages with new ids. */
export function renamed(conversation, messages) {
  const ids = new Map(messages.map(({ id }) => [id, newId()]));
  const id = newId();
  return {
    conversation: { ...conversation, id, leaf: ids.get(conversation.leaf) ?? null },
    messages: messages.map((message) => ({
      ...message,
      id: ids.get(message.id),
      parent: ids.get(message.parent) ?? null,
      conversation: id,
      ...(message.finish === "running" && { finish: "stopped" }),
    })),
  };
}
