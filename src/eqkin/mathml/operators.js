// Presentation trees to operator trees: what a formula says instead of how it is set.
//
// A row of a MathML tree is flattened into items (operands, operator signs, big operators), brackets and bars are
// matched, and the items are parsed by precedence, loosest first:
//
//   conditions  ,;  => <=>  | :  relations  + -  products and /  big operators  functions  postfix  scripts
//
// Nothing is ever refused: what has no meaning here keeps its presentation structure ("p:tag"). Every node names the
// presentation node it comes from (`at`), so that matches can be shown. `canonicalise` then applies RULES bottom-up:
// one table of notations that mean the same.

const words = (text) => new Set(text.split(" "));
const ROW_TAGS = words("mrow mstyle mpadded math semantics mtd menclose maction mphantom merror");
const SCRIPT_TAGS = words("msub msup msubsup munder mover munderover");
const ROW_TAG = 1, SCRIPT_TAG = 2, LETTER_TAG = 4, SYMBOL_TAG = 8, LEAF = 16; // bits of the type of a node: its tag's, and LEAF
const findType = (tag) => (ROW_TAGS.has(tag) ? ROW_TAG : SCRIPT_TAGS.has(tag) ? SCRIPT_TAG : tag === "mi" ? LETTER_TAG | SYMBOL_TAG : tag === "mo" ? SYMBOL_TAG : 0);
const TERNARY_TAGS = words("msubsup munderover");
const SIGN_NAMES = new Map(Object.entries({
  "∣": "|", "❘": "|", "∥": "‖", "−": "-", "⟶": "→", "⟵": "←", "⟹": "⇒", "⟺": "⇔", "⟸": "⇐", "⟼": "↦", "⩽": "≤", "⩾": "≥",
  "≦": "≤", "≧": "≥", "⋆": "∗", "*": "∗", "⋅": "·", "∙": "·", "•": "·", "≔": ":=", "≕": "=:", "∼": "~", "⊆": "⊂", "⊇": "⊃",
  "〈": "⟨", "〉": "⟩", "∖": "\\", "。": ".", "，": ",", "；": ";", "iff": "⇔",
}));
const LETTER_NAMES = new Map(Object.entries({
  "ϵ": "ε", "ϕ": "φ", "ϑ": "θ", "ϱ": "ρ", "ς": "σ", "ϖ": "π", "ℓ": "l", "ℒ": "L", "ℋ": "H", "ℎ": "h", "ℙ": "P", "𝔼": "E", "∆": "Δ",
}));
const VARIANT_LETTERS = /[ϵϕϑϱςϖ]/g;
const FUNCTION_NAMES = new Map(Object.entries({
  Pr: "P", Prob: "P", ln: "log", Log: "log", tr: "trace", Tr: "trace", Var: "var", Cov: "cov", sgn: "sign", tg: "tan", rot: "curl", lg: "log",
}));
const RELATIONS = words("= ≠ < > ≤ ≥ ≈ ≡ ~ ≃ ≅ ∝ ∈ ∉ ∋ ⊂ ⊃ ⊊ ⊄ → ← ↔ ↦ ↪ ↠ ≪ ≫ ⊢ ⊨ ≜ ≝ ≐ := =: ≺ ≻ ⪯ ⪰ ≼ ≽ ⊥ ≲ ≳ ≍ ↓ ↑ ⇀ ⇝ ⊣ ⊲ ⊴");
const IMPLICATIONS = words("⇒ ⇔ ⇐");
const ADDITIVE = words("+ - ± ∓ ∪ ⊕ \\ ⊎ ∨ ⊔ △");
const MULTIPLICATIVE = words("× · ∗ ∘ ⊗ ⊙ ∩ ∧ / ÷ ⋊ ⋉ ⊠ ⊓ ⋄ ⊡ mod");
const PLAIN_PRODUCTS = words("· ∗");
const CLOSING = new Map(Object.entries({ "(": ")", "[": "]", "{": "}", "⟨": "⟩", "⌊": "⌋", "⌈": "⌉" }));
const CLOSERS = new Set(CLOSING.values());
const BRACKETS = new Set([...CLOSING.keys(), ...CLOSERS, "|", "‖"]);
const SIMPLE_ARGUMENTS = words("tuple given v idx");
const DIFFERENCES = words("v idx pow"); // Δx, Δx_i, Δx^2
const SIMPLE_FACTORS = words("v c idx pow prime bar transpose"); // in a denominator after a slash
const DECORATIONS = words("pow idx star prime D bar hat tilde transpose adjoint");
const NAMES_WITH_SCRIPTS = words("fn pow idx");
const BIG_OPERATORS = words("∑ ∏ ∐ ⋃ ⋂ ⋁ ⋀ ⨁ ⨂ ⨀ ⨄ lim max min sup inf argmax argmin limsup liminf");
const INTEGRALS = words("∫ ∬ ∭ ∮ ∯ ⨌");
const USUAL_FUNCTIONS = words("f g h F G H P p φ ψ Φ Ψ Γ ζ E T");
const USUALLY_DIFFERENTIATED = words("u v w f g h φ ψ F Φ Ψ ρ θ T V y");
const FIELDS = words("u v w f g h φ ψ Φ Ψ"); // u_t and u_{xx} are derivatives
const COORDINATES = words("t x y z");
const STYLES = new Map(Object.entries({ bold: "bold", "bold-italic": "bold", script: "script", "bold-script": "script", fraktur: "fraktur", "double-struck": "double" }));
const WORD_VARIANTS = words("normal sans-serif monospace"); // letters in them, next to each other, are a word
const TENSOR_INDICES = /^[α-δκ-νρστ]$/;
// names that are also typed without a backslash
const TYPED_NAMES = words("Var Cov Corr Pr Tr det rank dim ker log ln exp sin cos tan sec csc cot arcsin arccos arctan sinh cosh tanh max min lim sup inf arg sgn gcd lcm mod");
const TYPED_BEGINNINGS = new Set([...TYPED_NAMES].map((name) => name[0]));
const LONGEST_TYPED_NAME = 6;
const GREEDY_FUNCTIONS = words("trace"); // tr A log B is the trace of all of it
const INDEX_LETTER = /^[i-nst]$/;
const CONDITION = /^(if|for|where|when|with|and|or|otherwise|such that|s\.t\.|subject to|as|on|in|for all|else|then|a\.s\.|i\.e\.)$/i;
const PRIMES = words("′ ' ’ ″ ‴");
const TRANSPOSES_AS_POWERS = words("⊤ ⊺ T tr");
const STARS = words("∗ * ⋆");
const SIGNS_AS_POWERS = words("+ - − ±");
const ACCENTS = { "^": "hat", "ˆ": "hat", "~": "tilde", "˜": "tilde", "ˇ": "check", "˘": "breve" };
const MIN_CONDITION_SPACE_EM = 0.9; // a space as wide as \quad separates a formula from its conditions
const MAX_DEPTH = 200; // of an operator tree
const MAX_ORDER = 4; // of a derivative that is written out

const NO_CHILDREN = Object.freeze([]);
const MAX_KNOWN = 100_000; // texts and kinds that are remembered from batch to batch

// a * (high * 2^16 + low) modulo 2^32. `Math.imul` is a call in optimised code of the embedded engine.
const multiplyWords = (a, high, low) => ((a & 0xffff) * low + ((((a >>> 16) * low + (a & 0xffff) * high) & 0xffff) << 16)) | 0;

// The output function of MurmurHash3: every bit of the input changes half of the bits of the output.
function mix(x) {
  x = multiplyWords(x ^ (x >>> 16), 0x85eb, 0xca6b);
  x = multiplyWords(x ^ (x >>> 13), 0xc2b2, 0xae35);
  return x ^ (x >>> 16);
}
const mixPair = (a, b) => mix((multiplyWords(a, 0x9e37, 0x79b1) + b) | 0);

function hashText(text) { // FNV-1a over UTF-16
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = multiplyWords(hash ^ text.charCodeAt(i), 0x0100, 0x0193);
  return mix(hash);
}

// What all nodes with the same label and text have in common, found once.
class Kind {
  constructor(label, text) {
    this.label = label;
    this.text = text;
    this.hash = mixPair(hashText(label), text ? hashText(text) : 1) || 1;
    this.rule = RULES[label];
    this.isVariable = label === "v";
    this.isUnordered = UNORDERED.has(label);
    this.isRelation = RELATIONS.has(label);
    this.isOmissible = OMISSIBLE.has(label);
    this.isMatrix = label === "transpose" || label === "matrix";
    this.value = undefined; // of a number, see `readNumber`
    this.subscripted = null; // of a variable: the kinds of those with a subscript
    this.applied = null; // of a name: the kind of its applications
    this.batch = null; // whose answer has this label, and its number there
    this.number = -1;
    this.round = 0; // see `flatten`
    this.variable = -1;
  }
}
const kinds = new Map(); // by label, then by text
let knownKinds = 0;

function findKind(label, text) {
  let byText = kinds.get(label);
  if (byText === undefined) kinds.set(label, byText = new Map());
  let kind = byText.get(text);
  if (kind === undefined) {
    byText.set(text, kind = new Kind(label, text));
    knownKinds++;
  }
  return kind;
}
const operatorKinds = new Map(); // without text, by label

function findOperatorKind(label) {
  let kind = operatorKinds.get(label);
  if (kind === undefined) operatorKinds.set(label, kind = findKind(label, ""));
  return kind;
}

function findSubscriptedKind(base, subscript) {
  let kind = (base.subscripted ??= new Map()).get(subscript);
  if (kind === undefined) base.subscripted.set(subscript, kind = findKind("v", base.text + "_" + subscript));
  return kind;
}

class OperatorNode {
  constructor(kind, children, at) {
    this.kind = kind;
    this.label = kind.label; // operator, or kind of leaf
    this.text = kind.text; // of a leaf
    this.children = children;
    this.at = at; // presentation node
    this.grouped = false; // a product in brackets
    this.variables = null; // of a differential operator that waits for its operand
    this.base = ""; // letter and subscript of a variable with a subscript
    this.subscript = null;
    this.letters = null;
    this.size = 0; // nodes in it; 0: this and the following are not known yet
    this.high = 0; // halves of the hash of its tree: a whole one would be a boxed number
    this.low = 0;
    this.hasMatrix = false;
    this.isSimple = true; // nothing in it can be left out in a weak form
    this.sum = null; // its monomials, once they are known
  }
  get hash() {
    return (this.high << 16) | this.low;
  }
  with(changes) {
    return Object.assign(new OperatorNode(this.kind, NO_CHILDREN, 0), this, changes);
  }
}
const leaf = (label, text, at) => new OperatorNode(findKind(label, text), NO_CHILDREN, at);
const branch = (label, children, at) => new OperatorNode(findOperatorKind(label), children, at);
const empty = (at) => leaf("empty", "", at);
const isLetter = (node, letters) => node.label === "v" && letters.has(node.text);
const isWild = (node) => node.label === "v" && node.text[0] === "?"; // a wildcard of a query: never a part of a name
const isNumber = (node, text) => node.label === "n" && node.text === text;
const isSign = (item, role) => item !== undefined && (item.role & role) !== 0;
const isOperand = (item) => item !== undefined && item.kind === "operand";
const repeat = (node, times) => Array(Math.min(MAX_ORDER, Math.max(1, times))).fill(node);
const combine = (label, nodes, at) => (nodes.length === 1 ? nodes[0] : branch(label, nodes, at));
function group(node) {
  if (node.label === "*") node.grouped = true;
  return node;
}
// The factors, those that are products themselves replaced by theirs.
function flattenProducts(factors, isOpen) {
  return factors.some(isOpen) ? factors.flatMap((node) => (isOpen(node) ? node.children : [node])) : factors;
}
const isOpenProduct = (node) => node.label === "*" && !node.grouped;
const listOf = (node, label) => (node.label === label ? node.children : [node]);

// What a sign does in a row: one bit each, so that a row knows at once which levels of the grammar it needs.
const GAP = 1, COMMA = 2, IMPLICATION = 4, GIVEN = 8, RELATION = 16, INTEGRAL = 32, SUM = 64, PRODUCT = 128, QUANTIFIER = 256, BRACKET = 512;
const ROLES = new Map([["gap", GAP], [",", COMMA], [";", COMMA], [".", COMMA], ["|", GIVEN], ["‖", GIVEN], [":", GIVEN]]);
for (const [signs, role] of [[IMPLICATIONS, IMPLICATION], [RELATIONS, RELATION], [ADDITIVE, SUM], [MULTIPLICATIVE, PRODUCT], [words("∀ ∃"), QUANTIFIER]])
  for (const sign of signs) ROLES.set(sign, role);
