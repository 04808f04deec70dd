// Conversations in memory: the one that is shown, and those with a running answer.
//
// A thread is {conversation, messages, running, notice, deleted, unsaved}: `messages` is a Map from
// id to message, `running` is null or the AbortController of its answer, `notice` is null or the
// arguments of showNotice, `unsaved` is a Set of ids of messages. Messages are immutable; a change
// puts a new object into the Map.

import * as database from "../data/database.js";
import { newConversation, newId } from "../data/records.js";

const WRITER = "hearth.tab";
const STALE = 5000; // milliseconds after which an unfinished answer of another tab is abandoned

/** The id of this tab, which survives a reload. */
export const TAB = (sessionStorage[WRITER] ??= newId());

const running = new Map(); // from the id of a conversation to its thread

/** A thread that is not stored yet. */
export const newThread = (settings, model) => thread(newConversation(settings, model), new Map());

/** The thread of a stored conversation, or null. */
export async function openThread(id) {
  if (running.has(id)) return running.get(id);
  const stored = await database.load(id);
  return stored && thread(stored.conversation, stored.messages);
}

/** The ids of conversations with a running answer in this tab. */
export const runningIds = () => new Set(running.keys());

/** Begin an answer; return its AbortController. */
export function begin(of) {
  of.running = new AbortController();
  running.set(of.conversation.id, of);
  return of.running;
}

/** End the answer. */
export function end(of) {
  of.running = null;
  running.delete(of.conversation.id);
}

/** Stop the answer of a conversation, if one is running. */
export const stop = (id) => running.get(id)?.running.abort();

/** Stop all answers. */
export const stopAll = () => [...running.keys()].forEach(stop);

/** Whether another tab is writing this message. */
export const isWrittenElsewhere = ({ finish, writer, saved }) =>
  finish === "running" && writer !== TAB && Date.now() - saved < STALE;

/** Store a thread's conversation with these changes, and messages of it. Return false if the storage
 * is full; the messages are then stored with later ones. */
export async function store(of, changes, messages = []) {
  of.conversation = { ...of.conversation, ...changes };
  for (const message of messages) {
    of.messages.set(message.id, message);
    of.unsaved.add(message.id);
  }
  if (of.deleted) return true;
  const ids = [...of.unsaved];
  of.unsaved.clear();
  const fits = await database.save(of.conversation, ids.map((id) => of.messages.get(id)).filter(Boolean));
  if (!fits) ids.forEach((id) => of.unsaved.add(id));
  return fits;
}

const thread = (conversation, messages) => ({
  conversation,
  messages,
  running: null,
  notice: null,
  deleted: false,
  unsaved: new Set(),
});
