// Keys: / to the formula, j and k through the results, o opens, f finds kin, r and n judge, ? helps.
import { judge } from "./judge.js";

const hits = () => [...document.querySelectorAll("#main ol > .hit")].filter((hit) => hit.offsetParent !== null);

export function startKeyboard() {
  const help = document.getElementById("help");
  document.getElementById("keys").addEventListener("click", () => help.showModal());
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    const field = event.target.closest("input, textarea, select");
    if (field) {
      if (event.key === "Escape") field.blur();
      return;
    }
    const act = ACTIONS[event.key];
    if (act && act(help) !== false) event.preventDefault();
  });
}

const ACTIONS = {
  "/": () => {
    const box = document.getElementById("q");
    box.focus();
    box.select();
  },
  "?": (help) => help.showModal(),
  j: () => move(1),
  k: () => move(-1),
  ArrowDown: () => move(1),
  ArrowUp: () => move(-1),
  o: () => follow(".title"),
  f: () => follow(".kin-link"),
  r: () => say(true),
  n: () => say(false),
};

const current = () => document.activeElement?.closest(".hit") ?? document.querySelector(".hit.current");

function move(step) {
  const all = hits();
  if (!all.length) return false;
  const at = all.indexOf(current());
  const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + step, 0), all.length - 1)];
  for (const hit of all) hit.classList.toggle("current", hit === next);
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
  return true;
}

function follow(selector) {
  const link = current()?.querySelector(selector);
  link?.click();
  return Boolean(link);
}

function say(relevant) {
  const hit = current();
  return Boolean(hit?.querySelector(".judging") && judge(hit, relevant));
}
