// What the page says of an error: a sentence for the user, and what can be done about it.

import { phrase } from "../strings/phrase.js";

const TOO_LONG = /(\d+) tokens > (\d+) maximum/;
const SETTINGS = {
  temperature: phrase("settings.temperature"),
  top_k: phrase("settings.top_k"),
  top_p: phrase("settings.top_p"),
  min_p: phrase("settings.min_p"),
  repeat_penalty: phrase("settings.repeat_penalty"),
  max_tokens: phrase("settings.max_tokens"),
  seed: phrase("settings.seed"),
  tools: phrase("settings.tools"),
};

/** By how many tokens a refused message is too long, NaN if the server did not count them, 0 if that
 * is not the problem. */
export function excessOf({ message, details }) {
  const { type, n_prompt_tokens: tokens, n_ctx: context } = details;
  if (tokens && context) return tokens - (context - 1); // one token is for the answer
  const [, counted, maximum] = TOO_LONG.exec(message) ?? [];
  if (counted) return counted - maximum;
  return type === "exceed_context_size_error" ? NaN : 0;
}

/** The sentence for a message that is too long by this number of tokens, which may be NaN. */
export const tooLong = (excess) =>
  Number.isNaN(excess) ? phrase("problem.too_long") : phrase("problem.too_long_by", { count: excess });

/**
 * The problem behind an ApiError: {text, way, seconds}. `way` is what the user can do: "retry",
 * "edit", "settings" or "key". `model` is the name of the model that was asked, `next` of the one
 * that will be asked, `failure` why it cannot be loaded, or "".
 */
export function problemOf(error, { model, next, failure }) {
  const excess = excessOf(error);
  if (excess !== 0) return { text: tooLong(excess), way: "edit" };
  const { status, details, retryAfter } = error;
  switch (status) {
    case 0:
      return { text: unreachable(error.message), way: "retry" };
    case 400:
      return rejected(error.message, details);
    case 401:
      return { text: phrase("problem.key"), way: "key" };
    case 404:
      return {
        text: model === next
          ? phrase("problem.unknown_route")
          : phrase("problem.model_gone", { model, next }),
        way: "retry",
      };
    case 413:
      return { text: phrase("problem.too_large"), way: "edit" };
    case 429:
      return { text: busy(retryAfter), way: "retry", seconds: retryAfter ?? 0 };
    case 502:
    case 504:
      return { text: phrase("problem.no_response"), way: "retry" };
    case 503:
      return { text: notReady(failure, error.message), way: "retry" };
    default:
      return { text: failed(status, error.message, details.request_id), way: "retry" };
  }
}

function unreachable(message) {
  return navigator.onLine ? phrase("problem.check", { reason: message }) : phrase("problem.offline");
}

function busy(seconds) {
  return seconds ? phrase("problem.busy_for", { count: seconds }) : phrase("problem.busy");
}

function notReady(failure, message) {
  return failure ? phrase("problem.not_loaded", { reason: failure }) : phrase("problem.not_ready", { reason: message });
}

function rejected(message, { param, got, expected }) {
  const field = param?.split(/[.[]/, 1)[0];
  if (Object.hasOwn(SETTINGS, field)) {
    const values = { name: SETTINGS[field], got: JSON.stringify(got), expected };
    return { text: phrase("problem.setting", values), way: "settings" };
  }
  return { text: phrase("problem.rejected", { reason: message }), way: "edit" };
}

function failed(status, message, id) {
  if (status < 500 || status === 501) return phrase("problem.refused", { reason: message });
  return id ? phrase("problem.failed_id", { id }) : phrase("problem.failed");
}
