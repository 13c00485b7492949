// SPDX-License-Identifier: MIT
// apps/report/page/sections.js - the parts of the page, one function each; main.js puts them in order.
"use strict";

const section = (id, title, ...children) => el("section", {id, "aria-labelledby": id + "-title"},
    el("h2", {id: id + "-title"}, title), ...children);
// A comparison of strategies shows the fastest of them in full.
const ofRun = data.of ? ` of ${data.of}` : "";
const explain = (...children) => el("p", {class: "explain"}, ...children);

function fillHeader() {
  document.getElementById("title").textContent = data.title;
  // A number and its unit stay on one line.
  document.getElementById("advice").textContent = data.advice.replace(/(\d) (ms|%|MiB|KiB|bytes)/g, "$1\u00a0$2");
  document.getElementById("figures").before(el("p", {class: "soft of"},
      data.of ? `Figures of ${data.of}, the fastest; medians` : "Medians over all steps but the first"));
  document.getElementById("figures").append(...data.summary.map(({label, value, unit, stress}) =>
    el("div", {class: stress ? "exposed" : null}, el("dt", {}, label),
      el("dd", {}, number(value), el("span", {class: "unit"}, unit)))));
  document.getElementById("facts").append(...data.facts.map(({label, value}) =>
    el("div", {class: label === "Command" ? "row" : value.length > 24 ? "wide" : null}, el("dt", {}, label),
      el("dd", {}, /^\d{5,}$/.test(value) ? Number(value).toLocaleString("en") : value))));
  const notes = document.getElementById("notes");
  notes.hidden = data.notes.length === 0;
  notes.append(...data.notes.map((note) => el("li", {}, note)));
}

function legend() {
  const item = (look, style, text) => el("li", {}, el("span", {class: "swatch " + look, style}), text);
  return el("ul", {class: "legend"},
    ...["forward", "backward", "optimizer"].map((kind) => item("", `background:var(--${kind})`, kind)),
    item("thin", "background:var(--bucket0)", "a bucket fills"),
    item("", "background:var(--bucket0)", "a bucket on the wire"),
    item("frame", "", "exposed"));
}

function timelineSection() {
  if (!data.timelines.length)
    return section("step", "One step" + ofRun, explain("This run has no timeline: the notes above say why."));
  const view = new TimelineView(data.timelines), player = new Player(view);
  const holder = el("div", {}, view.canvas);
  const out = section("step", "One step" + ofRun,
    explain("Each rank has two rows: ", el("b", {}, "what it computes above, what it communicates below"),
      ". A colour is a bucket of gradients; the thin bar between the rows is that bucket filling during backward. " +
      "Communication below backward costs nothing. What sticks out on the right is ",
      el("b", {class: "red"}, "exposed"), ": the step waits for it."),
    legend(), view.tools(), player.bar, holder, view.readout, player.node);
  drawing(holder, () => view.paint());
  return out;
}

function stepsSection() {
  const s = data.steps;
  if (!s.step.length) return null;
  const has = (name) => s[name].some((v) => known(v)), some = (name) => s[name].some((v) => known(v) && v !== 0);
  const marks = data.plan_changes.map((change) => ({x: change.step, text: "new plan"}));
  const charts = [lineChart({title: "Step time", unit: "ms", x: s.step, clip: true, zero: true, marks,
    series: [{name: "step", values: s.step_ms, colour: "accent"}]})];
  if (data.step_ms.values.length)
    charts.push(histogram({title: "How long steps take", unit: "ms", quantiles: data.step_ms.quantiles,
      sets: [{name: "steps", values: data.step_ms.values, colour: "accent"}]}));
  if (has("loss")) charts.push(lineChart({title: "Training loss", unit: "", x: s.step,
      series: [{name: "loss", values: s.loss, colour: "accent"}]}));
  const tests = data.evaluations;
  if (tests.some((e) => known(e.accuracy)))
    charts.push(lineChart({title: "Test accuracy", unit: "%", xLabel: "epoch", x: tests.map((e) => e.epoch + 1),
      series: [{name: "accuracy", values: tests.map((e) => known(e.accuracy) ? 100 * e.accuracy : null),
          colour: "accent", dots: tests.length < 60}],
      rest: `Last: ${percent(100 * (tests[tests.length - 1].accuracy ?? NaN))}`}));
  // Exposed stands on hidden, so that the upper edge is all communication.
  if (some("comm_ms"))
    charts.push(lineChart({title: "Communication of a step", unit: "ms", x: s.step, zero: true, clip: true, marks,
      series: [{name: "exposed", values: s.comm_ms, colour: "exposed", fill: true},
        {name: "hidden", values: s.hidden_ms, colour: "backward", fill: true}]}));
  if (some("bus_gb_s"))
    charts.push(lineChart({title: "Bus bandwidth", unit: "GB/s", x: s.step, zero: true, clip: true, marks,
      series: [{name: "bandwidth", values: s.bus_gb_s, colour: "accent"}],
      rest: marks.length ? "Dotted: the plan changed." : ""}));
  const thin = s.every > 1 ? ` Curves show every ${s.every}th step.` : "";
  const warm = data.warm_up
      ? ` Percentiles leave out the first ${data.warm_up} steps, in which memory and caches warm up.` : "";
  const count = s.step[s.step.length - 1].toLocaleString("en");
  return section("steps", "All steps" + ofRun,
    explain(`${count} steps.${warm}${thin} p95: 95 % of the steps are faster.`),
    el("div", {class: "grid"}, ...charts), changesList());
}

