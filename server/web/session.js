// The one conversation of this page with its server: send, stop, again, start over; and the
// server's state. It joins what is kept, asked and shown; buttons and keys are main.js's.

import { answer } from "./answering.js";
import { model, readiness } from "./api.js";
import * as controls from "./controls.js";
import * as conversation from "./conversation.js";
import { byId } from "./dom.js";
import { editQuestion, liveAnswer, showMessages } from "./messages.js";
import * as view from "./view.js";

const state = { messages: conversation.EMPTY, chats: true, running: null };

/** Show the conversation that was kept. */
export const restore = () => keep(conversation.kept(localStorage));

/** Say something; false while an answer is being written. */
export function say(text) {
  if (state.running || !text) return false;
  run(conversation.asked(state.messages, text));
  return true;
}

/** Stop the answer that is being written; false if there is none. */
export function stop() {
  state.running?.abort();
  return state.running !== null;
}

/** Turn the last message into a field; false if there is none. */
export function edit() {
  const last = state.messages[conversation.lastAsked(state.messages)];
  if (!last || state.running) return false;
  const leave = () => {
    keep(state.messages);
    byId("input").focus();
  };
  editQuestion(last.content, (text) => run(conversation.edited(state.messages, text)), leave);
  return true;
}

/** Forget the conversation; gives a function that brings it back, or null if it was empty. */
export function startOver() {
  stop();
  const before = state.messages;
  conversation.forget(localStorage);
  view.hideNotice();
  showMessages((state.messages = conversation.EMPTY), {});
  return before.length ? () => keep(before) : null;
}

/** Look at the server's state; one that has come back may serve another model. */
export async function look() {
  const { state: now, message } = await readiness(controls.key());
  const before = view.showStatus(now, message);
  if (now === "ready" && before !== "ready") await learn();
}

async function learn() {
  try {
    adopt(await model(controls.key()));
  } catch (error) {
    if (error.status === 401) await wantKey();
  }
}

function adopt({ name, chats }) {
  state.chats = chats;
  view.showModel(name, chats, say);
  controls.allowSystem(chats);
}

function keep(messages) {
  state.messages = messages;
  showMessages(messages, { again, edit });
  if (!conversation.keep(localStorage, messages)) {
    view.showNotice("This browser has no room left to keep the conversation.");
  }
}

function again() {
  if (!state.running) run(conversation.unanswered(state.messages));
}

async function run(messages) {
  keep(messages);
  view.hideNotice();
  const running = new AbortController();
  state.running = running;
  view.showRunning(true);
  const live = liveAnswer();
  const more = (text) => {
    view.hideNotice();
    live.update(text);
  };
  const { error, ...found } = await answer(
    { messages, settings: controls.settings(), chats: state.chats, signal: running.signal },
    { key: controls.key, wantKey, waiting, more },
  );
  live.remove();
  state.running = null;
  view.showRunning(false);
  look();
  // Whoever started over meanwhile wants none of it.
  if (state.messages !== messages) return;
  view.hideNotice();
  if (found.content) keep(conversation.answered(messages, found));
  view.speak(found.content || "No answer");
  if (error) refused(error);
}

function refused(error) {
  if (error.status === 404 && state.chats) {
    adopt({ name: byId("model").textContent, chats: false });
    again();
    return;
  }
  const seconds = error.retryAfter ?? 0;
  const when = seconds ? `in ${seconds} s` : "in a moment";
  const text = error.status === 429 ? `The server is busy. Try again ${when}. (${error.message})` : error.message;
  view.showNotice(text, { retry: again, seconds });
}

async function wantKey() {
  const given = await controls.askKey();
  if (given) learn();
  return given;
}

function waiting(message) {
  view.showNotice(`Waiting for the server: ${message}. Your message is sent as soon as it is ready.`);
  look();
}
