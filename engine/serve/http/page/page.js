"use strict";

const $ = (id) => document.getElementById(id);
const SHOWN = ["rate", "count", "accepted", "cache", "cached"];
const turns = [];
let running = null;

const headers = () => {
  const key = $("key").value.trim();
  return { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
};

const notice = (text) => { $("notice").textContent = text; };

const add = (parent, name, kind, text = "") => {
  const made = document.createElement(name);
  made.className = kind;
  made.textContent = text;
  parent.append(made);
  return made;
};

// Follow the end of the chat unless the reader has scrolled away from it.
const follow = (change) => {
  const log = $("log");
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  change();
  if (atEnd) log.scrollTop = log.scrollHeight;
};

const show = (kind, text) => {
  const empty = $("empty");
  if (empty) empty.remove();
  const turn = add($("log"), "div", `turn ${kind}`, text);
  $("log").scrollTop = $("log").scrollHeight;
  return turn;
};

const fill = async () => {
  try {
    const response = await fetch("/v1/models", { headers: headers() });
    if (response.status === 401) {
      $("more").open = true;
      return notice("The server asks for an API key. Enter it under Options.");
    }
    const { data } = await response.json();
    $("model").replaceChildren(...data.map((model) => {
      const group = document.createElement("optgroup");
      group.label = model.id;
      group.append(...[model.id, ...model.x_kakeya.channels].map((name) => new Option(name)));
      return group;
    }));
    notice("");
  } catch {
    notice("The server does not answer. Is it still running?");
  }
};

const bytes = (count) => (count < 1e6 ? `${Math.round(count / 1e3)} kB` : `${(count / 1e6).toFixed(2)} MB`);

// The server times the decoding: a short answer arrives here all at once.
const figures = (usage, told) => {
  $("count").textContent = usage.completion_tokens;
  if (!told) return;
  if (told.decode_seconds > 0) $("rate").textContent = (usage.completion_tokens / told.decode_seconds).toFixed(1);
  const share = Math.round((100 * told.accepted) / told.proposed);
  $("accepted").textContent = told.proposed ? `${share} % (${told.draft})` : "no drafts";
  $("cache").textContent = `${bytes(told.cache_bytes)} (${told.cache})`;
  $("cached").textContent = `${told.cached_tokens} of ${usage.prompt_tokens}`;
  if (told.fallback) notice(told.fallback);
};

async function* events(response) {
  const decoder = new TextDecoder();
  let held = "";
  for await (const part of response.body) {
    held += decoder.decode(part, { stream: true });
    const lines = held.split("\n\n");
    held = lines.pop();
    for (const line of lines) {
      if (line.startsWith(":")) continue; // a sign of life
      const data = line.replace(/^data: /, "");
      if (data !== "[DONE]") yield JSON.parse(data);
    }
  }
}

const thoughtOf = (turn) => {
  if (!turn.thought) {
    const details = document.createElement("details");
    add(details, "summary", "", "Thought");
    turn.thought = add(details, "div", "");
    turn.prepend(details);
  }
  return turn.thought;
};

const ask = async (turn, text) => {
  const body = {
    model: $("model").value,
    messages: turns,
    temperature: Number($("temperature").value),
    max_tokens: Number($("tokens").value),
    stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true },
    x_kakeya: { draft: $("draft").value },
  };
  const response = await fetch("/v1/chat/completions", {
    method: "POST", headers: headers(), body: JSON.stringify(body), signal: running.signal,
  });
  if (!response.ok) {
    const said = await response.json().catch(() => null);
    throw new Error(said ? said.error.message : `The server answered with status ${response.status}.`);
  }
  for await (const data of events(response)) {
    if (data.error) throw new Error(data.error.message);
    const [choice] = data.choices;
    const delta = choice ? choice.delta : {};
    follow(() => {
      // Templates put empty lines between a thought and the answer.
      if (delta.content) text.textContent += text.textContent ? delta.content : delta.content.trimStart();
      if (delta.reasoning_content) thoughtOf(turn).textContent += delta.reasoning_content;
    });
    if (choice && choice.finish_reason === "length") follow(() => add(turn, "div", "cut", "Cut off at the token limit."));
    if (choice && data.usage.completion_tokens) figures(data.usage, choice.x_kakeya);
  }
};

const busy = (is) => {
  $("send").textContent = is ? "Stop" : "Send";
  $("send").classList.toggle("stop", is);
};

const send = async () => {
  const message = $("text").value.trim();
  if (!message) return;
  $("text").value = "";
  grow();
  notice("");
  for (const name of SHOWN) $(name).textContent = "–";
  turns.push({ role: "user", content: message });
  show("user", message);
  const turn = show("assistant running", "");
  const text = add(turn, "span", "text");
  running = new AbortController();
  busy(true);
  try {
    await ask(turn, text);
  } catch (error) {
    if (error.name !== "AbortError") show("error", error.message);
  }
  turn.classList.remove("running");
  if (!turn.isConnected) turns.length = 0; // a new chat was begun meanwhile
  else if (text.textContent) turns.push({ role: "assistant", content: text.textContent });
  else {
    turns.pop();
    if (!turn.thought) turn.remove();
  }
  running = null;
  busy(false);
  $("text").focus();
};

const grow = () => {
  $("text").style.height = "auto";
  $("text").style.height = `${$("text").scrollHeight + 2}px`;
};

const stop = () => running && running.abort();

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (running) stop();
  else send();
});
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    if (!running) send();
  }
});
$("text").addEventListener("input", grow);
document.addEventListener("keydown", (event) => { if (event.key === "Escape") stop(); });
$("clear").addEventListener("click", () => {
  stop();
  turns.length = 0;
  $("log").replaceChildren();
  for (const name of SHOWN) $(name).textContent = "–";
  notice("");
  $("text").focus();
});
$("key").addEventListener("change", fill);
fill();
