// SPDX-License-Identifier: MIT
// apps/report/page/timeline.js - paints a step on a canvas: of each rank computation above, communication below, and
// between them how buckets fill. Knows nothing of pointers or keys; that is timeline_view.js.
"use strict";

// Spans and buckets come as short arrays, see timeline_json() in report_data.cpp.
function prepareTimeline(timeline) {
  const ranks = timeline.ranks.map((rank) => {
    const spans = rank.spans.map(([name, kind, begin, end, depth]) =>
      ({name: timeline.names[name], kind: timeline.kinds[kind], begin, end, depth}));
    const buckets = rank.buckets.map(([bucket, firstReady, lastReady, launch, start, end]) =>
      ({bucket, firstReady, lastReady, launch, start, end}));
    const backward = spans.filter((span) => span.kind === "backward");
    const backwardEnd = backward.length ? Math.max(...backward.map((span) => span.end)) : null;
    for (const b of buckets)
      b.exposed = backwardEnd === null ? null : Math.max(0, b.end - Math.max(b.start, backwardEnd));
    const outside = mergeIntervals(buckets.filter((b) => b.exposed > 0).map((b) => [b.end - b.exposed, b.end]));
    const exposed = backwardEnd === null ? null : outside.reduce((sum, [begin, end]) => sum + end - begin, 0);
    return {rank: rank.rank, spans, buckets, exposed, outside};
  });
  return {step: timeline.step, length: Math.max(timeline.length_us, 1), ranks};
}

// Heights of the rows of one rank: fewer ranks, taller rows.
function rowsFor(count) {
  if (count <= 4) return {compute: 28, fill: 8, wire: 24, gap: 22};
  if (count <= 8) return {compute: 18, fill: 6, wire: 16, gap: 12};
  if (count <= 16) return {compute: 11, fill: 4, wire: 10, gap: 8};
  return {compute: 6, fill: 2, wire: 6, gap: 3};
}

function layoutFor(width, count, plain = false) {
  const rows = rowsFor(count), narrow = width < 560;
  const left = plain ? 0 : narrow ? 48 : 66, top = plain ? 4 : 30;
  const each = rows.compute + rows.fill + rows.wire + rows.gap;
  return {...rows, left, top, each, width, right: 8, height: top + count * each + (plain ? 0 : 4)};
}

// From microseconds to pixels and back.
function axisFor(layout, view) {
  const span = layout.width - layout.left - layout.right;
  return {x: (us) => layout.left + (us - view.from) / (view.to - view.from) * span,
    us: (x) => view.from + (x - layout.left) / span * (view.to - view.from)};
}

function paintAxis(ctx, layout, view, axis) {
  ctx.fillStyle = colours.soft;
  ctx.textAlign = "center";
  for (const t of ticks(view.from / 1000, view.to / 1000, (layout.width - layout.left) / 90)) {
    const x = Math.round(axis.x(t * 1000)) + 0.5;
    ctx.fillText(tickText(t), Math.max(layout.left + 4, Math.min(x, layout.width - layout.right - 10)), 12);
    ctx.fillStyle = colours.line;
    ctx.fillRect(x - 0.5, layout.top - 10, 1, layout.height);
    ctx.fillStyle = colours.soft;
  }
  ctx.textAlign = "left";
  ctx.fillText("ms", 0, 12);
}

// A label that fits, or none: half a word says nothing.
function paintLabel(ctx, text, x, width, y, colour, fallback = null) {
  const size = ctx.measureText(text).width;
  if (size + 8 > width) {
    if (fallback) paintLabel(ctx, fallback, x, width, y, colour);
    return;
  }
  ctx.fillStyle = colour;
  ctx.fillText(text, x + (width - size) / 2, y);
}

