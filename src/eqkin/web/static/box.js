// The box: how what is typed is read, names that complete it, and a visual editor on demand.
import { ask, element, load, root } from "./ask.js";

const WAIT = 130; // milliseconds without a key before the server is asked
const [box, reading, names, echo, editor] = ["q", "reading", "names", "echo", "editor"].map((id) => document.getElementById(id));
const forced = box.form.elements.as; // how to read it, if that was chosen
let [timer, asking, checked] = [0, null, null];

box.addEventListener("input", () => {
  clearTimeout(timer);
  mark(null);
  if (!box.value.trim()) force("");
  timer = setTimeout(read, WAIT);
});
box.addEventListener("blur", () => setTimeout(() => (names.hidden = true), 150));
box.addEventListener("focus", () => checked?.text === box.value && (reading.hidden = !reading.childElementCount));
box.addEventListener("scroll", () => (echo.scrollTop = box.scrollTop));
document.addEventListener("pointerdown", (event) => box.form.contains(event.target) || hide());
if (!CSS.supports("field-sizing", "content")) {
  box.addEventListener("input", () => {
    box.style.height = "auto";
    box.style.height = `${box.scrollHeight}px`;
  });
}

const hide = () => (reading.hidden = names.hidden = true);

function force(kind) {
  forced.value = kind;
  forced.disabled = !kind;
}

/** Ask how the text is read, and which names it may begin; show both. */
async function read() {
  clearTimeout(timer);
  asking?.abort();
  const text = box.value;
  checked = null;
  if (!text.trim()) return hide();
  asking = new AbortController();
  const [options, query] = [{ signal: asking.signal }, new URLSearchParams({ q: text, ...(forced.value && { as: forced.value }) })];
  ask(`/api/complete?${new URLSearchParams({ q: text })}`, options).then(suggest, () => suggest([]));
  try {
    checked = { text, found: (await load(`/reading?${query}`, options)).getElementById("fragment") };
    reading.className = "";
    reading.replaceChildren(...checked.found.childNodes);
    reading.hidden = !box.form.contains(document.activeElement);
    mark(null);
  } catch (error) {
    if (error.name === "AbortError") return;
    checked = { text, error };
    showError(error);
  }
}

reading.addEventListener("click", (event) => {
  const button = event.target.closest("[data-as]");
  if (button) force(button.dataset.as), box.focus(), read();
});

function showError(error) {
  reading.className = "wrong";
  reading.replaceChildren(element("p", {}, error.message));
  reading.hidden = false;
  mark(error.position ?? null);
}

/** Underline the character at a position, counted from one; null takes the mark away. */
function mark(position) {
  box.setAttribute("aria-invalid", String(position != null));
  if (position == null) return echo.replaceChildren();
  const characters = [...box.value]; // the server counts characters, not UTF-16 units
  echo.replaceChildren(characters.slice(0, position - 1).join(""), element("mark", {}, characters[position - 1] ?? " "), characters.slice(position).join(""));
  echo.style.width = `${box.clientWidth}px`;
}

function suggest(found) {
  const items = found.map(({ name, count }, i) => element("li", { role: "option", id: `name-${i}`, "aria-selected": "false" }, element("span", {}, name), element("span", { class: "number" }, count ?? "")));
  names.replaceChildren(...items);
  names.hidden = !items.length || document.activeElement !== box;
}

function take(item) {
  box.value = item.firstChild.textContent;
  box.form.requestSubmit();
}

names.addEventListener("pointerdown", (event) => take(event.target.closest("li")));
box.addEventListener("keydown", (event) => {
  const chosen = names.querySelector('[aria-selected="true"]');
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && !names.hidden) {
    event.preventDefault();
    const next = [...names.children].at((([...names.children].indexOf(chosen) + step + (chosen || step > 0 ? 0 : 1)) % names.children.length));
    chosen?.setAttribute("aria-selected", "false");
    next.setAttribute("aria-selected", "true");
    box.setAttribute("aria-activedescendant", next.id);
    next.scrollIntoView({ block: "nearest" });
  } else if (event.key === "Escape") {
    hide();
  } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    chosen && !names.hidden ? take(chosen) : box.form.requestSubmit();
  }
});

/** What cannot be read is not sent: the page, with its last results, stays. */
box.form.addEventListener("submit", async (event) => {
  if (!box.value.trim()) return event.preventDefault();
  if (checked?.text === box.value && !checked.error) return;
  event.preventDefault();
  await read();
  if (!checked?.error) box.form.submit();
});

const problem = document.querySelector(".problem[data-position]");
if (problem) mark(Number(problem.dataset.position));

/** The visual editor writes LaTeX into the box. */
const edit = document.getElementById("edit");
edit.addEventListener("click", async () => {
  if (!editor.childElementCount) {
    const { MathfieldElement } = await import("./vendor/mathlive.min.mjs");
    MathfieldElement.fontsDirectory = `${root}/static/vendor/fonts`;
    MathfieldElement.soundsDirectory = null;
    const field = new MathfieldElement();
    field.setAttribute("aria-label", "Visual editor");
    editor.append(field);
    field.addEventListener("input", () => {
      box.value = field.getValue("latex-without-placeholders");
      box.dispatchEvent(new Event("input"));
    });
    field.addEventListener("keydown", (event) => event.key === "Enter" && box.form.requestSubmit(), { capture: true });
  }
  editor.hidden = !editor.hidden;
  edit.setAttribute("aria-expanded", String(!editor.hidden));
  if (editor.hidden) return box.focus();
  const latex = checked?.text === box.value ? checked.found?.dataset.latex : "";
  editor.firstChild.setValue(latex || box.value);
  editor.firstChild.focus();
});
