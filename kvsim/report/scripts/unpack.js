// What a page carries compressed, unpacked by the browser itself. Everything that the scripts share
// is one object: kvsim.
"use strict";
const kvsim = {
  // The bytes of what kvsim.report.packing put into letters.
  bytes: async (letters) => {
    const packed = Uint8Array.from(atob(letters), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  },
  text: async (letters) => new TextDecoder().decode(await kvsim.bytes(letters)),
  textOf: (id) => kvsim.text(document.getElementById(id).textContent),
  places: [...document.querySelectorAll("[data-figure]")],
};

// The places of figures with their data as JSON, and the library that draws them.
kvsim.drawings = (async () => {
  if (!kvsim.places.length) return null;
  if (typeof DecompressionStream === "undefined") {
    for (const place of kvsim.places) {
      place.textContent = "The figures need a newer browser: Chrome 80, Firefox 113 or Safari 16.4.";
    }
    return null;
  }
  const library = document.createElement("script");
  library.textContent = await kvsim.textOf("plotly");
  document.head.append(library);
  return new Map(await Promise.all(kvsim.places.map(
    async (place) => [place, await kvsim.textOf(place.dataset.figure)])));
})();
