// Scrolls to what has just happened: a run that begins or waits for its turn, or a sentence that refuses something.
// The button that was pressed may be far away from both. It jumps, since a slow scroll would cross the next one.
() => {
  // By what starts a run: where it is seen, its Stop button, which is there only while the run lasts, and the button
  // that leaves the queue.
  const LEARNING = ["run", "stop-adapting", "leave"];
  const RUNS = {
    adapt: LEARNING,
    "learn-again": LEARNING,
    "unlabelled-adapt": LEARNING,
    "unlabelled-examples": LEARNING,
    "forget-start": ["forget-run", "forget-stop", "forget-leave"],
  };
  const SOON = 500; // milliseconds: a refusal is there by then
  const running = new Set();
  const scrollToRun = (part) => {
    if (!part) return; // its tab has not been opened yet: it comes into sight by itself
    const { top } = part.getBoundingClientRect();
    if (top < 0 || top > innerHeight / 2) part.scrollIntoView({ block: "start" });
  };
  // The button that leaves the queue is there while Gradio waits for a run of which nothing is seen yet.
  const watchQueue = (run, stop, leave) => {
    const tracker = document.querySelector(`#${run} [data-testid="status-tracker"].translucent:not(.hide)`);
    const waiting = tracker !== null && document.getElementById(stop) === null;
    document.getElementById(leave)?.classList.toggle("at-waiting", waiting);
    if (waiting) setTimeout(watchQueue, SOON / 2, run, stop, leave);
    return waiting;
  };
  const upper = (one, other) =>
    one && other ? (one.getBoundingClientRect().top < other.getBoundingClientRect().top ? one : other) : (one ?? other);
  const scrollToNewRuns = () => {
    for (const [run, stop] of Object.values(RUNS)) {
      const button = document.getElementById(stop);
      if (button && !running.has(stop)) scrollToRun(upper(button, document.getElementById(run)));
      button ? running.add(stop) : running.delete(stop);
    }
  };
  const refusalIn = (node) =>
    node instanceof Element ? (node.matches(".at-refusal") ? node : node.querySelector(".at-refusal")) : null;
  // A refusal may come while its tab is hidden, and the page turns to it a moment later.
  const scrollToAlert = (alert, tries = 8) => {
    if (alert.isConnected && alert.offsetParent === null && tries > 0) {
      setTimeout(scrollToAlert, SOON / 2, alert, tries - 1);
    }
    const { top } = alert.getBoundingClientRect();
    if (alert.offsetParent !== null && (top < 0 || top > innerHeight)) alert.scrollIntoView({ block: "center" });
  };
  document.addEventListener("click", (event) => {
    const [run, stop, leave] = RUNS[event.target.closest?.(".at-start, #unlabelled-examples")?.id] ?? [];
    if (!run) return;
    setTimeout(() => {
      if (running.has(stop)) return;
      const place = document.getElementById(run);
      if (watchQueue(run, stop, leave)) return scrollToRun(upper(document.getElementById(leave), place));
      const alert = [...document.querySelectorAll(".at-refusal")].find((one) => one.offsetParent !== null);
      alert ? scrollToAlert(alert) : scrollToRun(place);
    }, SOON);
  });
  new MutationObserver((changes) => {
    scrollToNewRuns();
    const alert = changes.flatMap((change) => [...change.addedNodes]).map(refusalIn).find((one) => one);
    if (!alert) return;
    requestAnimationFrame(() => scrollToAlert(alert));
    setTimeout(scrollToAlert, SOON, alert); // what comes with it may have moved it
  }).observe(document.body, { childList: true, subtree: true });
}
