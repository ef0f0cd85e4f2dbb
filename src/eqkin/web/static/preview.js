// The formula box: a preview as you type, and a mark under what cannot be read.
import { ask, element, mathNode } from "./ask.js";

const WAIT = 130; // milliseconds without a key before the server is asked
export const SLOT = "□"; // an empty place of a template

const box = () => document.getElementById("q");
const preview = () => document.getElementById("preview");
const echo = () => document.getElementById("echo");

let timer = 0;
let asking = null;

export function startForm() {
  box().addEventListener("input", () => {
    mark(null);
    clearTimeout(timer);
    timer = setTimeout(show, WAIT);
  });
  box().addEventListener("scroll", () => (echo().scrollTop = box().scrollTop));
  box().addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      box().form.requestSubmit();
    } else if (event.key === "Tab" && !event.ctrlKey && !event.altKey && selectSlot(event.shiftKey)) {
      event.preventDefault();
    }
  });
  preview().addEventListener("click", (event) => {
    const slots = [...preview().querySelectorAll(".slot")];
    const number = slots.indexOf(event.target.closest(".slot"));
    if (number >= 0) chooseSlot(number);
  });
  const problem = document.querySelector(".problem[data-position]");
  if (problem) mark(Number(problem.dataset.position));
}

/** Fetch the preview of the formula in the box, and show it. */
export async function show() {
  clearTimeout(timer);
  asking?.abort();
  const formula = box().value;
  if (!formula.trim()) return hide();
  asking = new AbortController();
  try {
    const answer = await ask(`/api/preview?${new URLSearchParams({ q: formula })}`, { signal: asking.signal });
    if (formula === box().value) showFormula(answer);
  } catch (error) {
    if (error.name !== "AbortError" && formula === box().value) showError(error);
  }
}

export function hide() {
  clearTimeout(timer);
  asking?.abort();
  preview().hidden = true;
  preview().replaceChildren();
  mark(null);
}

function showFormula(answer) {
  const math = mathNode(answer.mathml);
  for (const leaf of math.querySelectorAll?.("mi, mo, mtext, mn") ?? []) {
    if (leaf.textContent === SLOT) leaf.classList.add("slot");
  }
  preview().className = "";
  preview().replaceChildren(math);
  const notes = [];
  if (answer.unknown.length) notes.push(`unknown, taken as names: ${answer.unknown.join(", ")}`);
  if (answer.repaired) notes.push("a slip was mended");
  if (notes.length) preview().append(element("p", { class: "note" }, notes.join("; ")));
  preview().hidden = false;
  mark(null);
}

function showError(error) {
  const at = error.position;
  preview().className = "wrong";
  preview().replaceChildren(element("p", {}, at == null ? error.message : `${error.message} (character ${at + 1})`));
  preview().hidden = false;
  mark(at ?? null);
}

/** Underline the character at a position; null takes the mark away. */
function mark(position) {
  box().setAttribute("aria-invalid", String(position != null)); // an empty value would mean "false"
  if (position == null) return echo().replaceChildren();
  const characters = [...box().value]; // the server counts characters, not UTF-16 units
  const end = Math.max(position + 1, 1);
  const wrong = characters.slice(position, end).join("") || " ";
  echo().replaceChildren(characters.slice(0, position).join(""), element("mark", {}, wrong), characters.slice(end).join(""));
  echo().scrollTop = box().scrollTop;
}

/** Put text in place of the selection; its first empty place is selected. */
export function insert(text) {
  const field = box();
  const [start, end] = [field.selectionStart, field.selectionEnd];
  const chosen = field.value.slice(start, end);
  const filled = chosen && chosen !== SLOT ? text.replace(SLOT, () => chosen) : text;
  const before = field.value.slice(0, start);
  const glue = /\\[A-Za-z]+$/.test(before) && /^[A-Za-z]/.test(filled) ? " " : "";
  field.focus();
  field.setRangeText(glue + filled, start, end, "end");
  field.dispatchEvent(new Event("input", { bubbles: true }));
  const slot = filled.indexOf(SLOT);
  if (slot >= 0) field.setSelectionRange(start + glue.length + slot, start + glue.length + slot + 1);
}

/** Select the next (or previous) empty place; false if there is none. */
function selectSlot(backwards) {
  const { value, selectionStart, selectionEnd } = box();
  const before = value.lastIndexOf(SLOT, selectionStart - 1);
  const at = backwards ? (selectionStart > 0 ? before : -1) : value.indexOf(SLOT, selectionEnd);
  if (at < 0) return false;
  box().setSelectionRange(at, at + 1);
  return true;
}

function chooseSlot(number) {
  let at = -1;
  for (let i = 0; i <= number; i++) at = box().value.indexOf(SLOT, at + 1);
  if (at < 0) return;
  box().focus();
  box().setSelectionRange(at, at + 1);
}
