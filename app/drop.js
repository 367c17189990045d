// Pictures may be dropped or pasted anywhere on the page. They go to the drop zone in sight: pictures
// to try, photos without labels, or pictures to ask about. Gradio's own drop zones handle what falls on them, and mark
// that event as taken. Where there is no zone in sight, the page stays and says so: a browser left alone would open the
// file in its place.
({ words }) => {
  const zones = ["#samples", "#roll", "#images"];
  const in_sight = (one) => one && one.offsetParent !== null;
  const input = () =>
    zones
      .map((zone) => document.querySelector(zone))
      .filter(in_sight)
      .map((zone) => zone.querySelector("input[type=file]"))
      .find((found) => found);
  const say_no = () => {
    const buttons = [...document.querySelectorAll("[id$='-zip']")].find(in_sight);
    const zip = buttons?.parentElement.querySelector("input[type=file]");
    if (zip) window.atlasTell(zip, [words.no_zone]);
  };
  const hand_over = (event, files) => {
    if (event.defaultPrevented || !files || files.length === 0) return;
    const target = input();
    if (target || event.type === "drop") event.preventDefault();
    if (!target) return event.type === "drop" ? say_no() : undefined;
    target.files = files;
    target.dispatchEvent(new Event("change", { bubbles: true }));
  };
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => hand_over(event, event.dataTransfer.files));
  document.addEventListener("paste", (event) => hand_over(event, event.clipboardData.files));
}
