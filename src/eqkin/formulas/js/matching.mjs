// Match operator trees: does one occur in another, as it is, under other names, or with wildcards filled in?
//
// A pattern matches a tree, or a part of it, node by node. Operands that commute match in any order. A part of a sum,
// a product, a chain of relations or a list is a part of the tree: `a + b` occurs in `a + b + c`. A wildcard (a
// variable `?x`) matches a whole operand; the last wildcard among operands that commute matches all that remain. The
// same wildcard matches the same everywhere. With `rename`, variables may have other names: always the same, and
// different ones for different variables.
//
// The search tries choices in a fixed order and gives up after a number of steps: it is deterministic and never slow.

import { iterTrees } from "./columns.mjs";
import { MAX_KNOWN, NO_CHILDREN, UNORDERED, words } from "./symbols.mjs";

// Steps of one search.
const MAX_STEPS = 3000;
// Trees with more nodes are only aligned where they are equal.
const MAX_ALIGNED_NODES = 400;
// Operands that are tried for one of the pattern.
const MAX_OPTIONS = 30;
// A choice among many operands takes as long as further steps.
const OPERANDS_PER_STEP = 100;
// Pairs of equal parts of two trees that are considered.
const MAX_EQUAL_PARTS = 3000;
// `a < c` is a part of `a < b < c`; only the first such parts are tried.
const MAX_CHAIN_PARTS = 60;
// Weight of a part with the same names, compared with one that is renamed.
const NAMED_WEIGHT = 2;
export const DIVISIBLE_RELATIONS = words("= ≠ < ≤ ≈ ~ ∝ ∈ ⊂ → ≪ ≺ ≼ ⇔ ⇒");
// Only the content of a bracket decides which of the two `a(b + c)` is.
const APPLICATIONS = words("app *");
// What a function is differentiated by, if that is not written.
const ANY = "any";
const NAME_WITH_INDEX = /^v:(.+)_([\p{L}\p{Nl}\p{No}]+|\p{Nd}+)$/u, NAME_WITH_ACCENT = /^v:(.+)\.([a-z]+)$/;
// What a step returns instead of a goal if its choice was wrong.
const FAILED = { failed: true };
const isVariable = (label) => label.startsWith("v:");
const isWildcard = (label) => label.startsWith("v:?");
export const commutes = (label) => UNORDERED.has(label);

// Numbers of parts of trees: equal parts have the same. A label has a number, and so has a number with one that
// follows it: `+(a, b)` is the number of `+`, followed by that of `a`, followed by that of `b`.
class PartNumbers {
  constructor() {
    // What `describe` returned.
    this.labels = new Map();
    // The numbers of pairs, by first and by second.
    this.pairs = [];
    this.size = 0;
  }

  // The number of a number and the one that follows it.
  follow(first, second) {
    const followers = (this.pairs[first] ??= new Map());
    let number = followers.get(second);
    if (number === undefined) followers.set(second, (number = ++this.size));
    return number;
  }

  // The number of an operator with operands of these numbers, in any order if they commute.
  numberOperands({ number, isUnordered }, operands) {
    if (isUnordered && operands.length > 1) operands.sort((a, b) => a - b);
    for (const operand of operands) number = this.follow(number, operand);
    return number;
  }

  // What is known of a label: its number, its numbers as a leaf, with its name and without, whether it is a wildcard,
  // and whether operands commute.
  describe(label) {
    let found = this.labels.get(label);
    if (found === undefined) {
      found = { number: ++this.size, named: this.size, anonymous: this.size, isOpen: isWildcard(label),
        isUnordered: commutes(label) };
      this.labels.set(label, found);
      if (isVariable(label) && label !== "v:") found.anonymous = this.describe("v:").number;
      const [operator, ...names] = splitName(label) ?? [];
      if (names.length)
        found.named = this.numberOperands(this.describe(operator), names.map((name) => this.describe(name).named));
    }
    return found;
  }
}
let parts = new PartNumbers();

// Called between batches.
export function forgetParts() {
  if (parts.size > MAX_KNOWN) parts = new PartNumbers();
}

// Operator and operands of a variable with an index or an accent; null for any other label.
function splitName(label) {
  if (isWildcard(label) || !isVariable(label)) return null;
  let found = NAME_WITH_INDEX.exec(label);
  if (found !== null) {
    const [, base, index] = found;
    return ["idx", "v:" + base,
      ...(/^\p{Nd}/u.test(index) ? ["n:" + index] : [...index].map((letter) => "v:" + letter))];
  }
  found = NAME_WITH_ACCENT.exec(label);
  return found !== null ? [found[2], "v:" + found[1]] : null;
}

