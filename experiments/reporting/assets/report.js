"use strict";
// The page: one filter for everything, tables that sort, and charts that are drawn anew when something changes.

const data = JSON.parse(document.getElementById("data").textContent);
const columns = Object.fromEntries(data.columns.map((column) => [column.key, column]));
const chosen = { words: [], algorithm: "", front: false, across: "mean", up: "variance", curve: "mean", heat: {} };
const MOST_LINES = 8;
const redraw = [];

function passes(entry) {
  const text = entry.label.toLowerCase();
  return chosen.words.every((word) => text.includes(word)) && (!chosen.algorithm || entry.algorithm === chosen.algorithm) &&
    (!chosen.front || data.front.includes(entry.label));
}

function compare(a, b) {
  if (a === null || b === null) return (a === null) - (b === null);
  return typeof a === "string" || typeof b === "string" ? String(a).localeCompare(String(b)) : a - b;
}

function table(made) {
  const order = { column: -1, sign: 1 };
  const body = node("tbody");
  const heads = made.columns.map((column, i) => {
    const head = node("th", { scope: "col", "aria-sort": "none" }, node("button", { type: "button" }, column.title));
    head.firstChild.addEventListener("click", () => {
      Object.assign(order, { sign: order.column === i ? -order.sign : column.higher ? -1 : 1, column: i });
      heads.forEach((other, j) => other.setAttribute("aria-sort", j !== i ? "none" : order.sign > 0 ? "ascending" : "descending"));
      draw();
    });
    return head;
  });
  const draw = () => {
    const shown = made.rows.filter(passes);
    // What has no number stays at the end, whichever way the table is sorted.
    const by = (row) => row.cells[order.column][1];
    if (order.column >= 0) shown.sort((a, b) => (by(a) === null || by(b) === null ? 1 : order.sign) * compare(by(a), by(b)));
    body.replaceChildren(...shown.map((row) => node("tr", {}, ...row.cells.map(([text, , mark]) => node("td", { class: mark || null }, text)))));
  };
  redraw.push(draw);
  return node("section", {}, node("h2", {}, made.title),
    node("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": made.title }, node("table", {}, node("thead", {}, node("tr", {}, ...heads)), body)),
    node("ul", { class: "notes" }, ...made.notes.map((note) => node("li", {}, note))));
}

function chart(title, caption, controls, draw) {
  const place = node("div");
  const told = node("figcaption");
  redraw.push(() => { told.textContent = caption(); draw(place); });
  return node("section", {}, node("h2", {}, title), node("div", { class: "controls" }, ...controls), node("figure", {}, place, told));
}

function update(name) {
  return (value) => { chosen[name] = value; redraw.forEach((draw) => draw()); };
}

// The best settings that pass the filter, in the order of the table, each with its number: the same in curves and clients.
function drawn(entries) {
  const known = entries.filter(passes).slice(0, MOST_LINES);
  return known.sort((a, b) => a.place - b.place).map((entry, n) => ({ ...entry, n }));
}

function some(entries) {
  const all = entries.filter(passes).length;
  return all > MOST_LINES ? `the best ${MOST_LINES} of ${all} settings: filter to see others; ` : "";
}

function build() {
  document.getElementById("title").textContent = data.title;
  document.getElementById("about").textContent = data.about;
  const main = document.getElementById("main"), charts = node("div", { class: "charts" });
  main.append(...data.tables.map(table), charts);
  const numeric = data.columns.filter((column) => column.in_table).map((column) => [column.key, column.title]);
  if (data.points.length > 1) {
    charts.append(chart("Accuracy and fairness", () => "circles and dashes: Pareto front of what is shown; bars: std over seeds", [
      select("across", numeric, chosen.across, update("across")), select("up", numeric, chosen.up, update("up")),
    ], (place) => plane(place, data.points.filter(passes), data.algorithms, columns[chosen.across], columns[chosen.up])));
  }
  if (data.curves.length) {
    const metrics = Object.keys(data.curves[0].metrics).map((key) => [key, columns[key].title]);
    charts.append(chart("Over rounds", () => some(data.curves) + "bands: range over seeds", [select("metric", metrics, chosen.curve, update("curve"))],
      (place) => lines(place, drawn(data.curves).map((s) => ({ ...s, points: s.metrics[chosen.curve] })), { title: "round" },
        { title: columns[chosen.curve].title }, columns[chosen.curve].digits)));
  }
  if (data.clients.length) {
    charts.append(chart("Clients after the last round", () => some(data.clients) + "bands: 95 % intervals of clients that are tested on few examples (Wilson)", [],
      (place) => shares(place, drawn(data.clients))));
  }
  if (data.heat.length) {
    const maps = data.heat.map((map, i) => [String(i), `${map.algorithm}: ${map.names.join(", ")}`]);
    const metrics = Object.keys(data.heat[0].panels[0].cells).map((key) => [key, columns[key].title]);
    Object.assign(chosen, { map: "0", shade: data.metric in data.heat[0].panels[0].cells ? data.metric : metrics[0][0] });
    charts.append(chart("Over two numbers", () => "light is good; framed: best", [select("map", maps, "0", update("map")), select("metric", metrics, chosen.shade, update("shade"))],
      (place) => heat(place, data.heat[Number(chosen.map)], columns[chosen.shade])));
  }
  main.append(node("section", { class: "sources" }, node("h2", {}, "Where the numbers come from"),
    node("ul", {}, ...data.sources.map((line) => node("li", {}, line)))),
    node("section", {}, node("h2", {}, "Settings that all runs share"),
      node("dl", {}, ...Object.entries(data.settings).map(([name, value]) => node("div", {}, node("dt", {}, name), node("dd", {}, value))))),
    node("section", {}, node("h2", {}, "How to read the verdicts"), node("ul", {}, ...data.rules.map((line) => node("li", {}, line)))));
}

function listen() {
  const words = document.getElementById("words"), front = document.getElementById("front"), algorithm = document.getElementById("algorithm");
  algorithm.append(node("option", { value: "" }, "all"), ...data.algorithms.map((name) => node("option", { value: name }, name)));
  words.addEventListener("input", () => update("words")(words.value.toLowerCase().split(/\s+/).filter(Boolean)));
  algorithm.addEventListener("change", () => update("algorithm")(algorithm.value));
  front.addEventListener("change", () => update("front")(front.checked));
  front.parentElement.hidden = !data.front.length;
  document.getElementById("filter").addEventListener("submit", (event) => event.preventDefault());
  redraw.push(() => {
    document.getElementById("count").textContent = `${data.points.filter(passes).length} of ${data.points.length} settings`;
  });
  let wide = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== wide) redraw.forEach((draw) => draw());
    wide = window.innerWidth;
  });
  window.addEventListener("beforeprint", tip.hide);
}

build();
listen();
redraw.forEach((draw) => draw());
