// Two turns with tools by the AI SDK's provider for OpenAI with its defaults: /v1/responses, stored
// answers, and references to stored items.
//
//     npm install ai @ai-sdk/openai zod
//     node tools/clients/ai_sdk.mjs http://127.0.0.1:8080

import assert from "node:assert";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

// The packages are those of the current folder, not of this file's.
const from = createRequire(join(process.cwd(), "package.json"));
const load = (name) => import(pathToFileURL(from.resolve(name)).href);
const { generateText, stepCountIs, streamText, tool } = await load("ai");
const { createOpenAI } = await load("@ai-sdk/openai");
const { z } = await load("zod");

const [base = "http://127.0.0.1:8080"] = process.argv.slice(2);
const sent = [];
const openai = createOpenAI({
  baseURL: `${base}/v1`,
  apiKey: "none",
  fetch: (url, options) => {
    sent.push(JSON.parse(options.body));
    return fetch(url, options);
  },
});
const tools = {
  weather: tool({
    description: "Look up the weather in a city.",
    inputSchema: z.object({ city: z.enum(["Paris", "Rome"]) }),
    execute: async ({ city }) => `Sunny in ${city}.`,
  }),
};

// The first step of a turn calls the tool, and the second one answers.
const fields = {
  model: openai("gpt-4.1"),
  tools,
  maxOutputTokens: 200,
  maxRetries: 0,
  stopWhen: stepCountIs(2),
  prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber ? "none" : "required" }),
};

for (const streamed of [false, true]) {
  const messages = [];
  for (const content of ["What is the weather in Paris?", "And tomorrow?"]) {
    messages.push({ role: "user", content });
    const result = streamed
      ? streamText({ ...fields, messages, onError: ({ error }) => { throw error; } })
      : await generateText({ ...fields, messages });
    const text = await result.text;
    const steps = await result.steps;
    assert(steps[0].toolCalls.length, "no call");
    assert(text, "no answer");
    messages.push(...(await result.response).messages);
    console.log(`${streamed ? "stream" : "whole"}: ${content} -> ${text.length} characters`);
  }
}
const references = sent.flatMap(({ input }) => input).filter(({ type }) => type === "item_reference");
assert(references.length, "no item was referred to");
console.log(`${sent.length} requests, ${references.length} references to items`);