// One tree, its nodes in depth-first order, with the numbers of all of its parts.
class OperatorTree {
  constructor(labels, depths, origins = null) {
    const count = labels.length;
    // The last node of each depth.
    const path = [];
    // Without nodes that are added later.
    this.size = count;
    // How many nodes have operands.
    this.operators = 0;
    this.labels = labels;
    // The presentation node of each node.
    this.origins = origins;
    // Of added nodes: their position among the children of their origin.
    this.scripts = [];
    this.expanded = new Map();
    this.parents = [];
    this.children = [];
    this.sizes = [];
    this.named = [];
    this.anonymousNumbers = null;
    // Whether a part has wildcards.
    this.isOpen = [];
    for (let node = 0; node < count; node++) {
      const { named, isOpen } = parts.describe(labels[node]);
      const depth = depths[node];
      const parent = depth ? path[depth - 1] : -1;
      this.named[node] = named;
      this.isOpen[node] = isOpen;
      this.children[node] = NO_CHILDREN;
      this.sizes[node] = 1;
      this.parents[node] = parent;
      path[depth] = node;
      if (parent < 0) continue;
      if (this.isLeaf(parent)) this.children[parent] = [];
      this.children[parent].push(node);
    }
    for (let node = count - 1; node >= 0; node--) if (!this.isLeaf(node)) this.describe(node);
  }

  // Compute size and number of a part, after those of its operands.
  describe(node) {
    const children = this.children[node];
    for (const child of children) {
      this.sizes[node] += this.sizes[child];
      this.isOpen[node] ||= this.isOpen[child];
    }
    const named = children.map((child) => this.named[child]);
    this.named[node] = parts.numberOperands(parts.describe(this.labels[node]), named);
    this.operators++;
  }

  // The numbers of all parts without names of variables; patterns do not need them.
  get anonymous() {
    if (this.anonymousNumbers !== null) return this.anonymousNumbers;
    const numbers = (this.anonymousNumbers = []);
    for (let node = 0; node < this.labels.length; node++) numbers[node] = parts.describe(this.labels[node]).anonymous;
    for (let node = this.size - 1; node >= 0; node--) {
      // Whether an index is part of the name depends on the formula.
      const label = this.labels[node], children = this.children[node], base = children[0];
      if (!children.length) continue;
      const isName = label === "idx" && isVariable(this.labels[base]) && this.isLeaf(base);
      numbers[node] = isName
        ? parts.describe("v:").number
        : parts.numberOperands(parts.describe(label), children.map((child) => numbers[child]));
    }
    return numbers;
  }

  // The name of a wildcard (`?x`); "" for any other node.
  wildcardAt(node) {
    return isWildcard(this.labels[node]) ? this.labels[node].slice(2) : "";
  }

  // Operator and operands; of a name with an index or an accent (`v:x_1`), those it was made of.
  expand(node) {
    if (this.children[node].length) return [this.labels[node], this.children[node]];
    let found = this.expanded.get(node);
    if (found === undefined) {
      const [label, ...names] = splitName(this.labels[node]) ?? [this.labels[node]];
      this.expanded.set(node, found = [label, names.map((name, at) => this.add(node, name, Math.min(at, 1)))]);
    }
    return found;
  }

  listOperands(node) {
    return this.isLeaf(node) ? this.expand(node)[1] : this.children[node];
  }

  add(parent, label, script) {
    const node = this.labels.length, { named, anonymous, isOpen } = parts.describe(label);
    this.labels.push(label);
    this.origins?.push(this.origins[parent]);
    this.parents.push(-1);
    this.scripts.push(script);
    this.children.push(NO_CHILDREN);
    this.sizes.push(1);
    this.named.push(named);
    this.anonymousNumbers?.push(anonymous);
    this.isOpen.push(isOpen);
    return node;
  }

  isLeaf(node) {
    return this.children[node] === NO_CHILDREN;
  }
}

// Operator trees in the format of columns.mjs.
export function readOperatorTrees(operators) {
  const { labels, sizes, label, depth } = operators;
  return Array.from(iterTrees(sizes, [label, depth]),
    ([own, depths]) => new OperatorTree(own.map((number) => labels[number]), depths));
}

