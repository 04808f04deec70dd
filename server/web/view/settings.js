// The dialog with the settings of a conversation, and the settings of new ones.

import { forget, recall, remember } from "../data/preferences.js";
import { toolsOf } from "../data/prompt.js";
import { validSettings } from "../data/records.js";
import { language, phrase } from "../strings/phrase.js";
import { byId, make } from "./dom.js";
import { showPreset, startPresets } from "./presets.js";

const DEFAULTS = "settings";
const LANGUAGE = "language"; // first_paint.js reads it
const REOPENED = "hearth.reopened"; // in the storage of the tab: the part of the settings to open after a reload

const state = { settings: defaults(), changed: () => {} };

/** The settings of a new conversation. */
export function defaults() {
  try {
    return validSettings(JSON.parse(recall(DEFAULTS)));
  } catch {
    return validSettings(null);
  }
}

/** Forget the settings of new conversations. */
export const deleteDefaults = () => forget(DEFAULTS);

/** Bind the dialog. `changed(settings)` is called when the user changes a valid field. */
export function startSettings(changed) {
  const form = byId("settings-form");
  showModelDefaults({});
  state.changed = changed;
  form.oninput = () => use(read(form));
  byId("reset").onclick = () => {
    use({ ...state.settings, sampling: {} });
    fill(form);
  };
  byId("as-default").onclick = () => {
    const fits = remember(DEFAULTS, JSON.stringify(state.settings));
    byId("as-default-done").textContent = fits ? phrase("settings.as_default_done") : phrase("settings.no_space");
  };
  startPresets((chosen) => {
    use({ ...state.settings, sampling: chosen(state.settings.sampling) });
    fill(form);
  });
  startLanguages();
  byId("open-settings").onclick = () => openSettings();
  byId("settings").onclick = ({ target, currentTarget }) => {
    if (target === currentTarget) target.close(); // a click outside of the dialog
  };
}

/** Show the settings of a conversation. */
export function showSettings(settings) {
  if (settings === state.settings) return;
  state.settings = settings;
  fill(byId("settings-form"));
}

/** Show what a model samples with where the settings name no number: `sampling`, or the API's defaults. */
export function showModelDefaults(sampling) {
  for (const field of document.querySelectorAll("[data-default]")) {
    field.placeholder = Number(sampling[field.name] ?? field.dataset.default).toLocaleString(language);
  }
}

/** Open the settings, scrolled to the element that the selector `part` names, if any. */
export function openSettings(part = null) {
  byId("as-default-done").textContent = "";
  byId("settings").showModal();
  byId("settings").scrollTop = 0;
  if (part) byId("settings").querySelector(part).scrollIntoView();
}

/** Open the settings at a part when the page is loaded again in this tab. */
export const keepSettings = (part) => sessionStorage.setItem(REOPENED, part);

/** Load the page again, and open the settings at a part. */
export function reloadSettings(part) {
  keepSettings(part);
  location.reload();
}

/** Open the settings if the page was loaded again for that. */
export function reopenSettings() {
  const part = sessionStorage.getItem(REOPENED);
  sessionStorage.removeItem(REOPENED);
  if (part) openSettings(part);
}

/** Enable the fields that need a chat template. */
export function allowSystem(allowed) {
  const { system, tools } = byId("settings-form").elements;
  system.disabled = tools.disabled = !allowed;
  byId("system-hint").hidden = allowed;
}

// The languages that index.html names, each in its own words.
function startLanguages() {
  const select = byId("language");
  for (const tag of document.documentElement.dataset.languages.split(" ")) {
    const name = new Intl.DisplayNames(tag, { type: "language" }).of(tag);
    const title = name[0].toLocaleUpperCase(tag) + name.slice(1);
    select.append(make("option", { value: tag, lang: tag }, title));
  }
  select.value = recall(LANGUAGE) ?? "";
  select.onchange = () => {
    if (select.value) remember(LANGUAGE, select.value);
    else forget(LANGUAGE);
    reloadSettings(".language");
  };
}

function use(settings) {
  state.settings = settings;
  showPreset(settings.sampling);
  state.changed(settings);
}

// The settings in the form, without invalid values.
function read(form) {
  const { system, tools, probabilities } = form.elements;
  tools.setCustomValidity(isTools(tools.value) ? "" : phrase("settings.not_tools"));
  const numbers = [...form.querySelectorAll("[type=number]")].filter(
    (field) => field.value !== "" && field.validity.valid,
  );
  return {
    system: system.value.trim(),
    tools: tools.validity.valid ? tools.value : "",
    probabilities: probabilities.checked,
    sampling: Object.fromEntries(numbers.map((field) => [field.name, field.valueAsNumber])),
  };
}

function isTools(tools) {
  try {
    return toolsOf({ tools }).every(({ function: tool }) => typeof tool?.name === "string");
  } catch {
    return false;
  }
}

function fill(form) {
  const { system, sampling, tools, probabilities } = state.settings;
  for (const field of form.querySelectorAll("[type=number]")) field.value = sampling[field.name] ?? "";
  showPreset(sampling);
  form.elements.system.value = system;
  form.elements.tools.value = tools;
  form.elements.tools.setCustomValidity("");
  form.elements.probabilities.checked = probabilities;
}
