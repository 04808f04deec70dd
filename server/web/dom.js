// Elements, made of a name, properties and children. It knows nothing of this page.

const SVG = "http://www.w3.org/2000/svg";

/** `make("p", {className: "x", ariaLabel: "y"}, "text", child)`; strings become text. */
export function make(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** A button with an icon of icons.svg and a name that is read out and shown on hover. */
export function iconButton(icon, label, onclick) {
  const button = make("button", { type: "button", className: "tool", title: label, onclick });
  button.ariaLabel = label;
  const picture = document.createElementNS(SVG, "svg");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `web/icons.svg#${icon}`);
  picture.setAttribute("aria-hidden", "true");
  picture.append(use);
  button.append(picture);
  return button;
}

export const byId = (id) => document.getElementById(id);
