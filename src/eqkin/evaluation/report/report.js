"use strict";
// A click on a column's heading sorts the table by it: first the largest on top, then smallest, then as it was.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  if (rows.length < 3) continue;
  [...table.tHead.rows[0].cells].forEach((heading, place) => {
    if (!place) return;
    const button = document.createElement("button");
    button.type = "button";
    button.title = "Sort";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const next = { descending: "ascending", ascending: "" }[heading.getAttribute("aria-sort")] ?? "descending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      if (next) heading.setAttribute("aria-sort", next);
      const sign = next === "ascending" ? 1 : -1;
      body.append(...(next ? rows.toSorted((a, b) => compare(a.cells[place], b.cells[place], sign)) : rows));
    });
  });
}

// Cells without a figure come last, whichever way; texts follow the alphabet.
function compare(a, b, sign) {
  const [x, y] = [a, b].map((cell) => cell.dataset.value);
  if (x !== undefined && y !== undefined) return sign * (Number(x) - Number(y));
  if (x !== undefined || y !== undefined) return x === undefined ? 1 : -1;
  return -sign * a.textContent.localeCompare(b.textContent);
}

// What is folded away is unfolded on paper.
addEventListener("beforeprint", () => document.querySelectorAll("details.facts, details.long").forEach((fold) => (fold.open = true)));
