// Messages on the page: the conversation, and the answer that is being written.
// It knows what a message looks like; it starts nothing and keeps nothing.

import { lastAsked } from "./conversation.js";
import { byId, iconButton, make } from "./dom.js";
import { parse, render } from "./markdown.js";
import { tokenView } from "./tokens.js";
import { speak } from "./view.js";

const NEAR = 80; // pixels from the end within which the page follows an answer
const ENDS = { length: "ended at the limit", timeout: "out of time", stopped: "stopped" };

/** Show the whole conversation. `does` has `again` and `edit` for the last ones. */
export function showMessages(messages, does) {
  const asked = lastAsked(messages);
  byId("messages").replaceChildren(
    ...messages.map((message, at) =>
      message.role === "user"
        ? question(message, at === asked ? does.edit : null)
        : answer(message, at === messages.length - 1 ? does.again : null),
    ),
  );
  byId("empty").hidden = messages.length > 0;
  follow(true);
}

/** An answer being written: `update(text)` at will, drawn once a frame. */
export function liveAnswer() {
  const body = make("div", { className: "body" }, make("span", { className: "waiting" }));
  const box = article("assistant live", "Answer", body);
  box.ariaBusy = "true";
  byId("messages").append(box);
  follow(true);
  let text = "";
  let frame = 0;
  const draw = () => {
    frame = 0;
    const near = isNear();
    body.replaceChildren(...render(parse(text)));
    follow(near);
  };
  return {
    update(now) {
      text = now;
      frame ||= requestAnimationFrame(draw);
    },
    remove() {
      cancelAnimationFrame(frame);
      box.remove();
    },
  };
}

/** Turn the last question into a field; Enter or Send resends it, Esc or Cancel leaves it. */
export function editQuestion(text, resend, leave) {
  const box = [...byId("messages").querySelectorAll(".user")].at(-1);
  const field = make("textarea", { value: text, rows: 1 });
  field.ariaLabel = "Edit the message";
  const done = () => field.value.trim() && resend(field.value.trim());
  field.onkeydown = (event) => {
    if (event.key === "Escape") leave();
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      done();
    }
  };
  box.classList.add("editing");
  box.replaceChildren(
    field,
    make(
      "div",
      { className: "row" },
      make("button", { type: "button", className: "plain", onclick: leave }, "Cancel"),
      make("button", { type: "button", className: "primary", onclick: done }, "Send again"),
    ),
  );
  field.focus();
  field.setSelectionRange(text.length, text.length);
}

function question({ content }, edit) {
  const body = make("div", { className: "body" }, content);
  const tools = make("div", { className: "actions" }, copyButton(content));
  if (edit) tools.append(iconButton("edit", "Edit and send again", edit));
  return article("user", "You", body, tools);
}

function answer(message, again) {
  const body = make("div", { className: "body" }, ...render(parse(message.content)));
  const tools = make("div", { className: "actions" }, copyButton(message.content));
  if (again) tools.append(iconButton("again", "Regenerate", again));
  if (message.tokens?.length) tools.append(oddsButton(message, body));
  const figures = make("p", { className: "figures" }, ...figuresOf(message));
  return article("assistant", "Answer", body, make("div", { className: "meta" }, tools, figures));
}

// A switch between the text and its tokens.
function oddsButton({ content, tokens }, body) {
  const button = iconButton("odds", "Token probabilities", () => {
    const pressed = button.ariaPressed !== "true";
    button.ariaPressed = String(pressed);
    body.replaceChildren(...(pressed ? [legend(), tokenView(tokens)] : render(parse(content))));
  });
  button.ariaPressed = "false";
  return button;
}

function legend() {
  const scale = make("span", { className: "scale" });
  scale.ariaHidden = "true";
  return make("p", { className: "legend" }, "likely", scale, "unlikely");
}

function figuresOf({ figures, finish }) {
  if (!figures) return [];
  const { prompt, completion, first, rate } = figures;
  const parts = [
    `${completion} tokens`,
    rate !== null && `${rate.toFixed(1)} tokens/s`,
    first !== null && `first after ${first.toFixed(2)} s`,
    prompt !== null && `prompt of ${prompt}`,
    ENDS[finish],
  ];
  return parts.filter(Boolean).map((part) => make("span", {}, part));
}

function copyButton(text) {
  const button = iconButton("copy", "Copy", async () => {
    await copy(text);
    speak("Copied");
    button.classList.add("done");
    button.onanimationend = () => button.classList.remove("done");
  });
  return button;
}

// Without TLS, and not on this machine, there is no clipboard to write to: select and copy.
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = make("textarea", { value: text, className: "hidden" });
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

function article(kind, label, ...children) {
  const box = make("article", { className: `message ${kind}` }, ...children);
  box.ariaLabel = label;
  return box;
}

function isNear() {
  const { scrollHeight, scrollTop, clientHeight } = byId("scroller");
  return scrollHeight - scrollTop - clientHeight < NEAR;
}

function follow(near) {
  if (near) byId("scroller").scrollTop = byId("scroller").scrollHeight;
}
