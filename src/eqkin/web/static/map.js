// The map: points by field, labels of the crowded regions, the query's hits, and the formula under the pointer.
import { ask, element, fragment, root } from "./ask.js";

const CELLS = 64; // of the grid, along each side
const REACH = 12; // pixels from a point at which the pointer is on it
const STEP = 40; // pixels an arrow key moves
const canvas = document.getElementById("map");
const card = document.getElementById("point");
const pen = canvas.getContext("2d");
const known = new Map(); // equations met so far, by id
const view = { scale: 1, x: 0, y: 0, field: null, at: -1, hits: new Map() };
let [points, extent, grid, frame] = [null, [1, 1], new Map(), 0];

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const style = (name) => getComputedStyle(canvas)[name]; // of the canvas: colour of ink and paper
const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches !== (document.documentElement.dataset.theme === (matchMedia("(prefers-color-scheme: dark)").matches ? "light" : "dark"));
const colour = (field) => `hsl(${((field * 137.508 + 20) % 360).toFixed(0)} ${field % 2 ? 62 : 48}% ${(isDark() ? 66 : 42) + (field % 3) * 6}%)`;
const place = (v) => clamp(Math.floor(((v + 1) / 2) * CELLS), 0, CELLS - 1);
const cellOf = (x, y) => place(x) * CELLS + place(y);
const unit = () => (canvas.clientHeight / extent[1]) * 0.47 * view.scale; // pixels, along y
const wide = () => clamp((canvas.clientWidth * extent[1]) / (canvas.clientHeight * extent[0]), 0.5, 2); // times that along x
const toScreen = (x, y) => [canvas.clientWidth / 2 + (x - view.x) * unit() * wide(), canvas.clientHeight / 2 - (y - view.y) * unit()];
const toPlane = (left, top) => [(left - canvas.clientWidth / 2) / (unit() * wide()) + view.x, (canvas.clientHeight / 2 - top) / unit() + view.y];
const draw = () => (cancelAnimationFrame(frame), (frame = requestAnimationFrame(paint)));

try {
  points = await ask("/api/map");
  extent = [points.x, points.y].map((values) => values.reduce((most, v) => Math.max(most, Math.abs(v)), 0.01));
  points.ids.forEach((_, i) => {
    const cell = cellOf(points.x[i], points.y[i]);
    grid.get(cell)?.push(i) ?? grid.set(cell, [i]);
  });
  start();
} catch (error) {
  canvas.parentElement.replaceWith(element("p", { role: "alert" }, `The map could not be drawn: ${error.message}`));
}

function start() {
  new ResizeObserver(draw).observe(canvas);
  document.addEventListener("themechange", restyle);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", restyle);
  for (const [name, factor] of [["zoom-in", 1.6], ["zoom-out", 1 / 1.6], ["zoom-all", 0]]) document.getElementById(name).addEventListener("click", () => zoom(factor));
  for (const button of document.querySelectorAll(".choose")) {
    const field = points.names.indexOf(button.dataset.field);
    button.addEventListener("click", () => choose(view.field === field ? null : field));
  }
  const wanted = points.names.findIndex((name) => name && decodeURIComponentSafely(location.hash.slice(1)) === name);
  if (wanted >= 0) choose(wanted);
  restyle();
  listen();
  if (canvas.dataset.query) showHits(canvas.dataset.query);
}

