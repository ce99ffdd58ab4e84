"use strict";
// Shows a new link once.

document.getElementById("link-form").addEventListener("answered", ({ detail }) => {
  const place = document.getElementById("link");
  place.textContent = detail.link;
  place.hidden = false;
});