// The tree of a node that was parsed, with the presentation nodes.
export function listNodes(root) {
  const labels = [], depths = [], origins = [];
  const add = (node, depth) => {
    labels.push(node.kind.name);
    depths.push(depth);
    origins.push(node.at);
    for (const child of node.children) add(child, depth + 1);
  };
  add(root, 0);
  return new OperatorTree(labels, depths, origins);
}

/**
 * Find the first match of a tree or, unless `part` is false, of a part of it.
 * @param {OperatorTree} pattern
 * @param {OperatorTree} tree
 * @param {{rename?: boolean, part?: boolean, limit?: number}} options whether variables may have other names, whether
 *   a part may match, and the steps of the search
 * @returns {?{whole: boolean, pairs: number[][], renaming: Map<string, string>, bindings: Map<string, number[]>}}
 *   whether all of the tree matches, the pairs of nodes (a wildcard may have several), the names of variables in
 *   pattern and tree, and the operands that each wildcard matches
 */
export function matchTrees(pattern, tree, { rename = false, part = true, limit = MAX_STEPS } = {}) {
  if (!hasOperands(pattern, tree, rename)) return null;
  const search = new MatchSearch(pattern, tree, rename, limit);
  try {
    if (search.run(0, false)) return search.buildMatch(true);
    for (const partial of part ? [false, true] : [])
      for (const node of search.findStarts(partial)) if (search.run(node, partial)) return search.buildMatch(false);
  } catch (error) {
    if (error !== FAILED) throw error;
  }
  return null;
}

// Whether a tree has the operands of the pattern's root, where they must be equal up to names.
function hasOperands(pattern, tree, rename) {
  const label = pattern.labels[0];
  if (rename ? !commutes(label) : pattern.isOpen[0] || !(commutes(label) || DIVISIBLE_RELATIONS.has(label)))
    return true;
  const ours = rename ? pattern.anonymous : pattern.named, theirs = rename ? tree.anonymous : tree.named;
  return pattern.children[0].every((child) => theirs.includes(ours[child]));
}

// Names of variables in a pattern and in a tree, each used once.
class VariableNames {
  constructor() {
    // In the order they were added.
    this.names = new Map();
    this.taken = new Set();
  }

  // Whether two leaves can be the same; if they are variables, they are from now on.
  add(label, other) {
    if (!isVariable(label) || !isVariable(other)) return label === other;
    if (this.names.has(label) || this.taken.has(other)) return this.names.get(label) === other;
    this.names.set(label, other);
    this.taken.add(other);
    return true;
  }

  // Forget all names but the first ones.
  undo(count) {
    if (this.names.size === count) return;
    for (const [label, other] of [...this.names].slice(count)) {
      this.taken.delete(other);
      this.names.delete(label);
    }
  }
}

// Operands of the pattern that must match operands of the tree; then comes the goal `then`.
class Goal {
  constructor(ours, theirs, joiner, partial, then, waited = false) {
    this.ours = ours;
    this.theirs = theirs;
    // Operator whose operands commute; "" if they are in order.
    this.joiner = joiner;
    // Some of theirs may remain.
    this.partial = partial;
    this.then = then;
    // For wildcards that other goals may bind.
    this.waited = waited;
  }
  with(ours, theirs) {
    return new Goal(ours, theirs, this.joiner, this.partial, this.then, this.waited);
  }
}

function appendGoal(goal, last) {
  const then = goal.then === null ? last : appendGoal(goal.then, last);
  return new Goal(goal.ours, goal.theirs, goal.joiner, goal.partial, then, goal.waited);
}

// Whether a node of a pattern may match another, as far as their labels show.
const areCompatible = (label, other) =>
  label === other || (APPLICATIONS.has(label) ? APPLICATIONS.has(other) : isVariable(other));

// Backtracking search. A step returns the remaining goal, null if none remains, or FAILED.
class MatchSearch {
  constructor(pattern, tree, rename, limit, renaming = new VariableNames()) {
    this.pattern = pattern;
    this.tree = tree;
    this.rename = rename;
    this.left = limit;
    this.pairs = [];
    // What wildcards are bound to, in the order of binding.
    this.bound = new Map();
    this.renaming = renaming;
    // From the start.
    this.knownNames = renaming.names.size;
    this.choices = [];
  }

