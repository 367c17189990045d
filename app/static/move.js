// An image of one class may be dragged to another. The server moves it: here it is only told from where to where.
() => {
  const KIND = "application/x-atlas-image";
  const placeOf = (node) => Number(node.closest?.(".at-class")?.id.split("-")[1] ?? 0); // cards are called class-1 …
  document.addEventListener("dragstart", (event) => {
    const item = event.target.closest?.(".at-class .thumbnail-item");
    if (!item) return;
    const index = [...item.closest(".at-drop").querySelectorAll(".thumbnail-item")].indexOf(item);
    event.dataTransfer.setData(KIND, JSON.stringify({ source: placeOf(item), index }));
    event.dataTransfer.effectAllowed = "move";
  });
  const isOurs = (event) => event.dataTransfer?.types.includes(KIND);
  document.addEventListener("dragover", (event) => isOurs(event) && placeOf(event.target) && event.preventDefault(), true);
  document.addEventListener(
    "drop",
    (event) => {
      if (!isOurs(event)) return;
      event.preventDefault();
      event.stopImmediatePropagation(); // Gradio would take the image for a file from elsewhere
      const move = { ...JSON.parse(event.dataTransfer.getData(KIND)), into: placeOf(event.target) };
      if (move.into && move.into !== move.source) window.atlasMoveImage?.(move);
    },
    true,
  );
}
