// What the page knows of the server: whether it is ready, its models, and the API key.

import * as server from "../api/server.js";
import { recall, remember } from "../data/preferences.js";
import { showModelList, showModels } from "../view/models.js";
import { showStatus } from "../view/notices.js";
import { askKey, key } from "../view/key.js";

const LAST_MODEL = "model";
const UNKNOWN = {
  id: "", context: null, loaded: true, chats: true, images: true, sounds: Infinity, failure: "", sampling: {},
};
const POLL_INTERVAL = 1000; // milliseconds, while a model is loaded or unloaded

const state = { models: [], listener: "", triedKey: null, changed: () => {} };

/** Call `changed()` when the models become known, or another one is chosen. */
export const onModels = (changed) => (state.changed = changed);

/** Check the server's state, and read its models, which can change. */
export async function checkServer() {
  const { state: status, message } = await server.readiness(key());
  showStatus(status, message);
  if (status !== "unreachable") await loadModels();
}

/** The model of a conversation, as api/server.js describes it; the model that was chosen last if
 * the conversation has none, or the server no longer has it. */
export function modelOf({ model }) {
  const found = [model, recall(LAST_MODEL)].map((id) => state.models.find((one) => one.id === id));
  return found.find(Boolean) ?? state.models[0] ?? UNKNOWN;
}

/** The name of a model for a request: "" if the server has only one. */
export const requestName = ({ id }) => (state.models.length > 1 ? id : "");

/** Show the models, with the model of a conversation selected. */
export function showModel(conversation, choose) {
  showModels(state.models, modelOf(conversation).id, (id) => {
    remember(LAST_MODEL, id);
    choose(id);
    state.changed();
  });
}

/** Ask the user for an API key. Resolves to whether one was entered. */
export async function requestKey() {
  const entered = await askKey();
  if (entered) loadModels();
  return entered;
}

/** The number of tokens of an attached file for a conversation's model, or null. */
export const countTokens = (file, conversation) =>
  server.countTokens(file, requestName(modelOf(conversation)), key());

/** Whether a model of the server transcribes speech. */
export const transcribes = () => Boolean(state.listener);

/** The text of the speech in a file. Throws ApiError. */
export const transcribe = (file) => server.transcribe(file, state.listener, key());

async function loadModels() {
  try {
    const { writers, listener } = await server.models(key());
    Object.assign(state, { models: writers, listener });
    showModelList(state.models, { load: (id) => change(server.load, id), unload: (id) => change(server.unload, id) });
    state.changed();
    await checkKey();
  } catch (error) {
    if (error.status === 401) await requestKey();
  }
}

// Load or unload a model, and show how far it is. The list of models says why a load failed.
async function change(request, id) {
  const timer = setInterval(loadModels, POLL_INTERVAL);
  try {
    await request(id, key());
  } catch (error) {
    if (error.status === 401) await requestKey();
  }
  clearInterval(timer);
  await loadModels();
}

// The list of models is open to all. Ask for a key that is missing or wrong, once.
async function checkKey() {
  if (state.triedKey === key() || !state.models.length) return;
  state.triedKey = key();
  await server.tryKey(state.models[0].id, key());
}
