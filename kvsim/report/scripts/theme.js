// Light or dark: as the reader's system has it, or ?theme=dark in the address, until the button says
// otherwise; paper is light.
"use strict";
kvsim.theme = (() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const asked = new URLSearchParams(location.search).get("theme");
  let chosen = ["light", "dark"].includes(asked) ? asked : null;
  let printing = false;
  const changed = [];
  const dark = () => !printing && (chosen === null ? system.matches : chosen === "dark");
  const apply = () => {
    root.dataset.theme = dark() ? "dark" : "light";
    if (button) {
      button.textContent = dark() ? "Light" : "Dark";
      button.setAttribute("aria-label", `Show the page ${dark() ? "light" : "dark"}`);
    }
    changed.forEach((hear) => hear(dark()));
  };
  if (button) button.addEventListener("click", () => { chosen = dark() ? "light" : "dark"; apply(); });
  system.addEventListener("change", apply);
  addEventListener("beforeprint", () => { printing = true; apply(); });
  addEventListener("afterprint", () => { printing = false; apply(); });
  apply();
  return {dark, onChange: (hear) => changed.push(hear)};
})();
