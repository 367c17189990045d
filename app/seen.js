// What has just happened is brought into sight: a run that begins or waits for its turn, or a sentence that refuses
// something. The button that was pressed may be far away from both.
() => {
  // A stop button is there while its run is, and only then.
  const RUNS = { "stop-adapting": "run", "roll-stop-adapting": "roll-run", "forget-stop": "forget-run", stop: "status" };
  const STARTS = { adapt: "run", "roll-adapt": "roll-run", "forget-start": "forget-run", ask: "status" };
  const SOON = 500; // milliseconds: a refusal is there by then
  const going = new Set();
  const bring = (part, block) => {
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    part.scrollIntoView({ block, behavior: still ? "auto" : "smooth" });
  };
  const begin = (button, run) => {
    const top = Math.min(button.getBoundingClientRect().top, run.getBoundingClientRect().top);
    if (top < 0 || top > innerHeight / 2) bring(top === run.getBoundingClientRect().top ? run : button, "start");
  };
  const look = () => {
    for (const [stop, run] of Object.entries(RUNS)) {
      const button = document.getElementById(stop);
      if (button && !going.has(stop)) begin(button, document.getElementById(run));
      button ? going.add(stop) : going.delete(stop);
    }
  };
  const refusal = (node) =>
    node instanceof Element ? (node.matches(".at-refusal") ? node : node.querySelector(".at-refusal")) : null;
  const refuse = (alert) => {
    const { top, bottom } = alert.getBoundingClientRect();
    if (alert.offsetParent !== null && (bottom < 0 || top > innerHeight)) bring(alert, "center");
  };
  document.addEventListener("click", (event) => {
    const run = STARTS[event.target.closest?.(".at-start")?.id];
    if (!run) return;
    setTimeout(() => {
      const alert = [...document.querySelectorAll(".at-refusal")].find((one) => one.offsetParent !== null);
      const part = document.getElementById(run);
      alert ? refuse(alert) : begin(part, part);
    }, SOON);
  });
  new MutationObserver((changes) => {
    look();
    const alert = changes.flatMap((change) => [...change.addedNodes]).map(refusal).find((one) => one);
    if (alert) requestAnimationFrame(() => refuse(alert));
  }).observe(document.body, { childList: true, subtree: true });
}
