// SPDX-License-Identifier: MIT
// apps/report/page/play.js - plays a step in slow motion: gradients become ready, buckets fill, are launched, travel,
// and are used by the optimizer. A gauge a bucket, of one rank.
"use strict";

const kPlaySeconds = 12;

// When the gradient of a parameter was ready: at the end of its layer's backward span, where the trace has one.
function readyTimes(rank, bucket) {
  const ends = new Map();
  for (const span of rank.spans)
    if (span.kind === "backward") ends.set(span.name, Math.max(span.end, ends.get(span.name) ?? 0));
  const layer = (parameter) => parameter.slice(0, parameter.lastIndexOf("."));
  const times = (bucketInfo.get(bucket.bucket)?.parameters ?? []).map((parameter) => ends.get(layer(parameter)));
  return times.length && times.every(known) ? times : null;
}

// The state of bucket `b` at time `t`: [words, how full from 0 to 1].
function stateAt(b, t) {
  if (t >= b.used) return ["used by the optimizer", 1];
  if (t >= b.end) return ["reduced", 1];
  if (t >= b.start) return ["on the wire", 1];
  if (t >= b.launch) return ["launched", 1];
  if (t >= b.lastReady) return ["full", 1];
  if (b.ready) {
    // A span may end a little after its gradient was ready: the last one is ready when the bucket says so.
    const ready = Math.min(b.ready.filter((time) => time <= t).length, b.ready.length - 1);
    return [ready ? `${ready} of ${b.ready.length} ready` : "empty", ready / b.ready.length];
  }
  if (t < b.firstReady) return ["empty", 0];
  return ["filling", (t - b.firstReady) / Math.max(1, b.lastReady - b.firstReady)];
}

class Player {
  constructor(view) {
    this.view = view;
    this.button = el("button", {class: "play", onclick: () => this.toggle()}, "Play");
    this.slider = el("input", {type: "range", min: 0, max: 1000, value: 0, "aria-label": "Moment of the step",
      oninput: () => { this.pause(); this.seek(this.slider.value / 1000 * this.view.timeline.length); }});
    this.clock = el("output", {});
    this.title = el("p", {class: "soft"});
    this.list = el("ul", {class: "chips", id: "buckets-now"});
    view.toggle = () => this.toggle();
    view.changed = () => this.reset();
    this.node = el("div", {}, this.title, this.list);
    this.bar = el("div", {class: "tools"}, this.button, el("span", {class: "scrub"}, this.slider, this.clock));
    this.reset();
  }

  reset() {
    this.pause();
    const rank = this.view.ranks[0];
    const optimizer = rank.spans.filter((span) => span.kind === "optimizer");
    this.buckets = rank.buckets.map((b) => {
      const own = optimizer.find((span) => new RegExp(`\\bbucket ${b.bucket}\\b`).test(span.name));
      const used = own ?? optimizer.find((span) => span.begin >= b.end - 1);
      return {...b, used: used ? Math.max(used.begin, b.end) : Infinity, ready: readyTimes(rank, b)};
    });
    this.chips = this.buckets.map((b) => {
      const label = bucketInfo.get(b.bucket)?.label;
      const fill = el("i", {style: `background:${bucketVariable(b.bucket)}`}), state = el("span", {});
      return {fill, state, node: el("li", {}, el("span", {class: "name"}, el("span", {}, `Bucket ${b.bucket}`), state),
        el("span", {class: "label", title: label}, label || "\u00a0"),
        el("div", {class: "gauge"}, fill))};
    });
    this.list.className = this.chips.length > 12 ? "chips compact" : "chips";
    this.list.replaceChildren(...this.chips.map((chip) => chip.node));
    this.title.textContent = rank.buckets.length ? `Buckets of rank ${rank.rank} at the chosen moment` : "";
    this.slider.value = 1000;
    this.write(this.view.timeline.length);
  }

  // The end of the step shows everything as it was, without a cursor.
  seek(t) {
    const end = this.view.timeline.length;
    this.view.now = t >= end ? null : t;
    this.view.later();
    this.write(t);
  }

  write(t) {
    const end = this.view.timeline.length;
    this.clock.textContent = `${number(t / 1000)} of ${ms(end / 1000)}`;
    this.slider.setAttribute("aria-valuetext", ms(t / 1000));
    this.buckets.forEach((b, i) => {
      const [words, full] = stateAt(b, t), chip = this.chips[i];
      if (chip.state.textContent !== words) chip.state.textContent = words;
      chip.fill.style.width = 100 * full + "%";
      chip.fill.style.opacity = t >= b.end ? 0.45 : 1;
    });
  }

  toggle() {
    if (this.frame) return this.pause();
    const length = this.view.timeline.length;
    const from = this.view.now ?? 0, begin = performance.now() - from / length * kPlaySeconds * 1000;
    this.button.textContent = "Pause";
    const step = (time) => {
      const t = Math.max(0, (time - begin) / (kPlaySeconds * 1000) * length);
      this.slider.value = Math.min(1000, 1000 * t / length);
      this.seek(Math.min(t, length));
      this.frame = t < length ? requestAnimationFrame(step) : 0;
      if (!this.frame) this.pause();
    };
    this.frame = requestAnimationFrame(step);
  }

  pause() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.button.textContent = "Play";
  }
}
