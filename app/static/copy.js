// Buttons that copy what stands beside them: lines of code, or the whole address of a link.
({ copied }) => {
  const copy = async (words) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(words);
    const field = document.createElement("textarea"); // without HTTPS there is no clipboard object
    field.value = words;
    document.body.appendChild(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.("[data-copies]");
    if (!button) return;
    const source = button.parentElement.querySelector(button.dataset.copies);
    await copy(source.href ?? source.textContent);
    const label = button.textContent;
    if (label === copied) return;
    button.textContent = copied;
    setTimeout(() => (button.textContent = label), 2000);
  });
}
