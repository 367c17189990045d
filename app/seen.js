// What has just happened is brought into sight: a run that begins or waits for its turn, or a sentence that refuses
// something. The button that was pressed may be far away from both. It is brought at once, since a slow way there
// would cross the next one.
() => {
  // By its start button: where a run is seen, and the stop button that is there while the run is, and only then.
  const RUNS = {
    adapt: ["run", "stop-adapting"],
    "roll-adapt": ["roll-run", "roll-stop-adapting"],
    "forget-start": ["forget-run", "forget-stop"],
    ask: ["status", "stop"],
  };
  const SOON = 500; // milliseconds: a refusal is there by then
  const going = new Set();
  const begin = (part) => {
    const { top } = part.getBoundingClientRect();
    if (top < 0 || top > innerHeight / 2) part.scrollIntoView({ block: "start" });
  };
  const upper = (one, other) => (one.getBoundingClientRect().top < other.getBoundingClientRect().top ? one : other);
  const look = () => {
    for (const [run, stop] of Object.values(RUNS)) {
      const button = document.getElementById(stop);
      if (button && !going.has(stop)) begin(upper(button, document.getElementById(run)));
      button ? going.add(stop) : going.delete(stop);
    }
  };
  const refusal = (node) =>
    node instanceof Element ? (node.matches(".at-refusal") ? node : node.querySelector(".at-refusal")) : null;
  const refuse = (alert) => {
    const { top, bottom } = alert.getBoundingClientRect();
    if (alert.offsetParent !== null && (bottom < 0 || top > innerHeight)) alert.scrollIntoView({ block: "center" });
  };
  document.addEventListener("click", (event) => {
    const [run, stop] = RUNS[event.target.closest?.(".at-start")?.id] ?? [];
    if (!run) return;
    setTimeout(() => {
      if (going.has(stop)) return;
      const alert = [...document.querySelectorAll(".at-refusal")].find((one) => one.offsetParent !== null);
      alert ? refuse(alert) : begin(document.getElementById(run));
    }, SOON);
  });
  new MutationObserver((changes) => {
    look();
    const alert = changes.flatMap((change) => [...change.addedNodes]).map(refusal).find((one) => one);
    if (alert) requestAnimationFrame(() => refuse(alert));
  }).observe(document.body, { childList: true, subtree: true });
}
