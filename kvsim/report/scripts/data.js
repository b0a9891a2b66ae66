// The page's numbers, and what its parts tell each other.
"use strict";
kvsim.data = JSON.parse(document.getElementById("data").textContent);
kvsim.marked = null; // {run, place} of the request that is marked
kvsim.heard = []; // called with it when it changes

// Whole numbers: their bytes of equal weight lie together.
kvsim.unpacked = async (letters) => {
  const planes = await kvsim.bytes(letters);
  const num = planes.length / 4;
  const values = new Uint32Array(num);
  for (let i = 0; i < num; i++) {
    values[i] = planes[i] + (planes[num + i] << 8) + (planes[2 * num + i] << 16) + planes[3 * num + i] * 16777216;
  }
  return values;
};
kvsim.unpackedFloats = async (letters) => new Float32Array((await kvsim.unpacked(letters)).buffer);

// Three significant figures and the unit that suits them, as in kvsim.report.numbers.
kvsim.figures = (value, digits = 3) => {
  const whole = Math.abs(value) >= 1 ? String(Math.trunc(Math.abs(value))).length : 0;
  if (value === 0) return "0";
  if (whole >= digits) return Math.round(value).toLocaleString("en-US");
  return whole ? value.toFixed(digits - whole) : String(Number(value.toPrecision(digits)));
};
kvsim.seconds = (value) => {
  if (!(value >= 0)) return "–";
  if (value === 0) return "0 s";
  for (const [size, unit] of [[3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"]]) {
    if (value >= (size > 1 ? 2 * size : size)) return `${kvsim.figures(value / size)} ${unit}`;
  }
  return `${kvsim.figures(value / 1e-6)} µs`;
};
kvsim.size = (bytes) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let power = 0;
  while (bytes >= 1024 && power < units.length - 1) { bytes /= 1024; power += 1; }
  return `${kvsim.figures(bytes)} ${units[power]}`;
};

// Ticks of an axis from `low` to `high`, at most about `most`: their places and texts, on round
// numbers of one unit. Of [[size, name], ...], the largest unit that the axis holds `least` of and
// whose ticks need no more than two decimals.
kvsim.SIZES = {least: 1, units: [[1024 ** 4, "TiB"], [1024 ** 3, "GiB"], [1024 ** 2, "MiB"], [1024, "KiB"], [1, "B"]]};
kvsim.TIMES = {least: 3, units: [[3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"]]};
kvsim.ticks = (low, high, most, {least, units}) => {
  const step = (size) => {
    const rough = (high - low) / most / size;
    const power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough * (1 - 1e-9));
  };
  const [size, name] = units.find(([size]) => high >= least * size && step(size) >= 0.0099) || units[units.length - 1];
  const apart = step(size);
  const ticks = [];
  for (let at = Math.ceil((low / size / apart) * (1 - 1e-12)); at * apart * size <= high * (1 + 1e-12); at++) {
    const text = (at * apart).toLocaleString("en-US", {maximumFractionDigits: 6});
    ticks.push([at * apart * size, `${text} ${name}`]);
  }
  return ticks;
};

// The requests of each run, unpacked once: columns by name, and the ids. What is null is as in the
// first run.
kvsim.requests = (async () => {
  const runs = [];
  for (const packed of kvsim.data.requests.runs) {
    const run = {num: packed.num, reasons: packed.reasons};
    run.ids = packed.ids === null ? runs[0].ids : JSON.parse(await kvsim.text(packed.ids));
    for (const name of ["arrival", "scheduled", "first_token", "finish"]) {
      run[name] = packed[name] === null ? runs[0][name] : await kvsim.unpackedFloats(packed[name]);
    }
    for (const name of ["prompt_tokens", "output_tokens", "cached_tokens", "preemptions"]) {
      run[name] = packed[name] === null ? runs[0][name] : await kvsim.unpacked(packed[name]);
    }
    runs.push(run);
  }
  return runs;
})();

// A request's waits in seconds; -1 where it has none.
kvsim.waits = (run, place) => {
  const [arrival, scheduled, first, finish] =
    ["arrival", "scheduled", "first_token", "finish"].map((name) => run[name][place]);
  const outputs = run.output_tokens[place];
  return {
    queue_s: scheduled < 0 ? -1 : Math.max(scheduled - arrival, 0),
    ttft_s: first < 0 ? -1 : first - arrival,
    tpot_s: finish < 0 || outputs < 2 ? -1 : (finish - first) / (outputs - 1),
    e2e_s: finish < 0 ? -1 : finish - arrival,
  };
};

// Mark a request (or none) everywhere.
kvsim.mark = (run, place) => {
  kvsim.marked = place === null ? null : {run, place};
  for (const hear of kvsim.heard) hear(kvsim.marked);
};
