// Presentation trees to operator trees: what a formula says instead of how it is set.
//
// A row of a MathML tree is flattened into items (operands, operator signs, big operators), brackets and bars are
// matched, and the items are parsed by precedence, loosest first:
//
//   conditions  ,;  => <=>  | :  relations  + -  products and /  big operators  functions  postfix  scripts
//
// Nothing is ever refused: what has no meaning here keeps its presentation structure ("p:tag"). Every node names the
// presentation node it comes from (`at`), so that matches can be shown. `canonicalise` then applies RULES bottom-up:
// one table of notations that mean the same (canonical.mjs).

import {
  ACCENTS, ARGUMENT, BIG, BRACKET, CLOSERS, CLOSING, COMMA, CONDITION, DECORATED, DIFFERENCE, FACTOR, FENCES, FIELDS,
  FUNCTION_NAMES, GAP, GIVEN, GREEDY_FUNCTIONS, IMPLICATION, INDEX_LETTER, INTEGRAL, Item, LEADING, LEAF, LETTER_TAG,
  LONGEST_TYPED_NAME, NO_CHILDREN, OperatorNode, PAIR, PLAIN_PRODUCTS, PRIMES, PRODUCT, RELATION, ROW_TAG,
  SCRIPTED_NAME, SCRIPT_TAG, SIGNS_AS_POWERS, SIGN_NAMES, STARS, SUM, SYMBOL_TAG, TENSOR_INDICES, TERNARY_TAGS,
  TRAILING, TRANSPOSES_AS_POWERS, TYPED_BEGINNINGS, TYPED_NAMES, TYPED_SIGNS, USUALLY_DIFFERENTIATED,
  USUAL_FUNCTIONS, bigItem, branch, combine, empty, findMeaning, findOperatorKind, findOrMake,
  group, isLetter, isNumber, isOpenProduct, isOperand, isSign, isWild, lastOf, leaf, listOf, operandItem, repeat,
  roleOf, rolesOf, signItem, splitAt,
} from "./symbols.mjs";

const isVisible = (node) => node.children.length > 0 || !node.meaning.isInvisible;
const isWildLetter = (meaning) => meaning.text[0] === "?";

export class OperatorParser {
  /** @param {PresentationNode[]} nodes all nodes of a tree, its root first */
  constructor(nodes) {
    this.nodes = nodes;
    [this.root] = nodes;
    // Letters that range over something.
    this.indices = new Set();
    // Greek letters that are scripts more than once.
    this.tensorIndices = new Set();
    // Letters whose subscripts are derivatives.
    this.differentiated = new Set();
    // Letters that occur in several styles.
    this.styled = new Set();
    this.unparsed = 0;
    // Item after the operand that was parsed last.
    this.after = 0;
  }

  parse() {
    this.findIndices();
    return this.parseAt(this.root);
  }

  // The operands of a fraction or a base with its scripts; KaTeX writes \operatorname as two nodes.
  partsOf(element) {
    const { children } = element;
    const usual = TERNARY_TAGS.has(element.tag) ? 3 : 2;
    return children.length > usual ? children.filter(isVisible) : children;
  }

  // The text below a node, as it is, without spaces ("compact"), or as a part of the name of a variable ("inName").
  textOf(element, form = "text") {
    if (!element.children.length) return element.meaning[form];
    return element.children.filter(isVisible).map((child) => this.textOf(child, form)).join("");
  }

  signOf(element) {
    if (!element.children.length) return element.meaning.sign;
    const text = this.textOf(element);
    return SIGN_NAMES.get(text) ?? text;
  }

  // Whether one of the letters at a node and below has some property.
  hasLetter(element, test) {
    if (element.children.length) return element.children.some((child) => this.hasLetter(child, test));
    return (element.type & LETTER_TAG) !== 0 && test(element.meaning);
  }

  lettersIn(element, letters = []) {
    for (const child of element.children) this.lettersIn(child, letters);
    if (!element.children.length && element.type & LETTER_TAG) letters.push(element.meaning.text);
    return letters;
  }

