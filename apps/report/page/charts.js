// SPDX-License-Identifier: MIT
// apps/report/page/charts.js - curves and histograms as SVG. Each chart is a <figure> that draws itself to its width; a
// pointer or the arrow keys move a line over it, and the caption below says the values there.
"use strict";

const kChart = {height: 210, left: 52, right: 12, top: 14, bottom: 30};

function frameOf(width, height = kChart.height) {
  const box = {x0: kChart.left, x1: width - kChart.right, y0: kChart.top, y1: height - kChart.bottom};
  return {box, picture: svg("svg", {width, height, "aria-hidden": "true"})};
}

// Horizontal lines with numbers on the left; numbers below.
function axes(picture, box, x, y, xLabel) {
  for (const t of ticks(y.from, y.to, 4)) {
    const at = y.at(t);
    picture.append(svg("line", {x1: box.x0, x2: box.x1, y1: at, y2: at, stroke: colours.line}),
      svg("text", {x: box.x0 - 8, y: at + 4, "text-anchor": "end"}, tickText(t)));
  }
  for (const t of ticks(x.from, x.to, Math.max(2, (box.x1 - box.x0) / 90))) {
    if (x.whole && t % 1 !== 0) continue;
    picture.append(svg("text", {x: x.at(t), y: box.y1 + 18, "text-anchor": "middle"}, tickText(t)));
  }
  picture.append(svg("text", {x: box.x1, y: box.y1 + 32, "text-anchor": "end"}, xLabel));
}

// Values from `from` to `to` onto pixels from a to b, and back.
const scale = (from, to, a, b) => ({from, to,
  at: (v) => to > from ? a + (v - from) / (to - from) * (b - a) : (a + b) / 2,
  value: (p) => from + (p - a) / (b - a) * (to - from)});

function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const v of values) if (known(v)) { low = Math.min(low, v); high = Math.max(high, v); }
  return low <= high ? [low, high] : [0, 1];
}

function sortedQuantile(values, q) {
  const sorted = values.filter(known).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.round(q * (sorted.length - 1))] : 0;
}

function figure(title, unit, attributes = {}) {
  const caption = el("figcaption", {"aria-live": "polite"});
  const head = el("div", {class: "head"}, el("h3", {}, title, unit ? el("span", {class: "soft"}, ` ${unit}`) : null));
  const name = `${title}${unit ? " in " + unit : ""}; arrow keys read values`;
  const node = el("figure", {tabindex: "0", role: "group", "aria-label": name, ...attributes}, head);
  return {node, caption,
    legend(list) {
      head.append(el("ul", {class: "legend"}, ...list.map((s) =>
        el("li", {}, el("span", {class: "swatch", style: `background:var(--${s.colour})`}), s.name))));
    },
    show(picture) {
      node.querySelector("svg")?.remove();
      node.insertBefore(picture, caption);
    }};
}

// A pointer or the arrow keys choose one of n places; choose(-1) is none.
function readable(node, count, indexAt, choose) {
  let at = -1;
  const go = (index) => { at = index; choose(at); };
  node.addEventListener("pointermove", (event) => {
    const picture = node.querySelector("svg");
    if (picture) go(indexAt(event.clientX - picture.getBoundingClientRect().left));
  });
  node.addEventListener("pointerleave", () => go(-1));
  node.addEventListener("blur", () => go(-1));
  node.addEventListener("keydown", (event) => {
    const last = count() - 1;
    const to = {ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last}[event.key];
    if (to === undefined) return;
    event.preventDefault();
    go(Math.max(0, Math.min(last, to)));
  });
}

function pathOf(xs, ys, x, y) {
  let path = "", pen = "M";
  xs.forEach((value, i) => {
    if (!known(ys[i])) { pen = "M"; return; }
    path += `${pen}${x.at(value).toFixed(1)} ${y.at(Math.min(ys[i], y.to)).toFixed(1)}`;
    pen = "L";
  });
  return path;
}

