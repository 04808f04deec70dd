// The size of a message before it is sent.

import { countPrompt } from "../api/server.js";
import { newMessage } from "../data/records.js";
import { imagesOf, soundsOf, text, turns } from "../data/prompt.js";
import { pathTo } from "../data/tree.js";
import { phrase } from "../strings/phrase.js";
import { key } from "../view/key.js";
import { excessOf } from "./problems.js";
import { modelOf, requestName } from "./server_state.js";
import { offeredTools } from "./tool_servers.js";

const TEMPLATE = 512; // bytes; more than what a chat template usually adds

/** The reason why the model of a thread cannot read the files in it, or in this message, or "". */
export function impairment({ conversation, messages }, attachments) {
  const path = [...pathTo(messages, conversation.leaf), { attachments }];
  const { images, sounds } = modelOf(conversation);
  if (!images && path.some((message) => message.role !== "tool" && imagesOf(message).length)) return phrase("notice.blind");
  return !sounds && path.some((message) => soundsOf(message).length) ? phrase("notice.deaf") : "";
}

/** By how many tokens the conversation of a thread is too long for its model with this message; NaN
 * if it is too long to be counted, 0 if it fits or the server does not say. */
export async function excess({ conversation, messages }, content, attachments) {
  const model = modelOf(conversation);
  if (!model.context || !model.loaded) return 0; // counting would load the model
  const { system } = conversation.settings;
  const path = [...pathTo(messages, conversation.leaf), newMessage({ role: "user", content, attachments })];
  const prompt = text(path);
  const tools = model.chats ? offeredTools(conversation.settings) : [];
  const bytes = new TextEncoder().encode(system + prompt + JSON.stringify(tools)).length;
  const media = path.flatMap((message) => [...imagesOf(message), ...soundsOf(message)]);
  const rows = media.reduce((sum, { tokens }) => sum + (tokens ?? model.context), 0);
  if (bytes + rows + TEMPLATE < model.context) return 0; // a token has at least a byte
  const request = model.chats ? { messages: turns(path, system, model.images), tools } : { prompt };
  try {
    const tokens = await countPrompt(request, requestName(model), key());
    return Math.max(0, tokens - (model.context - 1)); // one token is for the answer
  } catch (error) {
    return error.details ? excessOf(error) : 0;
  }
}
