// Over a marked part of a result: the part of the query it answers is outlined, and the other way round.

export function startMatching() {
  document.addEventListener("pointerover", (event) => show(event.target));
  document.addEventListener("pointerout", clear);
}

function show(target) {
  const node = target.closest?.("[data-node]");
  const hit = node?.closest(".hit");
  if (!hit?.dataset.pairs) return;
  const partner = new Map(JSON.parse(hit.dataset.pairs)).get(Number(node.dataset.node));
  if (partner == null) return;
  for (const found of document.querySelectorAll(`.asked [data-node="${partner}"]`)) found.classList.add("partner");
}

function clear() {
  for (const node of document.querySelectorAll(".partner")) node.classList.remove("partner");
}
