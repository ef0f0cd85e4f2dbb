// Macros inside the embedded engine: the definitions of a document, its packages and LaTeX as macros of KaTeX.

import { readPairs, words } from "./symbols.mjs";

export let limits = {};
// Macros of LaTeX and its packages, by package name.
export const prelude = {};
// For a command of a package that was not loaded: its definition there.
export let providers = new Map();
// Whether KaTeX knows a command.
export let isDefined = () => false;

export const session = {
  // Macros below the document's own definitions: LaTeX and the document's packages.
  base: {},
  // Macros that its formulas may use.
  macros: {},
  // When the formula being converted must be done.
  end: Infinity,
  // Undefined commands in that formula.
  unknown: new Set(),
};

function readTokens(context, text) {
  const lexer = new context.lexer.constructor(text, context.settings);
  const tokens = [];
  for (let token = lexer.lex(); token.text !== "EOF"; token = lexer.lex()) tokens.push(token);
  // KaTeX keeps tokens in stack order.
  return tokens.reverse();
}

function readOptionalArgument(context, open, close) {
  // LaTeX looks for "[" past spaces, and leaves them if there is none: in math they mean nothing
  context.consumeSpaces();
  if (context.future().text !== open) return null;
  context.popToken();
  return context.consumeArg([close]).tokens;
}

function readArgument(context, kind) {
  const [letter, first, second] = kind;
  if (letter === "m") return context.consumeArg().tokens;
  if (letter === "o") return readOptionalArgument(context, "[", "]") ?? readTokens(context, first ?? "\\eqkinnovalue");
  if (letter === "g")
    return context.future().text === "{" ? context.consumeArg().tokens : readTokens(context, "\\eqkinnovalue");
  if (letter === "d") return readOptionalArgument(context, first, second) ?? readTokens(context, "\\eqkinnovalue");
  if (letter === "u") return context.consumeArg(readTokens(context, first).reverse().map((t) => t.text)).tokens;
  // "s": a star
  context.consumeSpaces();
  const starred = context.future().text === "*";
  if (starred) context.popToken();
  return readTokens(context, starred ? "\\BooleanTrue" : "\\BooleanFalse");
}

