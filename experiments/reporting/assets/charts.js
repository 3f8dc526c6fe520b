"use strict";
// Charts as SVG: each function takes a place, clears it and draws into it.

const DASHES = [null, "7 4", "8 3 2 3", "2 3"];
const SHADES = ["#00224e", "#35456c", "#666970", "#948e77", "#c8b866", "#fee838"]; // cividis
const MARKERS = [
  (r) => `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0Z`,
  (r) => `M${-r},${-r}h${2 * r}v${2 * r}h${-2 * r}Z`,
  (r) => `M0,${-1.3 * r}L${1.3 * r},0L0,${1.3 * r}L${-1.3 * r},0Z`,
  (r) => `M0,${-1.2 * r}L${1.2 * r},${r}H${-1.2 * r}Z`,
  (r) => `M0,${1.2 * r}L${1.2 * r},${-r}H${-1.2 * r}Z`,
  (r) => `M${-r / 2},${-1.2 * r}h${r}v${0.7 * r}h${0.7 * r}v${r}h${-0.7 * r}v${0.7 * r}h${-r}v${-0.7 * r}h${-0.7 * r}v${-r}h${0.7 * r}Z`,
  (r) => `M0,${-1.4 * r}L${0.4 * r},${-0.4 * r}L${1.4 * r},0L${0.4 * r},${0.4 * r}L0,${1.4 * r}L${-0.4 * r},${0.4 * r}L${-1.4 * r},0L${-0.4 * r},${-0.4 * r}Z`,
  (r) => `M${-1.2 * r},${-0.5 * r}h${2.4 * r}v${r}h${-2.4 * r}Z`,
];

// The look of the n-th thing: each time the colours begin anew, markers and dashes are moved on by one.
const color = (n) => `s${n % 8}`, marker = (n) => MARKERS[(n + Math.floor(n / 8)) % 8], dash = (n) => DASHES[(n + Math.floor(n / 8)) % 4];

function ticks(low, high, most) {
  const rough = (high - low || 1) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((s) => s >= rough);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push([i * step, (i * step).toFixed(digits)]);
  return found;
}

function extent(values, margin = 0.05) {
  let low = Math.min(...values), high = Math.max(...values);
  if (low === high) [low, high] = [low - (Math.abs(low) * 0.05 || 1), high + (Math.abs(high) * 0.05 || 1)];
  const extra = (high - low) * margin;
  return [low - extra, high + extra];
}

function axes(place, height, x, y) {
  const wide = Math.max(260, place.clientWidth || 640);
  const left = 52, bottom = 42, top = 12, right = 12;
  const sx = (v) => left + ((v - x.range[0]) / (x.range[1] - x.range[0])) * (wide - left - right);
  const sy = (v) => height - bottom - ((v - y.range[0]) / (y.range[1] - y.range[0])) * (height - top - bottom);
  const svg = shape("svg", { viewBox: `0 0 ${wide} ${height}`, role: "group", "aria-label": `${y.title} over ${x.title}` });
  for (const [v, text] of ticks(...x.range, Math.max(3, wide / 90))) {
    svg.append(shape("line", { class: "grid", x1: sx(v), x2: sx(v), y1: top, y2: height - bottom }));
    svg.append(shape("text", { x: sx(v), y: height - bottom + 16, "text-anchor": "middle" }, text));
  }
  for (const [v, text] of ticks(...y.range, 8)) {
    svg.append(shape("line", { class: "grid", x1: left, x2: wide - right, y1: sy(v), y2: sy(v) }));
    svg.append(shape("text", { x: left - 6, y: sy(v) + 4, "text-anchor": "end" }, text));
  }
  svg.append(shape("path", { class: "axis", d: `M${left},${top}V${height - bottom}H${wide - right}` }));
  svg.append(shape("text", { x: (left + wide - right) / 2, y: height - 6, "text-anchor": "middle" }, x.title));
  const middle = (top + height - bottom) / 2;
  svg.append(shape("text", { x: 12, y: middle, transform: `rotate(-90 12 ${middle})`, "text-anchor": "middle" }, y.title));
  place.replaceChildren(svg);
  return { svg, sx, sy, left, right: wide - right, top, bottom: height - bottom };
}

function nothing(place, why) {
  place.replaceChildren(node("p", { class: "notes" }, why));
}

function legend(entries) {
  return node("ul", { class: "legend" }, ...entries.map(([n, text, line]) => node("li", { class: color(n) },
    shape("svg", { viewBox: "0 0 34 12", "aria-hidden": "true" },
      ...(line ? [shape("path", { class: "series", d: "M0,6H34", "stroke-dasharray": dash(n) })] : []),
      shape("path", { class: "spot", d: marker(n)(4), transform: "translate(17 6)" })), text)));
}

