// LlamaIndex.TS: its packages for OpenAI's and Ollama's APIs, and agents of the scripted model.

import { base, check, getWeather, joined, lacks, load, model, prompt, weather } from "../checking.mjs";

const { openai, OpenAIEmbedding } = await load("@llamaindex/openai");
const { ollama, OllamaEmbedding } = await load("@llamaindex/ollama");
const { agent } = await load("@llamaindex/workflow");
const { tool } = await load("llamaindex");
const { z } = await load("zod");

const shape = z.object({ city: z.enum(["Paris", "Rome"]) });
const results = [];
const execute = (input) => {
  results.push(getWeather(input));
  return results.at(-1);
};
const tools = [tool({ name: "get_weather", description: "The weather.", parameters: shape, execute })];
const given = { model, baseURL: `${base}/v1`, apiKey: "none" };
const config = { host: base };
const providers = [
  ["", openai({ ...given, maxTokens: 200 }), new OpenAIEmbedding(given)],
  [" (Ollama)", ollama({ model, config }), new OllamaEmbedding({ model, config })],
];

for (const [suffix, llm, embedding] of providers) {
  const messages = [{ role: "user", content: "Say hello." }];
  await check(`chat${suffix}`, async () => lacks((await llm.chat({ messages })).message.content, "Done."));
  await check(`stream${suffix}`, async () => {
    const parts = await llm.chat({ messages, stream: true });
    return lacks(await joined(parts, (part) => part.delta), "Done.");
  });
  await check(`streamed tools${suffix}`, async () => {
    results.length = 0;
    const answer = (await agent({ llm, tools }).run(prompt)).data.result;
    // The package for Ollama sends results without their calls, and the model sees a question.
    return lacks(results.join(), weather) || lacks(answer, suffix ? "Done." : weather);
  });
  await check(`schema${suffix}`, async () => {
    shape.parse(JSON.parse((await llm.chat({ messages, responseFormat: shape })).message.content));
  });
  await check(`embeddings${suffix}`, async () => {
    if (!(await embedding.getTextEmbedding("a")).length) return "empty";
  });
}
process.exit(0); // an agent that failed would wait
