// The conversation that is shown: open, send, stop, regenerate, edit, continue, branch.
// It connects storage, API and view. main.js binds buttons and keys to it.

import * as database from "../data/database.js";
import { newMessage, titleOf } from "../data/records.js";
import { renamed } from "../data/transfer.js";
import { branchFrom, leafBelow, pathTo, siblings } from "../data/tree.js";
import { phrase } from "../strings/phrase.js";
import { byId } from "../view/dom.js";
import { allowMedia, measureDraft } from "../view/composer.js";
import { key } from "../view/key.js";
import { editMessage, isEditing, showMessages, updateAnswer } from "../view/messages.js";
import { showMeter } from "../view/meter.js";
import * as notices from "../view/notices.js";
import * as settings from "../view/settings.js";
import { automatic, resultsOf } from "./calls.js";
import { excess, impairment } from "./draft.js";
import { problemOf, tooLong } from "./problems.js";
import { run } from "./run.js";
import * as server from "./server_state.js";
import * as threads from "./threads.js";
import { hostOf, offeredTools, settled } from "./tool_servers.js";

const FULL = phrase("notice.full");
const RECHECK = 6000; // milliseconds until another tab's answer may count as abandoned
const UNFINISHED = new Set(["length", "timeout", "stopped", "error", "running"]);

const state = { thread: threads.newThread(settings.defaults()), changed: () => {}, attached: 0 };

/** Call `changed()` when the list of conversations may have changed. */
export const onList = (changed) => (state.changed = changed);

/** The conversation that is shown. */
export const current = () => state.thread.conversation;

/** Show the conversation of an id, or an empty one. */
export async function open(id) {
  const thread = (id && (await threads.openThread(id))) || threads.newThread(settings.defaults());
  show(thread);
  if (thread.messages.size && !thread.running) showUnfinished(thread);
}

/** Show an empty conversation. */
export const startNew = () => show(threads.newThread(settings.defaults()));

/** Send a message. Return false if it is empty or an answer is running. */
export function send(content, attachments = []) {
  const { thread } = state;
  if (thread.running || (!content && !attachments.length)) return false;
  ask(thread, pathTo(thread.messages, current().leaf).at(-1)?.id ?? null, { content, attachments });
  return true;
}

/** The reason why a message cannot be sent in the conversation that is shown, or "". */
export async function refusal(content, attachments) {
  const reason = impairment(state.thread, attachments);
  if (reason) return reason;
  const tokens = await excess(state.thread, content, attachments);
  return tokens === 0 ? "" : tooLong(tokens);
}

/** Stop the running answer. Return false if there is none. */
export function stop() {
  state.thread.running?.abort();
  return state.thread.running !== null;
}

/** Edit the user's last message in place. Return false if there is none. */
export function editLast() {
  const path = pathTo(state.thread.messages, current().leaf);
  const last = path.findLast(({ role }) => role === "user");
  if (!last || state.thread.running) return false;
  actions.edit(last);
  return true;
}

/** Store changed settings or another model of the conversation that is shown. */
export function change(changes) {
  const { thread } = state;
  if (thread.messages.size) store(thread, changes);
  else thread.conversation = { ...thread.conversation, ...changes };
  server.showModel(current(), (model) => change({ model }));
}

/** Draw the conversation again, after the models became known. */
export function refresh() {
  const { chats, context, images, sounds, sampling } = server.modelOf(current());
  allowMedia({ images, sounds, transcribes: server.transcribes() });
  notices.showPurpose(chats, send);
  settings.allowSystem(chats);
  settings.showModelDefaults(sampling);
  server.showModel(current(), (model) => change({ model }));
  showMeter({ context: latestFigures().context, attached: state.attached, limit: context });
  measureDraft();
}

/** Draw the calls of the last answer again, after the tools of MCP servers became known. */
export function refreshCalls() {
  if (!state.thread.running && !isEditing()) draw();
  measureDraft();
}

/** Show how many tokens the attached files have. */
export function showAttached(tokens) {
  state.attached = tokens;
  refresh();
}

/** Take over what another tab has changed. */
export async function followOtherTab(id) {
  state.changed();
  const { thread } = state;
  const isShown = id === null || id === current().id;
  if (!isShown || thread.running || isEditing() || !thread.messages.size) return;
  const stored = await threads.openThread(current().id);
  if (state.thread !== thread || thread.running) return;
  if (stored) await open(current().id);
  else startNew();
}

