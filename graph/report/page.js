"use strict";
(() => {
  // Several records come as their keys and rows.
  const records = (node) => {
    if (node === null || typeof node !== "object") return node;
    if (Array.isArray(node)) return typeof node[0] === "object" ? node.map(records) : node;
    if (node.rows) return node.rows.map((row) => Object.fromEntries(node.keys.map((key, i) => [key, records(row[i])])));
    return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, records(value)]));
  };
  const data = records(JSON.parse(document.getElementById("data").textContent));
  const { totals, groups, timeline, memory, traffic, parameters, machine, searched } = data;

  // Building blocks. Texts of the data only ever become text nodes.

  const $ = (id) => document.getElementById(id);
  const el = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "on") for (const [type, f] of Object.entries(value)) node.addEventListener(type, f);
      else if (key === "color") node.style.setProperty("--color", value);
      else if (value === true) node.setAttribute(key, "");
      else if (value !== false && value != null) node.setAttribute(key, value);
    }
    node.append(...children.filter((child) => child != null));
    return node;
  };
  const svg = (tag, attributes, ...children) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
  const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

  // Numbers as text.

  const digits = (x) => Number(x.toPrecision(4)).toLocaleString("en-US", { maximumSignificantDigits: 4 });
  const count = (x) => x.toLocaleString("en-US");
  const seconds = (x) => {
    if (x == null) return "–";
    if (timeline && !timeline.unit) return `${digits(x)} ${x === 1 ? "unit" : "units"}`;
    if (x === 0) return "0 s";
    for (const [unit, size] of [["s", 1], ["ms", 1e-3]]) if (x >= size) return `${digits(x / size)} ${unit}`;
    return `${digits(x * 1e6)} µs`;
  };
  const bytes = (x) => {
    if (x == null) return "–";
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    const at = x < 1024 ? 0 : clamp(Math.floor(Math.log2(x) / 10), 0, units.length - 1);
    return at ? `${(x / 1024 ** at).toLocaleString("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 })} ${units[at]}` : `${x} B`;
  };
  const percent = (x) => `${(100 * x).toFixed(1)}%`;
  const rate = (x, unit) => {
    for (const [prefix, size] of [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]])
      if (x >= size) return `${digits(x / size)} ${prefix}${unit}`;
    return `${digits(x)} ${unit}`;
  };
  const large = (x) => {
    for (const [unit, size] of [["T", 1e12], ["B", 1e9], ["M", 1e6]])
      if (x >= size) return `${digits(x / size)}${unit}`;
    return count(x);
  };
  const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : word.endsWith("ch") ? "es" : "s"}`;
  const spaced = (kind) => kind.replaceAll("_", "-");
  // A name whose lines may end after a dot or an underscore.
  const breakable = (name) => el("span", {}, ...name.split(/(?<=[._])/).flatMap((part) => [part, el("wbr")]));

  // Colors, by kind; canvases read them from the style sheet.

  const FIXED = {
    forward: "forward", backward: "backward", weights: "weights", update: "update", inputs: "inputs", send: "send",
    compute: "forward", communication: "collective", waiting: "inputs", copies: "olive", offload: "olive", fetch: "olive",
    "driver and communicators": "quiet", parameters: "forward", "optimizer states": "weights", buffers: "inputs", "input slices": "olive", activations: "backward",
    gradients: "update", all_gather: "weights", reduce_scatter: "gold", all_to_all: "olive", transfer: "send",
  };
  const variable = (kind) => `--${FIXED[kind] ?? "collective"}`;
  const dot = (kind) => el("i", { class: "dot", color: `var(${variable(kind)})`, "aria-hidden": "true" });
  let paint = {};
  const readColors = () => {
    const style = getComputedStyle(document.documentElement);
    const names = "page surface raised ink quiet line strong accent forward backward weights update inputs send collective gold olive warning".split(" ");
    paint = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  };
  const colorOf = (kind) => paint[FIXED[kind] ?? "collective"];
  const legend = (list, kinds) =>
    list.replaceChildren(...kinds.map((kind) => el("li", {}, dot(kind), spaced(kind))));

  // Canvases that follow their size, the theme and the printer.

  const drawings = [];
  const redraw = () => {
    readColors();
    for (const draw of drawings) draw();
  };
  const sized = (canvas, width, height) => {
    const ratio = window.devicePixelRatio || 1;
    const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
    if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = '11px ui-sans-serif, system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
    pen.textBaseline = "middle";
    return pen;
  };
  const fitted = (pen, text, width) => {
    if (pen.measureText(text).width <= width) return text;
    let length = text.length;
    while (length > 0 && pen.measureText(`${text.slice(0, length)}…`).width > width) length -= 1;
    return length > 0 ? `${text.slice(0, length)}…` : "";
  };
  const details = (box, title, kind, pairs, ...more) => {
    box.replaceChildren(
      el("h3", {}, kind ? dot(kind) : null, title),
      el("dl", {}, ...pairs.filter(([, value]) => value != null).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
      ...more,
    );
  };

  // What was asked for in the view of time, in nanoseconds, which timeline and memory share.

  const steps = !timeline; // without a timeline a memory plan counts its steps
  const end = timeline ? Math.max(timeline.span * 1e9, 1) : Math.max(1, ...memory.map((m) => (m.times.at(-1) ?? 0) + 1e9));
  const view = { from: 0, to: end };
  const moment = (ns) => (steps ? `step ${count(Math.round(ns / 1e9) + 1)}` : seconds(ns / 1e9));
  const setView = (from, to) => {
    const asked = clamp(to - from, Math.min(end, 20), end);
    const width = asked > end * (1 - 1e-9) ? end : asked; // whatever zooming in and out leaves
    view.from = clamp(from, 0, end - width);
    view.to = view.from + width;
    if ($("window")) $("window").value = view.from <= 0 && view.to >= end ? "" : `${moment(view.from)} to ${moment(view.to)}`;
    redraw();
  };
  const zoom = (factor, at = (view.from + view.to) / 2) =>
    setView(at - (at - view.from) / factor, at + (view.to - at) / factor);
  const pan = (share) => setView(view.from + share * (view.to - view.from), view.to + share * (view.to - view.from));
  const ticks = (width) => {
    const least = ((view.to - view.from) * 90) / Math.max(width, 90);
    const power = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].map((x) => x * power).find((x) => x >= least);
    const units = { s: 1e9, ms: 1e6, "µs": 1e3 };
    const unit = timeline?.unit ? Object.keys(units).find((name) => view.to >= units[name]) ?? "µs" : "";
    const size = units[unit] ?? 1e9;
    const places = clamp(-Math.floor(Math.log10(step / size) + 1e-9), 0, 9);
    const text = (at) => (at ? `${(at / size).toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places })} ${unit}` : "0");
    const found = [];
    for (let at = Math.ceil(view.from / step); at * step <= view.to; at += 1) found.push([at * step, text(at * step).trim()]);
    return found;
  };
  const ruler = (pen, left, width, height, top) => {
    pen.fillStyle = paint.quiet;
    pen.strokeStyle = paint.line;
    pen.lineWidth = 1;
    for (const [at, text] of ticks(width)) {
      const x = Math.round(left + ((at - view.from) / (view.to - view.from)) * width) + 0.5;
      pen.beginPath();
      pen.moveTo(x, top);
      pen.lineTo(x, height);
      pen.stroke();
      const half = pen.measureText(text).width / 2;
      if (x + half < left + width + 4) pen.fillText(text, Math.max(x - half, left), top - 11);
    }
  };
  const dragging = (box, toTime) => {
    // Panning with a pointer, zooming with the wheel.
    let last = null;
    box.addEventListener("pointerdown", (event) => {
      if (event.button === 0) last = event.clientX;
    });
    box.addEventListener("pointermove", (event) => {
      if (last === null || !(event.buttons & 1)) return;
      if (!box.hasPointerCapture(event.pointerId)) box.setPointerCapture(event.pointerId);
      box.classList.add("dragging");
      const moved = toTime(last) - toTime(event.clientX);
      last = event.clientX;
      setView(view.from + moved, view.to + moved);
    });
    for (const type of ["pointerup", "pointercancel"])
      box.addEventListener(type, () => {
        last = null;
        box.classList.remove("dragging");
      });
    box.addEventListener("wheel", (event) => {
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        zoom(2 ** (-event.deltaY / 240), toTime(event.clientX));
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        pan((event.deltaX || event.deltaY) / 900);
      }
    }, { passive: false });
  };

  const groupName = (group) => {
    const where = `rank${group.count === 1 ? "" : "s"} ${group.ranks}`;
    return group.stages.length ? `stage ${group.stages.join(", ")}, ${where}` : where;
  };
  let chosen = 0; // the number of the group whose memory is shown
  const choose = (number) => {
    chosen = number;
    if (memory.length) $("memory-group").value = String(number);
    for (const [i, row] of [...$("groups").querySelectorAll("tbody tr")].entries()) row.classList.toggle("chosen", i === number);
    showMemory();
    redraw();
  };

  // The head of the page.

  const showHead = () => {
    const words = [plural(totals.ranks, "rank")];
    if (machine) words[0] += ` on ${machine.name}`;
    if (totals.schedule) words.push(`${totals.schedule}, ${plural(totals.stages, "stage")}`);
    if (totals.micro_batches > 1) words.push(plural(totals.micro_batches, "micro-batch"));
    $("subtitle").textContent = words.join(" · ");
    const tile = (id, name, value, note, raw, over) => {
      if (value == null) return;
      $("tiles").append(el("div", {},
        el("dt", {}, name),
        el("dd", { class: "value", id, "data-value": raw }, value),
        note ? el("dd", { class: `note${over ? " over" : ""}` }, note) : null,
      ));
    };
    const known = totals.step_time != null;
    tile("step-time", "Step time", known ? seconds(totals.step_time) : null, "one call of the graph", totals.step_time);
    if (totals.tokens_per_second != null)
      tile("tokens", "Tokens/s", count(Math.round(totals.tokens_per_second)), `${count(totals.tokens)} in a call`, totals.tokens_per_second);
    tile("mfu", "MFU", known ? percent(totals.mfu) : null, "of the peak, by model flop", totals.mfu);
    tile("bubble", "Bubble", known ? percent(totals.step_time ? totals.bubble / totals.step_time : 0) : null, `${seconds(totals.bubble)} of waiting`, totals.bubble);
    if (totals.memory != null) {
      const over = machine && totals.memory > machine.memory_bytes;
      const note = machine ? `${over ? "more than" : "of"} ${bytes(machine.memory_bytes)}` : "of the rank that needs most";
      tile("peak", "Peak memory", bytes(totals.memory), note, totals.memory, over);
    }
    tile("received", "Received", bytes(totals.received), "by all ranks together", totals.received);
    tile("count", "Parameters", large(totals.parameters), count(totals.parameters), totals.parameters);
  };

  // The timeline.

  const HEIGHT = { ruler: 26, gap: 9, compute: 20, beside: 9 }; // more where there are few rows
  if (groups.length <= 8) Object.assign(HEIGHT, groups.length <= 4 ? { compute: 32, beside: 16 } : { compute: 26, beside: 12 });
  const rows = []; // one for each track, by group
  const showTimeline = () => {
    if (!timeline) {
      $("timeline").remove();
      return;
    }
    const note = timeline.unit
      ? `Each row is a group of ranks that do the same: what they compute, and below it what they communicate${timeline.tracks.some((t) => t.stream === "copies") ? ", and copy to the host and back" : ""}.`
      : "The order of the schedule, in which every action takes one unit of time and a backward pass two. With hardware, the report shows seconds.";
    $("timeline-note").textContent = note;
    let top = HEIGHT.ruler + 4;
    const kinds = new Set();
    groups.forEach((group, number) => {
      const its = ["compute", "communication", "copies"].flatMap((stream) => timeline.tracks.filter((t) => t.group === number && t.stream === stream));
      let y = top;
      for (const track of its) {
        const n = track.events.length / 4;
        const [label, micro, start, stop] = [new Int32Array(n), new Int32Array(n), new Float64Array(n), new Float64Array(n)];
        for (let i = 0, now = 0; i < n; i += 1) {
          const [name, wait, length, batch] = track.events.slice(4 * i, 4 * i + 4);
          [label[i], micro[i], start[i]] = [name, batch, now + wait];
          now = stop[i] = start[i] + length;
          kinds.add(timeline.labels[name].kind);
        }
        const height = track.stream === "compute" ? HEIGHT.compute : HEIGHT.beside;
        rows.push({ group: number, stream: track.stream, label, micro, start, stop, n, y, height });
        y += height + 2;
      }
      top = Math.max(y, top + HEIGHT.compute) + HEIGHT.gap;
    });
    const order = Object.keys(FIXED);
    legend($("timeline-legend"), [...kinds].sort((a, b) => (order.indexOf(a) + 99) % 99 - (order.indexOf(b) + 99) % 99));

    const box = $("timeline-view");
    const canvas = box.querySelector("canvas");
    const tall = box.querySelector(".tall");
    tall.style.height = `${top + 4}px`;
    const gutter = () => (box.clientWidth < 620 ? 84 : 168);
    const width = () => Math.max(box.clientWidth - gutter() - 10, 40);
    const toTime = (x) => view.from + ((x - box.getBoundingClientRect().left - gutter()) / width()) * (view.to - view.from);
    const toX = (ns) => gutter() + ((ns - view.from) / (view.to - view.from)) * width();
    let selected = null; // row, index
    let hovered = null;
    const firstAfter = (row, ns) => { // the first event that ends after a time
      let [low, high] = [0, row.n];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (row.stop[middle] > ns) high = middle; else low = middle + 1;
      }
      return low;
    };
    const nameOf = (row, i) => {
      const { name, kind } = timeline.labels[row.label[i]];
      return name === "boxing" ? spaced(kind) : name + (row.micro[i] < 0 ? "" : row.micro[i]);
    };
    const labelOf = (at) => timeline.labels[rows[at.row].label[at.index]];
    const block = (pen, row, i, offset) => {
      const x = toX(row.start[i]);
      const right = Math.min(toX(row.stop[i]), gutter() + width());
      const left = Math.max(x, gutter());
      return [left, row.y - offset, Math.max(right - left, 0.75), row.height];
    };
    const light = (color) => {
      const [r, g, b] = [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16) / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.19;
    };
    const draw = () => {
      const full = box.clientWidth;
      const printed = matchMedia("print").matches || printing;
      const height = printed ? top + 4 : Math.min(top + 4, Math.max(box.clientHeight, 60));
      const offset = printed ? 0 : box.scrollTop;
      const pen = sized(canvas, full, height);
      pen.save();
      pen.beginPath();
      pen.rect(0, HEIGHT.ruler, full, height);
      pen.clip();
      let group = -1;
      for (const row of rows) {
        const y = row.y - offset;
        if (row.group !== group) {
          group = row.group;
          const its = groups[group];
          const first = its.stages.length ? `stage ${its.stages.join(", ")}` : `rank${its.count === 1 ? "" : "s"} ${its.ranks}`;
          const second = its.stages.length ? its.ranks : plural(its.count, "rank");
          pen.fillStyle = group === chosen ? paint.accent : paint.ink;
          pen.fillText(fitted(pen, first, gutter() - 22), 12, y + 8);
          pen.fillStyle = paint.quiet;
          pen.fillText(fitted(pen, second, gutter() - 22), 12, y + 23);
        }
        if (y + row.height < 0 || y > height) continue;
        pen.fillStyle = paint.raised;
        pen.fillRect(gutter(), y, width(), row.height);
        let last = -1;
        let before = -1;
        for (let i = firstAfter(row, view.from); i < row.n && row.start[i] < view.to; i += 1) {
          const [x, top_, w, h] = block(pen, row, i, offset);
          const label = timeline.labels[row.label[i]];
          if (w < 1 && x < last + 0.6) continue;
          const color = colorOf(label.kind);
          pen.fillStyle = color;
          pen.fillRect(x, top_, w, h);
          if (w > 3 && before >= 0) { // a thin gap tells neighbors apart
            pen.fillStyle = paint.surface;
            pen.fillRect(x, top_, 0.75, h);
          }
          if (w > 14 && h > 12) { // the name, or what tells neighbors apart
            const name = nameOf(row, i);
            const texts = w > 60 ? [name, fitted(pen, name, w - 8)] : [row.micro[i] < 0 ? name : String(row.micro[i])];
            const text = texts.find((t) => pen.measureText(t).width < w - 8);
            pen.fillStyle = light(color) ? "#0b0d11" : "#ffffff";
            pen.fillText(text ?? "", x + 5, top_ + h / 2 + 0.5);
          }
          [last, before] = [x, i];
        }
      }
      for (const [at, color] of [[hovered, paint.quiet], [selected, paint.ink]]) {
        if (!at) continue;
        const row = rows[at.row];
        if (row.stop[at.index] < view.from || row.start[at.index] > view.to) continue;
        const [x, y, w, h] = block(pen, row, at.index, offset);
        pen.strokeStyle = color;
        pen.lineWidth = 2;
        pen.strokeRect(x - 1, y - 1, Math.max(w + 2, 4), h + 2);
      }
      pen.restore();
      pen.fillStyle = paint.surface;
      pen.fillRect(0, 0, full, HEIGHT.ruler);
      ruler(pen, gutter(), width(), HEIGHT.ruler + 4, HEIGHT.ruler - 4);
      pen.fillStyle = paint.line;
      pen.fillRect(gutter(), HEIGHT.ruler - 1, width(), 1);
      if (view.to - view.from < end) { // where in the whole call this is
        pen.fillStyle = paint.accent;
        pen.fillRect(gutter() + (view.from / end) * width(), HEIGHT.ruler - 2, Math.max(((view.to - view.from) / end) * width(), 3), 2);
      }
    };
    drawings.push(draw);

    const show = () => {
      const aside = $("event");
      if (!selected) {
        details(aside, "No event selected", null, [], el("p", { class: "quiet" }, "Click an event, or use the arrow keys."));
        return;
      }
      const row = rows[selected.row];
      const label = labelOf(selected);
      const [start, stop] = [row.start[selected.index], row.stop[selected.index]];
      const group = groups[row.group];
      const slowed = stop - start > label.alone * 1.0005 + 2;
      const micro = row.micro[selected.index];
      details(aside, nameOf(row, selected.index), label.kind, [
        ["Kind", spaced(label.kind)],
        ["Micro-batch", micro < 0 ? null : String(micro)],
        ["Module", label.module ? breakable(label.module) : null],
        ["Stream", row.stream],
        [group.stages.length ? "Stage" : "Ranks", group.stages.length ? group.stages.join(", ") : group.ranks],
        [group.stages.length ? "Ranks" : "Count", group.stages.length ? group.ranks : count(group.count)],
        ["Begins at", seconds(start / 1e9)],
        ["Takes", seconds((stop - start) / 1e9)],
        ["Alone", slowed ? seconds(label.alone / 1e9) : null],
        [label.kind === "send" ? "Sends" : "Receives", label.nbytes ? bytes(label.nbytes) : null],
      ]);
    };
    const select = (at, follow = true) => {
      selected = at;
      show();
      if (at) {
        const row = rows[at.row];
        const [start, stop] = [row.start[at.index], row.stop[at.index]];
        const length = view.to - view.from;
        if (follow && (stop < view.from || start > view.to)) setView(start - length / 2, start + length / 2);
        else if (follow && start < view.from) setView(start - length * 0.1, start + length * 0.9);
        else if (follow && stop > view.to && stop - start < length) setView(stop - length * 0.9, stop + length * 0.1);
        if (follow && row.y - box.scrollTop < HEIGHT.ruler + 4) box.scrollTop = row.y - HEIGHT.ruler - 8;
        if (follow && row.y + row.height - box.scrollTop > box.clientHeight) box.scrollTop = row.y + row.height - box.clientHeight + 12;
        if (row.group !== chosen) choose(row.group);
      }
      redraw();
    };
    const at = (event) => {
      const y = event.clientY - box.getBoundingClientRect().top + box.scrollTop;
      const index = rows.findIndex((row) => y >= row.y && y < row.y + row.height + 1);
      if (index < 0 || event.clientY - box.getBoundingClientRect().top < HEIGHT.ruler) return null;
      const row = rows[index];
      const slack = (1.5 * (view.to - view.from)) / width();
      const ns = toTime(event.clientX);
      const i = firstAfter(row, ns - slack);
      return i < row.n && row.start[i] <= ns + slack ? { row: index, index: i } : null;
    };
    const tip = $("tip");
    box.addEventListener("pointermove", (event) => {
      const found = event.buttons ? null : at(event);
      const same = found && hovered && found.row === hovered.row && found.index === hovered.index;
      if (!same && (found || hovered)) {
        hovered = found;
        draw();
      }
      tip.hidden = !found;
      if (!found) return;
      const [row, label] = [rows[found.row], labelOf(found)];
      const parts = [seconds((row.stop[found.index] - row.start[found.index]) / 1e9), spaced(label.kind)];
      if (label.nbytes) parts.push(bytes(label.nbytes));
      tip.replaceChildren(el("b", {}, nameOf(row, found.index)), parts.join(" · "), ...(label.module ? [el("br"), label.module] : []));
      tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
      tip.style.top = `${event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18}px`;
    });
    box.addEventListener("pointerleave", () => {
      tip.hidden = true;
      hovered = null;
      draw();
    });
    box.addEventListener("click", (event) => {
      const found = at(event);
      if (found) select(found, false);
    });
    box.addEventListener("dblclick", (event) => zoom(2, toTime(event.clientX)));
    box.addEventListener("scroll", draw);
    dragging(box, toTime);

    const zoomTo = () => {
      if (!selected) return;
      const row = rows[selected.row];
      const length = row.stop[selected.index] - row.start[selected.index];
      setView(row.start[selected.index] - 1.5 * length, row.stop[selected.index] + 1.5 * length);
    };
    const step = (by) => {
      if (!selected) {
        const index = rows.findIndex((row) => row.n);
        if (index >= 0) select({ row: index, index: Math.min(firstAfter(rows[index], view.from), rows[index].n - 1) });
        return;
      }
      const row = rows[selected.row];
      select({ row: selected.row, index: clamp(selected.index + by, 0, row.n - 1) });
    };
    const move = (by) => {
      if (!selected) return step(0);
      const now = (rows[selected.row].start[selected.index] + rows[selected.row].stop[selected.index]) / 2;
      for (let index = selected.row + by; index >= 0 && index < rows.length; index += by)
        if (rows[index].n) return select({ row: index, index: Math.min(firstAfter(rows[index], now), rows[index].n - 1) });
    };
    const center = () => {
      if (!selected) return undefined;
      const middle = (rows[selected.row].start[selected.index] + rows[selected.row].stop[selected.index]) / 2;
      return middle >= view.from && middle <= view.to ? middle : undefined;
    };
    const keys = {
      ArrowRight: (event) => (event.shiftKey ? pan(0.2) : step(1)),
      ArrowLeft: (event) => (event.shiftKey ? pan(-0.2) : step(-1)),
      ArrowDown: () => move(1),
      ArrowUp: () => move(-1),
      "+": () => zoom(1.6, center()), "=": () => zoom(1.6, center()),
      "-": () => zoom(1 / 1.6, center()), _: () => zoom(1 / 1.6, center()),
      0: () => setView(0, end),
      Home: () => setView(0, view.to - view.from),
      End: () => setView(end - (view.to - view.from), end),
      Enter: zoomTo,
      Escape: () => select(null),
    };
    box.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
      event.preventDefault();
      keys[event.key](event);
    });
    $("zoom-in").addEventListener("click", () => zoom(1.6, center()));
    $("zoom-out").addEventListener("click", () => zoom(1 / 1.6, center()));
    $("zoom-fit").addEventListener("click", () => setView(0, end));
    show();
  };

  // Memory.

  const layersAt = (m, i) => // the bytes of each kind that has any
    [...Object.entries(m.constant), ...Object.entries(m.series).map(([kind, values]) => [kind, values[i] ?? 0])].filter(([, n]) => n);
  let showMemory = () => {};
  const prepareMemory = () => {
    if (!memory.length) {
      $("memory").remove();
      return;
    }
    const box = $("memory-view");
    const canvas = box.querySelector("canvas");
    const choice = $("memory-group");
    choice.append(...groups.map((group, i) => el("option", { value: i }, `${groupName(group)} (${bytes(memory[i].peak)})`)));
    choice.addEventListener("change", () => choose(Number(choice.value)));
    let cursor = null; // the index of a point
    const layers = (m) => [
      ...Object.entries(m.constant).map(([kind, n]) => [kind, m.times.map(() => n)]),
      ...Object.entries(m.series),
    ];
    const allKinds = [...new Set(memory.flatMap((m) => [...Object.keys(m.constant), ...Object.keys(m.series)]))];
    legend($("memory-legend"), allKinds);
    const space = { left: 66, right: 14, top: 26, bottom: 12 };
    const frame = () => ({ width: Math.max(box.clientWidth - space.left - space.right, 40), height: box.clientHeight - space.top - space.bottom });
    const toTime = (x) => view.from + ((x - box.getBoundingClientRect().left - space.left) / frame().width) * (view.to - view.from);
    const nearest = (m, ns) => {
      let i = m.times.findIndex((t) => t > ns);
      if (i < 0) i = m.times.length;
      return clamp(i - 1, 0, Math.max(m.times.length - 1, 0));
    };
    const draw = () => {
      const m = memory[chosen];
      const pen = sized(canvas, box.clientWidth, box.clientHeight);
      const { width, height } = frame();
      const limit = machine?.memory_bytes;
      const most = Math.max(m.peak * 1.1, limit && limit < m.peak * 2.2 ? limit * 1.06 : 0, 1);
      const toX = (ns) => space.left + ((ns - view.from) / (view.to - view.from)) * width;
      const toY = (n) => space.top + height * (1 - n / most);
      ruler(pen, space.left, width, space.top + height, space.top);
      const unit = 1024 ** clamp(Math.floor(Math.log2(most) / 10), 0, 5);
      const raw = most / unit / 5;
      const power = 10 ** Math.floor(Math.log10(raw));
      const each = [1, 2, 5, 10].map((x) => x * power).find((x) => x >= raw) * unit;
      for (let at = 0; at <= most; at += each) {
        pen.strokeStyle = paint.line;
        pen.beginPath();
        pen.moveTo(space.left, Math.round(toY(at)) + 0.5);
        pen.lineTo(space.left + width, Math.round(toY(at)) + 0.5);
        pen.stroke();
        pen.fillStyle = paint.quiet;
        pen.textAlign = "right";
        pen.fillText(at ? bytes(at).replace(".0 ", " ") : "0", space.left - 8, toY(at));
        pen.textAlign = "left";
      }
      pen.save();
      pen.beginPath();
      pen.rect(space.left, space.top - 4, width, height + 6);
      pen.clip();
      const first = Math.max(nearest(m, view.from) - 1, 0);
      const last = Math.min(nearest(m, view.to) + 2, m.times.length);
      let base = new Float64Array(m.times.length);
      for (const [kind, values] of layers(m)) {
        const next = base.map((b, i) => b + values[i]);
        const path = [];
        for (let i = first; i < last; i += 1) path.push([toX(m.times[i]), i], [toX(m.times[i + 1] ?? end), i]);
        pen.beginPath();
        path.forEach(([x, i], at) => (at ? pen.lineTo(x, toY(next[i])) : pen.moveTo(x, toY(next[i]))));
        path.toReversed().forEach(([x, i]) => pen.lineTo(x, toY(base[i])));
        pen.closePath();
        pen.fillStyle = colorOf(kind);
        pen.fill();
        base = next;
      }
      if (limit && limit < most) {
        pen.strokeStyle = paint.warning;
        pen.setLineDash([5, 4]);
        pen.beginPath();
        pen.moveTo(space.left, toY(limit));
        pen.lineTo(space.left + width, toY(limit));
        pen.stroke();
        pen.setLineDash([]);
        pen.fillStyle = paint.warning;
        pen.fillText(`a device has ${bytes(limit)}`, space.left + 8, toY(limit) - 9);
      }
      const mark = (ns, n, text) => {
        const [x, y] = [toX(ns), toY(n)];
        if (x < space.left - 1 || x > space.left + width + 1) return;
        pen.strokeStyle = pen.fillStyle = paint.ink;
        pen.lineWidth = 1;
        pen.beginPath();
        pen.moveTo(Math.round(x) + 0.5, y);
        pen.lineTo(Math.round(x) + 0.5, space.top + height);
        pen.stroke();
        pen.beginPath();
        pen.arc(x, y, 3.5, 0, 7);
        pen.fill();
        const wide = pen.measureText(text).width;
        pen.fillText(text, x + wide + 12 > space.left + width ? x - wide - 8 : x + 8, Math.max(y - 8, space.top + 6));
      };
      mark(m.peak_at, m.peak, `peak ${bytes(m.peak)}`);
      if (cursor !== null && cursor < m.times.length && m.times[cursor] !== m.peak_at)
        mark(m.times[cursor], base[cursor], bytes(base[cursor]));
      pen.restore();
    };
    drawings.push(draw);
    const at = (i) => {
      const m = memory[chosen];
      cursor = i;
      const values = layersAt(m, i);
      const peak = m.times[i] === m.peak_at;
      const box_ = $("moment");
      details(box_, peak ? "At the peak" : `At ${moment(m.times[i] ?? 0)}`, null, [
        ...values.toReversed().map(([kind, n]) => [el("span", {}, dot(kind), " ", kind), bytes(n)]),
        ["Together", bytes(sum(values.map(([, n]) => n)))],
        ["Time", peak && !steps ? moment(m.peak_at) : null],
        ["Step", peak ? breakable(m.moment) : null],
      ]);
      draw();
    };
    box.addEventListener("pointermove", (event) => {
      if (!event.buttons) at(nearest(memory[chosen], toTime(event.clientX)));
    });
    dragging(box, toTime);
    box.addEventListener("keydown", (event) => {
      const m = memory[chosen];
      const moves = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10 };
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key in moves) at(clamp((cursor ?? m.times.indexOf(m.peak_at)) + moves[event.key], 0, m.times.length - 1));
      else if (event.key === "+" || event.key === "=") zoom(1.6, m.times[cursor]);
      else if (event.key === "-") zoom(1 / 1.6, m.times[cursor]);
      else if (event.key === "0") setView(0, end);
      else return;
      event.preventDefault();
    });
    showMemory = () => {
      const m = memory[chosen];
      at(Math.max(m.times.indexOf(m.peak_at), 0));
      const head = ["Tensor", "Kind", "On the rank", "Count", "Bytes", "Share"];
      const body = m.live.map((t) => el("tr", {},
        el("th", { scope: "row", class: "name" }, t.name),
        el("td", {}, dot(t.kind), " ", t.kind),
        el("td", {}, t.form),
        el("td", { class: "number" }, count(t.count)),
        el("td", { class: "number", "data-value": t.nbytes }, bytes(t.nbytes)),
        el("td", { class: "bars" }, bar([[t.kind, t.nbytes]], m.peak)),
      ));
      for (const [kind, [n, nbytes]] of Object.entries(m.others))
        body.push(el("tr", {},
          el("th", { scope: "row", class: "quiet" }, `${plural(n, "smaller tensor")}`),
          el("td", {}, dot(kind), " ", kind), el("td"), el("td", { class: "number" }, count(n)),
          el("td", { class: "number" }, bytes(nbytes)), el("td", { class: "bars" }, bar([[kind, nbytes]], m.peak))));
      fill($("live"), head, body, [3, 4]);
      $("live-title").textContent = `At the peak of ${groupName(groups[chosen])}: ${bytes(m.peak)}`;
    };
  };

  // Tables.

  const bar = (parts, whole) => el("div", { class: "track", "aria-hidden": "true" },
    ...parts.filter(([, n]) => n > 0).map(([kind, n]) => {
      const part = el("i", { color: `var(${variable(kind)})` });
      part.style.width = `${Math.min((100 * n) / whole, 100)}%`;
      return part;
    }));
  const fill = (table, head, body, numbers = []) => {
    const titles = head.map((title, i) => el("th", { scope: "col", class: numbers.includes(i) ? "number" : null }, title));
    table.replaceChildren(el("thead", {}, el("tr", {}, ...titles)), el("tbody", {}, ...body));
  };

  const showGroups = () => {
    const staged = groups.some((g) => g.stages.length);
    const timed = groups.some((g) => g.compute != null);
    const peak = Math.max(1, machine?.memory_bytes ?? 0, ...groups.map((g) => g.memory ?? 0));
    const head = [staged && "Stage", "Ranks", "Count", timed && "Compute", timed && "Communication", timed && "Waiting", "Received", memory.length && "Peak memory", memory.length && (machine ? "Of a device" : "Compared")];
    const body = groups.map((g, i) => el("tr", {},
      staged ? el("td", {}, g.stages.join(", ")) : null,
      el("th", { scope: "row" }, memory.length ? el("button", { type: "button", class: "link", title: "Show the memory of these ranks", on: { click: () => { choose(i); $("memory").scrollIntoView(); $("memory-view").focus({ preventScroll: true }); } } }, g.ranks) : g.ranks),
      el("td", { class: "number" }, count(g.count)),
      ...(timed ? [g.compute, g.communication, g.waiting].map((t) => el("td", { class: "number", "data-value": t }, seconds(t))) : []),
      el("td", { class: "number", "data-value": g.received }, bytes(g.received)),
      memory.length ? el("td", { class: "number", "data-value": g.memory }, bytes(g.memory)) : null,
      memory.length ? el("td", { class: "bars" }, bar(layersAt(memory[i], memory[i].times.indexOf(memory[i].peak_at)), peak)) : null,
    ));
    const titles = head.filter(Boolean);
    fill($("groups"), titles, body, titles.map((t, i) => i).filter((i) => i > Number(staged) && !["Of a device", "Compared"].includes(titles[i])));
  };

  const showTraffic = () => {
    if (!traffic.length) {
      $("traffic").remove();
      return;
    }
    const most = Math.max(...traffic.map((t) => t.total));
    fill($("links"), ["Collective", "Link", "All ranks", "Busiest rank", ""], traffic.map((t) => el("tr", {},
      el("th", { scope: "row" }, dot(t.kind), " ", spaced(t.kind)),
      el("td", {}, t.link),
      el("td", { class: "number", "data-value": t.total }, bytes(t.total)),
      el("td", { class: "number", "data-value": t.most }, bytes(t.most)),
      el("td", { class: "bars" }, bar([[t.kind, t.total]], most)),
    )), [2, 3]);
  };

  const SHOWN = 400; // rows before one asks for all
  const showParameters = () => {
    const columns = [
      ["name", "Name", (p) => p.name], ["kind", "Kind", (p) => p.kind], ["stage", "Stage", (p) => p.stages[0] ?? -1],
      ["dtype", "Dtype", (p) => p.dtype], ["shape", "Shape", (p) => p.numel], ["sbp", "SBP", (p) => p.sbp],
      ["placement", "Placement", (p) => p.placement], ["nbytes", "Bytes per rank", (p) => p.nbytes], ["state", "States per rank", (p) => p.state],
    ].filter(([key]) => key !== "stage" || parameters.some((p) => p.stages.length));
    const text = parameters.map((p) => [p.name, p.kind, p.dtype, p.sbp, p.placement, p.shape.join(", "), p.stages.map((s) => `stage ${s}`).join(" ")].join("\n").toLowerCase());
    let [sort, up, all] = [null, true, false];
    const show = () => {
      const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
      let found = parameters.map((p, i) => i).filter((i) => words.every((word) => text[i].includes(word)));
      if (sort) {
        const key = columns.find(([name]) => name === sort)[2];
        const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
        found = found.sort((i, j) => (up ? 1 : -1) * compare(key(parameters[i]), key(parameters[j])) || i - j);
      }
      const shown = all ? found : found.slice(0, SHOWN);
      const rows_ = shown.map((i) => parameters[i]).map((p) => el("tr", {}, ...columns.map(([key]) => {
        if (key === "name") return el("th", { scope: "row", class: "name" }, p.name);
        if (key === "stage") return el("td", { class: "number" }, p.stages.join(", "));
        if (key === "shape") return el("td", { class: "number" }, p.shape.length ? p.shape.map(count).join(" × ") : "scalar");
        if (key === "nbytes" || key === "state") return el("td", { class: "number", "data-value": p[key] }, p[key] ? bytes(p[key]) : "–");
        return el("td", { class: key === "sbp" ? "name" : null }, key === "kind" ? p.kind.replace(/s$/, "") : p[key]);
      })));
      const head = columns.map(([key, title]) => el("th", { scope: "col", class: ["stage", "shape", "nbytes", "state"].includes(key) ? "number" : null, "aria-sort": key === sort ? (up ? "ascending" : "descending") : null },
        el("button", { type: "button", "data-key": key, on: { click: () => {
          [sort, up] = [key, key === sort ? !up : true];
          show();
          $("layouts").querySelector(`[data-key="${key}"]`).focus();
        } } }, title)));
      $("layouts").replaceChildren(el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows_));
      $("found").value = words.length ? `${count(found.length)} of ${count(parameters.length)}` : plural(parameters.length, "tensor");
      $("all-layouts").hidden = shown.length === found.length;
      $("all-layouts").textContent = `Show all ${count(found.length)}`;
    };
    $("search").addEventListener("input", show);
    $("all-layouts").addEventListener("click", () => { all = true; show(); });
    show();
    if (!parameters.length) $("parameters").remove();
  };

  const showSearched = () => {
    if (!searched.length) {
      $("searched").remove();
      return;
    }
    const slowest = Math.max(1e-12, ...searched.map((c) => c.seconds ?? 0));
    fill($("candidates"), ["Strategy", "Step time", "", "Memory", "Description"], searched.map((c, i) => el("tr", { class: i ? null : "chosen" },
      el("th", { scope: "row" }, c.name),
      el("td", { class: "number", "data-value": c.seconds }, seconds(c.seconds)),
      el("td", { class: "bars" }, c.seconds ? bar([["forward", c.seconds]], slowest) : null),
      el("td", { class: "number", "data-value": c.memory }, bytes(c.memory)),
      el("td", { class: "text" }, c.description),
    )), [1, 3]);
  };

  const curve = (name, points, unit) => {
    const [w, h, left, bottom, top] = [240, 130, 34, 20, 8];
    const [low, high] = [Math.log10(points[0][0]), Math.log10(points.at(-1)[0])];
    const x = (size) => left + 6 + (high > low ? (Math.log10(size) - low) / (high - low) : 0.5) * (w - left - 22);
    const y = (share) => top + (1 - share) * (h - top - bottom);
    const node = svg("svg", { viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": `${name}: ${points.map(([size, share]) => `${percent(share)} at ${rate(size, unit)}`).join(", ")}` });
    for (const share of [0, 0.5, 1]) {
      node.append(svg("line", { class: "axis", x1: left, x2: w - 8, y1: y(share), y2: y(share) }));
      node.append(svg("text", { x: left - 6, y: y(share) + 3, "text-anchor": "end" }, `${100 * share}%`));
    }
    node.append(svg("text", { x: left, y: h - 5 }, rate(points[0][0], unit)));
    if (points.length > 1) node.append(svg("text", { x: w - 8, y: h - 5, "text-anchor": "end" }, rate(points.at(-1)[0], unit)));
    node.append(svg("polyline", { class: "curve", points: points.map(([size, share]) => `${x(size)},${y(share)}`).join(" ") }));
    for (const [size, share] of points)
      node.append(svg("circle", { cx: x(size), cy: y(share), r: 2.6 }, svg("title", {}, `${percent(share)} at ${rate(size, unit)}`)));
    return el("figure", {}, el("figcaption", {}, name), node);
  };
  const showMachine = () => {
    if (!machine) {
      $("machine").replaceChildren(el("h2", {}, "Hardware"), el("p", { class: "quiet" }, "No hardware was named, so there are no times: graph.report(path, hardware=\"h100\") simulates the call on it."));
      return;
    }
    const pairs = [
      ["Machine", machine.name],
      ...Object.entries(machine.peak).map(([dtype, flops]) => [`Peak, ${dtype}`, rate(flops, "flop/s")]),
      ["Memory of a device", bytes(machine.memory_bytes)],
      ["Memory bandwidth", rate(machine.memory_bandwidth, "B/s")],
      ["Launch of an op", `${digits(machine.launch * 1e6)} µs${machine.launches_ahead ? ", hidden by earlier ops" : ""}`],
      ["Compute during communication", `${digits(machine.contention)} × as long`],
      ["Products half as fast with a dim of", machine.narrow ? count(machine.narrow) : null],
      ["Reserved by the driver", machine.context_bytes ? bytes(machine.context_bytes) : null],
      ["Reserved by each communicator", machine.communicator_bytes ? bytes(machine.communicator_bytes) : null],
      ["Between device and host", machine.host_bandwidth ? rate(machine.host_bandwidth, "B/s") : null],
      ["Memory of the host, for a device", machine.host_bytes ? bytes(machine.host_bytes) : null],
      ...Object.entries(machine.ops).map(([op, factor]) => [`Op ${op}`, `${digits(factor)} × as long`]),
    ];
    $("facts").append(...pairs.filter(([, value]) => value).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
    fill($("levels"), ["Link", "Joins", "Bandwidth", "Latency", "Launch", "Each message", "Collectives"], machine.links.map((link) => el("tr", {},
      el("th", { scope: "row" }, link.name),
      el("td", {}, link.ranks == null ? "all ranks" : plural(link.ranks, "rank")),
      el("td", { class: "number" }, rate(link.bandwidth, "B/s")),
      el("td", { class: "number" }, `${digits(link.latency * 1e6)} µs`),
      el("td", { class: "number" }, `${digits(link.launch * 1e6)} µs`),
      el("td", { class: "number" }, link.message ? `${digits(link.message * 1e6)} µs` : "–"),
      el("td", {}, link.algorithms.join(", ")),
    )), [2, 3, 4, 5]);
    const names = { matmul: "Matrix products, by flop", attention: "Attention, by flop", memory: "Memory, by bytes" };
    $("curves").append(
      ...Object.entries(machine.curves).map(([key, points]) => curve(names[key] ?? key, points, key === "memory" ? "B" : "flop")),
      ...machine.links.map((link) => curve(`${link.name}, by bytes`, link.efficiency, "B")),
    );
  };

  // The theme, which the page keeps to while it is open.

  const setTheme = (theme) => {
    if (theme === "auto") document.documentElement.removeAttribute("data-theme");
    else document.documentElement.dataset.theme = theme;
    redraw();
  };
  $("theme").addEventListener("change", (event) => setTheme(event.target.value));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let printing = false;
  addEventListener("beforeprint", () => {
    printing = true;
    document.documentElement.dataset.theme = "light";
    redraw();
  });
  addEventListener("afterprint", () => {
    printing = false;
    setTheme(document.querySelector("#theme input:checked").value);
  });
  new ResizeObserver(redraw).observe(document.querySelector("main"));

  showHead();
  readColors();
  showTimeline();
  prepareMemory();
  showGroups();
  showTraffic();
  showParameters();
  showSearched();
  showMachine();
  $("sections").append(...[...document.querySelectorAll("section[data-title]")].map((s) => el("a", { href: `#${s.id}` }, s.dataset.title)));
  choose(memory.length ? memory.reduce((best, m, i) => (m.peak > memory[best].peak ? i : best), 0) : 0);
  setView(0, end);
})();
