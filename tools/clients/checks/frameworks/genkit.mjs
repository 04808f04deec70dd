// Genkit: its plugins for OpenAI-compatible servers and for Ollama, with the scripted model.

import { base, check, getWeather, joined, lacks, load, model, prompt, weather } from "../checking.mjs";

const { genkit, z } = await load("genkit");
const { openAICompatible } = await load("@genkit-ai/compat-oai");
const { ollama } = await load("genkitx-ollama");

const ai = genkit({
  plugins: [
    openAICompatible({ name: "hearth", apiKey: "none", baseURL: `${base}/v1` }),
    ollama({ models: [{ name: model, type: "chat", supports: { tools: true } }], serverAddress: base }),
  ],
});
const tool = ai.defineTool(
  { name: "get_weather", description: "The weather.", inputSchema: z.object({ city: z.string() }), outputSchema: z.string() },
  async (input) => getWeather(input),
);

for (const [suffix, provider] of [["", "hearth"], [" (Ollama)", "ollama"]]) {
  const given = { model: `${provider}/${model}`, prompt: "Say hello." };
  const called = { ...given, prompt, tools: [tool] };
  const streamed = (fields) => joined(ai.generateStream(fields).stream, (part) => part.text);
  await check(`chat${suffix}`, async () => lacks((await ai.generate(given)).text, "Done."));
  await check(`tools${suffix}`, async () => lacks((await ai.generate(called)).text, weather));
  // The plugin for Ollama cannot read two lines of a stream that arrive together.
  if (suffix) break;
  await check(`stream${suffix}`, async () => lacks(await streamed(given), "Done."));
  await check(`streamed tools${suffix}`, async () => lacks(await streamed(called), weather));
}
process.exit(0); // its telemetry would wait
