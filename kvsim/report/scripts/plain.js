// Plotly's figures as they are, on a page that asks nothing of them.
"use strict";
(async () => {
  const config = {responsive: true, displaylogo: false, displayModeBar: false};
  const texts = await kvsim.drawings;
  if (!texts) return;
  for (const [place, text] of texts) {
    const figure = JSON.parse(text);
    await Plotly.newPlot(place, figure.data, figure.layout, config);
  }
  document.body.dataset.drawn = String(texts.size);
  // Paper is narrower than a screen: draw for its width, and back again.
  const refit = () => kvsim.places.forEach((place) => Plotly.Plots.resize(place));
  addEventListener("beforeprint", refit);
  addEventListener("afterprint", refit);
})();