// What the planner did in the course of the run, in its own words.
function changesList() {
  if (!data.plan_changes.length) return null;
  const words = (change) => change.text || `Plan ${change.plan_epoch} from step ${change.step} on`;
  return el("div", {class: "changes"}, el("h3", {}, "Changes of the bucket plan"),
    el("ul", {}, ...data.plan_changes.map((change) => el("li", {}, words(change)))));
}

// Ready, wire and exposed on one scale for all rows.
function lifeBar(b, length) {
  const at = (t) => 100 * t / length, colour = bucketVariable(b.bucket);
  const picture = svg("svg", {viewBox: "0 0 100 16", preserveAspectRatio: "none", width: "100%", height: 18,
      "aria-hidden": "true"});
  picture.append(svg("rect", {x: 0, y: 8, width: 100, height: 8, style: "fill:var(--raised)"}),
    svg("rect", {x: at(b.first_ready_ms), y: 2, width: Math.max(0.4, at(b.ready_ms - b.first_ready_ms)), height: 3,
        style: `fill:${colour}`}),
    svg("rect", {x: at(b.start_ms), y: 8, width: Math.max(0.4, at(b.end_ms - b.start_ms)), height: 8,
        style: `fill:${colour}`}));
  const out = Math.min(b.exposed_ms, b.end_ms - b.start_ms);
  if (out > 0)
    picture.append(svg("rect", {x: at(b.end_ms - out), y: 8, width: Math.max(0.4, at(out)), height: 8,
      style: "fill:none;stroke:var(--exposed);stroke-width:2px", "vector-effect": "non-scaling-stroke"}));
  return picture;
}

// columns: [{head, unit, cell: (row) => text or element, number, kind}]; rows: anything; best(row): stress it.
function dataTable(id, name, columns, rows, best = () => false) {
  const kind = (c) => [c.number ? "number" : "", c.kind ?? ""].join(" ").trim() || null;
  const content = (c, row) => { const out = c.cell(row); return out instanceof Node ? out : String(out); };
  const head = (c) => el("th", {scope: "col", class: kind(c)}, c.head, c.unit ? el("div", {}, c.unit) : null);
  const line = (row) => el("tr", {class: best(row) ? "best" : null},
    ...columns.map((c) => el("td", {class: kind(c)}, content(c, row))));
  return el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": name},
    el("table", {class: "wide-table", id}, el("thead", {}, el("tr", {}, ...columns.map(head))),
      el("tbody", {}, ...rows.map(line))));
}

// A column of numbers with one number of decimals.
function numberColumn(head, unit, rows, value) {
  const format = column(rows.map(value));
  return {head, unit, number: true, cell: (row) => format(value(row))};
}

