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
    pinning: (clicks) => clicks ? ["Pinned", true] : [
      window.dash_clientside.no_update, window.dash_clientside.no_update],
    // Numbers of another starting point never stand under its text: at once, whatever is under way.
    veiled: (visit, drawn) => visit && drawn && visit.base !== drawn ? {visibility: "hidden"} : {},
    // Where the controls stand above the results, not beside them, they are folded at first.
    unfolded: () => innerWidth > 1000,
  },
});

// Dash's sliders and dropdowns have no name that a screen reader finds: they take their label's.
new MutationObserver(() => {
  for (const part of document.querySelectorAll(".field [role=slider], .field button.dash-dropdown")) {
    const words = part.closest(".field").querySelector("span");
    if (words && part.getAttribute("aria-label") !== words.textContent) {
      part.setAttribute("aria-label", words.textContent);
      part.removeAttribute("aria-labelledby");
    }
  }
  // A list of checkboxes is a group of them, not a listbox around them.
  const auto = document.querySelector("#auto");
  for (const part of auto ? [auto, ...auto.querySelectorAll("[role=option]")] : []) {
    if (part.getAttribute("role") === "option") {
      for (const name of ["role", "tabindex", "aria-selected"]) part.removeAttribute(name);
    } else if (part.getAttribute("role") === "listbox") {
      part.setAttribute("role", "group");
      part.setAttribute("aria-label", "Run by itself");
    }
  }
  // The button of a dropdown takes the focus; the input behind it is hidden from readers.
  for (const part of document.querySelectorAll("input[aria-hidden=true][tabindex='0']")) {
    part.tabIndex = -1;
  }
  // Two landmarks of one kind need two names; Dash's Aside takes no aria-label.
  for (const part of document.querySelectorAll("aside:not([aria-label])")) {
    const words = part.className ? "Notes on the numbers" : "Settings";
    part.setAttribute("aria-label", words);
  }
}).observe(document, {childList: true, subtree: true});
