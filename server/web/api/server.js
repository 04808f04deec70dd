// The server's state: its readiness, its models, and the size of a text in tokens.

import { base64Of } from "../data/data_uri.js";
import { phrase } from "../strings/phrase.js";
import { json, request } from "./http.js";

const MARKER = "<__media__>"; // of an image or a sound in a text

/** The models as {writers, listener}: those that write text, and the name of one that transcribes speech,
 * or "": of one that does nothing else, if there is one, because it takes longer sounds. Of a writer {id, context, loaded, loading, memory, pinned, chats, images, sounds, failure, sampling}:
 * `context` is a number of tokens or null; `memory` is what the loaded model takes, in bytes, or 0; a `pinned`
 * model stays loaded; `chats` is whether the model has a chat template, `images` whether it
 * reads these, true if nobody knows; `sounds` is the seconds of the longest sound that it reads, or false;
 * `failure` is why it could not be loaded, or ""; `sampling` has its defaults that are not the API's. Throws
 * ApiError. */
export async function models(key) {
  const list = (await json("v1/models", { key }))?.data ?? [];
  const texts = list.filter(({ capabilities }) => capabilities?.includes("completion") ?? true);
  const listeners = list.filter(({ capabilities }) => capabilities?.includes("transcription"));
  const listener = (listeners.find((model) => !texts.includes(model)) ?? listeners[0])?.id ?? "";
  const writers = texts.map(({ id, meta, capabilities, status }) => ({
    id,
    context: meta?.n_ctx ?? null,
    loaded: (status?.value ?? "loaded") === "loaded",
    loading: status?.value === "loading",
    memory: status?.memory ?? 0,
    pinned: status?.pinned ?? true,
    chats: capabilities?.includes("chat") ?? true,
    images: capabilities?.includes("vision") ?? true,
    sounds: (capabilities?.includes("audio") ?? true) && (meta?.sound_seconds ?? Infinity),
    failure: status?.error ?? "",
    sampling: meta?.sampling ?? {},
  }));
  return { writers, listener };
}

/** The text of the speech in a file. Throws ApiError. */
export async function transcribe(file, model, key) {
  const body = new FormData();
  body.append("file", file);
  body.append("model", model);
  return (await json("v1/audio/transcriptions", { key, body }))?.text ?? "";
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

/** The number of tokens of a text, or of the data URI of an image or a sound; null if the server does not say. */
export async function countTokens({ text, image, sound }, model, key) {
  const media = image ?? sound;
  const content = media ? { prompt_string: MARKER, multimodal_data: [base64Of(media)] } : text;
  const body = { content, parse_special: Boolean(media), ...(model && { model }) };
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
