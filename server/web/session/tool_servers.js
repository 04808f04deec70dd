// The MCP servers of this tab: their tools, which every conversation offers to the model, and their calls.

import { McpError, McpServer, Unauthorized } from "../api/mcp.js";
import { findIssuer } from "../api/oauth.js";
import { toolsOf } from "../data/prompt.js";
import { readAuthorization, readServers, writeServers } from "../data/tool_servers.js";
import { phrase } from "../strings/phrase.js";
import { readPicture } from "../view/pictures.js";
import * as signing from "./sign_in.js";

const MAX_NAME = 64; // characters of a tool's name that the server takes
// The model reads it, so it is not translated, like the beginning of the errors below.
const DENIED = "The user did not allow this call.";

// Of each: {record, client, tools, problem, pending, issuer}, where `pending` is null or a promise of its tools, and
// `issuer` what findIssuer() found if the user must sign in, or null.
const state = { servers: readServers().map(opened), changed: () => {} };

/** Call `changed()` when tools have become known, or a server has changed. */
export const onToolServers = (changed) => (state.changed = changed);

/** The servers as {url, enabled, tools: [{name, description}], problem, signInHost, asksClient, isPending, hasAllowed}.
 * `signInHost` is where the user must sign in, or ""; `asksClient` says that this needs the id of a client. */
export const toolServers = () =>
  state.servers.map(({ record, tools, problem, pending, issuer, asksClient }) => ({
    url: record.url,
    enabled: record.enabled,
    tools,
    problem,
    signInHost: issuer ? new URL(issuer.issuer).host : "",
    asksClient,
    isPending: pending !== null,
    hasAllowed: Object.keys(record.allowed).length > 0,
  }));

/** Complete a sign-in from which the page comes back, and connect the servers. */
export async function start() {
  const failure = await signing.resume();
  const failed = state.servers.find(({ record }) => record.url === failure?.url);
  if (failed) showFailure(failed, failure.error);
  await Promise.all(state.servers.filter((server) => server !== failed).map(connectTo));
}

/** Read the tools of the enabled servers that have none yet. */
export const connect = () => Promise.all(state.servers.map(connectTo));

/** Go to the authorization server of a server, and come back. `clientId` is an id that the user entered, or "". */
export async function signIn(at, clientId) {
  const server = state.servers[at];
  try {
    await signing.signIn(server.record.url, server.issuer, clientId);
  } catch (error) {
    showFailure(server, error);
  }
}

/** Wait for the servers that are being connected. */
export const settled = () => Promise.allSettled(state.servers.map(({ pending }) => pending));

/** Add a server. The page must then be loaded again, as its policy admits only the earlier servers.
 * Return false if the storage is full. */
export function addServer(record) {
  signing.signOut(record.url);
  return writeServers([...readServers().filter(({ url }) => url !== record.url), record]);
}

/** Remove a server. */
export function removeServer(at) {
  const [{ record }] = state.servers.splice(at, 1);
  signing.signOut(record.url);
  writeServers(readServers().filter(({ url }) => url !== record.url));
  state.changed();
}

/** Remove all servers. */
export function removeServers() {
  for (const { record } of state.servers.splice(0)) signing.signOut(record.url);
  writeServers([]);
  state.changed();
}

/** Offer the tools of a server, or do not. */
export function enableServer(at, enabled) {
  state.servers[at].record.enabled = enabled;
  store();
  connect();
}

/** Ask before each call of a server's tools again. */
export function askAgain(at) {
  state.servers[at].record.allowed = {};
  store();
}

/** The tools of a conversation with these settings, in OpenAI's form: the tools that the user entered,
 * and the tools of the servers. */
export function offeredTools(settings) {
  const names = offered();
  const described = [...names].map(([name, { tool }]) => ({
    type: "function",
    function: { name, description: tool.description ?? "", parameters: tool.inputSchema },
  }));
  return [...toolsOf(settings).filter(({ function: { name } }) => !names.has(name)), ...described];
}

/** The host whose tool has this name, or "" for a tool of the settings. */
export function hostOf(name) {
  const found = offered().get(name);
  return found ? new URL(found.server.record.url).host : "";
}

