"use strict";
// The report has an origin of its own and cannot be measured, so its frame has the height of the window.

const frame = document.getElementById("report");
if (frame) document.body.classList.add("with-report");
