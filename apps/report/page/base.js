// SPDX-License-Identifier: MIT
// apps/report/page/base.js - what all scripts of the page share: the data, elements, numbers with units, colours. The
// scripts are one text in the order base, charts, timeline, timeline_view, play, sections, main.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);

// el("p", {class: "soft"}, "text", child, …): text never becomes markup, whatever a file says.
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const known = (x) => typeof x === "number" && Number.isFinite(x);
const minus = (text) => text.replace("-", "\u2212");

// Three digits: 118, 11.8, 1.18; times in milliseconds never finer than a microsecond.
function digits(x) {
  const size = Math.abs(x);
  return minus(x.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 || size === 0 ? 2 : 3));
}
const number = (x) => known(x) ? (Math.abs(x) >= 1000 ? minus(Math.round(x).toLocaleString("en")) : digits(x)) : "–";
const ms = (x) => known(x) ? digits(x) + "\u00a0ms" : "–";
// For a column of a table: one number of decimals for all of it.
function column(values) {
  const most = Math.max(0, ...values.filter(known).map(Math.abs)), decimals = most >= 1000 ? 0 : most >= 10 ? 1 : 2;
  const format = {minimumFractionDigits: decimals, maximumFractionDigits: decimals};
  return (x) => known(x) ? minus(x.toLocaleString("en", format)) : "–";
}
const percent = (x) => known(x) ? minus(x.toFixed(Math.abs(x) < 10 ? 1 : 0)) + "\u00a0%" : "–";
function bytes(x) {
  if (!known(x)) return "–";
  if (x >= 1048576) return digits(x / 1048576) + "\u00a0MiB";
  return x >= 1024 ? digits(x / 1024) + "\u00a0KiB" : x + "\u00a0bytes";
}

// Ticks of an axis: multiples of 1, 2 or 5 times a power of ten.
function ticks(from, to, count) {
  const rough = (to - from) / Math.max(1, count);
  if (!(rough > 0)) return [from];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * (1 - 1e-9));
  const out = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to + 1e-9 * step; ++i) out.push(+(i * step).toPrecision(12));
  return out;
}
const tickText = (x) => minus(Math.abs(x) >= 10000 ? x.toLocaleString("en") : String(+x.toPrecision(6)));

// Colours as page.css has them now; read again when the system changes between light and dark.
let colours = {};
function readColours() {
  const style = getComputedStyle(document.documentElement);
  const names = ["page", "raised", "ink", "soft", "line", "strong", "accent", "second", "exposed", 
    "forward", "backward", "optimizer", "data", "other", "on-bucket", "bucket0", "bucket1", "bucket2", "bucket3",
    "bucket4"];
  for (const name of names) colours[name] = style.getPropertyValue("--" + name).trim();
}
readColours();
const bucketVariable = (bucket) => `var(--bucket${bucket % 5})`;
const bucketColour = (bucket) => colours["bucket" + bucket % 5];

// Everything that draws registers here, and is drawn again when width or colours change.
const drawings = [];
function drawing(container, draw) {
  let width = 0;
  const redraw = () => {
    if (container.clientWidth > 0) draw(width = container.clientWidth);
  };
  drawings.push(redraw);
  // Only the width counts: drawing changes the height, and must not draw again for it.
  new ResizeObserver(() => { if (container.clientWidth !== width) redraw(); }).observe(container);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  readColours();
  for (const redraw of drawings) redraw();
});

// The one tooltip, beside a point of the window.
const tip = document.getElementById("tip");
function showTip(content, x, y) {
  tip.replaceChildren(content);
  tip.hidden = false;
  const box = tip.getBoundingClientRect(), gap = 14;
  tip.style.left = Math.max(8, Math.min(x + gap, innerWidth - box.width - 8)) + "px";
  tip.style.top = (y + gap + box.height > innerHeight - 8 ? Math.max(8, y - gap - box.height) : y + gap) + "px";
}
function hideTip() { tip.hidden = true; }
addEventListener("scroll", hideTip, {passive: true});

// A title and rows of name and value.
function card(title, rows) {
  return el("div", {}, el("b", {}, title), el("table", {}, el("tbody", {}, ...rows.map(([name, value]) =>
    el("tr", {}, el("th", {}, name), el("td", {}, value))))));
}

// Intervals [begin, end] in order, those that touch or are less than `gap` apart made one.
function mergeIntervals(intervals, gap = 0) {
  const out = [];
  for (const [begin, end] of [...intervals].sort((a, b) => a[0] - b[0])) {
    const last = out[out.length - 1];
    if (last && begin <= last[1] + gap) last[1] = Math.max(last[1], end);
    else out.push([begin, end]);
  }
  return out;
}
