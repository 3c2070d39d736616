"use strict";

const $ = (id) => document.getElementById(id);
const turns = [];
let running = null;

const headers = () => {
  const key = $("key").value.trim();
  return { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
};

const show = (kind, text) => {
  const line = document.createElement("div");
  line.className = `turn ${kind}`;
  line.textContent = text;
  $("log").append(line);
  line.scrollIntoView({ block: "end" });
  return line;
};

const fill = async () => {
  try {
    const { data } = await (await fetch("/v1/models", { headers: headers() })).json();
    const names = data.flatMap((model) => [model.id, ...model.x_kakeya.channels]);
    $("model").replaceChildren(...names.map((name) => new Option(name)));
  } catch {
    $("figures").textContent = "The models cannot be listed. If the server asks for a key, give it above.";
  }
};

const megabytes = (bytes) => `${(bytes / 1e6).toFixed(2)} MB`;

const figures = (seconds, told, usage) => {
  const count = usage ? usage.completion_tokens : 0;
  const parts = [`${count} tokens`, `${(count / seconds).toFixed(1)} tokens/s`];
  if (told) {
    const share = told.proposed ? `${Math.round((100 * told.accepted) / told.proposed)} % of drafts accepted` : "no drafts";
    parts.push(`${told.draft}: ${share}`, `cache ${told.cache} ${megabytes(told.cache_bytes)}`);
    parts.push(`${told.cached_tokens} prompt tokens from the prefix cache`);
    if (told.fallback) parts.push(told.fallback);
  }
  $("figures").textContent = parts.join(" · ");
};

async function* events(response) {
  const decoder = new TextDecoder();
  let held = "";
  for await (const bytes of response.body) {
    held += decoder.decode(bytes, { stream: true });
    const lines = held.split("\n\n");
    held = lines.pop();
    for (const line of lines) {
      const data = line.replace(/^data: /, "");
      if (data !== "[DONE]") yield JSON.parse(data);
    }
  }
}

const ask = async (line) => {
  const body = {
    model: $("model").value,
    messages: turns,
    temperature: Number($("temperature").value),
    max_tokens: Number($("tokens").value),
    stream: true,
    stream_options: { include_usage: true },
    x_kakeya: { draft: $("draft").value },
  };
  const began = performance.now();
  const response = await fetch("/v1/chat/completions", {
    method: "POST", headers: headers(), body: JSON.stringify(body), signal: running.signal,
  });
  if (!response.ok) throw new Error((await response.json()).error.message);
  let told = null;
  let pieces = 0;
  for await (const data of events(response)) {
    if (data.error) throw new Error(data.error.message);
    const [choice] = data.choices;
    if (choice && choice.delta.content) {
      line.textContent += choice.delta.content;
      pieces += 1;
      $("figures").textContent = `${pieces} pieces in ${((performance.now() - began) / 1000).toFixed(1)} s`;
    }
    if (choice && choice.x_kakeya) told = choice.x_kakeya;
    if (data.usage) figures((performance.now() - began) / 1000, told, data.usage);
  }
};

const send = async () => {
  const text = $("text").value.trim();
  if (!text || running) return;
  $("text").value = "";
  turns.push({ role: "user", content: text });
  show("user", text);
  const line = show("assistant", "");
  running = new AbortController();
  $("stop").disabled = false;
  try {
    await ask(line);
  } catch (error) {
    if (error.name !== "AbortError") show("error", error.message);
  }
  turns.push({ role: "assistant", content: line.textContent });
  running = null;
  $("stop").disabled = true;
  $("text").focus();
};

$("form").addEventListener("submit", (event) => { event.preventDefault(); send(); });
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); send(); }
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape" && running) running.abort(); });
$("stop").addEventListener("click", () => running && running.abort());
$("clear").addEventListener("click", () => { turns.length = 0; $("log").replaceChildren(); $("figures").textContent = ""; });
$("key").addEventListener("change", fill);
fill();
