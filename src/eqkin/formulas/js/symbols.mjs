// Tables of signs, letters and labels, and what they mean: kinds of nodes, items of rows, texts of leaves.

const splitWords = (text) => text.trim().split(/\s+/);

/**
 * Read a set of words.
 * @param {string} text
 * @returns {Set<string>}
 */
export const words = (text) => new Set(splitWords(text));

/**
 * Read a table that alternates between words and what they stand for.
 * @param {string} text
 * @returns {Map<string, string>}
 */
export function readPairs(text) {
  const pairs = new Map(), list = splitWords(text);
  for (let k = 0; k < list.length; k += 2) pairs.set(list[k], list[k + 1]);
  return pairs;
}

/**
 * Read a table with a word at the beginning of each line, and several that it stands for.
 * @param {string} text
 * @returns {Map<string, string[]>}
 */
export function readRows(text) {
  const rows = text.trim().split("\n").map(splitWords);
  return new Map(rows.map(([first, ...others]) => [first, others]));
}

export const ROW_TAGS = words("mrow mstyle mpadded math semantics mtd menclose maction mphantom merror");
export const SCRIPT_TAGS = words("msub msup msubsup munder mover munderover");
// Bits of the type of a node: its tag's, and LEAF.
export const ROW_TAG = 1, SCRIPT_TAG = 2, LETTER_TAG = 4, SYMBOL_TAG = 8, LEAF = 16;
export const findType = (tag) =>
  (ROW_TAGS.has(tag)
    ? ROW_TAG
    : SCRIPT_TAGS.has(tag) ? SCRIPT_TAG : tag === "mi" ? LETTER_TAG | SYMBOL_TAG : tag === "mo" ? SYMBOL_TAG : 0);
export const TERNARY_TAGS = words("msubsup munderover");
export const SIGN_NAMES = readPairs(String.raw`
  ∣ |  ❘ |  ∥ ‖  − -  ⟶ →  ⟵ ←  ⟹ ⇒  ⟺ ⇔  ⟸ ⇐  ⟼ ↦  ⩽ ≤  ⩾ ≥  ≦ ≤  ≧ ≥  ⋆ ∗  * ∗  ⋅ ·  ∙ ·  • ·  ≔ :=  ≕ =:  ∼ ~
  ⊆ ⊂  ⊇ ⊃  〈 ⟨  〉 ⟩  ∖ \  。 .  ， ,  ； ;  iff ⇔
`);
const LETTER_NAMES = readPairs(`ϵ ε  ϕ φ  ϑ θ  ϱ ρ  ς σ  ϖ π  ℓ l  ℒ L  ℋ H  ℎ h  ℙ P  𝔼 E  ∆ Δ`);
const VARIANT_LETTERS = /[ϵϕϑϱςϖ]/g;
export const FUNCTION_NAMES = readPairs(`
  Pr P  Prob P  ln log  Log log  tr trace  Tr trace  Var var  Cov cov  sgn sign  tg tan  rot curl  lg log
`);
export const PLAIN_PRODUCTS = words("· ∗");
export const CLOSING = readPairs(`( )  [ ]  { }  ⟨ ⟩  ⌊ ⌋  ⌈ ⌉`);
export const CLOSERS = new Set(CLOSING.values());
// Brackets around one operand.
export const FENCES = readPairs(`⟨| bra  |⟩ ket  ‖‖ norm  ⌊⌋ floor  ⌈⌉ ceil`);
export const USUAL_FUNCTIONS = words("f g h F G H P p φ ψ Φ Ψ Γ ζ E T");
export const USUALLY_DIFFERENTIATED = words("u v w f g h φ ψ F Φ Ψ ρ θ T V y");
// u_t and u_{xx} are derivatives.
export const FIELDS = words("u v w f g h φ ψ Φ Ψ");
export const COORDINATES = words("t x y z");
const STYLES = readPairs(`
  bold bold  bold-italic bold  script script  bold-script script  fraktur fraktur  double-struck double
`);
// Letters in them, next to each other, are a word.
export const WORD_VARIANTS = words("normal sans-serif monospace");
export const TENSOR_INDICES = /^[α-δκ-νρστ]$/;
// names that are also typed without a backslash
export const TYPED_NAMES = words(`
  Var Cov Corr Pr Tr det rank dim ker log ln exp sin cos tan sec csc cot arcsin arccos arctan sinh cosh tanh max min
  lim sup inf arg sgn gcd lcm mod
`);
export const TYPED_BEGINNINGS = new Set([...TYPED_NAMES].map((name) => name[0]));
export const LONGEST_TYPED_NAME = 6;
// Tr A log B is the trace of all of it.
export const GREEDY_FUNCTIONS = words("trace");
export const INDEX_LETTER = /^[i-nst]$/;
const CONDITION_WORDS =
  "if|for|where|when|with|and|or|otherwise|such that|s[.]t[.]|subject to|as|on|in|for all|else|then|a[.]s[.]|i[.]e[.]";
