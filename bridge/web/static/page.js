// Keeps a page current and adds keys. Without it everything is there, and reloading shows what is new.
"use strict";

const EVERY_MS = 500;
let tag = null;

async function refresh() {
  if (document.hidden) return;
  const answer = await fetch(location.href, { headers: tag ? { "If-None-Match": tag } : {} });
  if (answer.status === 304) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (!answer.ok && page.getElementById("main") === null) return;
  tag = answer.headers.get("ETag");
  const focused = document.activeElement;
  const href = focused?.getAttribute("href");
  // A section that was not there before, or is gone, changes the page's form.
  const ids = (of) => [...of.querySelectorAll("main [data-live]")].map((one) => one.id).join();
  const all = ids(page) !== ids(document) ? [document.getElementById("main")] : document.querySelectorAll("[data-live]");
  for (const old of all) {
    const now = page.getElementById(old.id);
    if (now !== null) change(old, now);
  }
  document.title = page.title;
  // A list that grew has moved the link on which the reader was.
  if (href && document.activeElement?.getAttribute("href") !== href) {
    document.querySelector(`a[href="${CSS.escape(href)}"]`)?.focus({ preventScroll: true });
  }
  ages();
}

// Makes one element like another and keeps what is the same, with the reader's focus, selection and open details.
function change(old, now) {
  if (old.isEqualNode(now)) return;
  if (old.id === "log") return follow(old, now.textContent);
  for (const { name } of [...old.attributes]) {
    if (!now.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of now.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  // What a reader has chosen or typed there is not sent yet.
  if (old.matches("form")) return;
  let there = old.firstChild;
  for (const child of [...now.childNodes]) {
    const following = [];
    for (let one = there; one; one = one.nextSibling) following.push(one);
    const same = child.id ? following.findIndex((one) => one.id === child.id) : -1;
    for (const gone of following.slice(0, Math.max(0, same))) gone.remove();
    if (same >= 0) there = following[same];
    if (there?.nodeName !== child.nodeName || there.id !== child.id) {
      old.insertBefore(child, there);
      continue;
    }
    if (there.nodeType === Node.ELEMENT_NODE) change(there, child);
    else if (there.nodeValue !== child.nodeValue) there.nodeValue = child.nodeValue;
    there = there.nextSibling;
  }
  while (there) {
    const next = there.nextSibling;
    there.remove();
    there = next;
  }
}

// A log that has grown is added to, so that what a reader selected stays; its end stays in view if it was.
function follow(log, text) {
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  const shown = log.textContent;
  if (text === shown) return;
  if (text.startsWith(shown)) log.append(text.slice(shown.length));
  else log.textContent = text;
  if (atEnd) log.scrollTop = log.scrollHeight;
}

function ages() {
  for (const one of document.querySelectorAll("time[data-ago]")) {
    const s = Math.max(0, (Date.now() - Date.parse(one.dateTime)) / 1000);
    const text =
      s >= 172800 ? `${Math.round(s / 86400)} d` : s >= 7200 ? `${Math.round(s / 3600)} h` : s >= 120 ? `${Math.round(s / 60)} min` : `${Math.round(s)} s`;
    if (one.textContent !== text) one.textContent = text;
  }
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("select, input, button, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const rows = [...document.querySelectorAll("a.row")];
  const at = rows.indexOf(document.activeElement);
  if (event.key === "j") rows[Math.min(at + 1, rows.length - 1)]?.focus();
  else if (event.key === "k") rows[Math.max(at - 1, 0)]?.focus();
  else if (event.key === "/") document.querySelector(".filter select")?.focus();
  else if (event.key === "u") location.href = document.querySelector("a.home").href;
  else return;
  event.preventDefault();
}

async function watch() {
  for (;;) {
    await new Promise((done) => setTimeout(done, EVERY_MS));
    try {
      await refresh();
      document.body.classList.remove("away");
    } catch {
      // The server has ended. What is shown is no longer current.
      document.body.classList.add("away");
    }
  }
}

document.addEventListener("keydown", keys);
const log = document.getElementById("log");
if (log) log.scrollTop = log.scrollHeight;
setInterval(ages, 10000);
watch();