// lineChart({title, unit, x: [...], xLabel, series: [{name, values, colour, fill, dots, x}], marks: [{x, text}], zero,
// clip, rest}): `clip` leaves out of the scale what lies far above the 99th percentile, and the caption says how many.
function lineChart({title, unit, x: xs, xLabel = "step", series, marks = [], zero = false, clip = false, rest = ""}) {
  const chart = figure(title, unit);
  const many = series.length > 1;
  if (many) chart.legend(series);
  chart.node.append(chart.caption);
  const all = series.flatMap((s) => s.values.filter(known));
  let [low, high] = extent(all);
  const top = 1.3 * sortedQuantile(all, 0.99);
  const above = clip && high > top && top > 0 ? all.filter((v) => v > top).length : 0;
  if (above) high = top;
  if (zero) low = Math.min(0, low);
  // One value, or always the same one, lies at the upper edge: an axis of percent must not pass 100 by much.
  if (high === low) [low, high] = low ? [low - 0.1 * Math.abs(low), low] : [0, 1];
  const pad = 0.06 * (high - low);
  const cut = above ? `${above} value${above > 1 ? "s" : ""} above ${number(top)} cut off.` : "";
  const quiet = [rest, cut].filter(Boolean).join(" ");
  chart.caption.textContent = quiet;

  let x = null, cursor = null, place = null;
  drawing(chart.node, (width) => {
    const {box, picture} = frameOf(width);
    const span = extent(series.flatMap((s) => s.x ?? xs));
    x = {...scale(span[0], span[1], box.x0, box.x1), whole: true};
    const y = scale(zero && low === 0 ? 0 : low - pad, high + pad, box.y1, box.y0);
    axes(picture, box, x, y, xLabel);
    for (const mark of marks) {
      const at = x.at(mark.x);
      picture.append(svg("line", {x1: at, x2: at, y1: box.y0, y2: box.y1, stroke: colours.ink,
          "stroke-dasharray": "2 3"}),
        svg("text", {class: "strong", x: at + (at > width / 2 ? -5 : 5), y: box.y0 + 8,
          "text-anchor": at > width / 2 ? "end" : "start"}, mark.text));
    }
    for (const s of series) {
      const at = s.x ?? xs;
      const path = pathOf(at, s.values, x, y);
      if (s.fill && path)
        picture.append(svg("path",
            {d: `${path}L${x.at(at[at.length - 1])} ${y.at(y.from)}L${x.at(at[0])} ${y.at(y.from)}Z`,
          fill: colours[s.colour]}));
      else
        picture.append(svg("path", {d: path, fill: "none", stroke: colours[s.colour], "stroke-width": 1.5,
            "stroke-linejoin": "round"}));
      if (s.dots || at.length < 2)
        s.values.forEach((v, i) => known(v) && picture.append(svg("circle",
            {cx: x.at(at[i]), cy: y.at(v), r: 3, fill: colours[s.colour]})));
    }
    cursor = svg("line", {y1: box.y0, y2: box.y1, stroke: colours.ink, visibility: "hidden"});
    picture.append(cursor);
    place = x;
    chart.show(picture);
  });
  const main = series[0].x ?? xs;
  const nearest = (list, value) =>
    list.reduce((best, v, i) => Math.abs(v - value) < Math.abs(list[best] - value) ? i : best, 0);
  readable(chart.node, () => main.length, (px) => nearest(main, place.value(px)), (i) => {
    if (!cursor || i < 0 || main.length === 0) {
      cursor?.setAttribute("visibility", "hidden");
      chart.caption.textContent = quiet;
      return;
    }
    const at = place.at(main[i]);
    for (const [name, value] of [["x1", at], ["x2", at], ["visibility", "visible"]]) cursor.setAttribute(name, value);
    const values = series.map((s) => {
      const v = s.x ? s.values[nearest(s.x, main[i])] : s.values[i];
      return `${many ? s.name + " " : ""}${number(v)}${unit && known(v) ? " " + unit : ""}`;
    });
    chart.caption.textContent = `${xLabel} ${main[i].toLocaleString("en")}: ${values.join(", ")}`;
  });
  return chart.node;
}

