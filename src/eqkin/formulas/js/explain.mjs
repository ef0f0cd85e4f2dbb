// Explain hits: how each is related to the query, which of its parts match which parts of the query, under what names.
//
// Operator trees are matched (matching.mjs), and the matching nodes are shown in the presentation trees. A leaf
// matches a leaf; the signs between matching operands match in order; an inner node (a fraction, a row) matches
// another if all leaves below the one match all leaves below the other.

import { parseTree } from "./batches.mjs";
import { readPresentationTrees } from "./columns.mjs";
import {
  DIVISIBLE_RELATIONS, TreeAligner, commutes, forgetParts, listNodes, matchTrees, readOperatorTrees,
} from "./matching.mjs";
import { OperatorParser } from "./operators.mjs";
import { MAX_KNOWN, TERNARY_TAGS, findOrMake, forgetSymbols, lastOf, readPairs, words } from "./symbols.mjs";

// Similarity of parts with the same label.
const SAME_SIMILARITY = 1;
// Similarity of letters with different names.
const RENAMED_SIMILARITY = 0.75;
// Similarity of a wildcard and what it matches.
const WILDCARD_SIMILARITY = 0.5;
// An operator tree with fewer nodes is not worth naming as a part of another.
const MIN_PART_NODES = 3;
// The same for a part under other names.
const MIN_RENAMED_OPERATORS = 2;
// Rows with any of these tags are the same.
const DISSOLVED_TAGS = words("mrow mstyle mpadded math");
// Elements whose extent says nothing about operands.
const GROUP_TAGS = words("mrow mstyle mpadded math mtd menclose merror mphantom mtable mtr semantics");
const SCRIPT_NAMES = readPairs(`munder msub  mover msup  munderover msubsup`);
const OPENING_SIGNS = new Set("([{⟨⌊⌈"), CLOSING_SIGNS = new Set(")]}⟩⌋⌉"), BARS = new Set("|∥");
const FINAL_PUNCTUATION = new Set(".,;:");
// Names of variables with an index, an accent or an exponent contain one of these.
const COMPOSED_SIGN = /[_.′^]/;
const COMBINING_ACCENTS = { hat: "\u0302", tilde: "\u0303", check: "\u030c", breve: "\u0306" };
const WILDCARD_NAME = /^\?[\p{L}\p{N}_]+$/u;
// signs that are read as one, also where somebody typed the one for the other
const SHOWN_SIGNS = readPairs(`
  ⋯ …  ∣ |  ❘ |  ‖ ∥  ⟶ →  ⟵ ←  ⟹ ⇒  ⟺ ⇔  ⟼ ↦  ⩽ ≤  ⩾ ≥  ∗ *  ⋆ *  ε ϵ  ϕ φ  ϑ θ  ∅ ⌀  ≔ =  - −  · ⋅  ' ′  〈 ⟨  〉 ⟩
`);
const INVISIBLE_SIGNS = new Set("\u2061\u2062\u2063\u2064\u200b");
const shownTexts = new Map();
const nameTag = (tag) => SCRIPT_NAMES.get(tag) ?? tag;
const haveSameRole = (tag, other) =>
  nameTag(tag) === nameTag(other) || (DISSOLVED_TAGS.has(tag) && DISSOLVED_TAGS.has(other));

// What a leaf with a text shows; "" for nothing.
function findShown(text) {
  if (shownTexts.size > MAX_KNOWN) shownTexts.clear();
  return findOrMake(shownTexts, text, () => {
    const sign = text.trim(), compact = sign.replace(/\s+/g, "␣");
    return INVISIBLE_SIGNS.has(sign) ? "" : SHOWN_SIGNS.get(compact) ?? compact;
  });
}

// A presentation tree with its visible leaves in reading order, and its operator tree, which is parsed if it is not
// given.
class Presentation {
  constructor(nodes, tree) {
    this.nodes = nodes;
    [this.root] = nodes;
    this.leaves = [];
    // What each of the leaves shows.
    this.signs = [];
    this.readLeaves(this.root);
    this.tree = tree ?? listNodes(parseTree(new OperatorParser(nodes), true));
    // Filled by `findExtents`.
    this.extents = [];
    this.nameLeaves = null;
  }

