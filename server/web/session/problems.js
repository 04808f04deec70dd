// What the page says of an error: a sentence for the user, and what can be done about it.

const TOO_LONG = /(\d+) tokens > (\d+) maximum/;
const SETTINGS = new Set("temperature top_k top_p min_p repeat_penalty max_tokens seed tools".split(" "));

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
export function tooLong(excess) {
  const by = Number.isNaN(excess) ? "for this model" : `by ${count(excess, "token")}`;
  return `Too long ${by}: shorten it, or start a new chat.`;
}

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
      return { text: "This server answers only with an API key. Enter the key to send your message.", way: "key" };
    case 404:
      return {
        text: model === next
          ? "The server does not know this request. Reload the page: the server may have another version."
          : `${model} is no longer on this server. Choose another model, or try again with ${next}.`,
        way: "retry",
      };
    case 413:
      return { text: "The message is too large for this server. Shorten it, or remove attached files.", way: "edit" };
    case 429:
      return { text: `The server is busy. Try again ${retryAfter ? `in ${count(retryAfter, "second")}` : "later"}.`, way: "retry", seconds: retryAfter ?? 0 };
    case 502:
    case 504:
      return { text: "The server did not answer in time. Try again in a moment.", way: "retry" };
    case 503:
      return { text: `${failure || `The server is not ready: ${error.message}`}. Choose another model, or try again later.`, way: "retry" };
    default:
      return { text: failed(status, error.message, details.request_id), way: "retry" };
  }
}

function unreachable(message) {
  if (!navigator.onLine) return "This device is offline. Connect it to the network, then try again.";
  return `${message} Check that the server runs, then try again.`;
}

function rejected(message, { param, got, expected }) {
  const field = param?.split(/[.[]/, 1)[0];
  if (SETTINGS.has(field)) {
    const name = field.replaceAll("_", " ");
    return { text: `The setting “${name}” is not valid: it is ${JSON.stringify(got)}, and must be ${expected}.`, way: "settings" };
  }
  return { text: `The model cannot answer this message: ${message}. Edit it, or start a new chat.`, way: "edit" };
}

function failed(status, message, id) {
  if (status < 500 || status === 501) return `The server refused the request: ${message}.`;
  return `The server failed while it answered. Try again; its log has the reason${id ? ` (request ${id})` : ""}.`;
}

const count = (number, unit) => `${number.toLocaleString("en")} ${unit}${number === 1 ? "" : "s"}`;
