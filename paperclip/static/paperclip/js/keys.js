// Single keys: never while typing, never with a modifier, each has a place to click as well, and
// they can be switched off (then only the palette's own Ctrl or Cmd with K remains).

const GO = { h: "/", i: "/issues/", b: "/issues/board", n: "/inbox/", a: "/agents/", o: "/agents/?view=org", r: "/runs/", c: "/costs/", v: "/activity/", s: "/settings/" };
let going = 0;

const off = () => localStorage.getItem("keys") === "off";

function step(by) {
  const rows = [...document.querySelectorAll("#content .row-title")];
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement);
  const next = rows[Math.min(Math.max(at + by, 0), rows.length - 1)];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

// The row or card under the focus, and its check box.
function pick() {
  const box = document.activeElement?.closest(".row")?.querySelector("input[form=bulk]");
  if (box) box.click();
}

// A look at an issue without leaving the list.
function peek() {
  const at = document.activeElement;
  if (!at?.matches(".row-title[href*='/issues/']")) return false;
  const box = document.getElementById("peek");
  window.htmx.ajax("GET", `${at.getAttribute("href")}/peek`, { target: "#peek-body" }).then(() => {
    if (document.getElementById("peek-title") && !box.open) box.showModal();
  });
  return true;
}

function press(target) {
  if (target.dataset.focus) document.getElementById(target.dataset.focus)?.focus();
  else if (target.matches("input")) target.focus();
  else target.click();
  if (target.matches("summary")) setTimeout(() => target.parentElement.querySelector(".menu a, .menu button, .menu input")?.focus());
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || off()) return;
  if (event.target.closest("input:not([type=checkbox]), textarea, select, dialog, [contenteditable]")) return;
  const base = document.body.dataset.base;
  if (base && Date.now() - going < 1200 && GO[event.key]) {
    going = 0;
    event.preventDefault();
    location.assign(base + GO[event.key]);
    return;
  }
  going = event.key === "g" ? Date.now() : 0;
  if (event.key === "j") step(1);
  if (event.key === "k") step(-1);
  if (event.key === "x") pick();
  if (event.key === " " && peek()) event.preventDefault();
  if (event.key === "?") document.getElementById("keyboard")?.showModal();
  const key = CSS.escape(event.key);
  const target = document.querySelector(`[data-key="${key}"], [data-key-focus="${key}"]`);
  if (target) {
    event.preventDefault();
    press(target);
  }
});

// The switch in the sheet.
const choice = document.getElementById("keys-on");
if (choice) {
  choice.checked = !off();
  choice.addEventListener("change", () => {
    if (choice.checked) localStorage.removeItem("keys");
    else localStorage.setItem("keys", "off");
  });
}
