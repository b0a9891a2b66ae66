// Light or dark: as the reader's system has it, until the button says otherwise.
"use strict";
window.dash_clientside = Object.assign({}, window.dash_clientside, {
  explore: {
    theme: (clicks) => {
      const root = document.documentElement;
      const before = root.dataset.theme
        || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
      const theme = clicks ? (before === "dark" ? "light" : "dark") : before;
      root.dataset.theme = theme;
      return [theme, theme === "dark" ? "Light" : "Dark"];
    },
    // Where the controls stand above the results, not beside them, they are folded at first.
    unfolded: () => innerWidth > 1000,
  },
});
