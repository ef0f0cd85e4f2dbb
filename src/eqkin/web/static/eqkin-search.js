// <eqkin-search src="https://formulas.example.org" k="5"></eqkin-search>: a search box for any page.
// The server must allow the page: eqkin serve --cors https://my.example.org
const MATHML = "http://www.w3.org/1998/Math/MathML";
const STYLE = `
  :host { display: block; font: inherit }
  form { display: flex; gap: .5rem }
  input { flex: 1; font: inherit; padding: .4rem .6rem; min-height: 24px }
  button { font: inherit; padding: .4rem .8rem; min-height: 24px }
  ol { padding-left: 1.5rem }
  li { margin: .8rem 0 }
  .formula { overflow-x: auto }
  .about { opacity: .75; font-size: .85em }`;

class EqkinSearch extends HTMLElement {
  connectedCallback() {
    if (this.shadowRoot) return;
    const root = this.attachShadow({ mode: "open" });
    root.append(make("style", STYLE));
    const form = make("form"), box = make("input"), status = make("p");
    box.type = "search";
    box.placeholder = box.ariaLabel = this.getAttribute("placeholder") ?? "Formula, words or name";
    status.setAttribute("role", "status");
    form.append(box, make("button", "Search"));
    form.addEventListener("submit", (event) => { event.preventDefault(); this.search(box.value); });
    root.append(form, status, make("ol"));
  }

  async search(query) {
    const status = this.shadowRoot.querySelector("[role=status]"), list = this.shadowRoot.querySelector("ol");
    status.textContent = "Searching …";
    try {
      const address = new URL("api/search", `${(this.getAttribute("src") ?? "").replace(/\/$/, "")}/` || location.href);
      address.search = new URLSearchParams({ q: query, k: this.getAttribute("k") ?? "5" });
      const response = await fetch(address);
      const answer = await response.json();
      if (!response.ok) throw new Error(answer.detail);
      list.replaceChildren(...answer.hits.map(makeItem));
      status.textContent = answer.hits.length ? "" : "Nothing found.";
      this.dispatchEvent(new CustomEvent("eqkin-results", { detail: answer, bubbles: true, composed: true }));
    } catch (error) {
      status.textContent = error.message;
    }
  }
}

function makeItem(hit) {
  const item = make("li"), formula = make("div"), { paper } = hit.equation;
  formula.className = "formula";
  formula.append(copyMath(hit.equation.mathml) ?? make("code", hit.equation.latex));
  const about = make("div", [hit.relation, paper.title, paper.authors.join(", "), paper.year].filter(Boolean).join(" · "));
  about.className = "about";
  item.append(formula, about);
  return item;
}

// Only MathML elements, without attributes that could run or load anything.
function copyMath(text) {
  const found = new DOMParser().parseFromString(text, "text/html").querySelector("math");
  return found && copyElement(found);
}

function copyElement(source) {
  const copy = document.createElementNS(MATHML, source.localName);
  for (const { name, value } of source.attributes) if (!/^on|href|src|style/i.test(name)) copy.setAttribute(name, value);
  for (const child of source.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) copy.append(child.data);
    else if (child.namespaceURI === MATHML) copy.append(copyElement(child));
  }
  return copy;
}

function make(name, text = "") {
  const element = document.createElement(name);
  element.textContent = text;
  return element;
}

customElements.define("eqkin-search", EqkinSearch);
