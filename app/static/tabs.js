// Arrow keys, Home and End move between the tabs of a row, as screen readers announce them to.
() => {
  const STEPS = { ArrowLeft: -1, ArrowRight: 1 };
  document.addEventListener("keydown", (event) => {
    const tab = event.target.closest?.("[role=tab]");
    if (!tab || !(event.key in STEPS || event.key === "Home" || event.key === "End")) return;
    const tabs = [...tab.closest("[role=tablist]").querySelectorAll("[role=tab]")].filter((one) => one.offsetParent !== null);
    const here = tabs.indexOf(tab);
    const place = event.key === "Home" ? 0 : event.key === "End" ? tabs.length - 1 : here + STEPS[event.key];
    const next = tabs[(place + tabs.length) % tabs.length];
    event.preventDefault();
    next.focus();
    next.click();
  });
}
