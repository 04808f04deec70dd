// The MCP servers in the settings: their tools, and what is wrong with them.

import { newServer } from "../data/tool_servers.js";
import { phrase } from "../strings/phrase.js";
import { byId, iconButton, make } from "./dom.js";
import { reloadSettings } from "./settings.js";

/** Bind the list. `servers` has the functions of session/tool_servers.js. Return a function that shows the
 * servers as they are now. */
export function startToolServers(servers) {
  const url = byId("tool-server-url");
  const headers = byId("tool-server-headers");
  const add = () => {
    try {
      if (!servers.addServer(newServer(url.value.trim(), headers.value))) throw new Error(phrase("settings.no_space"));
      reloadSettings(".tool-servers");
    } catch (error) {
      byId("tool-server-problem").textContent = error.message;
    }
  };
  byId("add-tool-server").onclick = add;
  url.onkeydown = (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault(); // it would close the dialog
    add();
  };
  const show = () => byId("tool-servers").replaceChildren(...servers.toolServers().map((server, at) => item(server, at, servers)));
  show();
  return show;
}

function item({ url, enabled, tools, problem, signInHost, asksClient, isPending, hasAllowed }, at, servers) {
  const { host } = new URL(url);
  const box = make("input", { type: "checkbox", checked: enabled, onchange: () => servers.enableServer(at, box.checked) });
  const remove = iconButton("close", phrase("mcp.remove", { host }), () => servers.removeServer(at));
  const parts = [make("div", { className: "entry" }, make("label", { className: "check", title: url }, box, host), remove)];
  if (isPending) parts.push(make("p", { className: "about" }, phrase("bar.connecting")));
  if (problem) {
    const again = make("button", { type: "button", className: "plain", onclick: servers.connect }, phrase("notice.retry"));
    const ways = signInHost ? signIn(signInHost, asksClient, at, servers, again) : [again];
    parts.push(make("p", { className: "bad", role: "status" }, problem), ...ways);
  }
  if (tools.length) {
    const names = tools.map(({ name, description }) => make("li", {}, make("code", {}, name), ` ${description ?? ""}`));
    const title = make("summary", {}, phrase("mcp.tools", { count: tools.length }));
    parts.push(make("details", { className: "folded" }, title, make("ul", {}, ...names)));
  }
  if (hasAllowed) {
    const ask = make("button", { type: "button", className: "plain", onclick: () => servers.askAgain(at) }, phrase("mcp.ask_again"));
    parts.push(ask);
  }
  return make("li", {}, ...parts);
}

// What signs in at a host, beside the button `again`.
function signIn(host, asksClient, at, servers, again) {
  const id = make("input", { autocomplete: "off", spellcheck: false });
  const ask = asksClient ? [make("label", { className: "wide" }, phrase("oauth.client"), " ", id)] : [];
  const go = () => servers.signIn(at, id.value.trim());
  const button = make("button", { type: "button", className: "plain sign-in", onclick: go }, phrase("oauth.sign_in", { host }));
  return [...ask, make("div", { className: "choices" }, button, again)];
}
