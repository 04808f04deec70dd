// The MCP servers that the user added, in this browser. first_paint.js reads their addresses as well.
//
// A server is {url, headers, enabled, allowed}: `headers` is {name: value}, and `allowed` is
// {name: definition} of the tools that are called without a question.
//
// The authorization of a server that the user signed in to has an entry of its own, which other tabs may renew:
// {issuer, resource, scope, origins, metadata, client, tokens}, where `origins` are the origins of the requests to the
// issuer. The other values are described in api/oauth.js, or are null before they are known.

import { phrase } from "../strings/phrase.js";
import { forget, recall, remember } from "./preferences.js";

const NAME = "mcp";

/** The servers in the order of their addition. */
export function readServers() {
  try {
    return JSON.parse(recall(NAME) ?? "[]").map(validServer).filter(Boolean);
  } catch {
    return [];
  }
}

/** Store servers. Return false if they do not fit. */
export const writeServers = (servers) => remember(NAME, JSON.stringify(servers));

/** The authorization of the server at an address, or null. */
export function readAuthorization(url) {
  try {
    return JSON.parse(recall(authorizationOf(url)));
  } catch {
    return null;
  }
}

/** Store the authorization of a server. Return false if it does not fit. */
export const writeAuthorization = (url, authorization) => remember(authorizationOf(url), JSON.stringify(authorization));

/** Delete the authorization of a server. */
export const forgetAuthorization = (url) => forget(authorizationOf(url));

/** A new server from what the user typed: an address, and lines "Name: value". Throws an Error that says
 * what is wrong. */
export function newServer(address, lines) {
  if (!/^https?:/i.test(address) || !URL.canParse(address)) throw new Error(phrase("mcp.bad_address"));
  const headers = {};
  for (const line of lines.split("\n").map((text) => text.trim()).filter(Boolean)) {
    const [, name, value] = /^([^:\s]+):\s*(.+)$/.exec(line) ?? [];
    if (!isHeader(name, value)) throw new Error(phrase("mcp.bad_header", { line }));
    headers[name] = value;
  }
  return { url: new URL(address).href, headers, enabled: true, allowed: {} };
}

const authorizationOf = (url) => `${NAME} ${url}`;

function validServer({ url, headers, enabled, allowed }) {
  if (!URL.canParse(url)) return null;
  return { url, headers: headers ?? {}, enabled: enabled !== false, allowed: allowed ?? {} };
}

function isHeader(name, value) {
  try {
    return Boolean(name) && new Headers([[name, value]]).has(name);
  } catch {
    return false;
  }
}
