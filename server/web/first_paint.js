// Set dark or light mode before the first paint. This is a classic script because modules run later.
// view/theme.js stores the choice.
document.documentElement.dataset.theme = localStorage.getItem("hearth.theme") ?? "";
