// Light or dark, before the first paint. Without a choice the system's preference holds.
"use strict";
{
  const stored = () => {
    try {
      return localStorage.getItem("theme");
    } catch {
      return null; // storage is forbidden: the choice lasts as long as the page
    }
  };
  const root = document.documentElement;
  if (stored()) root.dataset.theme = stored();
  root.classList.add("js");
  document.addEventListener("click", (event) => {
    if (!event.target.closest?.("#theme")) return;
    const dark = getComputedStyle(root).colorScheme.includes("dark") && !getComputedStyle(root).colorScheme.includes("light");
    const systemDark = matchMedia("(prefers-color-scheme: dark)").matches;
    const next = (root.dataset.theme ? dark : systemDark) ? "light" : "dark";
    root.dataset.theme = next;
    try {
      localStorage.setItem("theme", next);
    } catch {
      // as above
    }
    document.dispatchEvent(new Event("themechange"));
  });
}
