// Keeps the page current: parts are replaced when they changed, events are added at the top, each once. What a person
// has opened stays open and keeps the keyboard's place. All HTML comes from our own node, which escapes every name.
"use strict";

const connection = document.getElementById("connection");
const summary = document.getElementById("summary");
const list = document.querySelector("ol.events");
const most = Number(list.dataset.most);
const shown = new Map();
const known = new Set([...list.children].map((item) => item.dataset.key));

// What a person has opened: it does not close when what stood open by itself in between does.
const opened = new Set();
document.addEventListener("click", (event) => {
  const details = event.target.closest("summary")?.parentElement;
  // It is told before it happens.
  if (details) details.open ? opened.delete(details.id) : opened.add(details.id);
});

function replace(element, html) {
  if (shown.get(element) === html) return;
  shown.set(element, html);
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  const place = focused && [...element.querySelectorAll("[tabindex], summary, button")].indexOf(focused);
  const left = [...element.querySelectorAll(".wide")].map((box) => box.scrollLeft);
  // Of what stands open by itself, too, a person may have closed some.
  const state = ({ open, dataset }) => ({ open, byItself: dataset.open !== undefined });
  const was = new Map([...element.querySelectorAll("details")].map((details) => [details.id, state(details)]));
  element.innerHTML = html;
  label(element);
  element.querySelectorAll(".wide").forEach((box, i) => { box.scrollLeft = left[i] || 0; });
  for (const details of element.querySelectorAll("details")) {
    const before = was.get(details.id);
    const { byItself } = state(details);
    if (before?.byItself === byItself) details.open = before.open;
    else if (!byItself && opened.has(details.id)) details.open = true;
  }
  if (focused) element.querySelectorAll("[tabindex], summary, button")[place]?.focus({ preventScroll: true });
}

// On narrow screens each row stands for itself, and its cells say what they are.
function label(element) {
  for (const table of element.querySelectorAll("table")) {
    const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent);
    for (const row of table.querySelectorAll("tbody tr")) {
      let column = 0;
      for (const cell of row.cells) {
        if (cell.colSpan === 1) cell.dataset.head = heads[column] ?? "";
        column += cell.colSpan;
      }
    }
  }
}
label(document);

// Services that were declared since the page was loaded have logs, too.
function offer() {
  const names = [...document.querySelectorAll("details.service")].map((details) => details.id.slice("service-".length));
  if (names.join() === [...logsOf.options].map((option) => option.value).join()) return;
  const chosen = logsOf.value;
  logsOf.replaceChildren(...names.map((name) => new Option(name, name, false, name === chosen)));
}

// Of events, those that have all words that are looked for.
const eventsFind = document.getElementById("events-find");
const eventsFound = document.getElementById("events-found");
const has = (text, words) => words.every((word) => text.toLowerCase().includes(word));
const wordsOf = (field) => field.value.toLowerCase().split(/\s+/).filter(Boolean);
function find() {
  const words = wordsOf(eventsFind);
  let count = 0;
  for (const item of list.children) {
    item.hidden = !has(item.textContent, words);
    count += item.hidden ? 0 : 1;
  }
  eventsFound.textContent = words.length ? `${count} of ${list.children.length}` : "";
}
eventsFind.addEventListener("input", find);

function addEvents(events) {
  for (const [key, html] of [...events].reverse()) {
    if (known.has(key)) continue;
    known.add(key);
    list.insertAdjacentHTML("afterbegin", html);
  }
  while (list.children.length > most) {
    list.lastElementChild.remove();
  }
  find();
  // The stream repeats only the newest: what is older will not come again.
  if (known.size > 4 * most) {
    const recent = new Set(events.map(([key]) => key));
    for (const key of known) if (!recent.has(key)) known.delete(key);
  }
}

// Buttons that take something out of use: asked once more, with the operator's token. It stands in the dialog's field and
// nowhere else, and goes in a header that no other site's page can send.
const dialog = document.getElementById("switch");
const token = document.getElementById("switch-token");
const problem = document.getElementById("switch-problem");
const said = document.getElementById("said");
let wish = null;
document.documentElement.classList.add("scripted");

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-post], button[data-show]");
  if (!button) return;
  wish = { ...button.dataset };
  document.getElementById("switch-title").textContent = wish.ask;
  document.getElementById("switch-what").textContent = wish.what;
  document.getElementById("switch-do").textContent = wish.verb;
  problem.textContent = "";
  dialog.showModal();
  // Nothing is done by a key that was meant for the button before.
  (token.value ? document.getElementById("switch-cancel") : token).focus();
});
document.getElementById("switch-cancel").addEventListener("click", () => dialog.close());
dialog.querySelector("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const asked = wish;
  try {
    if (asked.logs !== undefined) {
      await read(asked);
      return;
    }
    if (asked.show !== undefined) {
      await reveal(asked);
      return;
    }
    const reply = await fetch(asked.post, { method: "POST", headers: { Authorization: "Bearer " + token.value } });
    const answer = await reply.json();
    if (!reply.ok) throw new Error(answer.error);
    if (asked !== wish) return;
    // What changed of the declaration; or figures, each with its name.
    const changes = answer.changes ?? Object.entries(answer).map(([name, count]) => `${count} ${name}`);
    said.textContent = asked.ask.replace(/\?$/, ": ") + (changes.join(", ") || "it is so already");
    dialog.close();
  } catch (error) {
    if (asked === wish) problem.textContent = error.message;
  }
});

