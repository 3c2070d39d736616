// The package @anthropic-ai/sdk: messages.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { count, counted, endless, introduction, model, person, place, tool, url, weather } from "./world.mjs";

const client = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
const user = (content) => [{ role: "user", content }];
const asked = (messages, more) => ({ model, max_tokens: 80, temperature: 0, messages, ...more });
const ask = (messages, more) => client.messages.create(asked(messages, more));

assert.equal((await ask(user(count))).content[0].text, counted);

const pieces = [];
const counting = client.messages.stream(asked(user(count))).on("text", (text) => pieces.push(text));
assert.equal((await counting.finalMessage()).stop_reason, "end_turn");
assert.equal(pieces.join(""), counted);

const tools = [{ name: tool.name, description: tool.description, input_schema: tool.parameters }];
const { content } = await ask(user(weather), { tools });
const call = content.find((block) => block.type === "tool_use");
assert.deepEqual([call.name, call.input], [tool.name, place]);
const result = { type: "tool_result", tool_use_id: call.id, content: "Sunny." };
const turns = [...user(weather), { role: "assistant", content }, { role: "user", content: [result] }];
assert.ok((await ask(turns, { tools })).stop_reason);

const output_config = { format: zodOutputFormat(person) };
person.parse((await client.messages.parse(asked(user(introduction), { output_config }))).parsed_output);

const stream = client.messages.stream({
  model: endless.model, max_tokens: endless.limit, messages: user(endless.prompt),
});
stream.on("text", () => stream.abort());
await assert.rejects(stream.done(), Anthropic.APIUserAbortError);

await assert.rejects(ask(user(count), { model: "claude" }), Anthropic.NotFoundError);
