// Requests to the server that sent this page. It knows no DOM and no conversation.

import { phrase } from "../strings/phrase.js";
import { eventParser } from "./sse.js";

const BASE = new URL("../../", import.meta.url);
const STREAM = "v1/stream";
const ATTEMPTS = 5; // to read a lost stream on
const PAUSE = 1000; // milliseconds between them
const LOST = phrase("problem.lost");

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

/** The response to a GET, or with `body` to a POST of JSON or of a form. `stream` is the id by which a stream can be
 * read on. Throws ApiError if there is none. */
export function request(path, { key, signal, body, stream }) {
  const headers = authorization(key);
  const isForm = body instanceof FormData; // its type has a boundary, which the browser chooses
  if (body && !isForm) headers["Content-Type"] = "application/json";
  if (stream) headers["X-Conversation-Id"] = stream;
  return fetch(new URL(path, BASE), {
    method: body ? "POST" : "GET",
    headers,
    body: body && !isForm ? JSON.stringify(body) : body,
    signal,
    cache: "no-store",
  }).catch((error) => unreachable(error));
}

const authorization = (key) => (key ? { Authorization: `Bearer ${key}` } : {});

/** The JSON at a path, or null if the server does not have the route. Throws ApiError. */
export async function json(path, options) {
  const response = await request(path, options);
  if (response.status === 404) return null;
  if (!response.ok) throw await failure(response);
  return response.json();
}

/** The data of the events that answer a POST of `body`. A stream whose connection was lost is read on.
 * The answer ends when it is no longer read. Throws ApiError. */
export async function* stream(path, body, { key, signal }) {
  const id = crypto.getRandomValues(new Uint32Array(4)).join("-");
  let isComplete = false;
  const leave = () => isComplete || stop(id, key);
  addEventListener("pagehide", leave);
  try {
    const response = await request(path, { key, signal, body, stream: id });
    if (!response.ok) {
      isComplete = true;
      throw await failure(response);
    }
    const parse = eventParser();
    for await (const text of texts(response, id, { key, signal })) {
      for (const event of parse(text)) {
        const data = event.data === "[DONE]" ? null : JSON.parse(event.data);
        isComplete = !data || Boolean(data.error || data.finish_reason); // the last event of /generate
        if (!data) return;
        if (data.error) throw new ApiError(statusOf(data.error), data.error.message, { details: data.error });
        yield data;
        if (isComplete) return;
      }
    }
  } finally {
    removeEventListener("pagehide", leave);
    leave();
  }
}

// The text of a stream. When the connection is lost, the rest is requested until nothing more comes.
async function* texts(response, id, { key, signal }) {
  const decoder = new TextDecoder();
  let offset = 0;
  for (let from = -1; from < offset; ) {
    from = offset;
    const reader = response.body.getReader();
    for (;;) {
      const { done, value } = await reader.read().catch(lost);
      if (done) break;
      offset += value.length;
      yield decoder.decode(value, { stream: true });
    }
    response = await rest(id, offset, { key, signal });
  }
}

// An end of the stream, unless the user has ended it.
function lost(error) {
  if (error.name === "AbortError") throw error;
  return { done: true };
}

// The response with the bytes of a stream after the first ones. Throws ApiError.
async function rest(id, offset, { key, signal }) {
  for (let attempt = 1; ; ++attempt) {
    const response = await request(`${STREAM}?conv_id=${id}&from=${offset}`, { key, signal }).catch((error) => {
      if (error.name === "AbortError" || attempt === ATTEMPTS) unreachable(error, LOST);
      return null;
    });
    if (response?.ok) return response;
    if (response && response.status !== 503) throw new ApiError(0, LOST);
    if (attempt === ATTEMPTS) throw new ApiError(0, LOST);
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}

// End an answer, which goes on without its client, also while the page is closed.
function stop(id, key) {
  const options = { method: "DELETE", headers: authorization(key), keepalive: true };
  fetch(new URL(`${STREAM}?conv_id=${id}`, BASE), options).catch(() => {});
}

function unreachable(error, message = phrase("problem.unreachable")) {
  if (error.name === "AbortError") throw error;
  throw new ApiError(0, message);
}

async function failure(response) {
  const body = await response.json().catch(() => ({}));
  const seconds = Number.parseInt(response.headers.get("Retry-After"), 10);
  return new ApiError(
    response.status,
    body.error?.message ?? phrase("problem.status", { status: `${response.status} ${response.statusText}`.trim() }),
    { details: body.error, retryAfter: Number.isNaN(seconds) ? null : seconds },
  );
}

// In a stream, the code of an error is its status, or the word for what the request did wrong.
const statusOf = ({ code }) => (Number.isInteger(code) ? code : 400);
