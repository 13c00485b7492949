// SPDX-License-Identifier: MIT
// apps/report/page/timeline_view.js - the timeline as something to use: choose step and rank, zoom by wheel, buttons
// and keys, drag, pinch, hover. Paints with timeline.js; play.js moves its clock.
"use strict";

const bucketInfo = new Map(data.buckets.map((b) => [b.bucket, b]));

function bucketCard(rank, b) {
  const info = bucketInfo.get(b.bucket), us = (t) => ms(t / 1000);
  const rows = [["Gradients ready", `${us(b.firstReady)} to ${us(b.lastReady)}`], ["Launched", us(b.launch)],
    ["On the wire", `${us(b.start)} to ${us(b.end)}`], ["Takes", us(b.end - b.start)]];
  if (b.start - b.launch > 1) rows.push(["Waited for the wire", us(b.start - b.launch)]);
  if (b.exposed !== null) rows.push(["Exposed", us(b.exposed)]);
  if (info) rows.unshift(["Size", `${bytes(info.bytes)}, ${info.parameter_count} parameters`]);
  return card(`Bucket ${b.bucket}${info && info.label ? ": " + info.label : ""}, rank ${rank.rank}`, rows);
}

function spanCard(rank, span) {
  return card(`${span.name}, rank ${rank.rank}`, [["Part of", span.kind], ["Begins", ms(span.begin / 1000)],
    ["Takes", ms((span.end - span.begin) / 1000)]]);
}

// One line of what card() shows, for the line below the picture that is read out.
function lineOf(node) {
  const rows = [...node.querySelectorAll("tr")];
  const parts = rows.map((row) => `${row.cells[0].textContent.toLowerCase()} ${row.cells[1].textContent}`);
  return [node.querySelector("b").textContent, ...parts].join(", ") + ".";
}

class TimelineView {
  constructor(timelines) {
    this.timelines = timelines;
    this.prepared = [];
    this.only = null;  // A rank, or all.
    this.chosen = null;
    this.now = null;
    this.changed = () => {};
    this.hint = "Move over the picture to read it. Drag to move, wheel to zoom (with Ctrl, or after a click). " +
      "Keys: ← → move, + − zoom, 0 whole step, [ ] choose a bucket, space plays.";
    this.canvas = el("canvas", {class: "grab", tabindex: "0", role: "img", id: "timeline",
        "aria-describedby": "timeline-readout"});
    this.readout = el("p", {class: "readout", id: "timeline-readout", "aria-live": "polite"}, this.hint);
    // A step in the middle: the first of a window is the coldest.
    this.show(Math.floor(timelines.length / 2));
    this.listen();
  }

  get ranks() {
    return this.only === null ? this.timeline.ranks : this.timeline.ranks.filter((r) => r.rank === this.only);
  }

  // Unpacks a step when it is first looked at: of large worlds there are a hundred thousand spans.
  show(index) {
    this.index = index;
    const timeline = this.timeline = this.prepared[index] ??= prepareTimeline(this.timelines[index]);
    this.view = {from: 0, to: timeline.length};
    this.now = null;
    const exposed = Math.max(...timeline.ranks.map((r) => r.exposed ?? 0)), buckets = timeline.ranks[0].buckets.length;
    this.canvas.setAttribute("aria-label",
        `Timeline of step ${timeline.step}: ${timeline.ranks.length} ranks, ${buckets} buckets, ` +
      `${ms(timeline.length / 1000)}; at most ${ms(exposed / 1000)} exposed`);
    this.canvas.dataset.spans = timeline.ranks.reduce((n, r) => n + r.spans.length + r.buckets.length, 0);
    this.paint();
    this.changed();
  }

  paint() {
    const width = this.canvas.parentElement?.clientWidth;
    if (!width) return;
    this.layout = paintTimeline(this.canvas, {ranks: this.ranks, view: this.view, chosen: this.chosen, now: this.now,
        width});
  }

