// A client of OAuth 2.1 as MCP servers ask for it, without a DOM and without storage. Sources:
// modelcontextprotocol.io/specification/2025-11-25/basic/authorization; RFC 9728 (metadata of a resource), 8414
// (metadata of an issuer), 7591 (registration), 7636 (PKCE), 8707 (resource), 9207 (iss) and 7009 (revocation).

import { phrase } from "../strings/phrase.js";
import { isThisMachine, McpError } from "./mcp.js";

/** An authorization server refused something, rather than not answering. */
export class Refusal extends McpError {}

const TIMEOUT = 20_000; // milliseconds of a request
const RESOURCE = "/.well-known/oauth-protected-resource";
const ISSUER = "/.well-known/oauth-authorization-server";
const OPENID = "/.well-known/openid-configuration";
const METHODS = ["none", "client_secret_post", "client_secret_basic"]; // the first is for a client without a secret
const OFFLINE = "offline_access"; // the scope for which some servers give a refresh token

/** The authorization server of an MCP server that answered with 401, {resource, issuer, scope}, or null if it
 * names none. `challenge` is its header WWW-Authenticate, which a browser may hide. */
export async function findIssuer(url, challenge = "") {
  const { origin, pathname } = new URL(url);
  const path = pathname.replace(/\/$/, "");
  const named = parameter(challenge, "resource_metadata");
  const places = [named, `${origin}${RESOURCE}${path}`, `${origin}${RESOURCE}`];
  const metadata = await firstJson(places, ({ resource }) => covers(resource, url));
  const scope = parameter(challenge, "scope");
  if (metadata?.authorization_servers?.length) {
    const { resource, authorization_servers: [issuer], scopes_supported: scopes = [] } = metadata;
    return isSecure(issuer) ? { resource, issuer, scope: scope || scopes.join(" ") } : null;
  }
  // Until 2025-03-26 an MCP server was its own authorization server.
  const isIssuer = await firstJson([`${origin}${ISSUER}`], (found) => isSame(found.issuer, origin));
  return isIssuer ? { resource: origin + path, issuer: origin, scope } : null;
}

/** The metadata of an issuer, in the form of RFC 8414. Throws McpError. */
export async function metadataOf(issuer) {
  const { origin, pathname } = new URL(issuer);
  const path = pathname.replace(/\/$/, "");
  const places = [`${origin}${ISSUER}${path}`, `${origin}${OPENID}${path}`, `${origin}${path}${OPENID}`];
  const metadata = await firstJson(places, (found) => isSame(found.issuer, issuer));
  if (!metadata) throw new McpError(phrase("oauth.no_metadata", { issuer }));
  const endpoints = endpointsOf(metadata);
  const isUsable = metadata.authorization_endpoint && metadata.token_endpoint && endpoints.every(isSecure);
  if (!isUsable || !metadata.code_challenge_methods_supported?.includes("S256")) {
    throw new McpError(phrase("oauth.insecure", { issuer }));
  }
  return metadata;
}

/** The addresses at which a page requests something of an issuer, or goes to. */
export const endpointsOf = (metadata) =>
  ["authorization", "token", "registration", "revocation"].map((name) => metadata[`${name}_endpoint`]).filter(Boolean);

/** Register a client that returns to `redirect`: {id, secret, method}, or null if the issuer registers none.
 * Throws McpError. */
export async function register(metadata, { redirect, scope }) {
  if (!metadata.registration_endpoint) return null;
  const supported = metadata.token_endpoint_auth_methods_supported ?? METHODS;
  const body = {
    client_name: "Hearth",
    redirect_uris: [redirect],
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    application_type: redirect.startsWith("https:") ? "web" : "native", // a web client may not return to localhost
    token_endpoint_auth_method: METHODS.find((method) => supported.includes(method)) ?? METHODS[0],
    ...(scope ? { scope } : {}),
  };
  const headers = { "Content-Type": "application/json" };
  const found = await post(metadata.registration_endpoint, { headers, body: JSON.stringify(body) });
  const method = found.token_endpoint_auth_method ?? body.token_endpoint_auth_method;
  return { id: found.client_id, secret: found.client_secret ?? "", method };
}

/** The scope to ask for: the resource's, and offline_access where a refresh token needs that scope. */
export function scopeOf({ scope }, { scopes_supported: supported = [] }) {
  const scopes = scope.split(" ").filter(Boolean);
  if (scopes.length && supported.includes(OFFLINE) && !scopes.includes(OFFLINE)) scopes.push(OFFLINE);
  return scopes.join(" ");
}

/** A random text for `state`, or for a verifier of PKCE. */
export const secret = () => base64url(crypto.getRandomValues(new Uint8Array(32)));