// What can be done with a message on the page.
const actions = {
  edit(message) {
    const { thread } = state;
    if (thread.running) return;
    editMessage(message, {
      send: (content) => (message.role === "user" ? ask : rewrite)(thread, message.parent, { ...message, content }),
      cancel: () => {
        draw();
        byId("input").focus();
      },
    });
  },
  regenerate: ({ parent }) => generate(state.thread, { parent }),
  resume: (message) => generate(state.thread, { base: message, parent: message.parent }),
  choose(message) {
    if (state.thread.running) return;
    store(state.thread, { leaf: leafBelow(state.thread.messages, message.id) });
    show(state.thread);
  },
  async fork(message) {
    const copy = renamed({ ...current(), leaf: message.id }, pathTo(state.thread.messages, message.id));
    const now = Date.now();
    const conversation = { ...copy.conversation, created: now, updated: now };
    if (!(await database.save(conversation, copy.messages))) notices.showNotice(FULL);
    await open(conversation.id);
    notices.toast(phrase("list.copied"));
    state.changed();
  },
  remove,
  hostOf,
  answerCalls: (message, decisions) => answerCalls(state.thread, message, decisions),
};

// Delete a message and all that follow it, and show the branch beside it.
async function remove(message) {
  const { thread } = state;
  if (thread.running) return;
  const { id: conversation, leaf, title } = thread.conversation;
  const removed = branchFrom(thread.messages, message.id);
  const beside = siblings(thread.messages, message).findLast(({ id }) => id !== message.id);
  for (const { id } of removed) thread.messages.delete(id);
  thread.notice = null;
  await database.removeMessages(removed);
  const end = beside ? leafBelow(thread.messages, beside.id) : message.parent;
  if (thread.messages.size) store(thread, { leaf: end });
  else {
    thread.conversation = { ...thread.conversation, leaf: null, title: "" };
    await database.remove(conversation);
  }
  show(thread);
  state.changed();
  if (thread.messages.size) showUnfinished(thread);
  notices.toast(phrase("message.deleted", { count: removed.length }), () => {
    store(thread, thread.running ? {} : { leaf, title }, removed);
    show(thread);
  });
}

// Add the results of an answer's calls, in the order of the calls, and generate the next answer.
async function answerCalls(thread, message, decisions) {
  if (thread.running) return;
  const ending = resultsOf(thread, message, decisions);
  if (state.thread === thread) show(thread);
  const results = await ending;
  if (!results || thread.deleted) {
    if (state.thread === thread) show(thread);
    return;
  }
  let parent = message.id;
  const { id: conversation } = thread.conversation;
  const added = message.calls.map(({ id: call }, at) => {
    const result = newMessage({ conversation, parent, role: "tool", call, ...results[at] });
    parent = result.id;
    return result;
  });
  store(thread, { leaf: parent }, added);
  generate(thread, { parent });
}

// Add a user's message after `parent`, and generate its answer.
function ask(thread, parent, { content, attachments = [] }) {
  const { id, title } = thread.conversation;
  const message = newMessage({ conversation: id, parent, role: "user", content, attachments });
  const changes = { leaf: message.id, updated: message.created, title: title || titleOf(message) };
  store(thread, changes, [message]);
  generate(thread, { parent: message.id });
}

// Add another version of an answer, which the user wrote.
function rewrite(thread, parent, { content, reasoning }) {
  const message = newMessage({
    conversation: thread.conversation.id, parent, role: "assistant", content, reasoning, finish: "edited",
  });
  store(thread, { leaf: message.id, updated: message.created }, [message]);
  show(thread);
}

function store(thread, changes, messages = []) {
  threads.store(thread, changes, messages).then((fits) => {
    if (!fits) report(thread, FULL);
    state.changed();
  });
}