function paintCompute(ctx, rank, y, layout, axis) {
  const right = layout.width - layout.right;
  for (const span of rank.spans) {
    const a = Math.max(axis.x(span.begin), layout.left), b = Math.min(axis.x(span.end), right);
    if (b < layout.left || a > right) continue;
    // What stands inside another span leaves an edge of it above, so that nesting shows.
    const inset = layout.compute >= 18 ? Math.min(span.depth, 3) * 2 : 0;
    ctx.fillStyle = colours[span.kind];
    ctx.fillRect(a, y + inset, Math.max(b - a, 0.5), layout.compute - inset);
    if (b - a > 3) {
      ctx.fillStyle = colours.page;
      ctx.fillRect(b - 0.75, y + inset, 0.75, layout.compute - inset);
    }
  }
  if (layout.compute < 18) return;
  // Labels last: those of spans without anything inside, and only where they fit.
  rank.spans.forEach((span, i) => {
    const next = rank.spans[i + 1];
    if (next && next.depth > span.depth && next.begin < span.end) return;
    const a = Math.max(axis.x(span.begin), layout.left), b = Math.min(axis.x(span.end), right);
    if (b - a > 24)
      paintLabel(ctx, span.name, a, b - a, y + layout.compute / 2 + 6,
        span.kind === "optimizer" ? colours.page : colours.ink, span.name.split(".").pop());
  });
}

function paintBucket(ctx, b, y, layout, axis, faded) {
  const right = layout.width - layout.right, clip = (us) => Math.max(layout.left, Math.min(right, axis.x(us)));
  ctx.globalAlpha = faded ? 0.22 : 1;
  ctx.fillStyle = bucketColour(b.bucket);
  const fill = y + layout.compute, wire = fill + layout.fill;
  const first = clip(b.firstReady), last = clip(b.lastReady), start = clip(b.start), end = clip(b.end);
  const thick = Math.max(1, layout.fill - 4);
  if (last > first) ctx.fillRect(first, fill + (layout.fill - thick) / 2, Math.max(last - first, 1), thick);
  if (end > start || (end === start && end > layout.left && end < right)) {
    ctx.fillRect(start, wire, Math.max(end - start, 1), layout.wire);
    if (end - start > 3) {
      ctx.fillStyle = colours.page;
      ctx.fillRect(end - 0.75, wire, 0.75, layout.wire);
    }
    if (layout.wire >= 16) {
      paintLabel(ctx, `bucket ${b.bucket}`, start, end - start, wire + layout.wire / 2 + 4, colours["on-bucket"],
          String(b.bucket));
    }
  }
  ctx.globalAlpha = 1;
}

// Red is exposed, and nothing else is red: frames, and how much it is in all beside the last.
function paintExposed(ctx, rank, y, layout, axis) {
  if (!rank.exposed) return;
  const wire = y + layout.compute + layout.fill, right = layout.width - layout.right;
  const thick = layout.wire >= 16 ? 2 : 1, clip = (us) => Math.max(layout.left, Math.min(right, axis.x(us)));
  ctx.strokeStyle = colours.exposed;
  ctx.lineWidth = thick;
  // Gaps narrower than the frame would be a comb of red lines.
  const near = axis.us(2 * thick + 2) - axis.us(0);
  for (const [begin, end] of mergeIntervals(rank.outside, near))
    if (clip(end) > clip(begin))
      ctx.strokeRect(clip(begin), wire - thick / 2 + 0.5, clip(end) - clip(begin), layout.wire + thick - 1);
  const last = axis.x(rank.outside[rank.outside.length - 1][1]);
  if (layout.wire < 16 || last < layout.left) return;
  const text = `${ms(rank.exposed / 1000)} exposed`, size = ctx.measureText(text).width, b = Math.min(right, last);
  ctx.fillStyle = colours.exposed;
  const below = b + 8 + size > right;
  ctx.fillText(text, below ? Math.max(layout.left, right - size) : b + 8,
    wire + (below ? layout.wire + 14 : layout.wire / 2 + 4));
}

