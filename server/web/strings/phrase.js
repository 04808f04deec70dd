// The texts of the page in the user's language, from the file of that language in this folder: a text for
// each key, or its plural forms. first_paint.js chooses the language.

/** The language of the page, as a BCP 47 tag. */
export const language = document.documentElement.lang;

const response = await fetch(new URL(`${language}.json`, import.meta.url));
const texts = await response.json();
const plurals = new Intl.PluralRules(language);
const numbers = new Intl.NumberFormat(language);
const lists = new Intl.ListFormat(language);

/** The text of a key. {name} in it stands for a value; numbers and lists are written as the language
 * writes them. The value `count` chooses among plural forms. */
export function phrase(key, values = {}) {
  const text = texts[key];
  const form = typeof text === "string" ? text : text[plurals.select(values.count)];
  return form.replaceAll(/\{(\w+)\}/g, (_, name) => shown(values[name]));
}

/** A number with a fixed number of decimal digits. */
export const decimal = (value, digits) =>
  value.toLocaleString(language, { minimumFractionDigits: digits, maximumFractionDigits: digits });

function shown(value) {
  if (typeof value === "number") return numbers.format(value);
  return Array.isArray(value) ? lists.format(value) : value;
}
