// SPDX-License-Identifier: MIT
// apps/report/page/main.js - puts the page together. When it is done, <html> says so (data-ready): tests wait for it.
"use strict";

fillHeader();
const made = [timelineSection(), stepsSection(), bucketsSection(), strategiesSection(), comparisonSection()];
const parts = made.filter(Boolean);
// What a comparison is about comes first in it.
const order = ["comparison", "strategies", "step", "steps", "buckets"];
parts.sort((a, b) => order.indexOf(a.id) - order.indexOf(b.id));
document.getElementById("main").replaceChildren(...parts);
document.getElementById("sections").append(...parts.map((part) =>
  el("a", {href: "#" + part.id}, part.querySelector("h2").textContent)));
if (data.runs.length) document.title += " and " + data.runs.map((run) => run.title).join(" and ");
document.documentElement.dataset.ready = "true";
