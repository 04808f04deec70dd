// The sidebar: the list of conversations, its search field, and the menu of a conversation.

import { phrase } from "../strings/phrase.js";
import { byId, iconButton, make } from "./dom.js";

const DAY = 86_400_000; // milliseconds
const AGES = [
  [phrase("list.today"), 0],
  [phrase("list.yesterday"), 1],
  [phrase("list.week"), 7],
  [phrase("list.month"), 30],
  [phrase("list.older"), Infinity],
];

/**
 * Show conversations, the newest first. `current` is the id of the one that is shown, `running` a set
 * of ids with a running answer, `searched` whether the list is the result of a search. `actions` has
 * open, rename, exportOne and remove.
 */
export function showList(conversations, { current, running, searched, actions }) {
  const list = byId("conversations");
  const renaming = list.querySelector("input") !== null;
  const shown = conversations.map(({ id, title, updated }) => [id, title, ageOf(updated), running.has(id)]);
  const version = JSON.stringify([shown, current, searched]);
  // A list that is drawn again between the press and the release of a button loses the click.
  if (renaming || list.dataset.version === version) return;
  list.dataset.version = version;
  const focused = document.activeElement?.closest?.("#conversations [data-id]")?.dataset.id;
  const groups = Map.groupBy(conversations, ({ updated }) => ageOf(updated));
  const parts = [...groups].map(([age, members]) => {
    const items = members.map((conversation) => item(conversation, { current, running, actions }));
    return make("section", {}, make("h3", {}, age), make("ul", {}, ...items));
  });
  const nothing = searched ? phrase("list.nothing_found") : phrase("list.nothing");
  if (!parts.length) parts.push(make("p", { className: "nothing" }, nothing));
  list.replaceChildren(...parts);
  if (focused) list.querySelector(`[data-id="${focused}"] .title`)?.focus();
}

/** Bind the search field: `search(text)` is called when the user has typed. */
export function startSearch(search) {
  const field = byId("search");
  let timer = 0;
  field.oninput = () => {
    clearTimeout(timer);
    timer = setTimeout(() => search(field.value.trim()), 150);
  };
}

/** Show or hide the sidebar. On a narrow screen it covers the page. */
export function toggleSidebar(open = document.body.dataset.sidebar !== "open") {
  const covers = matchMedia("(max-width: 60rem)").matches;
  document.body.dataset.sidebar = open ? "open" : "closed";
  byId("toggle-sidebar").ariaExpanded = String(open);
  byId("backdrop").hidden = !(open && covers);
  byId("page").inert = open && covers;
  byId("sidebar").inert = !open;
  if (open && covers) byId("close-sidebar").focus();
}

/** Close the sidebar if it covers the page. Return whether it did. */
export function uncover() {
  const covered = !byId("backdrop").hidden;
  if (covered) {
    toggleSidebar(false);
    byId("toggle-sidebar").focus();
  }
  return covered;
}

function item(conversation, { current, running, actions }) {
  const { id, title } = conversation;
  const open = make("button", { type: "button", className: "title", title, onclick: () => actions.open(id) }, title);
  if (id === current) open.ariaCurrent = "page";
  const more = iconButton("more", phrase("list.actions_for", { title }), () => showMenu(more, conversation, actions));
  const box = make("li", { className: running.has(id) ? "conversation running" : "conversation" }, open, more);
  box.dataset.id = id;
  return box;
}

function showMenu(button, conversation, actions) {
  const menu = byId("menu");
  const entry = (label, run, className = "") => {
    const pick = () => {
      menu.hidePopover();
      run(conversation);
    };
    return make("button", { type: "button", role: "menuitem", className, onclick: pick }, label);
  };
  menu.replaceChildren(
    entry(phrase("list.rename"), () => rename(conversation, actions.rename)),
    entry(phrase("list.export"), actions.exportOne),
    entry(phrase("list.delete"), actions.remove, "danger-text"),
  );
  menu.onkeydown = moveInMenu;
  menu.showPopover({ source: button });
  const { bottom, right, top } = button.getBoundingClientRect();
  const { width, height } = menu.getBoundingClientRect();
  menu.style.left = `${Math.max(8, right - width)}px`;
  menu.style.top = `${bottom + height > innerHeight ? top - height : bottom}px`;
  menu.firstChild.focus();
}

function moveInMenu(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const entries = [...event.currentTarget.children];
  const to = (entries.indexOf(document.activeElement) + step + entries.length) % entries.length;
  entries[to].focus();
}

// Edit a title in place.
function rename(conversation, done) {
  const { id, title } = conversation;
  const box = byId("conversations").querySelector(`[data-id="${id}"]`);
  const field = make("input", { value: title, maxLength: 200, ariaLabel: phrase("list.title_field") });
  let ended = false;
  byId("conversations").dataset.version = "";
  const end = (newTitle) => {
    if (ended) return;
    ended = true;
    field.remove();
    done(conversation, newTitle.trim() || title);
  };
  field.onkeydown = (event) => {
    if (event.key === "Enter" && !event.isComposing) end(field.value);
    if (event.key === "Escape") {
      event.preventDefault();
      end(title);
    }
  };
  field.onblur = () => end(field.value);
  box.replaceChildren(field);
  field.focus();
  field.select();
}

function ageOf(updated) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  const days = Math.ceil((midnight - updated) / DAY);
  return AGES.find(([, age]) => days <= age)[0];
}
