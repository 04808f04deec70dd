// The server's state: its readiness, its models, and the size of a text in tokens.

import { json, request } from "./http.js";

/** The language models: [{id, context, loaded}], where `context` is a number of tokens or null.
 * Throws ApiError. */
export async function models(key) {
  const list = (await json("v1/models", { key }))?.data ?? [];
  const texts = list.filter(({ meta }) => meta !== null); // array functions have none
  return texts.map(({ id, meta, status }) => ({
    id,
    context: meta?.n_ctx ?? null,
    loaded: (status?.value ?? "loaded") === "loaded",
  }));
}

/** Whether a model has a chat template, or null if the server does not say; "" is the only model.
 * Throws ApiError. */
export async function hasChatTemplate(model, key) {
  const query = model ? `?model=${encodeURIComponent(model)}` : "";
  const props = await json(`props${query}`, { key });
  return props && Boolean(props.chat_template);
}

/** The number of tokens of a text, or null if the server does not say. */
export async function countTokens(content, model, key) {
  const body = { content, parse_special: false, ...(model && { model }) };
  const answer = await json("tokenize", { key, body }).catch(() => null);
  return answer?.tokens.length ?? null;
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