  // Undo all that was done after a choice.
  restore(pairs, bound, names) {
    this.pairs.length = pairs;
    if (this.bound.size > bound) for (const name of [...this.bound.keys()].slice(bound)) this.bound.delete(name);
    this.renaming.undo(names);
  }

  // The nodes that the pattern's root can match, as far as labels and numbers show.
  findStarts(partial) {
    const { pattern, tree } = this, [label] = pattern.labels, found = [];
    if (partial && !commutes(label) && !DIVISIBLE_RELATIONS.has(label) && label !== "frac") return found;
    const isAny = isWildcard(label);
    const ours = (this.rename ? pattern.anonymous : pattern.named)[0];
    const theirs = this.rename ? tree.anonymous : tree.named;
    for (let node = 0; node < tree.size; node++) {
      const other = tree.labels[node];
      if (partial ? label === other : this.isOpen(0) ? isAny || areCompatible(label, other) : ours === theirs[node])
        found.push(node);
    }
    return found;
  }

  // Whether a node of the pattern matches a node of the tree.
  run(node, partial, ours = 0) {
    this.restore(0, 0, this.knownNames);
    let goal = new Goal([ours], [node], "", partial, null);
    while (goal !== null) {
      if (goal === FAILED) {
        if (!this.choices.length) return false;
        const choice = this.choices.pop();
        goal = choice.goal;
        this.restore(choice.pairs, choice.bound, choice.names);
      }
      if (--this.left < 0) throw FAILED;
      goal = this.step(goal);
    }
    return true;
  }

  buildMatch(whole) {
    const bindings = new Map([...this.bound].map(([name, { nodes }]) => [name, nodes]));
    return { whole, pairs: this.pairs, renaming: this.renaming.names, bindings };
  }

  wildcardAt(node) {
    return this.rename ? "" : this.pattern.wildcardAt(node);
  }

  isOpen(node) {
    return !this.rename && this.pattern.isOpen[node];
  }

  step(goal) {
    const { ours, theirs } = goal;
    if (!ours.length) return theirs.length && !goal.partial ? FAILED : goal.then;
    if (ours.length > theirs.length) return FAILED;
    if (goal.joiner) return this.matchCommuting(goal);
    if (ours.length === 1 && theirs.length > 1) return FAILED;
    return this.matchNodes(ours[0], theirs[0], goal.partial,
      ours.length > 1 ? goal.with(ours.slice(1), theirs.slice(1)) : goal.then);
  }

  matchNodes(ours, theirs, partial, then) {
    const { pattern, tree } = this, name = this.wildcardAt(ours);
    if (name) return this.bind(ours, name, [theirs], "", then);
    if (!this.rename && !this.isOpen(ours) && !partial) {
      if (pattern.named[ours] !== tree.named[theirs]) return FAILED;
      pairEqualParts(pattern, ours, tree, theirs, this.pairs);
      return then;
    }
    this.pairs.push([ours, theirs]);
    if (pattern.isLeaf(ours) && tree.isLeaf(theirs))
      return this.matchLeaves(pattern.labels[ours], tree.labels[theirs]) ? then : FAILED;
    const [label, mine] = pattern.expand(ours), [other, others] = tree.expand(theirs);
    if (!mine.length || !others.length) return FAILED;
    if (label !== other) return this.matchApplication(label, other, mine, others, then);
    if (commutes(label)) return new Goal(this.sortOperands(mine), others, label, partial, then);
    if (partial && label === "frac") {
      for (const at of [1, 0])
        then = new Goal(this.listFactors(pattern, mine[at]), this.listFactors(tree, others[at]), "*", true, then);
      return then;
    }
    if (partial && DIVISIBLE_RELATIONS.has(label)) {
      const combinations = listCombinations(others, mine.length, MAX_CHAIN_PARTS);
      return this.choose(combinations.map((members) => new Goal(mine, members, "", false, then)));
    }
    if (label === "frac") return this.matchFraction(mine, others, then);
    return mine.length === others.length ? new Goal(mine, others, "", false, then) : FAILED;
  }

  // A wildcard above may be a fraction itself: the tree of `\frac{a/b}{x}` is a/(bx).
  matchFraction(mine, others, then) {
    const { pattern, tree } = this, goals = [new Goal(mine, others, "", false, then)];
    if (this.wildcardAt(mine[0]) && !this.isOpen(mine[1])) {
      const left = [...this.listFactors(tree, others[1])], same = [], factors = this.listFactors(pattern, mine[1]);
      for (const factor of factors) {
        const at = left.findIndex((node) => tree.named[node] === pattern.named[factor]);
        if (at >= 0) same.push(...left.splice(at, 1));
      }
      if (left.length && same.length && same.length === factors.length)
        goals.push(new Goal(factors, same, "*", false, new Goal([mine[0]], [others[0], ...left], "frac", false, then)));
    }
    return this.choose(goals);
  }

