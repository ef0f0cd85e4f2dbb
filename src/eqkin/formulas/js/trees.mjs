// Formulas to trees inside the embedded engine: KaTeX parses and builds its MathML nodes, which are walked directly
// instead of being printed and read again.

import { findUndefined, settle } from "./document.mjs";
import { limits, session } from "./macros.mjs";

const DROPPED_ATTRIBUTES = new Set(["href", "class", "style", "xmlns", "display", "alttext", "id", "encoding"]);
// KaTeX shows refused commands in this colour.
const ERROR_COLOUR = "#e9c1b7";

// meaningless in a formula: controls, by which stored strings are separated, and what XML does not allow
const CONTROLS = /[\u0000-\u001f\u007f\ufffe\uffff]/, ALL_CONTROLS = new RegExp(CONTROLS, "g");

// Distinct strings, and their numbers.
class StringTable {
  constructor() {
    this.numbers = new Map();
    this.strings = [];
  }
  find(string) {
    let number = this.numbers.get(string);
    if (number === undefined) {
      number = this.strings.push(string.toWellFormed()) - 1;
      this.numbers.set(string, number);
    }
    return number;
  }
}

function getAttributes(node) {
  let out = "", names = null;
  for (const name in node.attributes) {
    if (DROPPED_ATTRIBUTES.has(name) || name.startsWith("data-")) continue;
    const value = String(node.attributes[name]);
    if (value === ERROR_COLOUR) throw new Error("eqkin:refused command");
    if (out) (names ??= [out]).push(name + "=" + value);
    else out = name + "=" + value;
  }
  return names ? names.sort().join("\n") : out;
}

const TOKENS = new Set(["mtext", "mi", "mo", "mn", "ms"]);
const ROWS = new Set(["mrow", "mtd", "mstyle", "mpadded", "mphantom", "menclose", "msqrt", "merror", "math"]);

function pushChildren(node, into, type = node.type) {
  // fragments are not nodes; adjacent texts become one; small spaces in a row mean nothing
  let text = "";
  for (const child of node.children) {
    if (child.type !== undefined) into.push(child);
    else if (child.text !== undefined && child.children === undefined) text += child.text;
    else if (child.width !== undefined) {
      if (child.character) {
        if (TOKENS.has(type)) text += child.character;
        else if (!ROWS.has(type)) into.push({ type: "mtext", attributes: {}, children: [{ text: child.character }] });
      } else into.push({ type: "mspace", attributes: { width: child.width.toFixed(4).replace(/\.?0+$/, "") + "em" },
        children: [] });
    } else text += pushChildren(child, into, type);
  }
  return text;
}

// Presentation trees in the format of columns.mjs.
class TreeWriter {
  constructor() {
    this.tags = new StringTable();
    this.attributes = new StringTable();
    this.texts = new StringTable();
    this.sizes = [];
    this.tag = [];
    this.attribute = [];
    this.text = [];
    this.count = [];
  }
  addNode(tag, attributes, text, count) {
    this.tag.push(this.tags.find(tag));
    this.attribute.push(this.attributes.find(attributes));
    this.text.push(this.texts.find(text));
    this.count.push(count);
  }
  // Forget the nodes of a tree that was not completed.
  cutTo(size) {
    this.tag.length = this.attribute.length = this.text.length = this.count.length = size;
  }
  toJSON() {
    const { tags, attributes, texts, sizes, tag, attribute, text, count } = this;
    return { tags: tags.strings, attributes: attributes.strings, texts: texts.strings, sizes, tag, attribute, text,
      n_children: count };
  }
}

function flatten(root, trees) {
  const start = trees.tag.length;
  let level = [root];
  for (let depth = 1; level.length; depth++) {
    if (depth > limits.tree_depth) throw new Error("eqkin:limit tree deeper than " + limits.tree_depth);
    if (trees.tag.length - start + level.length > limits.tree_nodes)
      throw new Error("eqkin:limit tree larger than " + limits.tree_nodes + " nodes");
    const next = [];
    for (const node of level) {
      const before = next.length;
      let words = pushChildren(node, next);
      const count = next.length - before;
      // Mixed content does not occur in presentation MathML.
      if (count) words = "";
      if (CONTROLS.test(words)) words = words.replace(ALL_CONTROLS, "");
      if (words.length > limits.leaf_chars) throw new Error("eqkin:limit text longer than " + limits.leaf_chars);
      // KaTeX puts whole expressions into <mo>.
      const tag = count && TOKENS.has(node.type) ? "mrow" : node.type;
      trees.addNode(tag, getAttributes(node), words, count);
    }
    level = next;
  }
  const size = trees.tag.length - start;
  trees.sizes.push(size);
  return size;
}

function buildTree(latex, displayMode) {
  const dom = katex.__renderToDomTree(latex, {
    displayMode, output: "mathml", throwOnError: true, strict: "ignore", trust: false,
    // Definitions in a formula end with it; those of the document are found by `install`
    macros: {},
    maxExpand: limits.macro_expansions, maxSize: limits.rule_size_em, errorColor: ERROR_COLOUR,
  });
  let node = dom;
  while (node.type !== "semantics") node = node.children.find((c) => c.children && c.type !== "annotation");
  return node.children[0];
}

function checkDepth(latex) {
  if (latex.length > limits.latex_chars)
    throw new Error("eqkin:limit formula longer than " + limits.latex_chars + " characters");
  for (let i = 0, depth = 0; i < latex.length; i++) {
    const c = latex.charCodeAt(i);
    if (c === 92) i++;
    else if (c === 123 && ++depth > limits.latex_depth)
      throw new Error("eqkin:limit braces deeper than " + limits.latex_depth);
    else if (c === 125) depth--;
  }
}

/**
 * Convert formulas, at least one, until the time of a batch is over.
 * @param {string[]} formulas LaTeX
 * @param {boolean} displayMode whether they stand on lines of their own
 * @returns {{outcomes: (number|object)[], trees: object}} see `convertOne`, and the trees in the format of columns.mjs
 */
export function convertFormulas(formulas, displayMode) {
  const trees = new TreeWriter(), outcomes = [], stop = Date.now() + 1000 * limits.batch_seconds;
  for (const latex of formulas) {
    // What is left comes in the next call: one formula must not cost another its time.
    if (outcomes.length && Date.now() > stop) break;
    outcomes.push(convertOne(latex, displayMode, trees));
  }
  return { outcomes, trees: trees.toJSON() };
}

// Returns the number of nodes, with the undefined commands if there are any, or an error.
function convertOne(latex, displayMode, trees) {
  const before = trees.tag.length;
  session.end = Date.now() + 1000 * limits.formula_seconds;
  for (;;) {
    session.unknown = new Set();
    try {
      checkDepth(latex);
      const size = flatten(buildTree(latex, displayMode), trees);
      return session.unknown.size ? { size, unknown: [...session.unknown] } : size;
    } catch (error) {
      trees.cutTo(before);
      // One that only appears when macros are expanded.
      const name = findUndefined(error);
      if (name) settle([name]);
      else if (error instanceof RangeError) return { error: "eqkin:limit nesting too deep", position: -1 };
      else return { error: (error.rawMessage ?? error.message).toWellFormed(), position: error.position ?? -1 };
    }
  }
}