  readLeaves(node) {
    node.start = this.leaves.length;
    for (const child of node.children) this.readLeaves(child);
    const shown = findShown(node.meaning.raw);
    if (!node.children.length && shown && node.tag !== "mspace") {
      this.leaves.push(node);
      this.signs.push(shown);
    }
    node.end = this.leaves.length;
  }

  // What the formula shows, without spaces and styles.
  listShown(node = this.root) {
    if (!node.children.length) return this.signs.slice(node.start, node.end);
    const shown = node.children.flatMap((child) => this.listShown(child));
    return DISSOLVED_TAGS.has(node.tag) ? shown : [nameTag(node.tag) + "(", ...shown, ")"];
  }

  listWildcards() {
    const names = this.leaves.filter((leaf) => leaf.tag === "mi").map((leaf) => leaf.meaning.raw);
    return [...new Set(names)].filter((name) => WILDCARD_NAME.test(name));
  }

  // The presentation node of a node of the operator tree.
  findNode(node) {
    const { origins, scripts, size } = this.tree, origin = origins[node];
    return node < size || origin.children.length < 2 ? origin : origin.children[scripts[node - size]];
  }

  // The first leaf of the presentation node of a node of the operator tree, and the one after its last.
  findSpan(node) {
    const { start, end, tag, children } = this.findNode(node);
    // A name with an index: without the exponent.
    const isName = children.length > 1 && TERNARY_TAGS.has(tag) && this.tree.isLeaf(node);
    return [start, isName ? children[1].end : end];
  }

  // Find the leaves from the first to the last of each node of the operator tree; 0 and 0 if it has none.
  findExtents() {
    // Brackets that are open before each leaf, and after the last.
    const { tree, signs, extents } = this, before = extents.length, depths = [0];
    if (before === tree.labels.length) return;
    signs.forEach((sign, leaf) => {
      depths[leaf + 1] = depths[leaf] + OPENING_SIGNS.has(sign) - CLOSING_SIGNS.has(sign);
    });
    // Matching may have added nodes since, none of them below others.
    for (let node = tree.labels.length - 1; node >= before; node--) {
      const [from, to] = this.findSpan(node);
      const below = tree.children[node].map((child) => extents[child]).filter(([first, last]) => first < last);
      let start = Math.min(signs.length, ...below.map(([first]) => first));
      let end = Math.max(0, ...below.map(([, last]) => last));
      if (from < to) {
        let isGroup = GROUP_TAGS.has(this.findNode(node).tag);
        if (isGroup && OPENING_SIGNS.has(signs[from])) isGroup = end > 0 && (from !== start - 1 || to !== end + 1);
        if (!isGroup) {
          start = Math.min(start, from);
          end = Math.max(end, to);
        }
      }
      extents[node] = [0, 0];
      if (!end) continue;
      if (from === start && to === start + 1 && BARS.has(signs[start])) {
        const bar = signs.indexOf(signs[start], end);
        end = bar < 0 ? end : bar + 1;
      }
      // Continue to the brackets that close those opened among the leaves.
      let closed = end;
      while (closed < depths.length && depths[closed] > depths[start]) closed++;
      extents[node] = [start, closed < depths.length ? closed : end];
    }
  }

  // Whether a leaf of the operator tree is written, not implied as the exponent 1/2 of a root is.
  isWritten(node) {
    return !this.tree.isLeaf(node)
      || !this.findNode(node).children.length
      || COMPOSED_SIGN.test(this.tree.labels[node]);
  }

  // Which leaves are names, numbers and other operands, not signs.
  get names() {
    if (this.nameLeaves !== null) return this.nameLeaves;
    this.nameLeaves = new Uint8Array(this.leaves.length);
    for (let node = 0; node < this.tree.labels.length; node++) {
      if (!this.tree.isLeaf(node) || !this.isWritten(node)) continue;
      this.nameLeaves.fill(1, ...this.findSpan(node));
    }
    return this.nameLeaves;
  }

  // The nodes whose leaves are all among these, without those below them.
  listMaximalNodes(leaves, node = this.root) {
    if (node.start === node.end) return [];
    let leaf = node.start;
    while (leaf < node.end && leaves.has(leaf)) leaf++;
    return leaf === node.end ? [node] : node.children.flatMap((child) => this.listMaximalNodes(leaves, child));
  }

