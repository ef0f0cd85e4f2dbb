// One document inside the embedded engine: the macros its formulas use, and a meaning for undefined commands.

import { BASE, TESTS, isDefined, limits, makeMacro, makeTable, prelude, providers, session } from "./macros.mjs";
import { words } from "./symbols.mjs";

const NAMES = /\\(?:[a-zA-Z@]+|[^a-zA-Z@])/g;
// Uses of an undefined command that are inspected to guess its arguments.
const MAX_USES = 50;
// Macros below a document's own definitions, by the names of its packages.
const bases = new Map();

// All definitions of the document, by name.
let definitions = new Map();
// Its formulas.
let texts = [];
// Formulas and macro bodies as one text, and where each command is used in it, made when needed.
let uses = null;
// Undefined commands that were given a meaning.
let settled = new Set();

function getBase(packages) {
  const key = packages.join();
  let found = bases.get(key);
  if (!found) {
    found = Object.assign({}, TESTS);
    for (const name of packages) Object.assign(found, prelude[name]);
    if (bases.size > 200) bases.clear();
    bases.set(key, found);
  }
  return found;
}

/**
 * Open a document.
 * @param {{packages: string[], definitions: object[], formulas: string[]}} document all formulas that it has
 */
export function openDocument({ packages, definitions: given, formulas }) {
  session.base = getBase(packages);
  session.macros = {};
  definitions = new Map(given.map((definition) => [definition.name, definition]));
  texts = formulas;
  uses = null;
  settled = new Set();
  settle(use(formulas.slice()));
}

// Makes the macros that these texts use, directly or through others; returns the undefined commands.
function use(pending) {
  const seen = new Set(), missing = [];
  while (pending.length) {
    for (const name of pending.pop().match(NAMES) ?? []) {
      if (seen.has(name)) continue;
      seen.add(name);
      const definition = definitions.get(name);
      if (definition !== undefined) {
        Object.assign(session.macros, makeTable([definition]));
        pending.push(definition.body, definition.alias);
        for (const kind of definition.args) if (kind[0] === "o" && kind[1]) pending.push(kind[1]);
      } else if (session.macros[name] === undefined && session.base[name] === undefined && !isDefined(name))
        missing.push(name);
    }
  }
  return missing;
}

// TeX programming cannot be shown by name: formulas that need it fail.
const PRIMITIVES = words(String.raw`
  \if \ifnum \ifx \ifdim \ifcat \ifodd \ifcase \ifdefined \ifcsname \else \fi \or \begingroup \endgroup \lccode \uccode
  \catcode \csname \endcsname \expandafter \futurelet \afterassignment \aftergroup \currentgrouptype \halign \valign
  \advance \multiply \divide \count \dimen \toks \the \romannumeral \meaning \numexpr \dimexpr \@ifnextchar \@ifstar
  \write \immediate \special
`);

function canSettle(name) {
  return !settled.has(name)
    && settled.size < limits.macros_per_paper
    && !PRIMITIVES.has(name)
    && !limits.diagram_commands.includes(name);
}

// A command that a package provides is taken from there; any other becomes a named symbol or operator.
export function settle(missing) {
  while (missing.length) {
    const name = missing.pop();
    if (!canSettle(name)) continue;
    settled.add(name);
    const offered = providers.get(name), found = guessArity(name);
    // the same name with another number of arguments is another command
    if (offered && [found, 0].includes(offered.args.filter(([kind]) => kind === "m").length)) {
      session.base = Object.assign({}, session.base, makeTable([offered], BASE));
      missing.push(...use([offered.body]));
    } else session.macros[name] = makeStandIn(name, found);
  }
}

// Guesses the number of braced arguments of a command: the most common number of {...} groups right after it.
function guessArity(name) {
  uses ??= findUses([...texts, ...Array.from(definitions.values(), (definition) => definition.body)].join("\n"));
  const { text, places } = uses, counts = new Array(10).fill(0);
  for (const at of places.get(name) ?? []) {
    let end = at + name.length, groups = 0;
    for (let next; groups < 9 && text[end] === "{" && (next = findGroupEnd(text, end)) > 0; groups++) {
      end = next;
      while (/\s/.test(text[next] ?? "")) next++;
      if (text[next] === "{") end = next;
    }
    counts[groups]++;
  }
  return counts.indexOf(Math.max(...counts));
}

// Finds the first uses of every command in one pass.
function findUses(text) {
  const places = new Map();
  for (const { 0: name, index } of text.matchAll(NAMES)) {
    const found = places.get(name);
    if (found === undefined) places.set(name, [index]);
    else if (found.length < MAX_USES) found.push(index);
  }
  return { text, places };
}

function findGroupEnd(text, at) {
  const stop = Math.min(text.length, at + limits.latex_chars);
  for (let depth = 0; at < stop; at++) {
    if (text[at] === "\\") at++;
    else if (text[at] === "{") depth++;
    else if (text[at] === "}" && --depth === 0) return at + 1;
  }
  return -1;
}

function makeStandIn(command, count) {
  const name = command.replace(/[^\p{L}\p{N}]/gu, "") || "?";
  const values = Array.from({ length: count }, (_, i) => "{#" + (i + 1) + "}").join("");
  const symbol = (count ? "\\operatorname{" : "\\mathrm{") + name + "}";
  const args = new Array(count).fill(["m"]);
  const expand = makeMacro({ name: command, args, body: "\\TextOrMath{" + name + " }{" + symbol + "}" + values,
    prefix: "" },
    0);
  return (context) => {
    session.unknown.add(command);
    return expand(context);
  };
}

// Returns the undefined command that an error names, if it can still be given a meaning.
export function findUndefined(error) {
  const pattern = /(?:Undefined|Unrecognized(?: infix)?) control sequence: (\\(?:[A-Za-z@]+|.))/su;
  const name = pattern.exec(error.message ?? "")?.[1];
  return name && canSettle(name) ? name : null;
}
