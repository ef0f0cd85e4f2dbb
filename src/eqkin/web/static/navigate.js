// Pages without a reload: the server's own page is fetched and its main part put in place; the address is the state.
import { hide, SLOT } from "./preview.js";

let going = null;

export function startNavigation() {
  if (document.getElementById("map")) return; // the map is left by ordinary links
  history.scrollRestoration = "auto";
  document.getElementById("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const given = new FormData(event.target);
    const state = new URLSearchParams();
    for (const [name, value] of given) if (value.trim()) state.append(name, value.replaceAll(SLOT, "{}"));
    go(state.size ? `/search?${state}` : "/");
  });
  document.addEventListener("submit", (event) => {
    if (!event.target.matches(".span")) return;
    event.preventDefault();
    const state = new URLSearchParams();
    for (const [name, value] of new FormData(event.target)) if (value) state.append(name, value);
    go(`/search?${state}`);
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href]");
    if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const target = new URL(link.href);
    if (target.origin !== location.origin || link.hasAttribute("download") || !swappable(target)) return;
    event.preventDefault();
    go(target.pathname + target.search);
  });
  addEventListener("popstate", () => load(location.pathname + location.search));
}

const swappable = (target) => ["/", "/search", "/paper", "/api"].includes(target.pathname) && !target.hash;

/** Go to an address of this site as a link would. */
export async function go(address) {
  if (await load(address)) {
    if (address !== location.pathname + location.search) history.pushState(null, "", address);
    scrollTo(0, 0);
    const main = document.getElementById("main");
    if (!document.getElementById("form").contains(document.activeElement)) main.focus({ preventScroll: true });
  }
}

async function load(address) {
  going?.abort();
  const mine = (going = new AbortController());
  const main = document.getElementById("main");
  main.classList.add("waiting");
  try {
    const response = await fetch(address, { headers: { Accept: "text/html" }, signal: mine.signal });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const next = page.getElementById("main");
    if (!next) throw new Error("no page");
    main.replaceWith(document.adoptNode(next));
    document.title = page.title;
    for (const name of ["q", "text"]) document.getElementById(name).value = page.getElementById(name).value;
    hide();
    document.dispatchEvent(new Event("swapped"));
    announce();
    return true;
  } catch (error) {
    if (error.name !== "AbortError") location.assign(address); // let the browser show what is wrong
    return false;
  } finally {
    if (going === mine) document.getElementById("main").classList.remove("waiting");
  }
}

/** A live region speaks when its text changes after it is there, not when it arrives with its text. */
function announce() {
  const count = document.getElementById("count");
  if (!count) return;
  const shown = count.textContent;
  count.textContent = "";
  requestAnimationFrame(() => (count.textContent = shown));
}
