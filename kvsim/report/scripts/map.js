// The address map: x is time, y is the address in the pool, every stay a rectangle.
"use strict";
(async () => {
  const section = document.getElementById("map");
  if (!section) return;
  const maps = kvsim.data.maps;
  const canvas = section.querySelector("canvas");
  const tip = section.querySelector(".tip");
  const said = section.querySelector(".said");
  const [chooser, colouring] = section.querySelectorAll("select");
  const note = section.querySelector(".extent");
  const LEFT = 76, RIGHT = 10, TOP = 8, BOTTOM = 28, LANE = 84;
  const NOBODY = 4294967295;
  const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#882255",
    "#44aa99", "#999933", "#6f63c9", "#bb5566", "#117733"].map((text) => parseInt(text.slice(1), 16));
  const CLASSES = {used: 0x0072b2, reserved: 0xe69f00, over: 0xd55e00, kept: 0x7cc4ec};
  const MARK = 0xff3b00;
  const runs = await kvsim.requests;
  const opened = new Map();
  let map = null;      // of the run chosen, unpacked
  let view = null;     // {t0, t1} in ticks, {a0, a1} in units
  let drag = null;

  const open = async (index) => {
    if (!opened.has(index)) {
      const raw = maps[index];
      const names = ["times", "address", "units", "start", "length", "owner", "kept"];
      const columns = await Promise.all(names.map((name) => kvsim.unpacked(raw[name])));
      const found = Object.fromEntries(names.map((name, at) => [name, columns[at]]));
      // Times as ticks: the data has them by their places among all moments, in ascending order.
      const {times, start, length} = found;
      for (let i = 1; i < times.length; i++) times[i] += times[i - 1];
      for (let i = 0, place = 0; i < raw.num; i++) {
        place += start[i];
        start[i] = times[place];
        length[i] = times[place + length[i]] - times[place];
      }
      const picture = raw.picture ? await kvsim.unpacked(raw.picture.cells) : null;
      let holes = null;
      if (raw.holes) {
        const [time, largest, need] = await Promise.all(
          ["time_s", "largest_bytes", "need_bytes"].map((name) => kvsim.unpackedFloats(raw.holes[name])));
        holes = {num: raw.holes.num, time, largest, need};
      }
      opened.set(index, {...raw, ...found, cells: picture, holes, index});
    }
    return opened.get(index);
  };
  const wholeUnits = () => map.capacity_bytes / map.unit_bytes;
  const whole = () => ({t0: 0, t1: map.ticks, a0: 0, a1: wholeUnits()});
  const seconds = (tick) => (tick / map.ticks) * map.span_s;
  const inDetail = () => !map.cells || (view.t0 >= map.detail[0] && view.t1 <= map.detail[1]);
  const lane = () => (map.holes ? LANE : 0);
  const area = () => ({
    x: LEFT, y: TOP, w: canvas.clientWidth - LEFT - RIGHT, h: canvas.clientHeight - TOP - BOTTOM - lane(),
  });

  const blend = (colour, paper, share) => {
    let mixed = 0;
    for (const shift of [16, 8, 0]) {
      const one = (colour >> shift) & 255, other = (paper >> shift) & 255;
      mixed |= Math.round(one * share + other * (1 - share)) << shift;
    }
    return mixed;
  };
  const opaque = (colour) => (0xff000000 | ((colour & 255) << 16) | (colour & 0xff00) | (colour >> 16)) >>> 0;
  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const paperOf = () => parseInt(ink("--well").slice(1), 16);
  const ofOwner = (owner) => PALETTE[(owner * 7) % PALETTE.length];
  const listed = (owner) => owner < runs[map.index].num;
  const colourOf = (owner, kept, paper) => {
    if (kvsim.marked && kvsim.marked.run === map.index && owner === kvsim.marked.place) {
      return kept ? blend(MARK, paper, 0.55) : MARK;
    }
    const dim = kvsim.marked ? 0.3 : 1;
    if (colouring.value === "class") return blend(kept ? CLASSES.kept : CLASSES.used, paper, dim);
    return blend(ofOwner(owner), paper, (kept ? 0.28 : 1) * dim);
  };

  // Slots of a buffer that were valid at a tick, read off its request's times.
  const valid = (run, owner, tick) => {
    const time = seconds(tick), first = run.first_token[owner], end = run.finish[owner];
    const past = end > first ? Math.min(Math.max((time - first) / (end - first), 0), 1) : 1;
    return run.prompt_tokens[owner] + past * (run.output_tokens[owner] - 1);
  };

  // A pixel shows who lay at its middle; who lay at no pixel's middle shows where nobody else did.
  const paintStays = (pixels, w, h, ratio, paper) => {
    const {address, units, start, length, owner, kept} = map;
    const perTick = w / (view.t1 - view.t0), perUnit = h / (view.a1 - view.a0);
    const bands = colouring.value === "class" && map.buffers && !kvsim.marked;
    const empty = opaque(paper);
    const small = [];
    for (let i = 0; i < map.num && start[i] <= view.t1; i++) {
      const top = address[i] + units[i];
      if (start[i] + length[i] < view.t0 || address[i] > view.a1 || top < view.a0) continue;
      const left = (start[i] - view.t0) * perTick, right = left + length[i] * perTick;
      const bottom = h - (address[i] - view.a0) * perUnit, upper = bottom - units[i] * perUnit;
      let x0 = Math.ceil(left - 0.5), x1 = Math.ceil(right - 0.5);
      let y0 = Math.ceil(upper - 0.5), y1 = Math.ceil(bottom - 0.5);
      const marked = kvsim.marked && kvsim.marked.run === map.index && owner[i] === kvsim.marked.place;
      if (x0 === x1 || y0 === y1) {
        if (!marked) { small.push(i); continue; }
        x1 = Math.max(x1, x0 + 1); y1 = Math.max(y1, y0 + 1);
      }
      if (x1 - x0 > 5 * ratio) x1 -= 1;
      if (y1 - y0 > 5 * ratio) y0 += 1;
      x0 = Math.max(x0, 0); x1 = Math.min(x1, w); y0 = Math.max(y0, 0); y1 = Math.min(y1, h);
      if (bands && !kept[i] && listed(owner[i]) && y1 - y0 > 2) {
        paintBands(pixels, w, {x0, x1, y0, y1, bottom}, i, perTick, perUnit);
        continue;
      }
      const colour = opaque(colourOf(owner[i], kept[i], paper));
      for (let y = y0; y < y1; y++) pixels.fill(colour, y * w + x0, y * w + x1);
    }
    for (const i of small) {
      const x = Math.floor((start[i] - view.t0) * perTick);
      const y = Math.floor(h - (address[i] + units[i] / 2 - view.a0) * perUnit);
      if (x >= 0 && x < w && y >= 0 && y < h && pixels[y * w + x] === empty) {
        pixels[y * w + x] = opaque(colourOf(owner[i], kept[i], paper));
      }
    }
  };

  // Inside a buffer: what is valid, what will be, and what never is.
  const paintBands = (pixels, w, {x0, x1, y0, y1, bottom}, i, perTick, perUnit) => {
    const run = runs[map.index], owner = map.owner[i];
    const final = run.prompt_tokens[owner] + run.output_tokens[owner] - 1;
    const perSlot = (map.token_bytes / map.unit_bytes) * perUnit;
    const [usedInk, askedInk, overInk] = [CLASSES.used, CLASSES.reserved, CLASSES.over].map(opaque);
    for (let x = x0; x < x1; x++) {
      const used = bottom - valid(run, owner, view.t0 + x / perTick) * perSlot;
      const asked = bottom - final * perSlot;
      for (let y = y0; y < y1; y++) pixels[y * w + x] = y >= used ? usedInk : y >= asked ? askedInk : overInk;
    }
  };

  const paintPicture = (pixels, w, h, paper) => {
    const {columns, rows} = map.picture;
    for (let x = 0; x < w; x++) {
      const tick = view.t0 + ((x + 0.5) / w) * (view.t1 - view.t0);
      const column = Math.min(Math.floor((tick / map.ticks) * columns), columns - 1);
      for (let y = 0; y < h; y++) {
        const unit = view.a0 + ((h - y - 0.5) / h) * (view.a1 - view.a0);
        const row = Math.min(Math.floor((unit / wholeUnits()) * rows), rows - 1);
        const cell = map.cells[column * rows + row];
        if (cell !== NOBODY) pixels[y * w + x] = opaque(colourOf(Math.floor(cell / 2), cell & 1, paper));
      }
    }
  };

  const draw = () => {
    if (!map) return;
    const ratio = Math.min(devicePixelRatio || 1, 2);
    canvas.width = Math.round(canvas.clientWidth * ratio);
    canvas.height = Math.round(canvas.clientHeight * ratio);
    const pen = canvas.getContext("2d", {willReadFrequently: true});
    const {x, y, w, h} = area();
    const [pw, ph] = [Math.max(Math.round(w * ratio), 1), Math.max(Math.round(h * ratio), 1)];
    const image = pen.createImageData(pw, ph);
    const pixels = new Uint32Array(image.data.buffer);
    const paper = paperOf();
    pixels.fill(opaque(paper));
    if (inDetail()) paintStays(pixels, pw, ph, ratio, paper);
    else paintPicture(pixels, pw, ph, paper);
    pen.putImageData(image, Math.round(x * ratio), Math.round(y * ratio));
    pen.scale(ratio, ratio);
    pen.strokeStyle = ink("--line");
    pen.strokeRect(x - 0.5, y - 0.5, w + 1, h + 1);
    pen.fillStyle = ink("--faint");
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    const low = view.a0 * map.unit_bytes, high = view.a1 * map.unit_bytes;
    for (const [at, text] of kvsim.ticks(low, high, 6, kvsim.SIZES)) {
      const py = y + h - ((at - low) / (high - low)) * h;
      pen.fillText(text, x - 6, Math.min(Math.max(py, y + 6), y + h - 6));
    }
    pen.textAlign = "center";
    const [from, to] = [seconds(view.t0), seconds(view.t1)];
    for (const [at, text] of kvsim.ticks(from, to, Math.max(w / 90, 2), kvsim.TIMES)) {
      const px = x + ((at - from) / (to - from)) * w;
      pen.fillRect(px, canvas.clientHeight - BOTTOM, 1, 4);
      pen.fillText(text, Math.min(Math.max(px, x + 14), x + w - 18), canvas.clientHeight - BOTTOM + 14);
    }
    if (map.cells && !inDetail()) {
      const from = x + ((map.detail[0] - view.t0) / (view.t1 - view.t0)) * w;
      const to = x + ((map.detail[1] - view.t0) / (view.t1 - view.t0)) * w;
      pen.strokeStyle = ink("--ink");
      pen.setLineDash([4, 3]);
      pen.strokeRect(Math.max(from, x) + 0.5, y + 0.5, Math.min(to, x + w) - Math.max(from, x), h - 1);
      pen.setLineDash([]);
    }
    if (map.holes) drawHoles(pen, x, w);
    if (drag && drag.box) {
      pen.strokeStyle = ink("--ink");
      pen.strokeRect(drag.box.x, drag.box.y, drag.box.w, drag.box.h);
    }
    canvas.dataset.drawn = `${map.index}:${colouring.value}`;
  };

  // The largest hole beside what the head of the queue needed, on the same time.
  const drawHoles = (pen, x, w) => {
    const {num, time, largest, need} = map.holes;
    const top = canvas.clientHeight - BOTTOM - LANE + 26, height = LANE - 30;
    let most = 1;
    for (let i = 0; i < num; i++) most = Math.max(most, 2 * need[i]);
    pen.textAlign = "left";
    pen.fillStyle = ink("--faint");
    const scale = `up to ${kvsim.size(most)} and beyond`;
    const whole = `largest hole (filled) and what the next request needs (line), ${scale}`;
    if (pen.measureText(whole).width <= w) pen.fillText(whole, x, top - 12);
    else ["largest hole (filled), next request (line),", scale].forEach((text, at) => pen.fillText(text, x, top - 16 + 12 * at, w));
    const span = seconds(view.t1) - seconds(view.t0);
    const px = (at) => x + ((at - seconds(view.t0)) / span) * w;
    const py = (bytes) => top + height * (1 - Math.min(bytes / most, 1));
    pen.save();
    pen.beginPath(); pen.rect(x, top - 2, w, height + 3); pen.clip();
    pen.fillStyle = ink("--hole");
    for (let i = 0; i < num; i++) {
      const to = i + 1 < num ? time[i + 1] : time[i];
      pen.fillRect(px(time[i]), py(largest[i]), Math.max(px(to) - px(time[i]), 1), top + height - py(largest[i]));
    }
    pen.strokeStyle = "#c2410c";
    pen.beginPath();
    for (let i = 0; i < num; i++) {
      if (i) pen.lineTo(px(time[i]), py(need[i - 1]));
      pen[i ? "lineTo" : "moveTo"](px(time[i]), py(need[i]));
    }
    pen.stroke();
    pen.restore();
  };

  const at = (event) => {
    const box = canvas.getBoundingClientRect(), {x, y, w, h} = area();
    return {
      px: event.clientX - box.left, py: event.clientY - box.top,
      tick: view.t0 + ((event.clientX - box.left - x) / w) * (view.t1 - view.t0),
      unit: view.a1 - ((event.clientY - box.top - y) / h) * (view.a1 - view.a0),
    };
  };
  const inside = ({tick, unit}) => tick >= view.t0 && tick <= view.t1 && unit >= view.a0 && unit <= view.a1;
  const under = ({tick, unit}) => {
    if (!inDetail()) return null;
    let best = -1;
    for (let i = 0; i < map.num && map.start[i] <= tick; i++) {
      if (tick <= map.start[i] + map.length[i] && unit >= map.address[i] && unit < map.address[i] + map.units[i]
        && (best < 0 || map.kept[i] <= map.kept[best])) best = i;
    }
    return best < 0 ? null : best;
  };
  const told = (i) => {
    const run = runs[map.index], owner = map.owner[i];
    const name = listed(owner) ? run.ids[owner] : "a request that is not in the table";
    const bytes = map.units[i] * map.unit_bytes;
    return `${name}: ${map.kept[i] ? "cached, " : ""}${kvsim.size(bytes)} at ${kvsim.size(map.address[i] * map.unit_bytes)}, `
      + `${kvsim.seconds(seconds(map.start[i]))} to ${kvsim.seconds(seconds(map.start[i] + map.length[i]))}`;
  };

  const show = (next) => {
    const all = whole(), least = {t: all.t1 / 2e5, a: Math.min(1, all.a1)};
    const fit = (low, high, most, smallest) => {
      const span = Math.min(Math.max(high - low, smallest), most);
      const from = Math.min(Math.max(low, 0), most - span);
      return [from, from + span];
    };
    const [t0, t1] = fit(next.t0, next.t1, all.t1, least.t);
    const [a0, a1] = fit(next.a0, next.a1, all.a1, least.a);
    view = {t0, t1, a0, a1};
    said.textContent = `${kvsim.seconds(seconds(t0))} to ${kvsim.seconds(seconds(t1))}, `
      + `${kvsim.size(a0 * map.unit_bytes)} to ${kvsim.size(a1 * map.unit_bytes)} of the pool`;
    requestAnimationFrame(draw);
  };
  const zoom = (factor) => {
    const [t, a] = [(view.t0 + view.t1) / 2, (view.a0 + view.a1) / 2];
    const [dt, da] = [((view.t1 - view.t0) / 2) * factor, ((view.a1 - view.a0) / 2) * factor];
    show({t0: t - dt, t1: t + dt, a0: a - da, a1: a + da});
  };
  const pan = (dt, da) => {
    const [t, a] = [(view.t1 - view.t0) * dt, (view.a1 - view.a0) * da];
    show({t0: view.t0 + t, t1: view.t1 + t, a0: view.a0 + a, a1: view.a1 + a});
  };

  canvas.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "touch") return;
    drag = {from: at(event), box: null};
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const here = at(event);
    if (drag) {
      const [x, y] = [Math.min(drag.from.px, here.px), Math.min(drag.from.py, here.py)];
      const [w, h] = [Math.abs(drag.from.px - here.px), Math.abs(drag.from.py - here.py)];
      drag.box = w > 5 || h > 5 ? {x, y, w, h} : null;
      requestAnimationFrame(draw);
      return;
    }
    const i = inside(here) ? under(here) : null;
    tip.hidden = i === null;
    if (i !== null) {
      tip.textContent = told(i);
      tip.style.left = `${Math.min(here.px + 12, canvas.clientWidth - tip.offsetWidth - 4)}px`;
      tip.style.top = `${here.py + 14}px`;
    }
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  const release = (event) => {
    const here = at(event);
    const box = drag && drag.box;
    const from = drag ? drag.from : here;
    drag = null;
    if (box) {
      show({t0: Math.min(from.tick, here.tick), t1: Math.max(from.tick, here.tick),
        a0: Math.min(from.unit, here.unit), a1: Math.max(from.unit, here.unit)});
    } else if (inside(here)) {
      const i = under(here);
      const owner = i === null || !listed(map.owner[i]) ? null : map.owner[i];
      const again = kvsim.marked && kvsim.marked.place === owner && kvsim.marked.run === map.index;
      kvsim.mark(map.index, again ? null : owner);
      if (i !== null) said.textContent = told(i);
    }
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("dblclick", () => show(whole()));
  canvas.addEventListener("keydown", (event) => {
    const moves = {
      ArrowLeft: () => pan(-0.2, 0), ArrowRight: () => pan(0.2, 0),
      ArrowUp: () => pan(0, 0.2), ArrowDown: () => pan(0, -0.2),
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: () => show(whole()), Home: () => show(whole()),
    };
    if (moves[event.key]) { event.preventDefault(); moves[event.key](); }
  });
  section.querySelector(".in").addEventListener("click", () => zoom(0.5));
  section.querySelector(".out").addEventListener("click", () => zoom(2));
  section.querySelector(".all").addEventListener("click", () => show(whole()));
  const focus = section.querySelector(".focus");
  focus.addEventListener("click", () => {
    const t = (map.detail[0] + map.detail[1]) / 2, half = (map.detail[1] - map.detail[0]) / 2;
    show({...whole(), t0: t - half, t1: t + half});
  });

  const pick = async () => {
    map = await open(Number(chooser.value));
    focus.hidden = !map.cells;
    note.textContent = map.cells
      ? `${map.num_stays.toLocaleString("en-US")} buffers and blocks are too many for a page: the whole run is drawn cell by cell, `
        + `and every block of ${kvsim.seconds(seconds(map.detail[0]))} to ${kvsim.seconds(seconds(map.detail[1]))}, around its fullest moment (dashed).`
      : "";
    if (map.counted) {
      note.textContent = `The allocator counts its pages and does not number them: each is drawn behind the one before it, where that was free. ${note.textContent}`;
    }
    if (map.cut) note.textContent = `The map ends at ${kvsim.seconds(map.span_s)}: more was not written down. ${note.textContent}`;
    show(whole());
    section.dataset.ready = "true";
  };
  chooser.addEventListener("change", pick);
  const explain = () => {
    for (const key of section.querySelectorAll("[data-colours]")) key.hidden = key.dataset.colours !== colouring.value;
  };
  colouring.addEventListener("change", () => { explain(); draw(); });
  explain();
  kvsim.theme.onChange(draw);
  kvsim.heard.push((marked) => {
    if (marked && maps[marked.run] && marked.run !== Number(chooser.value)) {
      chooser.value = String(marked.run);
      pick();
    } else { draw(); }
  });
  addEventListener("resize", draw);
  kvsim.map = {view: () => ({...view}), show, whole: () => whole(), told, under, seconds: (tick) => seconds(tick), current: () => map};
  await pick();
})();
