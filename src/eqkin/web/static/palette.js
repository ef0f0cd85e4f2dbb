// Symbols and templates to put into the formula; templates have empty places to fill, with Tab or by clicking them.
import { element } from "./ask.js";
import { insert, SLOT } from "./preview.js";

const S = SLOT;
const GROUPS = {
  Build: [
    ["a⁄b", `\\frac{${S}}{${S}}`, "fraction"], ["xⁿ", `^{${S}}`, "superscript"], ["xᵢ", `_{${S}}`, "subscript"],
    ["√", `\\sqrt{${S}}`, "root"], ["∑", `\\sum_{${S}}^{${S}} `, "sum"], ["∏", `\\prod_{${S}}^{${S}} `, "product"],
    ["∫", `\\int_{${S}}^{${S}} ${S}\\, d${S}`, "integral"], ["lim", `\\lim_{${S} \\to ${S}} `, "limit"],
    ["d⁄dx", `\\frac{d ${S}}{d ${S}}`, "derivative"], ["∂⁄∂x", `\\frac{\\partial ${S}}{\\partial ${S}}`, "partial derivative"],
    ["( )", `\\left( ${S} \\right)`, "parentheses"], ["| |", `\\left| ${S} \\right|`, "bars"],
    ["‖ ‖", `\\left\\| ${S} \\right\\|`, "norm"], ["⟨ ⟩", `\\langle ${S}, ${S} \\rangle`, "inner product"],
    ["(ⁿₖ)", `\\binom{${S}}{${S}}`, "binomial"], ["[⋱]", `\\begin{pmatrix} ${S} & ${S} \\\\ ${S} & ${S} \\end{pmatrix}`, "matrix"],
    ["{ ,", `\\begin{cases} ${S} & ${S} \\\\ ${S} & ${S} \\end{cases}`, "cases"],
    ["E[ ]", `\\mathbb{E}\\left[ ${S} \\right]`, "expectation"], ["P(|)", `P(${S} \\mid ${S})`, "conditional probability"],
  ],
  Greek: [..."αalpha βbeta γgamma δdelta εvarepsilon ζzeta ηeta θtheta ιiota κkappa λlambda μmu νnu ξxi πpi ρrho σsigma τtau υupsilon φphi ϕvarphi χchi ψpsi ωomega ΓGamma ΔDelta ΘTheta ΛLambda ΞXi ΠPi ΣSigma ΦPhi ΨPsi ΩOmega".split(" ")],
  Operators: [..."±pm ×times ·cdot ÷div ∗ast ∘circ ⊗otimes ⊕oplus ∇nabla ∂partial ∞infty †dagger ∩cap ∪cup ∧wedge ∨vee ¬neg ∝propto ∮oint ⟂perp ⊤top ℏhbar ℓell".split(" ")],
  Relations: [..."≤le ≥ge ≠ne ≈approx ≃simeq ≡equiv ∼sim ≪ll ≫gg ∈in ∉notin ⊂subset ⊆subseteq ∀forall ∃exists →to ↦mapsto ⇒Rightarrow ⇔Leftrightarrow ∣mid ∥parallel ≺prec ≻succ".split(" ")],
  Letters: [
    ...["R", "C", "N", "Z", "Q", "E", "P"].map((l) => [{ R: "ℝ", C: "ℂ", N: "ℕ", Z: "ℤ", Q: "ℚ", E: "𝔼", P: "ℙ" }[l], `\\mathbb{${l}}`, `blackboard ${l}`]),
    ...["L", "H", "F", "N", "O"].map((l) => [{ L: "ℒ", H: "ℋ", F: "ℱ", N: "𝒩", O: "𝒪" }[l], `\\mathcal{${l}}`, `calligraphic ${l}`]),
    ["x̂", `\\hat{${S}}`, "hat"], ["x̄", `\\bar{${S}}`, "bar"], ["x⃗", `\\vec{${S}}`, "arrow"], ["ẋ", `\\dot{${S}}`, "dot"],
    ["x̃", `\\tilde{${S}}`, "tilde"], ["𝐱", `\\mathbf{${S}}`, "bold"], ["abc", `\\text{${S}}`, "words"],
  ],
};

export function startPalette() {
  const panel = document.getElementById("palette");
  const button = document.getElementById("palette-button");
  button.addEventListener("click", () => {
    if (!panel.childElementCount) build(panel);
    panel.hidden = !panel.hidden;
    button.setAttribute("aria-expanded", String(!panel.hidden));
  });
  panel.addEventListener("click", (event) => {
    const key = event.target.closest("button[data-latex]");
    if (key) insert(key.dataset.latex);
  });
}

function build(panel) {
  const tabs = element("div", { role: "tablist", "aria-label": "Kinds of symbols" });
  const keys = element("div", { class: "keys", role: "tabpanel", id: "palette-keys" });
  const choose = (name) => {
    for (const tab of tabs.children) tab.setAttribute("aria-selected", String(tab.textContent === name));
    keys.replaceChildren(...GROUPS[name].map(keyOf));
  };
  for (const name of Object.keys(GROUPS)) {
    const tab = element("button", { type: "button", role: "tab", "aria-controls": "palette-keys" }, name);
    tab.addEventListener("click", () => choose(name));
    tabs.append(tab);
  }
  const hint = element("p", { class: "hint" }, `Empty places are shown as ${S}: Tab goes to the next one, a click in the preview selects one.`);
  panel.append(tabs, keys, hint);
  choose("Build");
}

function keyOf(entry) {
  if (typeof entry === "string") {
    const [glyph, ...name] = entry;
    entry = [glyph, `\\${name.join("")} `, name.join("")];
  }
  const [glyph, latex, name] = entry;
  return element("button", { type: "button", "data-latex": latex, title: name, "aria-label": name }, glyph);
}
