// A client of the Model Context Protocol over streamable HTTP, as far as tools need it. It sends requests to
// servers that the user added, and knows no DOM. Sources: modelcontextprotocol.io/specification/2025-11-25,
// basic/lifecycle, basic/transports and server/tools.

import { phrase } from "../strings/phrase.js";
import { eventParser } from "./sse.js";

const VERSIONS = ["2025-11-25", "2025-06-18", "2025-03-26"];
const CLIENT = { name: "Hearth", version: "1" };
const METHOD_NOT_FOUND = { code: -32601, message: "Method not found" };
const MAX_PAGES = 20; // of a list of tools
const RESUMPTIONS = 5; // of a stream that ended before its answer
const PAUSE = 1000; // milliseconds before each
const TIMEOUT = 20_000; // milliseconds, of everything but calls of tools, which the user can stop
const HEADERS = ["Authorization", "Content-Type", "Last-Event-ID", "MCP-Protocol-Version", "Mcp-Session-Id"];

/** An MCP server cannot be used. The message is a sentence for the user. */
export class McpError extends Error {}

/** The server requires authorization. `challenge` is its header WWW-Authenticate, if the page may read it. */
export class Unauthorized extends McpError {
  constructor(challenge) {
    super(phrase("mcp.unauthorized"));
    this.challenge = challenge;
  }
}

class SessionEnded extends McpError {}

/** A server at an address, which gets these headers {name: value} with each request. `token(rejected)` resolves
 * to a bearer token, another one than the server rejected, or null. */
export class McpServer {
  #url;
  #headers;
  #token;
  #session = null; // a promise of {version, id}
  #lastId = 0;

  constructor({ url, headers, token = async () => null }) {
    this.#url = url;
    this.#headers = headers;
    this.#token = token;
  }

  /** The tools [{name, description, inputSchema}]. Throws McpError. */
  async tools() {
    const tools = [];
    let cursor;
    for (let page = 0; page < MAX_PAGES; ++page) {
      const list = await this.#call("tools/list", cursor ? { cursor } : {}, AbortSignal.timeout(TIMEOUT));
      tools.push(...(list.tools ?? []));
      cursor = list.nextCursor;
      if (!cursor) break;
    }
    return tools;
  }

  /** What a tool returns for arguments, an object: {text, images}, where an image is {data, mimeType}
   * with `data` in base64. Throws McpError. */
  async callTool(name, given, signal) {
    return resultOf(await this.#call("tools/call", { name, arguments: given }, signal));
  }

  // The result of a request. A session that the server has ended begins again, once.
  async #call(method, params, signal, isAgain = false) {
    this.#session ??= this.#begin();
    try {
      return await this.#request(method, params, await this.#session, signal);
    } catch (error) {
      if (!(error instanceof SessionEnded) || isAgain) throw error;
      this.#session = null;
      return this.#call(method, params, signal, true);
    }
  }

  async #begin() {
    try {
      const signal = AbortSignal.timeout(TIMEOUT);
      const session = { version: null, id: null };
      const params = { protocolVersion: VERSIONS[0], capabilities: {}, clientInfo: CLIENT };
      session.version = (await this.#request("initialize", params, session, signal)).protocolVersion;
      if (!VERSIONS.includes(session.version)) {
        throw new McpError(phrase("mcp.version", { version: session.version, versions: VERSIONS }));
      }
      await this.#send({ method: "notifications/initialized" }, session, signal);
      return session;
    } catch (error) {
      this.#session = null;
      throw error;
    }
  }

  async #request(method, params, session, signal) {
    const id = ++this.#lastId;
    try {
      const response = await this.#send({ id, method, params }, session, signal);
      if (method === "initialize") session.id = response.headers.get("Mcp-Session-Id");
      const { result, error } = await this.#answer(response, id, session, signal);
      if (error) throw new McpError(phrase("mcp.error", { reason: error.message }));
      return result;
    } catch (error) {
      if (error.name === "TimeoutError") throw new McpError(phrase("mcp.timeout", { url: this.#url, count: TIMEOUT / 1000 }));
      if (error.name === "AbortError") this.#cancel(id, session);
      throw error;
    }
  }

  #cancel(requestId, session) {
    this.#send({ method: "notifications/cancelled", params: { requestId } }, session).catch(() => {});
  }

  // The answer to a request: the body, or an event of a stream, which is read on if it ends too early.
  async #answer(response, id, session, signal) {
    const isAnswer = (message) => message.id === id && !message.method;
    if (!response.headers.get("Content-Type")?.startsWith("text/event-stream")) {
      const body = await response.json().catch(() => null);
      const answer = [body].flat().find((message) => message && isAnswer(message)); // 2025-03-26 has batches
      if (!answer) throw new McpError(phrase("mcp.not_json"));
      return answer;
    }
    let last = "";
    for (let attempt = 0; ; ++attempt) {
      for await (const { data, id: eventId } of events(response)) {
        last = eventId;
        const message = data ? JSON.parse(data) : {};
        if (isAnswer(message)) return message;
        if (message.method && message.id !== undefined) this.#reply(message, session);
      }
      signal?.throwIfAborted();
      if (!last || attempt === RESUMPTIONS) throw new McpError(phrase("mcp.ended"));
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
      response = await this.#fetch({ headers: { Accept: "text/event-stream", "Last-Event-ID": last } }, session, signal);
    }
  }

