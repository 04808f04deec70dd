// LangChain.js: its packages for OpenAI's, Anthropic's and Ollama's servers. The first contains the
// package `openai`. The nodes of n8n for models use them.

import assert from "node:assert";

import { base, check, load, model } from "../checking.mjs";

const { HumanMessage, ToolMessage } = await load("@langchain/core/messages");
const { tool } = await load("@langchain/core/tools");
const { ChatOpenAI, OpenAIEmbeddings } = await load("@langchain/openai");
const { ChatAnthropic } = await load("@langchain/anthropic");
const { ChatOllama, OllamaEmbeddings } = await load("@langchain/ollama");
const { z } = await load("zod");

const openai = { model, apiKey: "none", maxTokens: 200, maxRetries: 0, configuration: { baseURL: `${base}/v1` } };
const anthropic = { model, apiKey: "none", maxTokens: 200, maxRetries: 0, anthropicApiUrl: base };
const ollama = { model, baseUrl: base, numPredict: 200, maxRetries: 0 };
// A small model may repeat a call until its answer is too long. Ollama's API has no tool_choice.
const oneCall = { tool_choice: "required", parallel_tool_calls: false };
const oneUse = { tool_choice: { type: "any", disable_parallel_tool_use: true } };
const providers = [
  ["", new ChatOpenAI(openai), oneCall],
  [" (responses)", new ChatOpenAI({ ...openai, useResponsesApi: true }), oneCall],
  [" (Anthropic)", new ChatAnthropic(anthropic), oneUse],
  [" (Ollama)", new ChatOllama(ollama), null],
];
const weather = tool(async ({ city }) => `Sunny in ${city}.`, {
  name: "weather",
  description: "Look up the weather in a city.",
  schema: z.object({ city: z.enum(["Paris", "Rome"]) }),
});

async function ask(chat, messages, streamed) {
  if (!streamed) return chat.invoke(messages);
  let answer;
  for await (const part of await chat.stream(messages)) answer = answer ? answer.concat(part) : part;
  return answer;
}

// Two turns with a tool, whose result the model reads.
async function twoTurns(chat, streamed, mustCall) {
  const bound = chat.bindTools([weather], mustCall ?? {});
  const messages = [];
  for (const question of ["What is the weather in Paris?", "And tomorrow?"]) {
    messages.push(new HumanMessage(question));
    const called = await ask(bound, messages, streamed);
    if (!called.tool_calls.length && !mustCall) return "no call";
    assert(called.tool_calls.length, "no call");
    messages.push(called);
    for (const call of called.tool_calls) {
      messages.push(new ToolMessage({ content: await weather.invoke(call.args), tool_call_id: call.id }));
    }
    messages.push(await ask(chat.bindTools([weather]), messages, streamed));
  }
}

for (const [suffix, chat, mustCall] of providers) {
  const greeting = [new HumanMessage("Say hello.")];
  await check(`chat${suffix}`, async () => {
    const { text, usage_metadata } = await ask(chat, greeting, false);
    assert(text && usage_metadata.output_tokens);
  });
  await check(`stream${suffix}`, async () => assert((await ask(chat, greeting, true)).text));
  await check(`tools${suffix}`, () => twoTurns(chat, false, mustCall));
  await check(`streamed tools${suffix}`, () => twoTurns(chat, true, mustCall));
  await check(`schema${suffix}`, async () => {
    const method = suffix === " (Anthropic)" ? "functionCalling" : "jsonSchema";
    const shaped = chat.withStructuredOutput(z.object({ city: z.string().max(20) }), { method });
    assert(typeof (await shaped.invoke("Where is the Louvre?")).city === "string");
  });
}
await check("embeddings", async () => {
  assert((await new OpenAIEmbeddings({ ...openai }).embedQuery("a")).length);
});
await check("embeddings (Ollama)", async () => {
  assert((await new OllamaEmbeddings({ model, baseUrl: base }).embedQuery("a")).length);
});
