// Pictures may be dropped or pasted anywhere on the page. They go to the drop zone in sight: pictures
// to try, photos without labels, or pictures to ask about. Gradio's own drop zones handle what falls on them, and mark
// that event as taken.
() => {
  const zones = ["#samples", "#roll", "#images"];
  const input = () =>
    zones
      .map((zone) => document.querySelector(zone))
      .filter((zone) => zone && zone.offsetParent !== null)
      .map((zone) => zone.querySelector("input[type=file]"))
      .find((found) => found);
  const hand_over = (event, files) => {
    if (event.defaultPrevented || !files || files.length === 0 || !input()) return;
    event.preventDefault();
    const target = input();
    target.files = files;
    target.dispatchEvent(new Event("change", { bubbles: true }));
  };
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => hand_over(event, event.dataTransfer.files));
  document.addEventListener("paste", (event) => hand_over(event, event.clipboardData.files));
}