  matchLeaves(label, other) {
    if (label === ANY || other === ANY) return label === other || isVariable(label) || isVariable(other);
    return this.rename ? this.renaming.add(label, other) : label === other;
  }

  // `a(?x)` matches `a(x + 1)`, where only the bracket's content decides whether it is a product.
  matchApplication(label, other, mine, others, then) {
    if (!APPLICATIONS.has(label)
      || !APPLICATIONS.has(other)
      || mine.length !== 2
      || !mine.some((node) => this.wildcardAt(node)))
      return FAILED;
    if (other === "app") return others.length === 2 ? new Goal(mine, others, "", false, then) : FAILED;
    return new Goal(this.sortOperands(mine), others, "*", false, then);
  }

  listFactors(tree, node) {
    if (tree.labels[node] === "*")
      return tree === this.pattern ? this.sortOperands(tree.children[node]) : tree.children[node];
    return tree.labels[node] === "n:1" && tree === this.pattern ? [] : [node];
  }

  // Operands of the pattern: those without wildcards first, wildcards last.
  sortOperands(nodes) {
    const rank = (node) => (this.wildcardAt(node) ? 2 : 0) + (this.isOpen(node) ? 1 : 0), { sizes } = this.pattern;
    return [...nodes].sort((a, b) => rank(a) - rank(b) || sizes[b] - sizes[a]);
  }

  matchCommuting(goal) {
    const { pattern, tree } = this, [ours] = goal.ours;
    if (this.wildcardAt(ours)) return this.matchWildcards(goal);
    if (!this.rename && !this.isOpen(ours)) return this.matchClosed(goal);
    if (!this.rename)
      return this.chooseOperand(goal, ours,
        goal.theirs.filter((node) => areCompatible(pattern.labels[ours], tree.labels[node])));
    const options = goal.theirs.filter((node) => pattern.anonymous[ours] === tree.anonymous[node]);
    const hasSameNames = (node) => tree.named[node] === pattern.named[ours];
    return this.chooseOperand(goal, ours,
      options.length < 2
        ? options
        : [...options.filter(hasSameNames), ...options.filter((node) => !hasSameNames(node))]);
  }

  // All operands without wildcards match, each the first that is equal.
  matchClosed(goal) {
    const left = [...goal.theirs], closed = goal.ours.filter((node) => !this.isOpen(node));
    for (const ours of closed) {
      const at = left.findIndex((node) => this.tree.named[node] === this.pattern.named[ours]);
      if (at < 0) return FAILED;
      pairEqualParts(this.pattern, ours, this.tree, left.splice(at, 1)[0], this.pairs);
    }
    return goal.with(goal.ours.slice(closed.length), left);
  }

  chooseOperand(goal, ours, options) {
    const some = options.slice(0, MAX_OPTIONS);
    this.left -= Math.floor((some.length * goal.theirs.length) / OPERANDS_PER_STEP);
    const rest = goal.ours.filter((node) => node !== ours);
    return this.choose(some.map((theirs) =>
      new Goal([ours], [theirs], "", false, goal.with(rest, goal.theirs.filter((node) => node !== theirs)))));
  }

  // Wildcards, the only operands of the pattern that are left, match operands that commute.
  matchWildcards(goal) {
    for (const node of goal.ours) {
      const bound = this.bound.get(this.wildcardAt(node));
      if (bound !== undefined) return this.matchBound(goal, node, bound);
    }
    const [ours] = goal.ours;
    if (goal.ours.length === 1 && !goal.partial)
      return this.bind(ours, this.wildcardAt(ours), goal.theirs, goal.joiner, goal.then);
    if (goal.then !== null && !goal.waited)
      return appendGoal(goal.then, new Goal(goal.ours, goal.theirs, goal.joiner, goal.partial, null, true));
    return this.chooseOperand(goal, ours, goal.theirs);
  }