for (const sign of BRACKETS) ROLES.set(sign, (ROLES.get(sign) ?? 0) | BRACKET);
const roleOf = (sign) => ROLES.get(sign) ?? 0;
const TRAILING = words(", . ; : ? gap");
const LEADING = words(", ; gap");

// A member of a row: an operand, a sign, or a big operator that waits for its body.
class Item {
  constructor(kind, sign, role, node, at) {
    this.kind = kind;
    this.sign = sign;
    this.role = role;
    this.node = node;
    this.at = at;
    this.applies = false; // a function that takes what follows
    this.bracket = ""; // the opening bracket around an operand
    this.after = null; // the closing bracket with its scripts
    this.upright = -2; // last node of a word of upright letters; -1: one italic letter
    this.word = "";
    this.under = -1; // range of a big operator
    this.over = -1;
    this.scripts = null; // of a closing bracket
    this.tag = "";
  }
}
const signItem = (sign, at) => new Item("sign", sign, roleOf(sign), null, at);
const bigItem = (sign, at) => new Item("big", sign, INTEGRALS.has(sign) ? INTEGRAL : 0, null, at);
const operandItem = (node, at) => new Item("operand", "", 0, node, at);

function rolesOf(items) {
  let roles = 0;
  for (let k = 0; k < items.length; k++) roles |= items[k].role;
  return roles;
}

function splitAt(items, role) {
  const parts = [];
  let start = 0;
  for (let k = 0; k < items.length; k++) {
    if (!(items[k].role & role)) continue;
    parts.push(items.slice(start, k));
    start = k + 1;
  }
  parts.push(items.slice(start));
  return parts;
}

// What a text means, found once for all nodes that have it.
class TextMeaning {
  constructor(raw) {
    const text = raw.trim(), sign = SIGN_NAMES.get(text) ?? text.normalize("NFC");
    this.text = text;
    this.sign = sign;
    this.isBlank = !text.replace(/[\u2062-\u2064\u200b\u00a0]/g, "");
    this.number = text.replace(/\.$/, "");
    this.isLetter = /^[a-zA-Z]$/.test(text);
    this.isBig = BIG_OPERATORS.has(sign) || INTEGRALS.has(sign);
    this.isDots = /^[…⋯⋮⋱]$/.test(sign);
    this.isName = /^[\p{L}. ]{2,}$/u.test(sign) && [...sign].length > 1 && !MULTIPLICATIVE.has(sign);
    this.isSign = RELATIONS.has(sign) || /^[|‖/!.,;]$/.test(sign);
    const named = LETTER_NAMES.get(text) ?? text.normalize("NFKD"); // styles of letters are small differences
    this.kind = /^[∞∅⌀ℏℕℤℚℝℂ⊤⊥]$/u.test(text) ? "c" : "v";
    this.name = this.kind === "c" ? text : /^[A-Za-zΑ-ϵ]$/u.test(named) ? named : LETTER_NAMES.get(text) ?? text;
    this.leaf = findKind(this.kind, this.name);
    this.numberLeaf = findKind("n", this.number);
    this.role = roleOf(sign);
    this.bareSign = sign.replace(/\s+/g, "");
    this.compact = text.replace(/\s/g, "");
    this.inName = this.compact.replace(VARIANT_LETTERS, (letter) => LETTER_NAMES.get(letter)); // in the name of a variable
    this.isInvisible = text === "\u2061";
    this.isTensorIndex = TENSOR_INDICES.test(text);
    this.isIndex = INDEX_LETTER.test(text);
  }
}
const meanings = new Map();

function findMeaning(raw) {
  let meaning = meanings.get(raw);
  if (meaning === undefined) {
    meanings.set(raw, meaning = new TextMeaning(raw));
  }
  return meaning;
}

const isTensorLetter = (meaning) => meaning.isTensorIndex;
const isWildLetter = (meaning) => meaning.text[0] === "?";
const NO_LETTERS = Object.freeze(new Set());

class OperatorParser {
  // tree: arrays tag, type, text, meaning, attributes, first, count over its nodes in breadth-first order
  constructor(tree) {
    this.tag = tree.tag;
    this.type = tree.type;
    this.text = tree.text;
    this.meaning = tree.meaning;
    this.attributes = tree.attributes;
    this.first = tree.first;
    this.count = tree.count;
    this.indices = NO_LETTERS; // letters that range over something
    this.tensorIndices = NO_LETTERS; // Greek letters that are scripts more than once
    this.differentiated = NO_LETTERS; // letters whose subscripts are derivatives
    this.styled = NO_LETTERS; // letters that occur in several styles
    this.unparsed = 0;
    this.end = 0; // item after the operand that was parsed last
  }

  parse() {
    this.findIndices();
    return this.parseAt(0);
  }

  childrenOf(i) {
    const out = new Array(this.count[i]);
    for (let k = 0; k < out.length; k++) out[k] = this.first[i] + k;
    return out;
  }

  // The operands of a fraction or a base with its scripts; KaTeX writes \operatorname as two nodes.
  partsOf(i) {
    const nodes = this.childrenOf(i);
    return nodes.length > 2 && nodes.length > (TERNARY_TAGS.has(this.tag[i]) ? 3 : 2) ? nodes.filter((k) => this.count[k] || !this.meaning[k].isInvisible) : nodes;
  }

  textOf(i) {
    if (!this.count[i]) return this.meaning[i].text;
    let out = "";
    for (let k = this.first[i], end = k + this.count[i]; k < end; k++)
      if (this.count[k]) out += this.textOf(k);
      else if (!this.meaning[k].isInvisible) out += this.meaning[k].text;
    return out;
  }

  // The text without spaces, as it is or as a part of the name of a variable.
  compactTextOf(i, inName) {
    if (!this.count[i]) return inName ? this.meaning[i].inName : this.meaning[i].compact;
    let out = "";
    for (let k = this.first[i], end = k + this.count[i]; k < end; k++)
      if (this.count[k] || !this.meaning[k].isInvisible) out += this.compactTextOf(k, inName);
    return out;
  }

  signOf(i) {
    if (!this.count[i]) return this.meaning[i].sign;
    const text = this.textOf(i);
    return SIGN_NAMES.get(text) ?? text;
  }

  // Whether one of the letters at a node and below has some property.
  hasLetter(i, test) {
    if (!this.count[i]) return (this.type[i] & LETTER_TAG) !== 0 && test(this.meaning[i]);
    for (let k = this.first[i], end = k + this.count[i]; k < end; k++) if (this.hasLetter(k, test)) return true;
    return false;
  }

  lettersIn(i, out = []) {
    if (!this.count[i]) {
      if (this.type[i] & LETTER_TAG) out.push(this.meaning[i].text);
    } else for (let k = this.first[i], end = k + this.count[i]; k < end; k++) this.lettersIn(k, out);
    return out;
  }

  // A subscript is an index, not a part of a name, if a big operator binds it or the same letter has several of them. A
  // letter that occurs in two styles has its style in its name. A subscript is a derivative if it says so.
  findIndices() {
    const { tag, type, count, first, meaning, attributes } = this, indices = new Set();
    let subscripts = null, scripts = null, isStyled = false;
    for (let i = 0; i < tag.length; i++) {
      const kind = type[i];
      if (kind & LETTER_TAG) isStyled ||= attributes[i].style !== "";
      else if (!(kind & SCRIPT_TAG) || count[i] < 2) continue;
      else if (tag[i] === "mover") isStyled ||= this.isVectorSign(first[i] + 1);
      else {
        const second = first[i] + 1;
        for (let k = second, end = first[i] + count[i]; k < end; k++)
          if (this.hasLetter(k, isTensorLetter)) for (const letter of this.lettersIn(k)) if (TENSOR_INDICES.test(letter)) (scripts ??= []).push(letter);
        if (tag[i] === "msup") continue;
        const base = this.signOf(this.coreOf(first[i]));
        if (BIG_OPERATORS.has(base)) for (const letter of this.lettersIn(second)) indices.add(letter);
        else if (tag[i] !== "munder") {
          subscripts ??= new Map();
          const text = this.textOf(second), forms = subscripts.get(base);
          if (forms === undefined) subscripts.set(base, new Map([[text, second]]));
          else forms.set(text, second);
        }
      }
    }
    if (isStyled) this.findStyles();
    if (scripts !== null && scripts.length > 1) this.tensorIndices = new Set(scripts.filter((letter, k) => scripts.indexOf(letter) < k));
    if (subscripts !== null)
      for (const [base, forms] of subscripts) {
        if (forms.size < 2 && !USUALLY_DIFFERENTIATED.has(base)) continue;
        const texts = [...forms.keys()];
        const isRepeated = texts.some((text) => text.length > 1), isField = FIELDS.has(base) ? isRepeated || texts.includes("t") : isRepeated && USUALLY_DIFFERENTIATED.has(base);
        if (isField && texts.every((text) => /^[txyz]{1,3}$/.test(text))) {
          if (!this.differentiated.size) this.differentiated = new Set();
          this.differentiated.add(base);
        } else if (texts.length > 1 && texts.filter((text) => /^[i-nst0-9+−-]+$/.test(text)).length > 1)
          for (const i of forms.values()) for (const letter of this.lettersIn(i)) if (INDEX_LETTER.test(letter)) indices.add(letter);
      }
    if (indices.size) this.indices = indices;
  }

  findStyles() {
    const styles = new Map(), vectors = new Set();
    this.styled = new Set();
    for (let i = 0; i < this.tag.length; i++) {
      if (this.tag[i] === "mi" && !this.count[i] && !vectors.has(i)) this.noteStyle(styles, this.meaning[i].name, this.attributes[i].style);
      if (this.tag[i] !== "mover" || this.count[i] < 2 || !this.isVectorSign(this.first[i] + 1)) continue;
      const core = this.coreOf(this.first[i]);
      this.noteStyle(styles, this.signOf(core), "vector");
      vectors.add(core);
    }
  }

  coreOf(i) {
    while (this.count[i] === 1 && this.type[i] & ROW_TAG) i = this.first[i];
    return i;
  }

  noteStyle(styles, letter, style) {
    const before = styles.get(letter);
    if (before === undefined) styles.set(letter, style);
    else if (before !== style) this.styled.add(letter);
  }

  isVectorSign(i) {
    return !this.count[i] && (this.meaning[i].text === "→" || this.meaning[i].text === "\u20d7");
  }

  // --- from nodes to items -------------------------------------------------------------------------------------

  parseNodes(nodes) {
    return nodes.length === 1 ? this.parseAt(nodes[0]) : this.parseItems(this.readItems(nodes), nodes[0] ?? 0);
  }

  parseAt(i) {
    i = this.coreOf(i);
    if (this.isIdentifier(i)) return this.parseIdentifier(i);
    const items = [];
    this.addItems(i, items);
    if (items.length === 1 && isOperand(items[0])) return items[0].node;
    this.joinNames(items);
    return this.parseItems(this.matchBrackets(items), i);
  }

  readItems(nodes) {
    const items = [];
    for (const i of nodes) this.addItems(i, items);
    this.joinNames(items);
    return this.matchBrackets(items);
  }

  // Names typed as single letters: sin(x), Var(X).
  joinNames(items) {
    for (let k = 0; k + 1 < items.length; k++) {
      if (items[k].upright !== -1 || items[k + 1].upright !== -1 || !TYPED_BEGINNINGS.has(items[k].node.text)) continue;
      let word = "", found = "";
      for (let j = k; j < items.length && j < k + LONGEST_TYPED_NAME && items[j].upright === -1; j++) {
        word += items[j].node.text;
        if (TYPED_NAMES.has(word)) found = word;
      }
      if (found) items.splice(k, found.length, this.nameItem(found, items[k].at));
    }
  }

  isIdentifier(i) {
    return (this.type[i] & (LEAF | LETTER_TAG)) === (LEAF | LETTER_TAG) && this.meaning[i].isLetter;
  }

  isFence(i) {
    return this.tag[i] === "mo" && this.attributes[i].isFence;
  }

