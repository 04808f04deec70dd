// Conversations in IndexedDB. Without it they are kept in memory, until the page is closed.
// Tabs tell each other what they changed.

import { validConversation, validMessage } from "./records.js";

const NAME = "hearth";
const VERSION = 1;
const STORES = ["conversations", "messages"];

const channel = new BroadcastChannel("hearth.conversations");
const memory = { conversations: new Map(), messages: new Map() };
let opened = null;

/** Whether conversations outlive the page. */
export const isPersistent = async () => (await open()) !== null;

/** Call `changed(id)` when another tab changes or deletes a conversation; null means all. */
export const onChange = (changed) => (channel.onmessage = ({ data }) => changed(data));

/** All conversations, the newest first. */
export async function conversations() {
  const found = (await readAll("conversations")).map(validConversation).filter(Boolean);
  return found.sort((a, b) => b.updated - a.updated);
}

/** A conversation and its messages: {conversation, messages: Map}, or null. */
export async function load(id) {
  const [data, list] = await Promise.all([read("conversations", id), messagesOf(id)]);
  const conversation = validConversation(data);
  return conversation && { conversation, messages: new Map(list.map((message) => [message.id, message])) };
}

/** The messages of a conversation, or of all. */
export async function messagesOf(id = null) {
  return (await readAll("messages", id)).map(validMessage).filter(Boolean);
}

/** Store a conversation and messages of it; without token probabilities if they do not fit
 * otherwise. Return false if the storage is full. */
export async function save(conversation, messages = []) {
  for (const list of [messages, messages.map(({ tokens, ...message }) => message)]) {
    try {
      await write((stores) => {
        stores.conversations.put(conversation);
        for (const message of list) stores.messages.put(message);
      });
      channel.postMessage(conversation.id);
      return true;
    } catch (error) {
      if (error?.name !== "QuotaExceededError") throw error;
    }
  }
  return false;
}

/** Delete messages of a conversation. */
export async function removeMessages(list) {
  await write((stores) => list.forEach(({ id }) => stores.messages.delete(id)));
  channel.postMessage(list[0].conversation);
}

/** Delete a conversation with its messages. */
export async function remove(id) {
  const list = await messagesOf(id);
  await write((stores) => {
    stores.conversations.delete(id);
    for (const message of list) stores.messages.delete(message.id);
  });
  channel.postMessage(id);
}

/** Delete all conversations. */
export async function removeAll() {
  await write((stores) => STORES.forEach((name) => stores[name].clear()));
  channel.postMessage(null);
}

// The database, or null if the browser does not offer one.
function open() {
  return (opened ??= openDatabase()
    .then((database) => {
      if (STORES.every((name) => database.objectStoreNames.contains(name))) return database;
      database.close(); // a database of this name that is not the page's
      return promise(indexedDB.deleteDatabase(NAME)).then(openDatabase);
    })
    .catch(() => null));
}

async function openDatabase() {
  const request = indexedDB.open(NAME, VERSION);
  request.onupgradeneeded = () => {
    request.result.createObjectStore("conversations", { keyPath: "id" });
    request.result.createObjectStore("messages", { keyPath: "id" }).createIndex("conversation", "conversation");
  };
  const database = await promise(request);
  // Another tab deletes the database or needs a newer version.
  database.onversionchange = () => {
    database.close();
    opened = null;
  };
  return database;
}

async function read(store, id) {
  const database = await open();
  if (!database) return memory[store].get(id);
  return promise(database.transaction(store).objectStore(store).get(id));
}

async function readAll(store, conversation = null) {
  const database = await open();
  if (!database) {
    const all = [...memory[store].values()];
    return conversation === null ? all : all.filter((record) => record.conversation === conversation);
  }
  const records = database.transaction(store).objectStore(store);
  return promise(conversation === null ? records.getAll() : records.index("conversation").getAll(conversation));
}

// Run `change({conversations, messages})` in one transaction.
async function write(change) {
  const database = await open();
  if (!database) return change({ conversations: inMemory("conversations"), messages: inMemory("messages") });
  const transaction = database.transaction(STORES, "readwrite");
  const done = new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(transaction.error);
  });
  change(Object.fromEntries(STORES.map((name) => [name, transaction.objectStore(name)])));
  return done;
}

const inMemory = (name) => ({
  put: (record) => memory[name].set(record.id, record),
  delete: (id) => memory[name].delete(id),
  clear: () => memory[name].clear(),
});

function promise(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
