// Request one answer and read its stream. Waits while the server starts, and asks for an API key if
// the server requires one. It knows api.js and no DOM; the callbacks in `on` report the progress.

import { ApiError, chat, continuation, readiness } from "./api.js";
import { figures, text, turns } from "./conversation.js";

const POLL_INTERVAL = 1000; // milliseconds between requests for the server's state

/**
 * Return {content, tokens, figures, finish, error}. If `error` is not null, the answer may be
 * incomplete.
 *
 * on.key() returns the API key. on.requestKey() asks the user for one and resolves to whether it was
 * entered. on.onWaiting(message) reports why the server is not ready. on.onText(text) gets the text
 * so far.
 */
export async function answer({ messages, settings, chats, signal }, on) {
  const state = { content: "", tokens: [], finish: null, usage: null, first: null, last: null };
  for (;;) {
    state.sent = performance.now();
    try {
      for await (const part of request({ messages, settings, chats, signal, key: on.key() })) {
        read(state, part, on);
      }
      // The stream ended before the answer did.
      if (!state.finish) throw new ApiError(0, "The connection was lost.");
      return result(state, null);
    } catch (error) {
      if (signal.aborted) return result({ ...state, finish: "stopped" }, null);
      const retry = state.first === null && (await canRetry(error, signal, on));
      if (signal.aborted) return result({ ...state, finish: "stopped" }, null);
      if (!retry) return result({ ...state, finish: "error" }, error);
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
    on.onText(state.content);
  }
  state.finish = part.finish ?? state.finish;
  state.usage = part.usage ?? state.usage;
}

// Wait for what the error requires; return whether to send the request again.
async function canRetry(error, signal, on) {
  if (error.status === 401) return on.requestKey();
  if (error.status !== 503) return false;
  on.onWaiting(error.message);
  for (;;) {
    await pause(POLL_INTERVAL, signal);
    if (signal.aborted) return false;
    const { state, message } = await readiness(on.key());
    if (state === "ready") return true;
    on.onWaiting(message);
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