// histogram({title, unit, sets: [{name, values, colour}], quantiles, range, height, bins}): p50, p95 and p99 as lines,
// of the first set. With `range` several histograms share an axis.
function histogram({title, unit, sets, quantiles, range, height = kChart.height, what = "steps", bins = 40}) {
  const chart = figure(title, unit);
  if (sets.length > 1) chart.legend(sets);
  chart.node.append(chart.caption);
  const all = sets.flatMap((s) => s.values);
  let [from, to] = range ?? extent(all);
  if (from === to) { from -= 0.05 * (from || 1); to += 0.05 * (to || 1); }
  // A few steps far out would squeeze all others into one bar.
  const top = sortedQuantile(all, 0.99);
  const far = !range && to - from > 3 * (top - from) && top > from;
  if (far) to = from + 1.5 * (top - from);
  const beyond = all.filter((v) => v > to).length;
  const counts = sets.map((s) => {
    const out = new Array(bins).fill(0);
    for (const v of s.values)
      if (v >= from && v <= to) ++out[Math.min(bins - 1, Math.floor((v - from) / (to - from) * bins))];
    return out;
  });
  const most = Math.max(1, ...counts.flat());
  const text = quantiles ? `p50 ${number(quantiles.p50)}, p95 ${number(quantiles.p95)}, p99 ${ms(quantiles.p99)}` : "";
  const quiet = text + (beyond ? `; ${beyond} beyond ${ms(to)} not drawn` : "");
  chart.caption.textContent = quiet;

  let x = null, cursor = null;
  drawing(chart.node, (width) => {
    const {box, picture} = frameOf(width, height);
    const small = height < kChart.height;
    if (quantiles && !small) box.y0 += 30;
    x = scale(from, to, box.x0, box.x1);
    const y = scale(0, most, box.y1, box.y0);
    axes(picture, box, x, y, "");
    const step = (box.x1 - box.x0) / bins;
    counts.forEach((list, s) => list.forEach((count, i) => {
      if (count === 0) return;
      picture.append(svg("rect", {x: box.x0 + i * step + 0.5, y: y.at(count), width: Math.max(1, step - 1),
          height: y.at(0) - y.at(count),
        fill: colours[sets[s].colour], opacity: sets.length > 1 ? 0.65 : 1}));
    }));
    // On three heights: p95 and p99 are often neighbours.
    Object.entries(quantiles ?? {}).forEach(([name, value], i) => {
      if (value > to || value < from) return;
      const at = x.at(value), high = kChart.top - 2 + 12 * i, right = at > width - 120;
      picture.append(svg("line", {x1: at, x2: at, y1: small ? box.y0 : high + 2, y2: box.y1, stroke: colours.ink,
        "stroke-dasharray": "2 3"}));
      if (small) return;  // The caption says them; three labels would not fit.
      picture.append(svg("text", {class: "strong", x: at + (right ? -4 : 4), y: high + 6,
        "text-anchor": right ? "end" : "start"}, name));
    });
    cursor = svg("rect", {y: box.y0, height: box.y1 - box.y0, width: step, fill: colours.ink, opacity: 0.12,
        visibility: "hidden"});
    picture.append(cursor);
    chart.show(picture);
  });
  const bin = (to - from) / bins;
  readable(chart.node, () => bins, (px) => Math.floor((x.value(px) - from) / bin), (i) => {
    const inside = cursor && i >= 0 && i < bins;
    cursor?.setAttribute("visibility", inside ? "visible" : "hidden");
    if (inside) cursor.setAttribute("x", x.at(from + i * bin));
    chart.caption.textContent = inside
      ? `${number(from + i * bin)} to ${ms(from + (i + 1) * bin)}: `
          + sets.map((s, k) => `${counts[k][i]} ${what}${sets.length > 1 ? " of " + s.name : ""}`).join(", ")
      : quiet;
  });
  return chart.node;
}
