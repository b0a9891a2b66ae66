// Plotly's figures: drawn for the theme, redrawn when it changes, with the marked request in them.
"use strict";
(async () => {
  const MARK = "#c2410c";
  const config = {responsive: true, displaylogo: false, displayModeBar: false};
  // How tall the page is: whoever photographs it asks.
  const measure = () => { document.body.dataset.height = String(document.documentElement.scrollHeight); };
  const texts = await kvsim.drawings;
  if (!texts) { document.body.dataset.drawn = "0"; measure(); return; }
  const places = kvsim.places;

  // Colours are told by their text: a label can look like one only as a whole string.
  const themed = (text) => {
    if (!kvsim.theme.dark()) return JSON.parse(text);
    const swaps = new Map(Object.entries(kvsim.data.dark));
    return JSON.parse(text, (key, value) =>
      typeof value === "string" && key !== "name" && swaps.has(value) ? swaps.get(value) : value);
  };

  // What marks a request: a stretch of time, or its own wait on the axis of waits.
  const marks = (meta, marked, run) => {
    if (!marked || !meta || !meta.mark) return [];
    const line = {color: MARK, width: 1.5};
    if (meta.mark === "time") {
      const start = run.arrival[marked.place] / meta.unit_s;
      const end = Math.max(run.finish[marked.place], run.arrival[marked.place]) / meta.unit_s;
      return [{type: "rect", xref: "x", yref: "paper", x0: start, x1: end, y0: 0, y1: 1,
        fillcolor: MARK, opacity: 0.25, line, layer: "above"}];
    }
    const wait = kvsim.waits(run, marked.place)[meta.mark];
    return wait > 0
      ? [{type: "line", xref: "x", yref: "paper", x0: wait, x1: wait, y0: 0, y1: 1, line}] : [];
  };

  const shapesOf = async (figure) => {
    const runs = kvsim.marked ? await kvsim.requests : null;
    return marks(figure.layout.meta, kvsim.marked, runs && runs[kvsim.marked.run]);
  };
  const draw = async () => {
    for (const place of places) {
      const figure = themed(texts.get(place));
      figure.layout.shapes = await shapesOf(figure);
      await Plotly.react(place, figure.data, figure.layout, config);
    }
    document.body.dataset.drawn = String(places.length);
    measure();
  };
  // A mark changes nothing but what marks it.
  const mark = async () => {
    for (const place of places) {
      const shapes = await shapesOf(place);
      if (shapes.length || (place.layout.shapes || []).length) await Plotly.relayout(place, {shapes});
    }
  };
  new ResizeObserver(measure).observe(document.body);
  kvsim.theme.onChange(draw);
  kvsim.heard.push(mark);
  draw();
  // Paper is narrower than a screen: draw for its width, and back again.
  const refit = () => places.forEach((place) => Plotly.Plots.resize(place));
  addEventListener("beforeprint", refit);
  addEventListener("afterprint", refit);
})();
