// The package openai: chat completions and responses.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { count, counted, endless, introduction, model, person, place, tool, url, weather } from "./world.mjs";

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const user = (content) => [{ role: "user", content }];

async function chat() {
  const ask = (messages, more) => client.chat.completions.create({ model, temperature: 0, messages, ...more });
  assert.equal((await ask(user(count))).choices[0].message.content, counted);

  const pieces = [];
  for await (const chunk of await ask(user(count), { stream: true })) pieces.push(chunk.choices[0].delta.content ?? "");
  assert.equal(pieces.join(""), counted);

  const tools = [{ type: "function", function: tool }];
  const { message } = (await ask(user(weather), { tools })).choices[0];
  const [call] = message.tool_calls;
  assert.deepEqual([call.function.name, JSON.parse(call.function.arguments)], [tool.name, place]);
  const result = { role: "tool", tool_call_id: call.id, content: "Sunny." };
  // This small model calls again.
  assert.ok((await ask([...user(weather), message, result], { tools })).choices[0].finish_reason);

  const response_format = zodResponseFormat(person, "person");
  const parsed = await client.chat.completions.parse({ model, messages: user(introduction), response_format });
  person.parse(parsed.choices[0].message.parsed);

  const stream = await client.chat.completions.create({
    model: endless.model, messages: user(endless.prompt), max_tokens: endless.limit, stream: true,
  });
  for await (const _ of stream) stream.controller.abort();
}

async function responses() {
  const ask = (input, more) => client.responses.create({ model, temperature: 0, input, ...more });
  assert.equal((await ask(count)).output_text, counted);

  const pieces = [];
  for await (const event of await ask(count, { stream: true })) {
    if (event.type === "response.output_text.delta") pieces.push(event.delta);
  }
  assert.equal(pieces.join(""), counted);

  const tools = [{ type: "function", ...tool }];
  const { output } = await ask(weather, { tools });
  const call = output.find((item) => item.type === "function_call");
  assert.deepEqual([call.name, JSON.parse(call.arguments)], [tool.name, place]);
  const result = { type: "function_call_output", call_id: call.call_id, output: "Sunny." };
  assert.equal((await ask([...user(weather), ...output, result], { tools })).status, "completed");

  const text = { format: zodTextFormat(person, "person") };
  person.parse((await client.responses.parse({ model, input: introduction, text })).output_parsed);

  const stream = await client.responses.create({
    model: endless.model, input: endless.prompt, max_output_tokens: endless.limit, stream: true,
  });
  for await (const event of stream) if (event.type === "response.output_text.delta") stream.controller.abort();
}

await chat();
await responses();
await assert.rejects(client.responses.create({ model: "gpt", input: count }), OpenAI.NotFoundError);