/** The address at which the user signs in. */
export async function signInAddress(metadata, { client, redirect, scope, resource, state, verifier }) {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
  const address = new URL(metadata.authorization_endpoint);
  const query = {
    response_type: "code",
    client_id: client.id,
    redirect_uri: redirect,
    state,
    code_challenge: base64url(new Uint8Array(digest)),
    code_challenge_method: "S256",
    resource,
    ...(scope ? { scope } : {}),
  };
  for (const [name, value] of Object.entries(query)) address.searchParams.set(name, value);
  return address.href;
}

/** The code in the parameters with which an issuer sent the user back. Throws McpError. */
export function codeOf(query, metadata) {
  const iss = query.get("iss");
  const isOther = iss === null ? metadata.authorization_response_iss_parameter_supported : !isSame(iss, metadata.issuer);
  if (isOther) throw new McpError(phrase("oauth.other_issuer", { issuer: metadata.issuer }));
  if (query.get("code")) return query.get("code");
  throw new McpError(phrase("oauth.refused", { reason: query.get("error_description") ?? query.get("error") ?? "" }));
}

/** Tokens for a code: {access, refresh, expires}, the last in milliseconds since 1970 or null. Throws McpError. */
export const exchange = (metadata, { client, redirect, resource, code, verifier }) =>
  tokens(metadata, client, { grant_type: "authorization_code", code, redirect_uri: redirect, code_verifier: verifier, resource });

/** Tokens for a refresh token, which may have been used up by that. Throws McpError. */
export async function renewed(metadata, { client, resource, refresh }) {
  const found = await tokens(metadata, client, { grant_type: "refresh_token", refresh_token: refresh, resource });
  return { ...found, refresh: found.refresh ?? refresh };
}

/** Have an issuer forget tokens, where it can. The page has forgotten them and may be left: nothing is awaited. */
export function revoke(metadata, client, { access, refresh }) {
  const [token, kind] = refresh ? [refresh, "refresh_token"] : [access, "access_token"];
  const options = { ...request(client, { token, token_type_hint: kind }), keepalive: true };
  if (metadata.revocation_endpoint) post(metadata.revocation_endpoint, options).catch(() => {});
}

async function tokens(metadata, client, grant) {
  const found = await post(metadata.token_endpoint, request(client, grant));
  if (found.token_type?.toLowerCase() !== "bearer") throw new McpError(phrase("oauth.bad_token"));
  const expires = found.expires_in === undefined ? null : Date.now() + Number(found.expires_in) * 1000;
  return { access: found.access_token, refresh: found.refresh_token ?? null, expires };
}

// The headers and the body of a client's request.
function request({ id, secret: password, method }, fields) {
  const body = new URLSearchParams({ ...fields, client_id: id });
  const headers = {};
  if (method === "client_secret_post") body.set("client_secret", password);
  if (method === "client_secret_basic") {
    const credentials = btoa([id, password].map(encodeURIComponent).join(":"));
    headers.Authorization = `Basic ${credentials}`;
  }
  return { headers, body };
}

async function post(url, options) {
  const { origin } = new URL(url);
  const signal = AbortSignal.timeout(TIMEOUT);
  const response = await fetch(url, { method: "POST", ...options, signal, cache: "no-store" }).catch(() => null);
  if (!response) throw new McpError(phrase("oauth.unreachable", { origin, page: location.origin }));
  const body = await response.json().catch(() => ({}));
  if (response.ok) return body;
  const reason = body.error_description ?? body.error ?? `${response.status} ${response.statusText}`;
  throw new Refusal(phrase("oauth.refused", { reason }));
}

// The first of some documents that is there and is meant, or null.
async function firstJson(places, isMeant) {
  for (const place of new Set(places.filter(Boolean))) {
    const response = await fetch(place, { signal: AbortSignal.timeout(TIMEOUT), cache: "no-store" }).catch(() => null);
    const found = response?.ok ? await response.json().catch(() => null) : null;
    if (found && isMeant(found)) return found;
  }
  return null;
}

// A parameter of a header WWW-Authenticate, or "".
function parameter(challenge, name) {
  const [, quoted, plain] = new RegExp(`\\b${name}=(?:"([^"]*)"|([^\\s,]+))`).exec(challenge) ?? [];
  return quoted ?? plain ?? "";
}

// Whether a resource is this address, or a path above it.
function covers(resource, url) {
  if (!URL.canParse(resource)) return false;
  const [outer, inner] = [new URL(resource), new URL(url)];
  const path = outer.pathname.replace(/\/?$/, "/");
  return outer.origin === inner.origin && `${inner.pathname}/`.startsWith(path);
}

const isSame = (issuer, other) => issuer?.replace(/\/$/, "") === other.replace(/\/$/, "");

// Codes and tokens go over HTTPS, or stay on this machine.
function isSecure(address) {
  if (!URL.canParse(address)) return false;
  const { protocol, hostname } = new URL(address);
  return protocol === "https:" || (protocol === "http:" && isThisMachine(hostname));
}

const base64url = (bytes) =>
  btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
