"use strict";
// Before the first paint, so that no page flashes in the other theme.
(() => {
  const chosen = localStorage.getItem("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = chosen ?? (dark ? "dark" : "light");
})();
