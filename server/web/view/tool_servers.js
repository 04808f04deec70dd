// The MCP servers in the settings: their tools, and what is wrong with them.

import { newServer } from "../data/tool_servers.js";
import { byId, iconButton, make } from "./dom.js";

const ADDED = "hearth.added"; // in the storage of the tab: a server was added before this load of the page

/** Bind the list. `servers` has the functions of session/tool_servers.js. Return a function that shows the
 * servers as they are now. */
export function startToolServers(servers) {
  const url = byId("tool-server-url");
  const headers = byId("tool-server-headers");
  const add = () => {
    try {
      if (!servers.addServer(newServer(url.value.trim(), headers.value))) throw new Error("The browser's storage is full.");
      sessionStorage.setItem(ADDED, "yes");
      location.reload();
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

/** Whether a server was added before this load of the page. */
export function isAdded() {
  const added = sessionStorage.getItem(ADDED) !== null;
  sessionStorage.removeItem(ADDED);
  return added;
}

function item({ url, enabled, tools, problem, isPending, hasAllowed }, at, servers) {
  const { host } = new URL(url);
  const box = make("input", { type: "checkbox", checked: enabled, onchange: () => servers.enableServer(at, box.checked) });
  const remove = iconButton("close", `Remove ${host}`, () => servers.removeServer(at));
  const parts = [make("div", { className: "tool-server" }, make("label", { className: "check", title: url }, box, host), remove)];
  if (isPending) parts.push(make("p", { className: "about" }, "Connecting"));
  if (problem) {
    const again = make("button", { type: "button", className: "plain", onclick: servers.connect }, "Try again");
    parts.push(make("p", { className: "bad", role: "status" }, problem), again);
  }
  if (tools.length) {
    const names = tools.map(({ name, description }) => make("li", {}, make("code", {}, name), ` ${description ?? ""}`));
    const title = make("summary", {}, tools.length === 1 ? "1 tool" : `${tools.length} tools`);
    parts.push(make("details", { className: "folded" }, title, make("ul", {}, ...names)));
  }
  if (hasAllowed) {
    const ask = make("button", { type: "button", className: "plain", onclick: () => servers.askAgain(at) }, "Ask before each call again");
    parts.push(ask);
  }
  return make("li", {}, ...parts);
}
