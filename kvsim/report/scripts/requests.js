// The table of requests: search, sort, page by page; a click marks one in every figure.
"use strict";
(async () => {
  const PAGE = 25;
  const section = document.getElementById("requests");
  if (!section) return;
  const body = section.querySelector("tbody");
  const search = section.querySelector("input");
  const chooser = section.querySelector("select");
  const count = section.querySelector(".count");
  const [back, on, clear] = ["back", "on", "clear"].map((name) => section.querySelector(`.${name}`));
  const heads = [...section.querySelectorAll("th button")];
  const runs = await kvsim.requests;
  let at = 0;
  let order = {column: "arrival", up: true};
  let found = [];

  const value = (run, place, column) => {
    if (column === "id") return run.ids[place];
    if (column in run) return run[column][place];
    return kvsim.waits(run, place)[column];
  };
  const TIMES = new Set(["arrival", "queue_s", "ttft_s", "tpot_s", "e2e_s"]);
  const shown = (run, place, column) => {
    if (column === "id") return run.ids[place];
    if (column === "e2e_s" && place in run.reasons) return "refused";
    const number = value(run, place, column);
    return TIMES.has(column) ? kvsim.seconds(number) : number.toLocaleString("en-US");
  };

  const find = () => {
    const run = runs[Number(chooser.value)];
    const words = search.value.trim().toLowerCase();
    found = [];
    for (let place = 0; place < run.num; place++) {
      if (!words || run.ids[place].toLowerCase().includes(words)) found.push(place);
    }
    const sign = order.up ? 1 : -1;
    const keys = new Map(found.map((place) => [place, value(run, place, order.column)]));
    found.sort((one, other) => {
      const [a, b] = [keys.get(one), keys.get(other)];
      return sign * (a < b ? -1 : a > b ? 1 : 0) || one - other;
    });
    at = 0;
    show();
  };

  const show = () => {
    const run = runs[Number(chooser.value)];
    body.replaceChildren(...found.slice(at, at + PAGE).map((place) => {
      const row = document.createElement("tr");
      row.tabIndex = 0;
      row.dataset.place = place;
      row.setAttribute("aria-selected", String(Boolean(kvsim.marked
        && kvsim.marked.place === place && kvsim.marked.run === Number(chooser.value))));
      if (place in run.reasons) row.title = run.reasons[place];
      heads.forEach((head, index) => {
        const cell = document.createElement(index ? "td" : "th");
        const text = shown(run, place, head.dataset.column);
        if (index) { cell.textContent = text; } else {
          const name = document.createElement("bdi");
          name.textContent = text;
          name.title = text;
          cell.append(name);
        }
        row.append(cell);
      });
      return row;
    }));
    const last = Math.min(at + PAGE, found.length);
    count.textContent = found.length
      ? `${(at + 1).toLocaleString("en-US")} to ${last.toLocaleString("en-US")} of ${found.length.toLocaleString("en-US")}`
      : "none found";
    back.disabled = at === 0;
    on.disabled = last >= found.length;
    clear.disabled = !kvsim.marked;
    for (const head of heads) {
      const sorted = head.dataset.column === order.column;
      head.parentElement.setAttribute("aria-sort", sorted ? (order.up ? "ascending" : "descending") : "none");
    }
    section.dataset.ready = "true";
  };

  const choose = (event) => {
    const row = event.target.closest("tr");
    if (!row || (event.type === "keydown" && event.key !== "Enter" && event.key !== " ")) return;
    event.preventDefault();
    const place = Number(row.dataset.place);
    const run = Number(chooser.value);
    const again = kvsim.marked && kvsim.marked.place === place && kvsim.marked.run === run;
    kvsim.mark(run, again ? null : place);
    const same = body.querySelector(`tr[data-place="${place}"]`);
    if (same) same.focus({preventScroll: true});
  };
  body.addEventListener("click", choose);
  body.addEventListener("keydown", choose);
  search.addEventListener("input", find);
  chooser.addEventListener("change", find);
  back.addEventListener("click", () => { at = Math.max(at - PAGE, 0); show(); });
  on.addEventListener("click", () => { at += PAGE; show(); });
  clear.addEventListener("click", () => kvsim.mark(0, null));
  heads.forEach((head) => head.addEventListener("click", () => {
    const column = head.dataset.column;
    order = {column, up: order.column === column ? !order.up : column === "id" || column === "arrival"};
    find();
  }));
  kvsim.heard.push(show);
  find();
})();