function substitute(body, args) {
  const out = [];
  for (let i = 0; i < body.length; i++) {
    // the body is in stack order: the digit comes before its "#"
    const next = body[i + 1];
    if (next && next.text === "#" && /^[1-9#]$/.test(body[i].text)) {
      if (body[i].text === "#") out.push(body[i]);
      else {
        const arg = args[body[i].text - 1];
        if (arg) for (const token of arg) out.push(token);
      }
      i++;
    } else out.push(body[i]);
  }
  return out;
}

// Papers redefine commands that other macros use. A token keeps the meaning it came with: tokens of KaTeX's own
// macros mean what KaTeX defines (KATEX), those of preludes what LaTeX and its packages define (BASE), all others
// what the paper defines.
export const KATEX = 1, BASE = 2;

function findMacro(level, name, { builtins }, paper) {
  const known = (level === BASE ? session.base[name] : undefined) ?? builtins[name];
  return known !== undefined || isDefined(name) ? known : paper;
}

function install(context) {
  const expander = Object.getPrototypeOf(context);
  const { _getExpansion: expansionOf, expandOnce } = expander;
  isDefined = (name) => context.isDefined(name);
  // a document's own macros come first, then LaTeX and the document's packages, then KaTeX
  const space = Object.getPrototypeOf(context.macros);
  const { has } = space;
  // `isDefined` asks this one, which does not know the document's own macros.
  const probe = context.macros;
  space.has = function (name) { return (this !== probe && session.macros[name] !== undefined)
    || session.base[name] !== undefined
    || has.call(this, name); };
  space.get = function (name) {
    return Object.hasOwn(this.current, name)
      ? this.current[name]
      : session.macros[name] ?? session.base[name] ?? this.builtins[name];
  };
  // Level of the token that is being expanded.
  let level = 0;
  expander.expandOnce = function (expandableOnly) {
    // every token passes here: no formula takes longer, or grows larger, than this
    if (Date.now() > session.end) throw new Error("eqkin:time");
    if (this.stack.length > limits.macro_tokens)
      throw new Error("eqkin:limit macros expand to more than " + limits.macro_tokens + " tokens");
    const token = this.future();
    level = token.level ?? 0;
    if (level && findMacro(level, token.text, this.macros, this.macros.get(token.text)) === undefined) return false;
    return expandOnce.call(this, expandableOnly);
  };
  expander._getExpansion = function (name) {
    const here = level;
    // Code that looks ahead by itself starts at the lowest level.
    level = 0;
    const builtin = this.macros.builtins[name];
    const current = this.macros.get(name);
    const chosen = here ? findMacro(here, name, this.macros, current) : current;
    if (chosen === undefined || name.length === 1 || (chosen === current && chosen !== builtin))
      return expansionOf.call(this, name);
    const expansion = typeof chosen === "function" ? chosen(this) : chosen;
    if (typeof expansion !== "string") return expansion ?? null;
    const tokens = readTokens(this, expansion);
    if (chosen === builtin) for (const token of tokens) if (token.text.length > 1) token.level = KATEX;
    return { tokens, numArgs: countParameters(expansion) };
  };
}

function countParameters(body) {
  if (!body.includes("#")) return 0;
  const stripped = body.replace(/##/g, "");
  let n = 0;
  while (stripped.includes("#" + (n + 1))) n++;
  return n;
}

export function makeMacro({ name, args, body, prefix }, level) {
  let tokens = null;
  return (context) => {
    if (!tokens) {
      tokens = readTokens(context, body);
      // a command defined by its own name uses the previous meaning
      for (const token of tokens)
        if (token.text.length > 1
          && (level || (token.text === name && (session.base[name] !== undefined || isDefined(name)))))
          token.level = BASE;
    }
    if (!args.length && !prefix) return { tokens, numArgs: 0 };
    if (prefix) for (const token of readTokens(context, prefix).reverse()) {
      context.consumeSpaces();
      if (context.future().text === token.text) context.popToken();
    }
    const values = args.map((kind) => readArgument(context, kind));
    return { tokens: substitute(tokens, values), numArgs: 0 };
  };
}

function makeAlias(target) {
  // \let to a command that the paper does not define, even if it redefines the target later
  return (context) => {
    const token = readTokens(context, target)[0];
    token.level = BASE;
    return { tokens: [token], numArgs: 0 };
  };
}

export function makeTable(definitions, level) {
  const out = {};
  for (const d of definitions) {
    if (d.weak && !level && (session.base[d.name] !== undefined || isDefined(d.name))) continue;
    out[d.name] = d.alias ? makeAlias(d.alias) : makeMacro(d, level);
  }
  return out;
}

/**
 * Prepare the engine.
 * @param {{limits: object, packages: object, providers: object}} given limits, the macros of LaTeX and its packages,
 *   and the package that provides each command
 */
export function prepare({ limits: given, packages, providers: offered }) {
  limits = given;
  const find = (name, from) => packages[from].find((definition) => definition.name === name);
  providers = new Map(Object.entries(offered).map(([name, from]) => [name, find(name, from)]));
  katex.renderToString("\\eqkinprobe", { macros: { "\\eqkinprobe": (context) => (install(context), "") } });
  for (const name of Object.keys(packages)) prelude[name] = makeTable(packages[name], BASE);
}

function choose(context, first) {
  const [yes, no] = context.consumeArgs(2);
  return { tokens: first ? yes : no, numArgs: 0 };
}

const BRACKETS = readPairs(String.raw`( )  [ ]  \{ \}  | |  \| \|`);
const MATRIX_ENVIRONMENTS = readPairs(String.raw`( pmatrix  [ bmatrix  | vmatrix  \{ Bmatrix  \| Vmatrix`);

function readBracketed(context) {
  // the physics package reads the content of any kind of bracket and ignores the size and star before it
  while (/^( |\*|\\[bB]igg?)$/.test(context.future().text)) context.popToken();
  const open = context.future().text, close = BRACKETS.get(open);
  if (!close) return { open: "", tokens: open === "{" ? context.consumeArg().tokens : [] };
  context.popToken();
  const tokens = [];
  for (let depth = 1, braces = 0; ; ) {
    const token = context.popToken();
    if (token.text === "EOF") throw new Error("Unexpected end of input in a macro argument");
    if (token.text === "{") braces++;
    else if (token.text === "}") braces--;
    else if (!braces && token.text === close && --depth === 0) break;
    else if (!braces && token.text === open) depth++;
    tokens.push(token);
  }
  return { open, tokens: tokens.reverse() };
}

function surround(context, before, tokens, after) {
  return { tokens: [...readTokens(context, after), ...tokens, ...readTokens(context, before)], numArgs: 0 };
}

function readDimension(context) {
  // plain TeX's "3.5pt", "-\smallskipamount"
  context.consumeSpaces();
  let text = "";
  while (/^[-+0-9.,]$/.test(context.future().text)) text += context.popToken().text;
  if (context.future().text[0] === "\\") {
    // a register, or \fontdimen6\font
    if (/^\\fontdimen/.test(context.popToken().text)) {
      while (/^[0-9]$/.test(context.future().text)) context.popToken();
      context.popToken();
    }
    return "";
  }
  context.consumeSpaces();
  for (let i = 0; i < 2 && /^[a-z]$/.test(context.future().text); i++) context.popToken();
  return "";
}

export const TESTS = {
  "\\eqkinqty": (context) => {
    const { open, tokens } = readBracketed(context);
    return surround(context, "\\left" + (open || "\\{"), tokens, "\\right" + (BRACKETS.get(open) ?? "\\}"));
  },
  "\\eqkinmatrix": (context) => {
    const { open, tokens } = readBracketed(context);
    const name = MATRIX_ENVIRONMENTS.get(open) ?? "matrix";
    return surround(context, "\\begin{" + name + "}", tokens, "\\end{" + name + "}");
  },
  "\\ifmmode": (context) => {
    const tokens = context.consumeArg(["\\fi"]).tokens.reverse();
    const at = tokens.findIndex((t) => t.text === "\\else");
    const [yes, no] = at < 0 ? [tokens, []] : [tokens.slice(0, at), tokens.slice(at + 1)];
    return { tokens: (context.mode === "math" ? yes : no).reverse(), numArgs: 0 };
  },
  "\\boldmath": (context) => {
    // \mbox{\boldmath $x$}: in text it makes the next formula bold; in math it means nothing
    if (context.mode === "text") context.consumeSpaces();
    if (context.mode !== "text" || context.future().text !== "$") return "";
    context.popToken();
    return surround(context, "$\\boldsymbol{", context.consumeArg(["$"]).tokens, "}$");
  },
  "\\mathit": (context) => {
    // several letters are a word, one name and no product
    const { tokens } = context.consumeArg(), letters = tokens.filter((t) => t.text !== " ");
    if (letters.length > 1 && letters.every((t) => /^[a-zA-Z]$/.test(t.text)))
      return surround(context, "\\textit{", letters, "}");
    const italic = surround(context, "\\mathit{", tokens, "}");
    // This is KaTeX's own \mathit.
    italic.tokens.at(-1).noexpand = true;
    return italic;
  },
  "\\IfBooleanTF": (context) => choose(context, context.consumeArg().tokens.some((t) => t.text === "\\BooleanTrue")),
  "\\IfNoValueTF": (context) => choose(context, context.consumeArg().tokens.some((t) => t.text === "\\eqkinnovalue")),
  "\\IfValueTF": (context) => choose(context, !context.consumeArg().tokens.some((t) => t.text === "\\eqkinnovalue")),
};
for (const name of words(String.raw`\kern \mkern \hskip \mskip \raise \lower \vskip \moveleft \moveright`))
  TESTS[name] = readDimension;
for (const name of words(String.raw`\eqkinnovalue \BooleanTrue \BooleanFalse`)) TESTS[name] = "";
