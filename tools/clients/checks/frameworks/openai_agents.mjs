// The OpenAI Agents SDK for JavaScript: agents of the scripted model, by responses and chat completions.

import { base, check, getWeather, lacks, load, model, prompt, weather } from "../checking.mjs";

const { Agent, OpenAIProvider, Runner, tool } = await load("@openai/agents");
const { z } = await load("zod");

const shape = z.object({ city: z.enum(["Paris", "Rome"]) });
const tools = [tool({ name: "get_weather", description: "The weather.", parameters: shape, execute: getWeather })];

for (const [suffix, useResponses] of [["", true], [" (chat completions)", false]]) {
  const modelProvider = new OpenAIProvider({ baseURL: `${base}/v1`, apiKey: "none", useResponses });
  const runner = new Runner({ modelProvider, tracingDisabled: true });
  const run = (question, fields, options) => runner.run(new Agent({ name: "a", model, ...fields }), question, options);
  const streamed = async (question, fields) => {
    const answer = await run(question, fields, { stream: true });
    await answer.completed;
    return answer.finalOutput;
  };
  await check(`chat${suffix}`, async () => lacks((await run("Say hello.")).finalOutput, "Done."));
  await check(`stream${suffix}`, async () => lacks(await streamed("Say hello."), "Done."));
  await check(`tools${suffix}`, async () => lacks((await run(prompt, { tools })).finalOutput, weather));
  await check(`streamed tools${suffix}`, async () => lacks(await streamed(prompt, { tools }), weather));
  await check(`schema${suffix}`, async () => {
    shape.parse((await run("Name a city.", { outputType: shape })).finalOutput);
  });
}
