// Operator trees back to LaTeX in other notations that mean the same: the table of canonical.mjs run backwards.
//
// A notation draws once which kinds of rewriting it uses (FREEDOMS) and prints the tree; where a kind is not used, the
// notation of the formula stays. Whether a notation kept its meaning is checked afterwards, by parsing it.

import { measureDepth } from "../../formulas/js/batches.mjs";
import { RULES, isExponential, isMatrix } from "../../formulas/js/canonical.mjs";
import { readPresentationTrees } from "../../formulas/js/columns.mjs";
import { OperatorParser } from "../../formulas/js/operators.mjs";
import { FIXED_LETTERS, Paraphrase } from "./paraphrases.mjs";
import {
  BIG, COORDINATES, FIELDS, FUNCTION_NAMES, IMPLICATION, INDEX_LETTER, INTEGRAL, MAX_DEPTH, MIN_CONDITION_SPACE_EM,
  PRODUCT, RELATION, SCRIPT_TAGS, SUM, TENSOR_INDICES, USUALLY_DIFFERENTIATED, USUAL_FUNCTIONS, forgetSymbols, isLetter,
  isNumber,
  readPairs, readRows, roleOf, words,
} from "../../formulas/js/symbols.mjs";

// kind of rewriting -> probability that a notation uses it
const FREEDOMS = {
  fraction: 0.5, power: 0.5, exponential: 0.6, transpose: 0.8, derivative: 0.7, operator: 0.6, binomial: 0.8,
  moment: 0.7, name: 0.6, relation: 0.5, sides: 0.4, bracket: 0.6, style: 0.6, product: 0.4, commute: 0.5,
  conjugate: 0.5, letter: 0.5, subscript: 0.25, mark: 0.4,
};
const LEVEL = { list: 0, implication: 1, given: 2, relation: 3, sum: 4, product: 6, open: 7, closed: 8, atom: 9 };
const CHARACTER_COMMANDS = readPairs(String.raw`
  ∞ \infty  ∅ \emptyset  ⌀ \varnothing  ℏ \hbar  ℓ \ell  ∂ \partial  ∇ \nabla  \ \setminus  # \#  % \%  & \&  $ \$
  _ \_  { \{  } \}  ~ \sim  ^ \wedge  ⊤ \top  ⊥ \perp  ∗ *  · \cdot  - -  mod \bmod  … \ldots  ε \varepsilon
  ϵ \epsilon  φ \varphi  ϕ \phi  ′ \prime  ∘ \circ  ⨿ \amalg
`);
const RELATION_COMMANDS = readRows(String.raw`
  ≤  \le  \leq  \leqslant
  ≥  \ge  \geq  \geqslant
  ≠  \ne  \neq
  →  \to  \rightarrow
  ~  \sim
  :=  :=  \coloneqq  =
  ≡  \equiv  =
  ≜  \triangleq  :=  =
  ≈  \approx  \simeq
  ≃  \simeq  \approx
  ⊂  \subset  \subseteq
  ⊃  \supset  \supseteq
  =  =  =  =  =  :=  \equiv
  ⇒  \Rightarrow  \implies
  ⇔  \Leftrightarrow  \iff
  =:  =:
  ↦  \mapsto
  ≝  \triangleq
  ⊄  \not\subset
`);
const SIGN_COMMANDS = readPairs(String.raw`
  ± \pm  ∓ \mp  × \times  ∗ *  ⊗ \otimes  ⊕ \oplus  ∪ \cup  ∩ \cap  ∧ \wedge  ∨ \vee
`);
const REVERSED = readPairs(`< >  > <  ≤ ≥  ≥ ≤  ≪ ≫  ≫ ≪  ⊂ ⊃  ⊃ ⊂`);
const SWAPPABLE = words("= ≠ ≈ ≡ ≃ ≅ :=");
const TRANSPOSES = ["T", "\\top", "\\mathsf{T}", "\\mathrm{T}", "\\intercal", "'"];
// label of a function -> ways to print its name
const NAME_COMMANDS = readRows(String.raw`
  trace  \operatorname{tr}  \operatorname{Tr}  \mathrm{tr}  \text{Tr}
  var  \operatorname{Var}  \mathrm{Var}  \text{Var}  \operatorname{var}
  cov  \operatorname{Cov}  \mathrm{Cov}  \text{Cov}  \operatorname{cov}
  log  \log  \ln
  sign  \operatorname{sgn}  \operatorname{sign}  \mathrm{sgn}
`);
const KNOWN_COMMANDS = words(`
  sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan log ln exp det dim ker deg gcd hom arg max min
  sup inf lim Pr lg
`);
const BIG_COMMANDS = readPairs(String.raw`
  ∑ \sum  ∏ \prod  ∐ \coprod  ⋃ \bigcup  ⋂ \bigcap  ⋁ \bigvee  ⋀ \bigwedge  ⨁ \bigoplus  ⨂ \bigotimes  ⨀ \bigodot
  ⨄ \biguplus  argmax \operatorname*{argmax}  argmin \operatorname*{argmin}  limsup \limsup  liminf \liminf  ∫ \int
  ∬ \iint  ∭ \iiint  ∮ \oint  ∯ \oiint  ⨌ \iiint
`);
const STYLE_COMMANDS = readPairs(String.raw`
  bold \mathbf  bold-italic \boldsymbol  double-struck \mathbb  script \mathcal  fraktur \mathfrak
  sans-serif \mathsf  monospace \mathtt
`);
const ACCENT_SIGNS = readPairs(String.raw`
  ^ \hat  ˆ \hat  ~ \tilde  ˜ \tilde  ˇ \check  ˘ \breve  ‾ \overline  ˉ \bar  ¯ \overline  ⃗ \vec
  → \overrightarrow  ˙ \dot  ¨ \ddot
`);
const ALPHABETS = ["abcfghjklmnopqrstuvwxyz", "ABCDEFGHJKLMNQRSUVWXYZ", "αβγδζηθκλμνξρστφχψω", "ΓΘΛΞΣΦΨΩ"];
const FUNCTION_SCRIPTS = words("idx pow star prime mark transpose adjoint");
const FRESH_LETTERS = [["a", "b"], ["x", "y"], ["u", "v"], ["p", "q"], ["m", "n"]];

