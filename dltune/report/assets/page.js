"use strict";

// Tables: a head sorts by its column, a field above filters the rows by a word.
document.querySelectorAll("th button").forEach((button) => {
  button.addEventListener("click", () => {
    const head = button.closest("th");
    const body = head.closest("table").tBodies[0];
    const column = head.cellIndex;
    const number = button.hasAttribute("data-number");
    const now = head.getAttribute("aria-sort");
    const down = now === "none" ? number : now === "ascending";
    const value = (row) => {
      const cell = row.cells[column];
      const text = cell.dataset.value ?? cell.textContent;
      if (!number) return text;
      const found = parseFloat(text.replaceAll(",", ""));
      return Number.isNaN(found) ? (down ? -Infinity : Infinity) : found;
    };
    const rows = Array.from(body.rows, (row) => [value(row), row]);
    rows.sort(([a], [b]) => (number ? a - b : a.localeCompare(b)) * (down ? -1 : 1) || 0);
    body.append(...rows.map(([, row]) => row));
    for (const other of head.parentNode.querySelectorAll("th")) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
  });
});

document.querySelectorAll("input[data-table]").forEach((field) => {
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = Array.from(document.getElementById(field.dataset.table).tBodies[0].rows);
    let left = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      left += !row.hidden;
    }
    field.parentNode.querySelector("output").textContent =
      left === rows.length ? `${left} rows` : `${left} of ${rows.length} rows`;
  });
});

const drawings = [];

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  root.dataset.theme = (root.dataset.theme || system) === "dark" ? "light" : "dark";
  drawings.forEach((draw) => draw());
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawings.forEach((draw) => draw()));

// Timelines: all of a step under each other, on one axis.
const WIDE_ROW = 18, SLIM_ROW = 8, MANY = 24, HEAD = 22, FLIGHT = 44, GAP = 14, AXIS = 22, LABEL = 74, MOST_LABEL = 180, LEAST = 200; // LEAST: ns

function nanoseconds(value, step) {
  const units = [[1e6, "ms"], [1e3, "µs"], [1, "ns"]];
  const [size, name] = units.find(([unit]) => (step || value) >= unit) || units[2];
  const digits = step ? Math.max(0, Math.min(3, Math.ceil(-Math.log10(step / size) - 1e-9))) : 3;
  return `${(value / size).toFixed(digits)} ${name}`;
}

function unpacked(row) {
  const count = row.slices.length / 3;
  const start = new Float64Array(count), end = new Float64Array(count), node = new Int32Array(count);
  for (let i = 0, at = 0; i < count; i++) {
    at += row.slices[3 * i];
    start[i] = at;
    end[i] = at + row.slices[3 * i + 1];
    node[i] = row.slices[3 * i + 2];
  }
  return { label: row.label, start, end, node };
}

// Ops in flight after each event; a node counts once, on however many cores it is.
function flight(rows) {
  const seen = new Set(), change = new Map();
  for (const row of rows) {
    for (let i = 0; i < row.node.length; i++) {
      const key = `${row.node[i]}:${row.start[i]}`;
      if (seen.has(key)) continue;
      seen.add(key);
      change.set(row.start[i], (change.get(row.start[i]) || 0) + 1);
      change.set(row.end[i], (change.get(row.end[i]) || 0) - 1);
    }
  }
  const times = Float64Array.from(change.keys()).sort();
  let level = 0, most = 0;
  const levels = Int32Array.from(times, (time) => {
    level += change.get(time);
    most = Math.max(most, level);
    return level;
  });
  return { times, levels, most };
}

// The first index whose value is above `time`.
function after(values, time) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

