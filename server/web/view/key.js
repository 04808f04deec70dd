// The API key of this tab, and the dialog that asks for it.

import { phrase } from "../strings/phrase.js";
import { byId } from "./dom.js";

const KEY = "hearth.key";

export const key = () => sessionStorage.getItem(KEY) ?? "";

export const deleteKey = () => sessionStorage.removeItem(KEY);

/** Ask for an API key. Resolves to whether one was entered. */
export function askKey() {
  const dialog = byId("key");
  const hadKey = key();
  byId("key-hint").textContent = hadKey ? phrase("key.rejected") : phrase("key.hint");
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
