// Images may be dropped or pasted anywhere on the page. They go to the drop zone in sight: images to try, or images
// without labels. Gradio's own drop zones handle what falls on them, and mark that event as taken. Where there is no zone in sight, the page stays and says so: a browser left alone would open the file in its
// place.
({ words }) => {
  const zones = ["#samples", "#unlabelled"];
  const inSight = (one) => one && one.offsetParent !== null;
  const findInput = () =>
    zones
      .map((zone) => document.querySelector(zone))
      .filter(inSight)
      .map((zone) => zone.querySelector("input[type=file]"))
      .find((found) => found);
  const refuse = () => {
    const buttons = [...document.querySelectorAll("[id$='-zip']")].find(inSight);
    const zip = buttons?.parentElement.querySelector("input[type=file]");
    if (zip) window.atlasShowAlert(zip, [words.no_zone]);
  };
  const handOver = (event, files) => {
    if (event.defaultPrevented || !files || files.length === 0) return;
    const target = findInput();
    if (target || event.type === "drop") event.preventDefault();
    if (!target) return event.type === "drop" ? refuse() : undefined;
    target.files = files;
    target.dispatchEvent(new Event("change", { bubbles: true }));
  };
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => handOver(event, event.dataTransfer.files));
  document.addEventListener("paste", (event) => handOver(event, event.clipboardData.files));
}
