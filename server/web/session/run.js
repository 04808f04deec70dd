// Generate an answer in a thread, and store it as it grows, so that it survives a reload.

import { newMessage } from "../data/records.js";
import { pathTo } from "../data/tree.js";
import { answer, isEmpty } from "./answer.js";
import * as threads from "./threads.js";

const SAVE_INTERVAL = 500; // milliseconds

/**
 * Add an answer of the model `name` after the message `parent`, or continue the answer `base`. `model` is its
 * name in requests, and `images` whether it reads them. Return
 * {message, error, finish}, where `message` is null if nothing came.
 *
 * on.tools() resolves to the tools in OpenAI's form. on.onMessage(message) gets the answer as it grows.
 * on.onFull() reports that the storage is full.
 * The other callbacks are described at answer().
 */
export async function run(thread, { parent, base = null, name, model, chats, images }, on) {
  const { signal } = threads.begin(thread);
  const { id, settings } = thread.conversation;
  const messages = pathTo(thread.messages, base ? base.id : parent);
  const first = base ?? newMessage({ conversation: id, parent, role: "assistant", content: "", model: name });
  let saved = 0;
  const grow = (reply, ending) => {
    const message = { ...joined(first, reply), ...ending };
    thread.messages.set(message.id, message);
    thread.conversation = { ...thread.conversation, leaf: message.id };
    return message;
  };
  const keep = async (message) => {
    const fits = await threads.store(thread, { updated: Date.now() }, [message]);
    if (!fits) on.onFull();
  };
  const onReply = (reply) => {
    const now = Date.now();
    const message = grow(reply, { finish: "running", writer: threads.TAB, saved: now });
    on.onMessage(message);
    if (now - saved < SAVE_INTERVAL) return;
    saved = now;
    keep(message);
  };
  if (base) thread.messages.set(base.id, { ...base, finish: "running", writer: threads.TAB, saved: Date.now() });
  const tools = chats ? await on.tools() : [];
  const { reply, error } = await answer({ messages, settings, tools, model, chats, images, signal }, { ...on, onReply });
  threads.end(thread);
  if (!base && isEmpty(reply)) return { message: null, error, finish: reply.finish };
  const message = grow(reply, error ? { error: error.message } : {});
  await keep(message);
  return { message, error, finish: reply.finish };
}

// An answer with more of it. Token probabilities are kept only if every token has them.
function joined({ writer, saved, error, ...first }, reply) {
  const complete = !first.content || first.tokens?.length;
  return {
    ...first,
    content: first.content + reply.content,
    reasoning: (first.reasoning ?? "") + reply.reasoning,
    calls: [...(first.calls ?? []), ...reply.calls],
    tokens: complete ? [...(first.tokens ?? []), ...reply.tokens] : [],
    figures: reply.figures ? sum(first.figures, reply.figures) : (first.figures ?? null),
    finish: reply.finish,
  };
}

// Figures of an answer in two parts. `context` is the number of tokens that the model has read and
// written.
function sum(before, figures) {
  const context = figures.prompt + figures.completion;
  if (!before) return { ...figures, context };
  const { prompt, completion, first } = before;
  return { prompt, completion: completion + figures.completion, first, rate: figures.rate, context };
}