function bucketTable(buckets) {
  const worst = Math.max(...buckets.map((b) => b.exposed_ms)), length = Math.max(...buckets.map((b) => b.end_ms), 1e-3);
  const numbers = (head, unit, value) => numberColumn(head, unit, buckets, value),
      exposed = column(buckets.map((b) => b.exposed_ms));
  const latency = column(buckets.map((b) => b.latency.p99));  // One for the three: they are compared.
  const takes = (head, which) => ({head, unit: "ms", number: true, cell: (b) => latency(b.latency[which])});
  const dot = (b) => el("span", {class: "dot", style: `background:${bucketVariable(b.bucket)}`});
  const names = (b) => b.parameters.length > 1
    ? el("details", {}, el("summary", {}, b.label), el("ul", {}, ...b.parameters.map((name) => el("li", {}, name))))
    : b.label || "–";
  return dataTable("bucket-table", "Table of buckets", [
    {head: "Bucket", cell: (b) => el("span", {}, dot(b), String(b.bucket))},
    {head: "Gradients of", kind: "name", cell: names},
    {head: "Tensors", number: true, kind: "minor", cell: (b) => b.parameter_count},
    {head: "Size", number: true, cell: (b) => bytes(b.bytes)},
    {head: "Exposed", unit: "ms", number: true, cell: (b) => b.exposed_ms > 0 && b.exposed_ms === worst
      ? el("span", {class: "red"}, exposed(b.exposed_ms)) : exposed(b.exposed_ms)},
    numbers("Ready", "ms", (b) => b.ready_ms), numbers("Launch", "ms", (b) => b.launch_ms),
    numbers("End", "ms", (b) => b.end_ms),
    takes("Takes p50", "p50"), takes("p95", "p95"), takes("p99", "p99"),
    {head: "Life", unit: `0 to ${ms(length)}`, kind: "life", cell: (b) => lifeBar(b, length)}], buckets);
}

function bucketsSection() {
  const buckets = data.buckets;
  if (!buckets.length) return null;
  const range = [0, 1.15 * Math.max(...buckets.map((b) => b.latency.p99), 1e-3)];
  const one = (b) => histogram({title: `Bucket ${b.bucket}`, unit: "ms", quantiles: b.latency, range, height: 150,
    sets: [{name: "steps", values: b.latency_ms, colour: "bucket" + b.bucket % 5}], bins: 30});
  const kFirst = 8, grid = el("div", {class: "grid small"}, ...buckets.slice(0, kFirst).map(one));
  const more = buckets.length > kFirst ? el("button", {onclick: (event) => {
    grid.append(...buckets.slice(kFirst).map(one));
    event.target.remove();
  }}, `Show all ${buckets.length}`) : null;
  return section("buckets", "Buckets" + ofRun,
    explain("Medians of rank 0 under the last plan, counted from the begin of a step. A bucket is ready with its " +
      "last gradient, launched in order, and ends when its sum has come back. Its life in the last column: thin, it " +
      "fills; thick, it is on the wire; framed, it is exposed."),
    bucketTable(buckets), el("h3", {style: "margin-top:40px"}, "How long buckets take",
        el("span", {class: "soft"}, " on one scale")), grid, more);
}

function strategiesSection() {
  const all = data.strategies;
  if (!all.length) return null;
  const widest = Math.max(...all.map((s) => s.step_ms.quantiles.p50), 1e-3),
      best = Math.min(...all.map((s) => s.step_ms.quantiles.p50));
  const bar = (s) => {
    const step = s.step_ms.quantiles.p50, exposed = Math.min(step, s.exposed_ms ?? 0);
    const part = (value, colour, title) => el("span",
        {style: `width:${100 * value / widest}%;background:var(--${colour})`, title});
    return el("div", {}, part(step - exposed, "backward", `computation ${ms(step - exposed)}`),
        part(exposed, "exposed", `exposed ${ms(exposed)}`));
  };
  const numbers = (head, unit, value) => numberColumn(head, unit, all, value), q = (s) => s.step_ms.quantiles;
  const equal = (s) => s.equal_to_naive === undefined ? "–" : s.equal_to_naive ? "yes" : "no";
  const table = dataTable("strategy-table", "Table of strategies", [
    {head: "Strategy", cell: (s) => s.name}, {head: "A step", kind: "bar", cell: bar},
    numbers("p50", "ms", (s) => q(s).p50), numbers("p95", "ms", (s) => q(s).p95), numbers("p99", "ms", (s) => q(s).p99),
    numbers("Throughput", "images/s", (s) => s.images_per_s), numbers("Communication", "ms", (s) => s.comm_ms),
    numbers("Hidden", "ms", (s) => s.hidden_ms), numbers("Exposed", "ms", (s) => s.exposed_ms),
    numbers("Overlap", "%", (s) => s.overlap_pct),
    ...all.some((s) => "equal_to_naive" in s) ? [{head: "Equal to naive", cell: equal}] : []],
  all, (s) => q(s).p50 === best);
  return section("strategies", "Strategies side by side",
    explain("The same model on the same data; only when and in which pieces gradients travel differs. Grey is " +
      "computation, ", el("b", {class: "red"}, "red"), " is communication that a step waits for. All bars have one " +
      "scale, and so have the steps below."),
    table, ...strategyTimelines(all), strategyHistograms(all));
}

