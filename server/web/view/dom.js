// Create DOM elements from a name, properties and children.

const SVG = "http://www.w3.org/2000/svg";

/** `make("p", {className: "x", ariaLabel: "y"}, "text", child)`; strings become text. */
export function make(name, properties, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

/** A button with an icon of index.html. The label is its accessible name and its tooltip. */
export function iconButton(icon, label, onclick) {
  const button = make("button", { type: "button", className: "tool", title: label, onclick });
  button.ariaLabel = label;
  const picture = document.createElementNS(SVG, "svg");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `#icon-${icon}`);
  picture.setAttribute("aria-hidden", "true");
  picture.append(use);
  button.append(picture);
  return button;
}

/** The player of an attached sound. */
export const player = ({ name, sound }) => make("audio", { src: sound, controls: true, ariaLabel: name, title: name });

/** The picture of an attached image. */
export const picture = ({ name, image }) => make("img", { src: image, alt: name, title: name });

export const byId = (id) => document.getElementById(id);
