// Switches the theme at once and lets the server remember it.
document.addEventListener("submit", (event) => {
  const form = event.target.closest("[data-theme-form]");
  if (!form || !event.submitter) return;
  event.preventDefault();
  const theme = event.submitter.value;
  document.documentElement.dataset.theme = theme;
  for (const button of document.querySelectorAll("[data-theme-form] button")) {
    button.setAttribute("aria-pressed", String(button.value === theme));
  }
  fetch(form.action, { method: "POST", body: new FormData(form, event.submitter), redirect: "manual" });
});
