// The page around the messages: the server's state, the model, notices, what is read out.
// It knows the elements of index.html; it starts nothing and keeps nothing.

import { byId, make } from "./dom.js";

const TOAST = 8_000; // milliseconds
const STATES = { ready: "Ready", waiting: "Not ready", away: "Not reachable" };
const CHAT = {
  greeting: "What is on your mind?",
  hint: "The model runs on this server, and nothing leaves it.",
  placeholder: "Message",
  starters: ["Why is the sky blue?", "Write a short poem about winter", "Three ideas for a picnic"],
};
const TEXT = {
  greeting: "How does it begin?",
  hint: "This model does not chat: it goes on with the text that you begin.",
  placeholder: "Beginning of a text",
  starters: ["The capital of France is", "Once upon a time", "def fibonacci(n):"],
};

/** Show the server's state; gives the one that was shown before. */
export function showStatus(state, message) {
  const dot = byId("status");
  const before = dot.dataset.state;
  dot.dataset.state = state;
  dot.title = message;
  if (before !== state) dot.textContent = STATES[state];
  return before;
}

/** Show what is served; `say(text)` is for the beginnings that an empty page offers. */
export function showModel(name, chats, say) {
  const { greeting, hint, placeholder, starters } = chats ? CHAT : TEXT;
  const button = (text) => make("button", { type: "button", onclick: () => say(text) }, text);
  byId("model").textContent = byId("model").title = name;
  byId("greeting").textContent = greeting;
  byId("hint").textContent = hint;
  byId("input").placeholder = placeholder;
  byId("starters").replaceChildren(...starters.map(button));
}

/** While an answer is written, Stop takes the place of Send. */
export function showRunning(running) {
  const focused = document.activeElement === byId("stop");
  byId("stop").hidden = !running;
  byId("send").hidden = running;
  if (focused) byId("input").focus();
  if (running) speak("The answer is being written.");
}

/** A notice after the messages; with `retry` a button, which waits for so many seconds. */
export function showNotice(text, { retry = null, seconds = 0 } = {}) {
  hideNotice();
  const button = byId("retry");
  // The same text again would be read out again.
  if (byId("notice-text").textContent !== text) byId("notice-text").textContent = text;
  byId("notice").hidden = false;
  button.hidden = !retry;
  button.onclick = retry;
  countDown(button, seconds);
  byId("notice").scrollIntoView({ block: "nearest" });
}

export function hideNotice() {
  clearInterval(byId("retry").timer);
  byId("notice").hidden = true;
}

/** A short message over the page; with `undo`, for as long as it is there, a way back. */
export function toast(text, undo = null) {
  const box = byId("toast");
  const hide = () => (box.hidden = true);
  clearTimeout(box.timer);
  box.timer = setTimeout(hide, TOAST);
  byId("toast-text").textContent = text;
  byId("undo").hidden = !undo;
  byId("undo").onclick = () => {
    hide();
    undo();
  };
  box.hidden = false;
}

/** Have a screen reader say it. */
export function speak(text) {
  byId("spoken").textContent = text;
}

function countDown(button, seconds) {
  const tick = () => {
    button.disabled = seconds > 0;
    button.textContent = seconds > 0 ? `Try again in ${seconds} s` : "Try again";
    if (seconds <= 0) clearInterval(button.timer);
    seconds -= 1;
  };
  button.timer = setInterval(tick, 1000);
  tick();
}