  // One painting a frame, however many events come.
  later() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.paint(); });
  }

  // Around `centre` (microseconds); never beyond the step, never closer than a microsecond.
  zoom(factor, centre = (this.view.from + this.view.to) / 2) {
    const length = this.timeline.length, span = Math.min(length, Math.max(1, (this.view.to - this.view.from) * factor));
    const share = (centre - this.view.from) / (this.view.to - this.view.from);
    this.moveTo(centre - share * span, span);
  }

  moveTo(from, span = this.view.to - this.view.from) {
    from = Math.max(0, Math.min(this.timeline.length - span, from));
    this.view = {from, to: from + span};
    this.later();
  }

  choose(bucket) {
    this.chosen = bucket;
    this.later();
  }

  usAt(event) { return axisFor(this.layout, this.view).us(event.clientX - this.canvas.getBoundingClientRect().left); }

  hover(event) {
    const box = this.canvas.getBoundingClientRect();
    const hit = hitTimeline(this.layout, this.ranks, this.view, event.clientX - box.left, event.clientY - box.top);
    if (!hit) {
      hideTip();
      this.choose(null);
      this.readout.textContent = this.hint;
      return;
    }
    const content = hit.bucket ? bucketCard(hit.rank, hit.bucket) : spanCard(hit.rank, hit.span);
    this.readout.textContent = lineOf(content);
    showTip(content, event.clientX, event.clientY);
    this.choose(hit.bucket ? hit.bucket.bucket : null);
  }

  // [ and ] go through the buckets of the first rank in view, and bring them into view.
  next(step) {
    const rank = this.ranks[0], list = rank.buckets;
    if (!list.length) return;
    const at = list.findIndex((b) => b.bucket === this.chosen);
    const b = list[at < 0 ? (step > 0 ? 0 : list.length - 1) : Math.max(0, Math.min(list.length - 1, at + step))];
    if (b.start < this.view.from || b.end > this.view.to)
      this.moveTo((b.start + b.end - this.view.to + this.view.from) / 2);
    this.choose(b.bucket);
    this.readout.textContent = lineOf(bucketCard(rank, b));
  }

  listen() {
    const canvas = this.canvas, pointers = new Map();
    let pinch = 0;
    canvas.addEventListener("wheel", (event) => {
      // The page scrolls past the picture unless asked not to.
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY))
        this.moveTo(this.view.from + event.deltaX * this.usPerPixel());
      else this.zoom(1.0015 ** event.deltaY, this.usAt(event));
    }, {passive: false});
    canvas.addEventListener("pointerdown", (event) => {
      pointers.set(event.pointerId, event);
      canvas.setPointerCapture(event.pointerId);
      canvas.className = "grabbing";
      pinch = 0;
    });
    const up = (event) => {
      pointers.delete(event.pointerId);
      canvas.className = "grab";
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId);
      if (!before) return this.hover(event);
      pointers.set(event.pointerId, event);
      hideTip();
      if (pointers.size === 2) {
        const [a, b] = [...pointers.values()], distance = Math.abs(a.clientX - b.clientX) + 1;
        if (pinch) this.zoom(pinch / distance, this.usAt({clientX: (a.clientX + b.clientX) / 2}));
        pinch = distance;
      } else this.moveTo(this.view.from - (event.clientX - before.clientX) * this.usPerPixel());
    });
    canvas.addEventListener("click", (event) => this.hover(event));  // A finger does not hover.
    canvas.addEventListener("dblclick", (event) => this.zoom(0.5, this.usAt(event)));
    canvas.addEventListener("pointerleave",
        () => { hideTip(); this.choose(null); this.readout.textContent = this.hint; });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  usPerPixel() { return (this.view.to - this.view.from) / (this.layout.width - this.layout.left - this.layout.right); }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const span = this.view.to - this.view.from;
    const actions = {ArrowLeft: () => this.moveTo(this.view.from - 0.15 * span),
        ArrowRight: () => this.moveTo(this.view.from + 0.15 * span),
      "+": () => this.zoom(0.7), "=": () => this.zoom(0.7), "-": () => this.zoom(1 / 0.7),
          0: () => this.moveTo(0, this.timeline.length),
      Home: () => this.moveTo(0), End: () => this.moveTo(this.timeline.length), "[": () => this.next(-1),
          "]": () => this.next(1),
      " ": () => this.toggle?.(), Escape: () => { this.choose(null); this.readout.textContent = this.hint; }};
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  }

  tools() {
    const steps = el("select", {"aria-label": "Step", onchange: (event) => this.show(Number(event.target.value))},
      ...this.timelines.map((t, i) => el("option", {value: i, selected: i === this.index}, `${t.step}`)));
    const ranks = el("select", {"aria-label": "Ranks", onchange: (event) => {
      this.only = event.target.value === "" ? null : Number(event.target.value);
      this.paint();
      this.changed();
    }}, el("option", {value: ""}, "all"), ...this.timeline.ranks.map((r) => el("option", {value: r.rank},
        `${r.rank}`)));
    const zoom = el("span", {class: "group"},
      el("button", {class: "square", title: "Zoom out", "aria-label": "Zoom out", onclick: () => this.zoom(1 / 0.6)},
          "−"),
      el("button", {class: "square", title: "Zoom in", "aria-label": "Zoom in", onclick: () => this.zoom(0.6)}, "+"),
      el("button", {onclick: () => this.moveTo(0, this.timeline.length)}, "Whole step"));
    return el("div", {class: "tools"}, el("label", {}, "Step", steps), this.timeline.ranks.length > 1
        ? el("label", {}, "Rank", ranks) : null, zoom);
  }
}
