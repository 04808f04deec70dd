// The conversation of this page: send, stop, regenerate, edit, start over; and the server's state.
// It connects storage, API and view. main.js binds buttons and keys to it.

import { answer } from "./answer.js";
import { model, readiness } from "./api.js";
import * as controls from "./controls.js";
import * as conversation from "./conversation.js";
import { byId } from "./dom.js";
import { editQuestion, liveAnswer, showMessages } from "./messages.js";
import * as view from "./view.js";

const state = { messages: conversation.EMPTY, chats: true, running: null };

/** Show the stored conversation. */
export const restore = () => open(conversation.load(localStorage));

/** Send a message. Return false if it is empty or an answer is running. */
export function send(text) {
  if (state.running || !text) return false;
  run(conversation.withQuestion(state.messages, text));
  return true;
}

/** Stop the running answer. Return false if there is none. */
export function stop() {
  state.running?.abort();
  return state.running !== null;
}

/** Edit the user's last message in place. Return false if there is none. */
export function edit() {
  const last = state.messages[conversation.lastQuestion(state.messages)];
  if (!last || state.running) return false;
  const cancel = () => {
    update(state.messages);
    byId("input").focus();
  };
  editQuestion(last.content, (text) => run(conversation.withEditedQuestion(state.messages, text)), cancel);
  return true;
}

/** Delete the conversation. Return a function that restores it, or null if it was empty. */
export function startOver() {
  stop();
  const before = state.messages;
  conversation.clear(localStorage);
  view.hideNotice();
  showMessages((state.messages = conversation.EMPTY), {});
  return before.length ? () => open(before) : null;
}

/** Check the server's state. A server that is ready again may serve another model. */
export async function checkServer() {
  const { state: status, message } = await readiness(controls.key());
  const before = view.showStatus(status, message);
  if (status === "ready" && before !== "ready") await loadModel();
}

async function loadModel() {
  try {
    useModel(await model(controls.key()));
  } catch (error) {
    if (error.status === 401) await requestKey();
  }
}

function useModel({ name, chats }) {
  state.chats = chats;
  view.showModel(name, chats, send);
  controls.allowSystem(chats);
}

function update(messages) {
  state.messages = messages;
  showMessages(messages, { regenerate, edit });
  if (!conversation.save(localStorage, messages)) {
    view.showNotice("The browser's storage is full. This conversation is not saved.");
  }
}

// Show a conversation that may end with a question.
function open(messages) {
  update(messages);
  if (messages.at(-1)?.role === "user") showUnanswered("This message has no answer.");
}

function regenerate() {
  if (!state.running) run(conversation.untilQuestion(state.messages));
}

async function run(messages) {
  update(messages);
  view.hideNotice();
  const running = new AbortController();
  state.running = running;
  view.showRunning(true);
  const live = liveAnswer();
  const onText = (text) => {
    view.hideNotice();
    live.update(text);
  };
  const { error, ...reply } = await answer(
    { messages, settings: controls.settings(), chats: state.chats, signal: running.signal },
    { key: controls.key, requestKey, onWaiting, onText },
  );
  live.remove();
  state.running = null;
  view.showRunning(false);
  checkServer();
  // The user deleted or changed the conversation in the meantime.
  if (state.messages !== messages) return;
  view.hideNotice();
  if (reply.content) update(conversation.withAnswer(messages, reply));
  view.speak(reply.content || "No answer");
  if (error) showError(error);
  else if (reply.finish === "stopped" && !reply.content) showUnanswered("Stopped before the first token.");
  else if (!reply.content) showUnanswered("The answer is empty.");
}

const showUnanswered = (text) => view.showNotice(text, { retry: regenerate });

function showError(error) {
  if (error.status === 404 && state.chats) {
    useModel({ name: byId("model").textContent, chats: false });
    regenerate();
    return;
  }
  const seconds = error.retryAfter ?? 0;
  const when = seconds ? `in ${seconds} s` : "later";
  const text = error.status === 429 ? `The server is busy. Try again ${when}. (${error.message})` : error.message;
  view.showNotice(text, { retry: regenerate, seconds });
}

async function requestKey() {
  const entered = await controls.askKey();
  if (entered) loadModel();
  return entered;
}

function onWaiting(message) {
  view.showNotice(`Waiting for the server: ${message}. Your message will be sent when it is ready.`);
  checkServer();
}
