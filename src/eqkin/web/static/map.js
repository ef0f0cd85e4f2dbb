// The map page: asks for the points, colours them by field, and lets one move, choose and open them.
import "./page.js";
import { ask, element, mathNode } from "./ask.js";
import { View } from "./map-view.js";

const canvas = document.getElementById("map");
const legend = document.getElementById("legend");
const card = document.getElementById("point");
const known = new Map(); // equations met so far, by id

start();

async function start() {
  let data;
  try {
    data = await ask("/api/map");
  } catch (error) {
    return legend.replaceChildren(element("p", { role: "alert" }, `The map could not be drawn: ${error.message}`));
  }
  const view = new View(canvas, data, { over: show, chosen: open });
  buildLegend(view, data);
  for (const [name, factor] of [["zoom-in", 1.6], ["zoom-out", 1 / 1.6], ["zoom-all", 0]]) {
    document.getElementById(name).addEventListener("click", () => view.zoom(factor));
  }
  canvas.setAttribute("aria-label", `Map of ${data.ids.length} equations in ${data.names.length} fields`);
  const wanted = data.names.findIndex((name) => name && location.hash === `#${encodeURIComponent(name)}`);
  if (wanted >= 0) choose(view, wanted);
}

function buildLegend(view, data) {
  const counts = data.names.map(() => 0);
  for (const field of data.fields) counts[field]++;
  data.names.forEach((name, number) => {
    const dot = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    dot.setAttribute("viewBox", "0 0 10 10");
    const circle = dot.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "circle"));
    for (const [key, value] of [["cx", 5], ["cy", 5], ["r", 5], ["fill", view.colour(number)]]) circle.setAttribute(key, value);
    document.addEventListener("themechange", () => circle.setAttribute("fill", view.colour(number)));
    const button = element("button", { type: "button", "aria-pressed": "false" }, dot, name || "without a field");
    button.append(element("span", { class: "number" }, String(counts[number])));
    button.addEventListener("click", () => choose(view, view.chosenField === number ? null : number));
    legend.append(button);
  });
}

function choose(view, number) {
  view.chooseField(number);
  [...legend.children].forEach((button, i) => button.setAttribute("aria-pressed", String(i === number)));
}

async function show(id, x, y) {
  if (id == null) return (card.hidden = true);
  if (!known.has(id)) known.set(id, ask(`/api/equation/${encodeURIComponent(id)}`).catch(() => null));
  const found = await known.get(id);
  if (!found || canvas.dataset.over !== id) return;
  const where = element("p", {}, element("strong", {}, found.paper.title || found.paper.key), found.section ? ` · ${found.section}` : "");
  card.replaceChildren(mathNode(found.mathml), where);
  card.hidden = false;
  const stage = canvas.parentElement.getBoundingClientRect();
  const [width, height] = [card.offsetWidth, card.offsetHeight];
  card.style.left = `${Math.max(6, Math.min(x + 14, stage.width - width - 6))}px`;
  card.style.top = `${y + height + 24 < stage.height ? y + 14 : Math.max(6, y - height - 14)}px`;
}

function open(id) {
  location.assign(`/search?${new URLSearchParams({ like: id })}`);
}