export const CONDITION = new RegExp(`^(${CONDITION_WORDS})$`, "i");
export const PRIMES = words("′ ' ’ ″ ‴");
export const TRANSPOSES_AS_POWERS = words("⊤ ⊺ T tr");
export const STARS = words("∗ * ⋆");
export const SIGNS_AS_POWERS = words("+ - − ±");
export const ACCENTS = readPairs(`^ hat  ˆ hat  ~ tilde  ˜ tilde  ˇ check  ˘ breve`);
// A space as wide as \quad separates a formula from its conditions.
export const MIN_CONDITION_SPACE_EM = 0.9;
// Of an operator tree.
export const MAX_DEPTH = 200;
// Of a derivative that is written out.
const MAX_ORDER = 4;

export const NO_CHILDREN = [];
// Place -1 of an array, without a slow look-up of a property.
export const lastOf = (list) => (list.length ? list[list.length - 1] : undefined);
// Texts and kinds that are remembered from batch to batch.
export const MAX_KNOWN = 100_000;

// The output function of MurmurHash3: every bit of the input changes half of the bits of the output.
export function mix(x) {
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return x ^ (x >>> 16);
}
export const mixPair = (a, b) => mix((Math.imul(a, 0x9e3779b1) + b) | 0);

// FNV-1a over UTF-16.
function hashText(text) {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return mix(hash);
}

// [bit, keys] -> the bits of each key.
function makeBits(rows) {
  const bits = new Map();
  for (const [bit, keys] of rows) for (const key of words(keys)) bits.set(key, (bits.get(key) ?? 0) | bit);
  return bits;
}

// What a sign does in a row, loosest first: a row knows at once which levels of the grammar it needs.
const RELATIONS = `
  = ≠ < > ≤ ≥ ≈ ≡ ~ ≃ ≅ ∝ ∈ ∉ ∋ ⊂ ⊃ ⊊ ⊄ → ← ↔ ↦ ↪ ↠ ≪ ≫ ⊢ ⊨ ≜ ≝ ≐ := =: ≺ ≻ ⪯ ⪰ ≼ ≽ ⊥ ≲ ≳ ≍ ↓ ↑ ⇀ ⇝ ⊣ ⊲ ⊴
`;
const BIG_OPERATORS = "∑ ∏ ∐ ⋃ ⋂ ⋁ ⋀ ⨁ ⨂ ⨀ ⨄ lim max min sup inf argmax argmin limsup liminf";
// signs that people type as two; `!=` is not one, since \(n! = 1\) says something else
export const TYPED_SIGNS = readPairs(`:= :=  <= ≤  >= ≥  -> →  => ⇒  ≤> ⇔`);
export const GAP = 1;
export const COMMA = 2;
export const IMPLICATION = 4;
export const GIVEN = 8;
export const RELATION = 16;
export const INTEGRAL = 32;
export const SUM = 64;
export const PRODUCT = 128;
export const BIG = 256;
export const BRACKET = 512;
const SIGN_ROLES = makeBits([
  [GAP, "gap"],
  [COMMA, ", ; ."],
  [IMPLICATION, "⇒ ⇔ ⇐"],
  [GIVEN, "| ‖ :"],
  [RELATION, RELATIONS],
  [INTEGRAL, "∫ ∬ ∭ ∮ ∯ ⨌"],
  [SUM, "+ - ± ∓ ∪ ⊕ \\ ⊎ ∨ ⊔ △"],
  [PRODUCT, "× · ∗ ∘ ⊗ ⊙ ∩ ∧ / ÷ ⋊ ⋉ ⊠ ⊓ ⋄ ⊡ mod"],
  [BIG, BIG_OPERATORS],
  [BRACKET, "( ) [ ] { } ⟨ ⟩ ⌊ ⌋ ⌈ ⌉ | ‖"],
]);
export const roleOf = (sign) => SIGN_ROLES.get(sign) ?? 0;

