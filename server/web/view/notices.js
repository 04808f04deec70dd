// The page around the messages: the server's state, the empty page, notices, screen-reader text.

import { phrase } from "../strings/phrase.js";
import { byId, make } from "./dom.js";

const TOAST_TIME = 8_000; // milliseconds
const STATES = { ready: phrase("bar.ready"), waiting: phrase("bar.waiting"), unreachable: phrase("bar.unreachable") };
const CHAT = {
  greeting: phrase("chat.greeting"),
  hint: phrase("chat.hint"),
  placeholder: phrase("chat.placeholder"),
  starters: [phrase("chat.starter_1"), phrase("chat.starter_2"), phrase("chat.starter_3")],
};
const TEXT = {
  greeting: phrase("text.greeting"),
  hint: phrase("text.hint"),
  placeholder: phrase("text.placeholder"),
  starters: [phrase("text.starter_1"), phrase("text.starter_2"), "def fibonacci(n):"],
};

/** Show the server's state. Return the state that was shown before. */
export function showStatus(state, message) {
  const dot = byId("status");
  const before = dot.dataset.state;
  dot.dataset.state = state;
  dot.title = message;
  if (before !== state) dot.textContent = STATES[state];
  return before;
}

/** Say what the model can do. `send(text)` is called for a suggestion on the empty page. */
export function showPurpose(chats, send) {
  const { greeting, hint, placeholder, starters } = chats ? CHAT : TEXT;
  const button = (text) => make("button", { type: "button", onclick: () => send(text) }, text);
  byId("greeting").textContent = greeting;
  byId("hint").textContent = hint;
  byId("input").placeholder = placeholder;
  byId("starters").replaceChildren(...starters.map(button));
}

/** While an answer is running, show Stop in place of Send. */
export function showRunning(running) {
  if (running === byId("send").hidden) return;
  const focused = document.activeElement === byId("stop");
  byId("stop").hidden = !running;
  byId("send").hidden = running;
  if (focused) byId("input").focus();
  if (running) speak(phrase("notice.generating"));
}

/** Show a notice after the messages. `retry` adds a button, which is disabled for `seconds`. */
export function showNotice(text, { retry = null, label = phrase("notice.retry"), seconds = 0 } = {}) {
  hideNotice();
  const button = byId("retry");
  // Setting the same text again would make screen readers repeat it.
  if (byId("notice-text").textContent !== text) byId("notice-text").textContent = text;
  byId("notice").hidden = false;
  button.hidden = !retry;
  button.onclick = retry;
  countDown(button, label, seconds);
  byId("notice").scrollIntoView({ block: "nearest" });
}

export function hideNotice() {
  clearInterval(byId("retry").timer);
  byId("notice").hidden = true;
}

/** Show a short message over the page. `undo` adds a button to it. */
export function toast(text, undo = null) {
  const box = byId("toast");
  const hide = () => (box.hidden = true);
  clearTimeout(box.timer);
  box.timer = setTimeout(hide, TOAST_TIME);
  byId("toast-text").textContent = text;
  byId("undo").hidden = !undo;
  byId("undo").onclick = () => {
    hide();
    undo();
  };
  box.hidden = false;
}

/** Announce a text to screen readers. */
export function speak(text) {
  byId("spoken").textContent = text;
}

function countDown(button, label, seconds) {
  const tick = () => {
    button.disabled = seconds > 0;
    button.textContent = seconds > 0 ? phrase("notice.countdown", { label, seconds }) : label;
    if (seconds <= 0) clearInterval(button.timer);
    seconds -= 1;
  };
  button.timer = setInterval(tick, 1000);
  tick();
}
