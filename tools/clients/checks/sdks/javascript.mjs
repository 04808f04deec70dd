// The packages of vendors for JavaScript: OpenAI's, Anthropic's, Google's, Ollama's, Mistral's and Hugging
// Face's.

import { base, check, getWeather, joined, lacks, load, model, prompt, weather } from "../checking.mjs";

const { default: OpenAI } = await load("openai");
const { default: Anthropic } = await load("@anthropic-ai/sdk");
const { betaZodTool } = await load("@anthropic-ai/sdk/helpers/beta/zod");
const { GoogleGenAI } = await load("@google/genai");
const { Ollama } = await load("ollama");
const { Mistral } = await load("@mistralai/mistralai");
const { InferenceClient } = await load("@huggingface/inference");
const { z } = await load("zod");

const messages = [{ role: "user", content: "Say hello." }];
const asked = [{ role: "user", content: prompt }];
const given = { model, messages };
const cities = ["Paris", "Rome"];
const schema = { type: "object", properties: { city: { enum: cities } }, required: ["city"] };
const tool = { type: "function", function: { name: "get_weather", parameters: schema } };
const isCity = (text) => (cities.includes(JSON.parse(text).city) ? "" : text);

const openai = new OpenAI({ baseURL: `${base}/v1`, apiKey: "none" });
const { completions } = openai.chat;
const runnable = { ...tool, function: { ...tool.function, parse: JSON.parse, function: getWeather } };
const format = { type: "json_schema", json_schema: { name: "city", schema } };
await check("chat", async () => lacks((await completions.create(given)).choices[0].message.content, "Done."));
await check("stream", async () => lacks(await completions.stream(given).finalContent(), "Done."));
await check("tools", async () => {
  return lacks(await completions.runTools({ model, messages: asked, tools: [runnable] }).finalContent(), weather);
});
await check("streamed tools", async () => {
  return lacks(await completions.runTools({ model, messages: asked, tools: [runnable], stream: true }).finalContent(), weather);
});
await check("schema", async () => {
  return isCity((await completions.create({ ...given, response_format: format })).choices[0].message.content);
});
await check("embeddings", async () => {
  if (!(await openai.embeddings.create({ model, input: "a" })).data[0].embedding.length) return "empty";
});
await check("stream (responses)", async () => {
  return lacks((await openai.responses.stream({ model, input: "Say hello." }).finalResponse()).output_text, "Done.");
});

const { beta, messages: chats } = new Anthropic({ baseURL: base, apiKey: "none" });
const limited = { ...given, max_tokens: 200 };
const inputSchema = z.object({ city: z.enum(cities) });
const zodTool = betaZodTool({ name: "get_weather", description: "The weather.", inputSchema, run: getWeather });
await check("stream (Anthropic)", async () => lacks(await chats.stream(limited).finalText(), "Done."));
await check("tools (Anthropic)", async () => {
  const answer = await beta.messages.toolRunner({ ...limited, messages: asked, tools: [zodTool] });
  return lacks(answer.content.at(-1).text, weather);
});

const gemini = new GoogleGenAI({ apiKey: "none", httpOptions: { baseUrl: base } }).models;
const functionDeclarations = [{ name: "get_weather", parametersJsonSchema: schema }];
const textOf = ({ text }) => text;
const hello = { model, contents: "Say hello." };
await check("chat (Gemini)", async () => lacks((await gemini.generateContent(hello)).text, "Done."));
await check("stream (Gemini)", async () => {
  return lacks(await joined(await gemini.generateContentStream(hello), textOf), "Done.");
});
await check("tools (Gemini)", async () => {
  const config = { tools: [{ functionDeclarations }] };
  const called = await gemini.generateContent({ model, contents: prompt, config });
  const { id, name, args } = called.functionCalls[0];
  const response = { id, name, response: { output: getWeather(args) } };
  const contents = [
    { role: "user", parts: [{ text: prompt }] },
    called.candidates[0].content,
    { role: "user", parts: [{ functionResponse: response }] },
  ];
  return lacks(await joined(await gemini.generateContentStream({ model, contents, config }), textOf), weather);
});
await check("schema (Gemini)", async () => {
  const config = { responseMimeType: "application/json", responseJsonSchema: schema };
  return isCity((await gemini.generateContent({ ...hello, config })).text);
});
await check("embeddings (Gemini)", async () => {
  if (!(await gemini.embedContent({ model, contents: ["a", "b"] })).embeddings[1].values.length) return "empty";
});

const ollama = new Ollama({ host: base });
await check("chat (Ollama)", async () => lacks((await ollama.chat(given)).message.content, "Done."));
await check("stream (Ollama)", async () => {
  const parts = await ollama.chat({ ...given, stream: true });
  return lacks(await joined(parts, (part) => part.message.content), "Done.");
});
await check("tools (Ollama)", async () => {
  const { message } = await ollama.chat({ model, messages: asked, tools: [tool] });
  const result = { role: "tool", tool_name: "get_weather", content: getWeather(message.tool_calls[0].function.arguments) };
  return lacks((await ollama.chat({ model, messages: [...asked, message, result] })).message.content, weather);
});
await check("schema (Ollama)", async () => isCity((await ollama.chat({ ...given, format: schema })).message.content));
await check("embeddings (Ollama)", async () => {
  if (!(await ollama.embed({ model, input: "a" })).embeddings[0].length) return "empty";
});

const mistral = new Mistral({ serverURL: base, apiKey: "none" });
await check("chat (Mistral)", async () => lacks((await mistral.chat.complete({ model, messages })).choices[0].message.content, "Done."));
await check("stream (Mistral)", async () => {
  return lacks(await joined(await mistral.chat.stream({ model, messages }), (part) => part.data.choices[0]?.delta.content), "Done.");
});

const huggingFace = new InferenceClient("none", { endpointUrl: base });
await check("chat (Hugging Face)", async () => lacks((await huggingFace.chatCompletion(given)).choices[0].message.content, "Done."));
await check("stream (Hugging Face)", async () => {
  return lacks(await joined(huggingFace.chatCompletionStream(given), (part) => part.choices[0]?.delta.content), "Done.");
});
