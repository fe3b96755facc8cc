"use strict";
// A label switches its line off and on.
document.querySelectorAll("figure .series .label").forEach(label => {
  const toggle = () => label.setAttribute("aria-pressed", !label.parentNode.classList.toggle("off"));
  label.setAttribute("role", "button");
  label.setAttribute("tabindex", "0");
  label.setAttribute("aria-pressed", "true");
  label.addEventListener("click", toggle);
  label.addEventListener("keydown", event => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(); }
  });
});
// What a point tells on its own after a while, it tells at once.
const tip = document.body.appendChild(document.createElement("output"));
document.querySelectorAll(".point").forEach(point => {
  const text = point.textContent;
  point.replaceChildren();
  point.addEventListener("pointerenter", event => {
    tip.textContent = text;
    tip.className = "shown";
    const left = Math.max(4, Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 4));
    tip.style.left = left + "px";
    tip.style.top = event.clientY + 14 + "px";
  });
  point.addEventListener("pointerleave", () => { tip.className = ""; });
});