  isSameAs({ nodes }) {
    return nodes.length === this.nodes.length
      && nodes.every(({ tag, meaning, children }, at) => {
        const own = this.nodes[at];
        return tag === own.tag && meaning === own.meaning && children.length === own.children.length;
      });
  }
}

// A query, prepared for comparison with many hits.
class Explainer {
  constructor(query) {
    this.query = query;
    this.wildcards = query.listWildcards();
    this.shown = query.listShown();
    this.signs = query.signs.slice();
    while (this.shown.length > 1 && FINAL_PUNCTUATION.has(lastOf(this.shown))) {
      this.shown.pop();
      this.signs.pop();
    }
  }

  // `forms` names the forms that both statements have in common.
  explain(hit, forms, isComplete) {
    const [relation, found] = this.findRelation(hit, forms);
    if (!isComplete) return { relation };
    const { query } = this;
    const match = found ?? new TreeAligner(query.tree, hit.tree).align();
    const explained = new PartPairs(query, hit, match);
    const pairings = explained.listPairings(), changes = relation ? listChanges(query.tree, hit.tree, match) : [];
    if (relation === "rewritten" && !changes.length) changes.push("notation");
    return { relation, pairings, renaming: listRenaming(query.tree, match),
      bindings: explained.listBindings(this.wildcards), changes };
  }

  // The relation of a hit to the query, and the match that shows it.
  findRelation(hit, forms) {
    const { tree } = hit, ours = this.query.tree;
    let match = matchTrees(ours, tree);
    if (ours.isOpen[0]) return [match === null ? "" : match.whole ? "same" : "contains", match];
    if (this.isShownBy(hit)) return ["same", match];
    if (match?.whole || forms.includes("canonical") || forms.includes("weak")) return ["rewritten", match];
    const renamed = matchTrees(ours, tree, { rename: true, part: false });
    if (renamed !== null || forms.includes("renamed")) return ["renamed", renamed];
    if (match !== null) return ["contains", match];
    for (const [relation, pattern, other, rename] of [["contains", ours, tree, true], ["part of", tree, ours, false],
      ["part of", tree, ours, true]]) {
      if (!isPartWorthNaming(pattern, rename)) continue;
      match = matchTrees(pattern, other, { rename });
      if (match !== null) return [relation, pattern === ours ? match : invertMatch(match)];
    }
    return ["", null];
  }

  // Whether a hit shows what the query shows, up to punctuation at the end.
  isShownBy(hit) {
    if (!this.signs.every((sign, at) => sign === hit.signs[at])) return false;
    const shown = hit.listShown();
    return this.shown.every((sign, at) => sign === shown[at])
      && shown.slice(this.shown.length).every((sign) => FINAL_PUNCTUATION.has(sign));
  }
}

// Whether it says something that a tree occurs in another: a letter occurs in most of them.
function isPartWorthNaming(tree, rename) {
  return rename ? tree.operators >= MIN_RENAMED_OPERATORS : tree.operators > 0 && tree.size >= MIN_PART_NODES;
}

function invertMatch({ pairs, renaming }) {
  return { whole: false, pairs: pairs.map(([ours, theirs]) => [theirs, ours]),
    renaming: new Map([...renaming].map(([ours, theirs]) => [theirs, ours])), bindings: new Map() };
}

// In which ways matching operands have another order.
function listChanges(ours, theirs, { pairs }) {
  const partner = new Map(pairs), changes = new Set();
  for (const [node, other] of pairs) {
    if (node >= ours.size || other >= theirs.size || !commutes(ours.labels[node])) continue;
    const places = ours.children[node].map((child) => theirs.children[other].indexOf(partner.get(child)));
    const order = places.filter((place) => place >= 0);
    if (order.some((place, at) => place < order[at - 1]))
      changes.add(DIVISIBLE_RELATIONS.has(ours.labels[node]) ? "sides swapped" : "commuted");
  }
  return [...changes].sort();
}

const partition = (text, sign) =>
  (text.includes(sign)
    ? [text.slice(0, text.indexOf(sign)), sign, text.slice(text.indexOf(sign) + 1)]
    : [text, "", ""]);

