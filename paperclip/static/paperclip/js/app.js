// What every page runs. Each part works on its own and on what htmx swaps in later.
import "./theme.js";
import "./time.js";
import "./turns.js";
import "./forms.js";
import "./keep.js";
import "./keys.js";
import "./palette.js";
import { follow } from "./live.js";

follow(document.body.dataset.events);

// A chart that is wider than its frame is looked at from its middle, where its head stands.
for (const box of document.querySelectorAll(".org-box")) box.scrollLeft = (box.scrollWidth - box.clientWidth) / 2;

if (document.getElementById("move")) import("./board.js");
if (document.getElementById("bulk")) import("./select.js");

if (document.querySelector("[data-log]")) {
  import("./log.js").then((log) => log.start());
}
document.addEventListener("htmx:afterSwap", () => {
  if (document.querySelector("[data-log]:not([data-ready])")) {
    import("./log.js").then((log) => log.start());
  }
});
