// Asking this server. What it answers as HTML is its own, escaped by the templates.

export const root = document.documentElement.dataset.root;

/** The answer as JSON. */
export async function ask(path, options = {}) {
  const response = await fetch(root + path, { ...options, headers: { Accept: "application/json", ...options.headers } });
  const body = await response.json();
  if (!response.ok) throw new Error(body.detail);
  return body;
}

/** A page as a document; an Error with the message and the `position` of an error page. */
export async function load(path, options = {}) {
  const response = await fetch(root + path, { ...options, headers: { Accept: "text/html" } });
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  if (response.ok) return page;
  const problem = page.querySelector(".problem");
  const message = problem?.querySelector("p").textContent ?? `The server answered ${response.status}.`;
  throw Object.assign(new Error(message), { position: Number(problem?.dataset.position) || null, page });
}

/** The nodes of a part of a page. */
export const fragment = async (path, options) => [...(await load(path, options)).getElementById("fragment").childNodes];

/** An element with attributes and children; strings become text. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
