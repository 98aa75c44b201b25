// Cards are moved by drag, by their menu and by the key m; all three send the same form.
import { goOn, waitFor } from "./turns.js";

const dialog = () => document.getElementById("move");

function ask(card, to = "") {
  const box = dialog();
  const form = box.querySelector("form");
  form.elements.issue.value = card.dataset.card;
  form.elements.from.value = card.closest("[data-column]").dataset.column;
  form.elements.note.value = "";
  box.querySelector("[data-move-name]").textContent = card.dataset.card;
  for (const button of box.querySelectorAll("[name=to]")) {
    button.hidden = button.value === form.elements.from.value;
  }
  box.showModal();
  if (to) form.elements.note.focus();
  else box.querySelector("[name=to]:not([hidden])").focus();
}

function send(card, to) {
  const form = dialog().querySelector("form");
  const values = { issue: card.dataset.card, from: card.closest("[data-column]").dataset.column, to };
  card.setAttribute("aria-busy", "true");
  window.htmx.ajax("POST", form.action, { values, target: "#issue-board", swap: "outerHTML" });
}

let held = null;

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-move]");
  if (button) ask(button.closest("[data-card]"));
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "m" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, dialog")) return;
  const card = document.activeElement?.closest("[data-card]");
  if (card && dialog()) {
    event.preventDefault();
    ask(card);
  }
});
document.addEventListener("dragstart", (event) => {
  held = event.target.closest?.("[data-card]");
  if (!held || !dialog()) return;
  event.dataTransfer.effectAllowed = "move";
  event.dataTransfer.setData("text/plain", held.dataset.card);
  requestAnimationFrame(() => held?.setAttribute("data-held", ""));
});
function over(event) {
  const column = held && event.target.closest?.("[data-column]");
  for (const one of document.querySelectorAll("[data-over]")) if (one !== column) one.removeAttribute("data-over");
  return column;
}
document.addEventListener("dragover", (event) => {
  const column = over(event);
  if (!column) return;
  event.preventDefault();
  column.setAttribute("data-over", "");
});
document.addEventListener("drop", (event) => {
  const column = over(event);
  if (!column) return;
  event.preventDefault();
  const card = document.getElementById(held.id);
  const to = column.dataset.column;
  if (!card || card.closest("[data-column]") === column) return;
  // What is blocked needs somebody who must do something: the dialog asks for it.
  if (to === "blocked") ask(card, to);
  else send(card, to);
});
document.addEventListener("dragend", () => {
  for (const one of document.querySelectorAll("[data-held], [data-over]")) {
    one.removeAttribute("data-held");
    one.removeAttribute("data-over");
  }
  held = null;
  goOn();
});
// The dialog closes when its form was answered; the focus goes back to the card, wherever it is.
document.addEventListener("htmx:afterSwap", (event) => {
  const box = dialog();
  if (!box?.open || event.target.id !== "issue-board") return;
  const name = box.querySelector("form").elements.issue.value;
  box.close();
  document.getElementById(`go-${name}`)?.focus();
});
// What is live waits while a card is in somebody's hand, also what was on its way already.
let pressed = false; // between the press and the start of the drag the card must stay, too
waitFor(() => pressed || held || dialog()?.open);
document.addEventListener("pointerdown", (event) => {
  held = null; // the end of a drag is not told when its card is gone
  pressed = Boolean(event.target.closest?.("[data-card]"));
});
for (const end of ["pointerup", "pointercancel"]) {
  document.addEventListener(end, () => {
    pressed = false;
    goOn();
  });
}
dialog()?.addEventListener("close", goOn);
