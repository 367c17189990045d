// What has just happened is brought into sight: a run that begins or waits for its turn, or a sentence that refuses
// something. The button that was pressed may be far away from both. It is brought at once, since a slow way there
// would cross the next one.
() => {
  // By what starts it: where a run is seen, the stop button that is there while the run is, and only then, and the
  // button that leaves the queue.
  const ROLL = ["roll-run", "roll-stop-adapting", "roll-leave"];
  const RUNS = {
    adapt: ["run", "stop-adapting", "leave"],
    "roll-adapt": ROLL,
    rolls: ROLL,
    "forget-start": ["forget-run", "forget-stop", "forget-leave"],
    ask: ["status", "stop", "ask-leave"],
  };
  const SOON = 500; // milliseconds: a refusal is there by then
  const going = new Set();
  const begin = (part) => {
    const { top } = part.getBoundingClientRect();
    if (top < 0 || top > innerHeight / 2) part.scrollIntoView({ block: "start" });
  };
  // The button that leaves the queue is there while Gradio waits for a run of which nothing is seen yet.
  const wait = (run, stop, leave) => {
    const waits = document.querySelector(`#${run} [data-testid="status-tracker"].translucent:not(.hide)`);
    const waiting = waits !== null && document.getElementById(stop) === null;
    document.getElementById(leave)?.classList.toggle("at-waiting", waiting);
    if (waiting) setTimeout(wait, SOON / 2, run, stop, leave);
    return waiting;
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
    const [run, stop, leave] = RUNS[event.target.closest?.(".at-start, #rolls")?.id] ?? [];
    if (!run) return;
    setTimeout(() => {
      if (going.has(stop)) return;
      const place = document.getElementById(run);
      if (wait(run, stop, leave)) return begin(upper(document.getElementById(leave), place));
      const alert = [...document.querySelectorAll(".at-refusal")].find((one) => one.offsetParent !== null);
      alert ? refuse(alert) : begin(place);
    }, SOON);
  });
  new MutationObserver((changes) => {
    look();
    const alert = changes.flatMap((change) => [...change.addedNodes]).map(refusal).find((one) => one);
    if (alert) requestAnimationFrame(() => refuse(alert));
  }).observe(document.body, { childList: true, subtree: true });
}
