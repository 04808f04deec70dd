// The tokens of an answer, shaded by their probability, and the alternatives to each token.
// It knows tokens as in api.js, and no conversation.

import { language, phrase } from "../strings/phrase.js";
import { byId, make } from "./dom.js";

const MIN_SHARE = 1e-4; // smaller probabilities have no number
const DIGITS = 2;
const MARGIN = 8; // pixels between the bars and the edge of the window

/** An element with the tokens. It is one tab stop; the arrow keys move between tokens. */
export function tokenView(tokens) {
  const spans = tokens.map((token, at) => {
    const span = make("span", { className: "token", tabIndex: at ? -1 : 0, role: "option" });
    span.ariaLabel = `${visible(token.text)}, ${percent(token.logprob)}`;
    span.style.setProperty("--doubt", (1 - Math.exp(token.logprob)).toFixed(3));
    span.textContent = token.text;
    span.onmouseenter = span.onfocus = () => show(span, token);
    span.onclick = () => span.focus();
    span.onmouseleave = span.onblur = () => hide(span);
    return span;
  });
  const box = make("div", { className: "tokens", role: "listbox" }, ...spans);
  box.ariaLabel = phrase("message.tokens");
  box.onkeydown = (event) => move(event, spans);
  return box;
}

/** The bars of the alternatives {text, share, percent, chosen}, the most probable first. */
export function bars({ text, logprob, top }) {
  const chosen = top.findIndex((other) => other.text === text && other.logprob === logprob);
  const all = chosen < 0 ? [...top, { text, logprob }] : top;
  const chosenAt = chosen < 0 ? all.length - 1 : chosen;
  return all.map((other, at) => ({
    text: visible(other.text),
    share: Math.exp(other.logprob),
    percent: percent(other.logprob),
    chosen: at === chosenAt,
  }));
}

/** Text with visible white space. */
const visible = (text) =>
  text.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replaceAll(/^ +| +$/g, (run) => "␣".repeat(run.length)) || "∅";

/** A probability in percent with two digits: "0.020%", "7.1%", "98%". */
export function percent(logprob) {
  const share = Math.exp(logprob);
  return share < MIN_SHARE ? `< ${inPercent(MIN_SHARE, 1)}` : inPercent(share, DIGITS);
}

const inPercent = (share, digits) =>
  share.toLocaleString(language, { style: "percent", minimumSignificantDigits: digits, maximumSignificantDigits: digits });

function move(event, spans) {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const from = spans.indexOf(event.target);
  const to = spans[from + step];
  if (!to) return;
  event.preventDefault();
  spans[from].tabIndex = -1;
  to.tabIndex = 0;
  to.focus();
}

function show(span, token) {
  const tip = byId("alternatives");
  tip.replaceChildren(
    ...bars(token).map(({ text, share, percent: label, chosen }) => {
      const bar = make("span", { className: "track" }, make("span", { className: "fill" }));
      bar.style.setProperty("--share", share.toFixed(4));
      return make(
        "div",
        { className: chosen ? "alternative chosen" : "alternative" },
        make("code", {}, text), bar, make("span", { className: "share" }, label),
      );
    }),
  );
  tip.hidden = false;
  span.setAttribute("aria-describedby", tip.id);
  place(tip, span.getClientRects()[0] ?? span.getBoundingClientRect());
}

// Place it below the token, or above if there is no space, and always within the window.
function place(tip, token) {
  const { width, height } = tip.getBoundingClientRect();
  const below = token.bottom + MARGIN / 2;
  const top = below + height + MARGIN > innerHeight ? token.top - height - MARGIN / 2 : below;
  tip.style.left = `${Math.max(MARGIN, Math.min(token.left, innerWidth - width - MARGIN))}px`;
  tip.style.top = `${Math.max(MARGIN, top)}px`;
}

function hide(span) {
  span.removeAttribute("aria-describedby");
  byId("alternatives").hidden = true;
}
