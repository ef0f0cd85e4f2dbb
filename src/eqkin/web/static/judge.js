// "Relevant" and "not" under a result, kept by the server with the query.
import { ask } from "./ask.js";

export function startJudging() {
  reveal();
  document.addEventListener("swapped", reveal);
  document.addEventListener("click", (event) => {
    const button = event.target.closest(".judge");
    if (button) judge(button.closest(".hit"), button.dataset.relevant === "1");
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !event.target.matches(".keywords")) return;
    event.preventDefault();
    const pressed = event.target.closest(".judging").querySelector('[aria-pressed="true"]');
    if (pressed) judge(event.target.closest(".hit"), pressed.dataset.relevant === "1");
  });
}

function reveal() {
  for (const part of document.querySelectorAll(".results .judging")) part.hidden = false;
}

/** Store whether a hit is relevant, with the words in its keywords field. */
export async function judge(hit, relevant) {
  const results = hit.closest(".results").dataset;
  const [field, status] = [hit.querySelector(".keywords"), hit.querySelector(".judged")];
  const keywords = field.value.split(",").map((word) => word.trim()).filter(Boolean);
  const body = { equation: hit.dataset.id, relevant, latex: results.latex, mathml: results.mathml, words: results.words, keywords };
  try {
    await ask("/api/judgements", { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });
    for (const button of hit.querySelectorAll(".judge")) {
      button.setAttribute("aria-pressed", String((button.dataset.relevant === "1") === relevant));
    }
    field.hidden = false;
    status.textContent = keywords.length ? "Saved, with keywords." : "Saved.";
  } catch (error) {
    status.textContent = `Not saved: ${error.message}`;
  }
  return true;
}
