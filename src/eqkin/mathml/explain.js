// Explain hits: how each is related to the query, which of its parts match which parts of the query, under what names.
//
// Operator trees are matched (matching.js), and the matching nodes are shown in the presentation trees. A leaf matches a
// leaf; the signs between matching operands match in order; an inner node (a fraction, a row) matches another if all
// leaves below the one match all leaves below the other.

const SAME_SIMILARITY = 1; // of parts with the same label
const RENAMED_SIMILARITY = 0.75; // of letters with different names
const WILDCARD_SIMILARITY = 0.5; // of a wildcard and what it matches
const MIN_PART_NODES = 3; // of an operator tree that counts as a part of another
const MIN_RENAMED_OPERATORS = 2; // of one that counts as a part of another under other names
const DISSOLVED_TAGS = words("mrow mstyle mpadded math"); // a row like any other
const GROUP_TAGS = words("mrow mstyle mpadded math mtd menclose merror mphantom mtable mtr semantics"); // their extent says nothing about operands
const SCRIPT_NAMES = { munder: "msub", mover: "msup", munderover: "msubsup" };
const OPENING_SIGNS = new Set("([{⟨⌊⌈"), CLOSING_SIGNS = new Set(")]}⟩⌋⌉"), BARS = new Set("|∥");
const FINAL_PUNCTUATION = new Set(".,;:");
const COMPOSED_SIGN = /[_.′^]/; // in the names of variables with an index, an accent or an exponent
const COMBINING_ACCENTS = { hat: "\u0302", tilde: "\u0303", check: "\u030c", breve: "\u0306" };
const WILDCARD_NAME = /^\?[\p{L}\p{N}_]+$/u;
const nameTag = (tag) => SCRIPT_NAMES[tag] ?? tag;
const haveSameRole = (tag, other) => nameTag(tag) === nameTag(other) || (DISSOLVED_TAGS.has(tag) && DISSOLVED_TAGS.has(other));

// A presentation tree: its nodes, breadth first, the visible leaves below each of them in reading order, and the operator
// tree that is parsed from it.
class Presentation {
  constructor(forest, start, size) {
    const parser = forest.openTree(start, size), end = start + size;
    this.tags = forest.tag.slice(start, end);
    this.meanings = forest.meaning.slice(start, end);
    this.counts = forest.count.subarray(start, end);
    this.first = forest.first.slice(start, end).map((node) => node - start); // child
    this.leaves = [];
    this.signs = []; // of the leaves
    this.starts = new Array(size); // the first leaf of each node, and the one after its last
    this.ends = new Array(size);
    this.shown = []; // what the formula shows, without spaces and styles
    this.wildcards = [];
    this.readLeaves(0);
    this.depths = [0]; // brackets that are open before each leaf, and after the last
    for (const sign of this.signs) this.depths.push(lastOf(this.depths) + OPENING_SIGNS.has(sign) - CLOSING_SIGNS.has(sign));
    this.tree = listNodes(parseTree(parser, true), start);
    this.known = []; // extents
    this.nameLeaves = null;
  }

  readLeaves(node) {
    const { tags, counts, first } = this, { raw, shown } = this.meanings[node];
    this.starts[node] = this.leaves.length;
    if (tags[node] === "mi" && raw[0] === "?" && WILDCARD_NAME.test(raw) && !this.wildcards.includes(raw)) this.wildcards.push(raw);
    if (counts[node]) {
      const isShown = !DISSOLVED_TAGS.has(tags[node]);
      if (isShown) this.shown.push(nameTag(tags[node]) + "(");
      for (let child = first[node], end = child + counts[node]; child < end; child++) this.readLeaves(child);
      if (isShown) this.shown.push(")");
    } else if (shown && tags[node] !== "mspace") {
      this.leaves.push(node);
      this.signs.push(shown);
      this.shown.push(shown);
    }
    this.ends[node] = this.leaves.length;
  }

  // The presentation node of a node of the operator tree.
  findNode(node) {
    const origin = this.tree.origins[node], script = this.tree.scripts.get(node);
    return script !== undefined && this.counts[origin] > 1 ? this.first[origin] + script : origin;
  }

  // The leaves of the presentation node of a node of the operator tree.
  spanOf(node) {
    const origin = this.findNode(node), first = this.first[origin];
    if (this.counts[origin] > 1 && TERNARY_TAGS.has(this.tags[origin]) && this.tree.isLeaf(node)) return [this.starts[first], this.ends[first + 1]]; // a name with an index: without the exponent
    return [this.starts[origin], this.ends[origin]];
  }

