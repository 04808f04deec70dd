// The name of the model, or a choice of several.

import { byId, make } from "./dom.js";

/** Show the models [{id}] with one selected. `choose(id)` is called when the user selects another. */
export function showModels(models, selected, choose) {
  const several = models.length > 1;
  byId("model").hidden = several;
  byId("models").hidden = !several;
  byId("model").textContent = byId("model").title = selected;
  byId("models").replaceChildren(...models.map(({ id }) => make("option", { value: id, selected: id === selected }, id)));
  byId("models").onchange = () => choose(byId("models").value);
}
