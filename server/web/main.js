// Bind buttons and keys to the functions of the other modules, and start the page.

import * as database from "./data/database.js";
import * as library from "./session/library.js";
import * as server from "./session/server_state.js";
import * as session from "./session/session.js";
import { restoreAddress } from "./session/sign_in.js";
import * as tools from "./session/tool_servers.js";
import { phrase } from "./strings/phrase.js";
import { startComposer } from "./view/composer.js";
import { startSearch, toggleSidebar, uncover } from "./view/conversation_list.js";
import { byId } from "./view/dom.js";
import { deleteKey } from "./view/key.js";
import { showNotice, toast } from "./view/notices.js";
import * as settings from "./view/settings.js";
import { resetTheme, startTheme } from "./view/theme.js";
import { startToolServers } from "./view/tool_servers.js";

const HEALTH_INTERVAL = 15_000; // milliseconds between checks of the server's state

const input = byId("input");
const wide = matchMedia("(min-width: 60.01rem)");

function startNew() {
  uncover();
  session.startNew();
  input.focus();
}

async function deleteAll() {
  byId("settings").close();
  await library.removeAll();
  settings.deleteDefaults();
  settings.showSettings(settings.defaults());
  session.startNew();
  resetTheme();
  deleteKey();
  tools.removeServers();
  localStorage.clear();
  sessionStorage.clear();
  toast(phrase("notice.all_deleted"));
}

function pageKeys(event) {
  const handled = document.querySelector("dialog[open], [popover]:popover-open") || event.defaultPrevented;
  if (handled) return;
  if (event.ctrlKey && event.shiftKey && event.key === "O") {
    event.preventDefault();
    startNew();
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input, textarea, select");
  if (event.key === "Escape") uncover() || session.stop();
  else if (event.key === "ArrowUp" && event.target === input && !input.value) {
    if (session.editLast()) event.preventDefault();
  } else if (event.key === "?" && !typing) settings.openSettings(".shortcuts");
  else if (event.key === "/" && !typing) {
    event.preventDefault();
    input.focus();
  }
}

byId("stop").onclick = session.stop;
byId("new").onclick = startNew;
byId("delete").onclick = deleteAll;
byId("toggle-sidebar").onclick = () => toggleSidebar();
byId("close-sidebar").onclick = byId("backdrop").onclick = () => uncover() || toggleSidebar(false);
byId("export").onclick = library.exportAll;
byId("import").onclick = () => byId("import-file").click();
byId("import-file").onchange = ({ target }) => {
  if (target.files.length) library.importFile(target.files[0]);
  target.value = "";
};
byId("conversations").addEventListener("click", ({ target }) => target.closest(".title") && uncover());
document.onkeydown = pageKeys;
document.onvisibilitychange = () => document.hidden || server.checkServer();
window.onpopstate = () => session.open(location.hash.slice(1));
wide.onchange = () => toggleSidebar(wide.matches);
setInterval(() => document.hidden || server.checkServer(), HEALTH_INTERVAL);

startTheme();
settings.startSettings((changed) => session.change({ settings: changed }));
startSearch(library.search);
startComposer({
  send: session.send,
  count: (file) => server.countTokens(file, session.current()),
  transcribe: server.transcribe,
  refusal: session.refusal,
  changed: session.showAttached,
});
const showToolServers = startToolServers(tools);
tools.onToolServers(() => {
  showToolServers();
  session.refreshCalls();
});
toggleSidebar(wide.matches);
session.onList(library.refresh);
server.onModels(session.refresh);
database.onChange(session.followOtherTab);
restoreAddress();
await session.open(location.hash.slice(1));
if (!(await database.isPersistent())) showNotice(phrase("notice.not_stored"));
library.refresh();
server.checkServer();
tools.start();
settings.reopenSettings();