function decodeURIComponentSafely(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

function restyle() {
  for (const button of document.querySelectorAll(".choose")) button.firstChild.style.background = colour(points.names.indexOf(button.dataset.field));
  draw();
}

function choose(field) {
  view.field = field;
  for (const button of document.querySelectorAll(".choose")) button.setAttribute("aria-pressed", String(points.names.indexOf(button.dataset.field) === field));
  draw();
}

/** Ring the query's hits; those that are not among the points are counted. */
async function showHits(query) {
  const { hits } = await ask(`/api/search?${new URLSearchParams({ q: query, k: 50 })}`).catch(() => ({ hits: [] }));
  const at = new Map(points.ids.map((id, i) => [id, i]));
  hits.forEach((hit, i) => at.has(hit.equation.id) && view.hits.set(at.get(hit.equation.id), i + 1));
  document.getElementById("map-count").append(` ${view.hits.size} of its first ${hits.length} hits are on the map; those among the five best have their rank.`);
  draw();
}

function paint() {
  const [width, height, sharp] = [canvas.clientWidth, canvas.clientHeight, devicePixelRatio || 1];
  if (canvas.width !== width * sharp || canvas.height !== height * sharp) [canvas.width, canvas.height] = [width * sharp, height * sharp];
  pen.setTransform(sharp, 0, 0, sharp, 0, 0);
  pen.clearRect(0, 0, width, height);
  const size = Math.min(7, (points.ids.length > 5000 ? 2.2 : 3.2) * Math.sqrt(view.scale));
  const colours = points.names.map((_, i) => colour(i));
  for (const front of [false, true]) {
    points.ids.forEach((_, i) => {
      const chosen = view.field === null || points.fields[i] === view.field;
      if (chosen !== front) return;
      const [left, top] = toScreen(points.x[i], points.y[i]);
      if (left < -9 || top < -9 || left > width + 9 || top > height + 9) return;
      pen.globalAlpha = chosen ? (view.hits.size ? 0.45 : 0.75) : 0.1;
      pen.fillStyle = colours[points.fields[i]];
      pen.beginPath();
      pen.arc(left, top, size, 0, 2 * Math.PI);
      pen.fill();
    });
  }
  pen.globalAlpha = 1;
  for (const [i, rank] of view.hits) ring(i, size + 3, rank <= 5 ? String(rank) : "");
  if (view.at >= 0) ring(view.at, size + 3, "");
  label(width, height);
  if (canvas.dataset.place) cross(...toScreen(...canvas.dataset.place.split(" ").map(Number)));
  canvas.dataset.drawn = points.ids.length;
  canvas.dataset.ringed = view.hits.size;
}

/** Mark the place of the query. */
function cross(left, top) {
  Object.assign(pen, { strokeStyle: style("color"), lineWidth: 3 });
  pen.beginPath();
  for (const [x, y] of [[9, 9], [9, -9]]) (pen.moveTo(left - x, top - y), pen.lineTo(left + x, top + y));
  pen.stroke();
}

function ring(i, radius, text) {
  const [left, top] = toScreen(points.x[i], points.y[i]);
  Object.assign(pen, { strokeStyle: style("color"), fillStyle: style("color"), lineWidth: 2, font: "600 12px system-ui", textAlign: "left" });
  pen.beginPath();
  pen.arc(left, top, radius, 0, 2 * Math.PI);
  pen.stroke();
  if (text) pen.fillText(text, left + radius + 2, top + 4);
}

/** Name the regions in view: each field where its points lie closest together; frequent names when one is near. */
function label(width, height) {
  const [cell, crowds] = [90, new Map()];
  points.ids.forEach((id, i) => {
    const [left, top] = toScreen(points.x[i], points.y[i]);
    if (left < 0 || top < 0 || left > width || top > height) return;
    for (const name of [points.names[points.fields[i]], view.scale > 3 ? points.labels[i] : ""].filter(Boolean)) {
      const key = `${name}\n${Math.floor(left / cell)},${Math.floor(top / cell)}`;
      const crowd = crowds.get(key) ?? { name, left: 0, top: 0, count: 0 };
      crowds.set(key, Object.assign(crowd, { left: crowd.left + left, top: crowd.top + top, count: crowd.count + 1 }));
    }
  });
  const taken = [];
  canvas.dataset.labels = "";
  Object.assign(pen, { font: "600 12px system-ui", textAlign: "center", lineWidth: 4, lineJoin: "round", strokeStyle: style("backgroundColor"), fillStyle: style("color") });
  for (const { name, left, top, count } of [...crowds.values()].sort((a, b) => b.count - a.count)) {
    const [text, x, y] = [name.replaceAll(/[-_]+/g, " "), left / count, top / count];
    const half = pen.measureText(text).width / 2 + 6;
    if ((count < 2 && view.scale <= 3) || taken.some((t) => t.name === name || (Math.abs(t.x - x) < t.half + half && Math.abs(t.y - y) < 20))) continue;
    taken.push({ name, x, y, half });
    pen.strokeText(text, x, y);
    pen.fillText(text, x, y);
  }
  canvas.dataset.labels = taken.map((t) => t.name).join("|");
}

/** The point nearest to a place on the canvas, -1 if none is near. */
function findNearest(left, top) {
  const [[x, y], reach, step] = [toPlane(left, top), REACH / unit(), 2 / CELLS]; // on a narrow screen the reach is larger across
  let [best, distance] = [-1, reach * reach];
  const cells = new Set();
  for (let a = x - reach - step; a <= x + reach + step; a += step) for (let b = y - reach - step; b <= y + reach + step; b += step) cells.add(cellOf(a, b));
  for (const i of [...cells].flatMap((cell) => grid.get(cell) ?? [])) {
    if (view.field !== null && points.fields[i] !== view.field) continue;
    const away = ((points.x[i] - x) * wide()) ** 2 + (points.y[i] - y) ** 2;
    if (away < distance) [best, distance] = [i, away];
  }
  return best;
}

/** Zoom by a factor around a place on the canvas (its middle by default); 0 shows all. */
function zoom(factor, left = canvas.clientWidth / 2, top = canvas.clientHeight / 2) {
  const [x, y] = toPlane(left, top);
  view.scale = factor ? clamp(view.scale * factor, 0.6, 400) : 1;
  const [nowX, nowY] = toPlane(left, top);
  [view.x, view.y] = factor ? [view.x + x - nowX, view.y + y - nowY] : [0, 0];
  draw();
}

function move(left, top) {
  [view.x, view.y] = [view.x - left / (unit() * wide()), view.y + top / unit()];
  draw();
}

async function hover(left, top) {
  const at = findNearest(left, top);
  if (at === view.at) return;
  view.at = at;
  const id = at >= 0 ? points.ids[at] : "";
  canvas.classList.toggle("over", at >= 0);
  canvas.dataset.over = id;
  draw();
  card.hidden = true;
  if (!id) return;
  if (!known.has(id)) known.set(id, fragment(`/equation?${new URLSearchParams({ id })}`).catch(() => null));
  const found = await known.get(id);
  if (!found || canvas.dataset.over !== id) return;
  card.replaceChildren(...found);
  card.hidden = false;
  card.style.left = `${clamp(left + 14, 6, canvas.clientWidth - card.offsetWidth - 6)}px`;
  card.style.top = `${top + card.offsetHeight + 24 < canvas.clientHeight ? top + 14 : Math.max(6, top - card.offsetHeight - 14)}px`;
}

function listen() {
  const pointers = new Map();
  let [dragged, spread] = [0, 0];
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY * 0.0016), event.offsetX, event.offsetY);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, event);
    if (pointers.size === 1) dragged = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const last = pointers.get(event.pointerId);
    if (!last) return hover(event.offsetX, event.offsetY);
    const [left, top] = [event.offsetX - last.offsetX, event.offsetY - last.offsetY];
    pointers.set(event.pointerId, event);
    dragged += Math.abs(left) + Math.abs(top);
    move(left / pointers.size, top / pointers.size);
    if (pointers.size !== 2) return;
    const [a, b] = [...pointers.values()];
    const now = Math.hypot(a.offsetX - b.offsetX, a.offsetY - b.offsetY);
    if (spread) zoom(now / spread, (a.offsetX + b.offsetX) / 2, (a.offsetY + b.offsetY) / 2);
    spread = now;
  });
  for (const kind of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(kind, (event) => {
      const tap = pointers.size === 1 && dragged < 6 && kind === "pointerup";
      pointers.delete(event.pointerId);
      spread = 0;
      const at = tap ? findNearest(event.offsetX, event.offsetY) : -1;
      if (at >= 0) location.assign(`${root}/search?${new URLSearchParams({ like: points.ids[at] })}`);
    });
  }
  canvas.addEventListener("pointerleave", () => hover(-99, -99));
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [STEP, 0], ArrowRight: [-STEP, 0], ArrowUp: [0, STEP], ArrowDown: [0, -STEP] };
    const zooms = { "+": 1.4, "=": 1.4, "-": 1 / 1.4, 0: 0 };
    if (moves[event.key]) move(...moves[event.key]);
    else if (event.key in zooms) zoom(zooms[event.key]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}