  addItems(i, items) {
    const type = this.type[i];
    if (type & ROW_TAG) this.addRow(i, items);
    else if (type & LEAF) this.addLeaf(i, items);
    else if (type & SCRIPT_TAG && this.count[i] > 1) this.addScripted(i, items);
    else if (this.tag[i] === "mtext" || this.tag[i] === "ms") this.addText(i, items);
    else if (this.tag[i] !== "mspace") items.push(operandItem(this.parseNode(i), i));
    else if (this.attributes[i].isWide) items.push(signItem("gap", i));
  }

  addLeaf(i, items) {
    const type = this.type[i], meaning = this.meaning[i], tag = this.tag[i];
    if (tag === "mspace") {
      if (this.attributes[i].isWide) items.push(signItem("gap", i));
    } else if (meaning.isBlank) return;
    else if (type & LETTER_TAG && meaning.isLetter) this.addIdentifier(i, items);
    else if (type & SYMBOL_TAG) this.addSymbol(i, items);
    else if (tag === "mtext" || tag === "ms") this.addText(i, items);
    else items.push(operandItem(this.parseNode(i), i));
  }

  addRow(i, items) {
    const count = this.count[i], start = this.first[i];
    if (count < 2 || !this.isFence(start)) {
      for (let k = 0; k < count; k++) this.addItems(start + k, items);
      return;
    }
    const nodes = this.childrenOf(i), last = nodes[nodes.length - 1], closed = this.isFence(last); // \left( ... \right)
    const open = this.signOf(nodes[0]), inner = nodes.slice(1, closed ? -1 : undefined);
    const item = operandItem(this.parseFenced(open, closed ? this.signOf(last) : "", inner, i), i);
    item.bracket = open;
    items.push(item);
  }

  addText(i, items) {
    const text = this.textOf(i), word = text.replace(/[,.;:]$/, "");
    if (CONDITION.test(word)) items.push(signItem("gap", i));
    else if (!word) items.push(signItem(",", i));
    else if (/\s/.test(word)) items.push(operandItem(leaf("text", word.toLowerCase(), i), i));
    else items.push(this.nameItem(word, i));
  }

  nameItem(name, i) {
    if (name.length === 1) return operandItem(leaf("v", findMeaning(name).name, i), i);
    const item = operandItem(leaf("fn", FUNCTION_NAMES.get(name) ?? name.toLowerCase(), i), i);
    item.applies = [...name].length > 1;
    return item;
  }

  addSymbol(i, items) {
    const meaning = this.meaning[i], sign = meaning.sign, before = items[items.length - 1];
    if (sign === "\u2061") {
      if (isOperand(before)) before.applies = true;
    } else if (sign === "=" && before !== undefined && before.kind === "sign" && before.sign === ":") items[items.length - 1] = signItem(":=", before.at);
    else if (meaning.isBig) items.push(bigItem(sign, i));
    else if (meaning.isDots) items.push(operandItem(leaf("dots", "", i), i));
    else if (meaning.isName) items.push(this.nameItem(sign.trim(), i));
    else if (this.tag[i] === "mo" || meaning.isSign) items.push(new Item("sign", sign, meaning.role, null, i));
    else this.addIdentifier(i, items);
  }

  // Upright letters next to each other are a word: \mathrm{otherwise} arrives letter by letter.
  addIdentifier(i, items) {
    const node = this.parseIdentifier(i), before = items[items.length - 1];
    const { mathvariant: variant, isWord } = this.attributes[i], upright = isWord && this.meaning[i].isLetter;
    if (upright && before !== undefined && before.upright === i - 1) {
      before.word += node.text;
      before.upright = i;
      before.node = leaf("fn", FUNCTION_NAMES.get(before.word) ?? before.word.toLowerCase(), before.at);
      before.applies = true;
      return;
    }
    const item = operandItem(node, i);
    if (upright) {
      item.upright = i;
      item.word = node.text;
    }
    else if (variant === "double-struck" && "EPV".includes(node.text[0])) item.applies = true;
    else if (variant === undefined && this.meaning[i].isLetter) item.upright = -1;
    items.push(item);
  }

  // Scripts without a base belong to what is before them: \Gamma^a{}_{bc}
  addScripted(i, items) {
    const base = this.coreOf(this.first[i]), isBlank = !this.count[base] && ((this.type[base] & ROW_TAG) !== 0 || this.meaning[base].isBlank), before = items[items.length - 1];
    if (isBlank && isOperand(before)) before.node = this.addScripts(before.node, this.childrenOf(i).slice(1), this.tag[i], i);
    else items.push(this.readScripted(i));
  }

  // A scripted node: a big operator with its range, a decorated sign, a closing bracket with scripts, or an operand.
  readScripted(i) {
    const tag = this.tag[i], parts = this.partsOf(i), base = parts[0], scripts = parts.slice(1), core = this.coreOf(base);
    if (this.isIdentifier(core)) return operandItem(this.addScripts(this.parseIdentifier(core), scripts, tag, i), i);
    const isSymbol = (this.type[core] & (LEAF | SYMBOL_TAG)) > LEAF, meaning = this.meaning[core];
    const sign = this.count[core] ? this.signOf(core).replace(/\s+/g, "") : meaning.bareSign;
    if (BIG_OPERATORS.has(sign) || INTEGRALS.has(sign)) {
      const item = bigItem(sign, i), below = tag !== "mover" && tag !== "msup";
      if (below) item.under = scripts[0];
      item.over = (below ? scripts[1] : scripts[0]) ?? -1;
      return item;
    }
    if (isSymbol && roleOf(sign) & (RELATION | SUM | PRODUCT)) return signItem(sign === "=" && /def|△|:/.test(this.textOf(scripts[0])) ? ":=" : sign, i);
    if (isSymbol && (CLOSERS.has(sign) || sign === "|" || sign === "‖")) {
      const item = signItem(sign, i);
      item.scripts = scripts;
      item.tag = tag;
      return item;
    }
    const inner = this.parseAt(base), item = operandItem(this.addScripts(inner, scripts, tag, i), i);
    item.applies = inner.label === "fn" && inner.text.length > 1 && NAMES_WITH_SCRIPTS.has(item.node.label);
    return item;
  }

  // --- brackets --------------------------------------------------------------------------------------------------

  matchBrackets(items) {
    if (!(rolesOf(items) & BRACKET)) return items;
    const stack = [{ open: null, items: [] }];
    const spill = () => { // a bracket without its partner disappears; a bar stays as a sign
      const { open, items: inner } = stack.pop(), target = stack[stack.length - 1].items;
      if (open.sign === "|" || open.sign === "‖") target.push(open);
      for (const item of inner) target.push(item);
    };
    const close = (item) => {
      const { open, items: inner } = stack.pop();
      const node = this.parseGroup(open.sign, item.sign, inner, open.at);
      const group = operandItem(node, open.at);
      group.bracket = open.sign;
      if (item.scripts) group.after = item;
      stack[stack.length - 1].items.push(group);
    };
    for (let at = 0; at < items.length; at++) {
      const item = items[at], { open, items: here } = stack[stack.length - 1];
      if (item.kind !== "sign") here.push(item);
      else if (!(item.role & BRACKET)) here.push(item);
      else if (CLOSING.has(item.sign)) stack.push({ open: item, items: [] });
      else if (CLOSERS.has(item.sign)) {
        let depth = stack.length - 1;
        while (depth > 0 && !canClose(stack[depth].open.sign, item.sign)) depth--;
        if (depth === 0) continue;
        while (stack.length - 1 > depth) spill();
        close(item);
      } else {
        const after = isOperand(here[here.length - 1]);
        if (after && open !== null && open.sign === item.sign) close(item);
        else if (!after || this.hasPartner(items, at) || (item.sign === "|" && this.opensKet(items, at, stack))) stack.push({ open: item, items: [] });
        else here.push(item);
      }
    }
    while (stack.length > 1) spill();
    return stack[0].items;
  }

  // Whether the next bracket that closes is that of a ket: H|\psi\rangle
  opensKet(items, at, stack) {
    if (stack.some(({ open }) => open !== null && open.sign === "⟨")) return false;
    const next = items.slice(at + 1).find((item) => item.role & BRACKET);
    return next !== undefined && next.sign === "⟩";
  }

  // Whether an even number of the same bars is left up to the end of this bracket: then this one opens.
  hasPartner(items, at) {
    let depth = 0, bars = 1;
    for (let k = at + 1; k < items.length; k++) {
      if (items[k].kind !== "sign") continue;
      if (CLOSING.has(items[k].sign)) depth++;
      else if (CLOSERS.has(items[k].sign)) {
        if (depth-- === 0) break;
      } else if (depth === 0 && items[k].sign === items[at].sign) bars++;
    }
    return bars % 2 === 0;
  }

  parseFenced(open, close, nodes, at) {
    let only = nodes.length === 1 ? nodes[0] : -1;
    while (only >= 0 && ROW_TAGS.has(this.tag[only]) && this.count[only] === 1) only = this.first[only];
    if (only >= 0 && this.tag[only] === "mtable") return this.parseTable(only, open, close);
    return this.parseGroup(open, close, this.readItems(nodes), at);
  }

  parseGroup(open, close, items, at) {
    const pair = open + close;
    if (pair === "⟨⟩" && items.some((item) => item.kind === "sign" && item.sign === "|"))
      return branch("braket", splitAt(items, GIVEN).map((part) => this.parseItems(part, at)), at);
    const node = this.parseItems(items, at), list = node.label === "list";
    switch (pair) {
      case "()": return list ? branch("tuple", node.children, at) : group(node);
      case "[]": return list ? branch(node.children.length === 2 ? "commutator" : "tuple", node.children, at) : group(node);
      case "[)": case "(]": return list ? branch("interval", node.children, at) : node;
      case "{}": return node.label === "empty" ? node : branch("set", listOf(node, "list"), at);
      case "⟨⟩": return list ? branch("inner", node.children, at) : branch("mean", [node], at);
      case "⟨|": return branch("bra", [node], at);
      case "|⟩": return branch("ket", [node], at);
      case "‖‖": return branch("norm", [node], at);
      case "⌊⌋": return branch("floor", [node], at);
      case "⌈⌉": return branch("ceil", [node], at);
      default:
        if (open === "|" && node.label === "abs") return branch("norm", node.children, at); // ||x||
        if (open === "|" || open === "‖") return branch("abs", [node], at);
        return open === "{" && !close ? branch("cases", [node], at) : node;
    }
  }

  // --- precedence ------------------------------------------------------------------------------------------------

  parseItems(items, at) {
    if (items.length === 1 && isOperand(items[0])) return this.parseApplication(items, 0);
    let end = items.length, start = 0;
    while (end > 0 && items[end - 1].kind === "sign" && TRAILING.has(items[end - 1].sign)) end--;
    while (start < end && items[start].kind === "sign" && LEADING.has(items[start].sign)) start++;
    if (start === end) return empty(at);
    const inner = end - start < items.length ? items.slice(start, end) : items, roles = rolesOf(inner);
    if (roles & GAP) {
      const parts = splitAt(inner, GAP).map((part) => this.parseItems(part, at)).filter((node) => node.label !== "empty");
      return parts.length ? combine("with", parts, at) : empty(at);
    }
    if (!(roles & COMMA)) return this.parseImplication(inner, at, roles);
    const members = splitAt(inner, COMMA).filter((part) => part.length);
    return members.length ? combine("list", members.map((part) => this.parseImplication(part, at)), at) : empty(at);
  }

  parseImplication(items, at, roles = rolesOf(items)) {
    if (items.length === 1 && isOperand(items[0])) return this.parseApplication(items, 0);
    for (let k = items.length - 1; roles & IMPLICATION && k >= 0; k--) {
      if (!isSign(items[k], IMPLICATION)) continue;
      const left = items.slice(0, k), right = items.slice(k + 1);
      if (!left.length || !right.length) return left.length + right.length ? this.parseImplication(left.concat(right), at) : empty(at);
      const sides = [this.parseImplication(left, at), this.parseGiven(right, at)];
      return items[k].sign === "⇐" ? branch("⇒", sides.reverse(), items[k].at) : branch(items[k].sign, sides, items[k].at);
    }
    const quantifier = items[0].sign || (isOperand(items[0]) ? items[0].node.text : "");
    if (items.length > 1 && (quantifier === "∀" || quantifier === "∃")) return branch(quantifier, [this.parseGiven(items.slice(1), at)], items[0].at);
    return this.parseGiven(items, at, roles);
  }

