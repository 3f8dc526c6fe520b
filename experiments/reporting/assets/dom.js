"use strict";
// Elements, numbers and the one tooltip. Text from the data only ever becomes text nodes and attributes, never markup.

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function node(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function shape(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function select(label, options, chosen, changed) {
  const made = node("select", {}, ...options.map(([value, text]) => node("option", { value }, text)));
  made.value = chosen;
  made.addEventListener("change", () => changed(made.value));
  return node("label", {}, label + " ", made);
}

function number(value, digits) {
  return value === null || value === undefined ? "n/a" : value.toFixed(digits);
}

const tip = {
  show(text, box) {
    const made = document.getElementById("tip");
    made.textContent = text;
    made.hidden = false;
    const own = made.getBoundingClientRect();
    const below = box.bottom + own.height + 8 < window.innerHeight;
    made.style.left = Math.max(4, Math.min(box.left + 12, window.innerWidth - own.width - 4)) + "px";
    made.style.top = (below ? box.bottom + 6 : Math.max(4, box.top - own.height - 6)) + "px";
  },
  hide() {
    document.getElementById("tip").hidden = true;
  },
  // What an element says while the pointer is over it, or while it has the focus.
  on(element, text) {
    element.setAttribute("tabindex", "0");
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", text.replaceAll("\n", ", "));
    for (const name of ["pointerenter", "focus"]) {
      element.addEventListener(name, () => tip.show(text, element.getBoundingClientRect()));
    }
    for (const name of ["pointerleave", "blur"]) element.addEventListener(name, tip.hide);
    return element;
  },
};
