// Dark or light, before the first paint: a classic script, since modules run after it.
// It knows where the choice is kept; main.js changes it.
document.documentElement.dataset.theme = localStorage.getItem("hearth.theme") ?? "";
