// Runs the features of a client of npm, as checking.py does for Python.

import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

// Packages are imported from the current folder, not from this file's.
const from = createRequire(join(process.cwd(), "package.json"));
export const load = (name) => import(pathToFileURL(from.resolve(name)).href);

export const [base, model] = process.argv.slice(2);

// Prints `[feature, problem]` in JSON. What `run` returns is the problem.
export async function check(name, run) {
  let problem;
  try {
    problem = await run();
  } catch (error) {
    problem = `${error.name}: ${error.message}`.replace(/\s+/g, " ").slice(0, 400);
  }
  console.log(JSON.stringify([name, problem ?? ""]));
}

// A prompt after which the scripted model calls get_weather, and what the call returns.
export const prompt = 'Call tools.\nsay: {"name": "get_weather", "arguments": {"city": "Paris"}}';
export const getWeather = ({ city }) => `Sunny in ${city}.`;
export const weather = getWeather({ city: "Paris" });

// The problem of an answer that must contain a text.
export const lacks = (answer, text) => (answer?.includes(text) ? "" : `${JSON.stringify(answer)}: no ${text}`);

export async function joined(parts, textOf) {
  let text = "";
  for await (const part of parts) text += textOf(part) ?? "";
  return text;
}