/** Whether the user allowed all calls of a tool, and its server still defines it as it did then. */
export function isAllowed(name) {
  const found = offered().get(name);
  return Boolean(found) && found.server.record.allowed[found.tool.name] === JSON.stringify(found.tool);
}

/** Allow all calls of a tool. */
export function allow(name) {
  const { server, tool } = offered().get(name);
  server.record.allowed[tool.name] = JSON.stringify(tool);
  store();
}

/** The result of a call that the user allows or not, {content, attachments} of a message: a text for the
 * model, of an error as well, and images. */
export async function resultOf({ name, arguments: given }, isAllowedNow, signal) {
  if (!isAllowedNow) return { content: DENIED };
  const found = offered().get(name);
  if (!found) return { content: "Error: the server of this tool is not connected." };
  try {
    const { text, images } = await found.server.client.callTool(found.tool.name, JSON.parse(given || "{}"), signal);
    const attachments = await Promise.all(images.map((image) => attachmentOf(image, found.tool.name)));
    const unreadable = attachments.includes(null) ? ["Error: an image of the result cannot be read."] : [];
    return { content: [text, ...unreadable].filter(Boolean).join("\n\n"), attachments: attachments.filter(Boolean) };
  } catch (error) {
    if (error instanceof SyntaxError) return { content: "Error: the arguments are not a JSON object." };
    if (error instanceof Unauthorized) offerSignIn(found.server, error);
    if (error instanceof McpError) return { content: `Error: ${error.message}` };
    throw error;
  }
}

// The attachment of an image, or null if the browser cannot read it.
async function attachmentOf({ data, mimeType }, name) {
  try {
    const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
    return { name, image: await readPicture(new Blob([bytes], { type: mimeType })), tokens: null };
  } catch (error) {
    if (error instanceof DOMException) return null;
    throw error;
  }
}

function opened(record) {
  const client = new McpServer({ ...record, token: (rejected) => signing.token(record.url, rejected) });
  return { record, client, tools: [], problem: "", pending: null, issuer: null, asksClient: false };
}

async function connectTo(server) {
  if (!server.record.enabled || server.tools.length) return;
  Object.assign(server, { problem: "", issuer: null, asksClient: false });
  server.pending ??= server.client.tools();
  state.changed();
  try {
    server.tools = await server.pending;
    if (!server.tools.length) server.problem = phrase("mcp.no_tools");
  } catch (error) {
    server.problem = error instanceof McpError ? error.message : phrase("mcp.unreadable", { reason: error.message });
    if (error instanceof Unauthorized) await offerSignIn(server, error);
  }
  server.pending = null;
  state.changed();
}

// Let the user sign in to a server, if it names an authorization server and has no header of the user's for it.
async function offerSignIn(server, { challenge }) {
  if (new Headers(server.record.headers).has("Authorization")) return;
  server.issuer = await findIssuer(server.record.url, challenge);
  if (server.issuer) server.problem = phrase("oauth.required");
  state.changed();
}

function showFailure(server, error) {
  if (!(error instanceof McpError)) throw error;
  server.issuer ??= readAuthorization(server.record.url);
  server.asksClient = error instanceof signing.NoRegistration;
  server.problem = error.message;
  state.changed();
}

// The tools of the enabled servers by the names that the model sees.
function offered() {
  const names = new Map();
  for (const server of state.servers.filter(({ record }) => record.enabled)) {
    for (const tool of server.tools) {
      const base = tool.name.replaceAll(/[^\w.-]/g, "_").slice(0, MAX_NAME);
      let name = base;
      for (let number = 2; names.has(name); ++number) name = `${base.slice(0, MAX_NAME - 3)}_${number}`;
      names.set(name, { server, tool });
    }
  }
  return names;
}

// Store changes of this tab's servers; other tabs may have added some.
function store() {
  const records = new Map(state.servers.map(({ record }) => [record.url, record]));
  writeServers(readServers().map((stored) => records.get(stored.url) ?? stored));
  state.changed();
}