// Logs: read once, with the token, and searched here.
const logsForm = document.getElementById("logs-form");
const logsOf = document.getElementById("logs-of");
const logsFind = document.getElementById("logs-find");
const logsFound = document.getElementById("logs-found");
const logsLines = document.getElementById("logs-lines");
let lines = [];
logsForm.addEventListener("submit", (event) => {
  event.preventDefault();
  if (!logsOf.value) {
    logsFound.textContent = "No service is declared.";
    return;
  }
  const asked = wish = { logs: logsOf.value, lines: event.submitter?.dataset.lines ?? "100" };
  if (token.value) {
    read(asked).catch((error) => { logsFound.textContent = error.message; });
    return;
  }
  document.getElementById("switch-title").textContent = `Read the logs of ${asked.logs}?`;
  document.getElementById("switch-what").textContent = "Programs print secrets: what they said is shown to who has the operator's token.";
  document.getElementById("switch-do").textContent = "Read";
  problem.textContent = "";
  dialog.showModal();
  token.focus();
});
logsFind.addEventListener("input", showLines);

async function read(asked) {
  const path = `/v1/services/${encodeURIComponent(asked.logs)}/logs?lines=${asked.lines}`;
  const reply = await fetch(path, { headers: { Authorization: "Bearer " + token.value }, cache: "no-store" });
  const answer = await reply.json();
  if (!reply.ok) throw new Error(answer.error);
  if (asked !== wish) return;
  const at = (us) => new Date(us / 1000).toISOString().slice(0, 23).replace("T", " ");
  lines = answer.lines.map((of) => `${at(of.at_us)} ${of.node} ${asked.logs}/${of.clone} v${of.version} ${of.line}`);
  if (answer.silent.length) lines.push(`(no answer from ${answer.silent.join(", ")}: their lines are missing)`);
  dialog.close();
  showLines();
}

function showLines() {
  const words = wordsOf(logsFind);
  const found = lines.filter((line) => has(line, words));
  // Text, never HTML: programs print what they like.
  logsLines.textContent = found.join("\n");
  logsFound.textContent = `${found.length} of ${lines.length} lines`;
  logsLines.scrollTop = logsLines.scrollHeight;
}

// Keys and what clones said are for who has the token: with it the stream is asked for anew.
async function reveal(asked) {
  const look = new AbortController();
  const reply = await fetch("/live", { headers: { Authorization: "Bearer " + token.value }, signal: look.signal });
  if (!reply.ok) throw new Error(await reply.text());
  look.abort();
  if (asked !== wish) return;
  shows = true;
  said.textContent = "Keys and output are shown.";
  dialog.close();
  follow();
}

function show(frame) {
  connection.textContent = "live, " + new Date(frame.at_ms).toLocaleTimeString();
  connection.dataset.state = "live";
  replace(summary, frame.summary);
  for (const [id, html] of frame.parts) {
    // Somebody marks text in it, perhaps to copy it: it waits.
    const element = document.querySelector(`[data-part="${id}"]`);
    const selection = document.getSelection();
    if (dialog.open || selection && !selection.isCollapsed && element.contains(selection.anchorNode)) continue;
    replace(element, html);
  }
  offer();
  addEvents(frame.events);
}

// Server-sent events by hand: a browser's own reader of them shows no token.
let shows = false;
let stream = null;
async function follow() {
  stream?.abort();
  const mine = stream = new AbortController();
  while (stream === mine) {
    try {
      const headers = shows ? { Authorization: "Bearer " + token.value } : {};
      const reply = await fetch("/live", { headers, signal: mine.signal, cache: "no-store" });
      const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (let part; reply.ok && !(part = await reader.read()).done;) {
        const events = (text + part.value).split("\n\n");
        text = events.pop();
        for (const event of events) {
          const data = event.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
          if (data.length && stream === mine) show(JSON.parse(data.join("\n")));
        }
      }
    } catch {
      // It is tried again, whatever it was.
    }
    if (stream !== mine) return;
    connection.textContent = "this node does not answer; trying again. Another node shows the same page.";
    connection.dataset.state = "lost";
    await new Promise((again) => setTimeout(again, 2000));
  }
}
follow();