  // Take the operands that equal what a wildcard is bound to.
  matchBound(goal, ours, bound) {
    const wanted = bound.joiner === goal.joiner ? [...bound.operands] : [bound.named], taken = [], left = [];
    for (const node of goal.theirs) {
      const at = wanted.indexOf(this.tree.named[node]);
      (at < 0 ? left : taken).push(node);
      if (at >= 0) wanted.splice(at, 1);
    }
    if (wanted.length) return FAILED;
    for (const node of taken) this.pairs.push([ours, node]);
    return goal.with(goal.ours.filter((node) => node !== ours), left);
  }

  bind(ours, name, nodes, joiner, then) {
    const { tree } = this;
    const isOne = nodes.length === 1;
    const bound = this.bound.get(name);
    const numbers = (list) => list.map((node) => tree.named[node]);
    const named = isOne ? tree.named[nodes[0]] : parts.numberOperands(parts.describe(joiner), numbers(nodes));
    if (bound === undefined) {
      const operands = numbers(isOne ? tree.children[nodes[0]] : nodes);
      this.bound.set(name, { nodes, named, joiner: isOne ? tree.labels[nodes[0]] : joiner, operands });
    } else if (bound.named !== named) return FAILED;
    for (const node of nodes) this.pairs.push([ours, node]);
    return then;
  }

  // Continue with the first goal, and store the others for later.
  choose(goals) {
    for (let k = goals.length - 1; k > 0; k--)
      this.choices.push({ goal: goals[k], pairs: this.pairs.length, bound: this.bound.size,
        names: this.renaming.names.size });
    return goals.length ? goals[0] : FAILED;
  }
}

// The first `most` ways to choose so many members of a list in their order.
function listCombinations(list, count, most) {
  const found = [];
  const add = (start, members) => {
    if (found.length >= most) return;
    if (members.length === count) found.push(members);
    else for (let k = start; k <= list.length - (count - members.length); k++) add(k + 1, [...members, list[k]]);
  };
  add(0, []);
  return found;
}

// Pair the nodes of two parts with the same names, operands that commute with equal ones.
function pairEqualParts(pattern, ours, tree, theirs, pairs) {
  const stack = [[ours, theirs]];
  while (stack.length) {
    const pair = stack.pop(), [mine, other] = pair;
    pairs.push(pair);
    if (pattern.isLeaf(mine) && tree.isLeaf(other)) continue;
    const left = tree.listOperands(other).slice();
    for (const child of pattern.listOperands(mine)) {
      const at = left.findIndex((node) => tree.named[node] === pattern.named[child]);
      if (at >= 0) stack.push([child, left.splice(at, 1)[0]]);
    }
  }
}

// Pair parts of two trees under one renaming of variables: large parts first, then what is around and between. Parts
// with the same names count as twice as large as parts that are renamed.
export class TreeAligner {
  constructor(query, hit) {
    this.query = query;
    this.hit = hit;
    this.pairs = new Map();
    this.used = new Set();
    this.renaming = new VariableNames();
    this.left = MAX_STEPS;
  }

  align() {
    const { query, hit } = this;
    for (const [, ours, theirs] of this.listEqualParts().sort((a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2]))
      this.pairParts(ours, theirs);
    let queue = [...this.pairs];
    // Upwards, as long as the operators are the same.
    for (let at = 0; at < queue.length; at++) {
      const above = query.parents[queue[at][0]], aboveThere = hit.parents[queue[at][1]];
      if (above >= 0 && aboveThere >= 0 && this.pairOperators(above, aboveThere)) queue.push([above, aboveThere]);
    }
    this.pairOperators(0, 0);
    queue = [...this.pairs];
    // Downwards, what is left of their operands.
    for (let at = 0; at < queue.length; at++) queue.push(...this.pairOperands(...queue[at]));
    // Last, single letters.
    for (let ours = 0; ours < query.size; ours++) {
      if (!query.isLeaf(ours) || !isVariable(query.labels[ours]) || this.pairs.has(ours)) continue;
      const number = query.named[ours];
      let theirs = hit.named.indexOf(number);
      while (theirs >= 0
        && (!hit.isLeaf(theirs) || this.used.has(theirs))) theirs = hit.named.indexOf(number, theirs + 1);
      if (theirs >= 0 && theirs < hit.size) this.pairLeaves(ours, theirs);
    }
    return { whole: false, pairs: [...this.pairs].sort((a, b) => a[0] - b[0]), renaming: this.renaming.names,
      bindings: new Map() };
  }

