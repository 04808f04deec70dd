// What can be set: system prompt, sampling, dark mode, API key. And where each is kept.
// It knows the two dialogs and the storage; it knows no conversation and no HTTP.

import { byId } from "./dom.js";

const SETTINGS = "hearth.settings";
const THEME = "hearth.theme";
const KEY = "hearth.key";

/** {system, sampling}: sampling has the fields that are filled in, as numbers. */
export function settings() {
  const { system = "", ...sampling } = kept();
  return { system: system.trim(), sampling };
}

/** Show what is kept in the form, and keep what is put in; a value out of range is not kept. */
export function startSettings() {
  const form = byId("settings-form");
  const fill = () => {
    const values = kept();
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
    if (target === currentTarget) target.close(); // the page behind it
  };
  fill();
}

/** Open the settings; with `part`, a selector, showing that part of them. */
export function openSettings(part = null) {
  byId("settings").showModal();
  byId("settings").scrollTop = 0;
  if (part) byId("settings").querySelector(part).scrollIntoView();
}

/** A model without a chat template takes no system prompt. */
export function allowSystem(allowed) {
  byId("settings-form").elements.system.disabled = !allowed;
  byId("system-hint").hidden = allowed;
}

/** The button between dark and light, which begins as the system has it. */
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

/** Ask for a key; resolves to whether one was given. */
export function askKey() {
  const dialog = byId("key");
  const had = key();
  byId("key-hint").textContent = had
    ? "The server does not take the key that was given."
    : "It is kept until this tab is closed, and sent to this server only.";
  byId("key-input").value = "";
  dialog.returnValue = "";
  byId("key-cancel").onclick = () => dialog.close();
  if (!dialog.open) dialog.showModal();
  byId("key-input").focus();
  return new Promise((resolve) => {
    dialog.onclose = () => {
      const given = dialog.returnValue === "use";
      if (given) sessionStorage.setItem(KEY, byId("key-input").value.trim());
      resolve(given);
    };
  });
}

/** Forget settings, theme and key. */
export function forgetSettings() {
  for (const place of [SETTINGS, THEME]) localStorage.removeItem(place);
  sessionStorage.removeItem(KEY);
  document.documentElement.dataset.theme = "";
  byId("settings-form").reset();
  startTheme();
}

function kept() {
  try {
    return JSON.parse(localStorage.getItem(SETTINGS)) ?? {};
  } catch {
    return {};
  }
}

const fields = (form) => [...form.elements].filter((field) => field.name);