async function generate(thread, { parent, base }) {
  if (thread.running) return;
  thread.notice = null;
  const { leaf } = thread.conversation;
  if (!base) thread.conversation = { ...thread.conversation, leaf: parent };
  const model = server.modelOf(thread.conversation);
  const request = { parent, base, name: model.id, model: server.requestName(model), chats: model.chats, images: model.images };
  const onMessage = (message) => {
    if (state.thread !== thread) return;
    notices.hideNotice();
    updateAnswer(message);
    showMeter({ ...message.figures, limit: model.context, growing: true });
  };
  const onWaiting = async (message) => {
    report(thread, phrase("notice.waiting", { reason: message }));
    await server.checkServer();
    return !server.modelOf(thread.conversation).failure;
  };
  const onFull = () => report(thread, FULL);
  const tools = async () => {
    await settled();
    return offeredTools(thread.conversation.settings);
  };
  const ending = run(thread, request, { key, requestKey: server.requestKey, tools, onWaiting, onMessage, onFull });
  if (state.thread === thread) show(thread);
  state.changed();
  const { message, error, finish } = await ending;
  if (error) await server.checkServer(); // its models may have changed
  else server.checkServer();
  state.changed();
  if (thread.deleted) return;
  if (!message) thread.conversation = { ...thread.conversation, leaf }; // back to the answer before
  if (thread.notice?.text !== FULL) thread.notice = null;
  const now = server.modelOf(thread.conversation);
  if (error && !message && now.id === model.id && now.chats !== model.chats) {
    return void generate(thread, { parent, base });
  }
  if (state.thread === thread) {
    show(thread);
    notices.speak(message?.content || phrase("notice.no_answer"));
  }
  const again = wayOn(thread, message ?? { parent });
  if (error) showError(thread, error, { model, now, again, parent });
  else if (!message) report(thread, finish === "stopped" ? phrase("notice.stopped") : phrase("notice.empty"), again);
  const decisions = error ? null : automatic(thread, message);
  if (decisions) answerCalls(thread, message, decisions);
}

// Say how to go on with a conversation whose last message is not a finished answer.
function showUnfinished(thread) {
  const last = pathTo(thread.messages, thread.conversation.leaf).at(-1);
  if (last.role !== "assistant") {
    const retry = () => generate(thread, { parent: last.id });
    report(thread, phrase("notice.unanswered"), { retry });
  } else if (threads.isWrittenElsewhere(last)) {
    report(thread, phrase("notice.other_tab"));
    setTimeout(() => state.thread === thread && open(thread.conversation.id), RECHECK);
  } else if (last.finish === "running") {
    report(thread, phrase("notice.interrupted"), wayOn(thread, last));
  }
}

// Continue an answer, or answer its parent again if it has no text yet.
function wayOn(thread, message) {
  if (message.content) return { retry: () => actions.resume(message), label: phrase("message.continue") };
  return { retry: () => generate(thread, { parent: message.parent }) };
}

function showError(thread, error, { model, now, again, parent }) {
  const { text, way, seconds } = problemOf(error, { model: model.id, next: now.id, failure: now.failure });
  const asked = thread.messages.get(parent);
  const ways = {
    retry: again,
    edit: asked?.role === "user" ? { retry: () => actions.edit(asked), label: phrase("notice.edit") } : again,
    settings: { retry: () => settings.openSettings(), label: phrase("notice.settings") },
    key: { ...again, label: phrase("notice.key") },
  };
  report(thread, text, { ...ways[way], seconds });
}

// Show a notice with the thread that it is about.
function report(thread, text, options = {}) {
  thread.notice = { text, options };
  if (state.thread === thread) notices.showNotice(text, options);
}

// Show a thread as the current one.
function show(thread) {
  const changed = state.thread !== thread;
  state.thread = thread;
  draw({ atEnd: changed || thread.running !== null });
  notices.showRunning(Boolean(thread.running));
  if (thread.notice) notices.showNotice(thread.notice.text, thread.notice.options);
  else notices.hideNotice();
  settings.showSettings(current().settings);
  refresh();
  if (changed) state.changed();
  const hash = thread.messages.size ? `#${current().id}` : "";
  if (location.hash !== hash) history.pushState(null, "", hash || location.pathname);
}

function draw({ atEnd = false } = {}) {
  const { messages, conversation, running } = state.thread;
  const path = pathTo(messages, conversation.leaf);
  const entries = path.map((message, at) => {
    const versions = siblings(messages, message);
    const last = at === path.length - 1;
    return { message, versions, last, resumable: last && canResume(message) };
  });
  showMessages(entries, { running: Boolean(running), actions, atEnd });
  document.title = conversation.title ? `${conversation.title} · Hearth` : "Hearth";
}

const canResume = (message) =>
  Boolean(message.content) && UNFINISHED.has(message.finish ?? "stopped") && !threads.isWrittenElsewhere(message);

function latestFigures() {
  const path = pathTo(state.thread.messages, current().leaf);
  return path.findLast(({ figures }) => figures)?.figures ?? {};
}
