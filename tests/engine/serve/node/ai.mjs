// The package ai with each of its providers that speaks one of the server's APIs.
import assert from "node:assert/strict";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateText, jsonSchema, Output, stepCountIs, streamText, tool as typed } from "ai";
import { count, counted, endless, introduction, model, person, place, tool, url, weather } from "./world.mjs";

const options = { baseURL: `${url}/v1`, apiKey: "none" };
const openai = createOpenAI(options);
const providers = [
  createOpenAICompatible({ ...options, name: "kakeya", supportsStructuredOutputs: true }),
  openai.chat,
  openai.responses,
  createAnthropic(options),
];

for (const provider of providers) {
  const asked = { model: provider(model), temperature: 0, maxRetries: 0 };
  assert.equal((await generateText({ ...asked, prompt: count })).text, counted);

  const pieces = [];
  for await (const piece of streamText({ ...asked, prompt: count }).textStream) pieces.push(piece);
  assert.equal(pieces.join(""), counted);

  const calls = [];
  const execute = async (input) => {
    calls.push(input);
    return "Sunny.";
  };
  const tools = { [tool.name]: typed({ description: tool.description, inputSchema: jsonSchema(tool.parameters), execute }) };
  const { steps } = await generateText({ ...asked, prompt: weather, tools, stopWhen: stepCountIs(2) });
  // This small model calls again when it has the result.
  assert.deepEqual([steps.length, calls[0]], [2, place]);

  person.parse((await generateText({ ...asked, prompt: introduction, output: Output.object({ schema: person }) })).output);

  const controller = new AbortController();
  const stream = streamText({
    ...asked, model: provider(endless.model), prompt: endless.prompt, maxOutputTokens: endless.limit,
    abortSignal: controller.signal,
  });
  for await (const _ of stream.textStream) controller.abort();

  await assert.rejects(generateText({ ...asked, model: provider("gpt"), prompt: count }), APICallError);
}

// What a client sends back next is the same after a stream as after a whole answer: Anthropic's provider drops a thought
// without a signature.
const thinking = { anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } } };
const tools = { [tool.name]: typed({ description: tool.description, inputSchema: jsonSchema(tool.parameters) }) };
const thoughtful = { temperature: 0, maxRetries: 0, prompt: weather, tools, providerOptions: thinking, maxOutputTokens: 80 };
for (const provider of providers) {
  const about = { ...thoughtful, model: provider(model) };
  const sent = ({ messages }) => JSON.parse(JSON.stringify(messages), (key, value) =>
    ["toolCallId", "itemId", "id"].includes(key) ? undefined : value);
  const whole = sent((await generateText(about)).response);
  const stream = streamText(about);
  await stream.consumeStream();
  const streamed = sent(await stream.response);
  if (provider !== providers[3]) {
    assert.deepEqual(streamed, whole);
    continue;
  }
  for (const [{ content }] of [whole, streamed]) {  // it takes no temperature beside thoughts, so the words differ
    const [{ type, providerOptions }] = content;
    assert.deepEqual([type, providerOptions.anthropic.signature], ["reasoning", ""]);
  }
}