  // A subscript is an index, not a part of a name, if a big operator binds it or the same letter has several of them. A
  // letter that occurs in two styles has its style in its name. A subscript is a derivative if it says so.
  findIndices() {
    const subscripts = new Map(), tensorLetters = [];
    let isStyled = false;
    for (const { tag, type, attributes, children } of this.nodes) {
      if (type & LETTER_TAG) {
        isStyled ||= attributes.style !== "";
        continue;
      }
      if (!(type & SCRIPT_TAG) || children.length < 2) continue;
      if (tag === "mover") {
        isStyled ||= this.isVectorSign(children[1]);
        continue;
      }
      const letters = children.slice(1).flatMap((script) => this.lettersIn(script));
      tensorLetters.push(...letters.filter((letter) => TENSOR_INDICES.test(letter)));
      if (tag === "msup") continue;
      const base = this.signOf(this.coreOf(children[0]));
      if (roleOf(base) & BIG) for (const letter of this.lettersIn(children[1])) this.indices.add(letter);
      else if (tag !== "munder")
        findOrMake(subscripts, base, () => new Map()).set(this.textOf(children[1]), children[1]);
    }
    if (isStyled) this.findStyles();
    this.tensorIndices = new Set(tensorLetters.filter((letter, k) => tensorLetters.indexOf(letter) < k));
    for (const [base, forms] of subscripts) this.readSubscripts(base, forms);
  }

  // What the subscripts of one letter, by their texts, say of it and of themselves.
  readSubscripts(base, forms) {
    if (forms.size < 2 && !USUALLY_DIFFERENTIATED.has(base)) return;
    const texts = [...forms.keys()];
    const isRepeated = texts.some((text) => text.length > 1);
    const isField = FIELDS.has(base)
      ? isRepeated || texts.includes("t")
      : isRepeated && USUALLY_DIFFERENTIATED.has(base);
    if (isField && texts.every((text) => /^[txyz]{1,3}$/.test(text))) this.differentiated.add(base);
    else if (texts.filter((text) => /^[i-nst0-9+−-]+$/.test(text)).length > 1)
      for (const letter of [...forms.values()].flatMap((element) => this.lettersIn(element)))
        if (INDEX_LETTER.test(letter)) this.indices.add(letter);
  }

  findStyles() {
    const styles = new Map(), vectors = new Set();
    for (const node of this.nodes) {
      const { tag, children } = node;
      if (tag === "mi" && !children.length && !vectors.has(node))
        this.noteStyle(styles, node.meaning.name, node.attributes.style);
      if (tag !== "mover" || children.length < 2 || !this.isVectorSign(children[1])) continue;
      const core = this.coreOf(children[0]);
      this.noteStyle(styles, this.signOf(core), "vector");
      vectors.add(core);
    }
  }

  coreOf(element) {
    while (element.children.length === 1 && element.type & ROW_TAG) element = element.children[0];
    return element;
  }

  noteStyle(styles, letter, style) {
    const before = styles.get(letter);
    if (before === undefined) styles.set(letter, style);
    else if (before !== style) this.styled.add(letter);
  }

  isVectorSign(element) {
    return !element.children.length && (element.meaning.text === "→" || element.meaning.text === "\u20d7");
  }

  // --- from nodes to items -------------------------------------------------------------------------------------

  parseNodes(nodes) {
    return nodes.length === 1 ? this.parseAt(nodes[0]) : this.parseItems(this.readItems(nodes), nodes[0] ?? this.root);
  }

  parseAt(element) {
    element = this.coreOf(element);
    if (this.isIdentifier(element)) return this.parseIdentifier(element);
    const items = [];
    this.addItems(element, items);
    if (items.length === 1 && isOperand(items[0])) return items[0].node;
    this.joinNames(items);
    return this.parseItems(this.matchBrackets(items), element);
  }

