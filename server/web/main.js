// Buttons and keys: which does what. What is done is in session.js and controls.js.

import * as controls from "./controls.js";
import { byId } from "./dom.js";
import * as session from "./session.js";
import { toast } from "./view.js";

const HEALTH = 15_000; // milliseconds between looks at the server's state

const input = byId("input");

function send() {
  if (!session.say(input.value.trim())) return;
  input.value = "";
  byId("send").disabled = true;
}

function startOver() {
  const undo = session.startOver();
  if (undo) toast("The conversation is deleted.", undo);
  input.focus();
}

function forgetAll() {
  byId("settings").close();
  session.startOver();
  controls.forgetSettings();
  toast("Nothing is kept any more.");
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
  const elsewhere = document.querySelector("dialog[open]") || event.defaultPrevented;
  if (elsewhere || event.ctrlKey || event.metaKey || event.altKey) return;
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
byId("forget").onclick = forgetAll;
input.oninput = () => (byId("send").disabled = !input.value.trim());
input.onkeydown = inputKeys;
document.onkeydown = pageKeys;
document.onvisibilitychange = () => document.hidden || session.look();
setInterval(() => document.hidden || session.look(), HEALTH);

controls.startSettings();
controls.startTheme();
session.restore();
session.look();
