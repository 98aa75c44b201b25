// Ctrl or Cmd with K. The server finds; here is only the walking. Focus stays in the field, and the
// chosen line is the one that Enter presses.
const box = document.getElementById("palette");
const field = box?.querySelector("input");
const lines = () => [...box.querySelectorAll("[data-choice]")];
let at = 0;

function mark(index) {
  const all = lines();
  if (!all.length) return;
  at = (index + all.length) % all.length;
  all.forEach((line, n) => line.toggleAttribute("data-on", n === at));
  all[at].scrollIntoView({ block: "nearest" });
  say(all[at].textContent.trim().replace(/\s+/g, " "), at + 1, all.length);
}

// The field keeps the focus, so a screen reader is told in words what is chosen.
const spoken = document.createElement("p");
spoken.className = "sr-only";
spoken.setAttribute("role", "status");
box?.append(spoken);
function say(text, n, of) {
  spoken.textContent = `${text}, ${n} of ${of}`;
}

function open() {
  if (box.open) return box.close();
  box.showModal();
  field.value = "";
  field.focus();
  field.dispatchEvent(new CustomEvent("palette:open"));
}

document.addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey && box) {
    event.preventDefault();
    open();
  }
});
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-palette]") && box) {
    event.preventDefault();
    open();
  }
  if (event.target === box) box.close();
});
box?.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    mark(at + (event.key === "ArrowDown" ? 1 : -1));
  } else if (event.key === "Enter" && event.target === field) {
    const chosen = lines()[at];
    if (!chosen) return;
    event.preventDefault();
    chosen.click();
  }
});
box?.addEventListener("htmx:afterSwap", () => mark(0));
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.target.id === "palette-found" && box?.open) mark(0);
});
