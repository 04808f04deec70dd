// The messages on the page. It draws them, and neither sends nor stores them.

import { LiveMarkdown } from "../markdown/live.js";
import { render } from "../markdown/markdown.js";
import { phrase } from "../strings/phrase.js";
import { callForm } from "./call_form.js";
import { attachmentList, callList, copyButton, figureList, reasoningBox } from "./message_parts.js";
import { byId, iconButton, make } from "./dom.js";
import { enhance } from "./rich_text.js";
import { tokenView } from "./tokens.js";

const NEAR_END = 80; // pixels; within this distance of the end, the page scrolls with an answer
const NAMES = { user: phrase("message.user"), assistant: phrase("message.answer"), result: phrase("message.result") };

const state = { drawn: new Map(), live: null };

/**
 * Show messages. An entry is {message, versions, last, resumable}: `versions` are the messages with
 * the same parent, one of them this message. `actions` are the functions of session.js. If `running`, the
 * last message is an answer that grows, or a place for it. `atEnd` scrolls to the end.
 */
export function showMessages(entries, { running, actions, atEnd }) {
  const near = isNear();
  const growing = running && entries.at(-1)?.message.finish === "running" ? entries.at(-1).message : null;
  const settled = growing ? entries.slice(0, -1) : entries;
  const before = state.drawn;
  state.drawn = new Map(settled.map((entry) => [entry.message.id, reuse(before, entry, actions)]));
  const boxes = [...state.drawn.values()].map(({ box }) => box);
  state.live?.end();
  state.live = running ? liveAnswer(growing) : null;
  if (state.live) boxes.push(state.live.box);
  const list = byId("messages");
  list.dataset.running = running;
  list.replaceChildren(...boxes);
  byId("empty").hidden = boxes.length > 0;
  follow(atEnd || near);
}

/** Show more of the running answer. It is drawn at most once per frame. */
export const updateAnswer = (message) => state.live?.update(message);

/** Whether a message is being edited. */
export const isEditing = () => byId("messages").querySelector(".editing") !== null;

/** Edit a message in place. Enter or the button calls `send(content)`, Esc or Cancel `cancel()`. */
export function editMessage({ id, role, content }, { send, cancel }) {
  const { box } = state.drawn.get(id);
  state.drawn.delete(id); // draw it again afterwards
  const field = make("textarea", { value: content, rows: 1, ariaLabel: phrase("message.field") });
  const done = () => field.value.trim() && send(field.value.trim());
  field.onkeydown = (event) => {
    if (event.key === "Escape") cancel();
    const sends = role === "user" ? !event.shiftKey : event.ctrlKey || event.metaKey;
    if (event.key === "Enter" && sends && !event.isComposing) {
      event.preventDefault();
      done();
    }
  };
  box.classList.add("editing");
  const button = (className, label, onclick) => make("button", { type: "button", className, onclick }, label);
  const label = role === "user" ? phrase("message.send_again") : phrase("message.save_version");
  const buttons = [button("plain", phrase("message.cancel"), cancel), button("primary", label, done)];
  box.replaceChildren(field, make("div", { className: "row" }, ...buttons));
  field.focus();
  field.setSelectionRange(content.length, content.length);
}

// The box of a message, which is drawn again only if something in it has changed.
function reuse(before, entry, actions) {
  const { message, versions, last, resumable } = entry;
  const hosts = last ? (message.calls ?? []).map(({ name }) => actions.hostOf(name)) : [];
  const version = `${versions.indexOf(message)}/${versions.length} ${last} ${resumable} ${hosts}`;
  const old = before.get(message.id);
  if (old?.message === message && old.version === version) return old;
  return { message, version, box: draw(entry, actions) };
}

function draw(entry, actions) {
  const { message, versions } = entry;
  const tools = [copyButton(message.content, phrase("message.copy")), ...buttonsOf(entry, actions)];
  if (versions.length > 1) tools.push(versionSwitch(message, versions, actions.choose));
  const bar = make("div", { className: "actions" }, ...tools);
  const files = message.attachments?.length ? [attachmentList(message.attachments)] : [];
  if (message.role === "user") {
    const body = make("div", { className: "body" }, message.content);
    return article(message.role, ...files, ...(message.content ? [body] : []), bar);
  }
  const body = make("div", { className: "body" });
  if (message.role === "tool") return article("result", callResult(message.content), ...files, bar);
  fill(body, render(message.content));
  if (message.tokens?.length) bar.append(probabilityButton(message, body));
  const parts = [body];
  if (message.reasoning) parts.unshift(reasoningBox(message.reasoning));
  if (message.calls?.length) parts.push(callList(message.calls));
  if (message.calls?.length && entry.last) {
    parts.push(callForm(message, { hostOf: actions.hostOf, send: actions.answerCalls }));
  }
  return article("assistant", ...parts, make("div", { className: "meta" }, bar, figureList(message)));
}

