// The selection of a list: it survives live updates, and says how many.
const chosen = new Set();
const boxes = () => document.querySelectorAll("input[form=bulk][name=issue]");

function tell() {
  const words = document.querySelector("[data-picked]");
  if (words) words.textContent = String(chosen.size);
}

let last = null;
document.addEventListener("click", (event) => {
  const box = event.target.closest?.("input[form=bulk][name=issue]");
  if (!box) return;
  const all = [...boxes()];
  if (event.shiftKey && last && all.includes(last)) {
    const [a, b] = [all.indexOf(last), all.indexOf(box)].sort((x, y) => x - y);
    for (const one of all.slice(a, b + 1)) one.checked = box.checked;
  }
  last = box;
  for (const one of all) {
    if (one.checked) chosen.add(one.value);
    else chosen.delete(one.value);
  }
  tell();
});
document.addEventListener("reset", (event) => {
  if (event.target.id !== "bulk") return;
  chosen.clear();
  tell();
});
document.addEventListener("htmx:afterSwap", () => {
  const there = new Set();
  for (const box of boxes()) {
    box.checked = chosen.has(box.value);
    there.add(box.value);
  }
  // What is not on the page any more cannot be meant.
  for (const name of chosen) if (!there.has(name)) chosen.delete(name);
  tell();
});
// A browser that goes back restores check boxes before this runs.
for (const box of boxes()) if (box.checked) chosen.add(box.value);
tell();