  // The leaves from the first to the last of each node of the operator tree; [0, 0] if it has none.
  get extents() {
    const { tree, known, signs } = this, before = known.length; // matching may have added nodes since, none of them below others
    for (let node = tree.labels.length - 1; node >= before; node--) {
      const [from, to] = this.spanOf(node);
      let start = Infinity, end = 0;
      for (const child of tree.children[node]) {
        const [first, last] = known[child];
        if (first >= last) continue;
        start = Math.min(start, first);
        end = Math.max(end, last);
      }
      if (from < to) {
        let isGroup = GROUP_TAGS.has(this.tags[this.findNode(node)]);
        if (isGroup && OPENING_SIGNS.has(signs[from])) isGroup = end > 0 && (from !== start - 1 || to !== end + 1);
        if (!isGroup) {
          start = Math.min(start, from);
          end = Math.max(end, to);
        }
      }
      if (end && from === start && to === start + 1 && BARS.has(signs[start])) {
        const bar = signs.indexOf(signs[start], end);
        end = bar < 0 ? end : bar + 1;
      }
      known[node] = end ? this.balance(start, end) : [0, 0];
    }
    return known;
  }

  // Extend leaves to the brackets that close those opened among them.
  balance(start, end) {
    const { depths } = this;
    for (let leaf = end; leaf < depths.length; leaf++) if (depths[leaf] <= depths[start]) return [start, leaf];
    return [start, end];
  }

  // Whether a leaf of the operator tree is written, not implied as the exponent 1/2 of a root is.
  isWritten(node) {
    return !this.tree.isLeaf(node) || !this.counts[this.findNode(node)] || COMPOSED_SIGN.test(this.tree.labels[node]);
  }

  // Which leaves are names, numbers and other operands, not signs.
  get names() {
    if (this.nameLeaves !== null) return this.nameLeaves;
    this.nameLeaves = new Uint8Array(this.leaves.length);
    for (let node = 0; node < this.tree.labels.length; node++) {
      if (!this.tree.isLeaf(node) || !this.isWritten(node)) continue;
      const [start, end] = this.spanOf(node);
      this.nameLeaves.fill(1, start, end);
    }
    return this.nameLeaves;
  }

  // The nodes whose leaves are all among these, without those below them.
  listMaximalNodes(leaves, node = 0, found = []) {
    const start = this.starts[node], end = this.ends[node];
    let isInside = start < end;
    for (let leaf = start; leaf < end && isInside; leaf++) isInside = leaves.has(leaf);
    if (isInside) found.push(node);
    else if (start < end) for (let child = this.first[node]; child < this.first[node] + this.counts[node]; child++) this.listMaximalNodes(leaves, child, found);
    return found;
  }

  isSameAs({ tags, meanings, counts }) {
    return tags.length === this.tags.length && tags.every((tag, node) => tag === this.tags[node] && meanings[node] === this.meanings[node] && counts[node] === this.counts[node]);
  }
}

// A query, prepared for comparison with many hits.
class Explainer {
  constructor(query) {
    this.query = query;
    this.shown = [...query.shown];
    while (this.shown.length > 1 && FINAL_PUNCTUATION.has(lastOf(this.shown))) this.shown.pop();
  }

  // `forms` names the forms that both statements have in common.
  explain(hit, forms, isComplete) {
    const [relation, found] = this.findRelation(hit, new Set(forms));
    if (!isComplete) return { relation };
    const { query } = this, match = found ?? new TreeAligner(query.tree, hit.tree).align(), explained = new PartPairs(query, hit, match);
    const pairings = explained.listPairings(), changes = relation ? listChanges(query.tree, hit.tree, match) : [];
    if (relation === "rewritten" && !changes.length) changes.push("notation");
    return { relation, pairings, renaming: listRenaming(query.tree, match), bindings: explained.listBindings(query.wildcards), changes };
  }

  // The relation of a hit to the query, and the match that shows it.
  findRelation({ tree, shown }, forms) {
    const ours = this.query.tree;
    let match = matchTrees(ours, tree);
    if (ours.isOpen[0]) return [match === null ? "" : match.whole ? "same" : "contains", match];
    if (this.shown.every((sign, at) => sign === shown[at]) && shown.slice(this.shown.length).every((sign) => FINAL_PUNCTUATION.has(sign))) return ["same", match];
    if (match?.whole || forms.has("canonical") || forms.has("weak")) return ["rewritten", match];
    const renamed = matchTrees(ours, tree, { rename: true, part: false });
    if (renamed !== null || forms.has("renamed")) return ["renamed", renamed];
    if (match !== null) return ["contains", match];
    for (const [relation, pattern, other, rename] of [["contains", ours, tree, true], ["part of", tree, ours, false], ["part of", tree, ours, true]]) {
      if (!isPartWorthNaming(pattern, rename)) continue;
      match = matchTrees(pattern, other, { rename });
      if (match !== null) return [relation, pattern === ours ? match : invertMatch(match)];
    }
    return ["", null];
  }
}

