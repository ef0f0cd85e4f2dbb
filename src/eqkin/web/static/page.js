// The entry of every page: what each module does starts here.
import { startExpanding } from "./expand.js";
import { startForm } from "./preview.js";
import { startJudging } from "./judge.js";
import { startKeyboard } from "./keyboard.js";
import { startMatching } from "./match.js";
import { startNavigation } from "./navigate.js";
import { startPalette } from "./palette.js";

startForm();
startPalette();
startNavigation();
startKeyboard();
startJudging();
startExpanding();
startMatching();
