// Bind buttons and keys to the functions of session.js and controls.js.

import * as controls from "./controls.js";
import { byId } from "./dom.js";
import * as session from "./session.js";
import { toast } from "./view.js";

const HEALTH_INTERVAL = 15_000; // milliseconds between checks of the server's state

const input = byId("input");

function send() {
  if (!session.send(input.value.trim())) return;
  input.value = "";
  byId("send").disabled = true;
}

function startOver() {
  const undo = session.startOver();
  if (undo) toast("Conversation deleted.", undo);
  input.focus();
}

function deleteAll() {
  byId("settings").close();
  session.startOver();
  controls.deleteSettings();
  toast("All data in this browser is deleted.");
}

function inputKeys(event) {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  } else if (event.key === "ArrowUp" && !input.value && session.edit()) {
    event.preventDefault();
  }
}

function pageKeys(event) {
  const handled = document.querySelector("dialog[open]") || event.defaultPrevented;
  if (handled || event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input, textarea");
  if (event.key === "Escape") session.stop();
  else if (event.key === "?" && !typing) controls.openSettings(".shortcuts");
  else if (event.key === "/" && !typing) {
    event.preventDefault();
    input.focus();
  }
}

byId("composer").onsubmit = (event) => {
  event.preventDefault();
  send();
};
byId("stop").onclick = session.stop;
byId("new").onclick = startOver;
byId("delete").onclick = deleteAll;
input.oninput = () => (byId("send").disabled = !input.value.trim());
input.onkeydown = inputKeys;
document.onkeydown = pageKeys;
document.onvisibilitychange = () => document.hidden || session.checkServer();
setInterval(() => document.hidden || session.checkServer(), HEALTH_INTERVAL);

controls.startSettings();
controls.startTheme();
session.restore();
session.checkServer();
