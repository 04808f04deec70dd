// The server's HTTP API: routes, requests and responses. It knows no DOM and no conversation.
// An answer is a sequence of parts {text, tokens} and {finish, usage}. A token is
// {text, logprob, top: [{text, logprob}]}.

import { eventParser } from "./sse.js";

const BASE = new URL("../", import.meta.url);
const ALTERNATIVES = 5;
const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The server answered with an error. `status` is 0 if it could not be reached. */
export class ApiError extends Error {
  constructor(status, message, retryAfter = null) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter; // seconds, or null
  }
}

/** The parts of the answer to a conversation of {role, content}. Throws ApiError. */
export async function* chat(messages, sampling, { key, signal }) {
  const body = {
    messages,
    ...sampling,
    stream: true,
    stream_options: { include_usage: true },
    logprobs: true,
    top_logprobs: ALTERNATIVES,
  };
  for await (const event of stream("v1/chat/completions", body, { key, signal })) {
    const choice = event.choices[0];
    if (choice?.delta.content) {
      yield { text: choice.delta.content, tokens: (choice.logprobs?.content ?? []).map(chatToken) };
    } else if (choice?.logprobs?.content) {
      yield { text: "", tokens: choice.logprobs.content.map(chatToken) };
    }
    if (choice?.finish_reason) yield { finish: choice.finish_reason };
    if (event.usage) yield { usage: event.usage };
  }
}

/** The parts of the continuation of a text. Throws ApiError. */
export async function* continuation(prompt, sampling, { key, signal }) {
  const body = { prompt, ...sampling, stream: true, logprobs: ALTERNATIVES };
  for await (const event of stream("generate", body, { key, signal })) {
    if (event.finish_reason) yield { finish: event.finish_reason, usage: event.usage };
    else yield { text: event.text, tokens: event.logprobs ?? [] };
  }
}

/** The model: {name, chats}, where `chats` is whether it has a chat template. */
export async function model(key) {
  const [models, props] = await Promise.all([get("v1/models", key), get("props", key)]);
  const name = models?.data?.[0]?.id ?? (await get("health", key))?.model?.architecture;
  // Without /props, the chat route answers 404 if there is no template.
  return { name: name ?? "", chats: props === null || Boolean(props.chat_template) };
}

/** The state of the server: {state: "ready" | "waiting" | "unreachable", message}. */
export async function readiness(key) {
  try {
    let response = await request("health/ready", { key });
    if (response.status === 404) response = await request("health", { key });
    if (response.ok) return { state: "ready", message: "Ready" };
    const body = await response.json().catch(() => ({}));
    return { state: "waiting", message: body.message ?? body.error?.message ?? "Not ready" };
  } catch (error) {
    return { state: "unreachable", message: error.message };
  }
}

// The JSON at a path, or null if the server does not have the route.
async function get(path, key) {
  const response = await request(path, { key });
  if (response.status === 404) return null;
  if (!response.ok) throw await failure(response);
  return response.json();
}

async function* stream(path, body, { key, signal }) {
  const response = await request(path, { key, signal, body });
  if (!response.ok) throw await failure(response);
  const parse = eventParser();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read().catch((error) => unreachable(error));
    if (done) return;
    for (const event of parse(value)) {
      if (event.data === "[DONE]") return;
      const data = JSON.parse(event.data);
      if (data.error) throw new ApiError(data.error.code, data.error.message);
      yield data;
    }
  }
}

function request(path, { key, signal, body }) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  if (body) headers["Content-Type"] = "application/json";
  return fetch(new URL(path, BASE), {
    method: body ? "POST" : "GET",
    headers,
    body: body && JSON.stringify(body),
    signal,
    cache: "no-store",
  }).catch((error) => unreachable(error));
}

function unreachable(error) {
  if (error.name === "AbortError") throw error;
  throw new ApiError(0, "The server cannot be reached.");
}

async function failure(response) {
  const body = await response.json().catch(() => ({}));
  const seconds = Number.parseInt(response.headers.get("Retry-After"), 10);
  return new ApiError(
    response.status,
    body.error?.message ?? `The server answered ${response.status} ${response.statusText}.`,
    Number.isNaN(seconds) ? null : seconds,
  );
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
