// The name of the model, or a choice of several.

import { phrase } from "../strings/phrase.js";
import { byId, make } from "./dom.js";

/** Show the models [{id, loaded}] with one selected. `choose(id)` is called when the user selects another. */
export function showModels(models, selected, choose) {
  const several = models.length > 1;
  byId("model").hidden = several;
  byId("models").hidden = !several;
  byId("model").textContent = byId("model").title = selected;
  const option = ({ id, loaded }) =>
    make("option", { value: id, selected: id === selected }, loaded ? id : phrase("bar.not_loaded", { model: id }));
  const version = JSON.stringify([models, selected]);
  // A list that is drawn again closes while the user chooses.
  if (byId("models").dataset.version !== version) byId("models").replaceChildren(...models.map(option));
  byId("models").dataset.version = version;
  byId("models").onchange = () => choose(byId("models").value);
}