  parseGiven(items, at, roles = rolesOf(items)) {
    if (!(roles & GIVEN)) return this.parseRelation(items, at, roles);
    const k = items.findIndex((item) => item.role & GIVEN), left = items.slice(0, k), right = items.slice(k + 1);
    if (!left.length || !right.length) return left.length + right.length ? this.parseGiven(left.concat(right), at) : empty(at);
    return branch(items[k].sign === ":" ? "colon" : "given", [this.parseRelation(left, at), this.parseGiven(right, at)], items[k].at);
  }

  parseRelation(items, at, roles = rolesOf(items)) {
    if (roles & INTEGRAL) items = this.reduceIntegrals(items, at);
    if (!(roles & RELATION)) return items.length ? this.parseSum(items, at) : empty(at);
    const signs = [], sides = [], known = [];
    for (let k = 0, start = 0; k <= items.length; k++) {
      if (k < items.length && !(items[k].role & RELATION)) continue;
      if (k < items.length) signs.push(items[k]);
      sides.push(k > start ? this.parseSum(items.slice(start, k), at) : null);
      if (k > start) known.push(sides[sides.length - 1]);
      start = k + 1;
    }
    const { sign, at: place } = signs[0];
    if (known.length < 2) return branch("rel", [leaf("o", sign, place), ...known], place);
    if (signs.length === 1 || signs.every((item) => item.sign === sign)) return branch(sign, known, place);
    const links = []; // a = b < c says a = b and b < c
    let left = sides[0];
    signs.forEach((item, k) => {
      const right = sides[k + 1];
      if (left !== null && right !== null) links.push(branch(item.sign, [left, right], item.at));
      left = right ?? left;
    });
    return combine("chain", links, at);
  }

  isDifferential(item) {
    return isOperand(item) && item.node.label === "v" && (item.node.text === "d" || item.node.text === "ⅆ");
  }

  // An integral takes everything up to its differential, sums included; if that comes first, the product after it.
  reduceIntegrals(items, at) {
    for (let k = items.length - 1; k >= 0; k--) {
      const item = items[k];
      if (!(item.role & INTEGRAL)) continue;
      let stop = k + 1;
      while (stop < items.length && !(items[stop].role & RELATION)) stop++;
      let d = k + 1;
      while (d < stop - 1 && !(this.isDifferential(items[d]) && isOperand(items[d + 1]) && items[d + 1].node.label !== "n")) d++;
      const children = [];
      let end = k + 1;
      if (d < stop - 1 && d > k + 1) {
        children.push(this.parseSum(items.slice(k + 1, d), at));
        for (end = d; end < stop - 1 && this.isDifferential(items[end]) && isOperand(items[end + 1]);) {
          children.push(branch("by", [this.parseApplication(items, end + 1)], items[end].at));
          end = this.end;
        }
      } else {
        const first = d < stop - 1 ? k + 3 : k + 1;
        end = first;
        while (end < stop && !isSign(items[end], SUM)) end++;
        children.push(end > first ? this.parseProduct(items.slice(first, end), at) : leaf("n", "1", item.at));
        if (first === k + 3) children.push(branch("by", [items[k + 2].node], items[k + 1].at));
      }
      this.addRange(item, children);
      items = [...items.slice(0, k), operandItem(branch(item.sign, children, item.at), item.at), ...items.slice(end)];
    }
    return items;
  }

  addRange(item, children) {
    const from = item.under >= 0 ? this.parseAt(item.under) : null, to = item.over >= 0 ? this.parseAt(item.over) : null;
    if (from !== null && from.label !== "empty") children.push(branch("from", [from], item.under));
    if (to !== null && to.label !== "empty") children.push(branch("to", [to], item.over));
  }

  parseSum(items, at) {
    if (items.length === 1 && isOperand(items[0])) return this.parseApplication(items, 0);
    const roles = rolesOf(items);
    if (roles & INTEGRAL) items = this.reduceIntegrals(items, at);
    if (!(roles & SUM)) return this.parseProduct(items, at);
    const sum = []; // so far, in one node if there was another sign than plus and minus
    let sign = "", signAt = at, start = 0;
    for (let k = 0; k <= items.length; k++) {
      const item = items[k];
      if (item !== undefined && (!(item.role & SUM) || (k > start && isSign(items[k - 1], PRODUCT)))) continue;
      if (k > start) this.addTerm(sum, sign, signAt, this.parseProduct(items.slice(start, k), at), at);
      if (item === undefined) break;
      if (k > start || sign === "" || sign === "+") {
        sign = item.sign;
        signAt = item.at;
      } else if (item.sign === "-") sign = sign === "-" ? "+" : sign; // two signs in a row
      start = k + 1;
    }
    return sum.length ? combine("+", sum, at) : leaf("o", items[0].sign, at);
  }

  addTerm(sum, sign, signAt, node, at) {
    if (sign === "" || sign === "+") sum.push(node);
    else if (sign === "-") sum.push(branch("neg", [node], signAt));
    else if (!sum.length) sum.push(branch(sign, [node], at));
    else {
      const left = combine("+", sum.splice(0), at);
      sum.push(branch(sign, left.label === sign && sign !== "\\" ? [...left.children, node] : [left, node], at));
    }
  }

  parseProduct(items, at) {
    const factors = [];
    let sign = "";
    for (let k = 0; k < items.length;) {
      const item = items[k];
      let node;
      if (item.kind !== "sign") {
        node = this.parseOperand(items, k, at);
        k = this.end;
        if (sign === "/" && node.label !== "n" && !item.bracket) {
          node = this.readDenominator(items, node, k, at);
          k = this.end;
        }
      } else {
        k++;
        if (item.role & PRODUCT) {
          sign = item.sign;
          continue;
        }
        if (item.sign === "!" && factors.length) {
          factors.push(branch("factorial", [factors.pop()], item.at));
          continue;
        }
        if (item.role & SUM) {
          node = k < items.length ? this.parseProduct(items.slice(k), at) : empty(at);
          if (item.sign === "-") node = branch("neg", [node], item.at);
          k = items.length;
        } else node = leaf("o", item.sign, item.at);
      }
      if (sign && factors.length) {
        const left = factors.pop();
        if (sign === "/" || sign === "÷") factors.push(this.divideBy(factors, left, node));
        else if (PLAIN_PRODUCTS.has(sign)) factors.push(left, node);
        else factors.push(branch(sign, left.label === sign ? [...left.children, node] : [left, node], node.at));
      } else factors.push(node);
      sign = "";
    }
    if (!factors.length) return sign ? leaf("o", sign, at) : empty(at);
    return factors.length === 1 ? factors[0] : branch("*", flattenProducts(factors, isOpenProduct), at);
  }

  // h\nu/k_BT: letters next to each other after a slash are all below it; a/2 b is half of ab.
  readDenominator(items, first, end, at) {
    const factors = [first];
    while (isOperand(items[end]) && !items[end].bracket && !items[end].applies && SIMPLE_FACTORS.has(items[end].node.label) && !items[end].node.variables) {
      factors.push(this.parseApplication(items, end));
      end = this.end;
    }
    this.end = end;
    return combine("*", factors, at);
  }

  // A quotient, or a derivative: dy/dx, \partial u/\partial t
  divideBy(factors, above, below) {
    const isD = (node) => node.label === "v" && node.text === "d";
    const parts = listOf(below, "*"), [head] = parts;
    if (above.label === "boundary" && head.label === "boundary" && parts.length === 1) return branch("D", [above.children[0], ...listOf(head.children[0], "*")], below.at);
    if (isD(head) && parts.length === 2 && factors.length && isD(factors[factors.length - 1]) && !above.grouped) {
      factors.pop();
      return branch("D", [above, parts[1]], below.at);
    }
    return branch("frac", [above, below], below.at);
  }

  // One factor: a big operator with its body, a differential operator or a function with its argument, or an operand.
  // This and the following functions leave the place after it in `end`.
  parseOperand(items, k, at) {
    const item = items[k], next = items[k + 1];
    if (item.kind === "big") {
      const children = [k + 1 < items.length ? this.parseProduct(items.slice(k + 1), at) : empty(at)];
      this.addRange(item, children);
      this.end = items.length;
      return branch(item.sign, children, item.at);
    }
    if (item.kind !== "operand") {
      this.end = k + 1;
      return leaf("o", item.sign, item.at);
    }
    const { node } = item, { text } = node;
    if (next !== undefined && next.kind !== "sign") {
      if (node.variables !== null) return branch("D", [this.parseOperand(items, k + 1, at), ...node.variables], item.at); // d/dx, or \partial_x
      const isDelta = text === "Δ" && isOperand(next);
      if (isDelta && node.label === "v" && !next.bracket && DIFFERENCES.has(next.node.label) && !isLetter(next.node, FIELDS))
        return branch("delta", [this.parseApplication(items, k + 1)], item.at);
      const laplacian = node.label === "pow" && node.children[0].text === "∇" && isNumber(node.children[1], "2");
      if (laplacian || (isDelta && isLetter(next.node, FIELDS))) return branch("laplace", [this.parseOperand(items, k + 1, at)], item.at);
      if (text === "∇" || text === "∂") return branch(text === "∇" ? "grad" : "boundary", [this.parseOperand(items, k + 1, at)], item.at);
    } else if (text === "∇" && next !== undefined && k + 2 < items.length && items[k + 2].kind !== "sign" && (next.sign === "·" || next.sign === "×"))
      return branch(next.sign === "·" ? "div" : "curl", [this.parseOperand(items, k + 2, at)], item.at);
    return item.applies && isOperand(next) ? this.parseFunction(items, k, at) : this.parseApplication(items, k);
  }

  // A named function takes a bracket, or the factors up to the next function, bracket or sign.
  parseFunction(items, k, at) {
    const item = items[k], next = items[k + 1], power = item.node.label === "pow" ? item.node : null;
    const name = power === null ? item.node : power.children[0], rest = [];
    let end = k + 1, node;
    if (next.bracket) {
      node = this.applyFunction(name, next.node, item.at);
      end = k + 2;
      if (next.after) node = this.addScripts(node, next.after.scripts, next.after.tag, next.at);
    } else {
      const isGreedy = GREEDY_FUNCTIONS.has(name.text);
      while (isOperand(items[end]) && !(end > k + 1 && !isGreedy && (items[end].applies || items[end].bracket || this.isDifferential(items[end])))) {
        rest.push(items[end].applies ? this.parseOperand(items, end, at) : this.parseApplication(items, end));
        end = this.end;
      }
      node = this.applyFunction(name, combine("*", rest, at), item.at);
    }
    if (power !== null) node = branch("pow", [node, power.children[1]], item.at);
    return this.addFactorials(items, node, end);
  }

  parseApplication(items, k) {
    const item = items[k], next = items[k + 1];
    let { node } = item, last = item, end = k + 1;
    if (isOperand(next) && next.bracket && this.isApplied(item, next)) {
      node = this.applyFunction(node, next.node, item.at);
      last = next;
      end = k + 2;
    }
    if (last.after) node = this.addScripts(node, last.after.scripts, last.after.tag, last.at);
    return this.addFactorials(items, node, end);
  }

  addFactorials(items, node, end) {
    for (; end < items.length && items[end].kind === "sign" && items[end].sign === "!"; end++) node = branch("factorial", [node], items[end].at);
    this.end = end;
    return node;
  }

  // Whether a letter in front of a bracket is a function of it rather than a factor.
  isApplied(item, group) {
    if (item.bracket || (group.bracket !== "(" && group.bracket !== "[")) return false;
    const { node } = item, base = DECORATIONS.has(node.label) ? node.children[0] : node;
    if (base.label === "fn" || node.label === "D") return true;
    if (base.label !== "v") return false;
    const letter = base.text[0];
    if (base.text.length > 3 && /_.*[α-ω]{2}/u.test(base.text)) return false; // a component of a tensor
    if (group.bracket === "[") return "EPV".includes(letter) || (group.node.label === "v" && base === node);
    if (SIMPLE_ARGUMENTS.has(group.node.label) || isNumber(group.node, "0")) return true;
    return USUAL_FUNCTIONS.has(letter) && (node.label !== "pow" || node.children[1].label === "n" || node.children[1].label === "neg"); // f^2(x+1)
  }

