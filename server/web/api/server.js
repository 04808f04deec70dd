// The server's state: its readiness, its models, and the size of a text in tokens.

import { phrase } from "../strings/phrase.js";
import { json, request } from "./http.js";

const MARKER = "<__media__>"; // of an image in a text

/** The models that write text: [{id, context, loaded, loading, memory, pinned, chats, images, failure}].
 * `context` is a number of tokens or null; `memory` is what the loaded model takes, in bytes, or 0; a `pinned`
 * model stays loaded; `chats` is whether the model has a chat template, and `images` whether
 * it reads images, true if nobody knows; `failure` is why it could not be loaded, or "". Throws
 * ApiError. */
export async function models(key) {
  const list = (await json("v1/models", { key }))?.data ?? [];
  const texts = list.filter(({ capabilities }) => capabilities?.includes("completion") ?? true);
  return texts.map(({ id, meta, capabilities, status }) => ({
    id,
    context: meta?.n_ctx ?? null,
    loaded: (status?.value ?? "loaded") === "loaded",
    loading: status?.value === "loading",
    memory: status?.memory ?? 0,
    pinned: status?.pinned ?? true,
    chats: capabilities?.includes("chat") ?? true,
    images: capabilities?.includes("vision") ?? true,
    failure: status?.error ?? "",
  }));
}

/** Load a model, or give its memory back. Resolves when that is done. Throws ApiError. */
export const load = (model, key) => json("models/load", { key, body: { model } });
export const unload = (model, key) => json("models/unload", { key, body: { model } });

/** Ask for something that needs the API key, but no loaded model. Throws ApiError. */
export const tryKey = (model, key) => json(`v1/models/${encodeURIComponent(model)}`, { key });

/** The number of tokens of a request: of `messages` and `tools`, or of a `prompt`. Throws ApiError. */
export async function countPrompt({ prompt, messages, tools }, model, key) {
  const named = model && { model };
  if (prompt !== undefined) {
    const body = { content: prompt, add_special: true, ...named };
    return (await json("tokenize", { key, body }))?.tokens.length ?? 0;
  }
  const body = { messages, ...(tools.length > 0 && { tools }), ...named };
  return (await json("v1/chat/completions/input_tokens", { key, body }))?.input_tokens ?? 0;
}

/** The number of tokens of a text or an image, a data URI, or null if the server does not say. */
export async function countTokens({ text, image }, model, key) {
  const data = image?.slice(image.indexOf(",") + 1);
  const content = image ? { prompt_string: MARKER, multimodal_data: [data] } : text;
  const body = { content, parse_special: Boolean(image), ...(model && { model }) };
  const answer = await json("tokenize", { key, body }).catch(() => null);
  return answer?.tokens.length ?? null;
}

/** The state of the server: {state: "ready" | "waiting" | "unreachable", message}. */
export async function readiness(key) {
  try {
    let response = await request("health/ready", { key });
    if (response.status === 404) response = await request("health", { key });
    if (response.ok) return { state: "ready", message: phrase("bar.ready") };
    const body = await response.json().catch(() => ({}));
    return { state: "waiting", message: body.message ?? body.error?.message ?? phrase("bar.waiting") };
  } catch (error) {
    return { state: "unreachable", message: error.message };
  }
}
