// Plotly's figures as they are, on a page that asks nothing of them.
"use strict";
(() => {
  const config = {responsive: true, displaylogo: false, displayModeBar: false};
  const places = [...document.querySelectorAll("[data-figure]")];
  for (const place of places) {
    const figure = JSON.parse(document.getElementById(place.dataset.figure).textContent);
    Plotly.newPlot(place, figure.data, figure.layout, config);
  }
  // Paper is narrower than a screen: draw for its width, and back again.
  const refit = () => places.forEach((place) => Plotly.Plots.resize(place));
  addEventListener("beforeprint", refit);
  addEventListener("afterprint", refit);
})();
