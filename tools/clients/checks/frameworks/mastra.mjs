// Mastra: agents of the scripted model, by chat completions.

import { base, check, getWeather, joined, lacks, load, model, prompt, weather } from "../checking.mjs";

const { Agent } = await load("@mastra/core/agent");
const { createTool } = await load("@mastra/core/tools");
const { z } = await load("zod");

const shape = z.object({ city: z.enum(["Paris", "Rome"]) });
const tool = createTool({
  id: "get_weather",
  description: "Look up the weather in a city.",
  inputSchema: shape,
  execute: async (input) => ({ weather: getWeather(input) }),
});
const settings = { id: "a", name: "a", instructions: "Be short.", model: { id: `hearth/${model}`, url: `${base}/v1`, apiKey: "none" } };
const plain = new Agent(settings);
const agent = new Agent({ ...settings, tools: { get_weather: tool } });

await check("chat", async () => lacks((await plain.generate("Say hello.")).text, "Done."));
await check("stream", async () => lacks(await joined((await plain.stream("Say hello.")).textStream, (text) => text), "Done."));
await check("tools", async () => lacks((await agent.generate(prompt)).text, weather));
await check("streamed tools", async () => lacks(await joined((await agent.stream(prompt)).textStream, (text) => text), weather));
await check("schema", async () => {
  shape.parse((await plain.generate("Name a city.", { structuredOutput: { schema: shape } })).object);
});
process.exit(0); // its telemetry would wait