function strategyTimelines(all) {
  const drawn = all.filter((s) => s.timeline).map((s) => ({name: s.name, timeline: prepareTimeline(s.timeline)}));
  const length = Math.max(0, ...drawn.map((s) => s.timeline.length));
  return drawn.map(({name, timeline}) => {
    const canvas = el("canvas",
        {role: "img", "aria-label": `${name}: a step of rank 0 takes ${ms(timeline.length / 1000)}`});
    const holder = el("div", {}, canvas), view = {from: 0, to: length}, ranks = timeline.ranks.slice(0, 1);
    drawing(holder, (width) => paintTimeline(canvas, {ranks, view, plain: true, width}));
    return el("figure", {style: "margin-top:20px"}, el("h3", {}, name, el("span", {class: "soft"},
      ` rank ${ranks[0].rank}, step ${timeline.step}: ${ms(timeline.length / 1000)}`)), holder);
  });
}

function strategyHistograms(all) {
  const range = [Math.min(...all.map((s) => sortedQuantile(s.step_ms.values, 0))),
      Math.max(...all.map((s) => s.step_ms.quantiles.p99)) * 1.02];
  return el("div", {class: "grid small"}, ...all.map((s) => histogram({title: s.name, unit: "step, ms", range,
      height: 170, bins: 30,
    quantiles: s.step_ms.quantiles, sets: [{name: "steps", values: s.step_ms.values, colour: "accent"}]})));
}

function comparisonSection() {
  if (!data.runs.length) return null;
  const runs = [data, ...data.runs], letter = (i) => String.fromCharCode(65 + i % 26);
  const value = (run, label) => run.summary.find((s) => s.label === label);
  const labels = [...new Set(runs.flatMap((run) => run.summary.map((s) => s.label)))];
  const change = (own, base) => {
    if (!base || own === base || !base.value) return "";
    const sign = own.value >= base.value ? "+" : "";
    return own.unit === "%" ? ` (${sign}${number(own.value - base.value)} points)`
        : ` (${sign}${percent(100 * (own.value / base.value - 1))})`;
  };
  const cellOf = (run, label) => {
    const own = value(run, label);
    return own ? el("span", {}, `${number(own.value)} ${own.unit}`,
        el("span", {class: "soft"}, change(own, value(data, label)))) : "–";
  };
  const columns = (head, first, cell) => [{head, cell: first}, ...runs.map((run, i) =>
    ({head: letter(i), unit: run.directory, number: true, cell: (row) => cell(run, row, i)}))];
  const colour = (i) => ["accent", "second", "bucket1", "bucket2", "bucket4"][i % 5];
  const figures = dataTable("comparison-table", "Figures", columns("Figure", (label) => label, cellOf), labels);
  const flags = data.differences.length ? dataTable("difference-table", "Flags that differ",
    columns("Flag", (d) => d.key, (run, d, i) => d.values[i]), data.differences) : explain("All flags are the same.");
  const all = runs.map((run, i) => ({run, name: letter(i), colour: colour(i)}));
  const drawn = all.filter(({run}) => run.steps.step.length);
  const curves = (title, unit, name, options) => lineChart({title, unit, x: drawn[0].run.steps.step, ...options,
    series: drawn.map((d) => ({name: d.name, colour: d.colour, x: d.run.steps.step, values: d.run.steps[name]}))});
  const charts = drawn.length ? el("div", {class: "grid", style: "margin-top:36px"},
    curves("Training loss", "", "loss", {}),
    curves("Step time", "ms", "step_ms", {zero: true, clip: true}),
    histogram({title: "How long steps take", unit: "ms", sets: drawn.map((d) => ({name: d.name, colour: d.colour,
        values: d.run.step_ms.values}))}),
    curves("Exposed communication", "ms", "exposed_ms", {zero: true, clip: true})) : null;
  return section("comparison", "Comparison of runs",
      explain("A is the first run, and all other parts of this page are about it. In brackets: the change from A."),
    figures, el("h3", {style: "margin-top:32px"}, "What was different"), flags, charts);
}