// Settings by two columns, with the front of those rivals that no other beats in one without losing in the other.
function plane(place, points, algorithms, across, up) {
  const known = points.filter((p) => p.values[across.key] && p.values[up.key]);
  if (!known.length) return nothing(place, "no setting to show");
  const scaled = (p, column, i) => p.values[column.key][i] * column.scale;
  const ends = (column) => known.flatMap((p) => [-1, 1].map((s) => scaled(p, column, 0) + s * scaled(p, column, 1)));
  const chart = axes(place, 380,
    { title: `${across.title} (${across.higher ? "right" : "left"} is better)`, range: extent(ends(across)) },
    { title: `${up.title} (${up.higher ? "up" : "down"} is better)`, range: extent(ends(up)) });
  const at = (p) => [chart.sx(scaled(p, across, 0)), chart.sy(scaled(p, up, 0))];
  const rank = (p, column) => (column.higher ? -1 : 1) * p.values[column.key][0];
  const beats = (p, q) => rank(p, across) <= rank(q, across) && rank(p, up) <= rank(q, up) &&
    (rank(p, across) < rank(q, across) || rank(p, up) < rank(q, up));
  const rivals = known.filter((p) => p.rival);
  const front = rivals.filter((q) => !rivals.some((p) => beats(p, q))).sort((p, q) => rank(p, across) - rank(q, across));
  if (front.length) chart.svg.append(shape("path", { class: "edge", d: "M" + front.map((p) => at(p).join(",")).join("L") }));
  for (const p of known) {
    const n = algorithms.indexOf(p.algorithm), [x, y] = at(p);
    const text = [p.label, ...[across, up].map((column) => `${column.title}: ${number(scaled(p, column, 0), column.digits)}` +
      (p.seeds > 1 ? ` ± ${number(scaled(p, column, 1), column.digits)}` : "")), ...p.told, `${p.seeds} seeds`].join("\n");
    const bars = [[across, "x", x], [up, "y", y]].map(([column, axis, middle]) => {
      const scale = axis === "x" ? chart.sx : chart.sy, mean = scaled(p, column, 0), std = scaled(p, column, 1);
      const ends = { [axis + 1]: scale(mean - std), [axis + 2]: scale(mean + std) }, other = axis === "x" ? "y" : "x";
      return shape("line", { class: "bar", ...ends, [other + 1]: axis === "x" ? y : x, [other + 2]: axis === "x" ? y : x });
    });
    const ring = front.includes(p) ? [shape("circle", { class: "ring", cx: x, cy: y, r: 10 })] : [];
    const spot = shape("path", { class: "spot", d: marker(n)(5.5), transform: `translate(${x} ${y})` });
    chart.svg.append(tip.on(shape("g", { class: `point ${color(n)}`, "data-label": p.label }, ...bars, ...ring, spot), text));
  }
  const shown = algorithms.filter((a) => known.some((p) => p.algorithm === a));
  place.append(legend(shown.map((a) => [algorithms.indexOf(a), a, false])));
}

// Lines with bands; what the pointer is over is told for all lines at once.
function lines(place, series, x, y, digits) {
  if (!series.length) return nothing(place, "no setting to show");
  const every = series.flatMap((s) => s.points);
  const chart = axes(place, 320, { title: x.title, range: x.range || extent(every.map((p) => p[0]), 0) },
    { title: y.title, range: y.range || extent(every.flatMap((p) => [p[1], p[2] ?? p[1], p[3] ?? p[1]])) });
  const path = (points, i) => points.map((p) => `${chart.sx(p[0])},${chart.sy(p[i])}`);
  for (const s of series) {
    const step = Math.max(1, Math.ceil(s.points.length / 8)), made = shape("g", { class: color(s.n), "data-label": s.label });
    if (s.points[0].length > 2) made.append(shape("path", { class: "band", d: "M" + [...path(s.points, 2), ...path(s.points, 3).reverse()].join("L") + "Z" }));
    made.append(shape("path", { class: "series", d: "M" + path(s.points, 1).join("L"), "stroke-dasharray": dash(s.n) }));
    s.points.filter((_, i) => i % step === s.n % step).forEach((p) =>
      made.append(shape("path", { class: "spot", d: marker(s.n)(4), transform: `translate(${chart.sx(p[0])} ${chart.sy(p[1])})` })));
    chart.svg.append(made);
  }
  const guide = shape("line", { class: "guide", y1: chart.top, y2: chart.bottom, visibility: "hidden" });
  const over = shape("rect", { class: "over", x: chart.left, y: chart.top, width: chart.right - chart.left, height: chart.bottom - chart.top, fill: "transparent" });
  over.addEventListener("pointermove", (event) => {
    const box = chart.svg.getBoundingClientRect(), at = ((event.clientX - box.left) / box.width) * chart.svg.viewBox.baseVal.width;
    const near = (points) => points.reduce((a, b) => (Math.abs(chart.sx(b[0]) - at) < Math.abs(chart.sx(a[0]) - at) ? b : a));
    const place = near(every)[0];
    fill(guide, { x1: chart.sx(place), x2: chart.sx(place), visibility: "visible" }, []);
    const told = series.map((s) => `${s.label}: ${number(near(s.points)[1], digits)}`);
    tip.show([`${x.title} ${number(place, x.digits || 0)}`, ...told].join("\n"), { left: event.clientX, top: event.clientY, bottom: event.clientY + 12 });
  });
  over.addEventListener("pointerleave", () => { guide.setAttribute("visibility", "hidden"); tip.hide(); });
  chart.svg.append(guide, over);
  place.append(legend(series.map((s) => [s.n, s.label, true])));
}

