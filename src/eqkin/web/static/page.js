// Every page: keys, copying, marks and their partners, further results, files dropped on the page.
import { ask, element, fragment, load, root } from "./ask.js";
import "./box.js";

const all = (selector, under = document) => [...under.querySelectorAll(selector)];
const still = matchMedia("(prefers-reduced-motion: reduce)").matches;

/** Show the match of formulas that are wider than their place, and let the keyboard scroll them. */
export function arrange(under = document) {
  for (const formula of all(".formula", under)) {
    if (formula.scrollWidth <= formula.clientWidth + 1 || formula.closest("a")) continue;
    for (const [name, value] of [["tabindex", 0], ["role", "group"], ["aria-label", "Formula, scrollable"]]) formula.setAttribute(name, value);
    const match = formula.querySelector(".kin");
    if (match) formula.scrollLeft += match.getBoundingClientRect().left - formula.getBoundingClientRect().left - 48;
  }
}

const hits = () => all("#main .hit").filter((hit) => hit.offsetParent !== null);
const current = () => document.activeElement?.closest(".hit");
const follow = (selector) => current()?.querySelector(selector)?.click() ?? false;

function move(step) {
  const list = hits();
  const at = list.indexOf(current());
  const next = list[at < 0 ? (step > 0 ? 0 : list.length - 1) : Math.min(Math.max(at + step, 0), list.length - 1)];
  next?.focus({ preventScroll: true });
  next?.scrollIntoView({ block: "nearest", behavior: still ? "auto" : "smooth" });
  return Boolean(next);
}

const help = document.getElementById("help");
const KEYS = {
  "/": () => document.getElementById("q").select(),
  "?": () => help.showModal(),
  j: () => move(1),
  k: () => move(-1),
  ArrowDown: () => Boolean(current()) && move(1),
  ArrowUp: () => Boolean(current()) && move(-1),
  o: () => follow(".title"),
  f: () => follow(".kin-link"),
  c: () => follow(".copy"),
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  const field = event.target.closest("input, textarea, select, math-field");
  if (field) return event.key === "Escape" ? field.blur() : undefined;
  if (KEYS[event.key] && KEYS[event.key]() !== false) event.preventDefault();
});

document.addEventListener("click", async (event) => {
  for (const menu of all(".menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  if (event.target.closest("#keys")) help.showModal();
  const button = event.target.closest(".copy");
  if (button) copy(button);
  const judgement = event.target.closest(".judge");
  if (judgement) judge(judgement);
  if (event.target.closest("#more")) more(event);
  const part = event.target.closest("a.part");
  if (part) addPart(event, part);
});

async function copy(button) {
  const [label, { copy, from, link }] = [button.textContent, button.dataset];
  const text = from ? await (await fetch(root + from)).text() : link ? new URL(link, location.href).href : copy;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    prompt("Copy this:", text);
  }
  setTimeout(() => (button.textContent = label), 1500);
}

/** Keep whether a hit is relevant to the query. */
async function judge(button) {
  const [hit, { latex, mathml, words }] = [button.closest(".hit"), button.closest(".list").dataset];
  const body = JSON.stringify({ equation: hit.dataset.id, relevant: Boolean(button.dataset.relevant), latex, mathml, words });
  await ask("/api/judgements", { method: "POST", body, headers: { "Content-Type": "application/json" } });
  for (const one of all(".judge", hit)) one.setAttribute("aria-pressed", String(one === button));
}

const open = (link) => load(link.getAttribute("href").slice(root.length));

/** Append the next hits to their bands; what is there stays where it is. */
async function more(event) {
  event.preventDefault();
  const link = event.target.closest("#more");
  const page = await open(link);
  const list = document.querySelector(".list");
  for (const band of all(".band", page)) {
    const mine = list.querySelector(`.band[data-band="${band.dataset.band}"] .hits`);
    if (mine) mine.append(...all(".hit", band));
    else list.insertBefore(document.adoptNode(band), list.querySelector('[data-band="weak"]') ?? link.parentElement);
  }
  for (const summary of all('[data-band="weak"] summary', list)) summary.textContent = `Show ${all('[data-band="weak"] .hit').length} weak hits`;
  const count = page.getElementById("count");
  document.getElementById("count").textContent = count.textContent.replace(/hits \d+/, "hits 1");
  const next = page.getElementById("more");
  next ? (link.href = next.href) : link.parentElement.remove();
  arrange(list);
}

/** Put the part of a long paper before or after what is shown. */
async function addPart(event, link) {
  event.preventDefault();
  const page = await open(link);
  link.parentElement.replaceWith(...all("article > :not(.quiet)", page).filter((node) => node.querySelector("a.part") === null || node.textContent.trim() === link.textContent.trim()));
  for (const [i, section] of all("article section").entries()) {
    if (section.id !== all("article section")[i - 1]?.id) continue; // a section that was cut in two
    section.querySelector("h2").remove();
    section.removeAttribute("id");
  }
  arrange();
}

/** Over a marked part of a result, by pointer or touch: the part of the query it answers is outlined. */
document.addEventListener("pointerover", (event) => {
  for (const node of all(".partner")) node.classList.remove("partner");
  const node = event.target.closest?.("[data-node]");
  const pairs = node?.closest(".hit")?.dataset.pairs;
  const partner = pairs && new Map(JSON.parse(pairs)).get(Number(node.dataset.node));
  if (partner == null) return;
  for (const found of [node, ...all(`.asked [data-node="${partner}"]`)]) found.classList.add("partner");
});

document.addEventListener("toggle", (event) => {
  if (!event.target.open) return;
  for (const link of all("[data-fill]", event.target)) fragment(link.dataset.fill).then((nodes) => (link.replaceChildren(...nodes), delete link.dataset.fill));
  arrange(event.target);
}, true);

/** Filters apply as they are ticked; the box that was ticked keeps the focus. */
const filters = document.getElementById("filters");
filters?.addEventListener("change", (event) => {
  const { name, type, value } = event.target;
  sessionStorage.setItem("focus", `#filters [name="${name}"]${type === "checkbox" ? `[value="${CSS.escape(value)}"]` : ""}`);
  filters.requestSubmit();
});
filters?.addEventListener("formdata", (event) => {
  for (const [name, value] of [...event.formData]) if (!value) event.formData.delete(name);
});
document.querySelector(sessionStorage.getItem("focus") ?? "#none")?.focus({ preventScroll: true });
sessionStorage.removeItem("focus");
if (matchMedia("(max-width: 56rem)").matches) for (const fold of all(".facets > details")) fold.open = false;

/** A file dropped anywhere is a draft to compare. */
for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    document.body.classList.toggle("dropping", kind === "dragover");
    if (kind === "drop") send(event.dataTransfer.files[0]);
  });
}

/** Show the papers similar to a file in place of the page. */
async function send(file) {
  const [main, body] = [document.getElementById("main"), new FormData()];
  body.append("file", file);
  main.replaceChildren(element("p", { role: "status" }, `Comparing ${file.name} …`));
  const page = await load("/draft", { method: "POST", body }).catch((error) => error.page);
  main.replaceWith(document.adoptNode(page.getElementById("main")));
  document.getElementById("main").focus();
  arrange();
}

addEventListener("resize", () => arrange());
document.fonts.ready.then(() => {
  arrange();
  const here = document.querySelector(".here");
  if (here && location.hash) here.focus({ preventScroll: true });
});
