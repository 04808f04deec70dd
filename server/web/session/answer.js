// Request one answer and read its stream. Waits while the server starts, and asks for an API key if
// the server requires one. It knows no DOM; the callbacks in `on` report the progress.

import { chat, continuation } from "../api/answers.js";
import { ApiError } from "../api/http.js";
import { readiness } from "../api/server.js";
import { text, turns } from "../data/prompt.js";
import { phrase } from "../strings/phrase.js";

const POLL_INTERVAL = 1000; // milliseconds between requests for the server's state

/**
 * Return {reply, error}. `reply` is {content, reasoning, calls, tokens, figures, finish}; if `error`
 * is not null, it may be incomplete.
 *
 * on.key() returns the API key. on.requestKey() asks the user for one and resolves to whether it was
 * entered. on.onWaiting(message) reports why the server is not ready, and resolves to whether it will
 * be. on.onReply(reply) gets the reply so far.
 */
export async function answer({ messages, settings, tools, model, chats, images, signal }, on) {
  const reply = { content: "", reasoning: "", calls: [], tokens: [], figures: null, finish: null };
  const end = (finish, error) => ({ reply: { ...reply, finish }, error });
  for (;;) {
    try {
      for await (const part of request({ messages, settings, tools, model, chats, images, signal, key: on.key() })) {
        if (add(reply, part)) on.onReply({ ...reply });
      }
      // The stream ended before the answer did.
      if (!reply.finish) throw new ApiError(0, phrase("problem.lost"));
      return end(reply.finish, null);
    } catch (error) {
      if (signal.aborted) return end("stopped", null);
      const retry = isEmpty(reply) && (await canRetry(error, signal, on));
      if (signal.aborted) return end("stopped", null);
      if (!retry) return end("error", error);
    }
  }
}

/** Whether nothing of an answer has come. */
export const isEmpty = ({ content, reasoning, calls }) => !content && !reasoning && !calls?.length;

/** The figures of an answer {prompt, completion, first, rate} from the server's timings: numbers of
 * tokens, seconds to the first token, and tokens per second after it. */
export function figures({ cache_n, prompt_n, predicted_n, queue_ms, prefill_ms, tokens_per_second }) {
  return {
    prompt: cache_n + prompt_n,
    completion: predicted_n,
    first: (queue_ms + prefill_ms) / 1000,
    rate: tokens_per_second,
  };
}

function request({ messages, settings, tools, model, chats, images, signal, key }) {
  const { system, sampling, probabilities } = settings;
  const options = { model, sampling, probabilities, tools };
  return chats
    ? chat(turns(messages, system, images), options, { key, signal })
    : continuation(text(messages), options, { key, signal });
}

// Add a part to a reply; return whether the reply has more text or calls.
function add(reply, part) {
  reply.content += part.text;
  reply.reasoning += part.reasoning;
  if (part.calls.length) reply.calls = part.calls.reduce(withMore, reply.calls);
  reply.tokens.push(...part.tokens);
  if (part.timings) reply.figures = figures(part.timings);
  reply.finish = part.finish ?? reply.finish;
  return Boolean(part.text || part.reasoning || part.calls.length);
}

// The calls with more of one of them.
function withMore(calls, { index, id, name, arguments: more }) {
  if (id) return [...calls, { id, name, arguments: more }];
  return calls.map((call, at) =>
    at === index ? { ...call, arguments: call.arguments + more } : call,
  );
}

// Wait for what the error requires; return whether to send the request again.
async function canRetry(error, signal, on) {
  if (error.status === 401) return on.requestKey();
  if (error.status !== 503) return false;
  let { message } = error;
  while (await on.onWaiting(message)) {
    await pause(POLL_INTERVAL, signal);
    if (signal.aborted) return false;
    const { state, message: reason } = await readiness(on.key());
    if (state === "ready") return true;
    message = reason;
  }
  return false;
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", resolve, { once: true });
  });
}
