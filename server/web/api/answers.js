// The routes that generate text. An answer is a sequence of parts, each with some of these fields:
// text, reasoning, calls [{index, id, name, arguments}], tokens [{text, logprob, top: [{text, logprob}]}],
// timings, usage, finish. `timings` are the server's, so far. A call arrives in several parts, of
// which only the first has an id and a name.

import { stream } from "./http.js";

const ALTERNATIVES = 5;
const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The parts of the answer to a conversation of {role, content}. Throws ApiError. */
export async function* chat(messages, { model, tools, sampling, probabilities }, { key, signal }) {
  const body = {
    messages,
    ...(model && { model }),
    ...(tools.length > 0 && { tools }),
    ...sampling,
    ...(probabilities && { logprobs: true, top_logprobs: ALTERNATIVES }),
    stream: true,
    stream_options: { include_usage: true },
    timings_per_token: true,
  };
  for await (const event of stream("v1/chat/completions", body, { key, signal })) {
    const choice = event.choices[0];
    yield {
      text: choice?.delta.content ?? "",
      reasoning: choice?.delta.reasoning_content ?? "",
      calls: (choice?.delta.tool_calls ?? []).map(({ index, id, function: called }) => ({
        index,
        id,
        ...called,
      })),
      tokens: (choice?.logprobs?.content ?? []).map(chatToken),
      timings: event.timings,
      usage: event.usage,
      finish: choice?.finish_reason,
    };
  }
}

/** The parts of the continuation of a text. Throws ApiError. */
export async function* continuation(prompt, { model, sampling, probabilities }, { key, signal }) {
  const body = {
    prompt,
    ...(model && { model }),
    ...sampling,
    ...(probabilities && { logprobs: ALTERNATIVES }),
    stream: true,
    timings_per_token: true,
  };
  for await (const event of stream("generate", body, { key, signal })) {
    yield {
      text: event.text,
      reasoning: "",
      calls: [],
      tokens: event.logprobs ?? [],
      timings: event.timings,
      usage: event.usage,
      finish: event.finish_reason,
    };
  }
}

const chatToken = ({ token, bytes, logprob, top_logprobs }) => ({
  text: readable(token, bytes),
  logprob,
  top: top_logprobs.map((other) => ({
    text: readable(other.token, other.bytes),
    logprob: other.logprob,
  })),
});

// The text of a token's bytes; hexadecimal if they are not whole characters; the token's name if it
// has no bytes.
function readable(name, bytes) {
  if (!bytes?.length) return name;
  try {
    return UTF8.decode(Uint8Array.from(bytes));
  } catch {
    return `⟨${bytes.map((byte) => byte.toString(16).padStart(2, "0")).join(" ")}⟩`;
  }
}
