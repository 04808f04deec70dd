// The messages on the page: the conversation, and the answer that is running.
// It draws messages, and neither sends nor stores them.

import { lastQuestion } from "./conversation.js";
import { byId, iconButton, make } from "./dom.js";
import { render } from "./markdown.js";
import { tokenView } from "./tokens.js";
import { speak } from "./view.js";

const NEAR_END = 80; // pixels; within this distance of the end, the page scrolls with an answer
const ENDS = { length: "token limit", timeout: "time limit", stopped: "stopped" };

/** Show the conversation. `actions` has `regenerate` and `edit` for the last messages. */
export function showMessages(messages, actions) {
  const editable = lastQuestion(messages);
  byId("messages").replaceChildren(
    ...messages.map((message, at) =>
      message.role === "user"
        ? question(message, at === editable ? actions.edit : null)
        : answer(message, at === messages.length - 1 ? actions.regenerate : null),
    ),
  );
  byId("empty").hidden = messages.length > 0;
  follow(true);
}

/** Show a running answer. `update(text)` can be called often; it is drawn once per frame. */
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
    body.replaceChildren(...render(text));
    follow(near);
  };
  return {
    update(newText) {
      text = newText;
      frame ||= requestAnimationFrame(draw);
    },
    remove() {
      cancelAnimationFrame(frame);
      box.remove();
    },
  };
}

/** Edit the last question in place. Enter or Send calls `resend`, Esc or Cancel calls `cancel`. */
export function editQuestion(text, resend, cancel) {
  const box = [...byId("messages").querySelectorAll(".user")].at(-1);
  const field = make("textarea", { value: text, rows: 1 });
  field.ariaLabel = "Edit message";
  const done = () => field.value.trim() && resend(field.value.trim());
  field.onkeydown = (event) => {
    if (event.key === "Escape") cancel();
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
      make("button", { type: "button", className: "plain", onclick: cancel }, "Cancel"),
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

function answer(message, regenerate) {
  const body = make("div", { className: "body" }, ...render(message.content));
  const tools = make("div", { className: "actions" }, copyButton(message.content));
  if (regenerate) tools.append(iconButton("again", "Regenerate", regenerate));
  if (message.tokens?.length) tools.append(probabilityButton(message, body));
  const figures = make("p", { className: "figures" }, ...figuresOf(message));
  return article("assistant", "Answer", body, make("div", { className: "meta" }, tools, figures));
}

// Toggle between the text and its tokens.
function probabilityButton({ content, tokens }, body) {
  const button = iconButton("odds", "Token probabilities", () => {
    const pressed = button.ariaPressed !== "true";
    button.ariaPressed = String(pressed);
    body.replaceChildren(...(pressed ? [legend(), tokenView(tokens)] : render(content)));
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
    first !== null && `first token ${first.toFixed(2)} s`,
    prompt !== null && `${prompt} prompt tokens`,
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

// Browsers offer the clipboard only over HTTPS or on localhost. Elsewhere, select and copy.
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = make("textarea", { value: text, className: "hidden" });
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

function article(className, label, ...children) {
  const box = make("article", { className: `message ${className}` }, ...children);
  box.ariaLabel = label;
  return box;
}

function isNear() {
  const { scrollHeight, scrollTop, clientHeight } = byId("scroller");
  return scrollHeight - scrollTop - clientHeight < NEAR_END;
}

function follow(near) {
  if (near) byId("scroller").scrollTop = byId("scroller").scrollHeight;
}