// Variables and their other names, without an index or an accent that both have.
function listRenaming(tree, { renaming }) {
  const found = new Map(), place = ([label]) => tree.labels.indexOf(label);
  for (const names of [...renaming].filter(([label, other]) => label !== other).sort((a, b) => place(a) - place(b))) {
    let [mine, other] = names.map((label) => label.replace(/^v:/, ""));
    for (const sign of "_.") {
      const [base, , rest] = partition(mine, sign), [baseThere, , restThere] = partition(other, sign);
      if (rest && rest === restThere) [mine, other] = [base, baseThere];
    }
    const shown = [mine, other].map(showName);
    if (mine !== other) found.set(shown.join("\n"), shown);
  }
  return [...found.values()];
}

function showName(name) {
  const [base, , decoration] = partition(name, "."), [accent, mark, index] = partition(decoration, "_");
  return (base + (COMBINING_ACCENTS[accent] ?? "")).normalize("NFC") + mark + index;
}

// Matching nodes of operator trees as matching nodes of presentation trees.
class PartPairs {
  constructor(query, hit, match) {
    this.query = query;
    this.hit = hit;
    this.match = match;
    // For each node of the query: node, node of the hit, similarity; a wildcard has several of them.
    this.pairings = new Array(query.nodes.length).fill(null);
    // For each leaf of the query the leaves of the hit, from `start` to before `end`, and how similar they are.
    this.partners = new Array(query.leaves.length).fill(null);
    // Nodes of the hit that are paired.
    this.used = new Set();
    query.findExtents();
    hit.findExtents();
  }

  // All pairs of matching presentation nodes with their similarities, one after the other, in the order of the
  // query's nodes.
  listPairings() {
    const { query, hit, match } = this, ours = query.tree, theirs = hit.tree;
    if (!ours.isOpen[0] && query.isSameAs(hit)) return query.nodes.flatMap((_, node) => [node, node, SAME_SIMILARITY]);
    const inner = [];
    // Wildcards and the leaves they match.
    const bound = new Map();
    for (const pair of match.pairs) {
      const node = pair[0], there = pair[1];
      if (match.bindings.size && ours.wildcardAt(node)) {
        if (!bound.has(node)) bound.set(node, new Set());
        const [start, end] = hit.extents[there];
        for (let leaf = start; leaf < end; leaf++) bound.get(node).add(leaf);
      } else if (!ours.isLeaf(node) && !theirs.isLeaf(there)) inner.push(pair);
      else if (query.isWritten(node) && hit.isWritten(there))
        this.pairNames(query.findSpan(node), hit.findSpan(there), ours.named[node] === theirs.named[there]);
    }
    for (const [node, leaves] of bound) this.pairWildcard(node, leaves);
    const extent = (node) => query.extents[node][1] - query.extents[node][0];
    inner.sort((a, b) => extent(a[0]) - extent(b[0]) || a[0] - b[0] || a[1] - b[1]);
    // Small parts come first, so that large ones only get the signs between them.
    for (const pair of inner) this.pairSigns(pair[0], pair[1]);
    this.pairInnerNodes();
    return this.pairings.flatMap((numbers) => numbers ?? []);
  }

  // The nodes of the hit that each wildcard matches, without those below them.
  listBindings(names) {
    const { bindings } = this.match;
    return names.filter((name) => bindings.has(name)).map((name) =>
      [name, this.hit.listMaximalNodes(this.listLeaves(bindings.get(name))).map((node) => node.index)]);
  }

  // The leaves of operands, with the signs before all but the first.
  listLeaves(nodes) {
    const leaves = new Set(), { hit } = this;
    const extents = nodes.map((node) => hit.extents[node]);
    for (let [start, end] of extents.sort((a, b) => a[0] - b[0] || a[1] - b[1])) {
      while (leaves.size && start && !leaves.has(start - 1)) {
        const before = hit.leaves[start - 1];
        if (before.tag !== "mo" && before.meaning.raw !== "/") break;
        start--;
      }
      for (; start < end; start++) leaves.add(start);
    }
    return leaves;
  }

  add(ours, theirs, similarity) {
    if (this.pairings[ours.index] !== null || this.used.has(theirs)) return;
    this.pairings[ours.index] = [ours.index, theirs.index, similarity];
    this.used.add(theirs);
  }

  setPartner(leaf, start, end, similarity) {
    this.partners[leaf] = { start, end, similarity };
  }