  // Pairs of operators with equal parts below them, after a number to sort them by.
  listEqualParts() {
    const { query, hit } = this, found = [], isSmall = Math.max(query.size, hit.size) <= MAX_ALIGNED_NODES;
    const add = (numbers, number, node, weight) => {
      for (let there = numbers.indexOf(number); there >= 0; there = numbers.indexOf(number, there + 1))
        if (!hit.isLeaf(there)) found.push([-weight * query.sizes[node], node, there]);
    };
    for (let node = 0; node < query.size && found.length <= MAX_EQUAL_PARTS; node++) {
      if (query.isLeaf(node)) continue;
      add(hit.named, query.named[node], node, NAMED_WEIGHT);
      if (isSmall && query.anonymous[node] !== query.named[node]) add(hit.anonymous, query.anonymous[node], node, 1);
    }
    return found;
  }

  // Pair two parts, unless one of them is paired already or the names contradict.
  pairParts(ours, theirs) {
    if (this.pairs.has(ours) || this.used.has(theirs) || this.left <= 0) return;
    const search = new MatchSearch(this.query, this.hit, true, this.left, this.renaming);
    let found = false;
    try {
      found = search.run(theirs, false, ours);
    } catch (error) {
      if (error !== FAILED) throw error;
    }
    this.left = search.left;
    if (!found || search.pairs.some((pair) => this.pairs.has(pair[0]) || this.used.has(pair[1])))
      this.renaming.undo(search.knownNames);
    else for (const pair of search.pairs) this.pair(pair[0], pair[1]);
  }

  pair(ours, theirs) {
    this.pairs.set(ours, theirs);
    this.used.add(theirs);
  }

  pairOperators(ours, theirs) {
    const { query, hit } = this;
    if (this.pairs.has(ours)
      || this.used.has(theirs)
      || query.labels[ours] !== hit.labels[theirs]
      || query.isLeaf(ours)
      || hit.isLeaf(theirs))
      return false;
    this.pair(ours, theirs);
    return true;
  }

  // Pair operands of two operators that are not paired yet; return new pairs of operators.
  pairOperands(ours, theirs) {
    const { query, hit } = this, mine = query.children[ours], others = hit.children[theirs], found = [];
    const tryPair = (node, other) => {
      if (this.pairOperators(node, other)) found.push([node, other]);
      else if (query.isLeaf(node) && hit.isLeaf(other)) this.pairLeaves(node, other);
    };
    const free = mine.filter((node) => !this.pairs.has(node));
    if (commutes(query.labels[ours])) {
      const left = others.filter((node) => !this.used.has(node));
      let most = MAX_EQUAL_PARTS;
      for (const node of free) for (const other of left) if (most-- > 0) tryPair(node, other);
    } else for (const node of free) if (mine.indexOf(node) < others.length) tryPair(node, others[mine.indexOf(node)]);
    return found;
  }

  pairLeaves(ours, theirs) {
    if (this.pairs.has(ours) || this.used.has(theirs)) return;
    const label = this.query.labels[ours], other = this.hit.labels[theirs];
    // a letter that both have is not renamed for the sake of one leaf
    if (label !== other
      && isVariable(label)
      && isVariable(other)
      && !this.renaming.names.has(label)
      && (this.hit.labels.includes(label) || this.query.labels.includes(other)))
      return;
    if (this.renaming.add(label, other)) this.pair(ours, theirs);
  }
}

// Labels that match others, too: a product may be an application, an index or an accent may be part of a name.
const FLEXIBLE_LABELS = words("app * any idx hat tilde check breve");

/**
 * Match a pattern with trees, all in the format of columns.mjs.
 * @param {object} pattern
 * @param {object} operators
 * @param {number} limit steps of each search
 * @returns {number[]} for each tree 2 if all of it matches, 1 if a part of it, 0 if neither
 */
export function matchPattern(pattern, operators, limit) {
  forgetParts();
  const [ours] = readOperatorTrees(pattern), answers = [];
  const needed = [...new Set(ours.labels)].filter((label) => !FLEXIBLE_LABELS.has(label) && !/^[vn]:/.test(label));
  const { labels, sizes, label, depth } = operators;
  for (const [own, depths] of iterTrees(sizes, [label, depth])) {
    const theirs = own.map((number) => labels[number]);
    const match = needed.every((name) => theirs.includes(name))
      ? matchTrees(ours, new OperatorTree(theirs, depths), { limit })
      : null;
    answers.push(match === null ? 0 : match.whole ? 2 : 1);
  }
  return answers;
}
