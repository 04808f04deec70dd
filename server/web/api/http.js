// Requests to the server that sent this page. It knows no DOM and no conversation.

import { eventParser } from "./sse.js";

const BASE = new URL("../../", import.meta.url);

/** The server answered with an error. `status` is 0 if it could not be reached, `details` the error
 * object of the answer. */
export class ApiError extends Error {
  constructor(status, message, { details = {}, retryAfter = null } = {}) {
    super(message);
    this.status = status;
    this.details = details;
    this.retryAfter = retryAfter; // seconds, or null
  }
}

/** The response to a GET, or with `body` to a POST of JSON. Throws ApiError if there is none. */
export function request(path, { key, signal, body }) {
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

/** The JSON at a path, or null if the server does not have the route. Throws ApiError. */
export async function json(path, options) {
  const response = await request(path, options);
  if (response.status === 404) return null;
  if (!response.ok) throw await failure(response);
  return response.json();
}

/** The data of the events that answer a POST of `body`. Throws ApiError. */
export async function* stream(path, body, { key, signal }) {
  const response = await request(path, { key, signal, body });
  if (!response.ok) throw await failure(response);
  const parse = eventParser();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read().catch((error) => unreachable(error, "The connection was lost."));
    if (done) return;
    for (const event of parse(value)) {
      if (event.data === "[DONE]") return;
      const data = JSON.parse(event.data);
      if (data.error) throw new ApiError(statusOf(data.error), data.error.message, { details: data.error });
      yield data;
    }
  }
}

function unreachable(error, message = "The server cannot be reached.") {
  if (error.name === "AbortError") throw error;
  throw new ApiError(0, message);
}

async function failure(response) {
  const body = await response.json().catch(() => ({}));
  const seconds = Number.parseInt(response.headers.get("Retry-After"), 10);
  return new ApiError(
    response.status,
    body.error?.message ?? `The server answered ${response.status} ${response.statusText}.`,
    { details: body.error, retryAfter: Number.isNaN(seconds) ? null : seconds },
  );
}

// In a stream, the code of an error is its status, or the word for what the request did wrong.
const statusOf = ({ code }) => (Number.isInteger(code) ? code : 400);
