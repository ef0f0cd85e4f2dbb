// What is folded away: near-identical formulas, more of the same paper; and copying LaTeX.
import { ask, element, mathNode } from "./ask.js";

export function startExpanding() {
  document.addEventListener("toggle", (event) => event.target.open && open(event.target), true);
  document.addEventListener("click", async (event) => {
    for (const menu of document.querySelectorAll(".menu[open]")) if (!menu.contains(event.target)) menu.open = false;
    const button = event.target.closest(".copy");
    if (!button) return;
    const said = button.textContent;
    button.textContent = (await copied(button.dataset.latex)) ? "Copied" : "Press Ctrl+C";
    setTimeout(() => (button.textContent = said), 1500);
  });
  const narrow = () => {
    const filters = document.querySelector(".facets > details");
    if (filters && matchMedia("(max-width: 54rem)").matches) filters.open = false;
  };
  narrow();
  document.addEventListener("swapped", narrow);
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

function open(details) {
  if (details.dataset.filled) return;
  details.dataset.filled = "1";
  if (details.matches(".same")) for (const item of details.querySelectorAll("[data-equation]")) fillSame(item);
  if (details.matches(".more")) fillMore(details);
}

async function fillSame(item) {
  try {
    const found = await ask(`/api/equation/${encodeURIComponent(item.dataset.equation)}`);
    const link = item.querySelector("a");
    link.textContent = `${found.paper.title || found.paper.key}, ${found.section || "without a section"}`;
    item.prepend(element("div", { class: "formula" }, mathNode(found.mathml)));
  } catch {
    // the link to it is there
  }
}

async function fillMore(details) {
  try {
    const answer = await fetch(details.dataset.from, { headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const shown = new Set([...document.querySelectorAll(".list > .hits > .hit")].map((hit) => hit.dataset.id));
    const list = page.querySelector(".hits");
    let room = Number(details.dataset.count);
    for (const hit of list.querySelectorAll(".hit")) {
      if (shown.has(hit.dataset.id) || room-- <= 0) hit.remove();
      hit.removeAttribute("id");
      hit.querySelector(".where")?.remove();
    }
    details.append(document.adoptNode(list));
    document.dispatchEvent(new Event("swapped"));
  } catch {
    // the link to the list is there
  }
}