  applyFunction(name, argument, at) {
    const list = INTERVALS.has(argument.label) ? argument.children : argument.label === "empty" ? [] : [argument];
    if (name.label === "prime") name = branch("D", [name.children[0], leaf("any", "", at)], at);
    if (name.label === "D") { // f'(x): the derivative of f(x), by x if that is a variable
      const variable = list.length === 1 && (list[0].label === "v" || list[0].label === "idx") ? list[0] : null;
      const by = name.children.slice(1).map((node) => (node.label === "any" && variable !== null ? variable : node));
      return branch("D", [branch("app", [name.children[0], ...list], at), ...by], at);
    }
    return name.label === "fn" && list.length ? new OperatorNode(name.kind.applied ??= findOperatorKind("f:" + name.text), list, at) : branch("app", [name, ...list], at);
  }

  // --- single nodes ----------------------------------------------------------------------------------------------

  parseNode(i) {
    const tag = this.tag[i], count = this.count[i];
    if (tag === "mn" && !count) return new OperatorNode(this.meaning[i].numberLeaf, NO_CHILDREN, i);
    if (tag === "mfrac") {
      const parts = this.partsOf(i);
      if (parts.length === 2) return this.parseFraction(i, parts);
    }
    if (tag === "msqrt") return branch("sqrt", [this.parseNodes(this.childrenOf(i))], i);
    if (tag === "mroot" && count === 2) return branch("root", this.childrenOf(i).map((k) => this.parseAt(k)), i);
    if (tag === "mtable") return this.parseTable(i, "", "");
    this.unparsed++;
    return this.count[i] ? branch("p:" + tag, this.childrenOf(i).map((k) => this.parseAt(k)), i) : leaf("o", this.textOf(i), i);
  }

  parseIdentifier(i) {
    const meaning = this.meaning[i], style = this.styled.has(meaning.name) ? this.attributes[i].style : "";
    return style ? leaf(meaning.kind, `${meaning.name}.${style}`, i) : new OperatorNode(meaning.leaf, NO_CHILDREN, i);
  }

  // What follows dy, d^2 y or d, above or below a fraction bar; null if it is something else.
  readDifferential(node) {
    const head = node.label === "*" ? node.children[0] : node, rest = () => (node.label === "*" ? node.children.slice(1) : []);
    const isD = (x) => x.label === "v" && (x.text === "d" || x.text === "∂") && x.variables === null;
    if (head.label === "boundary") return [head.children[0], ...rest()];
    return isD(head) || (head.label === "pow" && isD(head.children[0])) ? rest() : null;
  }

  parseFraction(i, parts) {
    const above = this.parseAt(parts[0]), below = this.parseAt(parts[1]);
    if (this.attributes[i].isBare) return branch("binom", [above, below], i);
    const fraction = branch("frac", [above, below], i), over = this.readDifferential(above), under = over && this.readDifferential(below);
    if (!under || !under.length) return fraction;
    const flat = under.flatMap((node) => listOf(node.label === "boundary" ? node.children[0] : node, "*"));
    const variables = flat
      .map((node) => (node.label === "boundary" ? node.children[0] : node))
      .filter((node) => !(node.label === "v" && (node.text === "d" || node.text === "∂")))
      .flatMap((node) => (node.label !== "pow" ? [node] : node.children[1].label === "n" ? repeat(node.children[0], parseInt(node.children[1].text)) : [branch("idx", node.children, node.at)]));
    if (over.length) return branch("D", [combine("*", over, i), ...variables], i);
    return fraction.with({ variables });
  }

  addScripts(base, scripts, tag, at) {
    switch (tag) {
      case "msub": return this.addSubscript(base, scripts[0], at);
      case "msup": return this.addSuperscript(base, scripts[0], at);
      case "munder": return /^[⏟_‾]$/u.test(this.textOf(scripts[0])) ? base : this.addSubscript(base, scripts[0], at);
      case "mover": return this.addAccent(base, scripts[0], at);
      default: { // msubsup, munderover
        const below = this.addSubscript(base, scripts[0], at);
        return scripts.length > 1 ? this.addSuperscript(below, scripts[1], at) : below;
      }
    }
  }

  addAccent(base, i, at) {
    const sign = this.textOf(i);
    if (sign === "˙" || sign === "¨") return branch("D", [base, ...repeat(leaf("v", "t", at), sign === "˙" ? 1 : 2)], at);
    if (this.isVectorSign(i)) return base.label === "v" && this.styled.has(base.text) ? leaf("v", base.text + ".vector", at) : base;
    if (/^[⏞⏟]$/u.test(sign)) return base;
    if (/^[‾ˉ¯]$/u.test(sign)) return branch("bar", [base], at);
    if (!(sign in ACCENTS)) return this.addSuperscript(base, i, at);
    return base.label === "v" && !isWild(base) ? leaf("v", base.text + "." + ACCENTS[sign], at) : branch(ACCENTS[sign], [base], at);
  }

  addSubscript(base, i, at) {
    const node = this.parseAt(i);
    if (node.label === "empty") return base;
    const members = node.label === "list" || (node.label === "*" && node.children.every((child) => child.label === "v")) ? node.children : [node];
    if (base.text === "∂") return base.with({ at, variables: members });
    const ranges = node.label === "+" || (this.indices.size > 0 && this.lettersIn(i).some((letter) => this.indices.has(letter)));
    if (base.label === "fn" && !ranges) return base.with({ at }); // a base of a logarithm, a space of a norm
    if (base.label !== "v" || ranges || isWild(base) || this.hasLetter(i, isWildLetter)) return branch("idx", [base, ...members], at);
    const named = new OperatorNode(findSubscriptedKind(base.kind, this.compactTextOf(i, true)), NO_CHILDREN, at);
    named.base = base.text;
    named.subscript = node;
    if (this.differentiated.has(base.text)) named.letters = this.lettersIn(i);
    return named;
  }

