// The AI SDK: its provider for OpenAI with its defaults, which are /v1/responses, stored answers and
// references to stored items; and its providers for OpenAI-compatible servers, Anthropic, Google and
// Ollama.

import assert from "node:assert";
import { base, check, load, model } from "../checking.mjs";

const { embedMany, generateText, Output, stepCountIs, streamText, tool } = await load("ai");
const { createOpenAI } = await load("@ai-sdk/openai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const { createAnthropic } = await load("@ai-sdk/anthropic");
const { createGoogleGenerativeAI } = await load("@ai-sdk/google");
const { createOllama } = await load("ollama-ai-provider-v2");
const { z } = await load("zod");

const sent = [];
const openai = createOpenAI({
  baseURL: `${base}/v1`,
  apiKey: "none",
  fetch: (url, options) => {
    sent.push(JSON.parse(options.body));
    return fetch(url, options);
  },
});
const compatible = createOpenAICompatible({
  name: "hearth", baseURL: `${base}/v1`, supportsStructuredOutputs: true,
});
const anthropic = createAnthropic({ baseURL: `${base}/v1`, apiKey: "none" });
const google = createGoogleGenerativeAI({ baseURL: `${base}/v1beta`, apiKey: "none" });
const ollama = createOllama({ baseURL: `${base}/api` });

// Ollama's API has no toolChoice.
const providers = [
  ["", openai(model), openai.embeddingModel?.(model) ?? openai.textEmbeddingModel(model), true],
  [" (compatible)", compatible(model), compatible.textEmbeddingModel(model), true],
  [" (Anthropic)", anthropic(model), null, true],
  [" (Gemini)", google(model), google.textEmbeddingModel(model), true],
  [" (Ollama)", ollama(model), ollama.textEmbeddingModel(model), false],
];
// A small model may repeat a call until its answer is too long. Gemini's API cannot forbid that: with
// this seed the model does not.
const limits = { maxOutputTokens: 200, maxRetries: 0, seed: 1 };
const providerOptions = {
  openai: { parallelToolCalls: false },
  hearth: { parallel_tool_calls: false },
  anthropic: { disableParallelToolUse: true },
};
const city = z.object({ city: z.string().max(20) });
const tools = {
  weather: tool({
    description: "Look up the weather in a city.",
    inputSchema: z.object({ city: z.enum(["Paris", "Rome"]) }),
    execute: async ({ city }) => `Sunny in ${city}.`,
  }),
};

function ask(fields, streamed) {
  const onError = ({ error }) => { throw error; };
  return streamed ? streamText({ ...limits, ...fields, onError }) : generateText({ ...limits, ...fields });
}

// Two turns: the first step of each calls the tool, and the second one answers.
async function twoTurns(model, streamed, mustCall) {
  const prepareStep = ({ stepNumber }) => ({ toolChoice: stepNumber ? "none" : "required" });
  const messages = [];
  for (const content of ["What is the weather in Paris?", "And tomorrow?"]) {
    messages.push({ role: "user", content });
    const stopWhen = stepCountIs(2);
    const result = await ask(
      { model, tools, messages, stopWhen, providerOptions, ...(mustCall ? { prepareStep } : {}) }, streamed,
    );
    const text = await result.text;
    const steps = await result.steps;
    if (!steps[0].toolCalls.length && !mustCall) return "no call";
    assert(steps[0].toolCalls.length, "no call");
    assert(text || !mustCall, "no answer");
    messages.push(...(await result.response).messages);
  }
  return "";
}

for (const [suffix, model, embedding, mustCall] of providers) {
  const prompt = "Say hello.";
  await check(`chat${suffix}`, async () => {
    assert((await ask({ model, prompt }, false)).text);
  });
  await check(`stream${suffix}`, async () => {
    assert(await (await ask({ model, prompt }, true)).text);
  });
  await check(`tools${suffix}`, () => twoTurns(model, false, mustCall));
  await check(`streamed tools${suffix}`, () => twoTurns(model, true, mustCall));
  await check(`schema${suffix}`, async () => {
    const output = Output.object({ schema: city });
    const result = await generateText({ ...limits, model, prompt, output });
    assert(typeof (result.output ?? result.experimental_output).city === "string");
  });
  if (embedding) {
    await check(`embeddings${suffix}`, async () => {
      assert.equal((await embedMany({ model: embedding, values: ["a", "b"] })).embeddings.length, 2);
    });
  }
}
await check("item references", () => {
  const inputs = sent.flatMap(({ input }) => (Array.isArray(input) ? input : []));
  assert(inputs.some(({ type }) => type === "item_reference"), "no item was referred to");
});
