// One answer from its request to its end: reads the parts, waits for a server that is starting,
// asks for a key when one is wanted. It knows api.js and no DOM; `on` tells what goes on.

import { ApiError, chat, continuation, readiness } from "./api.js";
import { figures, text, turns } from "./conversation.js";

const POLL = 1000; // milliseconds between questions whether the server is ready

/**
 * The answer {content, tokens, figures, finish}, whole, or as far as it came: then `error` is why.
 *
 * on.key() is the API key, on.wantKey() asks for one and resolves to whether it came, on.waiting()
 * is told why a server takes nothing yet, and on.more() gets the text so far.
 */
export async function answer({ messages, settings, chats, signal }, on) {
  const state = { content: "", tokens: [], finish: null, usage: null, first: null, last: null };
  for (;;) {
    state.sent = performance.now();
    try {
      for await (const part of request({ messages, settings, chats, signal, key: on.key() })) {
        read(state, part, on);
      }
      // A stream that just ends has lost its end.
      if (!state.finish) throw new ApiError(0, "The connection broke off.");
      return result(state, null);
    } catch (error) {
      if (signal.aborted) return result({ ...state, finish: "stopped" }, null);
      const again = state.first === null && (await mended(error, signal, on));
      if (signal.aborted) return result({ ...state, finish: "stopped" }, null);
      if (!again) return result({ ...state, finish: "error" }, error);
    }
  }
}

function request({ messages, settings, chats, signal, key }) {
  return chats
    ? chat(turns(messages, settings.system), settings.sampling, { key, signal })
    : continuation(text(messages), settings.sampling, { key, signal });
}

function read(state, part, on) {
  if (part.text || part.tokens?.length) {
    state.last = performance.now();
    state.first ??= state.last;
    state.content += part.text;
    state.tokens.push(...part.tokens);
    on.more(state.content);
  }
  state.finish = part.finish ?? state.finish;
  state.usage = part.usage ?? state.usage;
}

// Whether the request can be sent again now.
async function mended(error, signal, on) {
  if (error.status === 401) return on.wantKey();
  if (error.status !== 503) return false;
  on.waiting(error.message);
  for (;;) {
    await pause(POLL, signal);
    if (signal.aborted) return false;
    const { state, message } = await readiness(on.key());
    if (state === "ready") return true;
    on.waiting(message);
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", resolve, { once: true });
  });
}

function result(state, error) {
  const { content, tokens, finish } = state;
  return { content, tokens, finish, figures: figures({ ...state, count: tokens.length }), error };
}
