// Plotly's figures, drawn for the theme of a page that has one, and otherwise as they are.
"use strict";
(async () => {
  const config = {responsive: true, displaylogo: false, displayModeBar: false};
  const texts = await kvsim.drawings;
  if (!texts) { document.body.dataset.drawn = "0"; return; }
  const dark = document.getElementById("dark");
  const swaps = new Map(Object.entries(dark ? JSON.parse(dark.textContent) : {}));
  const draw = async () => {
    for (const [place, text] of texts) {
      // Colours are told by their text: a label can look like one only as a whole string.
      const figure = JSON.parse(text, (key, value) => kvsim.theme && kvsim.theme.dark()
        && typeof value === "string" && key !== "name" && swaps.has(value) ? swaps.get(value) : value);
      await Plotly.react(place, figure.data, figure.layout, config);
    }
    document.body.dataset.drawn = String(texts.size);
  };
  if (kvsim.theme) kvsim.theme.onChange(draw);
  await draw();
  // Paper is narrower than a screen: draw for its width, and back again.
  const refit = () => kvsim.places.forEach((place) => Plotly.Plots.resize(place));
  addEventListener("beforeprint", refit);
  addEventListener("afterprint", refit);
})();
