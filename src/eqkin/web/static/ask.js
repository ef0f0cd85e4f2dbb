// Asking this server, and building elements without ever parsing a string as markup.

/** The answer as JSON; throws an Error with `position` and `status` where the server says one. */
export async function ask(address, options = {}) {
  const response = await fetch(address, { ...options, headers: { Accept: "application/json", ...options.headers } });
  const body = await response.json().catch((error) => {
    if (error.name === "AbortError") throw error; // given up while the answer was arriving
    return { detail: `the server answered ${response.status}` };
  });
  if (!response.ok) {
    const error = new Error(body.detail ?? "something went wrong");
    error.position = body.position && body.position - 1;
    error.status = response.status;
    throw error;
  }
  return body;
}

/** An element with attributes and children; strings become text. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

/** MathML from this server's own writer, as a node. Anything that is not a well-formed <math> becomes text. */
export function mathNode(mathml) {
  if (!mathml) return document.createTextNode(""); // a formula that could not be read
  const parsed = new DOMParser().parseFromString(mathml, "application/xml").documentElement;
  const MATH = "http://www.w3.org/1998/Math/MathML";
  const foreign = (node) => node.namespaceURI !== MATH || [...node.attributes].some((a) => /^(on|href|style|xlink)/i.test(a.name));
  if (parsed.localName !== "math" || [parsed, ...parsed.querySelectorAll("*")].some(foreign)) return document.createTextNode("");
  return document.importNode(parsed, true);
}
