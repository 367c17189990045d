// Pictures may be dropped or pasted anywhere on the page: they go to the one file input that the page has.
// Gradio's own drop zone handles what falls on it, and marks that event as taken.
() => {
  const input = () => document.querySelector("#images input[type=file]");
  const hand_over = (event, files) => {
    if (event.defaultPrevented || !files || files.length === 0 || !input()) return;
    event.preventDefault();
    input().files = files;
    input().dispatchEvent(new Event("change", { bubbles: true }));
  };
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => hand_over(event, event.dataTransfer.files));
  document.addEventListener("paste", (event) => hand_over(event, event.clipboardData.files));
}