function timeline(box) {
  const source = JSON.parse(document.getElementById(box.dataset.source).textContent);
  const canvas = box.querySelector("canvas");
  const told = box.querySelector("output");
  const brush = canvas.getContext("2d");
  const groups = source.timelines.map((line) => {
    const ops = line.rows.map(unpacked), rows = [...line.links.map(unpacked), ...ops];
    const size = rows.length > MANY ? SLIM_ROW : WIDE_ROW; // pixels
    return { title: line.title, end: line.end, rows, size, flight: flight(ops) };
  });
  const longest = Math.max(...groups.flatMap((group) => group.rows.map((row) => row.label.length)));
  const margin = Math.min(MOST_LABEL, Math.max(LABEL, 7 * longest)); // of the rows' labels
  let left = 0, right = source.end, chosen = null, wide = 0;
  let tall = AXIS;
  for (const group of groups) {
    group.top = tall;
    tall += HEAD + group.rows.length * group.size + FLIGHT + GAP;
  }
  canvas.style.height = `${tall}px`;

  const x = (time) => margin + ((time - left) / (right - left)) * (wide - margin);
  const time = (at) => left + ((at - margin) / (wide - margin)) * (right - left);

  function show(from, to) {
    const width = Math.min(Math.max(to - from, LEAST), source.end);
    const middle = (from + to) / 2;
    left = Math.min(Math.max(0, middle - width / 2), source.end - width);
    right = left + width;
    canvas.dataset.left = Math.round(left);
    canvas.dataset.right = Math.round(right);
    requestDraw();
  }

  function draw() {
    const density = devicePixelRatio || 1;
    wide = canvas.clientWidth;
    canvas.width = Math.round(wide * density);
    canvas.height = Math.round(tall * density);
    brush.setTransform(density, 0, 0, density, 0, 0);
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const fills = [0, 1, 2, 3, 4, 5, 6, 7].map((index) => colour(`--c${index}`));
    const rest = colour("--rest"), ink = colour("--ink"), soft = colour("--soft");
    brush.fillStyle = colour("--bg");
    brush.fillRect(0, 0, wide, tall);
    brush.font = "12px system-ui, sans-serif";
    brush.textBaseline = "middle";
    ticks(colour("--rule"), soft);
    for (const group of groups) {
      brush.fillStyle = ink;
      brush.textAlign = "left";
      brush.fillText(group.title, 4, group.top + HEAD / 2);
      group.rows.forEach((row, index) => {
        const y = group.top + HEAD + index * group.size;
        brush.fillStyle = soft;
        brush.textAlign = "right";
        if (group.size === WIDE_ROW || index % 4 === 0) brush.fillText(row.label, margin - 6, y + group.size / 2);
        drawRow(row, y, fills, rest, colour("--bg"), ink, group);
      });
      drawFlight(group, group.top + HEAD + group.rows.length * group.size + 6, fills[0], soft);
    }
  }

  function ticks(rule, soft) {
    const most = Math.max(3, Math.floor((wide - margin) / 80));
    const least = (right - left) / most;
    const power = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].map((f) => f * power).find((f) => f >= least);
    brush.textAlign = "center";
    for (let at = Math.ceil(left / step) * step; at <= right; at += step) {
      brush.fillStyle = rule;
      brush.fillRect(Math.round(x(at)), AXIS - 4, 1, tall);
      brush.fillStyle = soft;
      if (x(at) > margin + 20 && x(at) < wide - 26) brush.fillText(nanoseconds(at, step), x(at), AXIS / 2 - 1);
    }
  }

  function drawRow(row, y, fills, rest, back, ink, group) {
    const tallness = group.size;
    let filled = margin; // what is narrower than a pixel is drawn once a pixel
    for (let i = after(row.end, left); i < row.start.length && row.start[i] < right; i++) {
      const from = Math.max(margin, x(row.start[i])), to = Math.min(wide, x(row.end[i]));
      if (to <= filled && to - from < 1) continue;
      const tone = source.colours[row.node[i]];
      brush.fillStyle = tone < 0 ? rest : fills[tone];
      const width = Math.max(1, to - from);
      brush.fillRect(from, y + 1, width, tallness - 2);
      filled = from + width;
      if (width > 3) {
        brush.fillStyle = back;
        brush.fillRect(to - 0.5, y + 1, 0.5, tallness - 2);
      }
      if (width > 60 && tallness === WIDE_ROW) {
        const text = name(row.node[i]).split("(")[0];
        brush.save();
        brush.beginPath();
        brush.rect(from + 3, y, width - 6, tallness);
        brush.clip();
        brush.fillStyle = back;
        brush.textAlign = "left";
        brush.fillText(text, from + 4, y + tallness / 2 + 0.5);
        brush.restore();
      }
    }
    if (chosen && chosen.group === group && chosen.row === row) {
      const from = x(row.start[chosen.index]), to = x(row.end[chosen.index]);
      brush.strokeStyle = ink;
      brush.lineWidth = 2;
      brush.strokeRect(from - 1, y, Math.max(3, to - from + 2), tallness);
    }
  }

  function drawFlight(group, y, fill, soft) {
    const { times, levels, most } = group.flight;
    const height = FLIGHT - 8;
    brush.fillStyle = soft;
    brush.textAlign = "right";
    brush.fillText(`${most} in flight`, margin - 6, y + 6);
    brush.fillStyle = fill;
    brush.globalAlpha = 0.55;
    let first = Math.max(0, after(times, left) - 1);
    for (let pixel = margin; pixel < wide; pixel++) {
      const until = time(pixel + 1);
      let level = levels[first] || 0;
      if (times[first] > until) level = 0;
      while (first + 1 < times.length && times[first + 1] <= until) {
        first += 1;
        level = Math.max(level, levels[first]);
      }
      const tallness = (level / Math.max(1, most)) * height;
      brush.fillRect(pixel, y + height - tallness, 1, tallness);
    }
    brush.globalAlpha = 1;
  }

  function name(node) {
    const op = source.ops[node];
    return op < 0 ? source.names[node] : source.keys[op];
  }

  function tell() {
    if (!chosen) return;
    const { group, row, index } = chosen;
    const node = row.node[index];
    const took = nanoseconds(row.end[index] - row.start[index]);
    told.textContent =
      `${source.names[node]}: ${took} from ${nanoseconds(row.start[index])}, ${row.label}, ` +
      `${group.title}; ${name(node)}`;
  }

  function choose(group, row, index) {
    chosen = { group, row, index };
    tell();
    const from = row.start[index], to = row.end[index];
    if (from < left || to > right) {
      const width = Math.max(right - left, (to - from) * 1.2);
      show((from + to - width) / 2, (from + to + width) / 2);
    } else requestDraw();
  }

  function move(by) {
    if (!chosen) {
      const group = groups[0], row = group.rows[0];
      return choose(group, row, Math.min(after(row.end, left), row.start.length - 1));
    }
    const index = Math.min(Math.max(0, chosen.index + by), chosen.row.start.length - 1);
    choose(chosen.group, chosen.row, index);
  }

  function moveRow(by) {
    if (!chosen) return move(0);
    const all = groups.flatMap((group) => group.rows.map((row) => [group, row]));
    const now = all.findIndex(([, row]) => row === chosen.row);
    const [group, row] = all[Math.min(Math.max(0, now + by), all.length - 1)];
    const middle = (chosen.row.start[chosen.index] + chosen.row.end[chosen.index]) / 2;
    choose(group, row, Math.min(after(row.end, middle), row.start.length - 1));
  }

  const acts = {
    in: () => zoom(0.5),
    out: () => zoom(2),
    left: () => shift(-0.25),
    right: () => shift(0.25),
    all: () => show(0, source.end),
  };
  function zoom(by, at) {
    const centre = at === undefined ? (left + right) / 2 : at;
    show(centre - (centre - left) * by, centre + (right - centre) * by);
  }
  function shift(by) {
    const width = right - left;
    show(left + by * width, right + by * width);
  }

  const keys = {
    ArrowLeft: acts.left, ArrowRight: acts.right, "+": acts.in, "=": acts.in, "-": acts.out,
    0: acts.all, n: () => move(1), p: () => move(-1), ArrowUp: () => moveRow(-1), ArrowDown: () => moveRow(1),
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });
  box.parentNode.querySelectorAll("button[data-act]").forEach((button) => {
    button.addEventListener("click", () => acts[button.dataset.act]());
  });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, time(event.offsetX));
  }, { passive: false });
  canvas.addEventListener("dblclick", (event) => zoom(0.25, time(event.offsetX)));

  let held = null, moved = false;
  canvas.addEventListener("pointerdown", (event) => {
    held = { x: event.clientX, left, right };
    moved = false;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!held) return;
    const by = ((held.x - event.clientX) / (wide - margin)) * (held.right - held.left);
    if (Math.abs(held.x - event.clientX) > 3) moved = true;
    if (moved) show(held.left + by, held.right + by);
  });
  canvas.addEventListener("pointerup", (event) => {
    held = null;
    if (!moved) pick(event.offsetX, event.offsetY);
  });
  canvas.addEventListener("pointercancel", () => { held = null; });

  function pick(px, py) {
    for (const group of groups) {
      const index = Math.floor((py - group.top - HEAD) / group.size);
      const row = group.rows[index];
      if (!row || py < group.top + HEAD) continue;
      const slack = (2 / (wide - margin)) * (right - left);
      const at = after(row.end, time(px) - slack);
      if (at < row.start.length && row.start[at] <= time(px) + slack) choose(group, row, at);
    }
  }

  let waiting = false;
  function requestDraw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      draw();
    });
  }
  new ResizeObserver(requestDraw).observe(canvas);
  drawings.push(requestDraw);
  show(0, source.end);
}

// The numbers are read when a timeline comes near to being seen.
const near = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    near.unobserve(entry.target);
    timeline(entry.target);
  }
}, { rootMargin: "400px" });
document.querySelectorAll(".timeline").forEach((box) => near.observe(box));