  // The page has no capabilities, so a server may only ask whether it is there.
  #reply({ id, method }, session) {
    this.#send({ id, ...(method === "ping" ? { result: {} } : { error: METHOD_NOT_FOUND }) }, session).catch(() => {});
  }

  #send(message, session, signal) {
    const headers = { "Content-Type": "application/json", Accept: "application/json, text/event-stream" };
    const body = JSON.stringify({ jsonrpc: "2.0", ...message });
    return this.#fetch({ method: "POST", headers, body }, session, signal);
  }

  async #fetch({ headers, ...options }, session, signal) {
    const all = { ...this.#headers, ...headers };
    if (session.version) all["MCP-Protocol-Version"] = session.version;
    if (session.id) all["Mcp-Session-Id"] = session.id;
    const request = (token) => {
      if (token) all.Authorization = `Bearer ${token}`;
      return fetch(this.#url, { ...options, headers: all, signal, cache: "no-store" }).catch(async (error) => {
        if (error.name !== "TypeError") throw error;
        throw new McpError(await unreachable(this.#url));
      });
    };
    const token = await this.#token();
    let response = await request(token);
    const other = token && response.status === 401 ? await this.#token(token) : null;
    if (other) response = await request(other);
    if (!response.ok) throw await refusal(response, session);
    return response;
  }
}

// The events of a stream, until it ends or its connection is lost.
async function* events(response) {
  const parse = eventParser();
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((error) => {
        if (error.name !== "TypeError") throw error;
        return { done: true };
      });
      if (done) return;
      yield* parse(decoder.decode(value, { stream: true }));
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

async function refusal(response, session) {
  const { status, statusText } = response;
  const challenge = response.headers.get("WWW-Authenticate") ?? "";
  if (status === 401 || (status === 403 && challenge.includes("insufficient_scope"))) return new Unauthorized(challenge);
  if (status === 404 && session.id) return new SessionEnded(phrase("mcp.session_ends"));
  if (status === 400 && session.version && !session.id) {
    return new McpError(phrase("mcp.hidden_session"));
  }
  const body = await response.text().catch(() => "");
  return new McpError(phrase("mcp.status", { status, reason: reason(body) || statusText }));
}

// The message of a JSON-RPC error, or the body itself if it is another short text.
function reason(body) {
  try {
    return JSON.parse(body).error.message;
  } catch {
    return body.length < 200 ? body : "";
  }
}

/** Whether a host name means the machine of the browser. */
export const isThisMachine = (hostname) => /^(localhost|127\..*|\[::1\])$/.test(hostname);

// Why a request had no response: a browser does not say. One without CORS shows whether there is a server.
async function unreachable(url) {
  const { origin, protocol, hostname } = new URL(url);
  if (location.protocol === "https:" && protocol === "http:" && !isThisMachine(hostname)) {
    return phrase("mcp.needs_https");
  }
  try {
    await fetch(url, { method: "HEAD", mode: "no-cors", cache: "no-store", signal: AbortSignal.timeout(TIMEOUT) });
  } catch {
    return phrase("mcp.unreachable", { origin });
  }
  return phrase("mcp.no_cors", { origin, page: location.origin, headers: HEADERS });
}

function resultOf({ content = [], structuredContent, isError }) {
  const images = content.map(imageOf).filter(Boolean);
  const parts = content.filter((part) => !imageOf(part)).map(partText);
  const isEmpty = !content.length && structuredContent;
  const text = isEmpty ? JSON.stringify(structuredContent) : parts.join("\n\n");
  return { text: isError ? `Error: ${text}` : text, images };
}

// The image of a part, which may be an embedded file, or null.
function imageOf({ type, data, mimeType, resource }) {
  if (type === "image") return { data, mimeType };
  const isImage = resource?.blob && resource.mimeType?.startsWith("image/");
  return isImage ? { data: resource.blob, mimeType: resource.mimeType } : null;
}

function partText({ type, text, resource, uri, mimeType }) {
  if (type === "text") return text;
  return resource?.text ?? `[${[type, uri ?? resource?.uri ?? mimeType].filter(Boolean).join(" ")}]`;
}
