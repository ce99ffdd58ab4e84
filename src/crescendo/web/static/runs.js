"use strict";
// Up to five runs can be chosen for a comparison.

const choose = document.getElementById("choose");
const MAX = 5;

function count() {
  const boxes = [...choose.querySelectorAll('[name="run"]')];
  const chosen = boxes.filter((box) => box.checked).length;
  for (const box of boxes) box.disabled = !box.checked && chosen >= MAX;
  document.getElementById("compare").disabled = chosen < 2;
  document.getElementById("chosen-runs").hidden = chosen === 0;
  document.getElementById("chosen").textContent = chosen === 1 ? "1 chosen, take one more" : `${chosen} chosen`;
}

choose?.addEventListener("change", count);
if (choose) count();
