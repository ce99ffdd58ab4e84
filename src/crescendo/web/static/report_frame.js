"use strict";
// The report has an origin of its own and cannot be measured, so its frame has the height of the window.

const frame = document.getElementById("report");
if (frame) document.body.classList.add("with-report");

// It follows the theme of this page, which it cannot see either.
const tellTheme = () => frame?.contentWindow?.postMessage({ theme: document.documentElement.dataset.theme }, "*");
frame?.addEventListener("load", tellTheme);
document.addEventListener("themed", tellTheme);
tellTheme();
