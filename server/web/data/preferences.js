// Small settings of this browser, as texts. They are lost if the storage is full or not allowed.

const PREFIX = "hearth.";

/** The text that is stored under a name, or null. */
export const recall = (name) => localStorage.getItem(PREFIX + name);

/** Store a text. Return false if it does not fit. */
export function remember(name, text) {
  try {
    localStorage.setItem(PREFIX + name, text);
    return true;
  } catch {
    return false;
  }
}

/** Delete what is stored under a name. */
export const forget = (name) => localStorage.removeItem(PREFIX + name);