  pairWildcard(ours, leaves) {
    const node = this.query.findNode(ours), found = this.hit.listMaximalNodes(leaves);
    if (!found.length) return;
    this.pairings[node.index] = found.flatMap((there) => [node.index, there.index, WILDCARD_SIMILARITY]);
    for (const there of found) this.used.add(there);
    this.setPartner(node.start, Math.min(...leaves), Math.max(...leaves) + 1, WILDCARD_SIMILARITY);
  }

  // Pair the leaves of two names; leaf by leaf, if both have the same number.
  pairNames([start, end], [first, last], isSame) {
    const { query, hit } = this;
    if (first === last) return;
    if (this.partners.slice(start, end).some((partner) => partner !== null)) return;
    if (end - start === last - first) {
      for (let leaf = start, there = first; leaf < end; leaf++, there++) {
        const similarity = isSame || query.signs[leaf] === hit.signs[there] ? SAME_SIMILARITY : RENAMED_SIMILARITY;
        this.setPartner(leaf, there, there + 1, similarity);
        this.add(query.leaves[leaf], hit.leaves[there], similarity);
      }
      return;
    }
    const similarity = isSame ? SAME_SIMILARITY : RENAMED_SIMILARITY;
    const range = (from, to) => new Set(Array.from({ length: to - from }, (_, k) => from + k));
    for (let leaf = start; leaf < end; leaf++) this.setPartner(leaf, first, last, similarity);
    const [mine] = query.listMaximalNodes(range(start, end)), [other] = hit.listMaximalNodes(range(first, last));
    if (mine !== undefined) this.add(mine, other, similarity);
  }

  // Pair what remains of two matching parts, signs and brackets, in order.
  pairSigns(ours, theirs) {
    const { query, hit, used } = this;
    const { names, signs, leaves } = query;
    const namesThere = hit.names;
    const [start, end] = query.extents[ours];
    // Signs of the hit before `at` are taken or passed.
    let [at, last] = hit.extents[theirs];
    for (let leaf = start; leaf < end; leaf++) {
      if (this.partners[leaf] !== null || names[leaf]) continue;
      const sign = signs[leaf];
      let there = at;
      while (there < last && (namesThere[there] || used.has(hit.leaves[there]) || sign !== hit.signs[there])) there++;
      if (there === last) continue;
      at = there + 1;
      this.setPartner(leaf, there, at, SAME_SIMILARITY);
      this.add(leaves[leaf], hit.leaves[there], SAME_SIMILARITY);
    }
  }

  // Pair fractions, scripts and rows whose leaves match each other, and nothing else does.
  pairInnerNodes() {
    // For each leaf of the hit the last node whose leaves match it.
    const { query, hit } = this, covered = new Array(hit.leaves.length).fill(null);
    for (const node of query.nodes) {
      const { start, end } = node;
      if (!node.children.length || start === end || this.pairings[node.index] !== null) continue;
      const partners = this.partners.slice(start, end);
      if (partners.includes(null)) continue;
      const first = Math.min(...partners.map((partner) => partner.start));
      const last = Math.max(...partners.map((partner) => partner.end));
      let total = 0, size = 0;
      for (const partner of partners) {
        total += partner.similarity;
        for (let there = partner.start; there < partner.end; there++) {
          if (covered[there] !== node) size++;
          covered[there] = node;
        }
      }
      if (size < last - first) continue;
      const other = hit.nodes.find((there) =>
        there.start === first
          && there.end === last
          && there.children.length
          && !this.used.has(there)
          && haveSameRole(node.tag, there.tag));
      if (other !== undefined) this.add(node, other, total / (end - start));
    }
  }
}

// Presentation trees, each with its operator tree if operator trees are given.
function readPresentations(forest, operators) {
  const parsed = operators ? readOperatorTrees(operators) : [];
  return Array.from(readPresentationTrees(forest), (nodes, at) => new Presentation(nodes, parsed[at]));
}

/**
 * Explain hits, all in the format of columns.mjs.
 * @param {object} query
 * @param {object} hits
 * @param {?{query: object, hits: object}} operators operator trees; if they are given, only relations are found
 * @param {string[][]} forms for each hit the names of the forms that it has in common with the query
 * @returns {object[]}
 */
export function explainHits(query, hits, operators, forms) {
  forgetSymbols();
  forgetParts();
  const [asked] = readPresentations(query, operators?.query), explainer = new Explainer(asked);
  return readPresentations(hits, operators?.hits).map((hit, at) => explainer.explain(hit, forms[at], !operators));
}
