// The button for dark mode. web/first_paint.js applies the stored choice before the first paint.

import { forget, remember } from "../data/preferences.js";
import { byId } from "./dom.js";

const THEME = "theme";

/** Bind the button. The default is the system's setting. */
export function startTheme() {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const show = () => (byId("theme").ariaPressed = String(dark()));
  byId("theme").onclick = () => {
    root.dataset.theme = dark() ? "light" : "dark";
    remember(THEME, root.dataset.theme);
    show();
  };
  system.onchange = show;
  show();
}

/** Forget the choice. */
export function resetTheme() {
  forget(THEME);
  document.documentElement.dataset.theme = "";
  startTheme();
}