  addSuperscript(base, i, at) {
    const sign = this.compactTextOf(i, false), first = sign[0] ?? "";
    if (PRIMES.has(first)) {
      if (this.tag[i] === "mrow" && /^[′'’]+[^′'’]/.test(sign)) return this.addPrimesAndPower(base, i, at);
      const primes = /^[′'’]+$/.test(sign) ? sign.length : "′″‴".indexOf(sign) + 1;
      if (primes > 0) return this.addPrimes(base, primes, at);
    }
    if (sign.length < 3) {
      if (base.label !== "n" && TRANSPOSES_AS_POWERS.has(sign)) return branch("transpose", [base], at);
      if (STARS.has(sign)) return branch("star", [base], at);
      if (sign === "†" || (sign === "H" && /^[A-Z]/.test(base.text))) return branch("adjoint", [base], at);
      if (SIGNS_AS_POWERS.has(sign)) return base.label === "v" && !isWild(base) ? leaf("v", base.text + "^" + sign, at) : branch("mark", [base, leaf("o", sign, at)], at);
    }
    const node = this.parseAt(i);
    if (node.label === "empty") return base;
    if (base.variables !== null) return base.with({ variables: base.variables.length === 1 ? repeat(base.variables[0], parseInt(node.text) || 1) : base.variables });
    if (first === "(" && base.label === "v" && /^\([^()]*\)$/.test(sign)) return branch("idx", [base, node], at); // x^{(i)}
    if (base.label === "v" && !isWild(base) && this.isTensorIndex(node)) return leaf("v", (base.text.includes("_") ? base.text : base.text + "_") + sign, at);
    return branch("pow", [base, node], at);
  }

  addPrimes(base, primes, at) {
    const letter = (base.label === "idx" ? base.children[0].text : base.text)[0] ?? "";
    if (/[A-Z]/.test(letter) && primes === 1) return branch("prime", [base], at);
    if (base.label === "v" && primes === 1 && !isWild(base) && !USUALLY_DIFFERENTIATED.has(letter) && !USUAL_FUNCTIONS.has(letter)) return leaf("v", base.text + "′", at);
    return branch("D", [base, ...repeat(leaf("any", "", at), primes)], at);
  }

  // u'^2
  addPrimesAndPower(base, i, at) {
    const nodes = this.childrenOf(i), first = nodes.findIndex((node) => !/^[′'’]+$/.test(this.textOf(node)));
    const node = first > 0 ? this.addPrimes(base, this.textOf(i).search(/[^′'’]/), at) : base;
    return branch("pow", [node, this.parseNodes(nodes.slice(Math.max(first, 0)))], at);
  }

  // T^{\mu\nu}: an upper index is an index if there are several, or if it occurs again.
  isTensorIndex(node) {
    const letters = listOf(node, "*");
    return letters.every((letter) => letter.label === "v" && TENSOR_INDICES.test(letter.text)) && (letters.length > 1 || this.tensorIndices.has(letters[0].text));
  }

  parseTable(i, open, close) {
    const rows = this.childrenOf(i).map((row) => this.childrenOf(row)), pair = open + close;
    if (["()", "[]", "||", "‖‖", "{}"].includes(pair)) {
      const cells = rows.map((row) => row.map((cell) => this.parseAt(cell)));
      const column = cells.length === 2 && cells.every((row) => row.length === 1 && ["n", "v", "+"].includes(row[0].label));
      if (pair === "()" && column) return branch("column", [cells[0][0], cells[1][0]], i);
      return branch(pair === "||" ? "det" : "matrix", cells.map((row) => combine("row", row, i)), i);
    }
    if (open === "{") return branch("cases", rows.map((row) => combine("with", row.map((cell) => this.parseAt(cell)).filter((node) => node.label !== "empty"), i)), i);
    const lines = []; // of an alignment: a line that begins with a sign continues the one before
    for (const row of rows) {
      const items = this.readItems(row), before = lines[lines.length - 1];
      if (!items.length) continue;
      if (before !== undefined && isSign(items[0], RELATION | SUM | PRODUCT)) {
        while (before.length && before[before.length - 1].kind === "sign" && /^[,.;]$/.test(before[before.length - 1].sign)) before.pop();
        before.push(...items);
      } else lines.push(items);
    }
    return lines.length ? combine("rows", lines.map((items) => this.parseItems(items, i)), i) : empty(i);
  }
}

function canClose(open, close) {
  return CLOSING.get(open) === close || ("([".includes(open) && ")]".includes(close)) || (open === "|" && close === "⟩");
}

// --- canonical forms ---------------------------------------------------------------------------------------------

const number = (text, at) => leaf("n", text, at);
const isMatrix = (node) => node.label === "transpose" || node.label === "matrix" || (node.label === "v" && /^[A-ZΑ-Ω]/u.test(node.text))
  || (node.label === "*" && node.children.every(isMatrix)) || (node.label === "+" && node.children.some(isMatrix));
const isEuler = (node) => node.text === "e" && (node.label === "v" || node.label === "c");
const isExponential = (node) => node.label === "pow" && isEuler(node.children[0]);
const relabel = (label) => (node) => branch(label, node.children, node.at);
const reverse = (label) => (node) => branch(label, [...node.children].reverse(), node.at);
const root = (node, degree) => branch("pow", [node.children[0], branch("frac", [number("1", node.at), degree], node.at)], node.at);
const applyLetter = (letter) => (node) => branch("app", [leaf("v", letter, node.at), ...node.children], node.at);
// x^{-n} is 1/x^n, except for matrices, whose inverse stays where it is, and for exponentials
const invert = (node) => (isNumber(node.children[1].children[0], "1") ? node.children[0] : branch("pow", [node.children[0], node.children[1].children[0]], node.at));
const isInverse = (node) => node.label === "pow" && node.children[1].label === "neg" && !isMatrix(node.children[0]) && !isExponential(node);
const negateIf = (negative, node) => (negative ? branch("neg", [node], node.at) : node);

const SYMMETRIC = words("= ≈");
const isComposed = (node) => node.label === "*" || node.label === "neg" || node.label === "frac" || isInverse(node); // it changes a product
const INTERVALS = words("commutator tuple");
const BOUNDS = words("n + neg c"); // of intervals; commutators are of operators
const COUNTS = words("v n +");

const RULES = { // label -> rewrite to an equivalent notation, or null
  sqrt: (node) => root(node, number("2", node.at)),
  root: (node) => root(node, node.children[1]),
  "f:exp": (node) => branch("pow", [leaf("c", "e", node.at), ...node.children.slice(0, 1)], node.at),
  column: relabel("binom"),
  prime: relabel("transpose"), adjoint: relabel("transpose"), star: (node) => branch(isMatrix(node.children[0]) ? "transpose" : "bar", node.children, node.at),
  ":=": relabel("="), "=:": relabel("="), "≡": relabel("="), "≜": relabel("="), "≝": relabel("="), "≐": relabel("="),
  "≅": relabel("≈"), "≃": relabel("≈"),
  ">": reverse("<"), "≥": reverse("≤"), "≫": reverse("≪"), "⊃": reverse("⊂"), "∋": reverse("∈"), "←": reverse("→"), "≻": reverse("≺"), "≽": reverse("≼"),
  "f:p": applyLetter("P"), "f:e": applyLetter("E"), "f:P": applyLetter("P"), mean: applyLetter("E"),
  "f:div": relabel("div"), "f:grad": relabel("grad"), "f:curl": relabel("curl"),
  "∬": relabel("∫"), "∭": relabel("∫"), "∮": relabel("∫"), "∯": relabel("∫"),
  "×": (node) => (node.children.some((child) => child.label === "n") ? relabel("*")(node) : null),
  neg: (node) => (node.children[0].label === "dots" ? node.children[0] : node.children[0].label === "neg" ? node.children[0].children[0] : null),
  "+": (node) => (node.children.some((child) => child.label === "+") ? branch("+", node.children.flatMap((child) => listOf(child, "+")), node.at) : findLaplacian(node)),
  "*": multiply, frac: divide,
  pow: (node) => (isInverse(node) ? branch("frac", [number("1", node.at), invert(node)], node.at) : readExponential(node) ?? readCombinations(node)),
  v: (node) => (node.text === "π" ? leaf("c", "π", node.at) : node.letters !== null && node.letters.length && node.text.length === node.base.length + 1 + node.letters.length
    ? differentiate(leaf("v", node.base, node.at), node.letters.map((letter) => leaf("v", letter, node.at))) : null),
  app: readChoice, chain: joinChain,
  "∈": (node) => (INTERVALS.has(node.children[1]?.label) && node.children[1].children.length === 2 ? branch("∈", [node.children[0], relabel("interval")(node.children[1])], node.at) : null),
  commutator: (node) => (node.children.some((child) => BOUNDS.has(child.label)) ? relabel("interval")(node) : null),
  max: uniteOperands, min: uniteOperands,
};

// u_t, u_{xx}: derivatives, if the letter is one of those that are usually differentiated by coordinates.
function differentiate(base, variables) {
  const usual = isLetter(base, USUALLY_DIFFERENTIATED) && variables.length <= 3 && variables.every((node) => isLetter(node, COORDINATES));
  return usual ? branch("D", [base, ...variables], base.at) : null;
}

// The base of an exponential is a number and cannot be renamed; e^2 may be the square of a variable.
function readExponential(node) {
  const [base, exponent] = node.children;
  return base.label === "v" && base.text === "e" && exponent.label !== "n" ? branch("pow", [leaf("c", "e", base.at), exponent], node.at) : null;
}

// max(a, b) is max{a, b}.
function uniteOperands(node) {
  const [first, ...range] = node.children;
  return first.label === "tuple" ? branch(node.label, [relabel("set")(first), ...range], node.at) : null;
}

// a := b = c says the same as a = b = c.
function joinChain(node) {
  const links = node.children, [{ label }] = links;
  if (!SYMMETRIC.has(label) || !links.every((link, k) => link.label === label && link.children.length === 2 && (!k || hashTree(link.children[0]) === hashTree(links[k - 1].children[1])))) return null;
  return branch(label, [links[0].children[0], ...links.map((link) => link.children[1])], node.at);
}

// C_n^k and C(n, k) are binomial coefficients.
function readCombinations(node) {
  const [base, upper] = node.children, isIndexed = base.label === "idx" && base.children.length === 2 && base.children[0].text === "C";
  const lower = isIndexed ? base.children[1] : base.label === "v" && base.base === "C" ? base.subscript : null;
  return lower !== null && COUNTS.has(lower.label) && COUNTS.has(upper.label) ? branch("binom", [lower, upper], node.at) : null;
}

function readChoice(node) {
  if (node.children.length !== 3 || node.children[0].text !== "C") return null;
  const [n, k] = node.children.slice(1).map((child) => (child.label === "+" ? child.children[0].text : child.text));
  return /^[nNmM]$/.test(n) && /^[krmji]$/.test(k) ? branch("binom", node.children.slice(1), node.at) : null;
}

// u_xx + u_yy (+ u_zz) is the Laplacian of u.
function findLaplacian(node) {
  if (!node.children.some((child) => child.label === "D")) return null;
  const isSecond = (child, letter) => child.label === "D" && child.children.length === 3 && child.children.slice(1).every((v) => v.label === "v" && v.text === letter);
  const first = node.children.find((child) => isSecond(child, "x"));
  if (first === undefined) return null;
  const parts = ["x", "y", "z"].map((letter) => node.children.find((child) => isSecond(child, letter) && child.children[0].text === first.children[0].text));
  if (parts[1] === undefined) return null;
  return combine("+", [branch("laplace", [first.children[0]], first.at), ...node.children.filter((child) => !parts.includes(child))], node.at);
}

// Products are flat; signs come to the front, fractions and inverses become one fraction.
function multiply(node) {
  if (!node.children.some(isComposed)) return null;
  const above = [], below = [];
  let negative = false, changed = false;
  for (let factor of node.children.flatMap((child) => listOf(child, "*"))) {
    if (factor.label === "neg") [factor, negative, changed] = [factor.children[0], !negative, true];
    if (factor.label === "frac") { above.push(...listOf(factor.children[0], "*")); below.push(...listOf(factor.children[1], "*")); }
    else if (isInverse(factor)) below.push(invert(factor));
    else above.push(...listOf(factor, "*"));
  }
  if (!below.length) return changed || above.length !== node.children.length ? negateIf(negative, branch("*", above, node.at)) : null;
  const numerator = above.filter((factor) => !isNumber(factor, "1"));
  const top = numerator.length ? combine("*", numerator, node.at) : number("1", node.at);
  return negateIf(negative, branch("frac", [top, combine("*", below, node.at)], node.at));
}

function divide(node) {
  let [above, below] = node.children, negative = false;
  if (above.label !== "neg" && above.label !== "frac" && below.label !== "neg" && below.label !== "frac") return null;
  if (above.label === "neg") [above, negative] = [above.children[0], !negative];
  if (below.label === "neg") [below, negative] = [below.children[0], !negative];
  const top = [], bottom = [];
  for (const [part, same, other] of [[above, top, bottom], [below, bottom, top]]) {
    if (part.label === "frac") { same.push(...listOf(part.children[0], "*")); other.push(...listOf(part.children[1], "*")); }
    else same.push(...listOf(part, "*"));
  }
  if (!negative && above.label !== "frac" && below.label !== "frac") return null;
  const numerator = top.length > 1 ? top.filter((factor) => !isNumber(factor, "1")) : top;
  const result = branch("frac", [numerator.length ? combine("*", numerator, node.at) : number("1", node.at), combine("*", bottom, node.at)], node.at);
  return negateIf(negative, result);
}

function canonicalise(node) {
  let result = node;
  if (!node.children.length && (node.label !== "v" || (node.letters === null && node.text !== "π"))) return node;
  for (let k = 0; k < node.children.length; k++) {
    const child = canonicalise(node.children[k]);
    if (child === node.children[k]) continue;
    if (result === node) result = branch(node.label, node.children.slice(), node.at);
    result.children[k] = child;
  }
  for (let rounds = 0; rounds < 8; rounds++) {
    const next = result.kind.rule?.(result);
    if (!next) break;
    result = next;
  }
  return result;
}

// --- forms -------------------------------------------------------------------------------------------------------

const OMISSIBLE = new Set([...BIG_OPERATORS, "app", "D"]); // see Simplifier
const UNORDERED = words("+ * = ≠ ≈ ~ ∪ ∩ ⊕ chain rows list set with cases inner"); // as in trees/operators.py
const STATEMENTS = words("chain list rows with cases ⇒ ⇔");
const MAX_STATEMENTS = 8; // of one formula

// Hash of a tree with names; operands that commute are added up.
function hashTree(node) {
  if (node.size) return node.hash;
  const { children, kind } = node, { length } = children;
  let hash = kind.hash, size = 1, isSimple = !kind.isOmissible, hasMatrix = kind.isMatrix;
  if (length) {
    const ordered = length === 1 || !kind.isUnordered;
    let sum = 0;
    for (let k = 0; k < length; k++) {
      const child = children[k];
      sum = (sum + mixPair(ordered ? k + 1 : 0, hashTree(child))) | 0;
      size += child.size;
      isSimple &&= child.isSimple;
      hasMatrix ||= child.hasMatrix;
    }
    hash = mixPair(hash, sum) || 1;
  }
  node.size = size;
  node.isSimple = isSimple;
  node.hasMatrix = hasMatrix;
  node.high = hash >> 16;
  node.low = hash & 0xffff;
  return hash;
}

// One tree in depth-first order, in columns that are used again for the next one.
const flat = { size: 0, round: 0, variables: 0, label: [], parent: [], place: [], variable: [], below: [], context: [], colour: [], next: [] };

function growFlat(size) {
  for (const name of ["label", "parent", "place", "variable", "below", "context", "colour", "next"]) {
    const column = new Int32Array(size);
    column.set(flat[name]);
    flat[name] = column;
  }
}
growFlat(1024);

function flatten(node, parent, place) {
  const at = flat.size++, { children, kind } = node, { length } = children;
  if (at === flat.label.length) growFlat(2 * at);
  flat.parent[at] = parent;
  flat.place[at] = place;
  if (kind.isVariable) {
    if (kind.round !== flat.round) {
      kind.round = flat.round;
      kind.variable = flat.variables++;
    }
    flat.label[at] = 1;
    flat.variable[at] = kind.variable;
  } else {
    flat.label[at] = kind.hash;
    flat.variable[at] = -1;
  }
  const ordered = length > 1 && !kind.isUnordered;
  for (let k = 0; k < length; k++) flatten(children[k], at, ordered ? k + 1 : 0);
}

// Hash of a tree without the names of variables: their colours tell them apart by where they occur (colour refinement).
function hashRenamed(root, rounds = 2) {
  flat.size = flat.variables = 0;
  flat.round++;
  flatten(root, -1, 0);
  const { size, variables, label, parent, place, variable, below, context, colour, next } = flat;
  for (let k = 0; k < variables; k++) colour[k] = 1;
  for (let round = 0; ; round++) {
    for (let at = 0; at < size; at++) below[at] = 0;
    for (let at = size - 1; at >= 0; at--) { // operands come after their operator
      const hash = variable[at] >= 0 ? colour[variable[at]] : mixPair(label[at], below[at]);
      below[at] = hash;
      if (at) below[parent[at]] += mixPair(place[at], hash);
    }
    if (round === rounds || !variables) return below[0];
    for (let k = 0; k < variables; k++) next[k] = 0;
    context[0] = mixPair(1, below[0]);
    for (let at = 1; at < size; at++) {
      const above = mixPair(context[parent[at]], place[at]);
      if (variable[at] >= 0) next[variable[at]] += mix(above);
      else context[at] = mixPair(above, below[at]);
    }
    for (let k = 0; k < variables; k++) colour[k] = next[k];
  }
}

// The formula itself, then the statements in its chains, lists and rows; a = b = c says a = b, b = c and a = c.
function findStatements(root) {
  const out = [root];
  addStatements(root, root, out);
  if (out.length > MAX_STATEMENTS) out.length = MAX_STATEMENTS;
  return out;
}

function addStatements(node, root, out) {
  const { children, kind } = node, { length } = children;
  if (out.length >= MAX_STATEMENTS) return;
  if (kind.isRelation && node !== root) out.push(node);
  if (kind.isRelation && length > 2 && length < 6) {
    for (let i = 0; i < length; i++)
      for (let j = i + 1; j < length && out.length < MAX_STATEMENTS; j++) out.push(new OperatorNode(kind, [children[i], children[j]], node.at));
  } else if (STATEMENTS.has(node.label)) {
    for (let k = 0; k < length; k++) addStatements(children[k], root, out);
    if (node.label === "chain") addConclusion(children, out);
  }
}

// a = b < c says a < c; a > b, that is b < a, is read backwards
function addConclusion(links, out) {
  for (let k = 1; k < links.length; k++) {
    const [one, other] = [links[k - 1], links[k]];
    if (one.children.length !== 2 || other.children.length !== 2 || (one.label === "=") === (other.label === "=")) continue;
    const [equation, relation] = one.label === "=" ? [one, other] : [other, one];
    for (const [mine, theirs] of [[0, 1], [1, 0]]) {
      const at = relation.children.findIndex((child) => hashTree(child) === hashTree(equation.children[mine]));
      if (at < 0) continue;
      out.push(branch(relation.label, relation.children.map((child, j) => (j === at ? equation.children[theirs] : child)), relation.at));
      break;
    }
  }
}

function hashForms(node, isFirst, out) {
  const weak = isFirst ? weaken(node) : node, renamed = hashRenamed(node);
  out.push(hashTree(node) >>> 0, renamed >>> 0, hashTree(weak) >>> 0, (weak === node ? renamed : hashRenamed(weak)) >>> 0);
}

// --- weak forms --------------------------------------------------------------------------------------------------

// Both sides of a relation are expanded into monomials: a rational coefficient and operands with rational powers. All
// are moved to one side, common factors and denominators are cleared, logarithms are taken of an equation between an
// exponential and a product, and roots are removed from an equation between two products. What is positive then goes to
// the left, the rest to the right: F = ma, a = F/m and m = F/a all become F = am.

const SOLVABLE = words("= ≈ ≠ ∝ < ≤ ≪");
const BIG_SUMS = words("∑ ∫");
const EQUALITIES = words("= ≈ ∝");
const MAX_WEAK_STATEMENTS = 4; // of one formula; further ones are steps of a derivation
const MAX_WEAK_NODES = 50; // larger relations are hardly ever written in another way
const MAX_TERMS = 24; // of an expanded side
const MAX_COEFFICIENT = 1e9;
const DENOMINATORS = [1, 2, 3, 4, 6, 12]; // of powers

class Factor {
  constructor(node, power) {
    this.node = node; // its hash is known
    this.power = power;
  }
}

class Monomial {
  constructor(numerator, denominator, factors) {
    this.numerator = numerator;
    this.denominator = denominator;
    this.factors = factors; // each operand once
  }
}
const findDivisor = (a, b) => { while (b) { const rest = a % b; a = b; b = rest; } return Math.abs(a) || 1; };
const NO_FACTORS = Object.freeze([]);

function makeAtom(node, power = 1) {
  hashTree(node);
  return [new Monomial(1, 1, [new Factor(node, power)])];
}

function makeConstant(numerator, denominator, factors = NO_FACTORS) {
  const divisor = denominator === 1 ? 1 : findDivisor(numerator, denominator);
  return new Monomial(numerator / divisor, denominator / divisor, factors);
}

// Multiply a list of factors, in place, by others. There are few, so they are compared one by one.
function multiplyFactors(factors, others) {
  for (let k = 0; k < others.length; k++) {
    const other = others[k], at = findFactor(factors, other.node);
    if (at < 0) { factors.push(other); continue; }
    const power = factors[at].power + other.power;
    if (power) factors[at] = new Factor(other.node, power); else factors.splice(at, 1);
  }
  return factors;
}

function findFactor(factors, { low, high }) {
  for (let k = 0; k < factors.length; k++) if (factors[k].node.low === low && factors[k].node.high === high) return k;
  return -1;
}

function multiplyMonomials(a, b) {
  const factors = b.factors.length ? multiplyFactors(a.factors.slice(), b.factors) : a.factors;
  return makeConstant(a.numerator * b.numerator, a.denominator * b.denominator, factors);
}

function multiplyAll(sums) { // of one monomial each
  const factors = [];
  let numerator = 1, denominator = 1;
  for (let k = 0; k < sums.length; k++) {
    const term = sums[k][0];
    numerator *= term.numerator;
    denominator *= term.denominator;
    multiplyFactors(factors, term.factors);
  }
  return makeConstant(numerator, denominator, factors);
}

function multiplySums(a, b) {
  if (a.length === 1 && b.length === 1) return [multiplyMonomials(a[0], b[0])];
  const out = [];
  for (let i = 0; i < a.length; i++) for (let j = 0; j < b.length; j++) out.push(multiplyMonomials(a[i], b[j]));
  return out;
}

function addUp(monomials) {
  if (monomials.length < 2) return monomials;
  const keys = [];
  let isReduced = true;
  for (let k = 0; k < monomials.length; k++) {
    const key = hashMonomial(monomials[k]);
    isReduced &&= !keys.includes(key);
    keys.push(key);
  }
  if (isReduced) return monomials;
  const out = new Map();
  monomials.forEach((term, k) => {
    const before = out.get(keys[k]);
    if (before === undefined) { out.set(keys[k], term); return; }
    const numerator = before.numerator * term.denominator + term.numerator * before.denominator;
    if (numerator) out.set(keys[k], makeConstant(numerator, before.denominator * term.denominator, term.factors)); else out.delete(keys[k]);
  });
  return [...out.values()];
}

function hashMonomial({ factors }) {
  let key = 0;
  for (let k = 0; k < factors.length; k++) key = (key + mixPair(factors[k].node.hash, Math.round(factors[k].power * 5040))) | 0;
  return key;
}


function negateAll(monomials) {
  const out = [];
  for (let k = 0; k < monomials.length; k++) out.push(new Monomial(-monomials[k].numerator, monomials[k].denominator, monomials[k].factors));
  return out;
}

function readNumber(node) { // a fraction as [numerator, denominator], or null
  const { label, kind } = node;
  if (label === "n") return kind.value === undefined ? kind.value = parseNumber(node.text) : kind.value;
  if (label === "neg") { const value = readNumber(node.children[0]); return value && [-value[0], value[1]]; }
  if (label !== "frac") return null;
  const a = readNumber(node.children[0]), b = a && readNumber(node.children[1]);
  return b && b[0] ? [a[0] * b[1], a[1] * b[0]] : null;
}

function parseNumber(text) {
  if (text.includes("/")) return text.split("/").map(Number); // written by buildSum
  if (!/^[0-9]{1,8}([.][0-9]{1,6})?$/.test(text)) return null;
  const scale = 10 ** (text.split(".")[1]?.length ?? 0), value = Math.round(parseFloat(text) * scale), divisor = findDivisor(value, scale);
  return [value / divisor, scale / divisor];
}

function expand(node) {
  node.sum ??= expandNode(node);
  return node.sum;
}

function expandNode(node) {
  const { label, children } = node;
  if (!children.length && label !== "n") return makeAtom(node);
  let out = null;
  if (label === "n") {
    const value = readNumber(node);
    out = value && (value[0] ? [makeConstant(value[0], value[1])] : []);
  } else if (label === "neg") return negateAll(expand(children[0]));
  else if (label === "+") {
    out = [];
    for (let k = 0; k < children.length; k++) {
      const sum = expand(children[k]);
      for (let j = 0; j < sum.length; j++) out.push(sum[j]);
    }
    out = addUp(out);
  } else if (label === "*") {
    const sums = children.map(expand);
    if (sums.every((sum) => sum.length === 1)) return [multiplyAll(sums)];
    out = sums[0];
    for (let k = 1; k < sums.length && out.length <= MAX_TERMS; k++) out = multiplySums(out, sums[k]);
    out = addUp(out);
  } else if (label === "frac") out = multiplySums(expand(children[0]), raise(children[1], -1));
  else if (label === "pow") {
    const power = readNumber(children[1]);
    out = power === null ? raiseSymbolically(node) : raise(children[0], power[0] / power[1]);
  } else if (label === "f:log" && children.length === 1) {
    const inner = expand(children[0]);
    if (inner.length === 1 && inner[0].numerator > 0) out = takeLogarithm(inner[0], node.at);
  } else if (BIG_SUMS.has(label)) out = pullOutConstants(node);
  return out !== null && out.length <= MAX_TERMS && out.every(isExact) ? out : makeAtom(node);
}
const isExact = (term) => Math.abs(term.numerator) < MAX_COEFFICIENT && term.denominator < MAX_COEFFICIENT;

// Constant factors come before a sum or an integral.
function pullOutConstants(node) {
  const [first, ...ranges] = node.children, body = expand(first), bound = new Set();
  for (const range of ranges) if (range.label !== "to") collectVariables(range, bound);
  if (body.length !== 1 || !bound.size) return null;
  const isBound = (factor) => mentions(factor.node, bound), [{ factors, numerator, denominator }] = body;
  const outside = makeConstant(numerator, denominator, factors.filter((factor) => !isBound(factor)));
  const inside = makeConstant(1, 1, factors.filter(isBound));
  return multiplySums([outside], makeAtom(branch(node.label, [buildSum([inside], node.at), ...ranges], node.at)));
}

function collectVariables(node, out) {
  if (node.label === "v") out.add(node.text);
  for (const child of node.children) collectVariables(child, out);
}

function mentions(node, names) {
  return (node.label === "v" && names.has(node.text)) || node.children.some((child) => mentions(child, names));
}

function raise(base, power) {
  hashTree(base);
  if (base.hasMatrix) return makeAtom(base, power); // what does not commute cannot be cancelled
  const sum = expand(base);
  if (sum.length !== 1) {
    if (!Number.isInteger(power) || power < 1 || sum.length ** power > MAX_TERMS) return makeAtom(buildSum(sum, base.at), power);
    let out = sum;
    for (let k = 1; k < power; k++) out = multiplySums(out, sum);
    return addUp(out);
  }
  const raised = raiseMonomial(sum[0], power);
  return raised === null ? makeAtom(base, power) : [raised];
}

// (ab)^{2n+1} = (a^n)^2 a (b^n)^2 b; null if the base is a sum or has a sign
function raiseSymbolically(node) {
  const base = expand(node.children[0]), exponent = expand(node.children[1]);
  if (base.length !== 1 || base[0].numerator < 0 || exponent.length > 4) return null;
  const factors = listFactors(base[0]);
  let out = [makeConstant(1, 1)];
  for (const term of exponent) {
    const unit = new Monomial(1, 1, term.factors), times = term.numerator / term.denominator;
    for (const { node: factor, power } of factors)
      out = multiplySums(out, term.factors.length ? makeAtom(branch("pow", [factor, buildSum([unit], node.at)], node.at), power * times) : raise(factor, power * times));
  }
  return out;
}

// The factors of a monomial, its numbers among them.
function listFactors(term) {
  const factors = term.factors.slice();
  for (const [value, power] of [[term.numerator, 1], [term.denominator, -1]]) if (value !== 1) factors.push(makeAtom(number(String(value), 0), power)[0].factors[0]);
  return factors;
}

function raiseMonomial(term, power) {
  const factors = term.factors.map((factor) => new Factor(factor.node, factor.power * power));
  if (Number.isInteger(power)) {
    const [above, below] = [term.numerator ** Math.abs(power), term.denominator ** Math.abs(power)];
    return power > 0 ? new Monomial(above, below, factors) : new Monomial(above < 0 ? -below : below, Math.abs(above), factors);
  }
  if (term.numerator < 0) return null;
  const numbers = listFactors(new Monomial(term.numerator, term.denominator, NO_FACTORS));
  return new Monomial(1, 1, multiplyFactors(factors, numbers.map((factor) => new Factor(factor.node, factor.power * power))));
}

// log(a^p b^q) = p log a + q log b; the logarithm of an exponential is its exponent.
function takeLogarithm(term, at) {
  return addUp(listFactors(term).flatMap(({ node, power }) => {
    const scale = toFraction(power), exponential = node.label === "pow" && isEuler(node.children[0]);
    const inner = exponential ? expand(node.children[1]) : makeAtom(branch("f:log", [node], at));
    return scale === null ? makeAtom(branch("f:log", [node], at), power) : multiplySums(inner, [makeConstant(scale[0], scale[1])]);
  }));
}

function toFraction(power) {
  const denominator = DENOMINATORS.find((q) => Math.abs(power * q - Math.round(power * q)) < 1e-9);
  return denominator === undefined ? null : [Math.round(power * denominator), denominator];
}

function buildSum(terms, at) {
  const nodes = [];
  for (let k = 0; k < terms.length; k++) nodes.push(buildProduct(terms[k], at));
  return nodes.length ? combine("+", nodes, at) : number("0", at);
}

function buildProduct({ numerator, denominator, factors }, at) {
  const nodes = [], size = Math.abs(numerator);
  if (size !== 1 || denominator !== 1 || !factors.length) nodes.push(number(`${size}/${denominator}`, at));
  for (let k = 0; k < factors.length; k++) {
    const { node, power } = factors[k];
    nodes.push(power === 1 ? node : branch("pow", [node, number(writePower(power), at)], at));
  }
  const product = combine("*", nodes, at);
  return numerator < 0 ? branch("neg", [product], at) : product;
}
const writePower = (power) => (Number.isInteger(power) ? `${power}/1` : toFraction(power)?.join("/") ?? power.toFixed(6));

// Multiply all terms so that no operand has a negative power, or a positive one in all of them.
function clearDenominators(terms) {
  const lowest = [];
  let numerators = 0, denominators = 1;
  for (let k = 0; k < terms.length; k++) {
    const { numerator, denominator, factors } = terms[k];
    numerators = findDivisor(numerator, numerators);
    denominators *= denominator / findDivisor(denominator, denominators);
    for (let j = 0; j < factors.length; j++) {
      const { node, power } = factors[j];
      const at = findFactor(lowest, node);
      if (at < 0) lowest.push({ node, power, times: 1 });
      else { lowest[at].power = Math.min(lowest[at].power, power); lowest[at].times++; }
    }
  }
  const inverse = [];
  for (const { node, power, times } of lowest) {
    const least = times < terms.length ? Math.min(power, 0) : power;
    if (least) inverse.push(new Factor(node, -least));
  }
  if (!inverse.length && numerators === denominators) return terms;
  const scale = new Monomial(denominators, numerators || 1, inverse);
  return terms.map((term) => multiplyMonomials(term, scale));
}

// Expand the sums among the operands, and numbers whose powers have become whole.
function expandFactors(terms) {
  const isOpen = ({ node: { label }, power }) => (label === "+" || label === "n") && Number.isInteger(power) && power > 0;
  if (!terms.some((term) => term.factors.some(isOpen))) return null;
  return addUp(terms.flatMap((term) => {
    let out = [new Monomial(term.numerator, term.denominator, term.factors.filter((factor) => !isOpen(factor)))];
    for (const { node, power } of term.factors.filter(isOpen)) {
      const value = node.label === "n" && readNumber(node);
      out = multiplySums(out, value ? [raiseMonomial(makeConstant(value[0], value[1]), power)] : raise(node, power));
    }
    return out;
  }));
}

// An equation between two products without roots; between an exponential and a product, its logarithm.
function simplifyPair(terms) {
  const [one, other] = terms, both = [...one.factors, ...other.factors];
  const sides = [new Monomial(Math.abs(one.numerator), one.denominator, one.factors), new Monomial(Math.abs(other.numerator), other.denominator, other.factors)];
  if (one.numerator * other.numerator < 0 && both.some(({ node }) => node.label === "pow" && isEuler(node.children[0])))
    return addUp([...takeLogarithm(sides[0], 0), ...negateAll(takeLogarithm(sides[1], 0))]);
  const degree = DENOMINATORS.find((q) => both.every(({ power }) => Math.abs(power * q - Math.round(power * q)) < 1e-9));
  if (degree === undefined || degree === 1) return null;
  const sign = degree % 2 || one.numerator * other.numerator < 0 ? -1 : 1;
  const [a, b] = sides.map((side) => raiseMonomial(side, degree));
  for (const side of [a, b]) for (const factor of side.factors) factor.power = Math.round(factor.power);
  return [a, new Monomial(sign * b.numerator, b.denominator, b.factors)];
}

// What does not matter for the relation: the argument of a function that is the same everywhere (f(x) is f), the
// variable of derivatives if there is only one, the range from 1 to n of a sum, max or sup.
class Simplifier {
  constructor(root) {
    this.arguments = new Map(); // function -> hash of its arguments; 0: they differ or are no variables
    this.byVariable = new Set();
    this.visit(root);
  }

  visit(node) {
    if (node.label === "app" && node.children[0].label === "v") {
      const name = node.children[0].text, before = this.arguments.get(name);
      const isPlain = node.children.every((child) => !child.children.length && child.label !== "n"), hash = isPlain ? hashTree(node) : 0;
      this.arguments.set(name, before === undefined || before === hash ? hash : 0);
    } else if (node.label === "D") for (let k = 1; k < node.children.length; k++) if (node.children[k].label !== "any") this.byVariable.add(hashTree(node.children[k]));
    for (const child of node.children) if (!child.isSimple) this.visit(child);
  }

  simplify(node) {
    if (node.isSimple) return node;
    if (node.label === "app" && this.arguments.get(node.children[0].text)) return node.children[0];
    if (node.label === "D" && this.byVariable.size < 2) return branch("D", [this.simplify(node.children[0]), ...node.children.slice(1).map((by) => leaf("any", "", by.at))], node.at);
    if (BIG_OPERATORS.has(node.label) && node.children.length === 3) {
      const [body, from, to] = node.children, start = from.children[0];
      if (from.label === "from" && start.label === "=" && start.children[0].label === "v" && start.children[1].label === "n" && to.children[0].label === "v")
        return branch(node.label, [this.simplify(body), branch("from", [start.children[0]], from.at)], node.at);
    }
    const children = node.children.map((child) => this.simplify(child)), label = node.label === "sup" ? "max" : node.label === "inf" ? "min" : node.label;
    return label === node.label && children.every((child, k) => child === node.children[k]) ? node : branch(label, children, node.at);
  }
}

function weaken(node) {
  if (node.children.length !== 2 || !SOLVABLE.has(node.label)) return node;
  hashTree(node);
  if (node.size > MAX_WEAK_NODES) return node;
  const isEquality = EQUALITIES.has(node.label), [one, other] = node.isSimple ? node.children : new Simplifier(node).simplify(node).children;
  let terms = addUp(expand(one).concat(negateAll(expand(other))));
  for (let rounds = 0; rounds < 4 && terms.length; rounds++) {
    if (node.hasMatrix) break;
    if (terms.length > 1) terms = clearDenominators(terms);
    const next = expandFactors(terms) ?? (isEquality && terms.length === 2 ? simplifyPair(terms) : null);
    if (next === null) break;
    if (next.length > MAX_TERMS) return node;
    terms = next;
  }
  if (!terms.length || terms.every((term) => !term.factors.length)) return node; // an identity: nothing is left of it
  const left = [], right = [];
  for (const term of terms) if (term.numerator > 0) left.push(term); else if (term.numerator < 0) right.push(term);
  return branch(node.label === "≈" ? "=" : node.label, [buildSum(left, node.at), buildSum(negateAll(right), node.at)], node.at);
}

// --- batches -----------------------------------------------------------------------------------------------------

const CODE_OFFSET = 256; // numbers travel as characters; these need no escapes in JSON

class NodeAttributes {
  constructor(lines) {
    for (const line of lines.split("\n")) {
      const at = line.indexOf("=");
      if (at > 0) this[line.slice(0, at)] = line.slice(at + 1);
    }
    this.style = STYLES.get(this.mathvariant) ?? "";
    this.isWord = WORD_VARIANTS.has(this.mathvariant);
    this.isFence = this.fence === "true";
    this.isBare = /^0(px|pt|em)?$/.test(this.linethickness ?? ""); // a fraction without its line
    this.isWide = parseFloat(this.width ?? "0") >= MIN_CONDITION_SPACE_EM || this.linebreak === "newline";
  }
}

function measureDepth(node) {
  let depth = 0;
  for (let k = 0; k < node.children.length; k++) depth = Math.max(depth, measureDepth(node.children[k]));
  return depth + 1;
}

// A tree that is too deep, for us or for the engine's stack, becomes the list of its leaves.
function parseTree(tree, canonical) {
  const parser = new OperatorParser(tree);
  try {
    let node = parser.parse();
    if (canonical) node = canonicalise(node);
    if (tree.tag.length > MAX_DEPTH / 2 && measureDepth(node) > MAX_DEPTH) throw new RangeError("too deep");
    return [node, parser.unparsed];
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    const leaves = tree.tag.flatMap((tag, i) => (tree.count[i] ? [] : [leaf("o", tree.text[i].trim(), i)]));
    return [branch("p:math", leaves, 0), 1];
  }
}

// The trees of a batch: JSON with string tables, sizes of trees, and four columns of node numbers.
function* readTrees(batch) {
  if (Math.max(meanings.size, knownKinds) > MAX_KNOWN) { // meanings refer to kinds
    for (const known of [meanings, kinds, operatorKinds]) known.clear();
    knownKinds = 0;
  }
  const attributes = batch.attributes.map((lines) => new NodeAttributes(lines)), known = batch.texts.map(findMeaning);
  const types = batch.tags.map(findType);
  let start = 0;
  for (const size of batch.sizes) {
    yield readTree(batch, types, attributes, known, start, size);
    start += size;
  }
}

function readTree({ tags, texts, nodes }, types, attributes, meanings, start, size) {
  const tree = { tag: new Array(size), type: new Array(size), text: new Array(size), meaning: new Array(size), attributes: new Array(size), first: new Array(size), count: new Array(size) };
  const total = nodes.length / 4;
  for (let i = 0, next = 1, at = start; i < size; i++, at++) {
    const tag = nodes.charCodeAt(at) - CODE_OFFSET, text = nodes.charCodeAt(2 * total + at) - CODE_OFFSET, count = nodes.charCodeAt(3 * total + at) - CODE_OFFSET;
    tree.tag[i] = tags[tag];
    tree.type[i] = types[tag] | (count ? 0 : LEAF);
    tree.attributes[i] = attributes[nodes.charCodeAt(total + at) - CODE_OFFSET];
    tree.text[i] = texts[text];
    tree.meaning[i] = meanings[text];
    tree.count[i] = count;
    tree.first[i] = next;
    next += count;
  }
  return tree;
}

// The answer to a batch. Trees are columns in depth-first order: label, presentation node, depth.
class AnswerWriter {
  constructor() {
    this.labels = [];
    this.size = 0; // nodes so far
    this.room = 0;
    this.columns = [0, 1, 2].map(() => new Uint16Array(0));
    this.trees = [[], [], []]; // numbers of nodes, of nodes without a meaning, and of statements
    this.forms = [];
  }

  addTree(root, unparsed) {
    const before = this.size, statements = findStatements(root);
    this.addNode(root, 0);
    [this.size - before, unparsed, statements.length].forEach((count, k) => this.trees[k].push(count));
    for (let k = 0; k < statements.length; k++) hashForms(statements[k], k < MAX_WEAK_STATEMENTS, this.forms);
  }

  addNode(node, depth) {
    const { kind, children } = node, at = this.size++;
    if (kind.batch !== this) {
      kind.batch = this;
      kind.number = this.labels.push(kind.text ? kind.label + ":" + kind.text : kind.label) - 1;
    }
    if (at === this.room) {
      this.room = Math.max(1 << 16, 2 * at);
      this.columns = this.columns.map((old) => { const column = new Uint16Array(this.room); column.set(old); return column; });
    }
    this.columns[0][at] = kind.number;
    this.columns[1][at] = node.at > 0 ? node.at : 0;
    this.columns[2][at] = depth;
    for (let k = 0; k < children.length; k++) this.addNode(children[k], depth + 1);
  }

  // Four counts and all other numbers of 32 bits, columns of 16 bits, and the labels as JSON.
  toBuffer() {
    const labels = JSON.stringify(this.labels), numbers = [[this.size, this.trees[0].length, this.forms.length, labels.length], ...this.trees, this.forms].flat();
    const buffer = new ArrayBuffer(4 * numbers.length + 2 * (3 * this.size + labels.length));
    new Uint32Array(buffer, 0, numbers.length).set(numbers);
    const rest = new Uint16Array(buffer, 4 * numbers.length);
    this.columns.forEach((column, k) => rest.set(column.subarray(0, this.size), k * this.size));
    for (let k = 0, at = 3 * this.size; k < labels.length; k++) rest[at + k] = labels.charCodeAt(k);
    return buffer;
  }
}

function parseOperators(json) {
  const batch = JSON.parse(json), writer = new AnswerWriter();
  for (const tree of readTrees(batch)) writer.addTree(...parseTree(tree, batch.canonical));
  return writer.toBuffer();
}
