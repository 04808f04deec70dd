// The list of conversations: search, rename, delete, export, import.

import * as database from "../data/database.js";
import { exported, imported } from "../data/transfer.js";
import { phrase } from "../strings/phrase.js";
import { showList } from "../view/conversation_list.js";
import { byId, make } from "../view/dom.js";
import { showNotice, toast } from "../view/notices.js";
import * as session from "./session.js";
import * as threads from "./threads.js";

const state = { query: "", drawing: null, again: false };

/** Show the stored conversations that match the search. Calls during a drawing are joined. */
export async function refresh() {
  state.again = true;
  state.drawing ??= draw().finally(() => (state.drawing = null));
  return state.drawing;
}

/** Show the conversations with a text in the title or in a message; "" shows all. */
export function search(query) {
  state.query = query.toLowerCase();
  return refresh();
}

/** Delete all conversations. */
export async function removeAll() {
  threads.stopAll();
  await database.removeAll();
  session.startNew();
  refresh();
}

/** Save all conversations as a file. */
export async function exportAll() {
  const list = await database.conversations();
  const messages = Map.groupBy(await database.messagesOf(), ({ conversation }) => conversation);
  download("hearth-conversations.json", list.map((conversation) => ({ conversation, messages: messages.get(conversation.id) ?? [] })));
}

/** Add the conversations of an exported file. */
export async function importFile(file) {
  try {
    const list = imported(await file.text());
    for (const { conversation, messages } of list) {
      if (!(await database.save(conversation, messages))) throw new Error(phrase("list.no_space"));
    }
    toast(phrase("list.imported", { count: list.length }));
    if (list.length) await session.open(list[0].conversation.id);
  } catch (error) {
    showNotice(phrase("list.import_failed", { file: file.name, reason: error.message }));
  }
  refresh();
}

const actions = {
  open: (id) => session.open(id),
  async rename({ id }, title) {
    if (id === session.current().id) session.change({ title });
    else await change(id, { title });
    await refresh();
    byId("conversations").querySelector(`[data-id="${id}"] .title`)?.focus();
  },
  async exportOne(conversation) {
    const messages = await database.messagesOf(conversation.id);
    download(`${conversation.title.replaceAll(/[^\p{L}\p{N} _-]/gu, "").trim() || phrase("list.file")}.json`, [{ conversation, messages }]);
  },
  async remove({ id, title }) {
    const thread = await threads.openThread(id);
    if (!thread) return;
    threads.stop(id);
    thread.deleted = true;
    await database.remove(id);
    if (id === session.current().id) session.startNew();
    refresh();
    toast(phrase("list.deleted", { title }), async () => {
      thread.deleted = false;
      await database.save(thread.conversation, [...thread.messages.values()]);
      await session.open(id);
      refresh();
    });
  },
};

async function change(id, changes) {
  const thread = await threads.openThread(id);
  if (thread) await threads.store(thread, changes);
}

async function draw() {
  while (state.again) {
    state.again = false;
    const all = await database.conversations();
    const found = state.query ? await matching(all) : all;
    const current = session.current().id;
    showList(found, { current, running: threads.runningIds(), searched: Boolean(state.query), actions });
  }
}

async function matching(conversations) {
  const has = (text) => text.toLowerCase().includes(state.query);
  const messages = await database.messagesOf();
  const ids = new Set(messages.filter(({ content }) => has(content)).map(({ conversation }) => conversation));
  return conversations.filter(({ id, title }) => has(title) || ids.has(id));
}

function download(name, list) {
  const url = URL.createObjectURL(new Blob([exported(list)], { type: "application/json" }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
