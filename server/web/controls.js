// The user's settings: system prompt, sampling, dark mode, API key; their dialogs and storage.
// It knows no conversation and no HTTP.

import { byId } from "./dom.js";

const SETTINGS = "hearth.settings";
const THEME = "hearth.theme";
const KEY = "hearth.key";

/** {system, sampling}: `sampling` has the fields that are filled in, as numbers. */
export function settings() {
  const { system = "", ...sampling } = stored();
  return { system: system.trim(), sampling };
}

/** Fill the form with the stored settings, and store what is entered. Invalid values are not
 * stored. */
export function startSettings() {
  const form = byId("settings-form");
  const fill = () => {
    const values = stored();
    for (const field of fields(form)) field.value = values[field.name] ?? "";
  };
  form.oninput = () => {
    const valid = fields(form).filter((field) => field.value !== "" && field.validity.valid);
    const values = valid.map((field) => [field.name, field.valueAsNumber ?? field.value]);
    localStorage.setItem(SETTINGS, JSON.stringify(Object.fromEntries(values)));
  };
  byId("defaults").onclick = () => {
    for (const field of fields(form)) if (field.type === "number") field.value = "";
    form.oninput();
  };
  byId("open-settings").onclick = () => openSettings();
  byId("settings").onclick = ({ target, currentTarget }) => {
    if (target === currentTarget) target.close(); // a click outside of the dialog
  };
  fill();
}

/** Open the settings, scrolled to the element that the selector `part` names, if any. */
export function openSettings(part = null) {
  byId("settings").showModal();
  byId("settings").scrollTop = 0;
  if (part) byId("settings").querySelector(part).scrollIntoView();
}

/** Enable the system prompt, which needs a chat template. */
export function allowSystem(allowed) {
  byId("settings-form").elements.system.disabled = !allowed;
  byId("system-hint").hidden = allowed;
}

/** Bind the button for dark mode. The default is the system's setting. */
export function startTheme() {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const show = () => (byId("theme").ariaPressed = String(dark()));
  byId("theme").onclick = () => {
    root.dataset.theme = dark() ? "light" : "dark";
    localStorage.setItem(THEME, root.dataset.theme);
    show();
  };
  system.onchange = show;
  show();
}

export const key = () => sessionStorage.getItem(KEY) ?? "";

/** Ask for an API key. Resolves to whether one was entered. */
export function askKey() {
  const dialog = byId("key");
  const hadKey = key();
  byId("key-hint").textContent = hadKey
    ? "The server rejected this key."
    : "The key is stored until this tab is closed, and sent only to this server.";
  byId("key-input").value = "";
  dialog.returnValue = "";
  byId("key-cancel").onclick = () => dialog.close();
  if (!dialog.open) dialog.showModal();
  byId("key-input").focus();
  return new Promise((resolve) => {
    dialog.onclose = () => {
      const entered = dialog.returnValue === "use";
      if (entered) sessionStorage.setItem(KEY, byId("key-input").value.trim());
      resolve(entered);
    };
  });
}

/** Delete the stored settings, theme and key. */
export function deleteSettings() {
  for (const name of [SETTINGS, THEME]) localStorage.removeItem(name);
  sessionStorage.removeItem(KEY);
  document.documentElement.dataset.theme = "";
  byId("settings-form").reset();
  startTheme();
}

function stored() {
  try {
    return JSON.parse(localStorage.getItem(SETTINGS)) ?? {};
  } catch {
    return {};
  }
}

const fields = (form) => [...form.elements].filter((field) => field.name);