  readItems(nodes) {
    const items = [];
    for (const element of nodes) this.addItems(element, items);
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

  isIdentifier(element) {
    return (element.type & (LEAF | LETTER_TAG)) === (LEAF | LETTER_TAG) && element.meaning.isLetter;
  }

  isFence(element) {
    return element.tag === "mo" && element.attributes.isFence;
  }

  addItems(element, items) {
    const { type, meaning, tag } = element;
    if (type & ROW_TAG) this.addRow(element, items);
    else if (tag === "mspace") {
      if (element.attributes.isWide) items.push(signItem("gap", element));
    } else if (type & LEAF && meaning.isBlank) return;
    else if (type & LEAF && type & LETTER_TAG && meaning.isLetter) this.addIdentifier(element, items);
    else if (type & LEAF && type & SYMBOL_TAG) this.addSymbol(element, items);
    else if (type & SCRIPT_TAG && element.children.length > 1) this.addScripted(element, items);
    else if (tag === "mtext" || tag === "ms") this.addText(element, items);
    else items.push(operandItem(this.parseNode(element), element));
  }

  addRow(element, items) {
    const nodes = element.children;
    if (nodes.length < 2 || !this.isFence(nodes[0])) {
      for (const child of nodes) this.addItems(child, items);
      return;
    }
    // \left( ... \right)
    const last = lastOf(nodes), closed = this.isFence(last);
    const open = this.signOf(nodes[0]), inner = nodes.slice(1, closed ? -1 : undefined);
    const item = operandItem(this.parseFenced(open, closed ? this.signOf(last) : "", inner, element), element);
    item.bracket = open;
    items.push(item);
  }

  addText(element, items) {
    const text = this.textOf(element), word = text.replace(/[,.;:]$/, "");
    if (CONDITION.test(word)) items.push(signItem("gap", element));
    else if (!word) items.push(signItem(",", element));
    else if (/\s/.test(word)) items.push(operandItem(leaf("text", word.toLowerCase(), element), element));
    else items.push(this.nameItem(word, element));
  }

  nameItem(name, element) {
    if (name.length === 1) return operandItem(leaf("v", findMeaning(name).name, element), element);
    const item = operandItem(leaf("fn", FUNCTION_NAMES.get(name) ?? name.toLowerCase(), element), element);
    item.applies = [...name].length > 1;
    return item;
  }

  addSymbol(element, items) {
    const meaning = element.meaning, sign = meaning.sign, before = lastOf(items);
    if (sign === "\u2061") {
      if (isOperand(before)) before.applies = true;
    } else if (before !== undefined && before.kind === "sign" && TYPED_SIGNS.has(before.sign + sign))
      items[items.length - 1] = signItem(TYPED_SIGNS.get(before.sign + sign), before.at);
    else if (meaning.isBig) items.push(bigItem(sign, element));
    else if (meaning.isDots) items.push(operandItem(leaf("dots", "", element), element));
    else if (meaning.isName) items.push(this.nameItem(sign.trim(), element));
    else if (element.tag === "mo" || meaning.isSign) items.push(new Item("sign", sign, meaning.role, null, element));
    else this.addIdentifier(element, items);
  }

  // Upright letters next to each other are a word: \mathrm{otherwise} arrives letter by letter.
  addIdentifier(element, items) {
    const node = this.parseIdentifier(element), before = lastOf(items);
    const { mathvariant: variant, isWord } = element.attributes, upright = isWord && element.meaning.isLetter;
    if (upright && before !== undefined && before.upright === element.index - 1) {
      before.word += node.text;
      before.upright = element.index;
      before.node = leaf("fn", FUNCTION_NAMES.get(before.word) ?? before.word.toLowerCase(), before.at);
      before.applies = true;
      return;
    }
    const item = operandItem(node, element);
    if (upright) {
      item.upright = element.index;
      item.word = node.text;
    }
    else if (variant === "double-struck" && "EPV".includes(node.text[0])) item.applies = true;
    else if (variant === undefined && element.meaning.isLetter) item.upright = -1;
    items.push(item);
  }

  // Scripts without a base belong to what is before them: \Gamma^a{}_{bc}
  addScripted(element, items) {
    const base = this.coreOf(element.children[0]);
    const isBlank = !base.children.length && ((base.type & ROW_TAG) !== 0 || base.meaning.isBlank);
    const before = lastOf(items);
    if (isBlank && isOperand(before))
      before.node = this.addScripts(before.node, element.children.slice(1), element.tag, element);
    else items.push(this.readScripted(element));
  }

  // A scripted node: a big operator with its range, a decorated sign, a closing bracket with scripts, or an operand.
  readScripted(element) {
    const tag = element.tag;
    const parts = this.partsOf(element);
    const base = parts[0];
    const scripts = parts.slice(1);
    const core = this.coreOf(base);
    if (this.isIdentifier(core)) {
      const node = this.parseIdentifier(core);
      return operandItem(this.addScripts(node, scripts, tag, element), element);
    }
    const isSymbol = (core.type & (LEAF | SYMBOL_TAG)) > LEAF, meaning = core.meaning;
    const sign = core.children.length ? this.signOf(core).replace(/\s+/g, "") : meaning.bareSign;
    if (roleOf(sign) & (BIG | INTEGRAL)) {
      const item = bigItem(sign, element), below = tag !== "mover" && tag !== "msup";
      if (below) item.under = scripts[0];
      item.over = (below ? scripts[1] : scripts[0]) ?? null;
      return item;
    }
    if (isSymbol && roleOf(sign) & (RELATION | SUM | PRODUCT))
      return signItem(sign === "=" && /def|△|:/.test(this.textOf(scripts[0])) ? ":=" : sign, element);
    if (isSymbol && (CLOSERS.has(sign) || sign === "|" || sign === "‖")) {
      const item = signItem(sign, element);
      item.scripts = scripts;
      item.tag = tag;
      return item;
    }
    const inner = this.parseAt(base), item = operandItem(this.addScripts(inner, scripts, tag, element), element);
    item.applies = inner.label === "fn" && inner.text.length > 1 && item.node.is(SCRIPTED_NAME);
    return item;
  }

  // --- brackets --------------------------------------------------------------------------------------------------

  matchBrackets(items) {
    if (!(rolesOf(items) & BRACKET)) return items;
    const stack = [{ open: null, items: [] }];
    // A bracket without its partner disappears; a bar stays as a sign.
    const spill = () => {
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
        const after = isOperand(lastOf(here));
        if (after && open !== null && open.sign === item.sign) close(item);
        else if (!after || this.hasPartner(items, at) || (item.sign === "|" && this.opensKet(items, at, stack)))
          stack.push({ open: item, items: [] });
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
    const only = nodes.length === 1 ? this.coreOf(nodes[0]) : null;
    if (only?.tag === "mtable") return this.parseTable(only, open, close);
    return this.parseGroup(open, close, this.readItems(nodes), at);
  }

  parseGroup(open, close, items, at) {
    const pair = open + close;
    if (pair === "⟨⟩" && items.some((item) => item.kind === "sign" && item.sign === "|"))
      return branch("braket", splitAt(items, GIVEN).map((part) => this.parseItems(part, at)), at);
    const node = this.parseItems(items, at), list = node.label === "list";
    switch (pair) {
      case "()": return list ? branch("tuple", node.children, at) : group(node);
      case "[]": return list
        ? branch(node.children.length === 2 ? "commutator" : "tuple", node.children, at)
        : group(node);
      case "[)": case "(]": return list ? branch("interval", node.children, at) : node;
      // Braces around a sum are brackets.
      case "{}":
        if (node.label === "+") return group(node);
        return node.label === "empty" ? node : branch("set", listOf(node, "list"), at);
      case "⟨⟩": return list ? branch("inner", node.children, at) : branch("mean", [node], at);
      default:
        if (FENCES.has(pair)) return branch(FENCES.get(pair), [node], at);
        // ||x||.
        if (open === "|" && node.label === "abs") return branch("norm", node.children, at);
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
      const parts = splitAt(inner, GAP).map((part) => this.parseItems(part, at));
      const written = parts.filter((node) => node.label !== "empty");
      return written.length ? combine("with", written, at) : empty(at);
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
      if (!left.length || !right.length)
        return left.length + right.length ? this.parseImplication(left.concat(right), at) : empty(at);
      const sides = [this.parseImplication(left, at), this.parseGiven(right, at)];
      return items[k].sign === "⇐"
        ? branch("⇒", sides.reverse(), items[k].at)
        : branch(items[k].sign, sides, items[k].at);
    }
    const quantifier = items[0].sign || (isOperand(items[0]) ? items[0].node.text : "");
    if (items.length > 1 && (quantifier === "∀" || quantifier === "∃"))
      return branch(quantifier, [this.parseGiven(items.slice(1), at)], items[0].at);
    return this.parseGiven(items, at, roles);
  }

  parseGiven(items, at, roles = rolesOf(items)) {
    if (!(roles & GIVEN)) return this.parseRelation(items, at, roles);
    const k = items.findIndex((item) => item.role & GIVEN), left = items.slice(0, k), right = items.slice(k + 1);
    if (!left.length || !right.length)
      return left.length + right.length ? this.parseGiven(left.concat(right), at) : empty(at);
    return branch(items[k].sign === ":" ? "colon" : "given",
      [this.parseRelation(left, at), this.parseGiven(right, at)], items[k].at);
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
    // `a = b < c` says `a = b` and `b < c`.
    const links = [];
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
      while (d < stop - 1
        && !(this.isDifferential(items[d]) && isOperand(items[d + 1]) && items[d + 1].node.label !== "n")) d++;
      const children = [];
      let end = k + 1;
      if (d < stop - 1 && d > k + 1) {
        children.push(this.parseSum(items.slice(k + 1, d), at));
        for (end = d; end < stop - 1 && this.isDifferential(items[end]) && isOperand(items[end + 1]);) {
          children.push(branch("by", [this.parseApplication(items, end + 1)], items[end].at));
          end = this.after;
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
    for (const [label, range] of [["from", item.under], ["to", item.over]]) {
      if (range === null) continue;
      const node = this.parseAt(range);
      if (node.label !== "empty") children.push(branch(label, [node], range));
    }
  }

  parseSum(items, at) {
    if (items.length === 1 && isOperand(items[0])) return this.parseApplication(items, 0);
    if (!(rolesOf(items) & SUM)) return this.parseProduct(items, at);
    // So far, in one node if there was another sign than plus and minus.
    const sum = [];
    let sign = "", signAt = at, start = 0;
    for (let k = 0; k <= items.length; k++) {
      const item = items[k];
      if (item !== undefined && (!(item.role & SUM) || (k > start && isSign(items[k - 1], PRODUCT)))) continue;
      if (k > start) this.addTerm(sum, sign, signAt, this.parseProduct(items.slice(start, k), at), at);
      if (item === undefined) break;
      if (k > start || sign === "" || sign === "+") {
        sign = item.sign;
        signAt = item.at;
      // Two signs in a row.
      } else if (item.sign === "-") sign = sign === "-" ? "+" : sign;
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
        k = this.after;
        if (sign === "/" && node.label !== "n" && !item.bracket) {
          node = this.readDenominator(items, node, k, at);
          k = this.after;
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
    if (factors.length === 1) return factors[0];
    // Products among the factors are replaced by theirs.
    for (let k = 0; k < factors.length; k++)
      if (isOpenProduct(factors[k]))
        return branch("*", factors.flatMap((node) => (isOpenProduct(node) ? node.children : [node])), at);
    return branch("*", factors, at);
  }

  // h\nu/k_BT: letters next to each other after a slash are all below it; a/2 b is half of ab.
  readDenominator(items, first, end, at) {
    const factors = [first];
    while (isOperand(items[end])
      && !items[end].bracket
      && !items[end].applies
      && items[end].node.is(FACTOR)
      && !items[end].node.variables) {
      factors.push(this.parseApplication(items, end));
      end = this.after;
    }
    this.after = end;
    return combine("*", factors, at);
  }

  // A quotient, or a derivative: dy/dx, \partial u/\partial t
  divideBy(factors, above, below) {
    const isD = (node) => node.label === "v" && node.text === "d";
    const parts = listOf(below, "*"), [head] = parts;
    if (above.label === "boundary" && head.label === "boundary" && parts.length === 1)
      return branch("D", [above.children[0], ...listOf(head.children[0], "*")], below.at);
    if (isD(head) && parts.length === 2 && factors.length && isD(factors[factors.length - 1]) && !above.grouped) {
      factors.pop();
      return branch("D", [above, parts[1]], below.at);
    }
    return branch("frac", [above, below], below.at);
  }

  // One factor: a big operator with its body, a differential operator or a function with its argument, or an operand.
  // This and the following functions leave the place after it in `after`.
  parseOperand(items, k, at) {
    const item = items[k], next = items[k + 1];
    if (item.kind === "big") {
      const children = [k + 1 < items.length ? this.parseProduct(items.slice(k + 1), at) : empty(at)];
      this.addRange(item, children);
      this.after = items.length;
      return branch(item.sign, children, item.at);
    }
    const { node } = item, { text } = node;
    if (next !== undefined && next.kind !== "sign") {
      // As in d/dx, or \partial_x.
      if (node.variables !== null)
        return branch("D", [this.parseOperand(items, k + 1, at), ...node.variables], item.at);
      const isDelta = text === "Δ" && isOperand(next);
      if (isDelta && node.label === "v" && !next.bracket && next.node.is(DIFFERENCE) && !isLetter(next.node, FIELDS))
        return branch("delta", [this.parseApplication(items, k + 1)], item.at);
      const laplacian = node.label === "pow" && node.children[0].text === "∇" && isNumber(node.children[1], "2");
      if (laplacian || (isDelta && isLetter(next.node, FIELDS)))
        return branch("laplace", [this.parseOperand(items, k + 1, at)], item.at);
      if (text === "∇" || text === "∂")
        return branch(text === "∇" ? "grad" : "boundary", [this.parseOperand(items, k + 1, at)], item.at);
    } else if (text === "∇"
      && next !== undefined
      && k + 2 < items.length
      && items[k + 2].kind !== "sign"
      && (next.sign === "·" || next.sign === "×"))
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
      while (isOperand(items[end])
        && !(end > k + 1
          && !isGreedy
          && (items[end].applies || items[end].bracket || this.isDifferential(items[end])))) {
        rest.push(items[end].applies ? this.parseOperand(items, end, at) : this.parseApplication(items, end));
        end = this.after;
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
    for (; end < items.length && items[end].kind === "sign" && items[end].sign === "!"; end++)
      node = branch("factorial", [node], items[end].at);
    this.after = end;
    return node;
  }

  // Whether a letter in front of a bracket is a function of it rather than a factor.
  isApplied(item, group) {
    if (item.bracket || (group.bracket !== "(" && group.bracket !== "[" && group.bracket !== "{")) return false;
    const { node } = item, base = node.is(DECORATED) ? node.children[0] : node;
    if (base.label === "fn" || node.label === "D") return true;
    if (base.label !== "v") return false;
    const letter = base.text[0];
    // A component of a tensor.
    if (base.text.length > 3 && /_.*[α-ω]{2}/u.test(base.text)) return false;
    if (group.bracket === "{") return "EP".includes(letter);
    if (group.bracket === "[") return "EPV".includes(letter) || (group.node.label === "v" && base === node);
    if (group.node.is(ARGUMENT) || isNumber(group.node, "0")) return true;
    // As in f^2(x+1).
    return USUAL_FUNCTIONS.has(letter)
      && (node.label !== "pow" || node.children[1].label === "n" || node.children[1].label === "neg");
  }

  applyFunction(name, argument, at) {
    const inner = argument.label === "set" && argument.children.length === 1 ? argument.children[0].label : "";
    // \exp\{-x\}, P\{A|B\}.
    if (inner && inner !== "colon" && (inner !== "given" || name.label === "v")) [argument] = argument.children;
    const list = argument.is(PAIR) ? argument.children : argument.label === "empty" ? [] : [argument];
    if (name.label === "prime") name = branch("D", [name.children[0], leaf("any", "", at)], at);
    // f'(x): the derivative of f(x), by x if that is a variable.
    if (name.label === "D") {
      const variable = list.length === 1 && (list[0].label === "v" || list[0].label === "idx") ? list[0] : null;
      const by = name.children.slice(1).map((node) => (node.label === "any" && variable !== null ? variable : node));
      return branch("D", [branch("app", [name.children[0], ...list], at), ...by], at);
    }
    return name.label === "fn" && list.length
      ? new OperatorNode(name.kind.applied ??= findOperatorKind("f:" + name.text), list, at)
      : branch("app", [name, ...list], at);
  }

  // --- single nodes ----------------------------------------------------------------------------------------------

  parseNode(element) {
    const { tag, children } = element, count = children.length;
    if (tag === "mn" && !count) return new OperatorNode(element.meaning.numberLeaf, NO_CHILDREN, element);
    if (tag === "mfrac") {
      const parts = this.partsOf(element);
      if (parts.length === 2) return this.parseFraction(element, parts);
    }
    if (tag === "msqrt") return branch("sqrt", [this.parseNodes(element.children)], element);
    if (tag === "mroot" && count === 2) return branch("root", element.children.map((k) => this.parseAt(k)), element);
    if (tag === "mtable") return this.parseTable(element, "", "");
    this.unparsed++;
    return element.children.length
      ? branch("p:" + tag, element.children.map((k) => this.parseAt(k)), element)
      : leaf("o", this.textOf(element), element);
  }

  parseIdentifier(element) {
    const { meaning } = element, style = this.styled.has(meaning.name) ? element.attributes.style : "";
    if (style) return leaf(meaning.kind, `${meaning.name}.${style}`, element);
    return new OperatorNode(meaning.leaf, NO_CHILDREN, element);
  }

  // What follows dy, d^2 y or d, above or below a fraction bar; null if it is something else.
  readDifferential(node) {
    const head = node.label === "*" ? node.children[0] : node;
    const rest = () => (node.label === "*" ? node.children.slice(1) : []);
    const isD = (x) => x.label === "v" && (x.text === "d" || x.text === "∂") && x.variables === null;
    if (head.label === "boundary") return [head.children[0], ...rest()];
    return isD(head) || (head.label === "pow" && isD(head.children[0])) ? rest() : null;
  }

  parseFraction(element, parts) {
    const above = this.parseAt(parts[0]), below = this.parseAt(parts[1]);
    if (element.attributes.isBare) return branch("binom", [above, below], element);
    const fraction = branch("frac", [above, below], element);
    const over = this.readDifferential(above);
    const under = over && this.readDifferential(below);
    if (!under || !under.length) return fraction;
    const flat = under.flatMap((node) => listOf(node.label === "boundary" ? node.children[0] : node, "*"));
    const variables = flat
      .map((node) => (node.label === "boundary" ? node.children[0] : node))
      .filter((node) => !(node.label === "v" && (node.text === "d" || node.text === "∂")))
      .flatMap((node) =>
        (node.label !== "pow"
          ? [node]
          : node.children[1].label === "n"
            ? repeat(node.children[0], parseInt(node.children[1].text))
            : [branch("idx", node.children, node.at)]));
    if (over.length) return branch("D", [combine("*", over, element), ...variables], element);
    return fraction.copy(element, variables);
  }

  addScripts(base, scripts, tag, at) {
    switch (tag) {
      case "msub": return this.addSubscript(base, scripts[0], at);
      case "msup": return this.addSuperscript(base, scripts[0], at);
      case "munder": return /^[⏟_‾]$/u.test(this.textOf(scripts[0])) ? base : this.addSubscript(base, scripts[0], at);
      case "mover": return this.addAccent(base, scripts[0], at);
      // Msubsup, munderover.
      default: {
        const below = this.addSubscript(base, scripts[0], at);
        return scripts.length > 1 ? this.addSuperscript(below, scripts[1], at) : below;
      }
    }
  }

  addAccent(base, element, at) {
    const sign = this.textOf(element);
    if (sign === "˙" || sign === "¨")
      return branch("D", [base, ...repeat(leaf("v", "t", at), sign === "˙" ? 1 : 2)], at);
    if (this.isVectorSign(element))
      return base.label === "v" && this.styled.has(base.text) ? leaf("v", base.text + ".vector", at) : base;
    if (/^[⏞⏟]$/u.test(sign)) return base;
    if (/^[‾ˉ¯]$/u.test(sign)) return branch("bar", [base], at);
    if (!ACCENTS.has(sign)) return this.addSuperscript(base, element, at);
    return base.label === "v" && !isWild(base)
      ? leaf("v", base.text + "." + ACCENTS.get(sign), at)
      : branch(ACCENTS.get(sign), [base], at);
  }

  addSubscript(base, element, at) {
    const node = this.parseAt(element);
    if (node.label === "empty") return base;
    const members = node.label === "list" || (node.label === "*" && node.children.every((child) => child.label === "v"))
      ? node.children
      : [node];
    if (base.text === "∂") return base.copy(at, members);
    const ranges = node.label === "+"
      || (this.indices.size > 0 && this.lettersIn(element).some((letter) => this.indices.has(letter)));
    // A base of a logarithm, a space of a norm.
    if (base.label === "fn" && !ranges) return base.copy(at, base.variables);
    if (base.label !== "v" || ranges || isWild(base) || this.hasLetter(element, isWildLetter))
      return branch("idx", [base, ...members], at);
    const named = leaf("v", base.text + "_" + this.textOf(element, "inName"), at);
    named.name = { base: base.text, subscript: node,
      letters: this.differentiated.has(base.text) ? this.lettersIn(element) : null };
    return named;
  }

  addSuperscript(base, element, at) {
    const sign = this.textOf(element, "compact"), first = sign[0] ?? "";
    if (PRIMES.has(first)) {
      if (element.tag === "mrow" && /^[′'’]+[^′'’]/.test(sign)) return this.addPrimesAndPower(base, element, at);
      const primes = /^[′'’]+$/.test(sign) ? sign.length : "′″‴".indexOf(sign) + 1;
      if (primes > 0) return this.addPrimes(base, primes, at);
    }
    if (sign.length < 3) {
      if (base.label !== "n" && TRANSPOSES_AS_POWERS.has(sign)) return branch("transpose", [base], at);
      if (STARS.has(sign)) return branch("star", [base], at);
      if (sign === "†" || (sign === "H" && /^[A-Z]/.test(base.text))) return branch("adjoint", [base], at);
      if (SIGNS_AS_POWERS.has(sign))
        return base.label === "v" && !isWild(base)
          ? leaf("v", base.text + "^" + sign, at)
          : branch("mark", [base, leaf("o", sign, at)], at);
    }
    const node = this.parseAt(element);
    if (node.label === "empty") return base;
    if (base.variables !== null)
      return base.copy(base.at,
        base.variables.length === 1 ? repeat(base.variables[0], parseInt(node.text) || 1) : base.variables);
    // As in x^{(i)}.
    if (first === "(" && base.label === "v" && /^\([^()]*\)$/.test(sign)) return branch("idx", [base, node], at);
    if (base.label === "v" && !isWild(base) && this.isTensorIndex(node))
      return leaf("v", (base.text.includes("_") ? base.text : base.text + "_") + sign, at);
    return branch("pow", [base, node], at);
  }

  addPrimes(base, primes, at) {
    const letter = (base.label === "idx" ? base.children[0].text : base.text)[0] ?? "";
    if (/[A-Z]/.test(letter) && primes === 1) return branch("prime", [base], at);
    if (base.label === "v"
      && primes === 1
      && !isWild(base)
      && !USUALLY_DIFFERENTIATED.has(letter)
      && !USUAL_FUNCTIONS.has(letter))
      return leaf("v", base.text + "′", at);
    return branch("D", [base, ...repeat(leaf("any", "", at), primes)], at);
  }

  // u'^2
  addPrimesAndPower(base, element, at) {
    const nodes = element.children, first = nodes.findIndex((node) => !/^[′'’]+$/.test(this.textOf(node)));
    const node = first > 0 ? this.addPrimes(base, this.textOf(element).search(/[^′'’]/), at) : base;
    return branch("pow", [node, this.parseNodes(nodes.slice(Math.max(first, 0)))], at);
  }

  // T^{\mu\nu}: an upper index is an index if there are several, or if it occurs again.
  isTensorIndex(node) {
    const letters = listOf(node, "*");
    return letters.every((letter) => letter.label === "v" && TENSOR_INDICES.test(letter.text))
      && (letters.length > 1 || this.tensorIndices.has(letters[0].text));
  }

  parseTable(element, open, close) {
    const rows = element.children.map((row) => row.children), pair = open + close;
    if (["()", "[]", "||", "‖‖", "{}"].includes(pair)) {
      const cells = rows.map((row) => row.map((cell) => this.parseAt(cell)));
      const column = cells.length === 2
        && cells.every((row) => row.length === 1 && ["n", "v", "+"].includes(row[0].label));
      if (pair === "()" && column) return branch("column", [cells[0][0], cells[1][0]], element);
      return branch(pair === "||" ? "det" : "matrix", cells.map((row) => combine("row", row, element)), element);
    }
    if (open === "{")
      return branch("cases",
        rows.map((row) =>
          combine("with", row.map((cell) => this.parseAt(cell)).filter((node) => node.label !== "empty"), element)),
        element);
    // Of an alignment: a line that begins with a sign continues the one before.
    const lines = [];
    for (const row of rows) {
      const items = this.readItems(row), before = lastOf(lines);
      if (!items.length) continue;
      if (before !== undefined && isSign(items[0], RELATION | SUM | PRODUCT)) {
        while (before.length
          && before[before.length - 1].kind === "sign"
          && /^[,.;]$/.test(before[before.length - 1].sign)) before.pop();
        before.push(...items);
      } else lines.push(items);
    }
    if (!lines.length) return empty(element);
    return combine("rows", lines.map((items) => this.parseItems(items, element)), element);
  }
}

function canClose(open, close) {
  return CLOSING.get(open) === close
    || ("([".includes(open) && ")]".includes(close))
    || (open === "|" && close === "⟩");
}