function buttonsOf({ message, resumable }, actions) {
  const action = (icon, label, run) => {
    const button = iconButton(icon, label, () => run(message));
    button.classList.add("idle-only");
    return button;
  };
  const remove = action("delete", phrase("message.delete"), actions.remove);
  if (message.role === "user") return [action("edit", phrase("message.edit_user"), actions.edit), remove];
  if (message.role === "tool") return [remove];
  return [
    ...(resumable ? [action("resume", phrase("message.continue"), actions.resume)] : []),
    action("again", phrase("message.regenerate"), actions.regenerate),
    action("edit", phrase("message.edit_answer"), actions.edit),
    action("fork", phrase("message.fork"), actions.fork),
    remove,
  ];
}

const callResult = (content) =>
  make("details", { className: "folded" }, make("summary", {}, phrase("message.result")), make("pre", { tabIndex: 0 }, content));

function versionSwitch(message, versions, choose) {
  const at = versions.indexOf(message);
  const step = (icon, label, to) => {
    const button = iconButton(icon, label, () => choose(versions[to]));
    button.classList.add("idle-only");
    button.disabled = !versions[to];
    return button;
  };
  const text = make("span", { className: "version" }, `${at + 1}/${versions.length}`);
  const box = make(
    "span", { className: "versions", role: "group", ariaLabel: phrase("message.versions") },
    step("left", phrase("message.previous"), at - 1), text, step("right", phrase("message.next"), at + 1),
  );
  return box;
}

// Toggle between the text and its tokens.
function probabilityButton({ content, tokens }, body) {
  const button = iconButton("odds", phrase("message.probabilities"), () => {
    const pressed = button.ariaPressed !== "true";
    button.ariaPressed = String(pressed);
    if (pressed) body.replaceChildren(legend(), tokenView(tokens));
    else fill(body, render(content));
  });
  button.ariaPressed = "false";
  return button;
}

function legend() {
  const scale = make("span", { className: "scale", ariaHidden: "true" });
  return make("p", { className: "legend" }, phrase("message.likely"), scale, phrase("message.unlikely"));
}

// The box of an answer that grows.
function liveAnswer(message) {
  const waiting = make("span", { className: "waiting" });
  const reasoning = make("div", {});
  const body = make("div", { className: "body" });
  const box = article("assistant", reasoning, body, waiting);
  box.classList.add("live");
  box.ariaBusy = "true";
  const markdown = new LiveMarkdown(body, enhance);
  let timer = 0;
  let shown = null;
  const drawNow = () => {
    timer = 0;
    const began = performance.now();
    const near = isNear();
    waiting.hidden = Boolean(shown.content);
    if (shown.reasoning) showReasoning(reasoning, shown.reasoning, !shown.content);
    markdown.update(shown.content);
    follow(near);
    // Leave most of the time to the rest of the page, even if the answer is very long.
    pause = Math.min(1000, 4 * (performance.now() - began));
  };
  let pause = 0;
  const update = (newMessage) => {
    shown = newMessage;
    timer ||= setTimeout(() => requestAnimationFrame(drawNow), pause);
  };
  if (message) update(message);
  return { box, update, end: () => clearTimeout(timer) };
}

function showReasoning(place, text, open) {
  if (!place.firstChild) place.append(reasoningBox("", { open: true }));
  const box = place.firstChild;
  box.querySelector("pre").textContent = text;
  // Fold it when the answer begins, unless the user has folded or unfolded it.
  if (!open && !box.dataset.folded) {
    box.dataset.folded = "true";
    box.open = false;
  }
}

function fill(body, nodes) {
  body.replaceChildren(...nodes);
  enhance(body);
}

function article(role, ...children) {
  return make("article", { className: `message ${role}`, ariaLabel: NAMES[role] }, ...children);
}

function isNear() {
  const { scrollHeight, scrollTop, clientHeight } = byId("scroller");
  return scrollHeight - scrollTop - clientHeight < NEAR_END;
}

function follow(near) {
  if (near) byId("scroller").scrollTop = byId("scroller").scrollHeight;
}
