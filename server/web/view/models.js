// The name of the model, or a choice of several; and the list of models in the settings.

import { language, phrase } from "../strings/phrase.js";
import { byId, make } from "./dom.js";

/** Show the models [{id, loaded}] with one selected. `choose(id)` is called when the user selects another. */
export function showModels(models, selected, choose) {
  const several = models.length > 1;
  byId("model").hidden = several;
  byId("models").hidden = !several;
  byId("model").textContent = byId("model").title = selected;
  const option = ({ id, loaded }) =>
    make("option", { value: id, selected: id === selected }, loaded ? id : phrase("bar.not_loaded", { model: id }));
  const version = JSON.stringify([models.map(({ id, loaded }) => [id, loaded]), selected]);
  // A list that is drawn again closes while the user chooses.
  if (byId("models").dataset.version !== version) byId("models").replaceChildren(...models.map(option));
  byId("models").dataset.version = version;
  byId("models").onchange = () => choose(byId("models").value);
}

/** List the models as api/server.js describes them. `load(id)` and `unload(id)` change what is loaded. */
export function showModelList(models, { load, unload }) {
  const list = byId("model-list");
  const version = JSON.stringify(models);
  // A list that is drawn again between the press and the release of a button loses the click.
  if (list.dataset.version === version) return;
  list.dataset.version = version;
  list.replaceChildren(...models.map((model) => item(model, { load, unload })));
}

function item({ id, context, loaded, loading, memory, pinned, failure }, { load, unload }) {
  const state = loading ? phrase("models.loading") : loaded ? phrase("models.loaded") : phrase("models.unloaded");
  const facts = [state, memory && bytes(memory), context && phrase("models.context", { count: context })];
  const head = make("div", { className: "entry" }, make("span", {}, id));
  const button = (label, run) => {
    const onclick = () => {
      pressed.disabled = true;
      run(id);
    };
    const pressed = make("button", { type: "button", className: "plain", onclick }, label);
    return pressed;
  };
  if (!loaded && !loading) head.append(button(phrase("models.load"), load));
  else if (loaded && !pinned) head.append(button(phrase("models.unload"), unload));
  const parts = [head, make("p", { className: "about" }, facts.filter(Boolean).join(" · "))];
  if (loading) parts.push(make("progress", { ariaLabel: phrase("models.loading") }));
  if (failure) parts.push(make("p", { className: "bad", role: "status" }, failure));
  return make("li", {}, ...parts);
}

function bytes(count) {
  const unit = count < 1e9 ? "megabyte" : "gigabyte";
  const value = count / (count < 1e9 ? 1e6 : 1e9);
  return value.toLocaleString(language, { style: "unit", unit, maximumSignificantDigits: 3 });
}
