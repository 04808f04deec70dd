// What the page knows of the server: whether it is ready, its models, and the API key.

import * as server from "../api/server.js";
import { recall, remember } from "../data/preferences.js";
import { showModels } from "../view/models.js";
import { showStatus } from "../view/notices.js";
import { askKey, key } from "../view/key.js";

const LAST_MODEL = "model";

const state = { models: [], templates: new Map(), changed: () => {} };

/** Call `changed()` when the models become known, or another one is chosen. */
export const onModels = (changed) => (state.changed = changed);

/** Check the server's state. A server that is ready again may serve other models. */
export async function checkServer() {
  const { state: status, message } = await server.readiness(key());
  const before = showStatus(status, message);
  if (before !== "ready") state.templates.clear(); // it may serve other models
  if (status === "ready" && (before !== "ready" || state.models.length > 1)) await loadModels();
}

/** The model of a conversation: {id, context, chats}; that of the latest choice if it has none or
 * its model is gone. `chats` is whether the model has a chat template, as far as is known. */
export function modelOf({ model }) {
  const found = [model, recall(LAST_MODEL)].map((id) => state.models.find((one) => one.id === id));
  const { id, context } = found.find(Boolean) ?? state.models[0] ?? { id: "", context: null };
  return { id, context, chats: state.templates.get(id) ?? true };
}

/** Whether the server says if a model has a chat template. */
export const isKnown = ({ id }) => state.templates.has(id);

/** The name of a model for a request: "" if the server has only one. */
export const requestName = ({ id }) => (state.models.length > 1 ? id : "");

/** Show the models, with that of a conversation selected. */
export function showModel(conversation, choose) {
  showModels(state.models, modelOf(conversation).id, (id) => {
    remember(LAST_MODEL, id);
    choose(id);
    learn(id).catch(askAgain).then(state.changed);
  });
}

/** Note that the chat route rejects a model. */
export function learnThatItDoesNotChat(id) {
  state.templates.set(id, false);
  state.changed();
}


/** Ask the user for an API key. Resolves to whether one was entered. */
export async function requestKey() {
  const entered = await askKey();
  if (entered) loadModels();
  return entered;
}

/** The number of tokens of a text for a conversation's model, or null. */
export const countTokens = (text, conversation) =>
  server.countTokens(text, requestName(modelOf(conversation)), key());

async function loadModels() {
  try {
    state.models = await server.models(key());
    await learn(modelOf({ model: "" }).id);
  } catch (error) {
    await askAgain(error);
  }
  state.changed();
}

// Find out whether a model has a chat template. The question would load a model that is not loaded.
async function learn(id) {
  const loaded = state.models.find((one) => one.id === id)?.loaded;
  if (state.templates.has(id) || !loaded) return;
  const known = await server.hasChatTemplate(requestName({ id }), key());
  if (known !== null) state.templates.set(id, known);
}

async function askAgain({ status }) {
  if (status === 401) await requestKey();
}
