// Sign in to MCP servers. The page goes to the authorization server and comes back in the same tab, where
// sessionStorage has kept what it needs then. Tokens are stored in this browser for all tabs.

import { McpError } from "../api/mcp.js";
import * as oauth from "../api/oauth.js";
import { forgetAuthorization, readAuthorization, readServers, writeAuthorization } from "../data/tool_servers.js";
import { phrase } from "../strings/phrase.js";
import { keepSettings, reloadSettings } from "../view/settings.js";

const PENDING = "hearth.sign-in"; // {url, hash, state, verifier}: the last two once the user was sent away
const PART = ".tool-servers"; // of the settings
const MARGIN = 30_000; // milliseconds before its end in which a token is renewed

/** The authorization server registers no client: the user must enter the id of one. */
export class NoRegistration extends McpError {}

// The page's policy admits the addresses that were stored when the page was loaded.
const admitted = new Set(readServers().flatMap(({ url }) => readAuthorization(url)?.origins ?? []));
let returned = null; // the parameters with which an authorization server sent the user back

/** Take the parameters of an authorization server out of the page's address, and show the conversation of before. */
export function restoreAddress() {
  const query = new URLSearchParams(location.search);
  if (!query.has("state")) return;
  returned = query;
  history.replaceState(null, "", location.pathname + (pending()?.hash ?? location.hash));
}

/** Go on with a sign-in after the page was loaded again. Resolves to {url, error} if it failed, or null. */
export async function resume() {
  const signing = pending();
  if (!signing) return null;
  try {
    if (!signing.state) await leave();
    else {
      sessionStorage.removeItem(PENDING);
      if (returned?.get("state") === signing.state) await complete(signing);
    }
    return null;
  } catch (error) {
    sessionStorage.removeItem(PENDING);
    return { url: signing.url, error };
  }
}

/** Sign in to the server at an address, with what findIssuer() found. Throws McpError. */
export async function signIn(url, { issuer, resource, scope }, clientId) {
  if (!isSecureContext) throw new McpError(phrase("oauth.needs_https", { page: location.origin }));
  const before = readAuthorization(url);
  const kept = before?.issuer === issuer && before.client?.redirect === redirect() ? before.client : null;
  const client = clientId ? { id: clientId, secret: "", method: "none", redirect: redirect() } : kept;
  const { origin } = new URL(issuer);
  store(url, { issuer, resource, scope, origins: [origin], metadata: null, client, tokens: null });
  sessionStorage.setItem(PENDING, JSON.stringify({ url, hash: location.hash }));
  await leave();
}

/** The access token of a server, another one than it has rejected, or null. Renews it if necessary. */
export async function token(url, rejected = null) {
  const isUsable = ({ access, expires }) => access !== rejected && (expires === null || Date.now() < expires - MARGIN);
  const tokens = readAuthorization(url)?.tokens;
  if (!tokens) return null;
  if (isUsable(tokens)) return tokens.access;
  // Another tab may renew it now, and many servers take a refresh token once.
  return navigator.locks.request(`hearth.mcp ${url}`, async () => {
    const { metadata, client, resource, tokens: latest } = readAuthorization(url) ?? {};
    if (!latest || isUsable(latest)) return latest?.access ?? null;
    const next = latest.refresh ? await renew(metadata, { client, resource, refresh: latest.refresh }) : null;
    const stored = readAuthorization(url);
    if (stored) writeAuthorization(url, { ...stored, tokens: next });
    return next?.access ?? null;
  });
}

/** Forget the authorization for a server, here and at its issuer. */
export function signOut(url) {
  const { metadata, client, tokens } = readAuthorization(url) ?? {};
  forgetAuthorization(url);
  if (tokens) oauth.revoke(metadata, client, tokens);
}

const redirect = () => location.origin + location.pathname;

function pending() {
  try {
    return JSON.parse(sessionStorage.getItem(PENDING));
  } catch {
    return null;
  }
}

// Go to the authorization server. The policy must admit its addresses first, which may need a reload for the
// addresses of its metadata, and another one for the endpoints in it.
async function leave() {
  const signing = pending();
  const authorization = readAuthorization(signing.url);
  if (!authorization) return void sessionStorage.removeItem(PENDING);
  if (!authorization.metadata) {
    if (!authorization.origins.every((origin) => admitted.has(origin))) return reloadSettings(PART);
    authorization.metadata = await oauth.metadataOf(authorization.issuer);
    const endpoints = oauth.endpointsOf(authorization.metadata).map((url) => new URL(url).origin);
    authorization.origins = [...new Set([...authorization.origins, ...endpoints])];
    store(signing.url, authorization);
  }
  if (!authorization.origins.every((origin) => admitted.has(origin))) return reloadSettings(PART);
  const { metadata, resource } = authorization;
  const scope = oauth.scopeOf(authorization, metadata);
  authorization.client ??= await registered(metadata, scope);
  store(signing.url, authorization);
  const secrets = { state: oauth.secret(), verifier: oauth.secret() };
  sessionStorage.setItem(PENDING, JSON.stringify({ ...signing, ...secrets }));
  const { client } = authorization;
  const address = await oauth.signInAddress(metadata, { client, redirect: redirect(), scope, resource, ...secrets });
  keepSettings(PART);
  location.assign(address);
}

async function registered(metadata, scope) {
  const client = await oauth.register(metadata, { redirect: redirect(), scope });
  if (!client) throw new NoRegistration(phrase("oauth.no_registration", { issuer: metadata.issuer, page: redirect() }));
  return { ...client, redirect: redirect() };
}

async function complete({ url, verifier }) {
  const authorization = readAuthorization(url);
  if (!authorization) return;
  const { metadata, client, resource } = authorization;
  const code = oauth.codeOf(returned, metadata);
  const tokens = await oauth.exchange(metadata, { client, redirect: redirect(), resource, code, verifier });
  store(url, { ...authorization, tokens });
}

// The tokens for a refresh token, or null if it is not accepted any more.
async function renew(metadata, grant) {
  try {
    return await oauth.renewed(metadata, grant);
  } catch (error) {
    if (error instanceof oauth.Refusal) return null;
    throw error;
  }
}

function store(url, authorization) {
  if (!writeAuthorization(url, authorization)) throw new McpError(phrase("settings.no_space"));
}