// mulberry32.
function makeRandom(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const printText = (text) => `\\text{${text.replace(/[\\{}$%#&_^~]/g, " ")}}`;
const isOpen = (node) => (roleOf(node.label) & (BIG | INTEGRAL)) !== 0;
const isSimple = (node) => node.label === "v" || node.label === "n" || node.label === "c";

class NotationWriter {
  // parser: one that has parsed the tree; root: its operator tree; renamed: whether variables get other names
  constructor(parser, root, random, renamed) {
    this.parser = parser;
    this.random = random;
    this.free = {};
    for (const kind in FREEDOMS) this.free[kind] = random() < FREEDOMS[kind];
    this.transpose = this.pick(TRANSPOSES);
    // \left( instead of (.
    this.sized = random() < 0.5;
    this.dot = this.pick(["", "", " \\cdot ", " \\, "]);
    this.upright = random() < 0.25 ? "\\mathrm{d}" : "d";
    this.partial = parser.nodes.some(({ meaning }) => meaning.raw === "∂");
    this.moments = { E: this.pick(["\\mathbb{E}", "E", "\\operatorname{E}", "\\mathrm{E}", "\\mathsf{E}"]),
      P: this.pick(["P", "\\Pr", "\\mathbb{P}", "\\operatorname{P}", "\\mathrm{P}"]) };
    this.bold = this.pick(["", "\\mathbf", "\\boldsymbol", "\\vec"]);
    this.inRange = false;
    // Letter -> its new name.
    this.letters = new Map();
    // Variable with its subscript -> a letter.
    this.whole = new Map();
    this.chooseStyles();
    if (renamed) this.chooseLetters();
    if (this.free.subscript) this.chooseWhole(root);
  }

  pick(options) {
    return options[Math.floor(this.random() * options.length)];
  }

  shuffle(list) {
    const out = [...list];
    for (let k = out.length - 1; k > 0; k--) {
      const j = Math.floor(this.random() * (k + 1));
      [out[k], out[j]] = [out[j], out[k]];
    }
    return out;
  }

  // Letters that occur in several styles keep them.
  chooseStyles() {
    const styles = new Map();
    for (const { tag, children, meaning, attributes } of this.parser.nodes)
      if (tag === "mi" && !children.length)
        styles.set(meaning.raw, (styles.get(meaning.raw) ?? new Set()).add(attributes.mathvariant ?? ""));
    const unchanged = [...styles].filter(([, used]) => used.size === 1);
    this.variant = new Map(unchanged.map(([letter, used]) => [letter, [...used][0]]));
    // Loses its style.
    this.plain = new Set([...this.variant.keys()].filter(() => this.free.style && this.random() < 0.5));
    this.used = new Set(styles.keys());
  }

  // Consistent renaming within an alphabet; functions stay functions, indices stay indices.
  chooseLetters() {
    // Letters that are used in the same ways.
    const signature = (letter) =>
      [
        ALPHABETS.findIndex((alphabet) => alphabet.includes(letter)), USUAL_FUNCTIONS.has(letter),
        INDEX_LETTER.test(letter), USUALLY_DIFFERENTIATED.has(letter), COORDINATES.has(letter),
        TENSOR_INDICES.test(letter),
      ].join();
    for (const alphabet of ALPHABETS) {
      const own = [...this.used].filter((letter) =>
        letter && alphabet.includes(letter) && !FIXED_LETTERS.has(letter) && this.random() < 0.8);
      const free = this.shuffle([...alphabet].filter((letter) =>
        !FIXED_LETTERS.has(letter) && (own.includes(letter) || !this.used.has(letter))));
      for (const letter of own) {
        const at = free.findIndex((other) => signature(other) === signature(letter));
        if (at >= 0) this.letters.set(letter, free.splice(at, 1)[0]);
      }
    }
  }

  // x_1 and x_2 become a and b.
  chooseWhole(root) {
    const found = new Map();
    for (let level = [root]; level.length; level = level.flatMap((node) => node.children))
      for (const node of level)
        if (node.label === "v"
          && node.name !== null
          && /^[12]$/.test(node.name.subscript.text)
          && node.name.subscript.label === "n")
          found.set(node.name.base, (found.get(node.name.base) ?? new Set()).add(node.text));
    for (const [base, names] of found) {
      const pair = this.pick(FRESH_LETTERS), taken = [...this.used, ...this.letters.values()];
      if (names.size !== 2 || pair.some((letter) => taken.includes(letter)) || USUAL_FUNCTIONS.has(base)) continue;
      [...names].sort().forEach((name, k) => this.whole.set(name, pair[k]));
      break;
    }
  }

  get renames() {
    return this.letters.size + this.whole.size > 0;
  }

  // --- presentation nodes ----------------------------------------------------------------------------------------

  printNode({ tag, children, attributes, meaning }) {
    const part = (k) => this.printNode(children[k]);
    const all = () => this.printNodes(children);
    if (!children.length) {
      if (tag === "mi") return this.printLetter(meaning.raw, attributes.mathvariant ?? "");
      if (tag === "mtext" || tag === "ms") return printText(meaning.raw);
      if (tag === "mspace") return parseFloat(attributes.width ?? "0") >= MIN_CONDITION_SPACE_EM ? "\\quad " : "";
      return this.printCharacter(meaning.raw.trim());
    }
    switch (tag) {
      case "msub": return `{${part(0)}}_{${part(1)}}`;
      case "msup": return `{${part(0)}}${this.printSuperscript(children[1])}`;
      case "msubsup": return `{${part(0)}}_{${part(1)}}${this.printSuperscript(children[2])}`;
      case "mfrac": return `\\frac{${part(0)}}{${part(1)}}`;
      case "msqrt": return `\\sqrt{${all()}}`;
      case "mover": {
        const accent = ACCENT_SIGNS.get(this.parser.textOf(children[1])) ?? `\\overset{${part(1)}}`;
        return `${accent}{${part(0)}}`;
      }
      case "munder": return `\\underset{${part(1)}}{${part(0)}}`;
      case "munderover": return `\\overset{${part(2)}}{\\underset{${part(1)}}{${part(0)}}}`;
      default: return all();
    }
  }

  printNodes(nodes) {
    return nodes.map((node) => this.printNode(node)).join(" ");
  }

  printSuperscript(node) {
    const sign = this.parser.textOf(node);
    return /^[′'’]+$/.test(sign) ? "'".repeat(sign.length) : `^{${this.printNode(node)}}`;
  }

  printCharacter(character) {
    const composed = character.normalize("NFC");
    if (composed === "\u2061") return "";
    return CHARACTER_COMMANDS.get(composed) ?? composed;
  }

  printLetter(text, variant) {
    let letter = text.trim();
    const multiple = [...letter].length > 1, plain = multiple ? letter : this.letters.get(letter) ?? letter;
    const canRestyle = this.free.style && !multiple && this.variant.has(text);
    variant = this.variant.get(text) ?? variant;
    if (multiple)
      return KNOWN_COMMANDS.has(letter)
        ? `\\${letter} `
        : BIG_COMMANDS.get(letter.replace(/\s/g, "")) ?? `\\operatorname{${letter.replace(/[^\p{L}\d]/gu, "")}}`;
    if (this.free.letter && (plain === "ε" || plain === "ϵ")) return this.pick(["\\epsilon ", "\\varepsilon "]);
    if (this.free.letter && (plain === "φ" || plain === "ϕ")) return this.pick(["\\phi ", "\\varphi "]);
    letter = this.printCharacter(plain);
    if (variant === "bold" || variant === "bold-italic") {
      const command = canRestyle ? this.bold : variant === "bold" ? "\\mathbf" : "\\boldsymbol";
      return command ? `${command}{${letter}}` : `${letter} `;
    }
    if (this.plain.has(text) && (variant === "script" || variant === "normal")) return `${letter} `;
    if (variant === "normal" && /^[A-Za-z]$/.test(letter)) return `\\mathrm{${letter}}`;
    const command = STYLE_COMMANDS.get(variant);
    return command ? `${command}{${letter}}` : `${letter} `;
  }

  // --- operator nodes --------------------------------------------------------------------------------------------

  enclose(tex) {
    return this.sized && /\\frac|\\sum|\\int|\\prod|\^/.test(tex) ? `\\left(${tex}\\right)` : `(${tex})`;
  }

  // LaTeX of a node for a place that takes operators from a level on; others get brackets.
  print(node, level = 0) {
    const written = this.write(node);
    const [tex, own] = typeof written === "string" ? [written, LEVEL.closed] : written;
    return own >= level ? tex : this.enclose(tex);
  }

  join(nodes, separator, level = 0) {
    return nodes.map((node) => this.print(node, level)).join(separator);
  }

  // LaTeX and its level, or LaTeX alone if its level is "closed".
  write(node) {
    const { label, children, at } = node;
    if (!children.length) return [this.writeLeaf(node), LEVEL.atom];
    if (isOpen(node)) return [this.writeBig(node), LEVEL.open];
    if (label.startsWith("f:")) return this.writeFunction(node);
    if (METHODS.has(label)) return this[METHODS.get(label)](node);
    if (label in WRITERS) return WRITERS[label](this, node);
    if (TEMPLATES.has(label)) return this.fillTemplate(node, TEMPLATES.get(label));
    if (BRACKET_PAIRS.has(label)) return this.writeBrackets(node, BRACKET_PAIRS.get(label));
    if (roleOf(label) & IMPLICATION)
      return [this.join(children, ` ${this.relationTex(label)} `, LEVEL.given), LEVEL.implication];
    if (roleOf(label) & RELATION) return [this.writeRelation(node), LEVEL.relation];
    if (roleOf(label) & SUM)
      return [children.length === 1
        ? `${this.signTex(label)} ${this.print(children[0], LEVEL.product)}`
        : this.join(children, ` ${this.signTex(label)} `, LEVEL.product),
        LEVEL.sum];
    if (roleOf(label) & PRODUCT) return [this.join(children, ` ${this.signTex(label)} `, LEVEL.closed), LEVEL.product];
    throw new Error("no notation for " + label);
  }

  fillTemplate({ children }, [level, ...parts]) {
    const fill = (_, place, inner) => this.print(children[place], LEVEL[inner ?? "list"]);
    return [parts.join(" ").replace(/@(\d)(?::(\w+))?/g, fill), LEVEL[level]];
  }

  writeBrackets({ children }, signs) {
    const first = this.free.bracket ? 2 * Math.floor((this.random() * signs.length) / 2) : 0;
    return [`${signs[first]} ${this.join(children, ", ")} ${signs[first + 1]} `, LEVEL.atom];
  }

  writeSign({ children: [sign, ...operands] }) {
    const relation = RELATION_COMMANDS.get(sign.text)?.[0] ?? sign.text;
    return [`${relation} ${this.join(operands, " ")}`, LEVEL.relation];
  }

  // a = b < c
  writeChain({ children }) {
    const links = children.map(({ label, children: [left, right] }, k) => {
      const before = k ? "" : this.print(left, LEVEL.sum);
      return `${before} ${RELATION_COMMANDS.get(label)?.[0] ?? label} ${this.print(right, LEVEL.sum)}`;
    });
    return [links.join(" "), LEVEL.relation];
  }

  writeInterval(node) {
    const inner = this.join(node.children, ", ");
    return [this.parser.textOf(node.at).startsWith("[") ? `[${inner})` : `(${inner}]`, LEVEL.atom];
  }

  signTex(sign) {
    return SIGN_COMMANDS.get(sign) ?? this.printCharacter(sign);
  }

  writeLeaf(node, isFunction = false) {
    const { label, text, at } = node;
    switch (label) {
      case "n": return text.replaceAll(",", "{,}");
      case "dots": return this.free.letter ? this.pick(["\\dots ", "\\cdots ", "\\ldots "]) : "\\dots ";
      case "text": return printText(this.parser.textOf(at));
      case "fn": return this.writeName(text, at);
      case "empty": case "any": return "";
      case "o": return `${this.printCharacter(text)} `;
      case "c": return this.printNode(at);
    }
    if (this.whole.has(text)) return `${this.whole.get(text)} `;
    if (node.variables !== null) return this.printNode(at);
    if (/^\p{L}′$/u.test(text)) return `${this.printLetter(text[0], "")}'`;
    if (text === "E" || text === "P") return this.writeMoment(node);
    if (node.name !== null) {
      const derivative = this.free.derivative && !isFunction ? RULES.v(node) : null;
      if (derivative !== null) return this.enclose(this.print(derivative));
      if (SCRIPT_TAGS.has(at.tag)) return `${this.printNode(at.children[0])}_{${this.printNode(at.children[1])}}`;
      return `${this.printLetter(node.name.base, "")}_{${this.print(node.name.subscript)}}`;
    }
    return at.tag !== "mi" && /^\p{L}$/u.test(text) ? this.printLetter(text, "") : this.printNode(at);
  }

  writeMoment(node) {
    const styled = this.variant.has(node.text)
      && node.at.tag === "mi"
      && (node.at.attributes.mathvariant ?? "") !== "";
    return styled && this.free.moment ? this.moments[node.text] : this.printNode(node.at);
  }

  // The name of a function as it was printed, or another that means the same.
  writeName(name, at) {
    const { tag, children, index } = at, { nodes } = this.parser;
    if (this.free.name && NAME_COMMANDS.has(name) && !SCRIPT_TAGS.has(tag))
      return `${this.pick(NAME_COMMANDS.get(name))} `;
    if (tag === "msup" || tag === "mover") return this.writeName(name, children[0]);
    if (tag === "msubsup" || tag === "msub")
      return `${this.writeName(name, children[0])}_{${this.printNode(children[1])}}`;
    let word = "";
    for (const node of nodes.slice(index, index + 12)) {
      word += this.parser.textOf(node).replace(/[,.;:]$/, "");
      if ((FUNCTION_NAMES.get(word) ?? word.toLowerCase()) !== name) continue;
      if (KNOWN_COMMANDS.has(word) && !(this.free.name && this.random() < 0.1)) return `\\${word} `;
      let command = word === "mod" ? "\\text" : "\\operatorname";
      if (word !== "mod" && this.free.name) command = this.pick(["\\operatorname", "\\mathrm", "\\text"]);
      return `${command}{${word.replace(/[^\p{L}\d.-]/gu, "")}}`;
    }
    return `\\operatorname{${name.replace(/[^\p{L}\d]/gu, "")}}`;
  }

  writeRelation(node) {
    let { label, children } = node;
    if (this.inRange)
      return this.join(children, ` ${RELATION_COMMANDS.get(label)?.[0] ?? this.printCharacter(label)} `, LEVEL.sum);
    if (children.length === 2 && this.free.sides && (SWAPPABLE.has(label) || REVERSED.has(label)) && label !== ":=") {
      children = [...children].reverse();
      label = REVERSED.get(label) ?? label;
    }
    return this.join(children, ` ${this.relationTex(label)} `, LEVEL.sum);
  }

  relationTex(label) {
    const options = RELATION_COMMANDS.get(label);
    if (options === undefined) return this.printCharacter(label);
    return this.free.relation ? this.pick(options) : options[0];
  }

  writeSum(node) {
    const fixed = node.children.some((child) => child.label === "dots");
    const terms = this.free.commute && !fixed ? this.shuffle(node.children) : [...node.children];
    if (terms[0].label === "neg" && !fixed && this.random() < 0.7)
      terms.sort((one, other) => (one.label === "neg") - (other.label === "neg"));
    const written = terms.map((term, k) => {
      const negative = term.label === "neg", tex = this.print(negative ? term.children[0] : term, LEVEL.product);
      return negative ? `-${tex}` : k ? `+${tex}` : tex;
    });
    return [written.join(" "), LEVEL.sum];
  }

  writeProduct(node) {
    const commutes = this.free.commute
      && !node.children.some((child) =>
        isMatrix(child)
          || child.label === "dots"
          || child.label === "o"
          || isD(child)
          || child.text === "∇"
          || child.text === "Δ");
    let factors = node.children;
    if (commutes) {
      const numbers = factors.filter((child) => child.label === "n");
      const others = this.shuffle(factors.filter((child) => child.label !== "n"));
      factors = [...numbers, ...others.filter((child) => !isOpen(child)), ...others.filter(isOpen)];
    }
    let out = "";
    factors.forEach((factor, k) => {
      const last = k === factors.length - 1, before = factors[k - 1];
      const tex = factor.label === "frac" && !last
        ? this.writeBar(factor)
        : this.print(factor, last && factor.label !== "neg" ? LEVEL.open : LEVEL.closed);
      if (before === undefined) {
        out = tex;
        return;
      }
      const group = /^(\\left)?[([|]/.test(tex);
      const isFunction = ["v", "idx", "pow", "star", "prime", "D", "fn"].includes(before.label);
      const separate = (group && isFunction)
        || (factor.label === "n" || /^\d/.test(tex))
        || before.label === "neg"
        || before.label === "fn";
      out += separate
        ? (/\d$/.test(out) && /^\d/.test(tex) && this.random() < 0.3 ? " \\times " : " \\cdot ")
        : this.free.product ? this.dot : " ";
      out += tex;
    });
    return [out, LEVEL.product];
  }

  writeBar(node) {
    return `\\frac{${this.print(node.children[0])}}{${this.print(node.children[1])}}`;
  }

  writeFraction(node) {
    if (node.variables !== null) return this.printNode(node.at);
    const [above, below] = node.children, wasBar = node.at.tag === "mfrac";
    const choice = this.free.fraction ? this.random() : wasBar ? 0 : 0.6;
    if (choice < 0.45) return this.writeBar(node);
    if (choice > 0.85
      && !isMatrix(below)
      && !isExponential(below)
      && ["v", "pow", "+", "app", "idx"].includes(below.label)) {
      const inverse = this.writePower(below.label === "pow" ? below.children[0] : below,
        `-${below.label === "pow" ? this.print(below.children[1], LEVEL.closed) : "1"}`);
      const top = isNumber(above, "1") ? "" : `${this.print(above, LEVEL.closed)} `;
      return [top + (top && /^(\\left)?\(/.test(inverse) ? "\\cdot " : "") + inverse, LEVEL.product];
    }
    const top = above.label === "neg" ? this.print(above, LEVEL.product) : this.print(above, LEVEL.closed);
    return [`${top}/${this.print(below, LEVEL.closed)}`, LEVEL.product];
  }

  writePower(base, exponent) {
    return `${this.writeBase(base)}^{${exponent}}`;
  }

  // A base for scripts: whatever has scripts itself gets brackets.
  writeBase(base) {
    if (base.label === "idx" && !this.isRaised(base)) return this.print(base);
    if (base.label === "app") return this.print(base);
    const tex = this.print(base, LEVEL.atom);
    return base.label === "v" && /[\^']/.test(tex.replace(/_\{.*\}$/, "")) ? this.enclose(tex) : tex;
  }

  writeExponent(node) {
    if (node.label === "frac" && node.children.every(isSimple) && this.random() < 0.6)
      return `${this.print(node.children[0])}/${this.print(node.children[1])}`;
    return this.print(node);
  }

  writePowerNode(node) {
    const [base, exponent] = node.children;
    const half = exponent.label === "frac" && isNumber(exponent.children[0], "1") ? exponent.children[1] : null;
    if (isExponential(node) && this.free.exponential)
      return `\\exp ${this.enclose(this.print(exponent))}`;
    if (half !== null && this.free.power && half.label === "n")
      return [`\\sqrt${half.text === "2" ? "" : `[${half.text}]`}{${this.print(base)}}`, LEVEL.atom];
    if (base.label.startsWith("f:") && base.children.length === 1 && exponent.label !== "o") {
      const name = this.writeName(base.label.slice(2), base.at);
      if (!/_/.test(name) && this.random() < 0.8)
        return `${name}^{${this.print(exponent)}} ${this.enclose(this.print(base.children[0]))}`;
    }
    return this.writePower(base, this.writeExponent(exponent));
  }

  writeRoot(node) {
    const degree = node.label === "sqrt" ? "2" : this.print(node.children[1]);
    if (this.free.power)
      return this.writePower(node.children[0], this.random() < 0.5 ? `1/${degree}` : `\\frac{1}{${degree}}`);
    return [`\\sqrt${degree === "2" ? "" : `[${degree}]`}{${this.print(node.children[0])}}`, LEVEL.atom];
  }

  writeFunction(node) {
    const name = node.label.slice(2), { children, at } = node;
    if (name === "exp" && children.length === 1 && this.free.exponential && at.tag !== "msup")
      return `${this.pick(["e", "\\mathrm{e}"])}^{${this.print(children[0])}}`;
    if (name === "P" && this.free.moment)
      return this.moments.P + this.enclose(this.join(children, ", ", LEVEL.implication));
    const tex = this.writeName(name, at);
    const simple = children.length === 1 && (isSimple(children[0]) || children[0].label === "frac");
    if (simple && this.free.bracket && this.random() < 0.6 && !/_|\{/.test(tex))
      return [`${tex} ${children[0].label === "frac" ? this.writeBar(children[0]) : this.print(children[0])}`,
        LEVEL.open];
    return tex + this.enclose(this.join(children, ", ", LEVEL.implication));
  }

  writeApplication(node) {
    const [name, ...list] = node.children, inner = this.join(list, ", ", LEVEL.implication);
    if (name.label === "v" && name.text === "E" && list.length === 1) {
      const named = this.free.moment ? this.moments.E : this.printNode(name.at);
      if (this.free.moment && this.random() < 0.15 && !["given", "list"].includes(list[0].label))
        return `\\langle ${inner}\\rangle`;
      return this.random() < 0.7 ? `${named}[${inner}]` : named + this.enclose(inner);
    }
    if (name.label === "v" && name.text === "P")
      return (this.free.moment ? this.moments.P : this.printNode(name.at)) + this.enclose(inner);
    const level = FUNCTION_SCRIPTS.has(name.label) ? LEVEL.list : LEVEL.atom;
    const head = name.label === "v"
      ? this.writeLeaf(name, true)
      : name.label === "star"
        ? this.writePower(name.children[0], "*")
        : name.label === "bar" ? `\\bar{${this.print(name.children[0])}}` : this.print(name, level);
    return head + this.enclose(inner);
  }

  // --- scripts ---------------------------------------------------------------------------------------------------

  isRaised(node) {
    const tag = node.at.tag;
    return tag === "msup" || ((tag === "msubsup" || tag === "munderover") && node.children[0].at === node.at);
  }

  writeIndexed(node) {
    const [base, ...members] = node.children;
    if (this.isRaised(node)) return `${this.writeBase(base)}^{(${this.join(members, ",")})}`;
    const together = members.every((member) => member.label === "v") && !(this.free.letter && this.random() < 0.4);
    const head = base.label === "idx" ? `{${this.print(base)}}` : this.writeBase(base);
    return `${head}_{${this.join(members, together ? " " : ",")}}`;
  }

  writeTransposed(node) {
    const [base] = node.children, kind = node.label;
    let sign = { transpose: "\\top", prime: "'", adjoint: "\\dagger" }[kind];
    if (this.parser.textOf(node.at).endsWith("T")) sign = "T";
    if (this.free.transpose && kind !== "adjoint") sign = this.transpose;
    else if (kind === "adjoint" && this.free.conjugate && /^[A-Z]$/.test(base.text))
      sign = this.pick(["\\dagger", "H"]);
    if (sign === "'" && !(base.label === "v" && /^[A-Z]$/.test(base.text))) sign = "\\top";
    return sign === "'" ? `${this.writeBase(base)}'` : this.writePower(base, sign);
  }

  writeConjugate(node) {
    const [base] = node.children, swap = this.free.conjugate && !isMatrix(base) && this.random() < 0.4;
    if ((node.label === "star") !== swap) return this.writePower(base, this.pick(["*", "\\ast"]));
    return [`${isSimple(base) && this.random() < 0.5 ? "\\bar" : "\\overline"}{${this.print(base)}}`, LEVEL.atom];
  }

  // --- derivatives -----------------------------------------------------------------------------------------------

  writeDerivative(node) {
    const [inner, ...variables] = node.children, order = variables.length;
    const [base, ...list] = inner.label === "app" ? inner.children : [inner];
    const sameName = variables.every((v) =>
      v.label === variables[0].label && v.text === variables[0].text && v.children.length === 0);
    const options = [], letter = base.label === "v" && base.name === null ? base.text : "";
    const argument = list.length ? this.enclose(this.join(list, ", ")) : "";
    const isOnly = list.length === 1 && list[0].label === variables[0].label && list[0].text === variables[0].text;
    const lagrange = /^[\p{Ll}]$/u.test(letter)
      && (USUALLY_DIFFERENTIATED.has(letter) || USUAL_FUNCTIONS.has(letter))
      && sameName
      && order <= 3;
    if (variables[0].label === "any" || (lagrange && isOnly))
      options.push(() => `${this.print(base, LEVEL.atom)}${"'".repeat(order)}${argument}`);
    if (letter && sameName && variables[0].text === "t" && order <= 2 && (isOnly || !list.length))
      options.push(() => `${order === 1 ? "\\dot" : "\\ddot"}{${this.print(base)}}${argument}`);
    if (variables[0].label !== "any") {
      const d = this.partial ? "\\partial " : this.upright, power = order > 1 ? `^{${order}}` : "";
      const counted = [];
      for (const v of variables) {
        const found = counted.find((entry) =>
          entry.v.text === v.text && entry.v.label === v.label && !v.children.length);
        if (found) found.times++;
        else counted.push({ v, times: 1 });
      }
      const below = counted.map(({ v, times }) =>
        `${d} ${this.print(v, LEVEL.closed)}${times > 1 ? `^{${times}}` : ""}`).join(" ");
      options.push(() => `\\frac{${d}${power} ${this.print(inner, LEVEL.closed)}}{${below}}`);
      options.push(() => [`\\frac{${d}${power}}{${below}} ${this.print(inner, LEVEL.closed)}`, LEVEL.open]);
      if (this.partial && sameName && isSimple(variables[0]))
        options.push(() =>
          [`\\partial_{${this.print(variables[0])}}${power} ${this.print(inner, LEVEL.closed)}`, LEVEL.open]);
      if (!list.length
        && FIELDS.has(letter)
        && order <= 3
        && (order > 1 || variables[0].text === "t")
        && variables.every((v) => isLetter(v, COORDINATES)))
        options.push(() => `${this.print(base)}_{${this.join(variables, " ")}}`);
    }
    const tag = node.at.tag;
    const wasBar = variables[0].label === "any" || tag === "mover" || tag === "msup"
      ? 0
      : options.length > 1 ? options.findIndex((o) => o.toString().includes("frac")) : 0;
    return (this.free.derivative ? this.pick(options) : options[Math.max(wasBar, 0)])();
  }

  writeNabla(node) {
    const [inner] = node.children, { label } = node, other = this.free.operator && this.random() < 0.6;
    const operand = () => this.print(inner, LEVEL.closed);
    if (label === "laplace") {
      const wasDelta = this.parser.textOf(node.at) === "Δ";
      const isDelta = wasDelta !== other && isLetter(inner, USUALLY_DIFFERENTIATED);
      return [`${isDelta ? "\\Delta" : "\\nabla^2"} ${operand()}`, LEVEL.open];
    }
    const sign = { grad: "", div: "\\cdot", curl: "\\times" }[label];
    if (other)
      return [`\\operatorname{${label}}${isSimple(inner) ? ` ${operand()}` : this.enclose(this.print(inner))}`,
        LEVEL.open];
    return [`\\nabla ${sign} ${operand()}`, LEVEL.open];
  }

  // --- big operators, tables -------------------------------------------------------------------------------------

  writeBig(node) {
    const find = (label) => node.children.find((child) => child.label === label)?.children[0];
    const from = find("from");
    const to = find("to");
    const by = node.children.filter((child) => child.label === "by");
    const [body] = node.children;
    const sign = BIG_COMMANDS.get(node.label) ?? `\\${node.label}`;
    // `i = 1` is not `1 = i`.
    this.inRange = true;
    const lower = from === undefined ? "" : `_{${this.print(from)}}`;
    const upper = to === undefined ? "" : `^{${this.print(to)}}`;
    this.inRange = false;
    const head = `${sign}${lower}${upper} `;
    if (!(roleOf(node.label) & INTEGRAL)) return head + this.print(body, LEVEL.product);
    const differential = by.map((child) =>
      `${this.upright} ${this.print(child.children[0], LEVEL.atom)}`).join(" \\, ");
    if (by.length === 1 && this.free.operator && this.random() < 0.25)
      return `${head} ${differential} \\, ${this.print(body, LEVEL.product)}`;
    const one = isNumber(body, "1") && by.length;
    if (one) return `${head}  \\, 1 \\, ${differential}`;
    return `${head} ${this.print(body, LEVEL.product)} ${by.length ? "\\," : ""} ${differential}`;
  }

  writeTable(node) {
    const { label } = node, isWide = this.free.bracket && node.children.length !== 2;
    let environment = label === "det" ? "vmatrix" : label;
    if (label === "matrix") environment = isWide ? this.pick(["pmatrix", "bmatrix"]) : "bmatrix";
    const rows = node.children.filter((row) => row.label !== "empty").map((row) =>
      (row.label === "row" || (label === "cases" && row.label === "with")
        ? this.join(row.children, " & ")
        : this.print(row)));
    return [`\\begin{${environment}} ${rows.join(" \\\\ ")} \\end{${environment}}`, LEVEL.atom];
  }

  writeBinomial(node) {
    const [n, k] = node.children.map((child) => this.print(child));
    const simple = node.children.every((child) => child.label === "v" && child.name === null || child.label === "n");
    const options = [`\\binom{${n}}{${k}}`, `{${n} \\choose ${k}}`];
    if (node.children.every((child) => ["n", "v", "+"].includes(child.label)))
      options.push(`\\begin{pmatrix} ${n} \\\\ ${k} \\end{pmatrix}`);
    if (simple) options.push(`C_{${n}}^{${k}}`);
    return [this.free.binomial ? this.pick(options) : options[0], LEVEL.atom];
  }
}

const isD = (node) => node.label === "v" && node.text === "d";
// Labels and the methods that write their nodes.
const METHODS = readPairs(`
  + writeSum  * writeProduct  frac writeFraction  pow writePowerNode  sqrt writeRoot  root writeRoot
  app writeApplication  idx writeIndexed  transpose writeTransposed  prime writeTransposed
  adjoint writeTransposed  star writeConjugate  bar writeConjugate  D writeDerivative  grad writeNabla
  div writeNabla  curl writeNabla  laplace writeNabla  binom writeBinomial  rel writeSign  chain writeChain
  interval writeInterval  matrix writeTable  det writeTable  cases writeTable
`);

// Labels, their levels, and what to write: @0 is the first operand, for a place of some level (@0:closed).
const TEMPLATES = readRows(String.raw`
  neg        sum     -@0:product
  boundary   open    \partial @0:closed
  delta      closed  \Delta @0:closed
  factorial  closed  @0:closed!
  ∀          given   \forall @0
  ∃          given   \exists @0
  hat        atom    \widehat{@0}
  tilde      atom    \widetilde{@0}
  check      atom    \widecheck{@0}
  breve      atom    \widebreve{@0}
`);

// Labels and the pairs of signs around their operands; the first pair is the usual one.
const BRACKET_PAIRS = readRows(String.raw`
  inner  \langle  \rangle  \left\langle  \right\rangle
  mean   \langle  \rangle  \mathbb{E}[  ]  E[  ]
  norm   \|  \|  \left\|  \right\|  \lVert  \rVert
  abs    |  |  \left|  \right|  \lvert  \rvert
  floor  \lfloor  \rfloor  \left\lfloor  \right\rfloor
  ceil   \lceil  \rceil  \left\lceil  \right\rceil
`);

const around = (open, close) => (writer, node) => [`${open}${writer.join(node.children, ", ")}${close} `, LEVEL.atom];
// Label -> [LaTeX, level].
const WRITERS = {
  mark: (writer, { children: [base, mark] }) => writer.writePower(base, mark.text),
  column: (writer, node) => [`\\begin{pmatrix} ${writer.join(node.children, " \\\\ ")} \\end{pmatrix}`, LEVEL.atom],
  rows: (writer, node) => {
    const rows = node.children.filter((row) => row.label !== "empty");
    return [`\\begin{gathered} ${writer.join(rows, " \\\\ ")} \\end{gathered}`, LEVEL.list];
  },
  with: (writer, node) => [writer.join(node.children, writer.pick([", \\quad ", "\\quad ", "\\qquad "])), LEVEL.list],
  list: (writer, node) => [writer.join(node.children, ", ", LEVEL.implication), LEVEL.list],
  tuple: around("(", ")"),
  commutator: around("[", "]"),
  set: around("\\{", "\\}"),
  bra: around("\\left\\langle ", "\\right|"),
  ket: around("\\left|", "\\right\\rangle"),
  braket: (writer, node) => [`\\langle ${writer.join(node.children, "|")}\\rangle `, LEVEL.atom],
  given: (writer, node) => {
    const bar = writer.free.bracket ? writer.pick(["\\mid", "|", "\\,|\\,"]) : "|";
    return [writer.join(node.children, ` ${bar} `, LEVEL.relation), LEVEL.given];
  },
  colon: (writer, node) => [writer.join(node.children, " : ", LEVEL.relation), LEVEL.given],
};

/**
 * Print the trees of a batch in other notations: for each a list of [LaTeX, whether variables are renamed, whether it
 * is a paraphrase], empty if the tree was not parsed completely.
 * @param {string} json a batch in the format of columns.mjs, with a seed for each tree (`seeds`), the number of
 *   notations (`count`), and the shares to paraphrase and to rename (`paraphrased`, `renamed`)
 * @returns {string} JSON
 */
export function writeNotations(json) {
  forgetSymbols();
  const batch = JSON.parse(json);
  const answers = Array.from(readPresentationTrees(batch), (nodes, tree) => {
    const notations = [], parser = new OperatorParser(nodes), seed = batch.seeds[tree];
    try {
      const root = parser.parse();
      for (let k = 0; k < batch.count && parser.unparsed === 0 && measureDepth(root) <= MAX_DEPTH; k++) {
        const random = makeRandom(seed + 7919 * k), isParaphrase = random() < batch.paraphrased;
        const printed = isParaphrase ? new Paraphrase(root, random, parser.root).apply(root) : root;
        const writer = new NotationWriter(parser, printed, random, random() < batch.renamed);
        if (isParaphrase) writer.partial = random() < 0.5;
        notations.push([writer.print(printed) + (writer.free.mark ? writer.pick([".", ",", ""]) : ""), writer.renames,
          isParaphrase]);
      }
    } catch {
      // No notation is better than a wrong one.
    }
    return notations;
  });
  return JSON.stringify(answers);
}