// Whether it says something that a tree occurs in another: a letter occurs in most of them.
function isPartWorthNaming(tree, rename) {
  const operators = tree.children.reduce((count, { length }) => count + (length > 0), 0);
  return rename ? operators >= MIN_RENAMED_OPERATORS : operators > 0 && tree.size >= MIN_PART_NODES;
}

function invertMatch({ pairs, renaming }) {
  return { whole: false, pairs: pairs.map(([ours, theirs]) => [theirs, ours]), renaming: new Map([...renaming].map(([ours, theirs]) => [theirs, ours])), bindings: new Map() };
}

// In which ways matching operands have another order.
function listChanges(ours, theirs, { pairs }) {
  const partner = new Map(pairs), changes = new Set();
  for (const [node, other] of pairs) {
    if (node >= ours.size || other >= theirs.size || !commutes(ours.labels[node])) continue;
    const order = ours.children[node].map((child) => theirs.children[other].indexOf(partner.get(child))).filter((place) => place >= 0);
    if (order.some((place, at) => place < order[at - 1])) changes.add(DIVISIBLE_RELATIONS.has(ours.labels[node]) ? "sides swapped" : "commuted");
  }
  return [...changes].sort();
}

const partition = (text, sign) => (text.includes(sign) ? [text.slice(0, text.indexOf(sign)), sign, text.slice(text.indexOf(sign) + 1)] : [text, "", ""]);

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
    this.pairings = new Array(query.tags.length).fill(null); // lists of [node, node of the hit, similarity], by node
    this.partner = new Array(query.leaves.length).fill(null); // of each leaf of the query: the first leaf of the hit, the one after the last, similarity
    this.used = new Uint8Array(hit.tags.length); // nodes of the hit
    this.extents = query.extents;
    this.extentsThere = hit.extents;
  }

  // All pairs of matching presentation nodes, in the order of the query's nodes.
  listPairings() {
    const { query, hit, match } = this, ours = query.tree, theirs = hit.tree;
    if (!ours.isOpen[0] && query.isSameAs(hit)) return query.tags.map((_, node) => [node, node, SAME_SIMILARITY]);
    const inner = [], bound = new Map(); // wildcards and the leaves they match
    for (const pair of match.pairs) {
      const [node, there] = pair;
      if (match.bindings.size && ours.wildcardAt(node)) {
        if (!bound.has(node)) bound.set(node, new Set());
        for (let [leaf, end] = this.extentsThere[there]; leaf < end; leaf++) bound.get(node).add(leaf);
      } else if (!ours.isLeaf(node) && !theirs.isLeaf(there)) inner.push(pair);
      else if (query.isWritten(node) && hit.isWritten(there)) this.pairNames(query.spanOf(node), hit.spanOf(there), ours.named[node] === theirs.named[there]);
    }
    for (const [node, leaves] of bound) this.pairWildcard(node, leaves);
    const extent = ([node]) => this.extents[node][1] - this.extents[node][0];
    inner.sort((a, b) => extent(a) - extent(b) || a[0] - b[0] || a[1] - b[1]);
    for (const [node, there] of inner) this.pairSigns(this.extents[node], this.extentsThere[there]); // small parts first
    this.pairInnerNodes();
    return this.pairings.flatMap((found) => found ?? []);
  }

  // The nodes of the hit that each wildcard matches, without those below them.
  listBindings(names) {
    const { bindings } = this.match;
    return names.filter((name) => bindings.has(name)).map((name) => [name, this.hit.listMaximalNodes(this.listLeaves(bindings.get(name)))]);
  }

  // The leaves of operands, with the signs before all but the first.
  listLeaves(nodes) {
    const leaves = new Set(), { hit } = this;
    for (let [start, end] of nodes.map((node) => this.extentsThere[node]).sort((a, b) => a[0] - b[0] || a[1] - b[1])) {
      while (leaves.size && start && !leaves.has(start - 1)) {
        const before = hit.leaves[start - 1];
        if (hit.tags[before] !== "mo" && hit.meanings[before].raw !== "/") break;
        start--;
      }
      for (; start < end; start++) leaves.add(start);
    }
    return leaves;
  }

  add(ours, theirs, similarity) {
    if (this.pairings[ours] !== null || this.used[theirs]) return;
    this.pairings[ours] = [[ours, theirs, similarity]];
    this.used[theirs] = 1;
  }

  pairWildcard(ours, leaves) {
    const node = this.query.findNode(ours), found = this.hit.listMaximalNodes(leaves);
    if (!found.length) return;
    this.pairings[node] = found.map((there) => [node, there, WILDCARD_SIMILARITY]);
    for (const there of found) this.used[there] = 1;
    this.partner[this.query.starts[node]] = [Math.min(...leaves), Math.max(...leaves) + 1, WILDCARD_SIMILARITY];
  }

  // Pair the leaves of two names; leaf by leaf, if both have the same number.
  pairNames([start, end], [first, last], isSame) {
    const { query, hit } = this;
    if (first === last) return;
    for (let leaf = start; leaf < end; leaf++) if (this.partner[leaf] !== null) return;
    if (end - start === last - first) {
      for (let leaf = start, there = first; leaf < end; leaf++, there++) {
        const similarity = isSame || query.signs[leaf] === hit.signs[there] ? SAME_SIMILARITY : RENAMED_SIMILARITY;
        this.partner[leaf] = [there, there + 1, similarity];
        this.add(query.leaves[leaf], hit.leaves[there], similarity);
      }
      return;
    }
    const similarity = isSame ? SAME_SIMILARITY : RENAMED_SIMILARITY, range = (from, to) => new Set(Array.from({ length: to - from }, (_, k) => from + k));
    for (let leaf = start; leaf < end; leaf++) this.partner[leaf] = [first, last, similarity];
    const [mine] = query.listMaximalNodes(range(start, end)), [other] = hit.listMaximalNodes(range(first, last));
    if (mine !== undefined) this.add(mine, other, similarity);
  }

  // Pair what remains of two matching parts, signs and brackets, in order.
  pairSigns([start, end], [first, last]) {
    const { query, hit } = this, { names } = query, namesThere = hit.names;
    let at = first; // signs of the hit before it are taken or passed
    for (let leaf = start; leaf < end; leaf++) {
      if (this.partner[leaf] !== null || names[leaf]) continue;
      let there = at;
      while (there < last && (query.signs[leaf] !== hit.signs[there] || namesThere[there] || this.used[hit.leaves[there]])) there++;
      if (there === last) continue;
      at = there + 1;
      this.partner[leaf] = [there, there + 1, SAME_SIMILARITY];
      this.add(query.leaves[leaf], hit.leaves[there], SAME_SIMILARITY);
    }
  }

  // Pair fractions, scripts and rows whose leaves match each other, and nothing else does.
  pairInnerNodes() {
    const { query, hit, partner } = this, bySpan = new Map(), span = (start, end) => start * (hit.leaves.length + 1) + end;
    for (let node = 0; node < hit.tags.length; node++) {
      if (!hit.counts[node] || this.used[node]) continue;
      const key = span(hit.starts[node], hit.ends[node]);
      bySpan.has(key) ? bySpan.get(key).push(node) : bySpan.set(key, [node]);
    }
    const covered = new Uint32Array(hit.leaves.length); // the last node whose leaves match each, plus one
    for (let node = 0; node < query.tags.length; node++) {
      const start = query.starts[node], end = query.ends[node];
      if (!query.counts[node] || start === end || this.pairings[node] !== null) continue;
      let leaf = start, first = Infinity, last = 0, total = 0, size = 0;
      for (; leaf < end && partner[leaf] !== null; leaf++) {
        const [from, to, similarity] = partner[leaf];
        first = Math.min(first, from);
        last = Math.max(last, to);
        total += similarity;
        for (let there = from; there < to; there++) {
          size += covered[there] !== node + 1;
          covered[there] = node + 1;
        }
      }
      if (leaf < end || size < last - first) continue;
      const others = bySpan.get(span(first, last)) ?? [], at = others.findIndex((other) => haveSameRole(query.tags[node], hit.tags[other]));
      if (at >= 0) this.add(node, others.splice(at, 1)[0], total / (end - start));
    }
  }
}

// Explanations of hits, as JSON; those that are not `complete` say only how a hit is related to the query. The batch has
// the query and then the hits; `signs` is what leaves with each of the texts show, "" for nothing.
function explainHits(json) {
  const { signs, forms, complete, ...batch } = JSON.parse(json), forest = new PresentationForest(batch);
  forgetParts();
  signs.forEach((sign, text) => { forest.tables.meanings[text].shown = sign; });
  let end = 0;
  const [query, ...hits] = batch.sizes.map((size) => new Presentation(forest, (end += size) - size, size));
  const explainer = new Explainer(query);
  return JSON.stringify(hits.map((hit, at) => explainer.explain(hit, forms[at], complete)));
}