// Kinds of labels.
export const UNORDERED = words("+ * = ≠ ≈ ~ ∪ ∩ ⊕ chain rows list set with cases inner");
export const MATRIX = words("transpose matrix");
export const BIG_LABEL = words(BIG_OPERATORS);
// What may be left out of a relation, see `Simplifier`.
const OMISSIBLE = words("app D " + BIG_OPERATORS);
export const RELATION_LABEL = words(RELATIONS);
// Of statements.
export const COMPOUND = words("chain list rows with cases ⇒ ⇔");
export const SOLVABLE = words("= ≈ ≠ ∝ < ≤ ≪");
export const EQUALITY = words("= ≈ ∝");
export const EQUATION = words("= ≈");
export const BIG_SUM = words("∑ ∫");
// In brackets after any letter.
export const ARGUMENT = words("tuple given v idx");
// Δx, Δx_i, Δx^2
export const DIFFERENCE = words("v idx pow");
// In a denominator after a slash.
export const FACTOR = words("v c idx pow prime bar transpose");
export const DECORATED = words("pow idx star prime D bar hat tilde transpose adjoint");
export const SCRIPTED_NAME = words("fn pow idx");
export const PAIR = words("commutator tuple");
// Of intervals; commutators are of operators.
export const BOUND = words("n + neg c");
export const COUNT = words("v n +");

// The value of a key in a map, made with the first use.
export function findOrMake(map, key, make) {
  let value = map.get(key);
  if (value === undefined) map.set(key, value = make(key));
  return value;
}

// What all nodes with the same label and text have in common, found once.
class Kind {
  constructor(label, text) {
    this.label = label;
    this.text = text;
    this.name = text ? label + ":" + text : label;
    this.hash = mixPair(hashText(label), text ? hashText(text) : 1) || 1;
    this.isUnordered = UNORDERED.has(label);
    this.isMatrix = MATRIX.has(label);
    this.isOmissible = OMISSIBLE.has(label);
    // Of a number, see `readNumber`
    this.value = undefined;
    // Of a name: the kind of its applications.
    this.applied = null;
    // Whose answer has this label, and its number there.
    this.batch = null;
    this.number = -1;
    // See `flattenTree`
    this.round = 0;
    this.variable = -1;
  }
}
// By label, then by text.
const kinds = new Map();
// Without text, by label.
const operatorKinds = new Map();
let knownKinds = 0;

export function findKind(label, text) {
  const byText = kinds.get(label) ?? findOrMake(kinds, label, () => new Map());
  let kind = byText.get(text);
  if (kind === undefined) {
    byText.set(text, kind = new Kind(label, text));
    knownKinds++;
  }
  return kind;
}

export const findOperatorKind = (label) =>
  operatorKinds.get(label) ?? findOrMake(operatorKinds, label, (name) => findKind(name, ""));

export class OperatorNode {
  constructor(kind, children, at) {
    this.kind = kind;
    // Operator, or kind of leaf.
    this.label = kind.label;
    // Of a leaf.
    this.text = kind.text;
    this.children = children;
    // Presentation node.
    this.at = at;
    // A product in brackets.
    this.grouped = false;
    // Of a differential operator that waits for its operand.
    this.variables = null;
    // Of a variable with a subscript: base, subscript, and its letters if it may be a derivative.
    this.name = null;
    // Nodes in it; 0: this and the following are not known yet.
    this.size = 0;
    // Whether one of its nodes is one.
    this.hasMatrix = false;
    this.hasOmissible = false;
    // Of its tree.
    this.hash = 0;
    // Its monomials, once they are known.
    this.sum = null;
  }
  is(labels) {
    return labels.has(this.label);
  }
  copy(at, variables) {
    const node = new OperatorNode(this.kind, this.children, at);
    node.grouped = this.grouped;
    node.variables = variables;
    node.name = this.name;
    return node;
  }
}
export const leaf = (label, text, at) => new OperatorNode(findKind(label, text), NO_CHILDREN, at);
export const branch = (label, children, at) => new OperatorNode(findOperatorKind(label), children, at);
export const empty = (at) => leaf("empty", "", at);
export const isLetter = (node, letters) => node.label === "v" && letters.has(node.text);
// A wildcard of a query: never a part of a name.
export const isWild = (node) => node.label === "v" && node.text[0] === "?";
export const isNumber = (node, text) => node.label === "n" && node.text === text;
export const isSign = (item, role) => item !== undefined && (item.role & role) !== 0;
export const isOperand = (item) => item !== undefined && item.kind === "operand";
export const repeat = (node, times) => Array(Math.min(MAX_ORDER, Math.max(1, times))).fill(node);
export const combine = (label, nodes, at) => (nodes.length === 1 ? nodes[0] : branch(label, nodes, at));
export function group(node) {
  if (node.label === "*") node.grouped = true;
  return node;
}
export const isOpenProduct = (node) => node.label === "*" && !node.grouped;
export const listOf = (node, label) => (node.label === label ? node.children : [node]);