// The clients of each setting, sorted: the share that is at or below an accuracy, with intervals across.
function shares(place, series) {
  if (!series.length) return nothing(place, "no finished run to show");
  const chart = axes(place, 320, { title: "accuracy of a client, %", range: [0, 100] }, { title: "share of clients at or below", range: [0, 1] });
  for (const s of series) {
    const path = (values) => values.map((v, i) => `${chart.sx(v)},${chart.sy(i / (values.length - 1))}`);
    const step = Math.max(1, Math.ceil(s.accuracy.length / 8));
    const made = shape("g", { class: color(s.n), "data-label": s.label },
      shape("path", { class: "band", d: "M" + [...path(s.low), ...path(s.high).reverse()].join("L") + "Z" }),
      shape("path", { class: "series", d: "M" + path(s.accuracy).join("L"), "stroke-dasharray": dash(s.n) }));
    path(s.accuracy).filter((_, i) => i % step === s.n % step).forEach((at) =>
      made.append(shape("path", { class: "spot", d: marker(s.n)(4), transform: `translate(${at})` })));
    const told = (share) => number(s.accuracy[Math.round(share * (s.accuracy.length - 1))], 1);
    chart.svg.append(tip.on(made, `${s.label}\nworst ${told(0)} %, quartiles ${told(0.25)}, ${told(0.5)}, ${told(0.75)} %, best ${told(1)} %`));
  }
  place.append(legend(series.map((s) => [s.n, s.label, true])));
}

function shade(tone) {
  const at = tone * (SHADES.length - 1), i = Math.min(SHADES.length - 2, Math.floor(at)), part = at - i;
  const channel = (text, k) => parseInt(text.slice(1 + 2 * k, 3 + 2 * k), 16);
  return `rgb(${[0, 1, 2].map((k) => Math.round(channel(SHADES[i], k) * (1 - part) + channel(SHADES[i + 1], k) * part)).join(" ")})`;
}

// One metric over two numbers; light is good, whichever way the metric goes.
function heat(place, map, column) {
  const every = map.panels.flatMap((panel) => panel.cells[column.key].flat()).filter((v) => v !== null);
  if (!every.length) return nothing(place, "every setting diverged");
  const low = Math.min(...every), high = Math.max(...every), best = column.higher ? high : low;
  place.replaceChildren(...map.panels.map((panel) => {
    const left = 52, top = 8, wide = Math.max(260, Math.min(place.clientWidth || 640, 110 * map.across.length + left)), tall = 44;
    const step = (wide - left) / map.across.length, height = top + tall * map.up.length + 42;
    const svg = shape("svg", { viewBox: `0 0 ${wide} ${height}`, style: `max-width: ${wide}px`, role: "group", "aria-label": `${column.title} over ${map.names.join(" and ")}` });
    panel.cells[column.key].forEach((row, j) => row.forEach((value, i) => {
      const y = top + tall * (map.up.length - 1 - j), x = left + step * i;
      const tone = value === null ? 0 : high === low ? 0.5 : (value - low) / (high - low), light = column.higher ? tone : 1 - tone;
      const text = value === null ? panel.notes[j][i] || "none" : number(value * column.scale, column.digits);
      const made = shape("g", { class: "point" },
        shape("rect", { class: "cell", x, y, width: step, height: tall, fill: value === null ? "#999" : shade(light) }),
        ...(value === best ? [shape("rect", { class: "chosen", x: x + 2, y: y + 2, width: step - 4, height: tall - 4 })] : []),
        shape("text", { x: x + step / 2, y: y + tall / 2 + 4, "text-anchor": "middle", style: `fill: ${value !== null && light < 0.5 ? "#fff" : "#000"}` }, text));
      svg.append(tip.on(made, `${map.algorithm} ${map.names[0]}=${map.across[i]} ${map.names[1]}=${map.up[j]} ${panel.title}\n${column.title}: ${text}`));
    }));
    map.across.forEach((text, i) => svg.append(shape("text", { x: left + step * (i + 0.5), y: height - 26, "text-anchor": "middle" }, text)));
    map.up.forEach((text, j) => svg.append(shape("text", { x: left - 6, y: top + tall * (map.up.length - 0.5 - j) + 4, "text-anchor": "end" }, text)));
    svg.append(shape("text", { x: (left + wide) / 2, y: height - 6, "text-anchor": "middle" }, map.names[0]));
    const middle = top + (tall * map.up.length) / 2;
    svg.append(shape("text", { x: 12, y: middle, transform: `rotate(-90 12 ${middle})`, "text-anchor": "middle" }, map.names[1]));
    return node("figure", {}, svg, ...(panel.title ? [node("figcaption", {}, panel.title)] : []));
  }));
}
