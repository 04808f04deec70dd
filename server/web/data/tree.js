// The messages of a conversation as a tree, given as a Map from id to message.

/** The messages from the first one to `leaf`. A leaf that does not exist counts as the newest. */
export function pathTo(messages, leaf) {
  const path = [];
  const seen = new Set(); // a stored tree may be damaged
  let at = messages.get(leaf) ?? newest([...messages.values()]);
  while (at && !seen.has(at.id)) {
    seen.add(at.id);
    path.unshift(at);
    at = messages.get(at.parent);
  }
  return path;
}

/** The messages with the same parent as this one, oldest first. */
export function siblings(messages, { parent }) {
  return [...messages.values()]
    .filter((message) => message.parent === parent)
    .sort((a, b) => a.created - b.created || (a.id < b.id ? -1 : 1));
}

/** The message `id` and all that follow it on any branch. */
export function branchFrom(messages, id) {
  const branch = new Set([messages.get(id)]);
  for (const { id: parent } of branch) {
    for (const message of messages.values()) if (message.parent === parent) branch.add(message);
  }
  return [...branch];
}

/** The id of the last message of the newest branch through the message `id`. */
export function leafBelow(messages, id) {
  const seen = new Set();
  for (;;) {
    seen.add(id);
    const next = newest([...messages.values()].filter(({ parent }) => parent === id));
    if (!next || seen.has(next.id)) return id;
    id = next.id;
  }
}

const newest = (list) => list.reduce((a, b) => (a && a.created > b.created ? a : b), undefined);
