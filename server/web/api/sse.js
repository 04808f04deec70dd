// Parse server-sent events from pieces of text of any length (WHATWG HTML, 9.2.6).

/** Return a function that takes the next piece and returns the completed events {name, data, id}, where
 * `id` is the last one that the stream had, or "". */
export function eventParser() {
  let rest = "";
  let name = "";
  let id = "";
  let data = [];

  function line(text, events) {
    if (text === "") {
      if (data.length) events.push({ name: name || "message", data: data.join("\n"), id });
      name = "";
      data = [];
      return;
    }
    const [field, value] = split(text);
    if (field === "event") name = value;
    if (field === "id") id = value;
    if (field === "data") data.push(value);
  }

  return (text) => {
    const events = [];
    rest += text;
    // A CR at the very end may be half of a CR LF.
    for (let end; (end = /\r\n|\n|\r(?=[^])/.exec(rest)); ) {
      line(rest.slice(0, end.index), events);
      rest = rest.slice(end.index + end[0].length);
    }
    return events;
  };
}

// A line that starts with a colon is a comment. Its field is "".
function split(line) {
  const colon = line.indexOf(":");
  if (colon < 0) return [line, ""];
  const value = line.slice(colon + 1);
  return [line.slice(0, colon), value.startsWith(" ") ? value.slice(1) : value];
}