// Hash of a tree with names; operands that commute are added up.
export function hashTree(node) {
  if (node.size) return node.hash;
  const { children, kind } = node, { length } = children;
  let { hash, isMatrix: hasMatrix, isOmissible: hasOmissible } = kind, size = 1;
  if (length) {
    const isOrdered = length === 1 || !kind.isUnordered;
    let sum = 0;
    for (let k = 0; k < length; k++) {
      const child = children[k];
      sum = (sum + mixPair(isOrdered ? k + 1 : 0, hashTree(child))) | 0;
      size += child.size;
      hasMatrix ||= child.hasMatrix;
      hasOmissible ||= child.hasOmissible;
    }
    hash = mixPair(hash, sum) || 1;
  }
  node.size = size;
  node.hasMatrix = hasMatrix;
  node.hasOmissible = hasOmissible;
  node.hash = hash;
  return hash;
}

export const TRAILING = words(", . ; : ? gap");
export const LEADING = words(", ; gap");

// A member of a row: an operand, a sign, or a big operator that waits for its body.
export class Item {
  constructor(kind, sign, role, node, at) {
    this.kind = kind;
    this.sign = sign;
    this.role = role;
    this.node = node;
    this.at = at;
    // A function that takes what follows.
    this.applies = false;
    // The opening bracket around an operand.
    this.bracket = "";
    // The closing bracket with its scripts.
    this.after = null;
    // Last node of a word of upright letters; -1: one italic letter.
    this.upright = -2;
    this.word = "";
    // Range of a big operator.
    this.under = null;
    this.over = null;
    // Of a closing bracket.
    this.scripts = null;
    this.tag = "";
  }
}
export const signItem = (sign, at) => new Item("sign", sign, roleOf(sign), null, at);
export const bigItem = (sign, at) => new Item("big", sign, roleOf(sign), null, at);
export const operandItem = (node, at) => new Item("operand", "", 0, node, at);

export function rolesOf(items) {
  let roles = 0;
  for (let k = 0; k < items.length; k++) roles |= items[k].role;
  return roles;
}

export function splitAt(items, role) {
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
    this.raw = raw;
    this.text = text;
    this.sign = sign;
    this.isBlank = !text.replace(/[\u2062-\u2064\u200b\u00a0]/g, "");
    this.isLetter = /^[a-zA-Z]$/.test(text);
    this.role = roleOf(sign);
    this.isBig = (this.role & (BIG | INTEGRAL)) !== 0;
    this.isDots = /^[…⋯⋮⋱]$/.test(sign);
    this.isName = /^[\p{L}. ]{2,}$/u.test(sign) && [...sign].length > 1 && !(this.role & PRODUCT);
    this.isSign = (this.role & RELATION) !== 0 || /^[|‖/!.,;]$/.test(sign);
    // Styles of letters are small differences.
    const named = LETTER_NAMES.get(text) ?? text.normalize("NFKD");
    this.kind = /^[∞∅⌀ℏℕℤℚℝℂ⊤⊥]$/u.test(text) ? "c" : "v";
    this.name = this.kind === "c" ? text : /^[A-Za-zΑ-ϵ]$/u.test(named) ? named : LETTER_NAMES.get(text) ?? text;
    this.leaf = findKind(this.kind, this.name);
    this.numberLeaf = findKind("n", text.replace(/\.$/, ""));
    this.bareSign = sign.replace(/\s+/g, "");
    this.compact = text.replace(/\s/g, "");
    // In the name of a variable.
    this.inName = this.compact.replace(VARIANT_LETTERS, (letter) => LETTER_NAMES.get(letter));
    this.isInvisible = text === "\u2061";
  }
}
const meanings = new Map();

export const findMeaning = (raw) => findOrMake(meanings, raw, (text) => new TextMeaning(text));

const knownAttributes = new Map();

class NodeAttributes {
  constructor(lines) {
    for (const line of lines.split("\n")) {
      const at = line.indexOf("=");
      if (at > 0) this[line.slice(0, at)] = line.slice(at + 1);
    }
    this.style = STYLES.get(this.mathvariant) ?? "";
    this.isWord = WORD_VARIANTS.has(this.mathvariant);
    this.isFence = this.fence === "true";
    // A fraction without its line.
    this.isBare = /^0(px|pt|em)?$/.test(this.linethickness ?? "");
    this.isWide = parseFloat(this.width ?? "0") >= MIN_CONDITION_SPACE_EM || this.linebreak === "newline";
  }
}

export const findAttributes = (lines) => findOrMake(knownAttributes, lines, (text) => new NodeAttributes(text));

// Between batches, if there are too many.
export function forgetSymbols() {
  if (Math.max(meanings.size, knownKinds, knownAttributes.size) <= MAX_KNOWN) return;
  for (const known of [meanings, kinds, operatorKinds, knownAttributes]) known.clear();
  knownKinds = 0;
}