// What a chosen bucket went through: ready, launched, on the wire.
function paintPath(ctx, b, y, layout, axis) {
  const fill = y + layout.compute + layout.fill / 2, wire = fill + layout.fill / 2;
  const right = layout.width - layout.right, clip = (us) => Math.max(layout.left, Math.min(right, axis.x(us)));
  ctx.strokeStyle = colours.ink;
  ctx.lineWidth = 1.5;
  ctx.beginPath();
  const seen = axis.x(b.lastReady) >= layout.left && axis.x(b.lastReady) <= right;
  if (seen) ctx.moveTo(clip(b.lastReady), y);
  ctx[seen ? "lineTo" : "moveTo"](clip(b.lastReady), fill);
  ctx.lineTo(clip(b.start), fill);
  ctx.lineTo(clip(b.start), wire);
  ctx.stroke();
  if (b.end >= axis.us(layout.left) && b.start <= axis.us(right))
    ctx.strokeRect(clip(b.start) + 0.75, wire + 0.75, Math.max(1, clip(b.end) - clip(b.start) - 1.5),
        layout.wire - 1.5);
}

// paintTimeline(canvas, {ranks, view, chosen, now, plain, width}): `ranks` of prepareTimeline(), `chosen` a bucket or
// null, `now` the moment of the play-through or null. Returns the layout, for hit tests.
function paintTimeline(canvas, {ranks, view, chosen = null, now = null, plain = false, width}) {
  const layout = layoutFor(width, ranks.length, plain), ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(layout.height * ratio);
  canvas.style.height = layout.height + "px";
  const ctx = canvas.getContext("2d"), axis = axisFor(layout, view);
  ctx.scale(ratio, ratio);
  ctx.font = "12px system-ui, sans-serif";
  if (!plain) paintAxis(ctx, layout, view, axis);
  ranks.forEach((rank, i) => {
    const y = layout.top + i * layout.each;
    if (!plain && (layout.compute >= 11 || i % 4 === 0)) {
      ctx.fillStyle = colours.soft;
      ctx.fillText(layout.left < 60 ? String(rank.rank) : `rank ${rank.rank}`, 0,
        y + layout.compute / 2 + (layout.compute >= 11 ? 4 : 6));
    }
    ctx.fillStyle = colours.raised;  // The wire while nothing is on it.
    ctx.fillRect(layout.left, y + layout.compute + layout.fill, layout.width - layout.left - layout.right, layout.wire);
    paintCompute(ctx, rank, y, layout, axis);
    for (const b of rank.buckets) paintBucket(ctx, b, y, layout, axis, chosen !== null && b.bucket !== chosen);
    paintExposed(ctx, rank, y, layout, axis);
    const path = chosen === null ? null : rank.buckets.find((b) => b.bucket === chosen);
    if (path && layout.compute >= 11) paintPath(ctx, path, y, layout, axis);
  });
  if (now !== null) {
    const x = Math.max(layout.left, Math.min(layout.width - layout.right, axis.x(now)));
    ctx.fillStyle = colours.page;
    ctx.globalAlpha = 0.7;  // What has not happened yet.
    ctx.fillRect(x, layout.top - 6, layout.width - x, layout.height);
    ctx.globalAlpha = 1;
    ctx.fillStyle = colours.ink;
    ctx.fillRect(x - 1, layout.top - 8, 2, layout.height);
  }
  return layout;
}

// What lies under a point: {rank, bucket} or {rank, span}, or null.
function hitTimeline(layout, ranks, view, px, py) {
  const i = Math.floor((py - layout.top) / layout.each), rank = ranks[i];
  if (!rank || px < layout.left) return null;
  const us = axisFor(layout, view).us(px), y = py - layout.top - i * layout.each,
      slack = (view.to - view.from) / layout.width;
  if (y < layout.compute) {
    const under = rank.spans.filter((span) => us >= span.begin && us <= span.end);
    return under.length ? {rank, span: under.reduce((a, b) => b.depth >= a.depth ? b : a)} : null;
  }
  if (y < layout.compute + layout.fill) {
    const bucket = rank.buckets.find((b) => us >= b.firstReady - slack && us <= b.lastReady + slack);
    return bucket ? {rank, bucket} : null;
  }
  const bucket = rank.buckets.find((b) => us >= b.start - slack && us <= b.end + slack);
  return bucket ? {rank, bucket} : null;
}
